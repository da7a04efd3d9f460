"""From data to an embedding: bounds, neighbours and weights in passes, then the smallest eigenvectors on the driver."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array
from dlatent.errors import PlanError
from dlatent.passes import Pass, Resources, Run, pair_pass
from dlatent.solvers.costs import BASE_MEMORY
from dlatent.solvers.lle.embedding import (
    WeightRequest,
    block_coordinates,
    block_weights,
    closed_sets,
    components,
    coordinates,
    residual_matrix,
    weight_matrix,
)
from dlatent.solvers.lle.near_pairs import MOST_PENDING, Neighbours, merged
from dlatent.solvers.lle.neighbours import (
    Bounds,
    NeighbourRequest,
    block_bounds,
    block_neighbours,
    single_is_enough,
)
from dlatent.solvers.lle.smallest import LOOSE, SLOW, Eigenpairs, smallest
from dlatent.solvers.plan import html_page, size, till_pause

P = TypeVar("P")
V = TypeVar("V")

COLLECTED_BYTES = 512 * 2**20
"""Coordinates of neighbours that a task collects at a time."""
CANDIDATE_BYTES = 3 * 8
"""Bytes of a pair that may be neighbours: both numbers and the distance."""
NEIGHBOUR_BYTES = 8 * 2 + 12
"""Bytes of a neighbour on the driver: its distance and number, and its place in the matrix of weights."""


@dataclass(frozen=True)
class LocalPlan:
    """The costs of locally linear embedding of one data set before the eigenvectors; their price shows only when the
    graph is known.

    Parameters
    ----------
    samples : int
        Of the data and the graph.
    features : int
        Of the data and the graph.
    n_neighbors : int
        Of the data and the graph.
    description : str
        The input in words.
    passes : int
        Passes over the data: bounds, neighbours and weights.
    parts : int
        Passes in which the weights are made, a part of the samples in each.
    operations : float
        Multiplications of the comparison of all pairs, at most: what lies far apart is not compared.
    bytes_read : int
        Bytes of blocks that the passes go through.
    worker_memory : int
        Projected peaks in bytes without libraries, the eigenvectors left out.
    driver_memory : int
        Projected peaks in bytes without libraries, the eigenvectors left out.
    """

    samples: int
    features: int
    n_neighbors: int
    description: str
    passes: int
    parts: int
    operations: float
    bytes_read: int
    worker_memory: int
    driver_memory: int

    def _repr_html_(self) -> str:
        return html_page(str(self))

    def __str__(self) -> str:
        shape = f"{self.samples:,} × {self.features:,}"
        return "\n".join(
            [
                f"data      {self.description}: {shape}, {self.n_neighbors} neighbours each",
                f"passes    {self.passes}: bounds, neighbours, and {self.parts} for the weights",
                f"pairs     {self.operations:.1e} multiplications at most; {size(self.bytes_read)} of blocks, from the "
                "cache where they fit",
                f"worker    {size(self.worker_memory)} projected for blocks and coordinates of neighbours",
                f"driver    {size(self.driver_memory)} projected for the graph and the rows that are kept; the "
                "eigenvectors are planned with the graph",
            ]
        )


def make_local_plan(
    shape: tuple[int, int],
    group_bytes: Sequence[int],
    n_neighbors: int,
    per_row: float,
    description: str,
    kept_bytes: int = 0,
) -> LocalPlan:
    """The plan of a data set, of which groups of blocks have these bytes; `per_row` are stored entries of a row, and
    `kept_bytes` those of the rows that the model keeps."""
    groups, total, largest = len(group_bytes), sum(group_bytes), max(group_bytes)
    parts = max(1, -(-n_neighbors * largest // COLLECTED_BYTES))
    collected = -(-n_neighbors * largest // parts)
    # Neighbours of all groups lie on the workers; two blocks are copied to be multiplied, and have candidates.
    candidates = 2 * MOST_PENDING * n_neighbors * (shape[0] * largest // total)
    neighbours = 2 * shape[0] * n_neighbors * NEIGHBOUR_BYTES + 4 * largest + candidates * CANDIDATE_BYTES
    return LocalPlan(
        *shape,
        n_neighbors,
        description,
        2 + parts,
        parts,
        float(shape[0]) ** 2 / 2.0 * per_row,
        total * (1 + groups + parts * groups),
        2 * largest + max(2 * collected, neighbours),
        shape[0] * n_neighbors * NEIGHBOUR_BYTES * 3 + 2 * kept_bytes,  # in blocks, and side by side
    )


def require_room(plan: LocalPlan, machine: Resources) -> None:
    """Refuse what does not fit into the memory of the workers or of the driver.

    Errors: PlanError.
    """
    shared = machine.kind != "cluster"
    driver = BASE_MEMORY + plan.driver_memory + shared * plan.worker_memory
    needed = (
        ("driver", driver, machine.driver_memory, ""),
        ("worker", BASE_MEMORY + plan.worker_memory, machine.worker_memory, till_pause(machine.kind)),
    )
    for name, projected, limit, till in needed:
        if limit is not None and projected > limit:
            shape = f"{plan.samples:,} × {plan.features:,}"
            raise PlanError(
                f"{plan.description} of {shape} does not fit: locally linear embedding needs {size(projected)} of a "
                f"{name}'s {size(limit)}{till}.  Ways out: ask for fewer neighbours than {plan.n_neighbors}; work on "
                f"smaller blocks; give the {name} more memory."
            )


class Graph(NamedTuple):
    """Neighbours of each sample (N, k), their squared distances, the weights W (N, N), and a few directions of the
    data (N, d)."""

    neighbours: Neighbours
    weights: sp.csr_array
    slow: Array


def find_neighbours(
    run: Run,
    k: int,
    shift: Array,
    others: Callable[[], Neighbours] | None = None,
) -> tuple[Neighbours, Array]:
    """The exact k nearest neighbours of all samples, and coordinates along a few random directions (N, d).

    A first pass over the blocks bounds the distances, so that the pass over pairs has few candidates to look at twice.
    """
    random = np.random.default_rng(0)
    directions = random.standard_normal((len(shift), min(SLOW, len(shift)))) / np.sqrt(len(shift))
    request = NeighbourRequest(k, shift, directions)
    bounded: tuple[Bounds, ...] = run(Pass(block_bounds, request, name="bounds", combine=operator.add))
    slow = np.concatenate([part.slow for part in bounded])
    if others is not None:
        return others(), slow
    bounds, order = (np.concatenate([getattr(part, name) for part in bounded]) for name in ("bounds", "order"))
    single = single_is_enough(bounds, max(part.largest for part in bounded), len(shift))
    request = request._replace(bounds=bounds, order=order, single=single)
    parts = run(pair_pass(block_neighbours, request, along=merged, mutual=True, name="neighbours"))
    neighbours = Neighbours(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    return neighbours, slow


def find_weights(run: Run, indices: npt.NDArray[np.int64], regularisation: float, parts: int) -> Array:
    """The barycentric weights of all samples (N, k), a part of the samples in each pass."""
    weights = np.empty(indices.shape)
    for part in range(parts):
        request = WeightRequest(indices, regularisation, part, parts)
        rows = run(pair_pass(block_coordinates, request, along=operator.add, finish=block_weights, name="weights"))
        weights[part::parts] = np.concatenate(rows)
    return weights


def make_graph(
    run: Run,
    shift: Array,
    plan: LocalPlan,
    regularisation: float,
    others: Callable[[], Neighbours] | None = None,
) -> Graph:
    """Neighbours (exact ones, unless `others` finds them) and weights of one data set."""
    neighbours, slow = find_neighbours(run, plan.n_neighbors, shift, others)
    weights = find_weights(run, neighbours.indices, regularisation, plan.parts)
    return Graph(neighbours, weight_matrix(neighbours.indices, weights, plan.samples), slow)


class Embedded(NamedTuple):
    """Coordinates (n, K) with YᵀY = nI, the eigenpairs, and the sets of samples that the graph does not join."""

    coordinates: Array
    eigen: Eigenpairs
    separate: tuple[npt.NDArray[np.int64], ...]

    @property
    def converged(self) -> bool:
        """Whether the eigenvectors are known to a thousandth."""
        return bool(self.eigen.residual <= LOOSE)


def separate_sets(graphs: Sequence[Graph], residual: sp.csr_array) -> tuple[npt.NDArray[np.int64], ...]:
    """The sets of samples that have null vectors of their own, the largest first; one where all are joined."""
    sets = components(residual)
    return tuple(closed_sets(graphs[0].weights) if len(sets) == len(graphs) == 1 else sets)


def embed(
    graphs: Sequence[Graph],
    places: Sequence[npt.NDArray[np.int64]],
    samples: int,
    n_components: int,
    *,
    memory: float,
    solver: str,
    check: Callable[[tuple[npt.NDArray[np.int64], ...]], None],
) -> Embedded:
    """The joint embedding of data sets, row i of view v being the distinct sample `places[v][i]`.

    `check` gets the separate sets before the eigenvectors are sought, and raises or warns.
    """
    residual = residual_matrix([graph.weights for graph in graphs], places, samples)
    separate = separate_sets(graphs, residual)
    check(separate)
    slow = graphs[0].slow if len(graphs) == 1 else None
    joined = len(separate) == 1
    pairs = smallest(residual, n_components, memory=memory, coordinates=slow, joined=joined, solver=solver)
    return Embedded(coordinates(pairs.vectors), pairs, separate)
