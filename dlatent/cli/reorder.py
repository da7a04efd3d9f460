"""`dlatent reorder`: data and graph with samples in a graph near each other."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_direction, add_json, add_missing_chunks, add_overwrite
from dlatent.cli.places import inputs, require_free
from dlatent.cli.status import OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reorder",
        help="put samples in a graph near each other",
        description="Write data and graph with their rows in reverse Cuthill-McKee order; the graph is held in memory.",
    )
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store (dlatent ingest makes one)")
    parser.add_argument("graph", metavar="GRAPH", help="a store of edges (dlatent ingest-graph makes one), or a list")
    parser.add_argument("out_data", metavar="OUT_DATA", help="path or URL of the new store of data")
    parser.add_argument("out_graph", metavar="OUT_GRAPH", help="path or URL of the new store of edges")
    add_direction(parser)
    add_missing_chunks(parser)
    add_overwrite(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Reorder, and show how near neighbours have come."""
    both = (arguments.out_data, arguments.out_graph)
    for one, other in (both, both[::-1]):
        require_free(one, *inputs(arguments), overwrite=arguments.overwrite, beside=[other])
    from dlatent.stores.graph import reorder

    report = reorder(
        arguments.data,
        arguments.graph,
        arguments.out_data,
        arguments.out_graph,
        direction=arguments.direction,
        missing_chunks=arguments.missing_chunks,
        overwrite=arguments.overwrite,
    )
    if arguments.json:
        show.as_json(asdict(report))
        return OK
    (median_before, median_after), (before, after) = report.median_distance, report.largest_distance
    show.facts(
        f"{report.data} and {report.graph} written",
        {
            "samples": f"{report.samples:,}",
            "rows between neighbours": f"median {median_before:,.0f}, now {median_after:,.0f}",
            "at most": f"{before:,}, now {after:,}",
            "time": f"{report.seconds:.1f} s",
            "notes": "; ".join(report.notes) or None,
        },
    )
    return OK
