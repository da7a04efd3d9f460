"""All cases by name."""

from __future__ import annotations

from benchmarks.cases import (
    beyond_memory,
    citations,
    comparison,
    correspondence_images,
    correspondence_scale,
    correspondence_words,
    exactness,
    faces,
    factors,
    graph,
    growth,
    kernel_memory,
    kernels,
    lle_scale,
    lle_sheets,
    nan_passes,
    nan_speed,
    newsgroups,
    newsgroups_classes,
    overhead,
    planner,
    profile,
    ratings,
    scaling,
    yeast,
)
from benchmarks.task import Case

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        newsgroups.CASE,
        faces.CASE,
        newsgroups_classes.CASE,
        yeast.CASE,
        citations.CASE,
        exactness.CASE,
        beyond_memory.CASE,
        beyond_memory.BIG,
        graph.CASE,
        planner.CASE,
        comparison.TALL,
        comparison.WIDE,
        comparison.TEXT,
        comparison.NEWSGROUPS,
        nan_passes.CASE,
        factors.CASE,
        nan_speed.TALL,
        nan_speed.LARGE,
        nan_speed.MEMORY,
        ratings.CASE,
        kernels.CASE,
        kernel_memory.CASE,
        correspondence_images.CASE,
        correspondence_words.CASE,
        correspondence_scale.CASE,
        lle_sheets.CASE,
        lle_scale.CASE,
        growth.CASE,
        overhead.CASE,
        scaling.CASE,
        profile.CASE,
    )
}
