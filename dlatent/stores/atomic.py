"""How a store becomes complete: all of it, or nothing that opens.

Laws (tested in tests/stores/test_stores_atomic.py):
1. A store at `target` is complete, or it is not there (local), or it says `complete: false` (remote, killed writer).
2. A failed or interrupted writer leaves nothing behind, and an old local store that it was to replace is untouched.
3. A killed writer leaves the old local store or the new one, and the next writer removes what else it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from dlatent.errors import StoreError, cause
from dlatent.stores.checkpoint import identity
from dlatent.stores.documents import DOCUMENT, begin, forget, store_at, written
from dlatent.stores.location import Place, filesystem_at, local_path, zarr_location
from dlatent.stores.objects import opened, reopened
from dlatent.stores.places import check_replaced
from dlatent.stores.temporary import PARTIAL, discard, make, put_back, release, replace, sweep, take

MARKER = "dlatent"
"""Name of the root attribute that holds kind, version and completeness of a store."""

SIGNED = "checkpoint"
"""Key of the marker for the checkpoint that a store was made with."""

STORE_VERSION = 1
"""Layout version of the data stores (matrices) that this library writes."""

REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of a disk that is full, fails, or may not be written."""

REPLACE = "pass overwrite=True to replace it"
"""Hint to overwrite."""

RESULT = "result"
"""Kind of the stores that hold fitted models; all other kinds hold data."""

GRAPH = "graph"
"""Kind of the stores that hold edges."""

PRECISION = "precision"
"""Kind of the stores that hold a precision between samples."""

DATA_KINDS = ("data", "matrix", GRAPH, PRECISION)
"""Kinds of the stores that hold data; all others hold results."""


