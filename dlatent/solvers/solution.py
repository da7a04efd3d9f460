"""The result of a fit: a value whose text is advice, never an exception for a fit that merely did not finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlatent.arrays import Array
from dlatent.gaussian.kernel import KernelMap
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification


@dataclass(frozen=True)
class Iteration:
    """One line of a fit's history.

    Parameters
    ----------
    iteration : int
        Its number.
    log_likelihood : float
        In nats.
    gain : float
        By how much it rose; NaN at first.
    remaining : float
        Estimated relative distance to the optimum, NaN while unknown.
    rank : int
        Width of the subspace, 0 for EM.
    """

    iteration: int
    log_likelihood: float
    gain: float
    remaining: float
    rank: int


Report = Callable[[Iteration], None]


@dataclass(frozen=True)
class Solution:
    """The result of a fit.

    `parameters` are canonical, over the stacked features; `log_likelihood` in nats over all samples; `at_floor` per
    noise variance; `advice` is what a user should know or do, one sentence each;
    `checked_log_likelihood` is that of a pass over the data, where one was made; `features` leads from rows to the
    features of `parameters`, where a kernel makes these.  Of a mixture, parameters have a first axis of its components,
    `specification` is that of one of them, and `weights` (M,) are theirs.  `moments` are those of all rows, where more
    rows are to be added.
    """

    parameters: Parameters
    specification: Specification
    log_likelihood: float
    history: tuple[Iteration, ...]
    converged: bool
    iterations: int
    at_floor: tuple[bool, ...]
    samples: int
    view_samples: tuple[int, ...]
    total_variance: tuple[float, ...]
    advice: tuple[str, ...] = ()
    checked_log_likelihood: float | None = None
    features: KernelMap | None = None
    weights: Array | None = None
    moments: Moments | None = None


class History(list[Iteration]):
    """The iterations so far; `report` is told of each."""

    def __init__(self, report: Report | None = None) -> None:
        super().__init__()
        self.report = report

    def add(self, value: float, remaining: float = float("nan"), rank: int = 0) -> Iteration:
        """The next iteration, with its log-likelihood in nats and the rest of an `Iteration`."""
        gain = value - self[-1].log_likelihood if self else float("nan")
        self.append(Iteration(len(self) + 1, value, gain, remaining, rank))
        if self.report is not None:
            self.report(self[-1])
        return self[-1]

    def end(self, value: float) -> None:
        """Add where the fit ends, where that is not where its last iteration was."""
        if not self or value != self[-1].log_likelihood:
            self.add(value)

    def settled(self, tolerance: float) -> bool:
        """Whether the last iteration gained less than the tolerance, relative to the log-likelihood."""
        last = self[-1]
        return abs(last.gain) <= tolerance * max(abs(last.log_likelihood), 1.0)
