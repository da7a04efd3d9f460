"""`dlatent reorder`: data and graph with linked instances near each other."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_direction, add_json, add_missing_chunks, add_overwrite
from dlatent.cli.places import require_free
from dlatent.cli.status import OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reorder",
        help="put linked instances near each other",
        description="Write data and graph with their rows in reverse Cuthill-McKee order; the graph is held in memory.",
    )
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store (dlatent ingest makes one)")
    parser.add_argument("links", metavar="LINKS", help="a store of links (dlatent ingest-links makes one), or a list")
    parser.add_argument("out_data", metavar="OUT_DATA", help="path or URL of the new store of data")
    parser.add_argument("out_links", metavar="OUT_LINKS", help="path or URL of the new store of links")
    add_direction(parser)
    add_missing_chunks(parser)
    add_overwrite(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Reorder, and show how near linked instances have come."""
    for destination in (arguments.out_data, arguments.out_links):
        require_free(destination, overwrite=arguments.overwrite)
    from dlatent.stores.links import reorder

    report = reorder(
        arguments.data,
        arguments.links,
        arguments.out_data,
        arguments.out_links,
        direction=arguments.direction,
        missing_chunks=arguments.missing_chunks,
        overwrite=arguments.overwrite,
    )
    if arguments.json:
        show.as_json(asdict(report))
        return OK
    (median_before, median_after), (before, after) = report.median_distance, report.largest_distance
    show.facts(
        f"{report.data} and {report.links} written",
        {
            "instances": f"{report.instances:,}",
            "rows between linked instances": f"median {median_before:,.0f}, now {median_after:,.0f}",
            "at most": f"{before:,}, now {after:,}",
            "time": f"{report.seconds:.1f} s",
            "notes": "; ".join(report.notes) or None,
        },
    )
    return OK
