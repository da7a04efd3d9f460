"""Models as the commands name them, and the data, labels, edges and correspondences that they take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlatent.cli.arguments import (
    MODELS,
    UsageError,
    add_cluster,
    add_json,
    add_model,
    hyperparameters,
    opened,
)
from dlatent.errors import DataError, cause

if TYPE_CHECKING:
    from dlatent import PPCA
    from dlatent.arrays import Graph


def add_models(
    parser: argparse.ArgumentParser,
    components: Callable[[str], Any] | None = None,
    *,
    views: bool = True,
    cluster: Callable[[argparse.ArgumentParser], None] = add_cluster,
) -> dict[str, argparse.ArgumentParser]:
    """One parser for each model (or those of one table of samples), with its options; `components` reads numbers of
    components, where they are several, and `cluster` adds the options of where to compute."""
    kinds = parser.add_subparsers(metavar="MODEL", required=True, dest="model")
    made = {}
    for kind, model in MODELS.items():
        if model.views and not views:
            continue
        words = model.words
        made[kind] = kinds.add_parser(kind, help=words, description=f"{words[0].upper()}{words[1:]}.")
        add_model(made[kind], model, components)
        cluster(made[kind])
        add_json(made[kind])
    return made


def model_of(arguments: argparse.Namespace) -> PPCA:
    """The estimator, not fitted."""
    made: PPCA = MODELS[arguments.model].load()(**hyperparameters(arguments))
    return made


def data_of(arguments: argparse.Namespace) -> Any:
    """The data of the model: a path or an open store, or one for each view by its name.

    Errors: UsageError for one view, or two with one name.
    """
    if not MODELS[arguments.model].views:
        return opened(arguments.data, arguments.missing_chunks)
    views = dict(arguments.data)
    if len(views) < max(2, len(arguments.data)):
        raise UsageError("give at least two views, NAME=DATA each, with names of their own")
    return opened(views, arguments.missing_chunks)


def graph_of(arguments: argparse.Namespace) -> Graph:
    """The edges between the rows of the data."""
    from dlatent.stores.graph import open_graph
    from dlatent.stores.open import open as open_source

    data = open_source(arguments.data, missing_chunks=arguments.missing_chunks)
    return open_graph(
        arguments.graph,
        samples=data.shape[0],
        ids=data.labels.samples,
        direction=arguments.direction,
        missing_chunks=arguments.missing_chunks,
        origin=data.labels.origin,
    )


def precision_of(arguments: argparse.Namespace) -> Graph:
    """The precision between the rows of the data.

    Errors: UsageError for a direction.
    """
    from dlatent.stores.graph import open_precision
    from dlatent.stores.open import open as open_source

    if arguments.direction is not None:
        raise UsageError("--direction belongs to --graph; a precision is symmetric already")
    data = open_source(arguments.data, missing_chunks=arguments.missing_chunks)
    return open_precision(
        arguments.precision,
        samples=data.shape[0],
        missing_chunks=arguments.missing_chunks,
        origin=data.labels.origin,
    )


def inputs_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the model takes beside the data, by the names of `fit` and `plan`: labels `y`, and `graph` or `precision`,
    which are open, so that the two need not read them twice; `correspondence` or `on`."""
    taken, found = MODELS[arguments.model], dict[str, Any]()
    if taken.labels:
        from dlatent.cli.labels import labels_of

        found["y"] = _view_labels(arguments) if taken.views else labels_of(arguments)
    if taken.precision and arguments.precision is not None:
        found["precision"] = precision_of(arguments)
    elif taken.graph:
        found["graph"] = graph_of(arguments)
    if taken.views:
        found["on"] = arguments.on
        found["correspondence"] = None if arguments.on else _rows_of(arguments.correspondence)
    return found


def _view_labels(arguments: argparse.Namespace) -> dict[str, Any]:
    """Labels of the rows of one view, by its name.

    Errors: UsageError for a name that is none of the views.
    """
    from dlatent.cli.labels import labels_of

    (name, labels), views = arguments.labels, dict(arguments.data)
    if name not in views:
        raise UsageError(f"--labels names the view {name!r}; there are {', '.join(views)}")
    of_view = {"data": views[name], "labels": labels}
    return {name: labels_of(argparse.Namespace(**{**vars(arguments), **of_view}))}


def _rows_of(path: str) -> Any:
    """The table of rows that correspond: a data frame with the names of the views, or an array."""
    from dlatent.stores.byte_source import ByteSource, open_raw

    try:
        if path.endswith(".npy"):
            import numpy as np

            with open_raw(path) as file:
                return np.load(file, allow_pickle=False)
        if path.endswith((".csv", ".tsv")):
            from dlatent.stores.table_files import csv_frames, csv_names

            source = ByteSource(path)
            return next(csv_frames(source, names=csv_names(source)))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a correspondence: {error}") from cause(error)
    raise DataError(f"{path} is no .csv, .tsv or .npy file; correspondences are read from these")
