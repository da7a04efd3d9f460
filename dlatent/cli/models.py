"""Models as the commands name them, and the labels and links for those that take some."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlatent.cli.arguments import MODELS, add_cluster, add_json, add_model, hyperparameters, positive

if TYPE_CHECKING:
    from dlatent import PPCA


def add_models(
    parser: argparse.ArgumentParser, components: Callable[[str], Any] = positive, *, plain: bool = False
) -> dict[str, argparse.ArgumentParser]:
    """One parser for each model (with `plain` for those without links and kernels), with its options; `components`
    reads the number, or the numbers, of components."""
    kinds = parser.add_subparsers(metavar="MODEL", required=True, dest="model")
    made = {}
    for kind, (_, words, _, links, kernel) in MODELS.items():
        if plain and (links or kernel):
            continue
        made[kind] = kinds.add_parser(kind, help=words, description=f"{words[0].upper()}{words[1:]}.")
        add_model(made[kind], kind, components)
        add_cluster(made[kind])
        add_json(made[kind])
    return made


def model_of(arguments: argparse.Namespace) -> PPCA:
    """The estimator, not fitted."""
    import dlatent

    made: PPCA = getattr(dlatent, MODELS[arguments.model].name)(**hyperparameters(arguments))
    return made


def inputs_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the model takes beside the data, by the names of `fit` and `plan`: labels `y`, and `links`, which are open,
    so that the two need not read them twice."""
    taken, found = MODELS[arguments.model], dict[str, Any]()
    if taken.labels:
        from dlatent.cli.labels import labels_of

        found["y"] = labels_of(arguments.labels, arguments.data, arguments.unlabelled)
    if taken.links:
        from dlatent.stores.links import open_links
        from dlatent.stores.open import open as open_source

        data = open_source(arguments.data)
        found["links"] = open_links(
            arguments.links, instances=data.shape[0], ids=data.labels.instances, direction=arguments.direction
        )
    return found
