"""`python -m benchmarks list | run CASE … | report FILE …`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.catalogue import CASES
from benchmarks.report import all_met, page, read
from benchmarks.runner import Options, TaskFailed, run_case


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 where all that was asked ran and met its requirements, 1 otherwise."""
    asked = _parser().parse_args(arguments)
    return int(asked.do(asked))


def _list(asked: argparse.Namespace) -> int:
    for case in CASES.values():
        print(f"{case.name}: {case.title}")
        for task in case.tasks(1.0):
            print(f"    {task.name}")
    return 0


def _run(asked: argparse.Namespace) -> int:
    rows = []
    with ExitStack() as stack:
        work = asked.work
        if work is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlatent-benchmarks-")))
        options = Options(
            tuple(asked.methods), asked.repeats, asked.scale, work.resolve(), asked.out, tuple(asked.peers_python)
        )
        for name in asked.cases:
            try:
                rows += run_case(CASES[name], options, lambda text: print(text, file=sys.stderr, flush=True))
            except TaskFailed as error:
                print(error, file=sys.stderr)
                return 1
    if not rows:
        print(f"no method matches {' '.join(asked.methods)}; see python -m benchmarks list", file=sys.stderr)
        return 2
    print(page(rows))
    return 0 if all_met(rows) else 1


def _report(asked: argparse.Namespace) -> int:
    rows = read(asked.files)
    text = page(rows, asked.out.parent if asked.out else None)
    if asked.out:
        asked.out.write_text(text)
    else:
        print(text)
    return 0 if all_met(rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks of dlatent, side by side.")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("list", help="the cases and their methods").set_defaults(do=_list)
    run = commands.add_parser("run", help="run cases and print the report")
    run.add_argument("cases", nargs="+", choices=sorted(CASES), metavar="CASE")
    run.add_argument("--methods", nargs="+", default=["*"], help="names or patterns such as 'sklearn-*'")
    run.add_argument("--repeats", type=int, default=3, help="runs of each method, in turns (3)")
    run.add_argument("--scale", type=float, default=1.0, help="smaller data for a quick look, for example 0.05")
    run.add_argument("--work", type=Path, help="folder for the data, kept between runs (a temporary one if not given)")
    run.add_argument("--out", type=Path, help="file to which one JSON line per result is appended")
    run.add_argument(
        "--peers-python",
        action="append",
        default=[],
        help="interpreter of an environment with further peers; may be given several times",
    )
    run.set_defaults(do=_run)
    report = commands.add_parser("report", help="tables, requirements and pictures from result files")
    report.add_argument("files", nargs="+", type=Path)
    report.add_argument("--out", type=Path, help="Markdown file; pictures are drawn beside it")
    report.set_defaults(do=_report)
    return parser


if __name__ == "__main__":
    sys.exit(main())
