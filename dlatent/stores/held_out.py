"""A data source without the cells that are held out of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlatent.arrays import BlockSource, DataSource, Features
from dlatent.linear_gaussian.held_out import Hiding, hidden
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
