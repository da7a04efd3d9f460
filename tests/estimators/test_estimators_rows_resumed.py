"""Stores of rows whose writer was interrupted: the next call goes on behind the stages that were finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    FactorAnalysis,
    KernelPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    SupervisedPPCA,
    open_data,
    verify,
)
from dlatent.cli.main import main
from dlatent.errors import DataError, StoreError
from dlatent.models.checkpoints import RowsJournal
from dlatent.stores.checkpoint import Checkpoint
from dlatent.stores.sinks import RowSink
from tests.fitted import FirstUse

rng = np.random.default_rng(0)
SMALL = rng.normal(size=(240, 3)) @ rng.normal(size=(3, 24)) + 0.2 * rng.normal(size=(240, 24))
LABELS = np.arange(240) % 3
HOLES = np.where(rng.random(SMALL.shape) < 0.1, np.nan, SMALL)
LONG = np.tile(SMALL, (20, 1)) + 0.1 * rng.normal(size=(4800, 24))
"""What is read in blocks of 100 rows."""


@cache
def views() -> CorrespondencePPCA:
    pairs = np.column_stack([np.arange(240)] * 2)
    return CorrespondencePPCA(3).fit({"a": SMALL[:, :14], "b": SMALL[:, 14:]}, correspondence=pairs)


WRITERS = FirstUse(
    {
        "scores": lambda: PPCA(3).fit(SMALL).transform,
        "factor scores": lambda: FactorAnalysis(2).fit(SMALL).transform,
        "supervised": lambda: SupervisedPPCA(3).fit(SMALL, LABELS).transform,
        "imputed": lambda: PPCA(3, missing="nan").fit(HOLES).impute,
        "responsibilities": lambda: PPCAMixture(2, n_mixtures=2).fit(SMALL).predict_proba,
        "kernel": lambda: KernelPPCA(3, kernel="rbf", gamma=0.01).fit(SMALL).transform,
        "embedding": lambda: LocallyLinearEmbedding(n_neighbors=10).fit(SMALL).transform,
        "a view": lambda: lambda X, **more: views().transform({"a": X}, **more),
        "another view": lambda: lambda X, **more: views().reconstruct(X, "a", "b", **more),
    }
)
"""Methods that write a store of rows, by name, each of a fitted model."""
QUICK = ("scores", "a view")


def rows(name: str) -> np.ndarray:
    return LONG[:, :14] if "view" in name else LONG


@pytest.fixture
def many_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass has many groups and stages, as one over large data."""
    monkeypatch.setattr("dlatent.engine.session.GROUPS_EACH", 1)
    monkeypatch.setattr("dlatent.order.SMALL_GROUP_BYTES", 1)


def stored(path: Path, values: np.ndarray, step: int = 100) -> Any:
    zarr.create_array(path, data=values, chunks=(step, values.shape[1]))
    return open_data(path, block_bytes=step * 8 * values.shape[1])


def files(path: Path) -> dict[str, bytes]:
    """The chunks of a store; its metadata have a seal of their own in each."""
    found = (file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in found}


