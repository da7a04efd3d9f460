"""No fit makes more passes, or reads more, than its plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dlatent import (
    PPCA,
    Callback,
    CorrespondencePPCA,
    FactorAnalysis,
    GraphPPCA,
    KernelPPCA,
    KernelSupervisedPPCA,
    PlanError,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
    Workers,
)

MIB, GIB = 2**20, 2**30
ROWS, COLUMNS = 300, 20
CHAIN = sp.csr_array(sp.diags_array([np.ones(ROWS - 1)] * 2, offsets=[-1, 1]))
Y = np.arange(ROWS) % 3
PAIRS = np.column_stack([np.arange(ROWS)] * 2)[:200]
FITS: dict[str, tuple[Any, str, tuple[Any, ...], dict[str, Any]]] = {
    "covariance": (PPCA(3, solver="covariance"), "rows", (), {}),
    "krylov": (PPCA(3, solver="krylov"), "rows", (), {}),
    "gram": (PPCA(3, solver="gram"), "wide", (), {}),
    "missing": (PPCA(3, missing="nan"), "holes", (), {}),
    "student": (PPCA(3, likelihood="student"), "rows", (), {}),
    "factor analysis": (FactorAnalysis(1), "rows", (), {}),
    "factor analysis, missing": (FactorAnalysis(1, missing="nan"), "holes", (), {}),
    "supervised": (SupervisedPPCA(3), "rows", (Y,), {}),
    "partly labelled": (SupervisedPPCA(3), "rows", (np.where(np.arange(ROWS) % 2, Y, -1),), {}),
    "mixture": (PPCAMixture(2, n_mixtures=2), "rows", (), {}),
    "kernel": (KernelPPCA(3, kernel="rbf"), "rows", (), {}),
    "kernel, recomputed": (KernelPPCA(3, kernel="rbf", solver="recomputed"), "rows", (), {}),
    "kernel, landmarks": (KernelPPCA(3, kernel="rbf", landmarks=50), "rows", (), {}),
    "kernel, supervised": (KernelSupervisedPPCA(3, kernel="rbf"), "rows", (Y,), {}),
    "relational": (RelationalPPCA(3), "rows", (), {"graph": CHAIN}),
    "relational, krylov": (RelationalPPCA(3, solver="krylov"), "rows", (), {"graph": CHAIN}),
    "relational, supervised": (RelationalSupervisedPPCA(3), "rows", (Y,), {"graph": CHAIN}),
    "smoothed": (GraphPPCA(3, smoothing=1.0), "rows", (), {"graph": CHAIN}),
    "smoothing chosen": (GraphPPCA(3), "rows", (), {"graph": CHAIN}),
    "smoothing chosen, smooth": (GraphPPCA(3), "smooth", (), {"graph": CHAIN}),
    "smoothing chosen, three hops": (GraphPPCA(3, hops=3), "smooth", (), {"graph": CHAIN}),
    "smoothing chosen, krylov": (GraphPPCA(3, solver="krylov"), "rows", (), {"graph": CHAIN}),
    "smoothing chosen, smooth, krylov": (GraphPPCA(3, solver="krylov"), "smooth", (), {"graph": CHAIN}),
    "smoothing chosen, sparse": (GraphPPCA(3), "sparse", (), {"graph": CHAIN}),
    "smoothing chosen, missing": (GraphPPCA(3, missing="nan"), "holes", (), {"graph": CHAIN}),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Data by name, in stores of six blocks, and views."""
    folder, rng = tmp_path_factory.mktemp("stores"), np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, COLUMNS)) + rng.normal(size=(ROWS, COLUMNS))
    walk = np.cumsum(rng.normal(size=(ROWS, 3)), axis=0) @ rng.normal(size=(3, COLUMNS))
    arrays = {
        "rows": rows,
        "smooth": walk + 5.0 * rng.normal(size=walk.shape),
        "holes": np.where(rng.random(rows.shape) < 0.1, np.nan, rows),
        "wide": rows[:60] @ rng.normal(size=(COLUMNS, 400)),
    }
    for name, values in arrays.items():
        zarr.create_array(folder / f"{name}.zarr", data=values, chunks=(len(values) // 6, values.shape[1]))
    found: dict[str, Any] = {name: str(folder / f"{name}.zarr") for name in arrays}
    return found | {"sparse": sp.csr_array(np.where(rows > 1.0, rows, 0.0))}


def read_of(model: Any) -> int:
    """Bytes that the passes of a fit have read, but for the look at its first block."""
    history = model.history_
    return int(history["pass_bytes_read"].values[history["pass_name"].values != "initial mean"].sum())


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore")
def test_a_fit_makes_no_more_passes_and_reads_no_more_than_planned(stores: Any, name: str) -> None:
    model, data, targets, more = FITS[name]
    plan = model.plan(stores[data], *targets, client="serial", **more)
    told = list[Any]()
    model.fit(stores[data], *targets, client="serial", callbacks=[Callback(on_plan=told.append)], **more)
    assert [one.figures() for one in told] == [plan.figures()]
    assert model.n_passes_ <= plan.passes
    own = plan.task.data.nbytes if plan.task.data.in_memory else 0
    assert read_of(model) <= plan.bytes_total + own
    if name.startswith("smoothing chosen") and plan.solver == "covariance":
        assert (plan.passes, model.n_passes_) == (7, 7), "the mean, three of f², two of f, and the fit"
        assert "λ of 6 by hidden cells, in the first of these passes" in str(plan)


@pytest.mark.filterwarnings("ignore")
def test_a_fit_to_views_makes_no_more_passes_than_planned(stores: Any) -> None:
    views = {"one": stores["rows"], "two": stores["smooth"]}
    model = CorrespondencePPCA(2)
    plan = model.plan(views, correspondence=PAIRS, client="serial")
    model.fit(views, correspondence=PAIRS, client="serial")
    assert model.n_passes_ <= plan.passes
    assert read_of(model) <= plan.bytes_total


@pytest.mark.parametrize("pause", [0.8, 0.6])
def test_a_plan_stays_below_the_part_at_which_dask_pauses_workers(pause: float) -> None:
    """6 GB of rows in a chain, which two workers of a gibibyte were to hold 921 MiB of."""
    rows, columns = 3_000_000, 250
    data = da.zeros((rows, columns), chunks=(3_000, columns))
    chain = sp.csr_array(sp.diags_array([np.ones(rows - 1, dtype="f4")] * 2, offsets=[-1, 1]))
    plan = RelationalPPCA(3).plan(data, graph=chain, client=Workers(2, "1GiB", pause=pause))
    assert plan.worker_memory <= pause * GIB
    assert plan.worker_limit == int(pause * GIB)
    assert f"of {pause * 1024:.1f} MiB left before Dask pauses it" in str(plan)


def test_what_fits_a_worker_but_not_before_it_is_paused_is_refused() -> None:
    data = da.zeros((1_000_000, 4_000), chunks=(1_000, 4_000))
    needed = PPCA(3, solver="covariance").plan(data, client=Workers(2, "8GiB")).worker_memory
    model, memory = PPCA(3, solver="covariance"), int(needed / 0.85) + 2
    with pytest.raises(PlanError, match="left before Dask pauses it"):
        model.plan(data, client=Workers(2, memory))
    assert model.plan(data, client=Workers(2, memory, pause=0.85)).worker_memory == needed


@pytest.mark.parametrize("model", [PPCA(5), FactorAnalysis(5), PPCAMixture(3, n_mixtures=2)], ids=repr)
def test_an_array_that_does_not_fit_as_it_travels_is_to_be_written_to_a_store(model: Any, tmp_path: Path) -> None:
    """160 MB of rows for a worker of 400 MB, which would hold them twice."""
    workers = Workers(1, "400MB")
    with pytest.raises(PlanError, match=r"Ways out: write it to a store, .*\(dlatent ingest\)") as caught:
        model.plan(np.zeros((100_000, 200)), client=workers)
    assert "fewer components" not in str(caught.value)
    zarr.create_array(tmp_path / "x.zarr", shape=(100_000, 200), chunks=(2_000, 200), dtype="f8")
    assert model.plan(str(tmp_path / "x.zarr"), client=workers).worker_memory <= 0.8 * 400e6


def test_what_helps_most_is_the_first_way_out() -> None:
    wide = da.zeros((20_000, 200_000), chunks=(20, 200_000))
    with pytest.raises(PlanError, match="Ways out: ask for fewer components"):
        PPCA(2_000, solver="krylov").plan(wide, client=Workers(2, "2GiB"))
    with pytest.raises(PlanError, match="Ways out: work on smaller blocks"):
        PPCA(20).plan(da.zeros((100_000, 2_000), chunks=(100_000, 2_000)), client=Workers(2, "2GiB"))
