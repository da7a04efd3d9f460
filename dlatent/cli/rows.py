"""`dlatent transform | impute | reconstruct | predict`: what a saved model says of all rows of a store, into another
store, or as a table."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, TextIO

from dlatent.cli import show
from dlatent.cli.arguments import add
from dlatent.cli.cluster import add_cluster, connected
from dlatent.cli.inputs import add_graph, add_labels, edges_of, labels_of, opened, read_by
from dlatent.cli.places import require_free, require_new, told_how_to_go_on, written
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
    _register_predict(commands)


def _command(commands: Any, name: str, help: str, description: str, make: Make) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    _add_shared(parser)
    parser.add_argument("-o", "--output", required=True, metavar="ROWS.zarr", help="where to write the rows")
    parser.add_argument(
        "--resume", action="store_true", help="keep what an interrupted command has written, and go on from there"
    )
    add(parser, "json")
    parser.set_defaults(run=run, make=make)
    return parser


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a store that dlatent fit wrote")
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store with the features of the model")
    add(parser, "missing-chunks", "overwrite", "max-model-size", "quiet")
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the rows, and say where they are."""
    read = (arguments.model, *read_by(arguments))
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
    components, seconds = model._n_features_out, perf_counter() - started
    if arguments.json:
        show.as_json({"output": arguments.output, "array": array, "components": components, "seconds": seconds})
    else:
        words = {"array": f"{array}, {components} components", "seconds": f"{seconds:.1f}"}
        show.facts(f"{arguments.output} written", words)
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
        options["y"] = labels_of(arguments)
    options |= _edges(arguments, model)
    model.transform(data if names is None else {arguments.view: data}, **options)
    return "scores"


def _edges(arguments: argparse.Namespace, model: Any) -> dict[str, Any]:
    if arguments.graph is not None and not hasattr(model, "smoothing_"):
        raise DataError(f"{_kind(arguments, model)}, whose scores need no graph; omit --graph")
    return edges_of(arguments)


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


def _register_predict(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="labels of all rows of a store by a saved model, as CSV",
        description="Write a line for each row: its name or number, and the label, the numbers, or the component of a "
        "mixture that the model predicts.",
    )
    _add_shared(parser)
    parser.add_argument("-o", "--output", metavar="FILE.csv", help="where to write (default: standard output)")
    parser.add_argument("--view", metavar="NAME", help="which view of the model DATA is, where it has several")
    parser.add_argument(
        "--scores",
        action="store_true",
        help="also the probability of each class, the score of each label, or the part of each component",
    )
    parser.add_argument("--variance", action="store_true", help="also the variance of each predicted output")
    parser.set_defaults(run=predict)


def predict(arguments: argparse.Namespace) -> int:
    """Predict, and write the table."""
    require_new(arguments.output, arguments.model, *read_by(arguments), overwrite=arguments.overwrite)
    from dlatent import load, show_progress
    from dlatent.stores.open import open_data

    show_progress(False if arguments.quiet else "auto")
    model = load(arguments.model, max_bytes=arguments.max_model_size)
    if not hasattr(model, "predict"):
        raise DataError(
            f"{arguments.model} holds a {type(model).__name__}, which predicts no labels; fit supervised, or mixture"
        )
    data = open_data(arguments.data, missing_chunks=arguments.missing_chunks)
    names = data.labels.samples
    with connected(arguments) as client:
        columns = _columns(arguments, model, data, client)
    count = len(next(iter(columns.values())))
    rows = zip(range(count) if names is None else names.tolist(), *(c.tolist() for c in columns.values()), strict=True)
    if arguments.output is None:
        _write(sys.stdout, ["row", *columns], rows)
    else:
        with written(arguments.output) as aside, aside.open("w", newline="", encoding="utf-8") as stream:
            _write(stream, ["row", *columns], rows)
    return OK


def _columns(arguments: argparse.Namespace, model: Any, data: Any, client: Any) -> dict[str, Any]:
    """What is predicted, by the names of the columns."""
    import numpy as np

    views = getattr(model, "view_names_", None)
    if (views is None) != (arguments.view is None) or (views is not None and arguments.view not in views):
        has = (
            "no views; omit --view" if views is None else f"the views {', '.join(views)}; say with --view which DATA is"
        )
        raise DataError(f"{arguments.model} has {has}")
    given = data if views is None else {arguments.view: data}
    if hasattr(model, "n_mixtures"):
        if arguments.variance:
            raise DataError(f"{arguments.model} predicts components, which have no variance; omit --variance")
        columns = {"component": model.predict(given, client=client)}
        parts = model.predict_proba(given, client=client) if arguments.scores else np.empty((0, 0))
        return columns | {f"part_{c}": parts[:, c] for c in range(parts.shape[1])}
    found = model.predict(given, return_variance=arguments.variance, client=client)
    values, variance = found if arguments.variance else (found, None)
    outputs = [str(name) for name in model.result_["target"].values.tolist()]
    if hasattr(model, "classes_"):
        columns = {"label": values}
    else:
        each = np.asarray(values).reshape(len(values), -1)
        columns = {f"output_{name}": column for name, column in zip(outputs, each.T, strict=True)}
    if arguments.scores:
        kind, score = ("probability", model.predict_proba) if "label" in columns else ("score", model.decision_function)
        scores = np.asarray(score(given, client=client))
        columns |= {f"{kind}_{name}": column for name, column in zip(outputs, scores.T, strict=True)}
    if variance is not None:
        each = np.broadcast_to(variance, (len(values), len(outputs)))
        columns |= {f"variance_{name}": column for name, column in zip(outputs, each.T, strict=True)}
    return columns


def _write(stream: TextIO, header: list[str], rows: Iterable[tuple[Any, ...]]) -> None:
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
