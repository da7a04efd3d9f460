"""Numbers as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median, stdev
from typing import Any

from benchmarks.task import Check, Row

MIB = 2**20


def markdown(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; floats with four significant digits, None as a dash."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join(shown(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A value as it stands in a cell."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|")


def mean_and_spread(values: Sequence[float] | None) -> str | None:
    """Mean ± standard deviation; of one value the value."""
    if values is None:
        return None
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by key, in the order of their first appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def middle(rows: Iterable[Row], name: str) -> float | None:
    """The median of a number over the rows that have it."""
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(median(values)) if values else None


def largest(rows: Iterable[Row], name: str) -> float | None:
    """The largest of a number over the rows that have it."""
    return max((row[name] for row in rows if row.get(name) is not None), default=None)


def mebibytes(value: float | None) -> str | None:
    """Bytes as MiB."""
    return None if value is None else f"{value / MIB:.0f}"


def ratio(rows: Sequence[Row], reference: Sequence[Row], name: str = "fit_seconds") -> float | None:
    """Median time over the reference's median in the same run; the median of that over runs."""
    base = grouped(reference, lambda row: row["run"])
    ratios = []
    for run, own in grouped(rows, lambda row: row["run"]).items():
        a, b = middle(own, name), middle(base.get(run, []), name)
        if a is not None and b:
            ratios.append(a / b)
    return float(median(ratios)) if ratios else None


def requirements(checks: Iterable[Check]) -> str:
    """The requirements as a list."""
    lines = [f"- {'met' if check.passed else '**not met**'}: {check.text}" for check in checks]
    return "\n".join(lines)


def not_run(rows: Iterable[Row]) -> str:
    """The tasks without a result, with the reasons."""
    found = {f"- {row['task']}: {row['status']}: {row['reason']}": None for row in rows if row["status"] != "ok"}
    return "\n".join(found)
