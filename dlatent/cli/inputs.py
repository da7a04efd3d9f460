"""Inputs and outputs of commands, as the command line names them; places for results are checked before the work."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import AxisLabels, DataSource, Graph
from dlatent.cli import UsageError
from dlatent.cli.arguments import add
from dlatent.errors import DataError, StoreError, cause
from dlatent.models.beside import Beside, given
from dlatent.models.labelled import open_input
from dlatent.stores.atomic import require_writable
from dlatent.stores.files import ByteSource, open_raw
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.label_files import read_labels
from dlatent.stores.numbers import numbers_of
from dlatent.stores.open import open_data
from dlatent.stores.places import check_outside_stores, require_apart, require_separate
from dlatent.stores.table_files import csv_frames, csv_names
from dlatent.stores.temporary import atomic_file

STORE = "path or URL of a Zarr store (dlatent ingest makes one)"
LABELS = "labels of the rows: a column of a store (data.zarr#topic), or of a .csv, .npz, .npy or .txt file; "
EDGES = "a store (dlatent ingest-graph makes one), or a list (.csv .tsv .parquet .npz)"


def add_labels(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """`--labels` and `--unlabelled`."""
    column = f"#COLUMN alone is a column of DATA ({otherwise})"
    parser.add_argument("--labels", metavar="PATH[#COLUMN]", help=LABELS + column)
    add(parser, "unlabelled")


def add_graph(parser: argparse.ArgumentParser, *, required: bool = True, precision: bool = False) -> None:
    """`--graph` and `--direction`, and where a model takes one `--precision`."""
    between = parser.add_mutually_exclusive_group(required=required)
    between.add_argument("--graph", metavar="GRAPH", help=f"edges between the rows of DATA: {EDGES}")
    if precision:
        between.add_argument(
            "--precision",
            metavar="PRECISION",
            help="the precision matrix between the rows of DATA: a store (dlatent ingest-graph --precision makes one), "
            "or a .npz of scipy.sparse",
        )
    add(parser, "direction")


def add_beside(parser: argparse.ArgumentParser) -> None:
    """What stands beside the entries of DATA."""
    store = "store with the rows of DATA: "
    parser.add_argument("--uncertainty", metavar="STORE", help=store + "the standard deviation of each entry")
    parser.add_argument("--offset", metavar="STORE", help=store + "what is added to its predictors, one column or all")
    parser.add_argument("--covariates", metavar="STORE", help=store + "numbers whose effects on the features are found")


def beside_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The places of what stands beside the entries, by the names of `fit`."""
    return given({name: getattr(arguments, name, None) for name in Beside.__annotations__})


def view(text: str) -> tuple[str, str]:
    """The name and the data of a view, from NAME=DATA."""
    name, mark, data = text.partition("=")
    if not mark or not name or not data:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=DATA, such as image=images.zarr")
    return name, data


def add_views(parser: argparse.ArgumentParser, *, labels: bool) -> None:
    """The views, which of their rows correspond, and where the model takes them the labels of one view."""
    parser.add_argument(
        "data", metavar="NAME=DATA", nargs="+", type=view, help="name of a view, and path or URL of its Zarr store"
    )
    joined = parser.add_mutually_exclusive_group(required=True)
    joined.add_argument(
        "--correspondence",
        metavar="FILE",
        help="rows that are the same sample, counted from 0: a .csv with a column for each view, nothing or -1 where "
        "a sample lacks it; or a .npy with its columns in the order of the views",
    )
    joined.add_argument("--on", metavar="LABEL", help="a column of labels that the stores share")
    if labels:
        text = "NAME is the view; NAME=#COLUMN is a column of its own store"
        parser.add_argument("--labels", required=True, type=view, metavar="NAME=PATH[#COLUMN]", help=LABELS + text)
        add(parser, "unlabelled")


def read_by(arguments: argparse.Namespace) -> list[str]:
    """The paths and URLs of what a command reads."""
    values, places = vars(arguments), list[str]()
    names = ("source", "model", "result", "data", "graph", "precision", "correspondence", "labels")
    for name in (*names, *Beside.__annotations__):
        several = values.get(name)
        for one in several if isinstance(several, list) and name != "labels" else [several]:
            place = one[1] if isinstance(one, tuple) else one
            if isinstance(place, str) and place:
                places.append(split(place)[0] if name == "labels" else place)
    return [place for place in places if place]


def opened(arguments: argparse.Namespace, known: AxisLabels | None = None) -> Any:
    """The data of a model: an open store, or one for each view by its name; `known`, the labels of a fitted model.

    Errors: UsageError for one view, or two with one name.
    """
    dim = getattr(arguments, "dim", None)
    grid = None if known is None else known.grid
    of_names = isinstance(arguments.data, str) and arguments.data.endswith(".h5ad")  # by which features are found
    if dim is not None or of_names or (grid is not None and not grid.plain):
        return open_input(arguments.data, dim=dim, known=known)
    if isinstance(arguments.data, str):
        return open_data(arguments.data, missing_chunks=arguments.missing_chunks)
    views = dict(arguments.data)
    if len(views) < max(2, len(arguments.data)):
        raise UsageError("give at least two views, NAME=DATA each, with names of their own")
    return {name: open_data(place, missing_chunks=arguments.missing_chunks) for name, place in views.items()}


