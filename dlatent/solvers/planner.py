"""Which solver fits: of those that can serve the cheapest whose memory is there.

Nothing depends on a fixed number of features, and no solver is known by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dlatent.errors import PlanError
from dlatent.passes import Resources
from dlatent.solvers.plan import Plan, Problem, size, till_pause
from dlatent.solvers.registry import SOLVERS
from dlatent.solvers.solver import FEW, WHY, Solver, demands

HELPS = 0.95
"""Part of the memory that a way out of a refusal may still need to be named."""


def make_plan(problem: Problem, machine: Resources, solver: str = "auto") -> Plan:
    """Choose the cheapest solver that fits, or the one asked for; PlanError where nothing fits, with the way out."""
    asked = demands(problem)
    able = [one for one in SOLVERS.values() if asked - one.serves <= {FEW} and (not one.needs or asked & one.needs)]
    plans = {one.name: one.plan(problem, machine) for one in able if one.misfit(problem) is None}
    wanted = list(plans.values()) if solver == "auto" else [plans[solver]] if solver in plans else []
    if not wanted:
        raise PlanError(_unserved(problem, solver, list(plans)))
    usable = [plan for plan in wanted if _filled(plan) <= 1.0]
    if not usable:
        raise PlanError(_refusal(problem, machine, wanted))
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


def _unserved(problem: Problem, solver: str, others: list[str]) -> str:
    """That the solver asked for cannot serve, or with "auto" that none can, and why."""
    why = {name: _why_not(one, problem) for name, one in SOLVERS.items() if solver in (name, "auto")}
    if solver == "auto":
        return (
            f"no solver serves this model and these data: {'; '.join(f'{name}: {said}' for name, said in why.items())}"
        )
    said = f": {why[solver]}" if solver in why else ""
    return f"solver {solver!r} is none for this model and these data{said}; take {' or '.join(others)}, or 'auto'"


def _why_not(solver: Solver, problem: Problem) -> str | None:
    asked = demands(problem)
    unmet = (why for demand, why in WHY.items() if demand in asked - solver.serves)
    return next(unmet, None) or (solver.lacking if not asked & solver.needs else "") or solver.misfit(problem)


def _refusal(problem: Problem, machine: Resources, wanted: Iterable[Plan]) -> str:
    needs = "; ".join(f"solver {plan.solver} needs {_excess(plan)}" for plan in wanted)
    now, ways = min(map(_filled, wanted)), list[tuple[float, str]]()
    for way, other in _changes(problem):
        need = min(_filled(SOLVERS[plan.solver].plan(other, machine)) for plan in wanted)
        if need < HELPS * now:
            ways.append((need, way))
    helping = [way for _, way in sorted(ways)]  # what helps most first
    if machine.threads > 1:
        helping.append("use fewer threads per worker")
    if problem.kernel is not None and not problem.landmarks:
        helping.insert(0, "take landmarks=1000 for an approximation")
    helping.append("give the workers or the driver more memory")
    shape = f"{problem.description} of {problem.samples:,} × {problem.features:,}"
    return f"{shape} does not fit: {needs}. Ways out: {'; '.join(helping)}."


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
