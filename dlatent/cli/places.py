"""Destinations, looked at before the work begins and not after it."""

from __future__ import annotations


def require_free(destination: str, *, overwrite: bool) -> None:
    """Refuse a destination that cannot be written or is taken; with `overwrite`, one that is taken by no store."""
    from dlatent.stores.atomic import require_writable

    require_writable(destination, overwrite=overwrite, how="replace it with --overwrite")
