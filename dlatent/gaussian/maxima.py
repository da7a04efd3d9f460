"""The best of several maxima of a likelihood that the driver evaluates: starts, climbs, and moves from the best.

Points are vectors that end with the log noise variances of the features, whose variances are 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array

GRADIENT = 1e-9
"""Largest derivative of the log-likelihood per sample at which a climb ends."""
LOOKS = (1e-4, 1e-5)
"""Largest derivatives for a first and a second look at where a start leads."""
WORTH = 0.05
"""Nats per sample below the best maximum from which a first look is not followed up."""
SAME = 0.05
"""Largest difference of log noise variances of points that count as the same maximum."""
AGAIN = 20
"""Starts that lead to the best maximum, after which there are no more."""
NEAR = 1e-8
"""Nats per sample by which a maximum must be better to be moved from again."""
LOW = 1e-3
"""Noise variance that counts as none."""
EDGE = 1e-9
"""Distance of a log noise variance from a bound that counts as none."""
STILL = 1e-4
"""Slope that counts as rounding where quasi-Newton steps that begin again gain nothing."""
MAX_STEPS = 1000
RESTARTS = 10
FEWEST = 50
"""Evaluations that a climb may take before it begins again, whatever is left."""
SAFE = 0.01
"""Part of the tolerance that is estimated to be left: gains come in steps."""
SLOWEST = 0.95
"""Largest ratio of gains that follow each other that a geometric series is taken to have."""
ROUNDING = 1e-13
"""Relative change of the objective that is rounding."""


class Top(NamedTuple):
    """Where a climb ended, the objective there, and whether the climb came to its end."""

    point: Array
    value: float
    settled: bool


class Maxima:
    """The maxima of a likelihood that were found so far.

    `objective` gives minus the log-likelihood per sample and its gradient, `lower` and `upper` bound the log noise
    variances, `unit` says in which units the steps from a point are taken.  After `evaluations` only the climb to the
    top of the best maximum begins, and after half of them none from a start.  `tell` is told of each objective lower
    than all before.  Where the first `clear` starts all lead to one maximum it is taken for the only one; of none (0)
    it never is.
    """

    def __init__(
        self,
        objective: Callable[[Array], tuple[float, Array]],
        lower: Array,
        upper: Array,
        evaluations: float,
        unit: Callable[[Array], Array] = np.ones_like,
        *,
        tell: Callable[[float], object] = float,
        clear: int = 0,
        tolerance: float = 0.0,
    ) -> None:
        self.objective, self.unit, self.tell = objective, unit, tell
        self.clear, self.tolerance, self.lowest, self.ended = clear, tolerance, np.inf, False
        self.lower, self.upper = lower, upper
        self.evaluations, self.left = evaluations, evaluations
        self.maxima: list[Top] = []
        self.first: Top | None = None
        self.led: list[int] = []

    @property
    def best(self) -> int:
        """Which of them is the best."""
        return min(range(len(self.maxima)), key=lambda number: self.maxima[number].value)

    def search(self, starts: Iterable[Array], moves: Callable[[Array], Iterable[Array]]) -> Top:
        """The best maximum that starts, and then moves from the best as long as they lead higher, lead to."""
        for number, start in enumerate(starts, 1):
            self.look(start)
            again = self.led.count(self.best)
            if again == number == self.clear:
                return self.finished(self.maxima[self.best])
            if again >= AGAIN or self.left < 0.5 * self.evaluations:
                break
        improved = True
        while improved:
            best, improved = self.maxima[self.best], False
            for start in moves(best.point):
                if improved or self.left < 0.0:
                    break
                self.look(start)
                improved = self.maxima[self.best].value < best.value - NEAR
        return self.finished(self.maxima[self.best])

    def look(self, start: Array) -> None:
        """Climb from a start, near to the top where that may be a maximum that is new and not far below the best."""
        point = start
        for gradient in LOOKS if self.maxima or not self.clear else (GRADIENT,):
            top = self.climb(point, gradient, self.maxima if self.clear else ())
            known = next((number for number, other in enumerate(self.maxima) if self.same(top.point, other)), None)
            if known is not None and top.value >= self.maxima[known].value:
                self.led.append(known)
                return
            if self.maxima and top.value > self.maxima[self.best].value + WORTH:
                return
            point = top.point
        self.first = top if self.first is None else self.first
        self.led.append(len(self.maxima) if known is None else known)
        self.maxima[self.led[-1] : self.led[-1] + 1] = [top]

    def same(self, point: Array, top: Top) -> bool:
        """Whether a point is at a maximum; of little noise it does not matter how little it is."""
        first, second = (np.maximum(self.noise(each), np.log(LOW)) for each in (point, top.point))
        return float(abs(first - second).max()) < SAME

    def noise(self, point: Array) -> Array:
        """The log noise variances, a view of the point."""
        return point[-len(self.lower) :]

    def finished(self, top: Top) -> Top:
        """The top itself: also where noise that is next to nothing is at its floor."""
        if not (self.clear and top is self.first):
            top = self.climb(top.point, GRADIENT)
        for feature in self.slight(top.point):
            other = self.climb(self.fallen(top.point, feature), GRADIENT)
            # Eigenvalues of up to one over the least noise are known to their last digit: what they cannot tell from
            # the floor is at the floor, or else rounding would choose the axes of factors that explain such features.
            rounding = np.finfo(float).eps * len(self.lower) * np.exp(-self.noise(top.point).min())
            top = other if other.value < top.value + rounding else top
        return top

    def climb(self, start: Array, gradient: float, known: Sequence[Top] = ()) -> Top:
        """Quasi-Newton steps, until one is at a known maximum; begun again where a line search fails: eigenvalues cross
        on the way, and noise that is next to nothing moves the likelihood too little for its slope to be more than
        rounding."""
        low, high = np.full(len(start), -np.inf), np.full(len(start), np.inf)
        self.noise(low)[:], self.noise(high)[:] = self.lower, self.upper
        point = np.clip(start, low, high)
        value, slope = self.evaluate(point)
        for _ in range(RESTARTS):
            before, unit = value, self.unit(point)

            def scaled(vector: Array, unit: Array = unit) -> tuple[float, Array]:
                best, slope = self.evaluate(vector * unit)
                return best, slope * unit

            best = opt.minimize(
                scaled,
                point / unit,
                jac=True,
                method="L-BFGS-B",
                bounds=opt.Bounds(low, high),
                callback=self.watch([value], unit, known, gradient <= GRADIENT),
                options={
                    "ftol": 0.0,
                    "gtol": gradient,
                    "maxiter": MAX_STEPS,
                    "maxfun": max(FEWEST, min(2 * MAX_STEPS, int(self.left))),
                    "maxcor": 30,
                },
            )
            if best.fun <= value:
                point, value, slope = best.x * unit, float(best.fun), best.jac / unit
            if self.ended:
                return Top(point, value, True)
            for feature in self.slight(point):
                lowered = self.fallen(point, feature)
                if (below := self.evaluate(lowered))[0] < value:
                    point, (value, slope) = lowered, below
            still = not value < before - ROUNDING * max(abs(value), 1.0)
            if still or (self.left < 0.0 and gradient > GRADIENT):
                break
        free = np.ones(len(point), dtype=bool)
        self.noise(free)[:] = self.free(point)
        # Begun again without a gain is the end, though noise at its floor makes slopes of rounding.
        settled = bool(abs(slope[free]).max(initial=0.0) <= (STILL if still else 1e3 * gradient))
        return Top(point, value, settled)

    def watch(self, heights: list[float], unit: Array, known: Sequence[Top], last: bool) -> Callable[..., None]:
        """What looks at each step of a climb: it ends so near to a known maximum that quasi-Newton steps would end
        there, and the last climb by the tolerance."""
        self.ended = False
        lowest = np.array([top.value for top in known])
        noises = np.reshape([self.noise(top.point) for top in known], (len(known), len(self.lower)))

        def stepped(intermediate_result: Any) -> None:
            point, value = intermediate_result.x * unit, float(intermediate_result.fun)
            heights.append(value)
            if value < self.lowest:
                self.lowest = value
                self.tell(value)
            near = abs(noises - self.noise(point)).max(axis=1) < SAME
            self.ended = (last and self.reached(heights)) or bool((near & (lowest <= value)).any())
            if self.ended:
                raise StopIteration

        return stepped

    def reached(self, heights: list[float]) -> bool:
        """Whether what steps are still to gain, as a geometric series goes on, is within the tolerance."""
        if len(heights) < 4 or not self.tolerance:
            return False
        *_, before, last = -np.diff(heights)
        ratio = min(last / max(before, np.finfo(float).tiny), SLOWEST)
        return bool(last * ratio / (1.0 - ratio) <= SAFE * self.tolerance * max(abs(heights[-1]), 1.0))

    def evaluate(self, point: Array) -> tuple[float, Array]:
        """The objective, counted."""
        self.left -= 1.0
        with np.errstate(all="ignore"):  # where a line search tries noise that is next to nothing
            return self.objective(point)

    def free(self, point: Array) -> np.ndarray:
        """Which log noise variances are at no bound; rounding keeps some a little beside."""
        noise = self.noise(point)
        return np.asarray((noise > self.lower + EDGE) & (noise < self.upper - EDGE))

    def slight(self, point: Array) -> np.ndarray:
        """The features whose noise is next to nothing, but more than its floor."""
        return np.flatnonzero(self.free(point) & (self.noise(point) < np.log(LOW)))

    def fallen(self, point: Array, feature: int) -> Array:
        """The point with the noise of a feature at its floor."""
        lowered = point.copy()
        self.noise(lowered)[feature] = self.lower[feature]
        return lowered
