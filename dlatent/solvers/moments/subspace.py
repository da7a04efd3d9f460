"""Rayleigh–Ritz EM: one pass for the products of new directions, everything else on the driver.

The loop is the same whether the products come from the data (solver krylov) or from a Gram matrix that one pass has
collected (solver covariance with many features).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.gram import DualSpace
from dlatent.gaussian.moments import centred, view_variances
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.products import PatternProducts
from dlatent.operators.tall import fresh_directions, orthonormal
from dlatent.solvers.diagnostics import noise_floors
from dlatent.solvers.moments.krylov import KrylovSpace
from dlatent.solvers.moments.rayleigh_ritz import Subspace
from dlatent.solvers.moments.reduced_problem import COARSE, TOLERANCE, Warm, solve
from dlatent.solvers.solution import History, Iteration, Report
from dlatent.solvers.task import Task

FeatureSpace = KrylovSpace | Subspace
"""A space of directions of features."""


class Products(Protocol):
    """Products of the data with directions (D_v, b_v) of each view, for each pattern, and where asked the sums."""

    def __call__(self, directions: tuple[Array, ...], sums: bool = False) -> tuple[PatternProducts, ...]:
        """The products of each pattern."""


S = TypeVar("S", FeatureSpace, DualSpace)
"""A part of the features of each view in which the loadings lie, and what the likelihood there depends on: directions
of features, or combinations of samples."""


class SubspaceFit(Generic[S]):
    """The state of one Rayleigh–Ritz fit: the subspace, the last solution and the history."""

    def __init__(self, space: S, task: Task, report: Report | None) -> None:
        self.space: S = space
        self.task, self.growing = task, task.growing
        self.specification = task.specification
        self.counts = [part.samples for part in space.moments(task.specification).patterns]
        variances = self.variances()
        self.specification = task.specification.with_floors(noise_floors(task, variances, np.zeros(sum(space.ranks))))
        self.history = History(report)
        self.warm: Warm | None = None
        self.solved_ranks = (0,) * len(space.ranks)

    def variances(self) -> Array:
        """Mean variance per feature of each view."""
        sizes, patterns = self.space.ranks, self.specification.patterns
        return view_variances(centred(self.space.moments(self.specification), sizes, patterns), sizes, patterns)

    def solve(self, *, thorough: bool = False) -> float:
        """Solve the model inside the subspace and write a line of history; the log-likelihood."""
        ranks, moments = self.space.ranks, self.space.moments(self.specification)
        grown = tuple(new - old for new, old in zip(ranks, self.solved_ranks, strict=True))
        tolerance = TOLERANCE if thorough or self.space.exhausted else self._tolerance()
        solution, self.warm = solve(
            moments,
            self.specification.resized(ranks),
            warm=self.warm,
            ranks_grown=grown,
            thorough=thorough,
            tolerance=tolerance,
        )
        self.solved_ranks = ranks
        return solution.log_likelihood

    def _tolerance(self) -> float:
        """Solve much closer than the last gain; closer still is wasted on a subspace that will grow."""
        if len(self.history) < 2:
            return COARSE
        last = self.history[-1]
        return float(np.clip(1e-5 * abs(last.gain / last.log_likelihood), TOLERANCE, COARSE))

    def record(self, value: float) -> Iteration:
        """Add a line of history with the estimated relative distance to the optimum."""
        last = self.history[-1] if self.history else None
        remaining = float("nan") if last is None else _remaining(value - last.log_likelihood, last.gain)
        scale = max(abs(value), sum(self.counts))
        return self.history.add(value, remaining / scale, max(self.space.ranks[view] for view in self.growing))

    @property
    def solution(self) -> Parameters:
        """The current parameters inside the subspace, mean about the shift."""
        assert self.warm is not None
        return self.warm.parameters

    def directions(self, extra: int) -> tuple[Array, ...]:
        """Where the subspaces have to grow."""
        return self.space.growth(self.solution, self.specification, extra, first=len(self.history) == 1)

    def restart(self, width: int) -> None:
        """Thick restart: keep the loadings' span and the leading principal directions."""
        parameters, keep = self.solution, []
        slices = self.specification.resized(self.space.ranks).slices
        for view, (rank, at) in enumerate(zip(self.space.ranks, slices, strict=True)):
            if view not in self.growing or rank <= width:
                keep.append(np.eye(rank))
                continue
            used = la.orth(parameters.loadings[at])
            keep.append(np.hstack([used, self.space.principal(used, width - used.shape[1], view)]))
        pieces = list(zip(keep, slices, strict=True))
        inside = Parameters(
            np.vstack([k.T @ parameters.loadings[at] for k, at in pieces]),
            np.concatenate([k.T @ parameters.mean[at] for k, at in pieces]),
            parameters.noise_variance,
        )
        assert self.warm is not None
        self.warm = Warm(inside, self.warm.noises, self.warm.converged)
        self.space = self.space.restarted(tuple(keep))
        self.solved_ranks = self.space.ranks


