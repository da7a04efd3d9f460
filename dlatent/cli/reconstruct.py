"""`dlatent reconstruct`: another view of the rows of a store by a saved model of several views, into another store."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import (
    MODELS,
    add_cluster,
    add_json,
    add_missing_chunks,
    add_model_size,
    add_overwrite,
    opened,
)
from dlatent.cli.cluster import connected
from dlatent.cli.places import require_free
from dlatent.cli.status import OK
from dlatent.errors import DataError


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reconstruct",
        help="another view of the rows of a store by a saved model",
        description="Write the mean of one view given another for all rows to a Zarr store.",
    )
    parser.add_argument("model", metavar="MODEL", help="a store that dlatent fit correspondence wrote")
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store with the rows of one view")
    parser.add_argument("--from", required=True, metavar="NAME", dest="from_view", help="the view that DATA is")
    parser.add_argument("--to", required=True, metavar="NAME", dest="to_view", help="the view that is wanted")
    parser.add_argument("-o", "--output", required=True, metavar="OTHER.zarr", help="where to write the rows")
    add_missing_chunks(parser)
    add_cluster(parser)
    add_overwrite(parser)
    add_model_size(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Reconstruct, and say where the rows are."""
    require_free(arguments.output, overwrite=arguments.overwrite)
    from dlatent import load

    model, started = load(arguments.model, max_bytes=arguments.max_model_size), perf_counter()
    if not any(known.views for known in MODELS.values() if known.name == type(model).__name__):
        raise DataError(
            f"{arguments.model} holds a {type(model).__name__}, which has no views to reconstruct; fit correspondence "
            "for that"
        )
    data = opened(arguments.data, arguments.missing_chunks)
    with connected(arguments) as client:
        model.reconstruct(
            data, arguments.from_view, arguments.to_view, out=arguments.output,
            overwrite=arguments.overwrite, client=client,
        )  # fmt: skip
    show.written(arguments.output, "reconstructed", perf_counter() - started, json=arguments.json)
    return OK
