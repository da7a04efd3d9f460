"""Models as the commands name them, and the labels for those that take some."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlatent.cli.arguments import MODELS, add_cluster, add_json, add_model, hyperparameters, positive

if TYPE_CHECKING:
    from dlatent import PPCA


def add_models(
    parser: argparse.ArgumentParser, components: Callable[[str], Any] = positive
) -> dict[str, argparse.ArgumentParser]:
    """One parser for each model, with its options; `components` reads the number, or the numbers, of components."""
    kinds = parser.add_subparsers(metavar="MODEL", required=True, dest="model")
    made = {}
    for kind, (_, words) in MODELS.items():
        made[kind] = kinds.add_parser(kind, help=words, description=f"{words[0].upper()}{words[1:]}.")
        add_model(made[kind], kind, components)
        add_cluster(made[kind])
        add_json(made[kind])
    return made


def model_of(arguments: argparse.Namespace) -> PPCA:
    """The estimator, not fitted."""
    import dlatent

    made: PPCA = getattr(dlatent, MODELS[arguments.model][0])(**hyperparameters(arguments))
    return made


def targets_of(arguments: argparse.Namespace) -> Any:
    """The labels for the model, or None where it takes none."""
    if arguments.model != "supervised":
        return None
    from dlatent.cli.labels import labels_of

    return labels_of(arguments.labels, arguments.data, arguments.unlabelled)
