"""Destinations: looked at before the work begins and not after it, and what an interrupt leaves there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlatent.errors import StoreError


def require_free(
    destination: str, *read: str, overwrite: bool, resume: str | None = None, beside: Sequence[str | None] = ()
) -> None:
    """Refuse a destination that cannot be written, is taken, or touches what is read, or what is written `beside`; with
    `overwrite`, one that is taken by no store; with the checkpoint `resume`, not what a killed process has left."""
    from dlatent.stores.atomic import require_writable
    from dlatent.stores.places import require_apart, require_separate

    require_separate(destination, *beside)
    for place in (destination, *beside):
        if place is not None:
            require_apart(place, *read)
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


def require_new(path: str | None, *read: str, overwrite: bool) -> None:
    """Refuse a file that is there, unless it may be overwritten, one that touches what is read, or lies in a store, and
    one in a directory that is not."""
    if path is None:
        return
    from dlatent.stores.places import check_part, require_apart

    require_apart(path, *read)
    if "://" in path or Path(path).is_dir():
        raise StoreError(f"{path} is no local file, and tables and pictures are written to these; choose another path")
    check_part(path)
    if Path(path).exists() and not overwrite:
        raise StoreError(f"{path} is there already; replace it with --overwrite")
    if not Path(path).absolute().parent.is_dir():
        raise StoreError(f"{path} cannot be written: there is no directory {Path(path).absolute().parent}")


@contextmanager
def written(path: str) -> Iterator[Path]:
    """A place to write a file that comes to its own place as a whole, or not at all.

    Errors: StoreError where it cannot be written.
    """
    from dlatent.stores.beside import whole_file

    try:
        with whole_file(path) as aside:
            yield aside
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
