"""The rows of a data store in another order, with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.arrays import DataSource, Integers
from dlatent.stores.atomic import MARKER
from dlatent.stores.chunked import read_all, write_array
from dlatent.stores.ingest.matrices import TripleSpill, scatter
from dlatent.stores.ingest.writer import DenseWriter, start_layout, write_feature_names, write_vector
from dlatent.stores.labels import BEFORE, DIMENSIONS, ORIGINAL, ROWS_BEFORE
from dlatent.stores.open import open_data
from dlatent.stores.sparse import CsrWriter, canonical, row_numbers

BLOCK_BYTES = 32 << 20
"""Bytes of rows that are put in order at one time."""

BY_ROW = ("obs", "obsm", "layers")
"""Groups of an AnnData store that have one row for each sample."""

SPARSE = ("csr_matrix", "csc_matrix")


@dataclass(frozen=True)
class Reordering:
    """Row i of the new data is row `order[i]` of the old; `directory` is for temporary files."""

    order: npt.NDArray[np.int64]
    directory: Path

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """The new position of each old row."""
        made = np.empty_like(self.order)
        made[self.order] = np.arange(len(self.order))
        return made


def carry(node: Any, source: DataSource, root: zarr.Group, new: Reordering) -> list[str]:
    """Write the rows of the data into a new store in the layout of AnnData; returns notes.

    Of an AnnData store all is carried but `obsp`; of other data the matrix, and the labels of both axes.
    """
    start_layout(root)
    annotated = isinstance(node, zarr.Group) and node.attrs.get("encoding-type") == "anndata"
    _write_matrix(source, root, "X", _stored_dtype(node["X"] if annotated else node, source), new)
    notes = _carry_annotations(node, root, new) if annotated else _write_labels(source, root, new)
    uns = cast(zarr.Group, root["uns"])
    write_vector(uns, ORIGINAL, new.order)
    if (origin := source.labels.origin) is not None:
        write_vector(uns, BEFORE, origin.load()[new.order])
        uns[BEFORE].attrs[ROWS_BEFORE] = origin.rows
    return notes


def _carry_annotations(old: zarr.Group, root: zarr.Group, new: Reordering) -> list[str]:
    if isinstance(marker := old.attrs.get(MARKER), dict):
        root.attrs[MARKER] = {**marker, **cast(dict[str, Any], root.attrs[MARKER])}
    for name, member in old.groups():
        if name in ("X", "obsp"):
            continue
        made = root.require_group(name)
        made.attrs.update(dict(member.attrs))
        for key, value in member.members():
            if name != "uns" or key not in (ORIGINAL, BEFORE):
                _copy(value, made, key, new if name in BY_ROW else None)
    left_out = sorted(name for name, _ in cast(zarr.Group, old["obsp"]).members()) if "obsp" in old else []
    return [f"obsp ({', '.join(left_out)}) was left out; the graph is in the store of edges"] if left_out else []


def _copy(member: Any, group: zarr.Group, name: str, new: Reordering | None) -> None:
    """Copy an array or a group, its rows in the new order where there is one."""
    encoding = member.attrs.get("encoding-type")
    if new is not None and (encoding in SPARSE or (isinstance(member, zarr.Array) and member.ndim == 2)):
        source = open_data(member)
        _write_matrix(source, group, name, _stored_dtype(member, source), new)
    elif isinstance(member, zarr.Array):
        values = read_all(member)
        ordered = values if new is None else values[new.order]
        write_array(group, name, ordered, member.chunks, attributes=dict(member.attrs))
    else:
        made_group = group.create_group(name, attributes=dict(member.attrs))
        for key, value in member.members():
            _copy(value, made_group, key, None if (encoding, key) == ("categorical", "categories") else new)


def _write_labels(source: DataSource, root: zarr.Group, new: Reordering) -> list[str]:
    """Labels of rows and features; rows without labels are named by the position at which they lay before."""
    labels = source.labels
    names = new.order if labels.samples is None else labels.samples[new.order]
    write_vector(cast(zarr.Group, root["obs"]), "_index", names.astype(str))
    write_feature_names(root, None if labels.features is None else labels.features.astype(str), source.shape[1])
    root["X"].attrs[DIMENSIONS] = list(labels.dims)
    return []


def _stored_dtype(member: Any, source: DataSource) -> np.dtype[Any]:
    """The dtype of dense values on disk, which is kept; sparse values are floats."""
    return member.dtype if isinstance(member, zarr.Array) and not source.sparse else source.dtype


def _write_matrix(source: DataSource, group: zarr.Group, name: str, dtype: np.dtype[Any], new: Reordering) -> None:
    """Write the rows of a matrix in the new order; they are sorted in files, and memory holds a few blocks."""
    positions, columns = new.positions, source.shape[1]
    if source.sparse:
        entries = TripleSpill(new.directory, source.shape[0], columns, dtype)
        for block in source.blocks:
            rows = canonical(block.load())
            entries.add(positions[block.start + row_numbers(rows)], rows.indices, rows.data)
        sparse = CsrWriter(group.create_group(name), columns=columns, dtype=dtype)
        for _, batch in entries.batches(BLOCK_BYTES):
            sparse.append(batch)
        sparse.close()
        return
    lines = RowSpill(new.directory / "rows", source.shape, dtype)
    for block in source.blocks:
        lines.add(positions[block.start : block.stop], cast(npt.NDArray[Any], block.load()))
    dense = DenseWriter(group, name, columns, dtype, BLOCK_BYTES)
    for part in lines.batches():
        dense.append(part)
    dense.close()


class RowSpill:
    """Rows of a dense matrix that come in any order, kept in a file by ranges of rows, and read back in order."""

    def __init__(self, path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._path, self._shape = path, shape
        self._record = np.dtype([("at", np.int64), ("row", dtype, (shape[1],))])
        self._height = max(BLOCK_BYTES // self._record.itemsize, 1)
        self._filled = np.arange(0, shape[0], self._height)
        path.unlink(missing_ok=True)
        path.touch()

    def add(self, positions: Integers, rows: npt.NDArray[Any]) -> None:
        """Keep rows that belong to the given positions."""
        records = np.empty(len(positions), dtype=self._record)
        records["at"], records["row"] = positions, rows
        with self._path.open("r+b") as stream:
            scatter(stream, records, positions // self._height, self._filled)

    def batches(self) -> Iterator[npt.NDArray[Any]]:
        """All rows in order, a range at a time."""
        with self._path.open("rb") as stream:
            while len(records := np.fromfile(stream, dtype=self._record, count=self._height)):
                yield records["row"][np.argsort(records["at"])]
