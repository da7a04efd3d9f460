"""`dlatent transform | impute | reconstruct | predict`: what a saved model says of all rows of a store, into another
store, or as a table."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from functools import partial
from inspect import signature
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from dlatent import load, show_progress
from dlatent.cli import OK, show
from dlatent.cli.arguments import Options, Parser, add, add_options, flag
from dlatent.cli.cluster import add_cluster, connected
from dlatent.cli.inputs import (
    add_beside,
    add_graph,
    add_labels,
    beside_of,
    edges_of,
    labels_of,
    opened,
    read_by,
    require_free,
    require_new,
    told_how_to_go_on,
    written,
)
from dlatent.errors import DataError
from dlatent.stores.checkpoint import checkpoint_location

LACKING = {
    "impute": "cannot fill in rows; fit PPCA for that",
    "reconstruct": "has no views to reconstruct; fit correspondence for that",
    "predict": "predicts no labels; fit supervised, or mixture",
}
"""Message for a model without the method of the command's name."""


OUTPUT: Options = {
    "-o --output": {"required": True, "metavar": "ROWS.zarr", "help": "where to write the rows"},
    "--resume": flag("keep what an interrupted command has written, and go on from there"),
}
VIEW: Options = {"--view": {"metavar": "NAME", "help": "which view of the model DATA is, where it has several"}}
COMMAND_OPTIONS: dict[str, Options] = {
    "transform": {**OUTPUT, **VIEW},
    "impute": {**OUTPUT, "--variance": flag("write the variances of the missing entries instead")},
    "reconstruct": {
        **OUTPUT,
        "--from": {"required": True, "metavar": "NAME", "dest": "from_view", "help": "the view that DATA is"},
        "--to": {"required": True, "metavar": "NAME", "dest": "to_view", "help": "the view that is wanted"},
    },
    "predict": {
        "-o --output": {"metavar": "FILE.csv", "help": "where to write (default: standard output)"},
        **VIEW,
        "--scores": flag("also the probability of each class, the score of each label, or the part of each component"),
        "--variance": flag("also the variance of each predicted output"),
    },
}
"""Options of each command."""


def fill(parser: Parser, command: str) -> None:
    """Add the options of a command."""
    parser.add_argument("model", metavar="MODEL", help="a store that dlatent fit wrote")
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store with the features of the model")
    add(parser, "missing-chunks", "overwrite", "max-model-size", "quiet")
    add_cluster(parser)
    add_options(parser, COMMAND_OPTIONS[command])
    if command != "predict":
        add(parser, "json")
    if command == "transform":
        add_labels(parser, "default: from the features alone")
    if command in ("transform", "impute"):
        add_graph(parser, required=False)
        add_beside(parser)
    parser.set_defaults(run=predict if command == "predict" else partial(run, command))


def run(command: str, arguments: argparse.Namespace) -> int:
    """Write the rows, and say where they are."""
    resume = checkpoint_location(arguments.output) if arguments.resume else None
    require_free(arguments.output, *read_by(arguments), overwrite=arguments.overwrite, resume=resume)
    model, started = _model(command, arguments), perf_counter()
    hint = f"{arguments.output}.checkpoint knows the rows so far: the same command goes on"
    with connected(arguments) as client, told_how_to_go_on(hint if arguments.resume else None):
        options = {"out": arguments.output, "overwrite": arguments.overwrite, "resume": arguments.resume}
        array = _write_rows(command, arguments, model, options | {"client": client})
    report = {"output": arguments.output, "array": array, "components": model._n_features_out}
    show.result(f"{arguments.output} written", report | {"seconds": perf_counter() - started}, json=arguments.json)
    return OK