def inputs_of(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The data of a model, and what else it takes by the names of `fit` and `plan`: labels `y`, `graph` or `precision`,
    `correspondence` or `on`, and what stands beside the entries.

    Errors: UsageError for labels of a view that there is not.
    """
    data = opened(arguments)
    inputs: dict[str, Any] = {**edges_of(arguments, data), **beside_of(arguments)}
    if hasattr(arguments, "on"):
        rows = None if arguments.on else _correspondence(arguments.correspondence)
        inputs |= {"on": arguments.on, "correspondence": rows}
    if isinstance(data, dict) and hasattr(arguments, "labels"):
        name, labels = arguments.labels
        if name not in data:
            raise UsageError(f"--labels names the view {name!r}; there are {', '.join(data)}")
        inputs["y"] = {name: labels_of(arguments, dict(arguments.data)[name], labels, data[name])}
    elif hasattr(arguments, "labels"):
        inputs["y"] = labels_of(arguments, arguments.data, arguments.labels, data)
    return data, inputs


def edges_of(arguments: argparse.Namespace, data: DataSource) -> dict[str, Graph]:
    """The edges between the rows of the data, or their precision, where one is given.

    Errors: UsageError for a direction of a precision.
    """
    graph, precision = getattr(arguments, "graph", None), getattr(arguments, "precision", None)
    if precision is not None and arguments.direction is not None:
        raise UsageError("--direction belongs to --graph; a precision is symmetric already")
    if graph is None and precision is None:
        return {}
    chunks: Any = {"missing_chunks": arguments.missing_chunks}
    rows = {"samples": data.shape[0], "origin": data.labels.origin, **chunks}
    if graph is None:
        return {"precision": open_precision(precision, **rows)}
    return {"graph": open_graph(graph, ids=data.labels.samples, direction=arguments.direction, **rows)}


def _correspondence(path: str) -> Any:
    """The table of rows that correspond: a data frame with the names of the views, or an array."""
    try:
        if path.endswith(".npy"):
            with open_raw(path) as file:
                return np.load(file, allow_pickle=False)
        if path.endswith((".csv", ".tsv")):
            source = ByteSource(path)
            return next(csv_frames(source, names=csv_names(source)))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a correspondence: {error}") from cause(error)
    raise DataError(f"{path} is no .csv, .tsv or .npy file; correspondences are read from these")


def labels_of(arguments: argparse.Namespace, data: str, wanted: str | None, source: DataSource) -> npt.NDArray[Any]:
    """Labels of the rows of a store, written as PATH, PATH#COLUMN or #COLUMN, without those of rows that ingest has
    dropped; of None its only column.

    Errors: DataError where labels are from elsewhere and the rows of the data were reordered.
    """
    path, column = ("", None) if wanted is None else split(wanted)
    values = read_labels(path or data, column, missing_chunks=arguments.missing_chunks)
    origin = source.labels.origin if path and path != data else None
    if origin is not None and not len(values) == source.shape[0] != origin.rows:
        if origin.rows == source.shape[0]:
            raise DataError(
                f"the rows of {data} were moved by reorder, so that it is not clear which of them the labels in "
                f"{path} belong to; ingest labels with the data, they come along and are named #COLUMN"
            )
        values = values[origin.load()] if len(values) == origin.rows else values
    return values if arguments.unlabelled is None else without(values, arguments.unlabelled)


def split(wanted: str) -> tuple[str, str | None]:
    """Path and column; a path that exists may have a # in its name."""
    path, mark, column = wanted.rpartition("#")
    if not mark or Path(wanted).exists():
        return wanted, None
    return path, column or None


def without(values: npt.NDArray[Any], unlabelled: str) -> npt.NDArray[Any]:
    """The labels with nothing (NaN of floats, else None) in place of the value for unlabelled rows.

    Errors: DataError where no row has that value, because it is then a mistake of writing.
    """
    from dlatent.fitted.target_values import with_mask  # pandas, which most commands do without

    numbers = numbers_of([unlabelled]) if values.dtype.kind in "iuf" else None
    equal = np.asarray(values.astype(str) == unlabelled if numbers is None else values == numbers[0])
    rows = equal if values.ndim == 1 else equal.all(axis=1)
    if not rows.any():
        raise DataError(f"no row has the label {unlabelled!r} that --unlabelled names; look how labels are written")
    return with_mask(values, ~rows, len(values))


def require_free(
    destination: str, *read: str, overwrite: bool, resume: str | None = None, extra: Sequence[str | None] = ()
) -> None:
    """Refuse a destination that cannot be written, is taken, or touches what is read, or the `extra` outputs; with
    `overwrite`, one that is taken by no store; with the checkpoint `resume`, not what a killed process has left."""
    require_separate(destination, *extra)
    for place in (destination, *extra):
        if place is not None:
            require_apart(place, *read)
    require_writable(destination, overwrite=overwrite, resume=resume, how="replace it with --overwrite")


@contextmanager
def told_how_to_go_on(how: str | None) -> Iterator[None]:
    """Say with an interrupt how the command goes on, where it can."""
    try:
        yield
    except KeyboardInterrupt as error:
        if how is None:
            raise
        raise type(error)(f"; {how}") from error


def require_new(path: str, *read: str, overwrite: bool) -> None:
    """Refuse a file that is there, unless it may be overwritten, one that touches what is read, or lies in a store, and
    one in a directory that is not."""
    require_apart(path, *read)
    if "://" in path or Path(path).is_dir():
        raise StoreError(f"{path} is no local file, and tables and pictures are written to these; choose another path")
    check_outside_stores(path)
    if Path(path).exists() and not overwrite:
        raise StoreError(f"{path} is there already; replace it with --overwrite")
    if not Path(path).absolute().parent.is_dir():
        raise StoreError(f"{path} cannot be written: there is no directory {Path(path).absolute().parent}")


@contextmanager
def written(path: str) -> Iterator[Path]:
    """A place to write a file that comes to its own place as a whole, or not at all.

    Errors: StoreError where it cannot be written.
    """
    try:
        with atomic_file(path) as aside:
            yield aside
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
