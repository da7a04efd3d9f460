"""`dlatent predict`: labels of all rows by a saved model, as a table."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from dlatent.cli.arguments import add_cluster, add_missing_chunks, add_model_size, add_overwrite, add_quiet
from dlatent.cli.cluster import connected
from dlatent.cli.places import inputs, require_new, written
from dlatent.cli.status import OK
from dlatent.errors import DataError


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "predict",
        help="labels of all rows of a store by a saved model, as CSV",
        description="Write a line for each row: its name or number, and the label, the numbers, or the component of a "
        "mixture that the model predicts.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a store that dlatent fit wrote, of a model with labels or a mixture"
    )
    parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store with the features of the model")
    parser.add_argument("-o", "--output", metavar="FILE.csv", help="where to write (default: standard output)")
    parser.add_argument("--view", metavar="NAME", help="which view of the model DATA is, where it has several")
    parser.add_argument(
        "--scores",
        action="store_true",
        help="also the probability of each class, the score of each label, or the part of each component",
    )
    parser.add_argument("--variance", action="store_true", help="also the variance of each predicted output")
    add_missing_chunks(parser)
    add_cluster(parser)
    add_overwrite(parser)
    add_model_size(parser)
    add_quiet(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Predict, and write the table."""
    require_new(arguments.output, arguments.model, *inputs(arguments), overwrite=arguments.overwrite)
    from dlatent import load, show_progress
    from dlatent.stores.open import open as open_source

    show_progress(False if arguments.quiet else "auto")
    model = load(arguments.model, max_bytes=arguments.max_model_size)
    if not hasattr(model, "predict"):
        raise DataError(
            f"{arguments.model} holds a {type(model).__name__}, which predicts no labels; fit supervised, or mixture"
        )
    data = open_source(arguments.data, missing_chunks=arguments.missing_chunks)
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
