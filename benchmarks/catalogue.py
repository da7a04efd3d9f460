"""All cases by name."""

from __future__ import annotations

from benchmarks.cases import beyond_memory, comparison, exactness, faces, newsgroups, planner
from benchmarks.task import Case

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        newsgroups.CASE,
        faces.CASE,
        exactness.CASE,
        beyond_memory.CASE,
        planner.CASE,
        comparison.TALL,
        comparison.WIDE,
        comparison.TEXT,
    )
}
