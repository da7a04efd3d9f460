"""`dlatent rechunk`: a store in chunks of another size."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_json, add_missing_chunks, add_overwrite, add_quiet, byte_count
from dlatent.cli.places import require_free
from dlatent.cli.progress import IngestProgress, Screen
from dlatent.cli.status import OK
from dlatent.errors import number_of


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rechunk",
        help="write a store anew in chunks of another size",
        description="Write a Zarr store anew, with all that is in it, in chunks of whole rows and in bounded memory.",
    )
    parser.add_argument("source", metavar="SOURCE", help="path or URL of a Zarr store, or of a group or array in one")
    parser.add_argument("destination", metavar="DEST", help="path or URL of the new store")
    parser.add_argument(
        "--chunk-size", type=byte_count, default="8MiB", metavar="SIZE", help="largest chunk, unpacked (8MiB)"
    )
    parser.add_argument(
        "--shard-size", type=byte_count, metavar="SIZE", help="largest shard, an object of many chunks (default: none)"
    )
    parser.add_argument(
        "--memory", type=byte_count, default="1GiB", metavar="SIZE", help="memory for rows on their way (1GiB)"
    )
    add_missing_chunks(parser)
    add_quiet(parser)
    add_overwrite(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the store, and show what it is like."""
    require_free(arguments.destination, arguments.source, overwrite=arguments.overwrite)
    from dlatent.stores.rechunk import rechunk

    with Screen(quiet=arguments.quiet) as screen:
        report = rechunk(
            arguments.source,
            arguments.destination,
            chunk_bytes=arguments.chunk_size,
            shard_bytes=arguments.shard_size,
            memory_bytes=arguments.memory,
            missing_chunks=arguments.missing_chunks,
            overwrite=arguments.overwrite,
            progress=IngestProgress(screen),
        )
    if arguments.json:
        show.as_json(asdict(report))
        return OK
    size = None if report.bytes_written is None else f"{report.bytes_written / 1e6:,.1f} MB"
    again = f"each chunk up to {number_of(report.reads, 'time')}; more --memory lets it be fewer"
    show.facts(
        f"{report.destination} written",
        {
            "arrays": f"{report.arrays:,}, {report.largest} the largest",
            "its chunks": f"{_shape(report.chunks_before)}, now {_shape(report.chunks)}",
            "its shards": None if report.shards is None else _shape(report.shards),
            "read": f"{report.bytes_read / 1e6:,.1f} MB in {report.seconds:.1f} s",
            "written": size,
            "notes": again if report.reads > 1 else None,
        },
    )
    return OK


def _shape(sizes: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)
