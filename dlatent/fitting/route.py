"""What a route is: one way from data to parameters.

A route says for which fits it is not the way, what it costs, and does it.  The planner and the estimators know none of
them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from dlatent.arrays import Array
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Cost, Machine, Plan, Problem
from dlatent.fitting.task import Task
from dlatent.passes import Run


def demands(problem: Problem) -> dict[str, str]:
    """What a fit asks of its route beyond complete samples with one noise variance, and why other routes are none, in
    words that a user understands."""
    graph = problem.graph_entries is not None
    asked = {
        "mixture": (problem.mixtures > 1, "which component of the mixture a row is of is not known"),
        "kernel": (problem.kernel is not None, "a kernel makes the features, which are never written down"),
        "landmarks": (problem.landmarks > 0, "landmarks are asked for"),
        "missing": (problem.missing, "any entry may be missing"),
        "partly labelled graph": (
            graph and problem.patterns > 1,
            "some of the samples in the graph have no targets",
        ),
        "graph": (graph, "rows are joined by a graph"),
        "own noise": (not problem.shared, "each feature has a noise variance of its own"),
        "views": (bool(problem.views), "there are several views"),
        "targets": (problem.targets > 0, "there are targets"),
        "weights": (problem.weighted, "samples have weights"),
        "added rows": (problem.adding, "rows are added to those of before, of which moments are known"),
        "prior": (problem.prior, "the loadings have a prior"),
        "prior, targets": (problem.prior and problem.targets > 0, "the loadings of features and targets have a prior"),
        "rule": (problem.rule is not None, "the number of components is chosen from all eigenvalues"),
    }
    return {name: why for name, (there, why) in asked.items() if there}


class Route(ABC):
    """One way to fit a model, registered in `fitting.routes`.

    Parameters
    ----------
    name : what users call it.
    serves : the demands that it meets (see `demands`).
    observed : whether it begins from the mean of the observed entries, whichever are missing.
    """

    name: ClassVar[str]
    serves: ClassVar[frozenset[str]]
    observed: ClassVar[bool] = False

    def refuses(self, problem: Problem) -> str | None:
        """Why it is no way for such a fit, in words that a user understands; None where it is one."""
        unmet = (why for demand, why in demands(problem).items() if demand not in self.serves)
        return next(unmet, None) or self.misfit(problem)

    def misfit(self, problem: Problem) -> str | None:
        """Why it is no way for a fit whose demands it meets."""
        return None

    @abstractmethod
    def cost(self, problem: Problem, machine: Machine) -> Cost:
        """Passes, seconds, bytes, memory of worker and driver."""

    @abstractmethod
    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
        """The maximum; `shift` (D,) is a point near the mean of the features, about which sums are taken."""