@contextlib.contextmanager
def new_store(
    target: Place,
    *,
    kind: str = "matrix",
    version: int = STORE_VERSION,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> Iterator[zarr.Group]:
    """A context in which a new Zarr v3 store is written; it exists only once the context ends without an error.

    Locally the group lies in a sibling directory `.NAME.partial-HOST-RANDOM` (see `temporary`) that is renamed at the
    end.  Remote stores have no rename: they are written in place under `complete: false`, and with `overwrite` the old
    one is removed first.

    Parameters: `target`, a path or fsspec URL; `kind` and `version`, written to the root attribute `dlatent`;
    `overwrite`, whether a store that is already there is replaced; `attributes`, others of the root.
    Yields: the root group, usable inside the context only.
    Errors: StoreError where the target exists (or, with `overwrite`, exists and is no store).
    """
    with begun(target, kind=kind, version=version, overwrite=overwrite, attributes=attributes) as store:
        yield store.root()
        store.finish()


@contextlib.contextmanager
def writing(target: Place) -> Iterator[None]:
    """A context whose errors of the disk are StoreErrors; those that name a file elsewhere stay as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSED or not _beside(target, error.filename):
            raise
        how = "make room, check your right to write there, or choose another place"
        raise StoreError(f"cannot write {zarr_location(target)}: {error}; {how}") from error


def _beside(target: Place, name: Any) -> bool:
    """Whether a file lies in a store, or in what is written for it; true where an error names none."""
    path = local_path(target)
    if path is None or not isinstance(name, str):
        return True
    return any(part == path.name or part.startswith(f".{path.name}{PARTIAL}") for part in Path(name).parts)


@contextlib.contextmanager
def begun(
    target: Place,
    *,
    kind: str,
    version: int = STORE_VERSION,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> Iterator[Unfinished]:
    """A context in which a new store is written, and is removed where the context fails; in it or after it `finish` or
    `abort` must follow."""
    place, local = zarr_location(target), local_path(target) is not None
    if local:
        sweep(Path(place))
    with _writing_to(place):
        taken, location = _check_place(place, overwrite), place
        if local:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            location = str(make(Path(place)))
        elif taken:
            _remove(place)
    store = Unfinished(place, location, overwrite)
    try:
        with _writing_to(place):
            marker = {"kind": kind, "version": version, "complete": False}
            zarr.create_group(begin(location), zarr_format=3, attributes={MARKER: marker, **(attributes or {})})
        with writing(target):
            yield store
    except BaseException:
        store.abort()
        raise


@dataclass(frozen=True)
class Unfinished:
    """A store that is written at `location` and comes to `target`, in place of an old one only with `overwrite`."""

    target: str
    location: str
    overwrite: bool

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: an open store with its URL."""
        return {**vars(self), "store": opened(self.location)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Know the open store in this process, too."""
        vars(self).update(state)  # the store with it, which would be closed here
        reopened(self.location, state["store"])

    def root(self) -> zarr.Group:
        """The group of the store, to be written."""
        return zarr.open_group(written(self.location), mode="r+", zarr_format=3)

    def sign(self, checkpoint: str | None) -> None:
        """Keep in the store with which checkpoint it is made; None is passed over."""
        with writing(self.target):
            sign(self.root(), checkpoint)

    def finish(self) -> None:
        """Mark the store complete and move it to its place; `abort` must follow where this fails."""
        store = written(self.location)
        documents = {key.removesuffix(DOCUMENT).rstrip("/"): json.loads(text) for key, text in store.documents.items()}
        root = documents.pop("")
        marker = root["attributes"][MARKER]
        marker["complete"] = True
        if marker["kind"] not in DATA_KINDS:
            # All metadata at the root, where xarray looks for them first.  Nobody changes a result, so that they do not
            # go stale, as they would beside data; dlatent does not read them.
            inline = {"kind": "inline", "must_understand": False, "metadata": dict(sorted(documents.items()))}
            root["consolidated_metadata"] = inline
        sync(store.set(DOCUMENT, default_buffer_prototype().buffer.from_bytes(json.dumps(root, indent=2).encode())))
        forget(self.location)
        if local_path(self.target) is not None:
            if _check_place(self.target, self.overwrite):
                replace(Path(self.location), Path(self.target))
            else:
                os.rename(self.location, self.target)
            release(self.location)

    def abort(self) -> None:
        """Remove what was written; never raises, because it runs while another error is on its way."""
        _settle()
        forget(self.location)
        if local_path(self.location) is not None:
            discard(self.location)
            return
        with contextlib.suppress(Exception):
            _remove(self.location)

    def leave(self) -> None:
        """Leave what was written to the process that takes it over, once Zarr has written all of it."""
        _settle()
        forget(self.location)
        if local_path(self.location) is not None:
            release(self.location)

    def take_over(self) -> bool:
        """Go on with what another process has left; False where it is no longer there.

        Errors: StoreError where a living process writes it.
        """
        try:
            if local_path(self.location) is not None:
                take(Path(self.location))
        except BlockingIOError as error:
            raise StoreError(f"{self.location} is being written by another process; wait for it") from error
        except FileNotFoundError:
            return False
        # Where it is complete, its writer died before it was moved: the next one removes it.
        if _marker(self.location).get("complete") is not False:
            self.leave()
            return False
        return True


def require_writable(
    target: Place,
    *,
    overwrite: bool,
    resume: Place | None = None,
    how: str = REPLACE,
) -> None:
    """Refuse a place that cannot be written, or that is taken, before the work begins whose results are to go there.

    Whether it can be written is tried, not guessed: a directory (a file, in an object store) is made there and removed.
    Parameters: `resume`, the checkpoint of work that goes on, whose store may be half-written or whole; `how`, what a
    message says of overwriting.
    Errors: StoreError.
    """
    place, local = zarr_location(target), local_path(target) is not None
    overwrite = overwrite or (resume is not None and left_by(target, identity(resume)))
    if local:
        put_back(Path(place))
    with _writing_to(place):
        _check_place(place, overwrite, how)
        if local:
            above = Path(place)
            while not os.path.lexists(above.parent):
                above = above.parent
            discard(make(above))
        elif opened(place) is None:
            filesystem, root = filesystem_at(place)
            name = f"{root}{PARTIAL}{secrets.token_hex(6)}"
            filesystem.pipe_file(name, b"")
            filesystem.rm(name)


@contextlib.contextmanager
def _writing_to(place: str) -> Iterator[None]:
    """A context whose exceptions are StoreErrors: those of object stores are of any type."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"cannot write a store at {place}: {error}; choose a place that you can write to") from cause(
            error
        )


def _remove(url: str) -> None:
    filesystem, root = filesystem_at(url)
    filesystem.rm(root, recursive=True)


def _marker(location: str) -> Mapping[str, Any]:
    """The marker at the root of a store; nothing where no store can be read."""
    try:
        store = store_at(location, read_only=True)
        marker = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False).attrs.get(MARKER)
    except Exception:
        return {}
    return marker if isinstance(marker, dict) else {}


