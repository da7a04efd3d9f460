"""What a waiting pass sees of the workers of a cluster: that one is silent, that all are paused, that nothing moves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import Any

import dask

SILENT_SECONDS = 30.0
"""How long nobody hears of a worker before a waiting pass says so."""
LOG = logging.getLogger("dlatent.engine")


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
                LOG.warning(
                    "Waiting for the worker %s, of which nobody has heard for %.0f s; the scheduler gives it up after "
                    "its distributed.scheduler.worker-ttl (here %s), and its work begins anew elsewhere",
                    address,
                    monotonic() - since,
                    dask.config.get("distributed.scheduler.worker-ttl", None),
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
        on_the_way = None in states.values() or not set(states.values()) - {"memory", "erred"}
        if on_the_way or self._seen != (states, assigned):
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
    held = f"{info['metrics']['memory'] / 2**30:.2f}{limit} GiB"
    return f"{len(paused)} of {len(workers)} workers, such as {address}, which holds {held}"
