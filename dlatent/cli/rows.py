"""`dlatent transform | impute | reconstruct`: rows of results for the rows of a store, by a saved model, into another
store."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import (
    add_cluster,
    add_graph,
    add_json,
    add_labels,
    add_missing_chunks,
    add_model_size,
    add_overwrite,
    add_quiet,
    opened,
)
from dlatent.cli.cluster import connected
from dlatent.cli.places import inputs, require_free, told_how_to_go_on
from dlatent.cli.status import OK
from dlatent.errors import DataError

Make = Callable[[argparse.Namespace, Any, Any, dict[str, Any]], str]
"""Writes the rows by a model of some data, with options; returns the name of the array."""


def register(commands: Any) -> None:
    """Add the commands."""
    parser = _command(
        commands,
        "transform",
        "scores of all rows of a store by a saved model",
        "Write the posterior means of the latent variables of all rows to a Zarr store.",
        _transform,
    )
    parser.add_argument("--view", metavar="NAME", help="which view of the model DATA is, where it has several")
    add_labels(parser, "default: from the features alone")
    add_graph(parser, required=False)
    parser = _command(
        commands,
        "impute",
        "fill the missing entries of a store by a saved model",
        "Write the rows with each NaN replaced by its mean given the observed entries of its row.",
        _impute,
    )
    parser.add_argument("--variance", action="store_true", help="write the variances of the missing entries instead")
    add_graph(parser, required=False)
    parser = _command(
        commands,
        "reconstruct",
        "another view of the rows of a store by a saved model of several views",
        "Write the mean of one view given another for all rows to a Zarr store.",
        _reconstruct,
    )
    parser.add_argument("--from", required=True, metavar="NAME", dest="from_view", help="the view that DATA is")
    parser.add_argument("--to", required=True, metavar="NAME", dest="to_view", help="the view that is wanted")


def _command(commands: Any, name: str, help: str, description: str, make: Make) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    parser.add_argument("model", metavar="MODEL", help="a store that dlatent fit wrote")
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store with the features of the model")
    parser.add_argument("-o", "--output", required=True, metavar="ROWS.zarr", help="where to write the rows")
    add_missing_chunks(parser)
    add_cluster(parser)
    add_overwrite(parser)
    parser.add_argument(
        "--resume", action="store_true", help="keep what an interrupted command has written, and go on from there"
    )
    add_model_size(parser)
    add_quiet(parser)
    add_json(parser)
    parser.set_defaults(run=run, make=make)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Write the rows, and say where they are."""
    read = (arguments.model, *inputs(arguments))
    from dlatent.stores.checkpoint import checkpoint_beside

    resume = checkpoint_beside(arguments.output) if arguments.resume else None
    require_free(arguments.output, *read, overwrite=arguments.overwrite, resume=resume)
    from dlatent import load, show_progress

    show_progress(False if arguments.quiet else "auto")
    model, started = load(arguments.model, max_bytes=arguments.max_model_size), perf_counter()
    data = opened(arguments.data, arguments.missing_chunks)
    way_on = f"{arguments.output}.checkpoint knows the rows so far: the same command goes on"
    with connected(arguments) as client, told_how_to_go_on(way_on if arguments.resume else None):
        options = {name: getattr(arguments, name) for name in ("overwrite", "resume")}
        options |= {"out": arguments.output, "client": client}
        array = arguments.make(arguments, model, data, options)
    show.written(arguments.output, array, model._n_features_out, perf_counter() - started, json=arguments.json)
    return OK


def _transform(arguments: argparse.Namespace, model: Any, data: Any, options: dict[str, Any]) -> str:
    names = getattr(model, "view_names_", None)
    if names is None and arguments.view is not None:
        raise DataError(f"{_kind(arguments, model)}, which has no views; omit --view")
    if names is not None and arguments.view not in names:
        raise DataError(
            f"{arguments.model} has the views {', '.join(names)}; say with --view which of them {arguments.data} is"
        )
    if arguments.labels is not None:
        if not hasattr(model, "target_components_"):
            raise DataError(f"{_kind(arguments, model)}, which has no labels; omit --labels")
        from dlatent.cli.labels import labels_of

        options["y"] = labels_of(arguments)
    options |= _edges(arguments, model)
    model.transform(data if names is None else {arguments.view: data}, **options)
    return "scores"


def _edges(arguments: argparse.Namespace, model: Any) -> dict[str, Any]:
    if arguments.graph is None:
        return {}
    if not hasattr(model, "smoothing_"):
        raise DataError(f"{_kind(arguments, model)}, whose scores need no graph; omit --graph")
    from dlatent.cli.models import graph_of

    return {"graph": graph_of(arguments)}


def _impute(arguments: argparse.Namespace, model: Any, data: Any, options: dict[str, Any]) -> str:
    if not hasattr(model, "impute"):
        raise DataError(f"{_kind(arguments, model)}, which cannot fill in rows; fit PPCA for that")
    if getattr(model, "missing", None) == "raise":
        model.set_params(missing="nan")
    if arguments.variance:
        if arguments.graph is not None:
            raise DataError("variances are those given the rows alone; omit --graph, or --variance")
        model.impute_variance(data, **options)
        return "imputed_variance"
    model.impute(data, **options, **_edges(arguments, model))
    return "imputed"


def _reconstruct(arguments: argparse.Namespace, model: Any, data: Any, options: dict[str, Any]) -> str:
    if not hasattr(model, "view_names_") or not hasattr(model, "log_likelihood_"):
        raise DataError(f"{_kind(arguments, model)}, which has no views to reconstruct; fit correspondence for that")
    model.reconstruct(data, arguments.from_view, arguments.to_view, **options)
    return "reconstructed"


def _kind(arguments: argparse.Namespace, model: Any) -> str:
    return f"{arguments.model} holds a {type(model).__name__}"
