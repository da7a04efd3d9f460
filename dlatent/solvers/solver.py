"""A solver, one way from data to parameters, and the solution that it finds.

A solution is a value whose text is advice, never an exception for a fit that merely did not finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dlatent.arrays import Array
from dlatent.gaussian.kernel import KernelMap
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.passes import Resources, Run
from dlatent.solvers.plan import Plan
from dlatent.solvers.task import Task


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
    features of `parameters`, where a kernel makes these; `known` (D,) counts the entries of each feature, where some
    are missing.  Of a mixture, parameters have a first axis of its components, `specification` is that of one of them,
    and `weights` (M,) are theirs.  `moments` are those of all rows, where more rows are to be added.
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
    known: Array | None = None


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


FEW = "few samples"
"""Fits that every solver takes, and some need."""
DEMANDS: dict[str, tuple[Callable[[Task], bool], str]] = {
    "kernel": (
        lambda task: task.kernel is not None,
        "a kernel makes the features, which are never written down",
    ),
    "landmarks": (lambda task: task.kernel is not None and task.kernel.landmarks > 0, "landmarks are asked for"),
    "missing": (lambda task: task.missing, "any entry may be missing"),
    "partly labelled graph": (
        lambda task: task.between is not None and len(task.specification.patterns) > 1,
        "some of the samples in the graph have no targets",
    ),
    "graph": (lambda task: task.between is not None, "rows are joined by a graph"),
    "own noise": (lambda task: not task.shared, "each feature has a noise variance of its own"),
    "views": (lambda task: task.arrangement is not None, "there are several views"),
    "targets": (lambda task: task.columns > 0, "there are targets"),
    "weights": (lambda task: task.weighted, "samples have weights"),
    "added rows": (lambda task: task.adding, "rows are added to those of before, of which moments are known"),
    "prior": (lambda task: task.prior != "ml", "the loadings have a prior"),
    "prior, targets": (
        lambda task: task.prior != "ml" and task.columns > 0,
        "the loadings of features and targets have a prior",
    ),
    "rule": (
        lambda task: task.chosen_first and not (task.arrangement is not None and task.shared),
        "the number of components is chosen from all eigenvalues",
    ),
    FEW: (lambda task: task.data.samples < task.data.features, "there are fewer samples than features"),
}
"""All that a fit may ask of its solver beyond complete samples with one noise variance, but for what only its `Family`
asks, and why others are none."""


class Solver(ABC):
    """One way to fit a model.

    Parameters
    ----------
    name : what users call it.
    serves : the demands that it meets.
    needs : demands of which one must be there, where it is a way for such fits only.
    lacking : why it is none for other fits.
    observed : whether it begins from the mean of the observed entries, whichever are missing.
    most : iterations that it makes at most, where the user does not say.
    """

    name: ClassVar[str]
    serves: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[str]] = frozenset()
    lacking: ClassVar[str] = ""
    observed: ClassVar[bool] = False
    most: ClassVar[int] = 60

    def misfit(self, task: Task) -> str | None:
        """Why it is no way for a fit whose demands it meets, in words that a user understands."""
        return None

    @abstractmethod
    def plan(self, task: Task, machine: Resources) -> Plan:
        """Its memory, which decides what stays in a cache, then its passes and seconds."""

    @abstractmethod
    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum; `shift` (D,) is a point near the mean of the features, about which sums are taken."""


def by_name(*solvers: type[Solver]) -> dict[str, Solver]:
    """Solvers among which a plan chooses, in the order in which messages name them."""
    return {solver.name: solver() for solver in solvers}
