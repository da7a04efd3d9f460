"""`dlatent plot`: pictures of saved results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dlatent.cli.arguments import add, positive
from dlatent.cli.inputs import read_by, read_labels_of
from dlatent.cli.places import require_new, written
from dlatent.cli.status import OK
from dlatent.errors import DataError

Draw = Callable[[argparse.Namespace, Any], None]
"""Draws a picture on axes."""


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plot",
        help="a picture of a saved model, or of scores",
        description="Draw a picture of a saved model, or of scores that dlatent transform has written.",
    )
    kinds = parser.add_subparsers(metavar="PICTURE", required=True)
    for name, words in (
        ("spectrum", "the variance along each component, and the noise"),
        ("explained-variance", "the part of the variance that components explain"),
        ("history", "the log-likelihood and the passes of the fit"),
        ("smoothing", "how strengths of smoothing over a graph were compared"),
    ):
        _kind(kinds, name, words, _of_model(name.replace("-", "_")))
    made = _kind(
        kinds, "loadings", "the features with the largest loadings of a component", _of_model("loadings", "top")
    )
    _add_component(made)
    made.add_argument("--top", type=positive, default=15, metavar="N", help="how many features (default 15)")
    made = _kind(kinds, "map", "the loadings of a component as a map or an image", _of_model("loadings_map", "shape"))
    _add_component(made)
    made.add_argument(
        "--shape", type=_pair, metavar="R,C", help="rows and columns, of features that are the dots of images"
    )
    made = _kind(kinds, "scores", "rows by two of their latent variables", _scores, model=False)
    made.add_argument("--components", type=_pair, default=(0, 1), metavar="A,B", help="which two, from 0 (default 0,1)")
    made.add_argument("--labels", metavar="PATH[#COLUMN]", help="labels of the rows, for colours; as for dlatent fit")
    add(made, "unlabelled", "missing-chunks")


def _kind(kinds: Any, name: str, words: str, draw: Draw, *, model: bool = True) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = kinds.add_parser(name, help=words, description=f"Draw {words}.")
    if model:
        made.add_argument("data", metavar="MODEL", help="a store that dlatent fit wrote")
        add(made, "max-model-size")
    else:
        made.add_argument("data", metavar="SCORES", help="a store that dlatent transform wrote")
    made.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="where to write; .png, .svg and .pdf are known"
    )
    add(made, "overwrite")
    made.set_defaults(run=run, draw=draw)
    return made


def _add_component(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--component", type=_number, default=0, metavar="K", help="which, from 0 (default 0)")


def _number(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _pair(text: str) -> tuple[int, int]:
    """Two whole numbers with a comma between."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no pair of whole numbers such as 0,1")
    return int(parts[0]), int(parts[1])


def run(arguments: argparse.Namespace) -> int:
    """Draw, and write the picture."""
    require_new(arguments.output, *read_by(arguments), overwrite=arguments.overwrite)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError("pictures need matplotlib; install it with: pip install matplotlib") from error
    figure = Figure(layout="constrained")
    try:
        arguments.draw(arguments, figure.subplots())
        with written(arguments.output) as aside:
            figure.savefig(aside, dpi=130)
    except (TypeError, ValueError) as error:
        raise DataError(f"{arguments.data}: {error}") from error
    return OK


def _of_model(name: str, *options: str) -> Draw:
    """A picture of a model by the function of this name."""

    def draw(arguments: argparse.Namespace, axes: Any) -> None:
        from dlatent import load, plot

        model = load(arguments.data, max_bytes=arguments.max_model_size)
        component = (arguments.component,) if hasattr(arguments, "component") else ()
        given = {option: getattr(arguments, option) for option in options}
        getattr(plot, name)(model, *component, **given, ax=axes)

    return draw


def _scores(arguments: argparse.Namespace, axes: Any) -> None:
    import xarray as xr

    from dlatent import plot

    labels = None
    if arguments.labels is not None:
        labels = read_labels_of(arguments, arguments.data, arguments.labels)
    try:
        found = xr.open_zarr(arguments.data)["scores"].load()
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{arguments.data} holds no scores; dlatent transform writes them") from error
    plot.scores(found, labels=labels, components=arguments.components, ax=axes)
