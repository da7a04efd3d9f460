"""Which solver fits: of those that can serve the cheapest whose memory is there.

Nothing depends on a fixed number of features, and no solver is known by name.  A new one for tables is a file and a
line here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dlatent.errors import PlanError
from dlatent.passes import Resources
from dlatent.solvers.gram import GramSolver
from dlatent.solvers.missing.solver import AcceleratedEMSolver
from dlatent.solvers.moments.solver import CovarianceSolver, KrylovSolver
from dlatent.solvers.plan import Plan, size, till_pause
from dlatent.solvers.solver import DEMANDS, FEW, Solver, by_name
from dlatent.solvers.task import KernelFeatures, Task

SOLVERS = by_name(CovarianceSolver, KrylovSolver, GramSolver, AcceleratedEMSolver)
"""Those of tables; models of other features or families bring their own."""

HELPS = 0.95
"""Part of the memory that a remedy may still need to be named in a refusal."""


def make_plan(task: Task, machine: Resources, solvers: Mapping[str, Solver] = SOLVERS) -> Plan:
    """Choose the cheapest solver that fits, or the one asked for; PlanError with a hint where nothing fits."""
    family = {} if task.family is None else {task.family.name: task.family.why}
    asked = family | {demand: why for demand, (there, why) in DEMANDS.items() if there(task)}
    why_not = {name: _why_not(each, task, asked) for name, each in solvers.items()}
    plans = {name: solvers[name].plan(task, machine) for name, reason in why_not.items() if reason is None}
    wanted = [plan for name, plan in plans.items() if task.solver in ("auto", name)]
    if not wanted:
        raise PlanError(_unserved(task, why_not))
    usable = [plan for plan in wanted if _filled(plan) <= 1.0]
    if not usable:
        raise PlanError(_refusal(task, machine, wanted, solvers))
    best, after, before = min(usable, key=_cost), int(task.head == "auto"), int(task.scale)
    reads = best.reads and best.reads + after
    if before:  # which reads the data, and keeps none of them
        reads = before + (reads or (1 if best.cached else best.passes + after))
    return replace(
        best,
        passes=before + best.passes + after,
        reads=reads,
        reason=_reason(best, plans),
        alternatives=tuple(plans.values()),
    )


def _why_not(solver: Solver, task: Task, asked: Mapping[str, str]) -> str | None:
    """Why a solver is none for a task that asks this; None where it serves."""
    for demand, why in asked.items():
        if demand != FEW and demand not in solver.serves:
            return why
    if solver.needs and not asked.keys() & solver.needs:
        return solver.lacking
    return solver.misfit(task)


def _cost(plan: Plan) -> float:
    """Seconds by which solvers are compared; of views not those of a search that only one of them makes."""
    return plan.seconds if plan.task.arrangement is None else plan.work


def _filled(plan: Plan) -> float:
    """The part of its limit, of a worker or of the driver, that a plan needs."""
    machine = plan.resources
    return max(plan.worker_memory / (machine.worker_memory or math.inf), plan.driver_memory / machine.driver_memory)


def _reason(best: Plan, plans: Mapping[str, Plan]) -> str:
    asked = best.task.solver != "auto"
    if best.task.kernel is not None:
        return ("asked for; " if asked else "") + _kernel_reason(best, best.task.kernel, plans)
    if asked:
        return "asked for"
    if len(plans) == 1:
        return "entries may be missing in any place" if best.task.missing else "the only one for these data"
    others = [plan for plan in plans.values() if plan is not best]
    smaller = " and ".join(f"{_cost(plan):.2g} s by {plan.solver}" for plan in others if _filled(plan) <= 1.0)
    said = [f"estimated cost {_cost(best):.2g} s against {smaller}"] if smaller else []
    said += [
        f"{plan.solver} would need {size(max(plan.worker_memory, plan.driver_memory))}, which does not fit"
        for plan in others
        if _filled(plan) > 1.0
    ]
    return "; ".join(said)


def _kernel_reason(best: Plan, kernel: KernelFeatures, plans: Mapping[str, Plan]) -> str:
    if kernel.landmarks:
        moments = size(8 * (kernel.landmarks + best.task.columns) ** 2)
        return f"moments of {moments} in the span of {kernel.landmarks:,} landmarks; about {best.work:.2g} s"
    said = ", ".join(f"{name} {plan.work:.2g} s" for name, plan in plans.items())
    hint = "" if "stored" in plans or best.solver == "memory" else "; kernel_store= would keep it"
    return f"kernel of {size(best.task.data.samples**2 * kernel.itemsize)}: estimated {said}{hint}"


def _unserved(task: Task, why_not: Mapping[str, str | None]) -> str:
    """That the solver asked for cannot serve, or with "auto" that none can, and why."""
    if task.solver == "auto":
        reasons = "; ".join(f"{name}: {reason}" for name, reason in why_not.items())
        return f"no solver serves this model and these data: {reasons}"
    reason = f": {why_not[task.solver]}" if task.solver in why_not else ""
    others = [name for name, lack in why_not.items() if lack is None]
    return (
        f"solver {task.solver!r} is none for this model and these data{reason}; take {' or '.join(others)}, or 'auto'"
    )


def _refusal(task: Task, machine: Resources, wanted: Iterable[Plan], solvers: Mapping[str, Solver]) -> str:
    needs = "; ".join(f"solver {plan.solver} needs {_excess(plan)}" for plan in wanted)
    now, changes = min(map(_filled, wanted)), list[tuple[float, str]]()
    for change, other in _changes(task):
        need = min(_filled(solvers[plan.solver].plan(other, machine)) for plan in wanted)
        if need < HELPS * now:
            changes.append((need, change))
    helping = [change for _, change in sorted(changes)]  # what helps most first
    if machine.threads > 1:
        helping.append("use fewer threads per worker")
    if task.kernel is not None and not task.kernel.landmarks:
        helping.insert(0, "take landmarks=1000 for an approximation")
    helping.append("give the workers or the driver more memory")
    shape = f"{task.data.description} of {task.data.samples:,} × {task.data.features:,}"
    return f"{shape} does not fit: {needs}. Ways out: {'; '.join(helping)}."


def _excess(plan: Plan) -> str:
    """Which limit the memory of a plan breaks."""
    limit = plan.worker_limit
    if limit and plan.worker_memory > limit:
        return f"{size(plan.worker_memory)} of a worker's {size(limit)}{till_pause(plan.machine)}"
    return f"{size(plan.driver_memory)} of the driver's {size(plan.driver_limit)}"


def _changes(task: Task) -> Iterator[tuple[str, Task]]:
    """Changes that a user can make to a fit, in words, and the task that it then is."""
    data = task.data
    if data.in_memory:
        stored = replace(task, data=replace(data, in_memory=False))
        yield "write it to a store, from which workers read (dlatent ingest)", stored
    if task.specification.n_components > 1:
        yield "ask for fewer components", replace(task, specification=replace(task.specification, n_components=1))
    smaller = data.largest_block // 4
    if smaller:
        opened = f"dlatent.open_data(data, block_bytes={smaller})"
        change = f"work on smaller blocks, {opened}, of data in row chunks no larger than that (dlatent ingest)"
        yield change, replace(task, data=replace(data, largest_block=smaller, blocks=4 * data.blocks))
