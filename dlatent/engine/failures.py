"""How a cluster fails, in the words of this library; and waiting that ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar

import dask
from dask.utils import parse_timedelta
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError

from dlatent.errors import EngineError

T = TypeVar("T")

ATTEMPTS = 3
"""How often a pass is begun when its workers are lost."""
POLL_SECONDS = 5.0
"""How often a waiting pass looks whether any worker is left and works."""
WAIT = "dlatent.wait-for-workers"
"""The key of Dask's configuration that says how long a pass waits for a worker to come (back), or for paused workers to
work again: a time, such as "2 hours", or None, which waits as long as the scheduler lives."""
WAIT_DEFAULT = "10 minutes"
PATIENCE = "60 seconds"
"""Time to wait for paused workers, where the user has not set it."""
LOOK_SECONDS = 1.0
"""How often it looks meanwhile."""
STILL_SECONDS = 15.0
"""How long nothing runs, though workers are free, before a waiting pass begins anew."""
SILENT_SECONDS = 30.0
"""How long nobody hears of a worker before a waiting pass says so."""
LOST = (ClosedClientError, CommClosedError, FutureCancelledError, FuturesCancelledError, NoValidWorkerError)
"""Errors of a client whose scheduler, or the connection to it, ended."""
WHY_LOST = (
    "most often they ran out of memory, or what decodes a damaged chunk ended them (`dlatent verify` says whether one "
    "is). Give workers more memory or fewer threads, or store the data"
)
"""Why workers die in the same place, and what to do; how the data are to be stored follows."""
LOG = logging.getLogger("dlatent.engine")


def threads_of(client: Any) -> dict[str, int]:
    """Address and number of threads of every worker; waits for the first as long as `WAIT` says.

    A task waits for it, too: a cluster that grows with its work would not grow for a client that only looks.

    Errors: EngineError where none comes, or where the scheduler is gone.
    """
    threads = _threads(client)
    if threads:
        return threads
    limit, started, probe = _patience(WAIT_DEFAULT), monotonic(), None
    LOG.warning("The cluster %s has no worker: waiting %s", _address(client), _bounded(limit))
    while limit is None or monotonic() - started < limit:
        if probe is None or probe.done():  # by a worker that went again
            probe = client.submit(int, pure=False)
        with suppress(TimeoutError):
            probe.exception(timeout=LOOK_SECONDS if limit is None else min(LOOK_SECONDS, limit))
        threads = _threads(client)
        if threads:
            return threads
    raise EngineError(
        f"The cluster {_address(client)} has had no worker for {limit:g} s. Start workers (`dask worker ADDRESS`), "
        f"look in their logs why they ended, or wait longer for those that are to come (`--wait`, or {WAIT!r} in "
        "Dask's configuration); then run again."
    )


def _bounded(limit: float | None) -> str:
    """How long a pass waits, and who says so."""
    return f"{'till then' if limit is None else f'for at most {limit:.0f} s'} (see {WAIT} in Dask's configuration)"


def _patience(default: str) -> float | None:
    """How many seconds to wait for a worker; None: as long as it takes."""
    asked = dask.config.get(WAIT, default)
    try:
        return None if asked is None else float(parse_timedelta(asked))
    except (ValueError, TypeError, KeyError) as error:
        raise EngineError(
            f"{WAIT!r} in Dask's configuration is {asked!r}; give a time such as '2 hours', or None to wait for ever."
        ) from error


def _threads(client: Any) -> dict[str, int]:
    if client.status != "running":
        raise _lost(client, f"its client is {client.status}")
    try:
        return dict(client.nthreads())
    except (OSError, RuntimeError) as error:  # the second of a client that is being closed
        raise _lost(client, type(error).__name__) from error


def workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """Address of every worker, and what the scheduler knows of it."""
    workers: dict[str, dict[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


class Silence:
    """Workers of which the scheduler has heard nothing for long: stopped, swapping, or out of reach.  What they do
    begins anew elsewhere when the scheduler gives them up."""

    def __init__(self) -> None:
        self._heard = dict[str, tuple[Any, float]]()

    def tell(self, workers: dict[str, dict[str, Any]]) -> None:
        """Log each of them once; by how long their last sign of life is the same, as clocks of machines differ."""
        for address, info in workers.items():
            seen, since = self._heard.get(address, (None, 0.0))
            if seen != info["last_seen"]:
                self._heard[address] = (info["last_seen"], monotonic())
            elif monotonic() - since >= SILENT_SECONDS:
                self._heard[address] = (seen, inf)
                limit = dask.config.get("distributed.scheduler.worker-ttl", None)
                LOG.warning(
                    f"Waiting for the worker {address}, of which nobody has heard for {monotonic() - since:.0f} s; the "
                    f"scheduler gives it up after its distributed.scheduler.worker-ttl (here {limit}), and its work "
                    "begins anew elsewhere"
                )


class Stillness:
    """For how long nothing has run or moved on any worker, while results are wanted that are not there.

    Tasks are kept for ever where the scheduler found no worker for them at one moment (theirs was lost, the others were
    paused), as it gives them to no other when that may work again.
    """

    def __init__(self) -> None:
        self._seen: Any = None
        self._since = 0.0
        self._heard = dict[str, Any]()

    def seconds(self, client: Any, keys: Sequence[Any], workers: dict[str, dict[str, Any]]) -> float:
        """So long, by what scheduler and workers say now of the tasks; 0 where one of them has not said it since."""
        if _running(client, workers):
            self._seen = None
            return 0.0
        states, assigned = client.sync(client.scheduler.get_task_status, keys=keys), client.processing()
        # A task that the scheduler does not know is on its way there, and a result that it has on its way here.
        in_transit = None in states.values() or not set(states.values()) - {"memory", "erred"}
        if in_transit or self._seen != (states, assigned):
            self._seen, self._since = (states, assigned), monotonic()
            self._heard = {address: info["last_seen"] for address, info in workers.items()}
        busy = (address for address, tasks in assigned.items() if tasks and address in workers)
        if any(workers[address]["last_seen"] == self._heard.get(address) for address in busy):
            return 0.0
        return monotonic() - self._since


def _running(client: Any, workers: dict[str, dict[str, Any]]) -> bool:
    """Whether a task, or what it needs, is under way on any worker, by what workers report of themselves, of which Dask
    promises nothing; without that, whether tasks wait on workers that are not paused."""
    counts = [info["metrics"].get("task_counts") for info in workers.values()]
    if None not in counts:
        return any(count.get("executing") or count.get("flight") for count in counts)
    waiting = client.processing()
    return any(waiting.get(address) for address, info in workers.items() if info["status"] != "paused")


def paused_of(workers: dict[str, dict[str, Any]]) -> str:
    """How many workers are paused, most often as their memory is nearly full, and one of them; empty without any.

    A paused worker begins no task before it has memory again, which may be never: then a pass would wait for ever.
    """
    paused = {address: info for address, info in workers.items() if info["status"] == "paused"}
    if not paused:
        return ""
    address, info = next(iter(paused.items()))
    limit = f" of {info['memory_limit'] / 2**30:.2f}" if info["memory_limit"] else ""
    used = f"{info['metrics']['memory'] / 2**30:.2f}{limit} GiB"
    return f"{len(paused)} of {len(workers)} workers, such as {address}, which holds {used}"


def _arrivals(client: Any, calls: Sequence[Callable[[], Awaitable[Any]]]) -> Iterator[dict[int, Any]]:
    """Yield results of asynchronous calls of a client, by their numbers, as they come; and nothing where for
    `POLL_SECONDS` nothing has come.

    Where the caller ends early, what has not come ends when he gives the futures up: its parts, if it is cancelled,
    complain of that to asyncio.
    """

    async def begun() -> dict[asyncio.Future[Any], int]:
        started: dict[asyncio.Future[Any], int]
        started = {asyncio.ensure_future(call()): number for number, call in enumerate(calls)}
        for each in started:  # asked how it has failed, as asyncio reports what nobody hears of
            each.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        return started

    async def over() -> set[asyncio.Future[Any]]:
        return (await asyncio.wait(left, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]

    left: dict[asyncio.Future[Any], int] = client.sync(begun)
    while left:
        yield {left.pop(each): each.result() for each in client.sync(over)}


def attended(client: Any, call: Callable[[], Any]) -> Any:
    """Return the result of an asynchronous call of a client to all workers; warn of those that do not answer."""
    silence, arrived = Silence(), dict[int, Any]()
    for arrived in _arrivals(client, [call]):
        if not arrived:
            silence.tell(workers_of(client))
    return arrived[0]


class Stranded(Exception):
    """A pass waits for workers that are gone, in words.

    The scheduler keeps tasks whose workers were all gone at one moment for those workers, who never return: a worker
    that was restarted has another address.
    """


def results_of(
    client: Any,
    futures: Sequence[Any],
    homes: Iterable[str],
    came: Sequence[Callable[[], None]],
    hold: Callable[[Any], Any] | None = None,
    *,
    singly: bool = False,
) -> list[Any]:
    """The results of futures; an error instead of waiting for ever when the last worker is gone, or nothing moves.

    Results come together, when there are all, as each time is a few messages; or, where they are large, `singly` while
    others are made.  Then its function of `came` is called, and what `hold` makes of a result is held in its place; it
    is called by the thread of the client, and the worker may then give the result up.
    Errors: Stranded where none of the `homes` is left, but other workers are, and where nothing has run for a while
    though workers are free; EngineError where for as long as `WAIT` says (a minute) all workers are paused.
    """

    async def got(some: list[Any]) -> list[Any]:
        results: list[Any] = await client.gather(some, asynchronous=True)
        if hold is None:
            return results
        for future in some:
            future.release()
        return list(map(hold, results))

    together = [[future] for future in futures] if singly else [list(futures)]
    results, told, silence, stillness = dict[int, list[Any]](), False, Silence(), Stillness()
    for arrived in _arrivals(client, [lambda some=some: got(some) for some in together]):  # type: ignore[misc]
        results |= arrived
        for number in arrived:
            for tell in came[number : number + 1] if singly else came:
                tell()
        if arrived:
            continue
        if homes and not threads_of(client).keys() & set(homes):
            raise Stranded("All workers were lost")
        workers = workers_of(client)
        silence.tell(workers)
        left = [future.key for number, some in enumerate(together) if number not in results for future in some]
        told = _bear(client, workers, stillness.seconds(client, left, workers), told)
    return [result for number in range(len(together)) for result in results[number]]


def _bear(client: Any, workers: dict[str, dict[str, Any]], still: float, told: bool) -> bool:
    """Bear with workers that are all paused, and say so once, for as long as the user says; not with those that are
    free while nothing is done."""
    if any(info["status"] == "running" for info in workers.values()):
        if still >= STILL_SECONDS:
            message = "its scheduler keeps tasks for a worker that was lost or is paused; the pass begins anew"
            moved = "Nothing has run on the cluster %s for %.0f s, though it has free workers: %s"
            LOG.warning(moved, _address(client), still, message)
            raise Stranded("Workers were lost, and the others were given nothing to do,")
        return told
    limit, paused = _patience(PATIENCE), paused_of(workers)
    if not paused or not still:
        return told
    if not told:
        message = "The cluster %s stands still, as workers are paused for want of memory (%s): waiting %s"
        LOG.warning(message, _address(client), paused, _bounded(limit))
    if limit is not None and still >= limit:
        raise EngineError(
            f"The cluster {_address(client)} has stood still for {limit:.0f} s, as workers are paused for want of "
            f"memory: {paused}. Free what else lies there (`client.restart()` frees all of it), or give workers more "
            "memory; then fit again."
        )
    return True


def persistently(attempt: Callable[[], T], blamed: Callable[[], str]) -> T:
    """Try again where an attempt is stranded.

    Errors: EngineError after the third time, with what is `blamed`, rows or nothing: most often, workers then run out
    of memory in the same place.
    """
    why = ""
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except Stranded as error:
            why = str(error)
    where = blamed()
    raise EngineError(
        f"{why} {ATTEMPTS} times in the same pass{where and f', each with work on {where}'}; "
        f"{WHY_LOST} in smaller row blocks."
    )


def deaths(client: Any, names: Sequence[Any]) -> list[set[int]]:
    """For each worker that died, which of the tasks of these names it had at that moment, by their numbers.

    The error of Dask names any task that waited on the workers that died; the one that ended them was on each.
    """
    numbers = {name: number for number, name in enumerate(names)}
    with suppress(Exception):  # how it ended is known without the log of the scheduler, too
        gone = (event for _, event in client.get_events("all") if event.get("action") == "remove-worker")
        tasks = [{numbers[key] for key in event["processing-tasks"] if key in numbers} for event in gone]
        return [had for had in tasks if had]
    return []


@contextmanager
def translated(client: Any, blamed: Callable[[], str] = str) -> Iterator[None]:
    """Turn the ways in which a cluster fails into an `EngineError` with advice, and with the rows that are `blamed`;
    other exceptions pass."""
    try:
        yield
    except KilledWorker as error:
        raise EngineError(
            f"Workers died again and again on {blamed() or 'the same group of blocks'}; {WHY_LOST} in smaller row "
            f"blocks, or lower `cache_bytes`. The cluster said: {error}"
        ) from error
    except LOST as error:
        raise _lost(client, type(error).__name__) from error


def _lost(client: Any, reason: str) -> EngineError:
    return EngineError(
        f"The cluster {_address(client)} lost the computation ({reason}): its scheduler or the connection to it ended, "
        "and with it all intermediate state. Start a cluster, connect a new client and fit again; a fit with a "
        "checkpoint goes on behind its last pass."
    )


def _address(client: Any) -> str:
    scheduler = client.scheduler
    return "(closed)" if scheduler is None else str(scheduler.address)
