"""Iterations over rows with missing entries: PX-EM, extrapolated, of the likelihood, or of a bound with a prior.

A pass returns the EM statistics, from which the driver takes the EM image, the objective and its gradient.  The
gradient says beforehand whether the extrapolation leads up, and how much is left to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.missing_entries.entries import (
    Entries,
    EntryRequest,
    block_entries,
    gradient,
    maximise_entries,
)
from dlatent.gaussian.missing_entries.patterns import entries_of_patterns
from dlatent.gaussian.missing_entries.prior import (
    Priors,
    axes_of,
    bound_gradient,
    certainty,
    diagonal,
    divergence,
    maximise_bound,
    turned_back,
    with_prior,
    without_components,
    worth,
)
from dlatent.gaussian.missing_entries.row_effects import level_of, maximise_levels, others, with_level
from dlatent.gaussian.specification import Parameters
from dlatent.passes import Pass
from dlatent.solvers.ascent import Climb, accelerate
from dlatent.solvers.em import textbook_em
from dlatent.solvers.missing.starts import EntryData
from dlatent.solvers.solver import History, Report
from dlatent.solvers.task import Task

ROUNDING = 1e-14
"""Relative change of the log-likelihood that is rounding."""
LONGEST = 64.0
"""Times the EM step that a step away from a saddle is long at most."""
FORGOTTEN = 0.1
"""Part of a component's variance that its mean loadings are, below which the data say nothing of it."""
PATIENT, AGAIN = 10, 3
"""Iterations that other components have to find what they are for: at first, and after some were switched off."""


