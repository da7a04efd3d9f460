"""The commands that write or read a store by one function of the library, whose parameters are their options: `dlatent
ingest | ingest-graph | rechunk | reorder | verify`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from inspect import getdoc
from typing import Any, NamedTuple

import dlatent
from dlatent.cli import BAD_DATA, OK, show
from dlatent.cli.arguments import Parser, add, add_parameters, given
from dlatent.cli.inputs import EDGES, STORE, read_by, require_free, told_how_to_go_on
from dlatent.errors import number_of
from dlatent.stores.checkpoint import checkpoint_beside

Words = tuple[str, dict[str, object]]


class Command(NamedTuple):
    """A command for the public function of its name: `told` makes words of its report, `written` names what it writes,
    and `options` are those of `add_parameters`."""

    told: Callable[[Any], Words]
    written: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}


def fill(parser: Parser, name: str) -> None:
    """Add the options of a command."""
    function, command = getattr(dlatent, name.replace("-", "_")), COMMANDS[name]
    parser.description = str(getdoc(function)).partition("\n")[0].replace("`", "")
    add_parameters(parser, function, **command.options)
    add(parser, "json")
    parser.set_defaults(run=partial(run, function, command))


def run(function: Callable[..., Any], command: Command, arguments: argparse.Namespace) -> int:
    """Call the function with what is given, and show its report."""
    resume = checkpoint_beside(arguments.destination) if getattr(arguments, "resume", False) else None
    how = resume and f"{arguments.destination}.checkpoint has what was read: the same command goes on"
    places = [getattr(arguments, name) for name in command.written]
    for number, place in enumerate(places):
        beside = places[:number] + places[number + 1 :]
        require_free(place, *read_by(arguments), overwrite=arguments.overwrite, resume=resume, beside=beside)
    options = {name: _one_or_many(name, value) for name, value in given(arguments, function).items()}
    with show.Screen(quiet=getattr(arguments, "quiet", True)) as screen, told_how_to_go_on(how):
        if hasattr(arguments, "quiet"):
            options["progress"] = show.IngestProgress(screen)
        report = function(**options)
    found = asdict(report) | ({"whole": report.whole} if hasattr(report, "whole") else {})
    if arguments.json:
        show.as_json(found)
    else:
        show.facts(*command.told(report))
    return OK if found.get("whole", True) else BAD_DATA


def _one_or_many(name: str, value: Any) -> Any:
    """One of what may be several as itself, a number of features as a number."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
        return int(value) if name == "features" and value.isdecimal() else value
    return value


def _ingested(report: Any) -> Words:
    rows, columns = report.shape
    return f"{report.destination} written", {
        "rows × features": f"{rows:,} × {columns:,}",
        "values": f"{report.nnz:,} stored, {report.dtype}, {'sparse' if report.sparse else 'dense'}",
        "labels": report.labels,
        "rows dropped": report.rows_dropped or None,
        "read": f"{report.bytes_read / 1e6:,.1f} MB in {report.seconds:.1f} s",
        "written": None if report.bytes_written is None else f"{report.bytes_written / 1e6:,.1f} MB",
        "notes": "; ".join(report.notes) or None,
    }


def _graph(report: Any) -> Words:
    written = (
        None if report.bytes_written is None else f"{report.bytes_written / 1e6:,.1f} MB in {report.seconds:.1f} s"
    )
    return f"{report.destination} written", {
        "samples": f"{report.samples:,}",
        "edges": f"{report.edges:,}, {'weighted' if report.weighted else 'unweighted'}",
        "degree": f"median {report.median_degree:g}, largest {report.largest_degree:,}",
        "isolated": f"{report.isolated:,}",
        "self-loops dropped": f"{report.self_loops_dropped:,}",
        "duplicates merged": f"{report.duplicates_merged:,}",
        "zeros dropped": f"{report.zeros_dropped:,}" if report.zeros_dropped else None,
        "written": written,
        "notes": "; ".join(report.notes) or None,
    }


def _rechunked(report: Any) -> Words:
    before, now, shards = (
        None if sizes is None else " × ".join(f"{size:,}" for size in sizes)
        for sizes in (report.chunks_before, report.chunks, report.shards)
    )
    again = f"each chunk up to {number_of(report.reads, 'time')}; more --memory lets it be fewer"
    return f"{report.destination} written", {
        "arrays": f"{report.arrays:,}, {report.largest} the largest",
        "its chunks": f"{before}, now {now}",
        "its shards": shards,
        "read": f"{report.bytes_read / 1e6:,.1f} MB in {report.seconds:.1f} s",
        "written": None if report.bytes_written is None else f"{report.bytes_written / 1e6:,.1f} MB",
        "notes": again if report.reads > 1 else None,
    }


def _reordered(report: Any) -> Words:
    (median_before, median_after), (before, after) = report.median_distance, report.largest_distance
    return f"{report.data} and {report.graph} written", {
        "samples": f"{report.samples:,}",
        "rows between neighbours": f"median {median_before:,.0f}, now {median_after:,.0f}",
        "at most": f"{before:,}, now {after:,}",
        "time": f"{report.seconds:.1f} s",
        "notes": "; ".join(report.notes) or None,
    }


def _verified(report: Any) -> Words:
    what = "results" if report.kind == "checkpoint" else "arrays"
    return f"{report.place} ({report.kind}) is {'whole' if report.whole else 'DAMAGED'}", {
        "read": f"{report.arrays} {what}, {report.nbytes / 1e6:,.1f} MB",
        **{f"damage {number}": text for number, text in enumerate(report.damages, 1)},
    }


COMMANDS = {
    "ingest": Command(_ingested, ("destination",), {"named": {"weighting": "tfidf", "block_bytes": "block-size"}}),
    "ingest-graph": Command(
        _graph,
        ("out",),
        {
            "words": {
                "source": "a list of edges (.csv .tsv .parquet .npz), or a Zarr store",
                "data": "the store whose rows are the nodes: their number and labels",
                "precision": "SOURCE is a precision matrix between the rows (.npz of scipy.sparse, or a Zarr store)",
            },
            "without": ("ids", "weights"),
            "exclusive": ("data", "samples"),
        },
    ),
    "rechunk": Command(
        _rechunked,
        ("destination",),
        {"named": {"chunk_bytes": "chunk-size", "shard_bytes": "shard-size", "memory_bytes": "memory"}},
    ),
    "reorder": Command(
        _reordered,
        ("out_data", "out_graph"),
        {
            "words": {"data": STORE, "graph": f"edges between the rows, held in memory: {EDGES}"},
            "without": ("method",),
        },
    ),
    "verify": Command(_verified),
}
