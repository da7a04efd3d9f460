"""`python -m tests.fuzz --count 20000 --seed 0`: damaged inputs to every reader, only our own errors out."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_run import FORMATS, fuzz, replay


def main() -> int:
    """Run the fuzz, or one of its inputs again; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="number of inputs (20000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--only", choices=FORMATS, help="one format")
    parser.add_argument("--skip", choices=FORMATS, action="append", default=[], help="leave a format out")
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="read this input again, and keep it in --keep")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-input"), help="where --replay puts its files")
    given = parser.parse_args()
    if given.replay is not None:
        replay(given.replay, given.seed, given.keep, only=given.only, skip=tuple(given.skip))
        return 0
    started = time.time()
    summary = fuzz(given.count, given.seed, jobs=given.jobs, only=given.only, skip=tuple(given.skip))
    for failure in sorted(summary.failures, key=lambda one: (one["outcome"], one["error"])):
        print("{number:6} {format:14} {outcome:8} {error}".format(**failure))
    print(summary.table())
    seconds = time.time() - started
    print(f"{given.count} inputs of seed {given.seed} in {seconds:.0f} s; {len(summary.failures)} failures")
    return int(bool(summary.failures))


if __name__ == "__main__":
    sys.exit(main())
