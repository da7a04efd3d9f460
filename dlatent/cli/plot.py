"""`dlatent plot`: pictures of saved results, each by the function of its name in `dlatent.plot`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import xarray as xr

from dlatent import load, plot
from dlatent.cli import OK
from dlatent.cli.arguments import Parser, add, add_command, add_options, add_parameters, parameters_from
from dlatent.cli.inputs import labels_of, read_by, require_new, written
from dlatent.errors import DataError
from dlatent.stores.open import open_data

PICTURES = {
    "spectrum": "the variance along each component, and the noise",
    "explained-variance": "the part of the variance that components explain",
    "history": "the log-likelihood and the passes of the fit",
    "smoothing": "how strengths of smoothing over a graph were compared",
    "loadings": "the features with the largest loadings of a component",
    "map": "the loadings of a component as a map or an image",
    "scores": "rows by two of their latent variables",
}

LABELS = {"--labels": {"metavar": "PATH[#COLUMN]", "help": "labels of the rows, for colours; as for dlatent fit"}}
OUTPUT = {"-o --output": {"required": True, "metavar": "FILE", "help": "where to write; .png, .svg and .pdf are known"}}


def fill(parser: Parser, _: str) -> None:
    """Add the options of the command."""
    kinds = parser.add_subparsers(metavar="PICTURE", required=True)
    for name, description in PICTURES.items():
        function = plot.loadings_map if name == "map" else getattr(plot, name.replace("-", "_"))
        add_command(kinds, name, description, partial(_fill, function))


def _fill(function: Callable[..., Any], parser: Parser) -> None:
    of, command = ("scores", "transform") if function is plot.scores else ("model", "fit")
    texts = {"result": f"a store that dlatent {command} wrote"}
    add_parameters(parser, function, named={"result": of}, texts=texts, without=("labels", "ellipses", "chosen", "ax"))
    if of == "model":
        add(parser, "max-model-size")
    else:
        add_options(parser, LABELS)
        add(parser, "unlabelled", "missing-chunks")
    add_options(parser, OUTPUT)
    add(parser, "overwrite")
    parser.set_defaults(run=partial(run, function))


def run(function: Callable[..., Any], arguments: argparse.Namespace) -> int:
    """Draw, and write the picture."""
    require_new(arguments.output, *read_by(arguments), overwrite=arguments.overwrite)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError("pictures need matplotlib; install it with: pip install matplotlib") from error
    figure, of = Figure(layout="constrained"), arguments.result
    options = parameters_from(arguments, function)
    options["result"] = _scores(of) if function is plot.scores else load(of, max_bytes=arguments.max_model_size)
    if options.get("labels") is not None:
        source = open_data(of, missing_chunks=arguments.missing_chunks)
        options["labels"] = labels_of(arguments, of, arguments.labels, source)
    try:
        function(**options, ax=figure.subplots())
        with written(arguments.output) as aside:
            figure.savefig(aside, dpi=130)
    except (TypeError, ValueError) as error:
        raise DataError(f"{of}: {error}") from error
    return OK


def _scores(place: str) -> Any:
    try:
        return xr.open_zarr(place)["scores"].load()
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{place} holds no scores; dlatent transform writes them") from error
