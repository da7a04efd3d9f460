"""log|Δ| of a precision between samples by random probes, which blocks of a pass share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast
from uuid import uuid4

import numpy as np

from dlatent.arrays import Array, Block, DataSource, Features, Graph, GraphRows
from dlatent.operators.graph_precision import Spectral, probe_log_determinants
from dlatent.passes import Pass

GRAPH_BLOCK_ENTRIES = 4_000_000
"""Stored edges that the multiplication with a graph beyond memory reads at a time."""
HELD_ENTRIES = 50_000_000
"""Up to this many stored edges (600 MB) a task keeps the graph in memory between multiplications."""
PROBES_A_TASK = 4


@dataclass(eq=False)
class ProbeRows:
    """The numbers of some random probes, as a block source: a task for each."""

    start: int
    stop: int
    nbytes: int

    @property
    def collection(self) -> None:
        """None: nothing is computed by Dask."""
        return

    def load(self) -> Features:
        """The numbers of the probes (n, 1)."""
        return np.arange(self.start, self.stop, dtype=np.float64)[:, None]

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The block itself."""
        (part,) = parts
        return cast(Features, part)


class ProbeRequest(NamedTuple):
    """The graph by rows, where they are cut, whether it stays in memory, Δ, and the Lanczos steps."""

    rows: GraphRows
    edges: tuple[int, ...]
    held: bool
    precision: Spectral
    steps: int


def probe_source(samples: int, probes: int) -> DataSource:
    """Some probes as the data of a pass."""
    edges = [*range(0, probes, PROBES_A_TASK), probes]
    # Their size in bytes is that of the vectors that they become, so that each block is a task of its own.
    blocks = tuple(ProbeRows(a, b, 8 * samples * (b - a)) for a, b in pairwise(edges))
    return DataSource((probes, 1), np.dtype(np.float64), blocks, uuid4().hex, description="probes", in_memory=False)


def probe_pass(graph: Graph, precision: Spectral, steps: int) -> Pass[ProbeRequest, tuple[Array, Array]]:
    """The pass over probes that estimates log|Δ|: see `probe_log_determinants`."""
    pieces = max(1, -(-graph.entries // GRAPH_BLOCK_ENTRIES))
    edges = tuple(np.linspace(0, graph.samples, pieces + 1).astype(int).tolist())
    request = ProbeRequest(graph.rows, edges, graph.entries <= HELD_ENTRIES, precision, steps)
    return Pass(probe_block, request, combine=joined_probes, name="log determinant")


def probe_block(block: Block, request: ProbeRequest) -> tuple[Array, Array]:
    """Estimates of log|Δ| from the probes of a block, and what their last steps changed."""
    numbers = np.asarray(block.features)[:, 0].astype(int)
    samples, cuts = request.edges[-1], list(pairwise(request.edges))
    signs = [np.random.default_rng([1, number]).integers(0, 2, samples) for number in numbers.tolist()]
    held = [request.rows.load(a, b) for a, b in cuts] if request.held else None

    def multiply(vectors: Array) -> Array:
        pieces = held if held is not None else (request.rows.load(a, b) for a, b in cuts)
        product: Array = np.concatenate([np.asarray(piece @ vectors) for piece in pieces])
        return product

    vectors = np.stack(signs, axis=1).astype(np.float64) * 2.0 - 1.0
    return probe_log_determinants(multiply, vectors, request.precision, request.steps)


def joined_probes(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Probes of both, one after the other."""
    return np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])
