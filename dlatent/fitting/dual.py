"""Fits by a kernel: the loop of `subspace`, whose space is made of combinations of instances.

One product of K with a few combinations a pass is all that a fit asks of the kernel, wherever that is.  Where K is in
memory all combinations are taken at once, and the closed forms apply (SPPCA, Theorem 3).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.outcome import Gather, GatherPairs, Options, Outcome, Report
from dlatent.fitting.planner import FULL_EIGEN
from dlatent.fitting.routes import em_on_moments, finished
from dlatent.fitting.subspace import Climb, first_directions, grow
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.dual import DualData, DualSolution, DualSpace, dual_data, dual_solution
from dlatent.linear_gaussian.kernel_passes import KernelRequest, LiftRequest, block_lift, meet_kernel, side_by_side
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.kernels import Kernel, centred_kernel

TIGHT = 1e-15
"""Tolerance where K is in memory: further products cost no pass."""


@dataclass(frozen=True)
class KernelProducts:
    """A kernel of N instances by what it does: `times`, V (N, b) → KV, one pass; `diagonal` k(x, x) (N,); and `matrix`
    where K (N, N) itself is in memory."""

    times: Callable[[Array], Array]
    diagonal: Array
    matrix: Array | None = None

    @classmethod
    def of_matrix(cls, matrix: Array) -> KernelProducts:
        """A kernel in memory."""
        return cls(lambda thin: np.asarray(matrix @ thin), np.diag(matrix), matrix)


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
    if kernel.matrix is not None:
        options = replace(options, tolerance=min(options.tolerance, TIGHT), max_iterations=options.max_iterations + 300)
    if kernel.matrix is not None and (solver == "em" or (len(specification.views) == 1 and count <= FULL_EIGEN)):
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


def gathered_kernel(gather_pairs: GatherPairs, kernel: Kernel, options: Options) -> Array:
    """K (N, N) of all instances, by one pass over pairs of blocks."""
    request = KernelRequest(kernel, None, options.refuse_zero_rows)
    return np.vstack(
        gather_pairs(meet_kernel, request, along=operator.add, finish=side_by_side, combine=None, name="kernel")
    )


def fit_linear(
    gather: Gather,
    gather_pairs: GatherPairs,
    specification: Specification,
    shift: Array,
    targets: Array | None,
    options: Options,
    *,
    solver: str = "auto",
    report: Report | None = None,
) -> Outcome:
    """The dual of a linear model (SPPCA, Algorithm 3): one pass for the inner products of all instances, and one for
    the loadings, which are combinations of instances.

    Law: the result is that of the other routes, up to rounding.
    """
    matrix = gathered_kernel(gather_pairs, Kernel("linear", shift=shift), options)
    k, width = specification.n_components, specification.sizes[0]
    data = dual_data(targets, specification, len(matrix), width)
    inside = specification.resized((k, *specification.sizes[1:]))
    fitted = fit_dual(KernelProducts.of_matrix(matrix), data, inside, options, solver=solver, report=report)
    (combinations, own), found = fitted.solution, fitted.outcome
    lifted = gather(block_lift, LiftRequest(combinations, shift), name="loadings")
    directions, offset = lifted[:, :k], lifted[:, k]
    whole = Parameters(
        np.vstack([directions @ own.loadings[:k], own.loadings[k:]]),
        np.concatenate([shift + offset + directions @ own.mean[:k], own.mean[k:]]),
        own.noise_variance,
    )
    floored = specification.with_floors(found.specification.floors)
    return replace(found, parameters=canonical(whole, floored), specification=floored)
