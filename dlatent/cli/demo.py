"""`dlatent demo`: the whole way, on the Python modules of this machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import positive
from dlatent.cli.status import OK


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="the whole way on real data: the Python modules of this machine",
        description="Reads the Python modules of this machine as documents, stores their words in Zarr, starts a local "
        "cluster of two processes, fits PPCA, relational PPCA to the imports too, and semi-supervised PPCA to some "
        "packages too, and compares them.",
    )
    parser.add_argument("--folder", default="demo-output", help="where to write (default demo-output)")
    parser.add_argument("--modules", type=positive, default=5000, metavar="N", help="most modules to read (5000)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Tell the story."""
    from dlatent.demo.findings import COLUMNS
    from dlatent.demo.story import tell

    out = show.console()
    story = tell(Path(arguments.folder), modules=arguments.modules, say=lambda text: out.print(text, soft_wrap=True))
    out.print()
    show.table(COLUMNS, [line.cells for line in story.lines], left=COLUMNS[:1])
    out.print(story.summary, soft_wrap=True)
    out.print("\nWhat to type next:", style="bold")
    program = _as_typed()
    for line in story.next_steps(program, _python_beside(program)):
        out.print(f"  {line}", soft_wrap=True)
    return OK


def _as_typed() -> str:
    """How this command was called, so that what is printed can be typed again."""
    called = sys.argv[0]
    return called if os.path.basename(called) == "dlatent" and os.path.dirname(called) else "dlatent"


def _python_beside(program: str) -> str:
    beside = os.path.join(os.path.dirname(program), "python")
    return beside if os.path.dirname(program) and os.path.exists(beside) else "python"
