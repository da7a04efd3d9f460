"""What a fit by a kernel will cost: K in the driver's memory, in a store, or computed again in every pass."""

from __future__ import annotations

from dataclasses import replace

from dlatent.errors import PlanError
from dlatent.fitting.costs import (
    DECODE_RATE,
    EXPECTED_PASSES,
    FULL_EIGEN,
    GEMM_RATE,
    MIB,
    SKEWNESS,
    SPARSE_GRAM_RATE,
    STRETCHES,
    TASK_SECONDS,
    cache_room,
    driver_base,
    excess,
    group_number,
    paired_memory,
    placed,
    stays,
    subspace_bound,
    worker_memory,
)
from dlatent.fitting.plan import Cost, Machine, Plan, Problem, size
from dlatent.fitting.planner import make_plan, plan_of
from dlatent.fitting.routes.covariance import CovarianceRoute
from dlatent.fitting.subspace import extra_directions
from dlatent.linear_gaussian.moments import CHUNK_ROWS

VALUE_RATE = 0.2e9
"""Values of a kernel that a thread makes of inner products in a second (exponentials)."""
DIFFERENCE_RATE = 1.0e9
"""Absolute differences that a thread adds up in a second."""
STORE_RATE = 0.4e9
"""Bytes per second and thread of values that are stored as they are (measured with Zarr's chunks of half a MB)."""
TILES = 48 * MIB
"""A tile of the kernel and what it is made of, for one thread."""


def kernel_routes(
    problem: Problem, machine: Machine, *, kernel: str, itemsize: int, stored: bool, given: bool
) -> dict[str, Cost]:
    """The ways to products with K: "memory", "recomputed" and, where a place is given, "stored".

    Parameters: `kernel`, its name; `itemsize`, bytes of a stored value; `given`, whether the data are K.
    """
    once = problem.nbytes / STORE_RATE if given else _compute_seconds(problem, machine, kernel)
    found = {"memory": _memory_route(problem, machine, once)}
    threads = machine.workers * machine.threads
    multiplying = 2.0 * problem.samples**2 * _columns(problem) / GEMM_RATE / threads
    found["recomputed"] = _pass_route("recomputed", problem, machine, once + multiplying, pairs=not given)
    if stored:
        triangle = problem.samples**2 * itemsize / 2
        reading = triangle / STORE_RATE / threads + multiplying
        route = _pass_route("stored", problem, machine, reading, pairs=False)
        found["stored"] = replace(route, passes=1 + EXPECTED_PASSES, seconds=once + reading + route.seconds)
    return found


def _columns(problem: Problem) -> int:
    return problem.n_components + extra_directions(problem.n_components) + problem.targets


def _compute_seconds(problem: Problem, machine: Machine, kernel: str) -> float:
    """Seconds of K once, over all pairs of blocks."""
    pairs = float(problem.samples) ** 2 / 2.0
    seconds = pairs / VALUE_RATE
    if kernel == "laplacian":
        seconds = pairs * problem.features / DIFFERENCE_RATE
    elif problem.nnz is not None:
        seconds += SKEWNESS * problem.nnz**2 / problem.features / SPARSE_GRAM_RATE / 2.0
    else:
        seconds += 2.0 * pairs * problem.features / GEMM_RATE
    return seconds / (machine.workers * machine.threads) + TASK_SECONDS * min(group_number(problem), STRETCHES) ** 2


def _memory_route(problem: Problem, machine: Machine, once: float) -> Cost:
    count = problem.samples
    square = 8 * count**2
    seconds = once + 4.0 * count**2 * _columns(problem) * EXPECTED_PASSES / GEMM_RATE
    seconds += 4.0 * count**3 / GEMM_RATE if count <= FULL_EIGEN else 0.0
    # A worker holds its tiles of half of K.
    held = worker_memory(problem, machine, 0, 0) + paired_memory(problem, machine, 2)
    held += machine.threads * TILES + square // (2 * machine.workers)
    copies = 8 if count <= FULL_EIGEN else 3  # with few samples all combinations are taken at once
    return placed("memory", 2, seconds, 0, held, driver_base(problem, machine) + copies * square, machine)


