"""How a cluster fails, in the words of this library; and waiting that ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import dask
from dask.utils import parse_timedelta
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError

from dlatent.engine.watch import Silence, Stillness, paused_of
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
"""The same for paused workers, where the user has not said it."""
LOOK_SECONDS = 1.0
"""How often it looks meanwhile."""
STILL_SECONDS = 15.0
"""How long nothing runs, though workers are free, before a waiting pass begins anew."""
LOST = (ClosedClientError, CommClosedError, FutureCancelledError, FuturesCancelledError, NoValidWorkerError)
"""What a client raises where its scheduler, or the connection to it, ended."""
WHY_LOST = (
    "most often they ran out of memory, or what decodes a damaged chunk ended them (`dlatent verify` says whether one "
    "is). Give workers more memory or fewer threads, or store the data"
)
"""Why workers die in the same place, and what to do; how the data are to be stored follows."""
LOG = logging.getLogger("dlatent.engine")


def threads_of(client: Any) -> dict[str, int]:
    """Address and number of threads of every worker; waits for the first as long as `WAIT` says.

    Errors: EngineError where none comes, or where the scheduler is gone.
    """
    return _threads(client) or _awaited(client)


def _awaited(client: Any) -> dict[str, int]:
    """The same when the first worker has come.  A task waits for it, too: a cluster that grows with its work would not
    grow for a client that only looks."""
    limit, started = _patience(WAIT_DEFAULT), monotonic()
    LOG.warning("The cluster %s has no worker: waiting %s", _address(client), _bounded(limit))
    probe = _probe(client)
    try:
        while limit is None or monotonic() - started < limit:
            with suppress(TimeoutError):
                probe.exception(timeout=LOOK_SECONDS if limit is None else min(LOOK_SECONDS, limit))
            threads = _threads(client)
            if threads:
                return threads
            if probe.done():  # by a worker that went again
                probe.release()
                probe = _probe(client)
    finally:
        probe.release()
    raise EngineError(
        f"The cluster {_address(client)} has had no worker for {limit:g} s. Start workers (`dask worker ADDRESS`), "
        f"look in their logs why they ended, or wait longer for those that are to come (`--wait`, or {WAIT!r} in "
        "Dask's configuration); then run again."
    )


def _probe(client: Any) -> Any:
    """The future of a task that does nothing."""
    return client.submit(int, key=f"wait-for-workers-{uuid4().hex}")


def _bounded(limit: float | None) -> str:
    """How long a pass waits, and who says so."""
    return f"{'till then' if limit is None else f'for at most {limit:.0f} s'} (see {WAIT} in Dask's configuration)"


def _patience(default: str) -> float | None:
    """How many seconds to wait for a worker; None: as long as it takes."""
    given = dask.config.get(WAIT, default)
    try:
        return None if given is None else float(parse_timedelta(given))
    except (ValueError, TypeError, KeyError) as error:
        raise EngineError(
            f"{WAIT!r} in Dask's configuration is {given!r}; give a time such as '2 hours', or None to wait for ever."
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


def attended(client: Any, call: Callable[[], Any]) -> Any:
    """What an asynchronous call of a client gives, which waits for all workers; of those that say nothing is told."""

    async def begun() -> asyncio.Future[Any]:
        started: asyncio.Future[Any] = asyncio.ensure_future(call())
        return started

    async def over() -> bool:
        return bool((await asyncio.wait([asked], timeout=POLL_SECONDS))[0])

    asked: asyncio.Future[Any] = client.sync(begun)
    silence = Silence()
    while not client.sync(over):
        silence.tell(workers_of(client))
    return asked.result()


class Stranded(Exception):
    """A pass waits for workers that are gone, in words.

    The scheduler keeps tasks whose workers were all gone at one moment for those workers, who never return: a worker
    that was restarted has another address.
    """


def results_of(
    client: Any,
    futures: Sequence[Any],
    homes: Iterable[str] = (),
    came: Callable[[int], None] | None = None,
    hold: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """The results of futures; an error instead of waiting for ever when the last worker is gone, or nothing moves.

    Results come together, when there are all, as each time is a few messages; or, where they are large, one by one
    while others are made: then `came` is told the number of each, and what `hold` makes of it is held in its place; it
    is called by the thread of the client, and the worker may then give the result up.
    Errors: Stranded where none of the `homes` is left, but other workers are, and where nothing has run for a while
    though workers are free; EngineError where for as long as `WAIT` says (a minute) all workers are paused.
    """

    async def got(wanted: Any) -> Any:
        result = await client.gather(wanted, asynchronous=True)
        if hold is None:
            return result
        wanted.release()
        return hold(result)

    async def begun() -> list[asyncio.Future[Any]]:
        wanted = [futures] if came is None else futures
        started: list[asyncio.Future[Any]] = [asyncio.ensure_future(got(each)) for each in wanted]
        for each in started:
            each.add_done_callback(_heard)
        return started

    async def over() -> set[asyncio.Future[Any]]:
        left = gathering - done
        return (await asyncio.wait(left, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]

    gatherings: list[asyncio.Future[Any]] = client.sync(begun)
    gathering, done = set(gatherings), set[asyncio.Future[Any]]()
    number = {each: at for at, each in enumerate(gatherings)}
    told, silence, stillness = False, Silence(), Stillness()
    # Where this ends early, what has not come ends when the caller gives the futures up: its parts, if it is cancelled,
    # complain of that to asyncio.
    while done != gathering:
        new = client.sync(over)
        done |= new
        for each in new:
            each.result()
            if came is not None:
                came(number[each])
        if new:
            continue
        threads = threads_of(client)
        if homes and not threads.keys() & set(homes):
            raise Stranded("All workers were lost")
        workers = workers_of(client)
        silence.tell(workers)
        left = futures if came is None else [futures[number[each]] for each in gathering - done]
        still = stillness.seconds(client, [future.key for future in left], workers)
        if any(info["status"] == "running" for info in workers.values()):
            _require_moving(client, still)
        elif still:
            told = _bear(client, paused_of(workers), still, told)
    found = [each.result() for each in gatherings]
    return found[0] if came is None else found


def _require_moving(client: Any, still: float) -> None:
    """Give up a pass that nothing has been done for, though workers are free."""
    if still >= STILL_SECONDS:
        LOG.warning(
            "Nothing has run on the cluster %s for %.0f s, though it has free workers: its scheduler keeps tasks for a "
            "worker that was lost or is paused; the pass begins anew",
            _address(client),
            still,
        )
        raise Stranded("Workers were lost, and the others were given nothing to do,")


def _bear(client: Any, paused: str, still: float, told: bool) -> bool:
    """Bear with workers that are all paused, and say so once; for as long as the user says."""
    limit = _patience(PATIENCE)
    if paused and not told:
        LOG.warning(
            "The cluster %s stands still, as workers are paused for want of memory (%s): waiting %s",
            _address(client),
            paused,
            _bounded(limit),
        )
    if paused and limit is not None and still >= limit:
        raise EngineError(
            f"The cluster {_address(client)} has stood still for {limit:.0f} s, as workers are paused for want of "
            f"memory: {paused}. Free what else lies there (`client.restart()` frees all of it), or give workers more "
            "memory; then fit again."
        )
    return told or bool(paused)


def _heard(gathering: asyncio.Future[Any]) -> BaseException | None:
    """How waiting for results has failed; asked for, as asyncio reports what nobody hears of."""
    return None if gathering.cancelled() else gathering.exception()


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
