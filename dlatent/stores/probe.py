"""A short look at a store from one of several processes: whether it is the same for all, and how fast it is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dlatent.arrays import BlockSource
from dlatent.stores.dense import ZarrRows
from dlatent.stores.open import open_data, open_node
from dlatent.stores.strict import MissingChunks, StrictStore

READ_SECONDS, READ_BYTES = 3.0, 10**9
"""A process reads until it has spent so long, or has read so much."""


@dataclass
class Probed:
    """What a process saw: digests of the metadata and of the values of the first block; bytes as they are stored and as
    they are in memory, of `blocks` that were read in so many seconds."""

    metadata: str
    first: str
    blocks: int = 0
    stored: int = 0
    loaded: int = 0
    seconds: float = 0.0


def probe(
    place: str | os.PathLike[str],
    missing_chunks: MissingChunks = "raise",
    *,
    number: int = 0,
    processes: int = 1,
    threads: int = 1,
) -> Probed:
    """Open a store as a fit does, and read a few of the blocks that come to this one of so many processes.

    Errors: those of `open`, and of reads.
    """
    node = open_node(place, missing_chunks)
    source = open_data(node)
    stores = _stores(source.blocks[0])
    documents = sorted(cast(StrictStore, node.store).digests.items())
    found = Probed(_digest([np.frombuffer(repr(documents).encode(), "u1")]), _digest(_parts(source.blocks[0].load())))

    def stored() -> int:
        return sum(store.bytes_read for store in stores)

    before, started = stored(), perf_counter()

    def some(thread: int) -> Iterator[int]:
        own: tuple[BlockSource, ...] = source.blocks[number + processes * thread :: processes * threads]
        for block in own or source.blocks[-1:]:
            loaded = _bytes(block.load())
            yield loaded
            if perf_counter() - started > READ_SECONDS or stored() - before > READ_BYTES:
                return

    with ThreadPoolExecutor(threads) as pool:
        sizes = [size for own in pool.map(lambda thread: list(some(thread)), range(threads)) for size in own]
    found.seconds, found.stored = perf_counter() - started, stored() - before
    found.blocks, found.loaded = len(sizes), sum(sizes)
    return found


def _stores(block: Any) -> list[StrictStore]:
    """Those that a block of a store reads from."""
    arrays = [block.array] if isinstance(block, ZarrRows) else [block.arrays.data, block.arrays.indices]
    return [cast(StrictStore, array.store) for array in arrays]


def _parts(block: Any) -> list[npt.NDArray[Any]]:
    return [block] if isinstance(block, np.ndarray) else [block.data, block.indices, block.indptr]


def _bytes(block: Any) -> int:
    return sum(part.nbytes for part in _parts(block))


def _digest(parts: Iterable[npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
