"""`dlatent doctor`: whether a cluster and stores are fit for work, what is wrong, and how to mend it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from dlatent.cli import OK, UNFIT, show
from dlatent.cli.arguments import Parser, add
from dlatent.cli.cluster import add_cluster, connected
from dlatent.engine.doctor import READ_SECONDS, Finding, everywhere, examine
from dlatent.errors import DlatentError, masked, number_of
from dlatent.stores.atomic import require_writable
from dlatent.stores.location import zarr_location
from dlatent.stores.verify import probe

HERE = "this process"


def fill(parser: Parser, _: str) -> None:
    """Add the options of the command."""
    parser.description = (
        "Look at versions, memory, threads, environment, scratch directories and clocks of a cluster, and read a "
        "little of each store from each of its processes; say what is wrong, and how to mend it."
    )
    parser.add_argument("stores", nargs="*", metavar="STORE", help="path or URL of data that all workers will read")
    about = "place that all will write to; again for more"
    parser.add_argument("--writable", action="append", default=[], metavar="PLACE", help=about)
    add(parser, "missing-chunks", "json")
    add_cluster(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine, and show what was found."""
    writable = partial(require_writable, overwrite=True)
    workers, findings, stores = dict[str, dict[str, Any]](), list[Finding](), dict[str, dict[str, Any]]()
    with connected(arguments) as client:
        if client is not None:
            workers, findings = examine(client)
        for place in map(zarr_location, arguments.stores):
            seen = _asked(client, workers, probe, place, arguments.missing_chunks)
            stores[place] = {at: one for at, one in seen.items() if not isinstance(one, Exception)}
            findings += _failed(seen, f"read {place}")
            for at, one in stores[place].items():
                if any(one[name] != stores[place][HERE][name] for name in ("metadata", "first")):
                    what = f"sees another store at {place} than {HERE}"
                    findings.append(Finding(at, what, "mount the same store at the same path everywhere"))
        for place in map(zarr_location, arguments.writable):
            findings += _failed(_asked(client, workers, writable, place), f"write to {place}")
    wrong = any(one.wrong for one in findings)
    if arguments.json:
        told = {"fit": not wrong, "workers": workers, "stores": stores, "findings": list(map(asdict, findings))}
        show.as_json(told)
    else:
        _print(workers, stores, findings)
    return UNFIT if wrong else OK


def _asked(client: Any, workers: Mapping[str, Any], function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Results of a function here and, where it does not fail here, in each worker."""
    answers: dict[str, Any] = {HERE: _answer(None, [], function, *args)}
    if workers and not isinstance(answers[HERE], Exception):
        answers |= everywhere(client, list(workers), _answer, list(workers), function, *args, seconds=READ_SECONDS)
    return answers


def _answer(worker: Any, workers: list[str], function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function.  Errors are returned: Dask would log those of workers, with the arguments."""
    share = {}
    if worker is not None and function is probe:
        share = {
            "number": workers.index(worker.address),
            "processes": len(workers),
            "threads": worker.state.nthreads,
        }
    try:
        return function(*args, **share)
    except DlatentError as error:
        return error


def _failed(answers: Mapping[str, Any], what: str) -> list[Finding]:
    """Who could not do something."""
    failed = {at: error for at, error in answers.items() if isinstance(error, Exception)}
    late = "it took too long; look at the network and at the server"
    return [
        Finding(at, f"cannot {what}", late if isinstance(error, TimeoutError) else str(error))
        for at, error in failed.items()
    ]


def _print(workers: Mapping[str, Any], stores: Mapping[str, Mapping[str, Any]], findings: list[Finding]) -> None:
    if workers:
        threads = sum(one["threads"] for one in workers.values())
        limits = [one["memory_limit"] for one in workers.values() if one["memory_limit"]]
        memory = [f"{sum(limits) / 2**30:.1f} GiB"] if limits else []
        if endless := len(workers) - len(limits):
            memory.append("no limit" if not limits else f"no limit for {endless}")
        hosts = len({one["host"] for one in workers.values()})
        values = {"threads": f"{threads}", "memory": ", ".join(memory), "machines": f"{hosts}"}
        show.pairs(f"{number_of(len(workers), 'worker that answers', 'workers that answer')}", values)
    for place, seen in stores.items():
        readers = [one for at, one in seen.items() if at != HERE or len(seen) == 1]
        rates = {name: [one[name] / 1e6 / one["seconds"] for one in readers] for name in ("stored", "loaded")}
        if readers:
            said = {name: f"{min(rate):.0f} to {max(rate):.0f}, {sum(rate):.0f} in all" for name, rate in rates.items()}
            values = {"MB/s as stored": said["stored"], "MB/s as loaded": said["loaded"]}
            show.pairs(f"{place}: read by {len(readers)} at once", values)
    merged = dict[tuple[bool, str, str], list[str]]()
    for one in findings:
        merged.setdefault((not one.wrong, one.what, one.mend), []).append(one.where)
    for (only_slow, what, mend), where in sorted(merged.items()):
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        print(masked(f"{'note' if only_slow else 'WRONG'}: {where[0]}{more} {what}: {mend}"))
    if not any(one.wrong for one in findings):
        print("nothing is wrong")
