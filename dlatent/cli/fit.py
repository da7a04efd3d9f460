"""`dlatent fit`: fit a model to a store and save it."""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add
from dlatent.cli.cluster import connected
from dlatent.cli.inputs import data_of, inputs_of, read_by
from dlatent.cli.models import add_models, model_of
from dlatent.cli.places import require_free, told_how_to_go_on
from dlatent.cli.progress import FitProgress, Screen
from dlatent.cli.status import NOT_CONVERGED, OK, UsageError
from dlatent.errors import number_of


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "fit", help="fit a model to a store and save it", description="Fit a model by maximum likelihood and save it."
    )
    for kind in add_models(parser):
        kind.add_argument("-o", "--output", required=True, metavar="MODEL.zarr", help="where to save the model")
        kind.add_argument(
            "--checkpoint",
            metavar="PLACE",
            help="directory or URL that gets the result of every pass, till all is done",
        )
        kind.add_argument("--resume", action="store_true", help="go on with the checkpoint, where there is one")
        add(kind, "quiet", "overwrite")
        kind.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, save, and show what came out."""
    if arguments.resume and arguments.checkpoint is None:
        raise UsageError("--resume needs --checkpoint PLACE")
    beside = (arguments.checkpoint, getattr(arguments, "kernel_store", None))
    resume = arguments.checkpoint if arguments.resume else None
    require_free(arguments.output, *read_by(arguments), overwrite=arguments.overwrite, resume=resume, beside=beside)
    import dlatent

    model = model_of(arguments)
    data, inputs = data_of(arguments), inputs_of(arguments)
    dlatent.show_progress(False)  # there are a bar and lines of our own
    with warnings.catch_warnings(), connected(arguments) as client:
        warnings.simplefilter("ignore")  # the model knows what its fit warned of
        started = perf_counter()
        plan = model.plan(data, **inputs, client=client)
        with Screen(quiet=arguments.quiet) as screen:
            passes = number_of(plan.passes, "pass", "passes")
            screen.line(f"solver {plan.solver} ({plan.reason}), about {passes} on {plan.machine}")
            progress = FitProgress(screen, plan, model.tol)
            kept = {"checkpoint": arguments.checkpoint, "resume": arguments.resume}
            way_on = "has the passes so far: go on by the same command with --resume"
            with told_how_to_go_on(arguments.checkpoint and f"{arguments.checkpoint} {way_on}"):
                model.fit(data, **inputs, client=client, callbacks=[progress.callback], **kept)
            progress.finish()
    model.save(arguments.output, overwrite=arguments.overwrite)
    if arguments.checkpoint is not None:
        from dlatent.stores.checkpoint import discard

        discard(arguments.checkpoint)
    seconds = perf_counter() - started
    found = {"model": arguments.output, **model._facts(), "seconds": seconds}
    words = model._words() | {"seconds": f"{seconds:.1f}, with the plan and the saving"}
    if "graph" in inputs:
        found["graph"]["notes"] = inputs["graph"].notes
        words["graph"] = "; ".join([words["graph"], *inputs["graph"].notes])
    show.model(f"{arguments.output} written", found, words, json=arguments.json)
    return OK if model.converged_ else NOT_CONVERGED
