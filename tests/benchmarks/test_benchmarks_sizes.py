"""The table of sizes in the documentation is what the planner projects."""

from __future__ import annotations

from pathlib import Path

from benchmarks import sizes

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "sizing.md"


def test_the_table_of_the_page_is_that_of_the_planner() -> None:
    assert sizes.table() in PAGE.read_text()


def test_more_workers_take_less_time_until_moving_takes_it() -> None:
    times = [sizes.plan(10**7, 10**5, workers, sparse=False).duration for workers in (200, 400, 800, 2000, 4000)]
    computing = [time.computing for time in times if time is not None]
    moving = [time.moving for time in times if time is not None]
    assert computing == sorted(computing, reverse=True)
    assert moving == sorted(moving)
    assert computing[-1] == computing[-2]  # a pass has at most 1024 groups
