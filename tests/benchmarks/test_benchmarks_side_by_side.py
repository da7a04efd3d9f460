"""tall, wide, text and big: what peers find and read, and how requirements follow from figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import side_by_side as say
from benchmarks.__main__ import main
from benchmarks.cases import beyond_memory, comparison
from benchmarks.generate import Factors, write_dense
from benchmarks.methods import of_missing, of_numpy, of_sklearn
from benchmarks.methods.from_zarr import Counted
from benchmarks.quality import judge, write_exact
from benchmarks.stored import bytes_of, load, path_of
from benchmarks.task import Row

pytestmark = pytest.mark.slow

K = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = Factors(12, np.array([16.0, 9.0, 4.0]), noise=0.5, mean=np.full(12, 5.0), seed=1)
    write_dense(tmp_path / "data.zarr", model, 400, "float64", 2)
    write_exact(tmp_path, K)
    return tmp_path


def missing(folder: Path, row: Row) -> float:
    np.save(folder / "found.npy", row["components"])
    return judge(folder, 1.0, str(folder / "found.npy"))["missing"]


def test_textbook_em_climbs_to_the_exact_components(folder: Path) -> None:
    row = of_numpy.em(folder, 1.0, K, iterations=2000, tolerance=1e-14)
    assert (np.diff(row["trace"]) > -1e-9 * abs(row["log_likelihood"])).all()
    assert abs(missing(folder, row)) < 1e-9
    span = judge(folder, 1.0, str(folder / "found.npy"))["span_log_likelihood"]
    assert row["log_likelihood"] == pytest.approx(span, rel=1e-9)


def test_textbook_em_is_the_same_on_sparse_rows(folder: Path, tmp_path: Path) -> None:
    from dlatent import ingest

    other = tmp_path / "sparse"
    other.mkdir()
    sp.save_npz(other / "rows.npz", sp.csr_array(np.asarray(load(path_of(folder)))))
    ingest(other / "rows.npz", path_of(other))
    dense, sparse = (of_numpy.em(where, 1.0, K, iterations=30) for where in (folder, other))
    np.testing.assert_allclose(sparse["trace"], dense["trace"], rtol=1e-10)
    assert sparse["bytes_read"] == bytes_of(load(path_of(other))) > 12 * 400 * 8


def test_memory_is_filled_before_the_clock_starts_and_batches_are_read_after(folder: Path) -> None:
    exact = of_sklearn.pca(folder, 1.0, K, "covariance_eigh")
    assert (exact["from"], exact["bytes_read"]) == ("memory", 400 * 12 * 8)
    assert abs(missing(folder, exact)) < 1e-12
    batches = of_sklearn.incremental_pca(folder, 1.0, K, rows=100)
    assert (batches["from"], batches["bytes_read"]) == ("Zarr", 400 * 12 * 8)
    assert missing(folder, batches) < 0.05


@pytest.mark.parametrize("package", ["ppca", "pyppca"])
def test_packages_give_components_of_complete_data(folder: Path, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed here")
    found = getattr(of_missing, f"{package}_package")(folder, 1.0, K, complete=True)
    assert found["components"].shape == (K, 12)


def test_what_is_read_is_counted(folder: Path) -> None:
    source = Counted(path_of(folder), folder / "read.txt")
    assert source.bytes_read() == 0
    np.testing.assert_array_equal(source[10:20], np.asarray(load(path_of(folder)))[10:20])
    assert source[:, :3].shape == (400, 3)
    assert source.bytes_read() == 10 * 12 * 8 + 400 * 3 * 8


def test_the_gram_of_the_limit_is_that_of_the_rows() -> None:
    from dlatent.arrays import Block

    rows = np.random.default_rng(0).standard_normal((3000, 5), dtype=np.float32) + np.float32(beyond_memory.OFFSET)
    found = beyond_memory.gram_of(Block(0, 0, rows, None), None)
    near = rows.astype(np.float64) - beyond_memory.OFFSET
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, near.T @ near, rtol=1e-4, atol=1e-2)


def row(task: str, seconds: float, lacking: float = 0.0, **more: Any) -> Row:
    return {
        "run": "a", "task": task, "status": "ok", "fit_seconds": seconds, "fit_cpu_seconds": 2 * seconds,
        "peak_tree_pss": 100 * 2**20, "quality": {"missing": lacking, "captured": 1.0 - lacking, "gap": 0.0},
        "peak_worker_rss": 10, "peak_driver_rss": 10, "plan": {"worker_memory": 11, "driver_memory": 11}, "passes": 1,
        "arguments": {"n_components": 20}, "data": {"shape": [200_000, 5000]}, **more,
    }  # fmt: skip


def verdicts(checks: Any) -> dict[str, bool]:
    return {check.text: check.passed for check in checks}


def test_times_are_ratios_and_the_better_of_two_ways_counts() -> None:
    rows = [row("dlatent", 3.0), row("dlatent-threads", 2.0), row("rival", 1.6)]
    own = say.variants(say.by_task(rows))
    (check,) = say.at_most(own, rows[2:], 1.3, "near")
    assert (check.text, check.passed) == ("near (dlatent: 1.88×, dlatent-threads: 1.25×)", True)
    assert not say.at_most(own, rows[2:], 1.2, "near")[0].passed
    assert say.at_most(own, [], 1.3, "near") == []


def test_only_peers_of_equal_quality_must_be_slower() -> None:
    rows = [row("dlatent", 3.0), row("quick", 1.0, 1e-3), row("good", 4.0, 1e-7), row("slow", 9.0)]
    done = say.by_task(rows)
    (check,) = say.faster_than_equals(done, say.variants(done))
    assert check.passed
    assert "the fastest is good (dlatent: 0.75×)" in check.text
    done["quick"] = [row("quick", 1.0, 1e-8)]
    assert not say.faster_than_equals(done, say.variants(done))[0].passed


def test_reading_counts_for_methods_that_begin_in_memory() -> None:
    done = say.by_task([row("dlatent", 3.0), row("rival", 2.0, load_seconds=2.0)])
    (check,) = say.faster_than_equals(done, say.variants(done))
    assert check.passed
    assert check.text.endswith("(dlatent: 0.75×); to its fit in memory alone: 1.50×")
    done["rival"] = [row("rival", 2.0, load_seconds=0.5)]
    assert not say.faster_than_equals(done, say.variants(done))[0].passed


def test_limits_of_each_run_are_added_up() -> None:
    rows = [row("limit-decode", 2.0), row("limit-gram", 3.0), row("limit-gram", 5.0) | {"run": "b"}]
    assert say.floors(rows, ("limit-decode", "limit-gram")) == [{"run": "a", "fit_seconds": 5.0}]


def test_memory_against_plan_rival_and_dense_matrices() -> None:
    done = say.by_task([row("dlatent", 1.0), row("rival", 1.0, peak_tree_pss=400 * 2**20)])
    own = say.variants(done)
    assert say.less_memory(own, done["rival"], 1 / 3, "less")[0].passed
    assert not say.less_memory(own, done["rival"], 1 / 5, "less")[0].passed
    assert say.within_plan(done)[0].passed
    assert say.nothing_dense(done)[0].passed
    done["dlatent"][0] |= {"peak_driver_rss": 12, "peak_tree_pss": 300 * 2**20}
    assert not say.within_plan(done)[0].passed
    assert not say.nothing_dense(done)[0].passed


def test_every_number_of_components_has_requirements_of_its_own() -> None:
    rows = []
    for k, suffix in ((20, ""), (50, "-50"), (100, "-100")):
        rows += [row(f"dlatent{suffix}", 1.0, 1e-9, passes=12 + (k == 100)), row(f"sklearn-arpack{suffix}", 0.01 * k)]
    found = verdicts(comparison.summarise_text(rows).checks)
    assert found["at most 12 passes, K = 50 (12)"]
    assert not found["at most 12 passes, K = 100 (13)"]
    times = {text: met for text, met in found.items() if "processor time" in text}
    assert list(times.values()) == [False, False, True]
    assert all(met for text, met in found.items() if "exact to 1e-08" in text)


def test_dask_reads_as_often_as_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    asked = ["run", "tall", "--scale", "0.003", "--repeats", "1", "--work", str(tmp_path), "--out", str(out)]
    assert main([*asked, "--methods", "dask-covariance-eigh"]) == 0
    (found,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert found["passes"] == 1.0
    assert found["bytes_read"] == 600 * 512 * 8
    assert found["quality"]["captured"] == pytest.approx(1.0, abs=1e-9)
    assert "| dask-covariance-eigh | 20 | Zarr |" in capsys.readouterr().out
