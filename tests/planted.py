"""Bugs that are planted in a copy of the library, one at a time, and the suites that must find each.

    python -m tests.planted [name …]

prints for each how many seconds it took until a test failed, and fails where one was not found in a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 60.0
"""Seconds in which a bug must be found."""
SIMULATED = "tests/engine/test_engine_simulated.py"
CALLS = "tests/stores/test_stores_calls.py"
RELATIONS = "tests/laws/test_laws_relations.py"
CHECKPOINTS = "tests/estimators/test_estimators_checkpoint.py"


@dataclass(frozen=True)
class Bug:
    """A file of the library, what is in it and what comes in its place, and the tests that are to fail."""

    path: str
    edits: Mapping[str, str]
    tests: tuple[str, ...] = (SIMULATED,)

    def plant(self, root: Path) -> None:
        """Change the file; AssertionError where it has not the text that is to be changed."""
        place = root / "dlatent" / self.path
        text = place.read_text()
        for before, after in self.edits.items():
            assert text.count(before) == 1, f"{self.path} has {before!r} {text.count(before)} times"
            text = text.replace(before, after)
        place.write_text(text)


BUGS = {
    "a sum in order of arrival": Bug(
        "engine/fold.py",
        {"shares = iter(shares)": "shares = iter(sorted(shares, key=lambda share: share[1].busy_seconds))"},
    ),
    "a lost chunk read as zeros": Bug("stores/checked.py", {'if self.missing_chunks == "fill":': "if True:"}),
    "a checkpoint written before its stage": Bug(
        "engine/session.py",
        {
            "results, cost = self": "journal.record(name, None)\n                results, cost = self",
            "                journal.record(name, recalled[0])\n": "",
        },
    ),
    "a rename that is not atomic": Bug(
        "stores/atomic.py",
        {"os.rename(self.location, self.target)": "__import__('shutil').copytree(self.location, self.target)"},
        (CALLS, "-k", "a_call_that_fails and not resumed"),
    ),
    "a cache keyed without the store": Bug(
        "engine/cache.py",
        {
            "self._blocks.get(key, {}).get(index": 'self._blocks.get("", {}).get(index',
            "self._blocks.setdefault(key, {})": 'self._blocks.setdefault("", {})',
        },
    ),
    "a resume that skips a pass": Bug(
        "stores/checkpoint.py",
        {
            "        if digest != fingerprint(work):": "        if digest is None:",
            "        self._next += 1\n        return (result,)": "        self._next += 2\n        return (result,)",
        },
        (CHECKPOINTS,),
    ),
    "a retry that counts twice": Bug(
        "engine/fold.py",
        {
            "total, tally = None, Tally()\n    with": "total, tally = vars(work).get(group.index), Tally()\n    with",
            "return total, tally.since": "vars(work)[group.index] = owned(total)\n    return total, tally.since",
        },
    ),
    "an index that is not shifted": Bug(
        "engine/fold.py",
        {"Block(group.first + position, source.start,": "Block(group.first + position, source.start - group.start,"},
        (SIMULATED, "-k", "errors or rows_come"),
    ),
    "an off-by-one block": Bug(
        "order.py",
        {"    cuts.append(len(sizes))\n": "    cuts.append(len(sizes) - (len(sizes) > 2))\n"},
        (RELATIONS, "-k", "blocks and ppca"),
    ),
    "a swapped pair of groups": Bug(
        "engine/session.py",
        {"for pair in sorted(entries))": "for pair in sorted(entries, key=lambda pair: pair[::-1]))"},
        (RELATIONS, "-k", "blocks and (kernel or embedd)"),
    ),
    "a float32 sum": Bug(
        "gaussian/moments.py",
        {"gram += chunk.T @ chunk": "gram += (chunk.T @ chunk).astype(np.float32)"},
        (RELATIONS, "-k", "ppca"),
    ),
    "a stale digest": Bug(
        "stores/checkpoint_codec.py",
        {'content.data.cast("B") if content.size else b""': 'b""'},
        (CHECKPOINTS, "-k", "another_fit or must_be_the_same"),
    ),
}


def found(bug: Bug, root: Path) -> float | None:
    """Seconds until a test failed in a copy with a bug; None where none did in time."""
    for name in ("dlatent", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    bug.plant(root)
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "worksteal", *bug.tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    started = time.perf_counter()
    try:
        run = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None
    if run.returncode == 0:
        return None
    assert " failed" in run.stdout, run.stdout + run.stderr  # not where the tests themselves could not run
    return time.perf_counter() - started


def main() -> int:
    missed = list[str]()
    for name in sys.argv[1:] or BUGS:
        with tempfile.TemporaryDirectory() as folder:
            seconds = found(BUGS[name], Path(folder))
        print(f"{name}: {'not found' if seconds is None else f'{seconds:.0f} s'}", flush=True)
        if seconds is None:
            missed.append(name)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
