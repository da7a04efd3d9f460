"""What a solver is, and which one fits: of those that can serve the cheapest whose memory is there.

Nothing depends on a fixed number of features, and no solver is known by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from dlatent.arrays import Array
from dlatent.errors import PlanError
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Plan, Problem, size, till_pause
from dlatent.fitting.task import Task
from dlatent.passes import Resources, Run

HELPS = 0.95
"""Part of the memory that a way out of a refusal may still need to be named."""
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


class Route(ABC):
    """One way to fit a model, registered in `fitting.routes`.

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
    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
        """The maximum; `shift` (D,) is a point near the mean of the features, about which sums are taken."""


def make_plan(problem: Problem, machine: Resources, routes: Mapping[str, Route], solver: str = "auto") -> Plan:
    """Choose the cheapest solver that fits, or the one asked for; PlanError where nothing fits, with the way out."""
    asked = demands(problem)
    able = [r for r in routes.values() if asked - r.serves <= {FEW} and (not r.needs or asked & r.needs)]
    plans = {r.name: r.plan(problem, machine) for r in able if r.misfit(problem) is None}
    wanted = list(plans.values()) if solver == "auto" else [plans[solver]] if solver in plans else []
    if not wanted:
        raise PlanError(_unserved(problem, routes, solver, list(plans)))
    usable = [plan for plan in wanted if _filled(plan) <= 1.0]
    if not usable:
        raise PlanError(_refusal(problem, machine, wanted, routes))
    best = min(usable, key=lambda plan: plan.work)
    return replace(
        best,
        passes=best.passes + problem.passes_after,
        reads=best.reads and best.reads + problem.passes_after,
        reason=_reason(problem, best, plans, asked=solver != "auto"),
        alternatives=tuple(plans.values()),
    )


def _filled(plan: Plan) -> float:
    """The part of its limit, of a worker or of the driver, that a plan needs."""
    machine = plan.resources
    return max(plan.worker_memory / (machine.worker_memory or math.inf), plan.driver_memory / machine.driver_memory)


def _reason(problem: Problem, best: Plan, plans: Mapping[str, Plan], *, asked: bool) -> str:
    if problem.kernel is not None:
        return ("asked for; " if asked else "") + _kernel_reason(problem, best, plans)
    if asked:
        return "asked for"
    if len(plans) == 1:
        return "entries may be missing in any place" if problem.missing else "the only one for these data"
    others = [plan for plan in plans.values() if plan is not best]
    smaller = " and ".join(f"{plan.work:.2g} s by {plan.solver}" for plan in others if _filled(plan) <= 1.0)
    said = [f"estimated cost {best.work:.2g} s against {smaller}"] if smaller else []
    said += [
        f"{plan.solver} would need {size(max(plan.worker_memory, plan.driver_memory))}, which does not fit"
        for plan in others
        if _filled(plan) > 1.0
    ]
    return "; ".join(said)


def _kernel_reason(problem: Problem, best: Plan, plans: Mapping[str, Plan]) -> str:
    if problem.landmarks:
        moments = size(8 * (problem.landmarks + problem.targets) ** 2)
        return f"moments of {moments} in the span of {problem.landmarks:,} landmarks; about {best.work:.2g} s"
    said = ", ".join(f"{name} {plan.work:.2g} s" for name, plan in plans.items())
    hint = "" if "stored" in plans or best.solver == "memory" else "; kernel_store= would keep it"
    return f"kernel of {size(problem.samples**2 * problem.kernel_itemsize)}: estimated {said}{hint}"


def _unserved(problem: Problem, routes: Mapping[str, Route], solver: str, others: list[str]) -> str:
    """That the solver asked for cannot serve, or with "auto" that none can, and why."""
    why = {name: _why_not(route, problem) for name, route in routes.items() if solver in (name, "auto")}
    if solver == "auto":
        return (
            f"no solver serves this model and these data: {'; '.join(f'{name}: {said}' for name, said in why.items())}"
        )
    said = f": {why[solver]}" if solver in why else ""
    return f"solver {solver!r} is none for this model and these data{said}; take {' or '.join(others)}, or 'auto'"


def _why_not(route: Route, problem: Problem) -> str | None:
    asked = demands(problem)
    unmet = (why for demand, why in WHY.items() if demand in asked - route.serves)
    return next(unmet, None) or (route.lacking if not asked & route.needs else "") or route.misfit(problem)


def _refusal(problem: Problem, machine: Resources, wanted: Iterable[Plan], routes: Mapping[str, Route]) -> str:
    needs = "; ".join(f"solver {plan.solver} needs {_excess(plan)}" for plan in wanted)
    now, found = min(map(_filled, wanted)), list[tuple[float, str]]()
    for way, other in _changes(problem):
        need = min(_filled(routes[plan.solver].plan(other, machine)) for plan in wanted)
        if need < HELPS * now:
            found.append((need, way))
    ways = [way for _, way in sorted(found)]  # what helps most first
    if machine.threads > 1:
        ways.append("use fewer threads per worker")
    if problem.kernel is not None and not problem.landmarks:
        ways.insert(0, "take landmarks=1000 for an approximation")
    ways.append("give the workers or the driver more memory")
    shape = f"{problem.description} of {problem.samples:,} × {problem.features:,}"
    return f"{shape} does not fit: {needs}. Ways out: {'; '.join(ways)}."


def _excess(plan: Plan) -> str:
    """Which limit the memory of a plan breaks."""
    limit = plan.worker_limit
    if limit and plan.worker_memory > limit:
        return f"{size(plan.worker_memory)} of a worker's {size(limit)}{till_pause(plan.machine)}"
    return f"{size(plan.driver_memory)} of the driver's {size(plan.driver_limit)}"


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """What a user can change of a fit, in words, and the fit that it then is."""
    if problem.in_memory:
        yield "write it to a store, from which workers read (dlatent ingest)", replace(problem, in_memory=False)
    if problem.n_components > 1:
        yield "ask for fewer components", replace(problem, n_components=1)
    smaller = problem.largest_block // 4
    if smaller:
        opened = f"dlatent.open_data(data, block_bytes={smaller})"
        way = f"work on smaller blocks, {opened}, of data in row chunks no larger than that (dlatent ingest)"
        yield way, replace(problem, largest_block=smaller, blocks=4 * problem.blocks)
