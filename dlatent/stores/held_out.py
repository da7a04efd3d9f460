"""A data source without the cells, or without the rows, that are held out of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np

from dlatent.arrays import BlockSource, DataSource, Features, Integers
from dlatent.gaussian.held_out import Hiding, hidden
from dlatent.stores.rows import Rows


@dataclass(eq=False)
class HiddenRows(Rows):
    """The rows of another block source, without their held-out cells."""

    inner: BlockSource
    hiding: Hiding

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """The Dask collections of the inner source."""
        return self.inner.collection

    def load(self) -> Features:
        """The rows without the held-out cells."""
        return hidden(self.inner.load(), self.start, self.hiding)

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The same from computed collections."""
        return hidden(self.inner.assemble(parts), self.start, self.hiding)


def hide_cells(source: DataSource, hiding: Hiding) -> DataSource:
    """The source without its held-out cells: NaN in dense data, not stored in sparse data."""
    blocks = tuple(HiddenRows(block.start, block.stop, block.nbytes, block, hiding) for block in source.blocks)
    return replace(source, blocks=blocks, key=(source.key, hiding), description=f"{source.description} (part held out)")


@dataclass(eq=False)
class TakenRows(Rows):
    """Some rows of another block source, by their places in it."""

    inner: BlockSource
    places: Integers

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """The Dask collections of the inner source."""
        return self.inner.collection

    def load(self) -> Features:
        """The rows that are taken."""
        return self.inner.load()[self.places]

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The same from computed collections."""
        return self.inner.assemble(parts)[self.places]


def take_rows(source: DataSource, rows: Integers) -> DataSource:
    """The rows with these numbers, which increase, as a source of their own."""
    blocks, ends = list[TakenRows](), np.searchsorted(rows, [block.stop for block in source.blocks])
    for block, start, stop in zip(source.blocks, [0, *ends], ends, strict=False):
        if stop > start:
            nbytes = block.nbytes * int(stop - start) // (block.stop - block.start)
            blocks.append(TakenRows(int(start), int(stop), nbytes, block, rows[start:stop] - block.start))
    return replace(
        source,
        shape=(len(rows), source.shape[1]),
        blocks=tuple(blocks),
        key=uuid4().hex,
        nnz=None,
        weights=None if source.weights is None else source.weights[rows],
        labels=replace(source.labels, samples=None, origin=None),
        description=f"{len(rows):,} samples of {source.description}",
        # Blocks are loaded whole.
        decoding=max(source.decoding, *(block.nbytes for block in source.blocks)),
    )
