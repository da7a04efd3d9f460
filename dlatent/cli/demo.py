"""`dlatent demo`: the whole way, on invented papers and on the Python modules of this machine."""

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
        help="the whole way, on invented papers and on the Python modules of this machine",
        description="Invents papers with citations, then reads the Python modules of this machine as documents with "
        "imports. Stores the words of each in Zarr, starts a local cluster of two processes, fits PPCA, relational "
        "PPCA to the links too, and semi-supervised PPCA to some classes too, and compares them.",
    )
    parser.add_argument("--folder", default="demo-output", help="where to write (default demo-output)")
    parser.add_argument("--modules", type=positive, default=5000, metavar="N", help="most modules to read (5000)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Tell the story of the papers, which ends alike on every machine, and that of the modules."""
    from dlatent.demo import papers
    from dlatent.demo.findings import COLUMNS
    from dlatent.demo.story import Story, read_modules, tell

    out = show.console()

    def say(text: str) -> None:
        out.print(text, soft_wrap=True)

    def end(story: Story) -> None:
        out.print()
        show.table(COLUMNS, [line.cells for line in story.lines], left=COLUMNS[:1])
        say(story.summary)

    folder = Path(arguments.folder)
    out.print("First: 3,000 invented papers of 8 topics in 6 journals, the same on every machine.", style="bold")
    end(tell(folder / "papers", papers.invent(), say=say, components=papers.COMPONENTS))
    out.print("\nSecond: what this machine has.", style="bold")
    story = tell(folder / "modules", read_modules(arguments.modules, say), say=say)
    end(story)
    out.print("\nWhat to type next:", style="bold")
    program = _as_typed()
    for line in story.next_steps(program, _python_beside(program)):
        say(f"  {line}")
    return OK


def _as_typed() -> str:
    """How this command was called, so that what is printed can be typed again."""
    called = sys.argv[0]
    return called if os.path.basename(called) == "dlatent" and os.path.dirname(called) else "dlatent"


def _python_beside(program: str) -> str:
    beside = os.path.join(os.path.dirname(program), "python")
    return beside if os.path.dirname(program) and os.path.exists(beside) else "python"
