"""`dlatent transform`: the latent variables of all rows of a store, by a saved model, into another store."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import (
    add_cluster,
    add_json,
    add_labels,
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
        "transform",
        help="scores of all rows of a store by a saved model",
        description="Write the posterior means of the latent variables of all rows to a Zarr store.",
    )
    parser.add_argument("model", metavar="MODEL", help="a store that dlatent fit wrote")
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store with the features of the model")
    parser.add_argument("-o", "--output", required=True, metavar="SCORES.zarr", help="where to write the scores")
    parser.add_argument("--view", metavar="NAME", help="which view of the model DATA is, where it has several")
    add_labels(parser, "default: from the features alone")
    add_missing_chunks(parser)
    add_cluster(parser)
    add_overwrite(parser)
    add_model_size(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def view_of(model: Any, view: str | None, path: str, data: str) -> Any:
    """The data by the name of its view, for a model that has several; else the data themselves.

    Errors: DataError for a name that the model does not have, or none where it needs one.
    """
    names = getattr(model, "view_names_", None)
    if names is None:
        if view is not None:
            raise DataError(f"{path} holds a {type(model).__name__}, which has no views; omit --view")
        return data
    if view not in names:
        raise DataError(f"{path} has the views {', '.join(names)}; say with --view which of them {data} is")
    return {view: data}


def run(arguments: argparse.Namespace) -> int:
    """Transform, and say where the scores are."""
    require_free(arguments.output, overwrite=arguments.overwrite)
    from dlatent import load

    model, started = load(arguments.model, max_bytes=arguments.max_model_size), perf_counter()
    options: dict[str, Any] = {"out": arguments.output, "overwrite": arguments.overwrite}
    if arguments.labels is not None:
        if not hasattr(model, "target_components_"):
            raise DataError(f"{arguments.model} holds a {type(model).__name__}, which has no labels; omit --labels")
        from dlatent.cli.labels import labels_of

        options["y"] = labels_of(arguments)
    named = view_of(model, arguments.view, arguments.model, arguments.data)
    data = opened(named, arguments.missing_chunks)
    with connected(arguments) as client:
        model.transform(data, client=client, **options)
    found = {
        "scores": arguments.output,
        "array": "scores",
        "components": model.n_components,
        "seconds": perf_counter() - started,
    }
    if arguments.json:
        show.as_json(found)
    else:
        show.facts(
            f"{arguments.output} written",
            {"array": f"scores, {found['components']} components", "seconds": f"{found['seconds']:.1f}"},
        )
    return OK
