"""Fits that go on from a checkpoint: what comes out is bit for bit that of a fit that was not interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dlatent
from dlatent import PPCA, Callback, FactorAnalysis, KernelPPCA, RelationalSupervisedPPCA
from dlatent.errors import DataError, StoreError
from tests.fits import FITS, LABELS, PATH, WIDE, Fit, X, bits


class Interrupted(Exception):
    """What stops a fit here."""


def stopped(fit: Fit, place: Path, passes: int, **more: Any) -> int:
    """Fit until some passes have ended; how many there were."""
    seen = []

    def count(record: Any) -> None:
        seen.append(record)
        if len(seen) == passes:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(checkpoint=place, callbacks=[Callback(on_pass=count)], **more)
    return len(seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_a_fit_goes_on_to_the_bits_of_one_that_was_not_interrupted(name: str, tmp_path: Path) -> None:
    fit, records = FITS[name], list[Any]()
    whole = fit(client="serial")
    fit(client="serial", checkpoint=tmp_path / "whole", callbacks=[Callback(on_pass=records.append)])
    for at in sorted({1, max(1, len(records) // 2), len(records)}):
        place = tmp_path / f"at {at}"
        stopped(fit, place, at, client="serial")
        entries = len(list(place.glob("*.npz")))
        again = fit(client="serial", checkpoint=place, resume=True)
        assert bits(again) == bits(whole)
        assert len(list(place.glob("*.npz"))) >= entries
        assert bits(fit(client="serial", checkpoint=place, resume=True)) == bits(whole)


def test_a_stored_kernel_is_written_again_and_read_on(tmp_path: Path) -> None:
    def fit(**more: Any) -> Any:
        return KernelPPCA(3, solver="stored", kernel_store=tmp_path / "k.zarr").fit(X, client="serial", **more)

    whole = fit()
    stopped(fit, tmp_path / "c", 6)
    assert bits(fit(checkpoint=tmp_path / "c", resume=True)) == bits(whole)


def test_a_long_pass_goes_on_in_its_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlatent.engine.session.GROUPS_EACH", 1)
    array = zarr.create_array(tmp_path / "x.zarr", shape=(16_000, 300), chunks=(125, 300), dtype="f8")
    array[:] = np.random.default_rng(1).normal(size=array.shape)
    model = PPCA(2, solver="covariance")
    whole, seen, told = model.fit(tmp_path / "x.zarr", client="serial"), [], list[tuple[int, int]]()

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        seen.append(done)
        if len(seen) == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        model.fit(tmp_path / "x.zarr", client="serial", checkpoint=tmp_path / "c", callbacks=[Callback(on_task=stop)])
    assert len(list((tmp_path / "c").glob("*.npz"))) == 5
    assert {total for _, total in told} == {len(whole.history_["pass_blocks"]) and told[0][1]}
    read = list[Any]()
    again = PPCA(2, solver="covariance").fit(
        tmp_path / "x.zarr",
        client="serial",
        checkpoint=tmp_path / "c",
        resume=True,
        callbacks=[Callback(on_task=lambda done, total: read.append(done))],
    )
    assert min(read) == 6
    assert bits(again) == bits(PPCA(2, solver="covariance").fit(tmp_path / "x.zarr", client="serial"))


def test_a_long_pass_goes_on_with_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlatent.engine.session.GROUPS_EACH", 1)
    array = zarr.create_array(tmp_path / "x.zarr", shape=(16_000, 300), chunks=(125, 300), dtype="f8")
    array[:] = np.random.default_rng(1).normal(size=array.shape)

    def fit(threads: int, callback: Callback) -> Any:
        monkeypatch.setattr("dlatent.passes.Resources.total_threads", property(lambda _: threads))
        more = {"checkpoint": tmp_path / "c", "resume": True, "callbacks": [callback], "client": "serial"}
        return PPCA(2, solver="covariance").fit(tmp_path / "x.zarr", **more)

    def stop(done: int, total: int) -> None:
        if done == total - 1:
            raise Interrupted

    told = list[int]()
    with pytest.raises(Interrupted):
        fit(1, Callback(on_task=stop))
    kept = len(list((tmp_path / "c").glob("*.npz")))
    fit(100, Callback(on_task=lambda done, _: told.append(done)))
    assert kept > 3
    assert min(told) > kept // 2
    assert len(list((tmp_path / "c").glob("*.npz"))) > kept


def test_a_checkpoint_of_another_fit_is_refused_with_what_differs(tmp_path: Path) -> None:
    PPCA(3).fit(X, checkpoint=tmp_path / "c")
    with pytest.raises(StoreError, match="go on with resume=True"):
        PPCA(3).fit(X, checkpoint=tmp_path / "c")
    with pytest.raises(StoreError, match="parameters n_components was 3 and is 4"):
        PPCA(4).fit(X, checkpoint=tmp_path / "c", resume=True)
    with pytest.raises(StoreError, match="model was 'PPCA' and is 'FactorAnalysis'"):
        FactorAnalysis(3).fit(X, checkpoint=tmp_path / "c", resume=True)
    with pytest.raises(StoreError, match=r"data shape was \[48, 8\] and is \[40, 8\]"):
        PPCA(3).fit(X[:40], checkpoint=tmp_path / "c", resume=True)
    other = X.copy()
    other[37, 5] = np.nextafter(other[37, 5], 9)
    with pytest.raises(StoreError, match="data values was"):
        PPCA(3).fit(other, checkpoint=tmp_path / "c", resume=True)
    header = json.loads((tmp_path / "c" / "fit.json").read_text())
    header["about"]["versions"]["dlatent"] = "0.0.1"
    (tmp_path / "c" / "fit.json").write_text(json.dumps(header))
    with pytest.raises(StoreError, match=r"versions dlatent was '0.0.1' and is"):
        PPCA(3).fit(X, checkpoint=tmp_path / "c", resume=True)


def test_targets_and_graphs_of_a_checkpoint_must_be_the_same(tmp_path: Path) -> None:
    RelationalSupervisedPPCA(2).fit(X, LABELS, graph=PATH, checkpoint=tmp_path / "c")
    labels, graph = LABELS.copy(), PATH.copy()
    labels[-1] = 1 - labels[-1]
    graph.data[:] = 2.0
    with pytest.raises(StoreError, match="targets was"):
        RelationalSupervisedPPCA(2).fit(X, labels, graph=PATH, checkpoint=tmp_path / "c", resume=True)
    with pytest.raises(StoreError, match="graph rows was"):
        RelationalSupervisedPPCA(2).fit(X, LABELS, graph=graph, checkpoint=tmp_path / "c", resume=True)


def test_what_could_not_be_made_again_has_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="random_state is None"):
        PPCA(3, random_state=None).fit(X, checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match="resume=True needs the place"):
        PPCA(3).fit(X, resume=True)
    assert not (tmp_path / "c").exists()


def test_the_plan_of_a_checkpoint_holds_on_another_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PPCA(3, solver="krylov").fit(WIDE, client="serial")
    fit = lambda **more: PPCA(3).fit(WIDE, client="serial", **more)  # noqa: E731
    monkeypatch.setattr("dlatent.solvers.moments.solver.CovarianceSolver.misfit", lambda self, problem: "not now")
    monkeypatch.setattr("dlatent.solvers.gram.GramSolver.misfit", lambda self, problem: "not now")
    stopped(fit, tmp_path / "c", 3)
    monkeypatch.undo()
    again = fit(checkpoint=tmp_path / "c", resume=True)
    assert again.plan_["solver"] == "krylov"
    np.testing.assert_array_equal(again.components_, whole.components_)


def test_object_stores_hold_checkpoints() -> None:
    place = "memory://checkpoints/one"
    whole = PPCA(2, solver="krylov").fit(WIDE, client="serial")
    stopped(FITS["krylov"], place, 4, client="serial")  # type: ignore[arg-type]
    assert bits(FITS["krylov"](client="serial", checkpoint=place, resume=True)) == bits(whole)


def test_public_models_take_checkpoints() -> None:
    import inspect

    for name in dlatent.__all__:
        fit = getattr(getattr(dlatent, name), "fit", None)
        if fit is not None:
            assert {"checkpoint", "resume"} <= set(inspect.signature(fit).parameters), name
