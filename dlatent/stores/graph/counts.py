"""What was dropped and merged on the way to a graph, and what the graph is like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass


@dataclass
class Counts:
    """Numbers of rows of a list, or of entries of a matrix, that were dropped or merged; and of isolated samples."""

    self_loops: int = 0
    duplicates: int = 0
    zeros: int = 0
    isolated: int = 0

    def notes(self) -> Iterator[str]:
        """One sentence for each number that is not zero."""
        for count, one, many in zip(astuple(self), _ONE, _MANY, strict=True):
            if count:
                yield f"{count:,} {one if count == 1 else many}"


_ONE = (
    "edge of a sample to itself was dropped",
    "repeated edge was merged",
    "edge of weight zero was dropped",
    "sample has no edge; it is fitted like the others",
)
_MANY = (
    "edges of samples to themselves were dropped",
    "repeated edges were merged",
    "edges of weight zero were dropped",
    "samples have no edge; they are fitted like the others",
)