def _remaining(gain: float, before: float) -> float:
    """The rest of a geometric series of gains; NaN while two gains are not known."""
    if not np.isfinite(before):
        return float("nan")
    if gain <= 0.0:
        return 0.0
    ratio = min(gain / before, 0.95) if before > 0 else 0.95
    return gain * ratio / (1.0 - ratio)


def search(
    products: Products,
    task: Task,
    shift: Array,
    report: Report | None = None,
    *,
    every_feature: bool = False,
    spare: int = 0,
) -> tuple[SubspaceFit[FeatureSpace], bool]:
    """Grow the subspaces until the log-likelihood is within the tolerance of its maximum; the state and whether it is.

    `shift` is that of the stacked features; with `every_feature` no view is seen through a subspace, nothing is left to
    grow.  `spare` features more than the directions of the first view have share its noise; their energy is in that of
    the sums.
    """
    specification, rng = task.specification, np.random.default_rng(task.random_state)
    # Random directions of the views that grow, all of the others.
    first = tuple(
        first_directions(size, specification.n_components, rng)
        if view in task.growing and not every_feature
        else np.eye(size)
        for view, size in enumerate(specification.sizes)
    )
    first_products = products(first, True)
    space: FeatureSpace
    if specification.single:
        space = KrylovSpace.begin(first[0], first_products[0], shift, spare)
    else:
        space = Subspace.begin(specification.patterns, first, first_products, shift, spare)
    state: SubspaceFit[FeatureSpace] = SubspaceFit(space, task, report)
    return state, grow(state, products)


def first_directions(size: int, n_components: int, rng: np.random.Generator) -> Array:
    """Random orthonormal directions (size, b) for the first pass, or all where these are few."""
    width = min(size, fresh_directions(n_components))
    if size <= 2 * width:
        return np.eye(size)
    return orthonormal(rng.standard_normal((size, width)))


def grow(state: SubspaceFit[S], products: Callable[[tuple[Array, ...]], Any]) -> bool:
    """Let the space of a fit grow by the products of one pass at a time; whether the maximum is reached."""
    task, k = state.task, state.specification.n_components
    width = fresh_directions(k)
    most = max(task.max_rank, 3 * width)
    while True:
        line = state.record(state.solve())
        exhausted = state.space.exhausted
        if exhausted or line.remaining <= task.tol:
            # Of one view the problem inside is an eigenproblem, whose solution no other start can better.
            improved = line.log_likelihood if state.specification.single else state.solve(thorough=True)
            if improved <= line.log_likelihood + task.tol * max(abs(improved), 1.0):
                return True
            state.history[-1] = Iteration(line.iteration, improved, line.gain, float("nan"), line.rank)
            if exhausted:
                return True
        if len(state.history) >= task.max_iter:
            return False
        if any(state.space.ranks[view] + width > most for view in state.growing):
            state.restart(most // 2)
        fresh = state.directions(width - k)
        if not any(v.shape[1] for v in fresh):
            return True
        state.space = state.space.extended(fresh, products(fresh), most)
