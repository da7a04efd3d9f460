"""`dlatent choose`: how many components, by the likelihood of cells that the fits did not see."""

from __future__ import annotations

import argparse
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_quiet, counts
from dlatent.cli.cluster import connected
from dlatent.cli.models import add_models, data_of, inputs_of, model_of
from dlatent.cli.status import OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "choose",
        help="how many components, by predicting cells that were held out",
        description="Fit a model with several numbers of components to a part of the cells, and score the predictions "
        "of the others.",
    )
    for kind in add_models(parser, counts, incomplete=True).values():
        kind.add_argument("--held-out", type=float, default=0.1, metavar="PART", help="of the cells (default 0.1)")
        add_quiet(kind)
        kind.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit and score all candidates, and show what came out."""
    import dlatent

    dlatent.show_progress(False if arguments.quiet else "auto")
    given, candidates = inputs_of(arguments), arguments.n_components
    arguments.n_components = candidates[0]
    model = model_of(arguments)
    with connected(arguments) as client:
        found = dlatent.select_n_components(
            model, data_of(arguments), candidates, held_out=arguments.held_out, client=client, **given
        )
    columns = ("held_out_log_likelihood", "held_out_rmse", "log_likelihood", "passes", "converged")
    lines = [
        {"components": k, **{name: found[name].values[i].item() for name in columns}}
        for i, k in enumerate(found["n_components"].values.tolist())
    ]
    if arguments.json:
        show.as_json({"best": found.attrs["best"], "candidates": lines})
        return OK
    rows = [
        [
            str(line["components"]) + (" ←" if line["components"] == found.attrs["best"] else ""),
            f"{line['held_out_log_likelihood']:.6g}",
            f"{line['held_out_rmse']:.6g}",
            f"{line['log_likelihood']:.10g}",
            f"{line['passes']}" + ("" if line["converged"] else ", not converged"),
        ]
        for line in lines
    ]
    show.table(("components", "held out, nats a cell", "error (RMS)", "log-likelihood", "passes"), rows)
    return OK
