"""Models as the commands name them, with an option for each hyperparameter."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dlatent.cli.arguments import add
from dlatent.cli.cluster import add_cluster
from dlatent.cli.inputs import STORE, add_graph, add_labels, add_views
from dlatent.cli.status import UsageError
from dlatent.models import MODELS as ALL
from dlatent.models import Model

if TYPE_CHECKING:
    from dlatent import PPCA
    from dlatent.models.hyperparameters import Allowed


MODELS = {model.command: model for model in ALL if model.command}
"""The models that the commands know, by their words for them."""


def add_models(
    parser: argparse.ArgumentParser,
    components: Callable[[str], Any] | None = None,
    *,
    views: bool = True,
    cluster: Callable[[argparse.ArgumentParser], None] = add_cluster,
) -> list[argparse.ArgumentParser]:
    """One parser for each model (or those of one table of samples), with its options; `components` reads numbers of
    components, where they are several, and `cluster` adds the options of where to compute."""
    kinds = parser.add_subparsers(metavar="MODEL", required=True, dest="model")
    made: list[argparse.ArgumentParser] = []
    for name, model in MODELS.items():
        if views or not model.views:
            words = model.words
            kind: Any = kinds.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
            _add_inputs(kind, model)
            kind.later(partial(_add_hyperparameters, kind, model, components))
            cluster(kind)
            add(kind, "json")
            made.append(kind)
    return made


def _add_inputs(parser: argparse.ArgumentParser, model: Model) -> None:
    if model.views:
        add_views(parser, labels=model.labels)
    else:
        parser.add_argument("data", metavar="DATA", help=STORE)
    add(parser, "missing-chunks")
    if model.graph:
        add_graph(parser, precision=model.precision)
    if model.labels and not model.views:
        add_labels(parser, "default: the only column of DATA")


def _add_hyperparameters(
    parser: argparse.ArgumentParser, model: Model, components: Callable[[str], Any] | None
) -> None:
    from dlatent.models.hyperparameters import declared

    for field, about in declared(model.load()):
        if about.option is None:
            continue
        flags = [f"-{about.letter}"] * bool(about.letter) + [f"--{about.option or field.name.replace('_', '-')}"]
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        help = about.words if default is None else f"{about.words} (default {default})"
        options: dict[str, Any] = {"choices": about.allowed.choices}
        if not about.allowed.choices:
            options = {"type": _reader(about.allowed), "metavar": about.short or None}
        if field.name == "n_components":
            help = about.words if components is None else "latent variables, several numbers with commas between"
            options = {"type": components or _reader(about.allowed), "metavar": "K", "required": True}
        parser.add_argument(*flags, dest=field.name, help=help.replace("%", "%%"), **options)


def _reader(allowed: Allowed) -> Callable[[str], Any]:
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


def model_of(arguments: argparse.Namespace) -> PPCA:
    """The estimator, not fitted.

    Errors: UsageError for options that would be ignored.
    """
    from dlatent.models.hyperparameters import declared

    model = MODELS[arguments.model]
    given = {field.name: getattr(arguments, field.name, None) for field, _ in declared(model.load())}
    if given.get("start") is not None and arguments.solver != "em":
        raise UsageError("--start says where EM begins; give --solver em with it")
    if given.get("start_noise") is not None and arguments.start != "pca":
        raise UsageError("--start-noise is the noise variance at which --start pca begins; give --start pca with it")
    made: PPCA = model.load()(**{name: value for name, value in given.items() if value is not None})
    return made
