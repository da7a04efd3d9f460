"""What a solver is: one way from data to parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from dlatent.arrays import Array
from dlatent.passes import Resources, Run
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.task import Task

WHY = {
    "mixture": "which component of the mixture a row is of is not known",
    "kernel": "a kernel makes the features, which are never written down",
    "landmarks": "landmarks are asked for",
    "missing": "any entry may be missing",
    "partly labelled graph": "some of the samples in the graph have no targets",
    "graph": "rows are joined by a graph",
    "own noise": "each feature has a noise variance of its own",
    "views": "there are several views",
    "targets": "there are targets",
    "weights": "samples have weights",
    "added rows": "rows are added to those of before, of which moments are known",
    "prior": "the loadings have a prior",
    "prior, targets": "the loadings of features and targets have a prior",
    "rule": "the number of components is chosen from all eigenvalues",
}
"""What a fit may ask of its solver beyond complete samples with one noise variance, and why others are none."""
FEW = "few samples"
"""What is said of fits that every solver takes, and some need: fewer samples than features."""


def demands(problem: Problem) -> frozenset[str]:
    """What a fit asks of its solver."""
    graph = problem.graph_entries is not None
    asked = {
        "mixture": problem.mixtures > 1,
        "kernel": problem.kernel is not None,
        "landmarks": problem.landmarks > 0,
        "missing": problem.missing,
        "partly labelled graph": graph and problem.patterns > 1,
        "graph": graph,
        "own noise": not problem.shared,
        "views": bool(problem.views),
        "targets": problem.targets > 0,
        "weights": problem.weighted,
        "added rows": problem.adding,
        "prior": problem.prior,
        "prior, targets": problem.prior and problem.targets > 0,
        "rule": problem.rule is not None,
        FEW: problem.samples < problem.features,
    }
    return frozenset(name for name, there in asked.items() if there)


class Solver(ABC):
    """One way to fit a model, named in `registry`.

    Parameters
    ----------
    name : what users call it.
    serves : the demands that it meets.
    needs : demands of which one must be there, where it is a way for such fits only.
    lacking : why it is none for other fits.
    observed : whether it begins from the mean of the observed entries, whichever are missing.
    """

    name: ClassVar[str]
    serves: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[str]] = frozenset()
    lacking: ClassVar[str] = ""
    observed: ClassVar[bool] = False

    def misfit(self, problem: Problem) -> str | None:
        """Why it is no way for a fit whose demands it meets, in words that a user understands."""
        return None

    @abstractmethod
    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """Its memory, which decides what stays in a cache, then its passes and seconds."""

    @abstractmethod
    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum; `shift` (D,) is a point near the mean of the features, about which sums are taken."""
