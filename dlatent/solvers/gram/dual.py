"""Fits by a kernel: the loop of `subspace`, whose space is made of combinations of samples.

One product of K with a few combinations a pass is all that a fit asks of the kernel, wherever that is.  Where K is in
memory all combinations are taken at once, and the closed forms apply (SPPCA, Theorem 3).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlatent.arrays import Array, Features, Integers
from dlatent.gaussian.gram import DualData, DualSolution, DualSpace, dual_data, dual_solution, leading
from dlatent.gaussian.kernel import (
    GivenRows,
    KernelMap,
    KernelRequest,
    SurveyRequest,
    block_given,
    block_survey,
    join_given,
    meet_kernel,
    require_symmetric,
    stacked,
)
from dlatent.gaussian.specification import Specification
from dlatent.operators.kernels import Kernel, centred_kernel, median_gamma
from dlatent.operators.sparse import far_columns
from dlatent.operators.tall import SymmetricTiles, orthonormal
from dlatent.passes import Pass, Run, tile_pass
from dlatent.solvers.costs import FULL_EIGEN
from dlatent.solvers.moments.maximum import finished
from dlatent.solvers.moments.subspace import SubspaceFit, first_directions, grow
from dlatent.solvers.plan import Problem
from dlatent.solvers.solution import Options, Report, Solution
from dlatent.solvers.task import KernelFeatures, Task
from dlatent.solvers.textbook import em_on_moments

TIGHT = 1e-13
"""Tolerance where K is in memory: further products cost no pass."""
SAMPLE = 500
"""Rows whose distances give the median heuristic its median."""
SAMPLE_BYTES = 2**27
"""Fewer rows are looked at where these would be more bytes than this."""


@dataclass(frozen=True)
class KernelProducts:
    """A kernel of N samples by what it does: KV (N, b) of V (N, b) is `joined(times(asked(V)))`, where `times` may
    run the pass that is `asked` for; `diagonal` k(x, x) (N,); and `whole`, which gives K (N, N), where it is in
    memory."""

    times: Callable[[Any], Any]
    diagonal: Array
    whole: Callable[[], Array] | None = None
    asked: Callable[[Array], Any] = np.asarray
    joined: Callable[[Any], Array] = np.asarray

    @classmethod
    def of_matrix(cls, matrix: Array) -> KernelProducts:
        """A kernel in memory."""
        return cls(lambda thin: matrix @ thin, np.diag(matrix), lambda: matrix)

    @classmethod
    def of_tiles(cls, tiles: SymmetricTiles) -> KernelProducts:
        """A kernel in memory, half of it."""
        return cls(lambda thin: tiles @ thin, tiles.diagonal, tiles.whole)

    def __call__(self, thin: Array) -> Array:
        """KV."""
        return self.joined(self.times(self.asked(thin)))

    def about_mean(self, fresh: tuple[Array, ...]) -> Array:
        """HKHV of the directions V of the first view."""
        return _centred(self.joined(self.times(self.asked(_centred(fresh[0])))))


@dataclass(frozen=True)
class DualFit:
    """The model by samples, its solution, and the means (N,) of the rows of K, by which new rows are centred."""

    dual: DualSolution
    solution: Solution
    means: Array


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
    count, k = data.samples, specification.n_components
    exact = len(specification.views) == 1 and count <= FULL_EIGEN
    if kernel.whole is None or not (exact or textbook):
        state, means = begin_dual(kernel, data, specification, options, report)
        return concluded(state, means, grow(state, kernel.about_mean))
    matrix = kernel.whole()
    means, middle = matrix.mean(axis=0), centred_kernel(matrix)
    data = _with_energy(data, kernel, means)
    if textbook:
        space = DualSpace.begin(np.eye(count), middle, data, k)
        return DualFit(*_by_em(space, specification, options, report), means)
    space = DualSpace.begin(*leading(middle, k, data.dimension), data, k)
    state = SubspaceFit(space, specification, tightened(options), report)
    state.record(state.solve())
    return concluded(state, means, True)


def begin_dual(
    kernel: KernelProducts, data: DualData, specification: Specification, options: Options, report: Report | None
) -> tuple[SubspaceFit[DualSpace], Array]:
    """A search in a space of combinations of samples, from random ones and their products, that `grow` may follow; and
    the means (N,) of the rows of K."""
    count, k = data.samples, specification.n_components
    directions = first_directions(count, k, np.random.default_rng(options.random_state))
    directions = orthonormal(_centred(directions))
    found = kernel(np.column_stack([directions, np.full(count, 1.0 / count)]))
    means, products = found[:, -1], _centred(found[:, :-1])
    space = DualSpace.begin(directions, products, _with_energy(data, kernel, means), k)
    return SubspaceFit(space, specification, options if kernel.whole is None else tightened(options), report), means


def concluded(state: SubspaceFit[DualSpace], means: Array, converged: bool) -> DualFit:
    """The fit as a search has left it."""
    dual = dual_solution(state.space, state.solution, state.specification)
    solution = finished(state, dual.parameters, state.options, converged, None)
    return DualFit(dual, replace(solution, parameters=dual.parameters), means)


def _with_energy(data: DualData, kernel: KernelProducts, means: Array) -> DualData:
    return data._replace(energy=float(kernel.diagonal.sum() - means.sum()))


def tightened(options: Options) -> Options:
    """Options for products that cost no pass."""
    return replace(options, tolerance=min(options.tolerance, TIGHT), max_iterations=options.max_iterations + 300)


def _centred(rows: Array) -> Array:
    """HV, the rows about their mean."""
    return np.asarray(rows - rows.mean(axis=0))


def _by_em(
    space: DualSpace, specification: Specification, options: Options, report: Report | None
) -> tuple[DualSolution, Solution]:
    """Plain EM (SPPCA, Algorithm 3) on the moments of all coordinates."""
    moments = space.moments(specification)
    reduced = specification.resized((space.rank, *specification.sizes[1:]))
    solution = em_on_moments(moments, reduced, options, report)
    dual = dual_solution(space, solution.parameters, specification)
    own = specification.with_floors(solution.specification.floors)
    return dual, replace(solution, parameters=dual.parameters, specification=own)


def kernel_tiles(run: Run, kernel: Kernel, options: Options) -> SymmetricTiles:
    """K (N, N) of all samples, by one pass over tiles."""
    request = KernelRequest(kernel, None, options.refuse_zero_rows)
    tiles: tuple[Array, ...] = run(tile_pass(meet_kernel, request, name="kernel"))
    return SymmetricTiles.of(tiles)


def made_by(task: Task) -> KernelFeatures:
    """How the features of a kernel model are made."""
    assert task.kernel is not None
    return task.kernel


def chosen_rows(samples: int, count: int, random_state: Any) -> Integers:
    """Numbers of some random rows, increasing; all where there are no more."""
    if count >= samples:
        return np.arange(samples)
    return np.sort(np.random.default_rng(random_state).permutation(samples)[:count])


def sample_size(problem: Problem) -> int:
    """How many rows the median heuristic looks at."""
    return max(2, min(SAMPLE, SAMPLE_BYTES * problem.samples // problem.nbytes))


def settled_kernel(task: Task, run: Run) -> Kernel:
    """The kernel of a task, settled by some rows, after a look at all of them."""
    kernel = made_by(task).kernel
    return settled(kernel, survey(task, run, sample_size(task.problem)))


def survey(task: Task, run: Run, count: int) -> Features:
    """A look at all rows, which refuses what no model can use, and some of them."""
    chosen = chosen_rows(task.problem.samples, count, task.options.random_state)
    request = SurveyRequest(chosen, task.options.refuse_zero_rows)
    return stacked(run(Pass(block_survey, request, combine=operator.add, name="survey")))


def settled(kernel: Kernel, sample: Features) -> Kernel:
    """The kernel with the γ of the median heuristic, where asked for (γ = 0), and with a shift near the mean."""
    gamma = kernel.gamma or median_gamma(kernel.name, sample)
    shift = None
    if kernel.name == "linear":
        dense = isinstance(sample, np.ndarray)
        shift = np.asarray(sample.mean(axis=0, dtype=np.float64)) if dense else far_columns(sample)
    return replace(kernel, gamma=gamma, shift=shift)


def given_products(count: int, run: Run, *, whole: bool) -> KernelProducts:
    """Products with a kernel that is given as the data, a pass for each, or from the `whole` of it after one pass; each
    pass shows whether it is symmetric."""
    probe = np.random.default_rng(0).standard_normal((count, 1))

    def asked(thin: Array) -> Pass[Array, GivenRows]:
        return Pass(block_given, np.hstack([probe, thin]), combine=join_given, name="products")

    def joined(found: GivenRows) -> Array:
        product = np.vstack(found.product)
        require_symmetric(product[:, 0], found.transposed)
        return product[:, 1:]

    first = run(asked(np.eye(count) if whole else np.zeros((count, 0))))
    product = joined(first)
    if whole:
        return KernelProducts.of_matrix(np.ascontiguousarray(product))
    return KernelProducts(run, np.concatenate(first.diagonal), asked=asked, joined=joined)


def data_of(task: Task) -> DualData:
    """The targets, samples and features of a fit, beside products with the kernel."""
    count, features = task.problem.samples, task.kernel
    dimension = task.specification.sizes[0] if features is None else features.dimension
    targets = None if task.targets is None else np.asarray(task.targets)
    return dual_data(targets, task.specification, count, dimension)


def solution_of(task: Task, kernel: Kernel, fitted: DualFit) -> Solution:
    """The solution of a fit by products, with the map that new rows need."""
    combinations, means = fitted.dual.combinations, fitted.means
    offset, middle = means @ combinations, np.full(len(means), 1.0 / len(means))
    rows, dimension = made_by(task).rows, made_by(task).dimension
    features = KernelMap(kernel, rows, combinations, offset, middle, float(means.mean()), dimension)
    return replace(fitted.solution, features=features)
