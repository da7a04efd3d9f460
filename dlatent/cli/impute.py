"""`dlatent impute`: the missing entries of a store by a saved model, into another store."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_cluster, add_json, add_missing_chunks, add_model_size, add_overwrite, opened
from dlatent.cli.cluster import connected
from dlatent.cli.places import require_free
from dlatent.cli.status import OK
from dlatent.errors import DataError


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "impute",
        help="fill the missing entries of a store by a saved model",
        description="Write the rows with each NaN replaced by its mean given the observed entries of its row.",
    )
    parser.add_argument("model", metavar="MODEL", help="a store that dlatent fit wrote")
    parser.add_argument("data", metavar="DATA", help="path or URL of a dense Zarr store with the model's features")
    parser.add_argument("-o", "--output", required=True, metavar="FILLED.zarr", help="where to write the rows")
    parser.add_argument("--variance", action="store_true", help="write the variances of the missing entries instead")
    add_missing_chunks(parser)
    add_cluster(parser)
    add_overwrite(parser)
    add_model_size(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Impute, and say where the rows are."""
    require_free(arguments.output, overwrite=arguments.overwrite)
    from dlatent import load

    model, started = load(arguments.model, max_bytes=arguments.max_model_size), perf_counter()
    if not hasattr(model, "impute"):
        raise DataError(
            f"{arguments.model} holds a {type(model).__name__}, which cannot fill in rows; fit PPCA for that"
        )
    if model.missing == "raise":
        model.set_params(missing="nan")
    data = opened(arguments.data, arguments.missing_chunks)
    with connected(arguments) as client:
        fill = model.impute_variance if arguments.variance else model.impute
        fill(data, out=arguments.output, overwrite=arguments.overwrite, client=client)
    name = "imputed_variance" if arguments.variance else "imputed"
    show.written(arguments.output, name, perf_counter() - started, json=arguments.json)
    return OK
