"""What was dropped and merged on the way to a graph, and what the graph is like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass


@dataclass
class Counts:
    """Numbers of rows of a list, or of entries of a matrix, that were dropped or merged; and of isolated instances."""

    self_links: int = 0
    duplicates: int = 0
    zeros: int = 0
    isolated: int = 0

    def notes(self) -> Iterator[str]:
        """One sentence for each number that is not zero."""
        for count, one, many in zip(astuple(self), _ONE, _MANY, strict=True):
            if count:
                yield f"{count:,} {one if count == 1 else many}"


_ONE = (
    "link of an instance to itself was dropped",
    "repeated link was merged",
    "link of weight zero was dropped",
    "instance has no link; it is fitted like the others",
)
_MANY = (
    "links of instances to themselves were dropped",
    "repeated links were merged",
    "links of weight zero were dropped",
    "instances have no link; they are fitted like the others",
)
