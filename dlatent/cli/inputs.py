"""What commands read: data, labels, edges and correspondences, as the command line names them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlatent.cli.arguments import add
from dlatent.cli.status import UsageError
from dlatent.errors import DataError, cause

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dlatent.arrays import Graph

STORE = "path or URL of a Zarr store (dlatent ingest makes one)"
LABELS = "labels of the rows: a column of a store (data.zarr#topic), or of a .csv, .npz, .npy or .txt file; "
EDGES = "a store (dlatent ingest-graph makes one), or a list (.csv .tsv .parquet .npz)"


def add_labels(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """`--labels` and `--unlabelled`."""
    own = f"#COLUMN alone is a column of DATA ({otherwise})"
    parser.add_argument("--labels", metavar="PATH[#COLUMN]", help=LABELS + own)
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
        own = "NAME is the view; NAME=#COLUMN is a column of its own store"
        parser.add_argument("--labels", required=True, type=view, metavar="NAME=PATH[#COLUMN]", help=LABELS + own)
        add(parser, "unlabelled")


def read_by(arguments: argparse.Namespace) -> list[str]:
    """The paths and URLs of what a command reads."""
    named = [getattr(arguments, name, None) for name in ("source", "data", "graph", "precision", "correspondence")]
    several = [one for own in named if isinstance(own, list) for one in own]
    labels = getattr(arguments, "labels", None)
    labels = labels[1] if isinstance(labels, tuple) else labels
    named += [own[1] if isinstance(own, tuple) else own for own in several]
    named += [split(labels)[0]] if isinstance(labels, str) else []
    return [place for place in named if place and isinstance(place, str)]


def opened(data: Any, missing_chunks: str) -> Any:
    """Data for a model: the path itself, or the store opened so that chunks which are not there hold the fill value;
    of views, each by its name."""
    if missing_chunks == "raise":
        return data
    if isinstance(data, dict):
        return {name: opened(own, missing_chunks) for name, own in data.items()}
    from dlatent.stores.open import open_data

    return open_data(data, missing_chunks="fill")


def data_of(arguments: argparse.Namespace) -> Any:
    """The data of a model: a path or an open store, or one for each view by its name.

    Errors: UsageError for one view, or two with one name.
    """
    if isinstance(arguments.data, str):
        return opened(arguments.data, arguments.missing_chunks)
    views = dict(arguments.data)
    if len(views) < max(2, len(arguments.data)):
        raise UsageError("give at least two views, NAME=DATA each, with names of their own")
    return opened(views, arguments.missing_chunks)


def inputs_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a model takes beside the data, by the names of `fit` and `plan`: labels `y`, and `graph` or `precision`,
    which are open, so that the two need not read them twice; `correspondence` or `on`."""
    given = vars(arguments)
    found = {"y": labels_of(arguments)} if "labels" in given else {}
    found |= edges_of(arguments)
    if "on" in given:
        rows = None if arguments.on else _correspondence(arguments.correspondence)
        found |= {"on": arguments.on, "correspondence": rows}
    return found


def edges_of(arguments: argparse.Namespace) -> dict[str, Graph]:
    """The edges between the rows of the data, or their precision, where one is given.

    Errors: UsageError for a direction of a precision.
    """
    names = [name for name in ("graph", "precision") if getattr(arguments, name, None) is not None]
    if not names:
        return {}
    from dlatent.stores.graph.open import open_graph, open_precision
    from dlatent.stores.open import open_data

    (name,) = names
    if name == "precision" and arguments.direction is not None:
        raise UsageError("--direction belongs to --graph; a precision is symmetric already")
    chunks: Any = {"missing_chunks": arguments.missing_chunks}
    data = open_data(arguments.data, **chunks)
    rows = {"samples": data.shape[0], "origin": data.labels.origin, **chunks}
    if name == "precision":
        return {name: open_precision(arguments.precision, **rows)}
    return {name: open_graph(arguments.graph, ids=data.labels.samples, direction=arguments.direction, **rows)}


def _correspondence(path: str) -> Any:
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


def labels_of(arguments: argparse.Namespace) -> Any:
    """The labels of the rows of the data, or of one view by its name; without `--labels`, the only column of the data.

    Errors: UsageError for a name that is none of the views.
    """
    if not isinstance(arguments.labels, tuple):
        return read_labels_of(arguments, arguments.data, arguments.labels)
    (name, labels), views = arguments.labels, dict(arguments.data)
    if name not in views:
        raise UsageError(f"--labels names the view {name!r}; there are {', '.join(views)}")
    return {name: read_labels_of(arguments, views[name], labels)}


def read_labels_of(arguments: argparse.Namespace, data: str, wanted: str | None) -> npt.NDArray[Any]:
    """Labels of the rows of a store, written as PATH, PATH#COLUMN or #COLUMN without those of rows that ingest has
    dropped.

    Errors: DataError where labels are from elsewhere and the rows of the data were reordered.
    """
    from dlatent.stores.label_files import read_labels
    from dlatent.stores.open import open_data

    path, column = ("", None) if wanted is None else split(wanted)
    values = read_labels(path or data, column, missing_chunks=arguments.missing_chunks)
    if path and path != data:
        source = open_data(data, missing_chunks=arguments.missing_chunks)
        origin = source.labels.origin
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
    """The labels with nothing (NaN for numbers, None for text) in place of the value for unlabelled rows.

    Errors: DataError where no row has that value, because it is then a mistake of writing.
    """
    import numpy as np

    equal = _equal(values, unlabelled)
    rows = equal if values.ndim == 1 else equal.all(axis=1)
    if not rows.any():
        raise DataError(f"no row has the label {unlabelled!r} that --unlabelled names; look how labels are written")
    plain = values.dtype.kind in "biuf" and values.ndim == 1
    cleared = values.astype(np.float64 if plain else object)
    cleared[rows] = np.nan if plain else None
    return cleared


def _equal(values: npt.NDArray[Any], text: str) -> npt.NDArray[np.bool_]:
    import numpy as np

    if values.dtype.kind in "iuf":
        try:
            return np.asarray(values == float(text))
        except ValueError:
            return np.zeros(values.shape, dtype=bool)
    return np.asarray(values.astype(str) == text)
