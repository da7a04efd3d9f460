"""A command that fails says why in one message, ends with its status, and leaves nothing written."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dlatent
from dlatent.cli import ENGINE_LOST, cluster
from dlatent.cli.main import main


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_wrong_words_are_usage_errors(run, store: Path) -> None:
    for words in (
        [],
        ["fly"],
        ["fit", "ppca", store, "-k", "2"],
        ["fit", "ppca", store, "-k", "0", "-o", "m.zarr"],
        ["fit", "ppca", store, "-k", "2", "-o", "m.zarr", "--noise-floor", "2"],
        ["fit", "ppca", store, "-k", "2", "-o", "m.zarr", "--tol", "small"],
        ["fit", "ppca", store, "-k", "2", "-o", "m.zarr", "--labels", "#kind"],
        ["fit", "ppca", store, "-k", "2", "-o", "m.zarr", "--workers", "2", "--scheduler", "tcp://x:1"],
        ["ingest", "a.csv", "b.zarr", "--block-size", "much"],
    ):
        said = run(*words)
        assert said.status == 2, words
        assert said.err.startswith("usage: dlatent")
        assert said.out == ""


def test_limits_of_workers_need_workers(run, store: Path, tmp_path: Path) -> None:
    said = run("plan", "ppca", store, "-k", "2", "--memory-limit", "1GiB")
    assert said.status == 2
    assert "--workers N" in said.err
    said = run("plan", "ppca", store, "-k", "2", "--workers", "1", "--memory-limit", "plenty")
    assert said.status == 2
    assert "plenty" in said.err
    said = run("plan", "ppca", store, "-k", "2", "--bandwidth", "1MB", "--price", "1")
    assert said.status == 2
    assert "--bandwidth, --price is said of workers that are not there" in said.err
    said = run("plan", "ppca", store, "-k", "2", "--workers", "1", "--price", "-1")
    assert said.status == 2
    assert "price of Workers must be above 0" in said.err


def test_what_is_emitted_needs_the_size_of_the_cluster_and_is_no_json(run, store: Path) -> None:
    words = ["plan", "ppca", store, "-k", "2", "--emit", "kubernetes"]
    sized = ["--workers", "1", "--memory-limit", "1GiB"]
    for more, said in (
        (sized[:2], "--memory-limit SIZE"),
        (["--scheduler", "tcp://x:1"], "--workers N"),
        ([*sized, "--json"], "YAML"),
    ):
        ended = run(*words, *more)
        assert (ended.status, ended.out) == (2, "")
        assert said in ended.err


def test_bad_data_and_stores_leave_nothing(run, store: Path, model: Path, tmp_path: Path) -> None:
    bad = tmp_path / "in"
    bad.mkdir()
    np.save(bad / "nan.npy", np.array([[1.0, np.nan], [2.0, 3.0]]))
    (bad / "nothing.txt").write_text("no store")
    before = entries(tmp_path)
    out = tmp_path / "out.zarr"
    for words, text in (
        (["ingest", bad / "nan.npy", out], "nan"),
        (["ingest", bad / "absent.csv", out], "absent.csv does not exist"),
        (["plan", "ppca", bad / "absent", "-k", "1"], "is there); check the path"),
        (["fit", "ppca", bad / "nothing.txt", "-k", "1", "-o", out], "dlatent ingest"),
        (["fit", "ppca", store, "-k", "10", "-o", out], "at most 9"),
        (["fit", "ppca", model, "-k", "1", "-o", out], "saved result and no data"),
        (["fit", "supervised", store, "-k", "1", "-o", out, "--labels", "#colour"], "colour"),
        (["fit", "supervised", store, "-k", "1", "-o", out, "--unlabelled", "cow"], "'cow'"),
        (["transform", store, store, "-o", out], "expected 'result'"),
        (["transform", model, model, "-o", out], "saved result and no data"),
        (["transform", model, store, "-o", out, "--labels", "#kind"], "PPCA, which has no labels"),
        (["inspect", bad], "is no Zarr store"),
    ):
        said = run(*words, *(["--json"] if words[0] != "inspect" else []))
        assert said.status == 3, (words, said.err)
        assert said.out == ""
        lines = [line for line in said.err.splitlines() if line.startswith("dlatent: ")]
        assert text.lower() in lines[-1].lower(), (words, said.err)
        assert "Traceback" not in said.err
        assert entries(tmp_path) == before


def test_a_taken_destination_is_refused_before_any_work(run, store: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("dear diary")
    before = entries(tmp_path)
    for words in (["fit", "ppca", store, "-k", "1", "-o"], ["transform", model, store, "-o"], ["ingest", "absent.csv"]):
        said = run(*words, tmp_path / "notes")
        assert said.status == 3
        assert "--overwrite" in said.err
        said = run(*words, tmp_path / "notes", "--overwrite")
        assert said.status == 3
        assert "is no Zarr store, so it is not replaced" in said.err
    assert entries(tmp_path) == before


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (dlatent.PlanError("too large; use fewer components"), 4),
        (dlatent.EngineError("the cluster is gone; start one"), 5),
        (KeyboardInterrupt(), 130),
        (RuntimeError("surprise"), 1),
    ],
)
def test_failures_in_a_fit_have_their_status(
    run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(dlatent.PPCA, "fit", fail)
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--json")
    assert said.status == status
    assert said.out == ""
    assert str(error) in said.err
    assert "Traceback" not in said.err
    assert entries(tmp_path) == []
    assert "Traceback" in run("--debug", "fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr").err


def test_a_fit_that_does_not_fit_in_memory_is_refused(
    run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlatent.engine.executor.memory", lambda: 2**20)
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr")
    assert said.status == 4
    assert "does not fit" in said.err
    assert entries(tmp_path) == []


def test_a_scheduler_that_does_not_answer(run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    said = run("plan", "ppca", store, "-k", "2", "--scheduler", "tcp://127.0.0.1:9")
    assert said.status == 5
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in said.err
    assert run("plan", "ppca", store, "-k", "2", "--scheduler", "nonsense://x").status == 5


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(model: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dlatent.cli.main", "inspect", str(model)]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_commands_themselves_import_nothing_heavy() -> None:
    script = (
        "import sys; import dlatent.cli.main as cli; cli.main(['--help']); "
        "heavy = {'numpy', 'scipy', 'dask', 'distributed', 'zarr', 'xarray', 'rich', 'sklearn'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_command_runs_where_an_event_loop_does(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    words = ["fit", "ppca", str(store), "-k", "2", "-o", str(tmp_path / "m.zarr"), "--scheduler", "127.0.0.1:9"]

    async def run() -> int:
        return main(words)

    assert asyncio.run(run()) == ENGINE_LOST
    assert "no Dask scheduler answers at 127.0.0.1:9" in capsys.readouterr().err
