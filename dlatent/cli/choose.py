"""`dlatent choose`: how many components, by what the fits did not see, or by the eigenvalues of the covariance."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from dlatent.cli import show
from dlatent.cli.arguments import add, positive
from dlatent.cli.cluster import connected
from dlatent.cli.inputs import data_of, inputs_of
from dlatent.cli.models import add_models, model_of
from dlatent.cli.status import OK, UsageError
from dlatent.models.hyperparameters import Criterion

HEADINGS = {
    "held_out_log_likelihood": "held out, nats a cell",
    "held_out_rmse": "error (RMS)",
    "cross_validated_log_likelihood": "folds left out, nats a row",
    "bic": "BIC",
    "log_evidence": "log-evidence",
    "eigenvalue": "eigenvalue",
    "noise_eigenvalue": "of noise",
    "log_likelihood": "log-likelihood",
}


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "choose",
        help="how many components: by held-out cells or rows, or by a criterion",
        description="Compare numbers of components by the likelihood of cells or rows that the fits did not see, or by "
        "a criterion.",
    )
    for kind in add_models(parser, counts, views=False):
        kind.add_argument(
            "--criterion",
            choices=get_args(Criterion),
            default="auto",
            help="auto: held_out, cells of models that take missing entries, else cross_validation, rows; bic; of ppca "
            "alone evidence, and parallel analysis (default auto)",
        )
        kind.add_argument("--held-out", type=float, default=0.1, metavar="PART", help="of the cells (default 0.1)")
        kind.add_argument("--folds", type=positive, default=5, metavar="N", help="of the rows (default 5)")
        add(kind, "quiet")
        kind.set_defaults(run=run)


def counts(text: str) -> list[int]:
    """Integers of at least 1, separated by commas."""
    return [positive(part) for part in text.split(",")]


def run(arguments: argparse.Namespace) -> int:
    """Score all candidates, and show what came out."""
    import dlatent

    dlatent.show_progress(False if arguments.quiet else "auto")
    if getattr(arguments, "precision", None) is not None:
        raise UsageError("samples of a given precision cannot be held out; leave --precision to dlatent fit")
    given, candidates = inputs_of(arguments), arguments.n_components
    arguments.n_components = candidates[0]
    options = {"criterion": arguments.criterion, "held_out": arguments.held_out, "cv": arguments.folds}
    with connected(arguments) as client:
        found = dlatent.select_n_components(
            model_of(arguments), data_of(arguments), candidates, client=client, **options, **given
        )
    best, names = found.attrs["best"], [name for name, values in found.items() if values.ndim == 1]
    lines = [
        {"components": k, **{name: found[name].values[i].item() for name in names}}
        for i, k in enumerate(found["n_components"].values.tolist())
    ]
    if arguments.json:
        show.as_json({"best": best, "criterion": found.attrs["criterion"], "candidates": lines})
        return OK
    shown = [name for name in HEADINGS if name in names]
    rows = [
        [
            str(line["components"]) + (" ←" if line["components"] == best else ""),
            *(f"{line[name]:.{10 if name == 'log_likelihood' else 6}g}" for name in shown),
            *([f"{line['passes']}" + ("" if line["converged"] else ", not converged")] if "passes" in names else []),
        ]
        for line in lines
    ]
    headings = ("components", *(HEADINGS[name] for name in shown), *(["passes"] if "passes" in names else []))
    show.table(headings, rows)
    return OK
