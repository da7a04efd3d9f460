"""`dlatent verify`: read all of a store, a model or a checkpoint, to see whether it is whole."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_json, add_missing_chunks
from dlatent.cli.status import BAD_DATA, OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verify",
        help="read all of a store, to see whether it is whole",
        description="Read every chunk of data or edges, every variable of a model, every result of a checkpoint, and "
        "name what is lost or damaged; ends with status 3 where something is.",
    )
    parser.add_argument("path", metavar="PATH", help="path or URL of a Zarr store or a checkpoint")
    add_missing_chunks(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, and show what is damaged."""
    from dlatent.stores.verify import verify

    found = verify(arguments.path, missing_chunks=arguments.missing_chunks)
    if arguments.json:
        show.as_json(asdict(found) | {"whole": found.whole})
    else:
        what = "results" if found.kind == "checkpoint" else "arrays"
        words = {"read": f"{found.arrays} {what}, {found.nbytes / 1e6:,.1f} MB"}
        words |= {f"damage {number}": text for number, text in enumerate(found.damages, 1)}
        show.facts(f"{arguments.path} ({found.kind}) is {'whole' if found.whole else 'DAMAGED'}", words)
    return OK if found.whole else BAD_DATA
