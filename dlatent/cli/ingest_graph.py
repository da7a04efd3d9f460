"""`dlatent ingest-graph`: a graph between samples, or a precision, into a Zarr store."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_direction, add_json, add_missing_chunks, add_overwrite, positive
from dlatent.cli.places import inputs, require_free
from dlatent.cli.status import OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "ingest-graph",
        help="bring a graph between samples into a Zarr store",
        description="Write a graph of any size as a symmetric adjacency matrix, or a precision, checked once, in "
        "bounded memory.",
    )
    parser.add_argument("source", metavar="SOURCE", help="a list of edges (.csv .tsv .parquet .npz), or a Zarr store")
    parser.add_argument("destination", metavar="DEST", help="path or URL of the new store")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--data", metavar="DATA", help="the store whose rows are the nodes: their number and labels")
    whose.add_argument("--samples", type=positive, metavar="N", help="the number of rows; edges name them from 0")
    add_direction(parser)
    parser.add_argument(
        "--precision",
        action="store_true",
        help="SOURCE is a precision matrix between the rows (.npz of scipy.sparse, or a Zarr store)",
    )
    add_missing_chunks(parser)
    parser.add_argument(
        "--most-pairs",
        type=positive,
        metavar="N",
        help="refuse common neighbours that would visit more pairs (1000000000)",
    )
    add_overwrite(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ingest, and show the report."""
    read = (arguments.source, *inputs(arguments))
    require_free(arguments.destination, *read, overwrite=arguments.overwrite)
    from dlatent.stores.graph import ingest_graph

    limit = {} if arguments.most_pairs is None else {"most_pairs": arguments.most_pairs}
    report = ingest_graph(
        arguments.source,
        arguments.destination,
        samples=arguments.samples,
        data=arguments.data,
        direction=arguments.direction,
        missing_chunks=arguments.missing_chunks,
        precision=arguments.precision,
        overwrite=arguments.overwrite,
        **limit,
    )
    if arguments.json:
        show.as_json(asdict(report))
        return OK
    show.facts(
        f"{report.destination} written",
        {
            "samples": f"{report.samples:,}",
            "edges": f"{report.edges:,}, {'weighted' if report.weighted else 'unweighted'}",
            "degree": f"median {report.median_degree:g}, largest {report.largest_degree:,}",
            "isolated": f"{report.isolated:,}",
            "self-loops dropped": f"{report.self_loops_dropped:,}",
            "duplicates merged": f"{report.duplicates_merged:,}",
            "zeros dropped": f"{report.zeros_dropped:,}" if report.zeros_dropped else None,
            "written": None
            if report.bytes_written is None
            else f"{report.bytes_written / 1e6:,.1f} MB in {report.seconds:.1f} s",
            "notes": "; ".join(report.notes) or None,
        },
    )
    return OK
