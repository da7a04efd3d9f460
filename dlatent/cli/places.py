"""Destinations: looked at before the work begins and not after it, and what an interrupt leaves there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def require_free(destination: str, *, overwrite: bool, resume: bool = False) -> None:
    """Refuse a destination that cannot be written or is taken; with `overwrite`, one that is taken by no store; with
    `resume`, not one that is half-written."""
    from dlatent.stores.atomic import require_writable

    require_writable(destination, overwrite=overwrite, resume=resume, how="replace it with --overwrite")


@contextmanager
def told_how_to_go_on(how: str | None) -> Iterator[None]:
    """Say with an interrupt how the command goes on, where it can."""
    try:
        yield
    except KeyboardInterrupt as error:
        if how is None:
            raise
        raise type(error)(f"; {how}") from error