def stopped_after(monkeypatch: pytest.MonkeyPatch, writes: int, call: Callable[[], Any]) -> list[int]:
    """Make a call that is interrupted in the write after so many; the first rows that were written."""
    done, write = list[int](), RowSink.write

    def counted(self: RowSink, start: int, values: np.ndarray) -> int:
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(start)
        return write(self, start, values)

    with monkeypatch.context() as patched:
        patched.setattr(RowSink, "write", counted)
        if writes < 10_000:
            with pytest.raises(KeyboardInterrupt):
                call()
        else:
            call()
    return done


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in WRITERS if name not in QUICK)]
)
@pytest.mark.usefixtures("many_stages")
def test_a_store_goes_on_behind_its_finished_stages(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out, write = stored(tmp_path / "x.zarr", rows(name)), tmp_path / "out.zarr", WRITERS[name]
    write(data, out=tmp_path / "whole.zarr", client="serial")
    begin = lambda: write(data, out=out, resume=True, client="serial")  # noqa: E731
    first = stopped_after(monkeypatch, 30, begin)
    assert not out.exists()
    assert (tmp_path / "out.zarr.checkpoint").is_dir()
    second = stopped_after(monkeypatch, 10_000, begin)
    # A stage is 16 blocks here at most.
    assert 48 - len(first) <= len(second) <= 48 - len(first) + 16
    assert files(out) == files(tmp_path / "whole.zarr")
    assert verify(out).intact
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zarr", "whole.zarr", "x.zarr"]


@pytest.mark.usefixtures("many_stages")
def test_other_data_and_other_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = stored(tmp_path / "x.zarr", LONG), tmp_path / "out.zarr"
    other = stored(tmp_path / "y.zarr", LONG[::-1].copy())
    stopped_after(monkeypatch, 30, lambda: WRITERS["scores"](data, out=out, resume=True, client="serial"))
    with pytest.raises(StoreError, match=r"out.zarr.checkpoint is the checkpoint of .* data values was"):
        WRITERS["scores"](other, out=out, resume=True, client="serial")
    with pytest.raises(StoreError, match="model was"):
        PPCA(2).fit(SMALL).transform(data, out=out, resume=True, client="serial")
    with pytest.raises(DataError, match="resume=True needs a store"):
        WRITERS["scores"](LONG, resume=True)
    # A call that does not go on begins with nothing, and so does the next.
    WRITERS["scores"](data, out=out, client="serial")
    again = lambda: WRITERS["scores"](data, out=out, overwrite=True, resume=True, client="serial")  # noqa: E731
    assert len(stopped_after(monkeypatch, 10_000, again)) == 48
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zarr", "x.zarr", "y.zarr"]


@pytest.mark.usefixtures("many_stages")
def test_object_stores_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = stored(tmp_path / "x.zarr", LONG), "memory://resumed/out.zarr"
    begin = lambda: WRITERS["scores"](data, out=out, resume=True, client="serial")  # noqa: E731
    first = stopped_after(monkeypatch, 30, begin)
    with pytest.raises(StoreError, match="half-written"):
        open_data(out)
    assert len(stopped_after(monkeypatch, 10_000, begin)) <= 48 - len(first) + 16
    np.testing.assert_array_equal(zarr.open_array(f"{out}/scores")[:], PPCA(3).fit(SMALL).transform(LONG))
    with pytest.raises(StoreError, match="already exists"):
        begin()


def test_the_command_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=LONG, chunks=(100, 24))
    PPCA(3).fit(SMALL).save(tmp_path / "m.zarr")
    command = ["transform", str(tmp_path / "m.zarr"), str(tmp_path / "x.zarr"), "-o", str(tmp_path / "out.zarr")]

    def stop(self: RowSink, start: int, values: np.ndarray) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(RowSink, "write", stop)
    assert main([*command, "--resume"]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert os.path.isdir(tmp_path / "out.zarr.checkpoint")
    assert main(command) == 130
    assert "goes on" not in capsys.readouterr().err


def test_a_checkpoint_does_not_say_what_is_written_or_removed(tmp_path: Path) -> None:
    """Whoever writes one could else have a call of another user replace what only that user may."""
    out, theirs = tmp_path / "scores.zarr", tmp_path / "theirs" / ".x.zarr.partial-1"
    RowSink.create(tmp_path / "theirs" / "x.zarr", (4, 2), starts=[0])
    (partial,) = (tmp_path / "theirs").iterdir()
    partial.rename(theirs)
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    forged = RowSink(str(theirs.parent / "x.zarr"), str(theirs), "scores", (4, 2), "<f8", 4, True)
    checkpoint = Checkpoint(tmp_path / "c", {}, {}, resume=True)
    checkpoint.record("sink", forged)
    checkpoint.close()
    checkpoint = Checkpoint(tmp_path / "c", {}, {}, resume=True)
    sink = RowsJournal(checkpoint, out).sink(lambda: RowSink.create(out, (4, 2), starts=[0]))
    sink.write(0, np.ones((4, 2)))
    sink.finish()
    checkpoint.close()
    assert out.is_dir()
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before
    assert not (theirs.parent / "x.zarr").exists()
