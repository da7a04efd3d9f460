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
from dlatent.cli.arguments import Parser, add, add_parameters, parameters_from
from dlatent.cli.inputs import EDGES, STORE, read_by, require_free, told_how_to_go_on
from dlatent.stores.checkpoint import checkpoint_location


class Command(NamedTuple):
    """A command for the public function of its name: `title` is said of its report, `written` names what it writes, and
    `options` are those of `add_parameters`."""

    title: str
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
    resume = checkpoint_location(arguments.destination) if getattr(arguments, "resume", False) else None
    how = resume and f"{arguments.destination}.checkpoint has what was read: the same command goes on"
    places = [getattr(arguments, name) for name in command.written]
    for number, place in enumerate(places):
        extra = places[:number] + places[number + 1 :]
        require_free(place, *read_by(arguments), overwrite=arguments.overwrite, resume=resume, extra=extra)
    options = {name: _one_or_many(name, value) for name, value in parameters_from(arguments, function).items()}
    with show.Screen(quiet=getattr(arguments, "quiet", True)) as screen, told_how_to_go_on(how):
        if hasattr(arguments, "quiet"):
            options["progress"] = show.IngestProgress(screen)
        report = function(**options)
    fields, intact = asdict(report), getattr(report, "intact", True)
    title = command.title.format(**fields, state="whole" if intact else "DAMAGED")
    show.result(title, fields | ({"intact": intact} if hasattr(report, "intact") else {}), json=arguments.json)
    return OK if intact else BAD_DATA


def _one_or_many(name: str, value: Any) -> Any:
    """One of what may be several as itself, a number of features as a number."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
        return int(value) if name == "features" and value.isdecimal() else value
    return value


COMMANDS = {
    "ingest": Command(
        "{destination} written", ("destination",), {"named": {"weighting": "tfidf", "block_bytes": "block-size"}}
    ),
    "ingest-graph": Command(
        "{destination} written",
        ("out",),
        {
            "texts": {
                "source": "a list of edges (.csv .tsv .parquet .npz), or a Zarr store",
                "data": "the store whose rows are the nodes: their number and labels",
                "precision": "SOURCE is a precision matrix between the rows (.npz of scipy.sparse, or a Zarr store)",
            },
            "without": ("ids", "weights"),
            "exclusive": ("data", "samples"),
        },
    ),
    "rechunk": Command(
        "{destination} written",
        ("destination",),
        {"named": {"chunk_bytes": "chunk-size", "shard_bytes": "shard-size", "memory_bytes": "memory"}},
    ),
    "reorder": Command(
        "{data} and {graph} written",
        ("out_data", "out_graph"),
        {
            "texts": {"data": STORE, "graph": f"edges between the rows, held in memory: {EDGES}"},
            "without": ("method",),
        },
    ),
    "verify": Command("{place} ({kind}) is {state}"),
}
