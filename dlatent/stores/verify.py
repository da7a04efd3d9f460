"""Reading all of a store, a model or a checkpoint, to see whether it is whole."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast

import zarr

from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import GRAPH, PRECISION, RESULT, kind_of
from dlatent.stores.checkpoint import damaged_results, read_header, recorded
from dlatent.stores.chunked import ZarrArray, check_announced, check_chunks, lacking_chunks, read_rows, stored_objects
from dlatent.stores.codecs import harmless
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.guard import guarded
from dlatent.stores.location import filesystem_at, local_path, place_text, zarr_location
from dlatent.stores.open import Node, check_complete, open_data, open_node
from dlatent.stores.results import load
from dlatent.stores.strict import COPY_AGAIN, DOCUMENTS, FILL, MissingChunks, StrictStore, place_of, protocols_of

PIECE_BYTES = 64 * 2**20
"""About how many bytes of an array are read at a time; at least a row of chunks."""
MANY_CHUNKS = 100_000
"""Of so many chunks the last are read first."""
MOST_SAID = 100
"""Damages that are listed; after so many nothing more is read."""
OPENED: dict[str, Callable[[Any], Any]] = {
    RESULT: load,
    "data": open_data,
    PRECISION: open_precision,
    GRAPH: open_graph,
}
"""What opens each kind of store, and refuses one that lacks an array or contradicts itself."""


@dataclass
class VerifyReport:
    """What was read of a store, and what of it is damaged.

    Parameters
    ----------
    place : str
        The store, model or checkpoint.
    kind : str
        Which of these it is.
    arrays : int
        How many arrays were read; of a checkpoint, results.
    nbytes : int
        Their bytes.
    damages : list of str
        What is damaged, one sentence each.
    """

    place: str
    kind: str
    arrays: int = 0
    nbytes: int = 0
    damages: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damages


def verify(place: str | os.PathLike[str], *, missing_chunks: MissingChunks = "raise") -> VerifyReport:
    """Read every chunk of a store, every variable of a model, or every result of a checkpoint.

    Parameters
    ----------
    place : path or URL
        Path or URL of a Zarr store or a checkpoint.
    missing_chunks : {"raise", "fill"}, default "raise"
        "fill" where the writer of a store leaves out chunks of the fill value alone.

    Returns
    -------
    VerifyReport
        What was read, with each damaged chunk by its name.

    Raises
    ------
    StoreError
        Where nothing is there that could be read.

    Examples
    --------
    >>> import tempfile, numpy as np, dlatent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dlatent.PPCA(1).fit(np.random.default_rng(0).normal(size=(50, 4))).save(folder + "/model.zarr")
    ...     report = dlatent.verify(folder + "/model.zarr")
    >>> report.kind, report.whole
    ('model', True)
    """
    text = place_text(place)
    if read_header(place) is not None:
        count, size = recorded(place)
        return VerifyReport(text, "checkpoint", count, size, damaged_results(place))
    node = open_node(place, missing_chunks)
    kind = kind_of(node)
    if kind != RESULT:
        check_complete(node)
    found = VerifyReport(text, "model" if kind == RESULT else kind or "store")
    with guarded(text, StoreError):
        members = _members(node)
        arrays = [member for member in members if isinstance(member, zarr.Array)]
        if isinstance(node, zarr.Group):
            found.damages += _strays(place, members)
    if not arrays and "http" in protocols_of(node.store):
        raise StoreError(f"{text} lists no array, as web servers need not; verify a copy of the store, or its arrays")
    for array in arrays:
        _read(array, found)
    if found.whole and kind in OPENED:
        try:
            with guarded(text, StoreError):
                OPENED[kind](place)
        except DataError as error:
            found.damages.append(str(error))
    return found


def _members(node: Node) -> list[Node]:
    """A node, and all below it."""
    if isinstance(node, zarr.Array):
        return [node]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that belong to nothing, which `_strays` finds
        return [node, *(member for _, member in sorted(node.members(max_depth=None)))]


def _strays(place: str | os.PathLike[str], members: list[Node]) -> list[str]:
    """Nodes and chunks of a store above which the metadata of a node are lost, a sentence for each of these."""
    names = [PurePosixPath(name) for name in _files(zarr_location(place))]
    nodes = {name.parent for name in names if name.name in DOCUMENTS}
    arrays, groups = (
        {PurePosixPath(member.path) for member in members if isinstance(member, kind)}
        for kind in (zarr.Array, zarr.Group)
    )
    lost = {above for at in nodes for above in at.parents if above not in nodes}
    for name in names:
        # What lies in a group itself is no chunk.
        if name.name not in DOCUMENTS and name.parent not in groups and arrays.isdisjoint(name.parents):
            lost.add(next(above for above in name.parents if above.parent in nodes))
    return [f"{place}/{name}: its metadata are lost; copy the store again" for name in sorted(lost)]


def _files(place: str) -> Iterator[str]:
    """The names of all files below a place, also in directories that are links."""
    if (path := local_path(place)) is None:
        filesystem, root = filesystem_at(place)
        yield from (str(name).removeprefix(root).lstrip("/") for name in filesystem.find(root))
        return
    seen = set[str]()
    for folder, folders, files in os.walk(path, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (os.path.relpath(os.path.join(folder, name), path) for name in files)


def _read(array: ZarrArray, found: VerifyReport) -> None:
    """Read an array a few rows of chunks at a time, and go on behind what is damaged."""
    found.arrays += 1
    rows = array.shape[0] if array.shape else 1
    try:
        with guarded(place_of(array), StoreError):
            check_announced(harmless(array))
            count, strict = stored_objects(array), cast(StrictStore, array.store).missing_chunks == "raise"
            if count > MANY_CHUNKS:  # of which counting takes long where none is there
                read_rows(array, rows - 1, rows)
            check_chunks(array)
            # Of fewer chunks each that is not there is named when it is read.
            if count > MANY_CHUNKS and strict and (lacking := lacking_chunks(array)):
                raise StoreError(f"{place_of(array)} lacks {lacking} of its {count} chunks; {COPY_AGAIN}.  {FILL}")
    except StoreError as error:
        found.damages.append(str(error))
        return
    along = (array.shards or array.chunks)[0] if array.shape else 1
    each = max(1, array.nbytes // max(rows, 1))
    step = along * max(1, PIECE_BYTES // (each * along))
    for start in range(0, rows, step):
        if len(found.damages) == MOST_SAID:
            return
        try:
            with guarded(place_of(array), StoreError):
                found.nbytes += read_rows(array, start, min(start + step, rows)).nbytes
        except StoreError as error:
            found.damages.append(str(error))