def sign(group: zarr.Group, checkpoint: str | None) -> None:
    """Keep in a store with which checkpoint it is made; None is passed over."""
    if checkpoint is not None:
        group.attrs[MARKER] = {**cast(Mapping[str, Any], group.attrs[MARKER]), SIGNED: checkpoint}


def left_by(target: Place, checkpoint: str | None) -> bool:
    """Whether a killed process that is to go on has left the store at `target`: half-written (a remote one; local ones
    lie aside), or whole and made with the checkpoint of this identity, which is still there."""
    unfinished = local_path(target) is None and _marker(zarr_location(target)).get("complete") is False
    return unfinished or written_with(target, checkpoint)


def written_with(target: Place, checkpoint: str | None) -> bool:
    """Whether the store at `target` is whole and made with a checkpoint of this identity."""
    marker = _marker(zarr_location(target))
    return checkpoint is not None and marker.get("complete") is True and marker.get(SIGNED) == checkpoint


def _settle() -> None:
    """Wait for what Zarr still writes: an interrupt ends the wait of its caller only, and files would come back."""
    with contextlib.suppress(Exception):
        sync(_settled())


async def _settled() -> None:
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


def kind_of(node: zarr.Array[Any] | zarr.Group) -> str | None:
    """The kind of the store whose root a node is; None where dlatent has not written it."""
    marker = node.attrs.get(MARKER)
    return str(marker.get("kind")) if isinstance(marker, dict) else None


def check_marker(marker: Any, place: str, *, supported: int, kind: str | None = None) -> int:
    """Refuse a store that says that it is unfinished, of a newer version, or of another kind.

    Parameters: `marker`, the attribute `dlatent` of its root; `supported`, the newest version that can be read.
    Returns: the version of the store.
    """
    if not isinstance(marker, Mapping):
        raise StoreError(f"{place}: the attribute {MARKER!r} is damaged: {marker!r}; write the store again")
    if marker.get("complete") is not True:
        raise StoreError(f"{place} is a half-written store: its writer was interrupted; remove it and write it again")
    if kind is not None and marker.get("kind") != kind:
        raise StoreError(f"{place} is a store of kind {marker.get('kind')!r}; expected {kind!r}")
    version = marker.get("version")
    if not isinstance(version, int) or version > supported:
        raise StoreError(
            f"{place} has version {version}, but this dlatent reads versions up to {supported}; install a newer dlatent"
        )
    return version


def _check_place(place: str, overwrite: bool, how: str = REPLACE) -> bool:
    """Whether there is a store to replace. Errors: StoreError where it may not be, or something else is there."""
    filesystem, root = filesystem_at(place)
    if not root:
        raise StoreError(f"{place} is the root of all files, and no place for a store; choose another place")
    filesystem.invalidate_cache()
    if not filesystem.lexists(root):
        return False
    if not overwrite:
        raise StoreError(f"{place} already exists; {how}, or choose another place")
    check_replaced(place)
    return True
