"""Fits by a kernel: the loop of `subspace`, whose space is made of combinations of samples.

One product of K with a few combinations a pass is all that a fit asks of the kernel, wherever that is.  Where K is in
memory all combinations are taken at once, and the closed forms apply (SPPCA, Theorem 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.costs import FULL_EIGEN
from dlatent.fitting.moments import finished, gram_products
from dlatent.fitting.outcome import Options, Outcome, Report
from dlatent.fitting.subspace import Climb, climb, first_directions, grow
from dlatent.fitting.textbook import em_on_moments
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.directions import orthonormal
from dlatent.linear_gaussian.gram import (
    DualData,
    DualSolution,
    DualSpace,
    dual_data,
    dual_solution,
    leading,
    span_solution,
)
from dlatent.linear_gaussian.kernel_passes import (
    KernelRequest,
    LandmarkRequest,
    LiftRequest,
    block_landmarks,
    block_lift,
    meet_kernel,
)
from dlatent.linear_gaussian.moments import MomentRequest, Moments, centred
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.kernels import Kernel, LandmarkMap, centred_kernel
from dlatent.operators.symmetric_tiles import SymmetricTiles
from dlatent.passes import Pass, Run, tile_pass

TIGHT = 1e-13
"""Tolerance where K is in memory: further products cost no pass."""


@dataclass(frozen=True)
class KernelProducts:
    """A kernel of N samples by what it does: `times`, V (N, b) → KV, one pass; `diagonal` k(x, x) (N,); and `whole`,
    which gives K (N, N), where it is in memory."""

    times: Callable[[Array], Array]
    diagonal: Array
    whole: Callable[[], Array] | None = None

    @classmethod
    def of_matrix(cls, matrix: Array) -> KernelProducts:
        """A kernel in memory."""
        return cls(lambda thin: np.asarray(matrix @ thin), np.diag(matrix), lambda: matrix)

    @classmethod
    def of_tiles(cls, tiles: SymmetricTiles) -> KernelProducts:
        """A kernel in memory, half of it."""
        return cls(lambda thin: tiles @ thin, tiles.diagonal, tiles.whole)


@dataclass(frozen=True)
class DualFit:
    """The model by samples, its outcome, and the means (N,) of the rows of K, by which new rows are centred."""

    solution: DualSolution
    outcome: Outcome
    means: Array


@dataclass(frozen=True)
class LandmarkFit:
    """The model by landmarks, its outcome, the mean of the features in the coordinates (r,), the part of Σ k(x, x) that
    is outside the span of the landmarks (the trace error of the Nyström approximation), and the number of features."""

    solution: DualSolution
    outcome: Outcome
    mean: Array
    error: float
    dimension: int


def fit_dual(
    kernel: KernelProducts,
    data: DualData,
    specification: Specification,
    options: Options,
    *,
    textbook: bool = False,
    report: Report | None = None,
) -> DualFit:
    """Fit by products with a kernel; the first view of `specification` has K features, the span of the loadings."""
    count = data.samples
    if kernel.whole is not None and not textbook:
        options = _tight(options)
    exact = kernel.whole is not None and len(specification.views) == 1 and count <= FULL_EIGEN
    if kernel.whole is not None and (textbook or exact):
        matrix = kernel.whole()
        means, centred_matrix = matrix.mean(axis=0), centred_kernel(matrix)
        directions, products = np.eye(count), centred_matrix
        if not textbook:
            directions, products = leading(centred_matrix, specification.n_components, data.dimension)
    else:
        directions = first_directions(count, specification.n_components, np.random.default_rng(options.random_state))
        directions = orthonormal(_centred(directions))
        found = kernel.times(np.column_stack([directions, np.full(count, 1.0 / count)]))
        means, products = found[:, -1], _centred(found[:, :-1])
    data = data._replace(energy=float(kernel.diagonal.sum() - means.sum()))
    space = DualSpace.begin(directions, products, data, specification.n_components)
    if textbook:
        return DualFit(*_by_em(space, specification, options, report), means)
    state = Climb(space, specification, options)
    if exact:
        state.record(state.solve(), report)
    converged = exact or grow(state, lambda fresh: _centred(kernel.times(_centred(fresh[0]))), report)
    solution = dual_solution(state.space, state.solution, state.specification)
    outcome = finished(state, solution.parameters, options, converged, None)
    return DualFit(solution, replace(outcome, parameters=solution.parameters), means)


def _tight(options: Options) -> Options:
    """Options for products that cost no pass."""
    return replace(options, tolerance=min(options.tolerance, TIGHT), max_iterations=options.max_iterations + 300)


def _centred(rows: Array) -> Array:
    """HV, the rows about their mean."""
    return np.asarray(rows - rows.mean(axis=0))


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


def fit_landmarks(
    run: Run,
    landmarks: LandmarkMap,
    dimension: int,
    specification: Specification,
    options: Options,
    report: Report | None = None,
) -> LandmarkFit:
    """Fit inside the span of the features of landmarks, in one pass.

    Law: the likelihood is that of the whole model of M = `dimension` features, with loadings and mean in the span.
    """
    width = landmarks.width
    if width <= specification.n_components:
        raise DataError(
            f"n_components is {specification.n_components}, but the landmarks span {width} dimensions; take more "
            "landmarks, or fewer components"
        )
    if dimension <= width and landmarks.kernel.dimension(landmarks.landmarks.shape[1]) is None:
        dimension = width + 1  # something is outside the span of the landmarks, and has its share of the noise
    wide = specification.resized((width, *specification.sizes[1:]))
    request = LandmarkRequest(landmarks, MomentRequest(np.zeros(width), wide.patterns, False))
    found, energy = run(Pass(block_landmarks, request, name="moments"))
    inside = sum(float(np.trace(part.gram[:width, :width])) for part in found)
    views = len(wide.views)
    spare_size, spare_energy = np.zeros(views), np.zeros(views)
    spare_size[0], spare_energy[0] = dimension - width, max(energy - inside, 0.0)
    moments = Moments(found, np.zeros(width + sum(wide.sizes[1:])), spare_size, spare_energy)
    middle = centred(moments, wide.sizes, wide.patterns)
    tight, spare = _tight(options), dimension - width
    state, converged = climb(gram_products(middle, wide), wide, np.zeros(sum(wide.sizes)), tight, report, spare=spare)
    best = state.space.lifted(state.solution)
    # About their mean in the span of the landmarks, as a fit by the whole kernel has its coordinates.
    mean = middle.shift + best.mean
    about = np.concatenate([np.zeros(width), mean[width:]])
    solution = span_solution(landmarks.root, best._replace(mean=about), state.specification)
    own = state.specification.resized((specification.n_components, *specification.sizes[1:]))
    variances = state.variances(state.specification)
    outcome = make_outcome(
        solution.parameters, own, tuple(state.history), options, variances, moments, converged=converged
    )
    outcome = replace(outcome, parameters=solution.parameters)
    error = max(1.0 - inside / energy, 0.0)
    return LandmarkFit(solution, outcome, mean[:width], error, dimension)


def kernel_tiles(run: Run, kernel: Kernel, options: Options) -> SymmetricTiles:
    """K (N, N) of all samples, by one pass over tiles."""
    request = KernelRequest(kernel, None, options.refuse_zero_rows)
    tiles: tuple[Array, ...] = run(tile_pass(meet_kernel, request, name="kernel"))
    return SymmetricTiles.of(tiles)


def fit_linear(
    run: Run,
    specification: Specification,
    shift: Array,
    targets: Array | None,
    options: Options,
    *,
    textbook: bool = False,
    report: Report | None = None,
) -> Outcome:
    """The dual of a linear model (SPPCA, Algorithm 3): one pass for the inner products of all samples, and one for
    the loadings, which are combinations of samples.

    Law: the result is that of the other routes, up to rounding.
    """
    tiles = kernel_tiles(run, Kernel("linear", shift=shift), options)
    k, width = specification.n_components, specification.sizes[0]
    data = dual_data(targets, specification, tiles.size, width)
    inside = specification.resized((k, *specification.sizes[1:]))
    fitted = fit_dual(KernelProducts.of_tiles(tiles), data, inside, options, textbook=textbook, report=report)
    (combinations, own, _), found = fitted.solution, fitted.outcome
    lifted = run(Pass(block_lift, LiftRequest(combinations, shift), name="loadings"))
    directions, offset = lifted[:, :k], lifted[:, k]
    whole = Parameters(
        np.vstack([directions @ own.loadings[:k], own.loadings[k:]]),
        np.concatenate([shift + offset + directions @ own.mean[:k], own.mean[k:]]),
        own.noise_variance,
    )
    floored = specification.with_floors(found.specification.floors)
    return replace(found, parameters=canonical(whole, floored), specification=floored)
