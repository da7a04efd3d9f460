"""Progress: lines where there is no terminal, a bar where there is one, and an honest estimate of the time left."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlatent.cli.show import FitProgress, IngestProgress, Screen
from dlatent.engine.session import PassRecord
from dlatent.solvers.solver import Iteration


class Heard(Screen):
    """A screen that keeps what it is told."""

    def __init__(self, *, has_bar: bool = False) -> None:
        self.lines: list[str] = []
        self.bars: list[tuple[str, float, float | None, str]] = []
        self.has_bar = has_bar

    def line(self, text: str) -> None:
        self.lines.append(text)

    def bar(self, text: str, done: float, total: float | None, note: str = "") -> None:
        self.bars.append((text, done, total, note))


def record(name: str = "products", *, cached: int = 0, seconds: float = 2.0) -> PassRecord:
    return PassRecord(name, seconds, 0 if cached else 10_000_000, 4, cached, 4, 2.0)


def progress(screen: Screen, tolerance: float = 1e-9) -> FitProgress:
    told = FitProgress(screen, tolerance)
    told.on_plan(SimpleNamespace(bytes_per_pass=10_000_000, passes=12, solver="krylov", reason="few", machine="here"))
    return told


def test_one_line_per_pass_with_the_likelihood_that_follows_from_it() -> None:
    heard = Heard(has_bar=True)
    told = progress(heard)
    assert heard.lines == ["solver krylov (few), about 12 passes on here"]
    told.on_task(1, 4)
    told.on_pass(record())
    assert len(heard.lines) == 1
    told.on_iteration(Iteration(1, -123.5, float("nan"), float("nan"), 10))
    told.on_pass(record(cached=4))
    told.on_iteration(Iteration(2, -100.25, 23.25, 1e-2, 20))
    told.on_iteration(Iteration(3, -100.2, 0.05, 1e-2, 20))
    told.on_pass(record("check"))
    told.on_end()
    _, first, second, third = heard.lines
    assert re.match(r"pass   1  log-likelihood -123.5  5.0 MB/s  about 0:0\d left", first)
    assert re.match(r"pass   2  log-likelihood -100.25  change 2.325e\+01  5.0 MB/s from memory", second)
    assert third.startswith("pass   3  check  5.0 MB/s")
    assert heard.bars[0][:3] == ("pass 1", 1, 4)


def test_the_passes_left_follow_the_pace_of_convergence() -> None:
    told = progress(Heard(), tolerance=1e-9)
    told.on_pass(record())
    assert told.passes_left() == 11
    told.on_iteration(Iteration(1, -2.0, 1.0, 1e-3, 10))
    told.on_iteration(Iteration(2, -1.5, 0.5, 1e-5, 10))
    assert told.passes_left() == 2 + 1
    told.on_iteration(Iteration(3, -1.4, 0.1, 1e-5, 10))
    assert told.passes_left() is None
    told.on_iteration(Iteration(4, -1.4, 0.0, 1e-10, 10))
    assert told.passes_left() == 0 + 1


def test_long_fits_do_not_flood() -> None:
    heard = Heard()
    told = progress(heard)
    for number in range(1, 501):
        told.on_pass(record("expectation", seconds=1e-3))
        told.on_iteration(Iteration(number, -1.0 / number, 1e-3, float("nan"), 0))
    assert 20 <= len(heard.lines) < 60


def test_ingest_says_bytes_rows_speed_and_time() -> None:
    heard = Heard()
    told = IngestProgress(heard)
    for done in range(101):
        told(done * 1_000_000, 100_000_000, done * 10)
    assert len(heard.lines) == 10
    assert re.match(r"read 10.0 of 100.0 MB  100 rows  [\d,.]+ MB/s  about 0:0\d left", heard.lines[0])
    assert heard.bars[-1][:3] == ("reading", 100_000_000, 100_000_000)
    told(5, None, 1)
    assert "1 row " in heard.bars[-1][3]
    assert "left" not in heard.bars[-1][3]


def test_a_fit_without_a_terminal_writes_plain_lines(run, store: Path, tmp_path: Path) -> None:
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--solver", "krylov", "--json")
    lines = said.err.splitlines()
    assert lines[0].startswith("solver krylov")
    assert any(re.match(r"pass   1  log-likelihood -?[\d.]+ .*MB/s", line) for line in lines)
    assert "\x1b" not in said.err
    assert said.json["passes"] == sum(line.startswith("pass ") for line in lines)


def test_quiet_says_nothing(run, store: Path, tmp_path: Path) -> None:
    assert run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--quiet").err == ""


def test_a_terminal_has_a_bar_and_json_stays_clean(
    run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--solver", "krylov", "--json")
    assert said.json["converged"]
    assert "\x1b[" in said.err
    assert "pass   1" in said.err
