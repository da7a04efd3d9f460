"""Fits by a kernel: the loop of `subspace`, whose space is made of combinations of instances.

One product of K with a few combinations a pass is all that a fit asks of the kernel, wherever that is.  Where K is in
memory all combinations are taken at once, and the closed forms apply (SPPCA, Theorem 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.outcome import Options, Outcome, Report
from dlatent.fitting.routes import em_on_moments, finished
from dlatent.fitting.subspace import Climb, first_directions, grow
from dlatent.linear_gaussian.dual import DualData, DualSolution, DualSpace, dual_solution
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.kernels import centred_kernel

WHOLE = 600
"""Up to this many instances all combinations are taken at once: the small problem is then exact, and quick enough."""


@dataclass(frozen=True)
class KernelProducts:
    """A kernel of N instances by what it does: `times`, V (N, b) → KV, one pass; `diagonal` k(x, x) (N,); and `matrix`
    where K (N, N) itself is in memory."""

    times: Callable[[Array], Array]
    diagonal: Array
    matrix: Array | None = None


@dataclass(frozen=True)
class DualFit:
    """The model by instances, its outcome, and the means (N,) of the rows of K, by which new rows are centred."""

    solution: DualSolution
    outcome: Outcome
    means: Array


def fit_dual(
    kernel: KernelProducts,
    data: DualData,
    specification: Specification,
    options: Options,
    *,
    solver: str = "auto",
    report: Report | None = None,
) -> DualFit:
    """Fit by products with a kernel; the first view of `specification` has K features, the span of the loadings."""
    count = data.instances
    if kernel.matrix is not None and (count <= WHOLE or solver == "em"):
        means = kernel.matrix.mean(axis=0)
        directions, products = np.eye(count), centred_kernel(kernel.matrix)
    else:
        directions = first_directions(count, specification.n_components, options)
        directions, _ = np.linalg.qr(directions - directions.mean(axis=0))
        found = kernel.times(np.column_stack([directions, np.full(count, 1.0 / count)]))
        means, products = found[:, -1], _centred(found[:, :-1])
    data = data._replace(energy=float(kernel.diagonal.sum() - means.sum()))
    space = DualSpace.begin(directions, products, data)
    if solver == "em":
        return DualFit(*_by_em(space, specification, options, report), means)
    state = Climb(space, specification, options)
    converged = grow(state, lambda fresh: _centred(kernel.times(fresh)), report)
    solution = dual_solution(state.space, state.solution, state.specification)
    outcome = finished(state, solution.parameters, options, converged, None)
    return DualFit(solution, replace(outcome, parameters=solution.parameters), means)


def _centred(products: Array) -> Array:
    """HKV from KV; the columns of V have no mean."""
    return np.asarray(products - products.mean(axis=0))


def _by_em(
    space: DualSpace, specification: Specification, options: Options, report: Report | None
) -> tuple[DualSolution, Outcome]:
    """Plain EM (SPPCA, Algorithm 3) on the moments of all coordinates."""
    moments = space.moments(specification)
    reduced = specification.resized((space.rank, *specification.sizes[1:]))
    outcome = em_on_moments(moments, reduced, options, report)
    solution = dual_solution(space, outcome.parameters, specification)
    own = specification.with_floors(outcome.specification.floors)
    return solution, replace(outcome, parameters=solution.parameters, specification=own)
