"""What a route is: one way from data to parameters.

A route says for which fits it is not the way, what it costs, and does it.  The planner and the estimators know none of
them by name.
"""

from __future__ import annotations

from typing import Protocol

from dlatent.arrays import Array
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Cost, Machine, Plan, Problem
from dlatent.fitting.task import Task
from dlatent.passes import Run

MIXED = "which component of the mixture a row is of is not known"


def hidden(problem: Problem) -> str | None:
    """Why features have no sums over samples that serve all parameters, in words; None where they have."""
    if problem.mixtures > 1:
        return MIXED
    if problem.kernel is not None:
        return "a kernel makes the features, which are never written down"
    return "any entry may be missing" if problem.missing else None


class Route(Protocol):
    """One way to fit a model, registered in `fitting.routes`."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def observed(self) -> bool:
        """Whether it begins from the mean of the observed entries, whichever are missing."""
        ...

    def refuses(self, problem: Problem) -> str | None:
        """Why it is no way for such a fit, in words that a user understands; None where it is one."""
        ...

    def cost(self, problem: Problem, machine: Machine) -> Cost:
        """Passes, seconds, bytes, memory of worker and driver."""
        ...

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
        """The maximum; `shift` (D,) is a point near the mean of the features, about which sums are taken."""
        ...