def _pass_route(name: str, problem: Problem, machine: Machine, each: float, *, pairs: bool) -> Cost:
    """Products in passes that take `each` seconds beside the reading of the rows, where these meet in `pairs`."""
    thin = 8 * problem.samples * _columns(problem)
    held = worker_memory(problem, machine, thin, thin) + machine.threads * TILES + paired_memory(problem, machine)
    own = driver_base(problem, machine) + 8 * problem.samples * EXPECTED_PASSES * _columns(problem) * 4
    cache = cache_room(problem, machine, held, own, pairs=pairs)
    if pairs and not stays(problem, machine, cache, pairs=True):
        each += group_number(problem) * problem.nbytes / DECODE_RATE / (machine.workers * machine.threads)
    return placed(name, 1 + EXPECTED_PASSES, EXPECTED_PASSES * each, cache, held + cache, own, machine)


def plan_kernel(
    problem: Problem,
    machine: Machine,
    *,
    kernel: str,
    route: str = "auto",
    itemsize: int = 8,
    stored: bool = False,
    given: bool = False,
    whole: bool = False,
) -> Plan:
    """Choose where K is, the cheapest way that fits; PlanError where none fits.

    Parameters: `stored`, whether there is a place to store K; `given`, whether the data are K; `whole`, whether the
    solver needs K in memory.
    """
    routes = kernel_routes(problem, machine, kernel=kernel, itemsize=itemsize, stored=stored, given=given)
    if given:
        routes.pop("stored", None)
    if route == "stored" and "stored" not in routes:
        raise PlanError(
            "solver 'stored' needs a place for the kernel that all workers reach: kernel_store='kernel.zarr'"
        )
    if route not in ("auto", *routes):
        raise PlanError(
            f"solver {route!r} is none for this model and these data; take {' or '.join(routes)}, or 'auto'"
        )
    wanted = {route: routes[route]} if route != "auto" else dict(routes)
    if whole:
        wanted = {name: r for name, r in wanted.items() if name == "memory"}
    usable = [r for r in wanted.values() if excess(r, machine) is None]
    if not usable:
        needs = "; ".join(f"{name} needs {excess(r, machine)}" for name, r in wanted.items()) or "it needs K in memory"
        raise PlanError(
            f"the kernel of {problem.samples:,} samples does not fit: {needs}. Ways out: landmarks=1000 for an "
            "approximation; more memory for the driver or the workers; smaller row chunks of the data."
        )
    best = min(usable, key=lambda r: r.seconds)
    reason = _reason(best, routes, route, problem.samples**2 * itemsize // 2)
    cached = stays(problem, machine, best.cache_bytes, pairs=best.name == "recomputed" and not given)
    rank = subspace_bound(replace(problem, features=problem.samples), machine)
    plan = plan_of(replace(best, reads=best.passes, max_rank=rank), routes, problem, machine, reason, cached=cached)
    return replace(plan, tasks_per_pass=group_number(problem) ** 2)


def plan_landmarks(problem: Problem, machine: Machine, *, kernel: str, landmarks: int) -> Plan:
    """What a fit by landmarks costs: a look at the rows, and one pass for the moments of their coordinates."""
    width = landmarks + problem.targets
    inside = replace(
        problem,
        features=landmarks,
        decoding=problem.decoding + 32 * CHUNK_ROWS * landmarks,  # tiles of the kernel, beside the block
        itemsize=8,
        nnz=None,
        description=f"{landmarks:,} landmarks of the {problem.description}",
    )
    plan = make_plan(inside, machine, routes=(CovarianceRoute(),))
    seconds = _compute_seconds(replace(problem, samples=landmarks), machine, kernel)
    seconds *= problem.samples / landmarks
    said = f"landmarks; about {seconds:.2g} s for the kernel, {size(8 * width**2)} of moments"
    return replace(plan, reason=said, passes=3, bytes_total=0 if problem.in_memory else 3 * problem.nbytes)


def _reason(best: Cost, routes: dict[str, Cost], asked: str, triangle: int) -> str:
    costs = ", ".join(f"{name} {r.seconds:.2g} s" for name, r in routes.items())
    hint = "" if "stored" in routes or best.name == "memory" else "; kernel_store= would keep it"
    chosen = "asked for; " if asked != "auto" else ""
    return f"{chosen}kernel of {size(2 * triangle)}: estimated {costs}{hint}"
