"""Choosing a route by what it costs, before a byte of the data is read: the cheapest that fits.

Nothing depends on a fixed number of features, and no route is known by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlatent.errors import PlanError, number_of
from dlatent.fitting.costs import duration, edges_read, excess, stays, subspace_bound
from dlatent.fitting.plan import Cost, Machine, Plan, Problem, size
from dlatent.fitting.route import Route
from dlatent.fitting.routes import ROUTES

HELPS = 0.95
"""Part of the memory that a way out of a refusal may still need to be named."""


def chosen_route(plan: Plan) -> Route:
    """The route of a plan."""
    return next(route for route in ROUTES if route.name == plan.solver)


def make_plan(problem: Problem, machine: Machine, *, solver: str = "auto", routes: Sequence[Route] = ()) -> Plan:
    """Choose the cheapest route that fits, or the one asked for; PlanError where nothing fits, with the way out."""
    refused = {r.name: r.refuses(problem) for r in routes or ROUTES}
    costs = {r.name: r.cost(problem, machine) for r in routes or ROUTES if refused[r.name] is None}
    if solver not in ("auto", *costs):
        why = f": {refused[solver]}" if refused.get(solver) else ""
        raise PlanError(
            f"solver {solver!r} is none for this model and these data{why}; take {' or '.join(costs)}, or 'auto'"
        )
    wanted = costs if solver == "auto" else {solver: costs[solver]}
    fitting = {name: cost for name, cost in costs.items() if excess(cost, machine) is None}
    usable = [cost for name, cost in fitting.items() if name in wanted]
    if not usable:
        raise PlanError(_refusal(problem, machine, wanted, routes or ROUTES))
    best = min(usable, key=lambda cost: cost.seconds)
    cached = stays(problem, machine, best.cache_bytes, pairs=best.paired)
    passes = best.passes + problem.passes_after
    reads = best.reads + problem.passes_after if best.reads else 1 if cached else passes
    bytes_total = (0 if problem.in_memory else problem.nbytes * reads) + edges_read(problem, machine, best)
    return Plan(
        solver=best.name,
        reason=_reason(problem, best, costs, fitting, asked=solver != "auto"),
        passes=passes,
        bytes_per_pass=problem.nbytes,
        bytes_total=bytes_total,
        tasks_per_pass=best.tasks or problem.tasks,
        cached=cached,
        cache_bytes=best.cache_bytes,
        worker_memory=best.worker_memory,
        driver_memory=best.driver_memory,
        worker_limit=machine.worker_memory,
        driver_limit=machine.driver_memory,
        max_rank=best.max_rank or subspace_bound(problem, machine),
        problem=problem,
        machine=f"{machine.kind}, {number_of(machine.workers, 'worker')} × {number_of(machine.threads, 'thread')}",
        alternatives=tuple(costs.values()),
        columns_at_once=best.columns_at_once,
        column_blocks=best.column_blocks,
        neighbour_bytes=best.neighbour_bytes,
        duration=duration(best, machine, bytes_total),
    )


def _reason(
    problem: Problem, best: Cost, costs: Mapping[str, Cost], fitting: Mapping[str, Cost], *, asked: bool
) -> str:
    if problem.kernel is not None:
        return ("asked for; " if asked else "") + _kernel_reason(problem, best, costs)
    if asked:
        return "asked for"
    if len(costs) == 1:
        return "entries may be missing in any place" if problem.missing else "the only one for these data"
    others = [cost for name, cost in costs.items() if name != best.name]
    smaller = " and ".join(f"{cost.seconds:.2g} s by {cost.name}" for cost in others if cost.name in fitting)
    said = [f"estimated cost {best.seconds:.2g} s against {smaller}"] if smaller else []
    large = [cost for cost in others if cost.name not in fitting]
    said += [
        f"{cost.name} would need {size(max(cost.worker_memory, cost.driver_memory))}, which does not fit"
        for cost in large
    ]
    return "; ".join(said)


def _kernel_reason(problem: Problem, best: Cost, costs: Mapping[str, Cost]) -> str:
    if problem.landmarks:
        moments = size(8 * (problem.landmarks + problem.targets) ** 2)
        return f"moments of {moments} in the span of {problem.landmarks:,} landmarks; about {best.seconds:.2g} s"
    said = ", ".join(f"{name} {cost.seconds:.2g} s" for name, cost in costs.items())
    hint = "" if "stored" in costs or best.name == "memory" else "; kernel_store= would keep it"
    return f"kernel of {size(problem.samples**2 * problem.kernel_itemsize)}: estimated {said}{hint}"


def _refusal(problem: Problem, machine: Machine, wanted: Mapping[str, Cost], routes: Sequence[Route]) -> str:
    needs = "; ".join(f"solver {name} needs {excess(cost, machine)}" for name, cost in wanted.items())
    asked = [route for route in routes if route.name in wanted]
    now, found = _need(problem, machine, asked), list[tuple[float, str]]()
    for way, other in _changes(problem):
        need = _need(other, machine, asked)
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


def _need(problem: Problem, machine: Machine, routes: Sequence[Route]) -> float:
    """The part of its limit, of a worker or of the driver, that the route of least memory needs."""
    limits = machine.worker_memory or math.inf, machine.driver_memory or math.inf
    costs = [route.cost(problem, machine) for route in routes]
    return min(max(cost.worker_memory / limits[0], cost.driver_memory / limits[1]) for cost in costs)


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """What a user can change of a fit, in words, and the fit that it then is."""
    if problem.in_memory:
        yield "write it to a store, from which workers read (dlatent ingest)", replace(problem, in_memory=False)
    if problem.n_components > 1:
        yield "ask for fewer components", replace(problem, n_components=1)
    smaller = problem.largest_block // 4
    if smaller:
        opened = f"dlatent.stores.open.open(data, block_bytes={smaller})"
        way = f"work on smaller blocks, {opened}, of data in row chunks no larger than that (dlatent ingest)"
        yield way, replace(problem, largest_block=smaller, blocks=4 * problem.blocks)