def _model(command: str, arguments: argparse.Namespace) -> Any:
    """The saved model. Errors: DataError where it has no method for the command, or none that takes an option."""
    show_progress(False if arguments.quiet else "auto")
    model = load(arguments.model, max_bytes=arguments.max_model_size)
    kind, views = f"{arguments.model} holds a {type(model).__name__}", getattr(model, "view_names_", None)
    method = getattr(model, command, None)
    if method is None:
        raise DataError(f"{kind}, which {LACKING[command]}")
    if command == "impute" and views is not None:
        raise DataError(f"{kind}, whose views are filled in together: use its impute in Python")
    for option, takes, why in (
        ("view", views is not None, "which has no views"),
        ("labels", hasattr(model, "target_components_"), "which has no labels"),
        ("graph", "graph" in signature(method).parameters, "whose scores need no graph"),
    ):
        if getattr(arguments, option, None) is not None and not takes:
            raise DataError(f"{kind}, {why}; omit --{option}")
    if views is not None and getattr(arguments, "view", views[0]) not in views:
        names = ", ".join(views)
        raise DataError(f"{arguments.model} has the views {names}; say with --view which of them {arguments.data} is")
    return model


def _known(model: Any) -> Any:
    """The labels of the features that a model was fitted to, where it keeps them."""
    labels = getattr(model._model, "labels", None)
    return None if labels is None else labels.known


def _write_rows(command: str, arguments: argparse.Namespace, model: Any, options: dict[str, Any]) -> str:
    """Write the rows, and name their array."""
    data = opened(arguments, _known(model))
    if command == "reconstruct":
        model.reconstruct(data, arguments.from_view, arguments.to_view, **options)
        return "reconstructed"
    options |= beside_of(arguments)
    if getattr(arguments, "labels", None) is not None:
        options["y"] = labels_of(arguments, arguments.data, arguments.labels, data)
    if command == "transform":
        view = arguments.view
        model.transform(data if view is None else {view: data}, **options, **edges_of(arguments, data))
        return "scores"
    if getattr(model, "missing", None) == "raise":
        model.set_params(missing="nan")
    if not arguments.variance:
        model.impute(data, **options, **edges_of(arguments, data))
        return "imputed"
    if arguments.graph is not None:
        raise DataError("variances are those given the rows alone; omit --graph, or --variance")
    model.impute_variance(data, **options)
    return "imputed_variance"


def predict(arguments: argparse.Namespace) -> int:
    """Predict, and write the table."""
    if arguments.output is not None:
        require_new(arguments.output, *read_by(arguments), overwrite=arguments.overwrite)
    model = _model("predict", arguments)
    data = opened(arguments, _known(model))
    names = data.labels.samples
    with connected(arguments) as client:
        columns = _columns(arguments, model, data, client)
    table = pd.DataFrame(columns)
    table.insert(0, "row", table.index if names is None else names)
    with nullcontext(sys.stdout) if arguments.output is None else written(arguments.output) as place:
        table.to_csv(place, index=False, na_rep="nan", lineterminator="\n", compression=None)
    return OK


def _columns(arguments: argparse.Namespace, model: Any, source: Any, client: Any) -> dict[str, Any]:
    """The predictions by the names of their columns."""
    data = source if arguments.view is None else {arguments.view: source}
    if hasattr(model, "n_mixtures"):
        if arguments.variance:
            raise DataError(f"{arguments.model} predicts components, which have no variance; omit --variance")
        columns = {"component": model.predict(data, client=client)}
        parts = model.predict_proba(data, client=client) if arguments.scores else np.empty((0, 0))
        return columns | {f"part_{c}": parts[:, c] for c in range(parts.shape[1])}
    predicted = model.predict(data, return_variance=arguments.variance, client=client)
    values, variance = predicted if arguments.variance else (predicted, None)
    outputs = [str(name) for name in model.result_["target"].values.tolist()]

    def named(kind: str, rows: Any) -> dict[str, Any]:
        each = np.broadcast_to(np.reshape(rows, (-1, len(outputs))), (len(values), len(outputs)))
        return {f"{kind}_{name}": column for name, column in zip(outputs, each.T, strict=True)}

    labels = hasattr(model, "classes_")
    columns = {"label": values} if labels else named("output", values)
    if arguments.scores:
        several = hasattr(model, "predict_proba")
        kind, score = ("probability", model.predict_proba) if several else ("score", model.decision_function)
        columns |= named(kind, score(data, client=client))
    return columns if variance is None else columns | named("variance", variance)