class EntriesEM:
    """Iterations over the data: the history, and what the last pass said."""

    halvings = 0
    level_worth = 0.0
    """Twice what the objective is higher with the levels of the rows than without them."""

    def __init__(self, data: EntryData, task: Task, report: Report | None) -> None:
        self.data, self.units, self.task, self.specification = data, data.units, task, task.specification
        self.history = History(report)
        self.slopes: dict[int, Array] = {}
        self.calm = -1  # of a first iteration nobody knows what it gained
        self.last: tuple[Parameters, tuple[Parameters, float]] | None = None
        self.memory: tuple[list[Array], list[Array]] = [], []

    def step(self, point: Parameters) -> tuple[Parameters, float]:
        """The EM image of a point, by one pass, or none where masks are few, and the objective there in the units of
        the data."""
        if self.last is not None and self.last[0] is point:
            return self.last[1]
        request = EntryRequest(self.seen(point), self.specification, self.units.shift, self.units.scale)
        entries: Entries
        if not point.loadings.shape[1]:
            counts = self.units.counts
            entries = without_components(point, self.specification, counts, counts * self.units.spread)
        elif self.data.patterns is None:
            entries = self.data.run(Pass(block_entries, request, name="entries"))
        else:
            entries = entries_of_patterns(self.data.patterns, request)
        if self.specification.row_effects:
            self.level_worth = float(entries.evidence[-1])
        image, value = self.judged(entries, point)
        self.last = point, (image, value + self.units.jacobian)
        return self.last[1]

    @property
    def surplus(self) -> bool:
        """Whether to go on without some components."""
        return False

    def seen(self, point: Parameters) -> Parameters:
        """A point in the coordinates of z in which a pass is to see it."""
        return point

    def judged(self, entries: Entries, point: Parameters) -> tuple[Parameters, float]:
        """The EM image of a point, and the objective there in the units of the fit, from the statistics of a pass."""
        self.slopes = {id(point): gradient(entries, point, self.specification)}
        maximise = maximise_levels if self.specification.row_effects else maximise_entries
        return maximise(entries, point, self.specification, expand=not self.task.textbook), entries.log_likelihood

    def climb(self, start: Parameters) -> tuple[Parameters, float, bool]:
        """Where textbook EM ends, or PX-EM with Anderson acceleration, when little is left by the gradient; the
        objective there, and whether that is a maximum up to the tolerance."""
        if self.task.textbook:
            return textbook_em(self.step, start, self.task, self.history, lambda: self.surplus)
        while True:
            end = accelerate(
                self.step,
                start,
                tolerance=ROUNDING,
                max_evaluations=self.task.max_iter - len(self.history),
                halvings=self.halvings,
                project=self.projected,
                steer=self._steer,
                memory=self.memory,
            )
            self.history.end(end.value)
            if not self._better_without_levels(end):
                return end.point, end.value, end.converged
            # Iterations would creep to a variance of zero.
            start, self.memory = with_level(others(end.point, self.specification), 0.0), ([], [])

    def _better_without_levels(self, end: Climb[Parameters]) -> bool:
        """Whether the objective is higher without levels of the rows, where a climb has ended, and may go on."""
        if not (self.specification.row_effects and end.converged and len(self.history) < self.task.max_iter):
            return False
        self.step(end.point)  # another point may be the last that was looked at
        return self.level_worth < 0.0

    def _steer(self, point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters | None:
        """Where to go from a point: to Anderson's combination where that leads up, else to its mirror image.

        The combination leads to where the residuals vanish, near a saddle back to that; what it adds to the EM step
        then leads away from it when it is subtracted, faster than EM, whose steps grow slowly.  What the combination
        promises, half its slope, is the estimate of what is left to gain.
        """
        at = point.flatten()
        ahead, step = candidate.flatten() - at, image.flatten() - at
        promise = 0.5 * float(self.slopes[id(point)] @ ahead)
        size = self.size(value)
        line = self.history.add(value, max(promise, 0.0) / size)
        near = 0.0 <= line.remaining <= 0.5 * self.task.tol and promise >= 0.0
        slow = not line.gain > 100.0 * self.task.tol * size
        self.calm = self.calm + 1 if near and slow else 0
        if self.surplus or self.calm >= 2:
            return None
        if promise > 0.0:
            return candidate
        mirrored = 2.0 * step - ahead
        mirrored *= min(1.0, LONGEST * float(la.norm(step) / la.norm(mirrored))) if mirrored.any() else 1.0
        return self.projected(point.unflatten(at + mirrored))

    def size(self, value: float) -> float:
        """What gains, and what is left, are relative to: the objective, and no less than the entries of a feature."""
        return max(abs(value), float(self.units.counts.max()))

    def projected(self, point: Parameters) -> Parameters:
        """An extrapolated point, put back among those that may be."""
        return point.at_least(self.specification.floors)


class BoundEM(EntriesEM):
    """Iterations of the bound with a prior on the loadings; of the components along the axes of a prior by evidence one
    without which the bound is higher is switched off."""

    axes: Array
    worths: Array
    certain: Array
    due = PATIENT

    def seen(self, point: Parameters) -> Parameters:
        """A point along the axes of the prior."""
        self.axes = axes_of(others(point, self.specification), self.units.counts)
        return self._changed(point, lambda rest: rest.turned(self.axes))

    def judged(self, entries: Entries, point: Parameters) -> tuple[Parameters, float]:
        """The EM image of a point, and the bound there; also what components along the axes of the prior are worth, and
        how sure they are."""
        counts, rest = self.units.counts, others(point, self.specification)
        straight = rest.turned(self.axes)
        if self.priors.variance is None:
            self.worths, self.certain = worth(entries, straight), certainty(straight, counts)
        else:
            self.worths = self.certain = np.ones(len(self.axes))
        # Memories of points must not see the axes turned.
        axes = np.eye(point.loadings.shape[1])
        axes[: len(self.axes), : len(self.axes)] = self.axes
        entries = turned_back(entries, axes)
        self.slopes = {id(point): bound_gradient(entries, point, self.specification, self.priors)}
        maximise = maximise_levels if self.specification.row_effects else maximise_bound
        image = maximise(entries, point, self.specification, self.priors, expand=not self.task.textbook)
        return image, entries.log_likelihood - divergence(rest, counts, self.priors)

    @cached_property
    def priors(self) -> Priors:
        """The priors, in the units of the fit."""
        prior = self.task.prior
        # Where features, or features and targets, have units of their own, the loadings are in these.
        scale = 1.0 if len(self.specification.group_sizes) > 1 else self.units.scale[0]
        variance = None if isinstance(prior, str) else float(prior / scale**2)
        return Priors(self.units.offset(self.specification), variance)

    def climb(self, start: Parameters) -> tuple[Parameters, float, bool]:
        """Climb with all components, and again without those that are of no use, until all are."""
        point, converged = self._begun(start), False
        while not converged:
            self.memory = [], []
            point, value, converged = super().climb(point)
            self.step(point)  # another point may be the last that was looked at, with other worths
            useless = self.worths < 0.0
            if not self._settled:
                useless &= self.certain < FORGOTTEN
            if len(self.history) >= self.task.max_iter:
                return point, value, converged
            if useless.any():
                point, converged = self._left(point, value, useless), False
        return point, value, converged

    def _begun(self, start: Parameters) -> Parameters:
        counts = self.units.counts
        if start.loadings_covariance is None:
            start = self._changed(start, lambda rest: with_prior(rest, counts))
        if start.mean_variance is None and self.priors.offset is not None:
            # That of a prior as wide as the features are.
            start = start._replace(mean_variance=1.0 / (counts + 1.0))
        return self._changed(start, lambda rest: diagonal(rest, counts)).at_least(self.specification.floors)

    def _changed(self, point: Parameters, change: Callable[[Parameters], Parameters]) -> Parameters:
        """The point with its components changed, but for the level of the rows."""
        changed = change(others(point, self.specification))
        return with_level(changed, level_of(point)) if self.specification.row_effects else changed

    def _left(self, point: Parameters, value: float, useless: npt.NDArray[np.bool_]) -> Parameters:
        """The point without components: all the useless ones, where the bound is then higher, else the worst."""
        self.due = max(self.due, len(self.history) + AGAIN)
        axes, worst = self.axes, self.worths.argmin()
        left = self._changed(point, lambda rest: rest.turned(axes[:, ~useless]))
        if useless.sum() > 1 and self.step(left)[1] < value:
            return self._changed(point, lambda rest: rest.turned(np.delete(axes, worst, axis=1)))
        return left

    @property
    def _settled(self) -> bool:
        """Whether components have had the time to find what they are for."""
        return len(self.history) >= self.due

    @property
    def surplus(self) -> bool:
        """Whether some components are of no use."""
        useless = self.worths < 0.0
        return bool(useless[(self.certain < FORGOTTEN) | self._settled].any())
