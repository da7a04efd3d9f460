"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from dlatent.cli.status import UsageError as UsageError
from dlatent.estimators.hyperparameters import Allowed, declared
from dlatent.models import MODELS as ALL
from dlatent.models import Model

UNITS = {"": 1, "B": 1} | {
    name: size
    for power, letter in enumerate("KMGT", 1)
    for name, size in ((f"{letter}B", 1000**power), (f"{letter}IB", 1024**power))
}
DIRECTIONS = ("symmetrise", "common_neighbours", "undirected")


MODELS = {model.command: model for model in ALL if model.command}
"""The models that the commands know, by their words for them."""


def byte_count(text: str) -> int:
    """Bytes from text such as 32MiB, 500 kB or 1048576."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or float(found[1]) * unit < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes; write for example 32MiB")
    return int(float(found[1]) * unit)


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def counts(text: str) -> list[int]:
    """Integers of at least 1, separated by commas."""
    return [positive(part) for part in text.split(",")]


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="write the result as JSON, and nothing else, to stdout")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """`--quiet`."""
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """`--overwrite`."""
    parser.add_argument("--overwrite", action="store_true", help="replace the store at the destination")


def add_missing_chunks(parser: argparse.ArgumentParser) -> None:
    """`--missing-chunks`."""
    parser.add_argument(
        "--missing-chunks",
        choices=("raise", "fill"),
        default="raise",
        help="fill: of the stores that are read, chunks that are not there hold the fill value, because their writer "
        "leaves those out (default raise)",
    )


def opened(data: Any, missing_chunks: str) -> Any:
    """Data for a model: the path itself, or the store opened so that chunks which are not there hold the fill value;
    of views, each by its name."""
    if missing_chunks == "raise":
        return data
    if isinstance(data, dict):
        return {name: opened(own, missing_chunks) for name, own in data.items()}
    from dlatent.stores.open import open as open_source

    return open_source(data, missing_chunks="fill")


def add_model_size(parser: argparse.ArgumentParser) -> None:
    """`--max-model-size`."""
    parser.add_argument(
        "--max-model-size",
        type=byte_count,
        metavar="SIZE",
        help="most memory for a model that is read (default 1GiB; more where a thousandth of it is stored)",
    )


def add_labels(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """`--labels` and `--unlabelled`."""
    parser.add_argument(
        "--labels",
        metavar="PATH[#COLUMN]",
        help="labels of the rows: a column of a store (data.zarr#topic), or of a .csv, .npz, .npy or .txt file; "
        f"#COLUMN alone is a column of DATA ({otherwise})",
    )
    add_unlabelled(parser)


def add_view_labels(parser: argparse.ArgumentParser) -> None:
    """`--labels` of the rows of one view, and `--unlabelled`."""
    parser.add_argument(
        "--labels",
        required=True,
        type=view,
        metavar="NAME=PATH[#COLUMN]",
        help="labels of the rows of the view NAME: a column of a store, or of a .csv, .npz, .npy or .txt file; "
        "NAME=#COLUMN is a column of the view's own store",
    )
    add_unlabelled(parser)


def add_unlabelled(parser: argparse.ArgumentParser) -> None:
    """`--unlabelled`."""
    parser.add_argument(
        "--unlabelled", metavar="VALUE", help="label that stands for no label, beside NaN, nothing and -1"
    )


def add_direction(parser: argparse.ArgumentParser) -> None:
    """`--direction`."""
    parser.add_argument(
        "--direction",
        choices=DIRECTIONS,
        help="of edges with a direction: an edge either way joins both (symmetrise), those with a common neighbour "
        "are joined (common_neighbours); undirected: each edge is listed in one order or in both (default: in both)",
    )


def add_graph(parser: argparse.ArgumentParser, *, required: bool = True, precision: bool = False) -> None:
    """`--graph` and `--direction`, and where a model takes one `--precision`."""
    between = parser.add_mutually_exclusive_group(required=required)
    between.add_argument(
        "--graph",
        metavar="GRAPH",
        help="edges between the rows of DATA: a store (dlatent ingest-graph makes one), or a list (.csv .tsv .parquet "
        ".npz)",
    )
    if precision:
        between.add_argument(
            "--precision",
            metavar="PRECISION",
            help="the precision matrix between the rows of DATA: a store (dlatent ingest-graph --precision makes one), "
            "or a .npz of scipy.sparse",
        )
    add_direction(parser)


def view(text: str) -> tuple[str, str]:
    """The name and the data of a view, from NAME=DATA."""
    name, mark, data = text.partition("=")
    if not mark or not name or not data:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=DATA, such as image=images.zarr")
    return name, data


def add_views(parser: argparse.ArgumentParser) -> None:
    """The views, and which of their rows correspond."""
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


def add_cluster(parser: argparse.ArgumentParser, workers: str = "start N worker processes on this machine") -> None:
    """Where to compute: `--scheduler` with certificates, or `--workers` and what each has."""
    group = parser.add_argument_group("where to compute (default: the threads of this process)")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, for example tcp://host:8786")
    group.add_argument(
        "--wait", metavar="TIME", help="how long to wait for a worker of --scheduler, for example 2h (default 10m)"
    )
    for option, words in (
        ("--tls-ca-file", "certificate of the authority of a --scheduler at tls:// (default: as Dask's configuration)"),
        ("--tls-cert", "certificate that this command shows to it (default: as Dask's configuration)"),
        ("--tls-key", "key of --tls-cert (default: in the same file)"),
    ):
        group.add_argument(option, metavar="FILE", help=words)
    where.add_argument("--workers", type=positive, metavar="N", help=workers)
    group.add_argument("--threads-per-worker", type=positive, metavar="N", help="threads of each of them (default 1)")
    group.add_argument("--memory-limit", metavar="SIZE", help="memory of each of them, for example 4GiB")


def add_model(parser: argparse.ArgumentParser, model: Model, components: Callable[[str], Any] | None = None) -> None:
    """The data and the hyperparameters of a model; `components` reads how many there are, where that differs."""
    if model.views:
        add_views(parser)
    else:
        parser.add_argument("data", metavar="DATA", help="path or URL of a Zarr store (dlatent ingest makes one)")
    add_missing_chunks(parser)
    if model.graph:
        add_graph(parser, precision=model.precision)
    if model.labels and model.views:
        add_view_labels(parser)
    elif model.labels:
        add_labels(parser, "default: the only column of DATA")
    for field, about in declared(model.hyperparameters()):
        if about.option is None:
            continue
        flags = [f"-{about.letter}"] * bool(about.letter) + [f"--{about.option or field.name.replace('_', '-')}"]
        help = about.words if field.default is None else f"{about.words} (default {shown(field.default)})"
        options: dict[str, Any] = {"choices": about.allowed.choices}
        if not about.allowed.choices:
            options = {"type": reader(about.allowed), "metavar": about.short or None}
        if field.name == "n_components":
            help = about.words if components is None else "latent variables, several numbers with commas between"
            options = {"type": components or reader(about.allowed), "metavar": "K", "required": True}
        parser.add_argument(*flags, dest=field.name, help=help.replace("%", "%%"), **options)


def shown(value: Any) -> str:
    """A default as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def reader(allowed: Allowed) -> Callable[[str], Any]:
    """Reads a value of a hyperparameter."""

    def read(text: str) -> Any:
        try:
            value = allowed.read(text)
        except ValueError:
            value = None
        if value is None or not allowed.test(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed.words}")
        return value

    return read


def hyperparameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given, by the names of the estimators.

    Errors: UsageError for options that would be ignored.
    """
    start, noise = getattr(arguments, "start", None), getattr(arguments, "start_noise", None)
    if start is not None and arguments.solver != "em":
        raise UsageError("--start says where EM begins; give --solver em with it")
    if noise is not None and start != "pca":
        raise UsageError("--start-noise is the noise variance at which --start pca begins; give --start pca with it")
    fields = declared(MODELS[arguments.model].hyperparameters())
    given = {field.name: getattr(arguments, field.name) for field, about in fields if about.option is not None}
    return {name: value for name, value in given.items() if value is not None}
