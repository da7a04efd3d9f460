"""Blocks that a cluster computes from a Dask array: kept in the workers' memory as parts, or folded one task each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from dlatent.arrays import BlockSource, Features
from dlatent.engine.cache import measured
from dlatent.engine.part import Bundle, Part, settled


@dataclass(eq=False)
class HeldBlock:
    """A block source that has its block."""

    start: int
    stop: int
    nbytes: int
    features: Features
    collection: tuple[Any, ...] | None = None

    def load(self) -> Features:
        """The block."""
        return self.features

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The block, which is its only part."""
        (part,) = parts
        return part  # type: ignore[no-any-return]


def hold(group: int, cuts: tuple[int, ...], bundle: Bundle, *chunks: Any) -> Bundle:
    """A part of a bundle, its blocks put together from chunks, of which `cuts[i] … cuts[i + 1]` belong to block i."""
    part, blocks = bundle.parts[group], list[HeldBlock]()
    for source, (first, last) in zip(part.blocks, pairwise(cuts), strict=True):
        features = assembled(source, chunks[first:last])
        blocks.append(HeldBlock(source.start, source.stop, measured(features), features))
    return Bundle({group: replace(part, blocks=tuple(blocks), in_memory=True)})


def assembled(source: BlockSource, chunks: Sequence[Any]) -> Features:
    """A block from its computed chunks."""
    return settled(source, source.assemble(chunks))


def shell(part: Part) -> Part:
    """The part to send along with computed chunks: its block sources, without their graphs where they can leave them.

    A block source says so by a method `without_collection()`, which gives a source that can still `assemble`.
    """
    blocks: list[Any] = [getattr(block, "without_collection", lambda block=block: block)() for block in part.blocks]
    return replace(part, blocks=tuple(blocks))
