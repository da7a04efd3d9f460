"""Destinations, looked at before the work begins and not after it."""

from __future__ import annotations

import os

from dlatent.errors import StoreError


def require_free(destination: str, *, overwrite: bool) -> None:
    """Refuse a destination that is taken; with `overwrite`, one that is taken by something else than a Zarr store."""
    from dlatent.stores.location import is_node, local_path, zarr_location

    path, store = local_path(destination), is_node(zarr_location(destination))
    taken = store if path is None else os.path.lexists(path)
    if taken and not overwrite:
        raise StoreError(f"{destination} already exists; replace it with --overwrite, or choose another path")
    empty = path is not None and path.is_dir() and not any(path.iterdir())
    if taken and not store and not empty:
        raise StoreError(f"{destination} exists and is no Zarr store, so it is not replaced; choose another path")
