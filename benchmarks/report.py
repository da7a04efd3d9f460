"""From JSON lines to a page: the machine, a table and the requirements per case, and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.catalogue import CASES
from benchmarks.machine import in_words
from benchmarks.table import grouped, requirements
from benchmarks.task import Row


def read(files: Iterable[Path]) -> list[Row]:
    """The rows of some files, in order."""
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]


def page(rows: list[Row], pictures: Path | None = None) -> str:
    """The report in Markdown; with `pictures`, also drawn into that folder and linked by file name."""
    parts = ["# Results of the benchmarks", ""]
    for name, own in grouped(rows, lambda row: row["case"]).items():
        case = CASES[name]
        summary = case.summarise(own)
        parts += [f"## {name}: {case.title}", "", _conditions(own), "", summary.markdown, ""]
        if summary.checks:
            parts += ["Requirements:", "", requirements(summary.checks), ""]
        if pictures is not None and case.draw is not None:
            parts += [f"![{path.stem}]({path.name})\n" for path in case.draw(own, pictures)]
    return "\n".join(parts).rstrip() + "\n"


def _conditions(rows: list[Row]) -> str:
    """Machine, versions, scale and load of the rows."""
    first = rows[0]
    versions: dict[str, dict[str, None]] = {}  # all that any row has seen, in order
    for row in rows:
        for name, version in row.get("versions", {}).items():
            versions.setdefault(name, {})[version] = None
    loads = sorted(row["load"] for row in rows)
    scales = sorted({row["scale"] for row in rows})
    repeats = max(row["repeat"] for row in rows) + 1
    words = [
        in_words(first["machine"]),
        ", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items()) + ".",
        f"{first['time'][:10]}, repeats: {repeats}, load average {loads[0]:.1f} to {loads[-1]:.1f}"
        + ("" if scales == [1.0] else f", **reduced size: scale {scales}**")
        + ".",
    ]
    return " ".join(words)


def all_met(rows: list[Row]) -> bool:
    """Whether every requirement is met and no task failed."""
    groups = grouped(rows, lambda row: row["case"]).items()
    checks = [check for name, own in groups for check in CASES[name].summarise(own).checks]
    return all(check.passed for check in checks) and not any(row["status"] == "failed" for row in rows)
