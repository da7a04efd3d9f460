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

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """None: nothing is left to compute."""
        return None

    def load(self) -> Features:
        """The block."""
        return self.features

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The block, which is its only part."""
        (part,) = parts
        return part  # type: ignore[no-any-return]


def hold(group: int, cuts: tuple[int, ...], bundle: Bundle, *chunks: Any) -> Bundle:
    """A part of a bundle, its blocks put together from chunks, of which `cuts[i] … cuts[i + 1]` belong to block i."""
    part = bundle.parts[group]
    found = [assembled(source, chunks[a:b]) for source, (a, b) in zip(part.blocks, pairwise(cuts), strict=True)]
    blocks = [
        HeldBlock(source.start, source.stop, measured(features), features)
        for source, features in zip(part.blocks, found, strict=True)
    ]
    return Bundle({group: replace(part, blocks=tuple(blocks), in_memory=True)})


def assembled(source: BlockSource, chunks: Sequence[Any]) -> Features:
    """A block from its computed chunks."""
    return settled(source, source.assemble(chunks))


def shell(part: Part) -> Part:
    """The part to send along with computed chunks: its block sources, without their graphs where they can leave them.

    A block source says so by a method `without_collection()`, which gives a source that can still `assemble`.
    """
    return replace(part, blocks=tuple(_shell(block) for block in part.blocks))


def _shell(block: BlockSource) -> BlockSource:
    lighter: Any = getattr(block, "without_collection", None)
    return block if lighter is None else lighter()
