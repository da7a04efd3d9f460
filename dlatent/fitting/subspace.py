"""Rayleigh–Ritz EM: one pass for the products of new directions, everything else on the driver.

The loop is the same whether the products come from the data (route krylov) or from a Gram matrix that one pass has
collected (route moments with many features).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.fitting.advice import view_floors
from dlatent.fitting.inner import COARSE, TOLERANCE, Warm, solve
from dlatent.fitting.outcome import Options, Progress, Report
from dlatent.linear_gaussian import rayleigh_ritz as ritz
from dlatent.linear_gaussian.moments import Moments, centred, view_variances
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import PatternProducts
from dlatent.linear_gaussian.rayleigh_ritz import Subspace
from dlatent.linear_gaussian.specification import Specification

Products = Callable[[tuple[Array, ...], bool], tuple[PatternProducts, ...]]
"""Products of directions (D_v, b_v) of each view per pattern, with the sums where the flag says so."""


def require_variation(
    variances: Array, specification: Specification | None = None, growing: tuple[int, ...] = (0,)
) -> Array:
    """Refuse constant data: without variance there is no likelihood to maximise."""
    for view in growing:
        if not variances[view] > 0.0:
            name = (
                "" if specification is None or len(growing) == 1 else f" of the view {specification.views[view].name!r}"
            )
            raise DataError(
                f"all instances{name} are equal: the data{name} are constant and have no principal components"
            )
    return variances


class Climb:
    """The state of one Rayleigh–Ritz fit: the subspace, the last solution and the history."""

    def __init__(
        self, space: Subspace, specification: Specification, options: Options, growing: tuple[int, ...] = (0,)
    ) -> None:
        self.space, self.options, self.growing = space, options, growing
        self.specification = self._with_floors(specification)
        self.history: list[Progress] = []
        self.warm: Warm | None = None
        self.solved_ranks = (0,) * len(space.basis)

    def _with_floors(self, specification: Specification) -> Specification:
        variances = require_variation(self.variances(specification), specification, self.growing)
        return specification.with_floors(view_floors(specification, variances, self.options))

    def _reduced(self, specification: Specification) -> tuple[Moments, Specification]:
        return ritz.reduced_moments(self.space), ritz.reduced_specification(self.space, specification)

    def variances(self, specification: Specification) -> Array:
        """Mean variance per feature of each view."""
        moments, reduced = self._reduced(specification)
        middle = centred(moments, reduced.sizes, reduced.patterns)
        return view_variances(middle, reduced.sizes, reduced.patterns)

    def solve(self, *, thorough: bool = False) -> float:
        """Solve the model inside the subspace and write a line of history; the log-likelihood."""
        moments, reduced = self._reduced(self.specification)
        ranks = self.space.ranks
        grown = tuple(new - old for new, old in zip(ranks, self.solved_ranks, strict=True))
        tolerance = TOLERANCE if thorough or self.whole else self._tolerance()
        solution, self.warm = solve(
            moments, reduced, warm=self.warm, ranks_grown=grown, thorough=thorough, tolerance=tolerance
        )
        self.solved_ranks = ranks
        return solution.log_likelihood

    @property
    def whole(self) -> bool:
        """Whether the subspaces are all of the features."""
        return self.space.ranks == self.space.sizes

    def _tolerance(self) -> float:
        """Solve much closer than the last gain; closer still is wasted on a subspace that will grow."""
        if len(self.history) < 2:
            return COARSE
        last = self.history[-1]
        return float(np.clip(1e-5 * abs(last.gain / last.log_likelihood), TOLERANCE, COARSE))

    def record(self, value: float, report: Report | None) -> Progress:
        """Add a line of history with the estimated relative distance to the optimum."""
        before = self.history[-1].log_likelihood if self.history else np.nan
        gain = value - before
        remaining = _remaining(gain, self.history[-1].gain if self.history else np.nan)
        scale = max(abs(value), self.space.instances)
        line = Progress(
            len(self.history) + 1, value, gain, remaining / scale, max(self.space.ranks[view] for view in self.growing)
        )
        self.history.append(line)
        if report is not None:
            report(line)
        return line

    @property
    def solution(self) -> Parameters:
        """The current parameters inside the subspace, mean about the shift."""
        assert self.warm is not None
        return self.warm.parameters

    def directions(self, extra: int) -> tuple[Array, ...]:
        """Where the subspaces have to grow: the gradient's part outside each, and `extra` Krylov directions."""
        return tuple(self._directions(view, at, extra) for view, at in enumerate(self._slices()))

    def _slices(self) -> list[slice]:
        return list(ritz.reduced_specification(self.space, self.specification).slices)

    def _directions(self, view: int, at: slice, extra: int) -> Array:
        space = self.space
        if space.ranks[view] == space.sizes[view]:
            return np.zeros((space.sizes[view], 0))
        candidates = [ritz.gradient_block(space, self.solution, self.specification, view)]
        candidates.append(ritz.ritz_residuals(space, self.solution.loadings[at], extra, view))
        if len(self.history) == 1:
            others = (other for other in range(len(space.basis)) if other != view)
            candidates += [cross for other in others for cross in space.crossing(view, other)]
        return ritz.orthonormal(np.hstack(candidates), space.basis[view])

    def restart(self, width: int) -> None:
        """Thick restart: keep the loadings' span and the leading principal directions."""
        parameters, keep = self.solution, []
        for view, at in enumerate(self._slices()):
            rank = self.space.ranks[view]
            if rank <= width:
                keep.append(np.eye(rank))
                continue
            used = la.orth(parameters.loadings[at])
            keep.append(np.hstack([used, ritz.principal_inside(self.space, used, width - used.shape[1], view)]))
        pieces = list(zip(keep, self._slices(), strict=True))
        inside = Parameters(
            np.vstack([k.T @ parameters.loadings[at] for k, at in pieces]),
            np.concatenate([k.T @ parameters.mean[at] for k, at in pieces]),
            parameters.noise_variance,
        )
        assert self.warm is not None
        self.warm = Warm(inside, self.warm.noises, self.warm.converged)
        self.space = ritz.restarted(self.space, keep)
        self.solved_ranks = self.space.ranks


