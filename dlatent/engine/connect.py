"""Choose the engine for a data source: the cluster at hand, or the threads of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlatent.arrays import DataSource, Links
from dlatent.engine.base import OnPass, OnProgress, PassEngine
from dlatent.engine.on_dask import DaskEngine
from dlatent.engine.serial import SerialEngine
from dlatent.engine.targets import Targets
from dlatent.errors import DataError

if TYPE_CHECKING:
    from distributed import Client


def connect(
    source: DataSource,
    *,
    targets: Targets = None,
    client: Client | str | None = None,
    cache_bytes: int | None = None,
    links: Links | None = None,
    on_pass: OnPass | None = None,
    on_progress: OnProgress | None = None,
) -> PassEngine:
    """An engine over a data source.

    Parameters
    ----------
    source : the blocks of the data.
    targets : the rows that blocks carry: an (N, L) array, a picklable `rows(start, stop)`, or None.
    client : a `distributed.Client`; None takes the active one, or the threads of this process where there is none;
        "serial" is the reference for-loop.
    cache_bytes : cap of the blocks kept between passes, per worker process; None means 40 % of a worker's memory.
    links : the graph between the instances, for passes over links.
    on_pass, on_progress : called with each `PassRecord`, and with (groups done, groups in all) during a pass.
    """
    hooks: dict[str, Any] = {"on_pass": on_pass, "on_progress": on_progress}
    if links is not None and links.instances != source.shape[0]:
        raise DataError(
            f"the {links.description} joins {links.instances} instances, but the {source.description} has "
            f"{source.shape[0]}; give the links of exactly these instances"
        )
    if client == "serial":
        return SerialEngine(source, targets=targets, cache_bytes=cache_bytes, links=links, **hooks)
    if isinstance(client, str):
        raise ValueError(f'client must be a distributed.Client, "serial" or None; got {client!r}.')
    return DaskEngine(source, targets=targets, client=client, cache_bytes=cache_bytes, links=links, **hooks)
