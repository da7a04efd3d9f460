"""`dlatent plan`: what a fit would do and cost."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.cluster import connected
from dlatent.cli.models import add_models, data_of, inputs_of, model_of
from dlatent.cli.status import OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="what a fit would do and cost, before a byte of the matrix is read",
        description="The route and why, passes, bytes and tasks of each, and projected memory; reads no features.",
    )
    for kind in add_models(parser).values():
        kind.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, and show the plan."""
    model = model_of(arguments)
    data, inputs = data_of(arguments), inputs_of(arguments)
    with connected(arguments) as client:
        plan = model.plan(data, **inputs, client=client)
    if arguments.json:
        show.as_json(asdict(plan))
    else:
        print(plan)
    return OK