def _remaining(gain: float, before: float) -> float:
    """What a geometric series of gains would still add; NaN while two gains are not known."""
    if not np.isfinite(before):
        return float("nan")
    if gain <= 0.0:
        return 0.0
    ratio = min(gain / before, 0.95) if before > 0 else 0.95
    return gain * ratio / (1.0 - ratio)


def extra_directions(n_components: int) -> int:
    """Directions beyond the components in every pass: they cost a fraction of a pass and save several."""
    return min(max(5, n_components // 2), 25)


def climb(
    products: Products,
    specification: Specification,
    shift: Array,
    options: Options,
    report: Report | None = None,
    *,
    growing: tuple[int, ...] = (0,),
    whole: bool = False,
) -> tuple[Climb, bool]:
    """Grow the subspaces until the log-likelihood is within the tolerance of its maximum; the state and whether it is.

    `shift` is that of the stacked features, `growing` the views that are seen through subspaces; others are whole.
    With `whole` all are: nothing is left to grow.
    """
    extra = extra_directions(specification.n_components)
    width = specification.n_components + extra
    first = _first_directions(specification, width, () if whole else growing, options)
    space = ritz.begin(specification.patterns, first, products(first, True), shift)
    state = Climb(space, specification, options, growing)
    converged = False
    while True:
        line = state.record(state.solve(), report)
        if state.whole or line.remaining <= options.tolerance:
            improved = state.solve(thorough=True)
            converged = True
            if improved <= line.log_likelihood + options.tolerance * max(abs(improved), 1.0):
                break
            last = (line.iteration, improved, line.gain, float("nan"), line.rank)
            state.history[-1] = Progress(*last)
            converged = state.whole
            if state.whole:
                break
        if len(state.history) >= options.max_iterations:
            break
        most = max(options.max_rank, 3 * width)
        if any(rank + width > most for view, rank in enumerate(state.space.ranks) if view in growing):
            state.restart(most // 2)
        fresh = state.directions(extra)
        if not any(v.shape[1] for v in fresh):
            converged = True
            break
        state.space = ritz.extend(state.space, fresh, products(fresh, False))
    return state, converged


def _first_directions(
    specification: Specification, width: int, growing: tuple[int, ...], options: Options
) -> tuple[Array, ...]:
    """Random directions, or all of a view where these are not many more."""
    rng, found = np.random.default_rng(options.random_state), []
    for view, size in enumerate(specification.sizes):
        if view not in growing or size <= 2 * min(size, width):
            found.append(np.eye(size))
        else:
            found.append(ritz.orthonormal(rng.standard_normal((size, width))))
    return tuple(found)
