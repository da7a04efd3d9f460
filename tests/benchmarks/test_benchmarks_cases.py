"""What the cases compute: generators, quality, requirements, and one whole run at a small size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from benchmarks.__main__ import main
from benchmarks.cases import ratings
from benchmarks.cases.exactness import closed_form, gaussian_log_likelihood
from benchmarks.cases.faces import nearest_error, splits
from benchmarks.cases.newsgroups import partly_labelled, pass_reaching
from benchmarks.cases.planner import _choice, _store_without_values
from benchmarks.generate import Factors, power_law, write_dense, zipf_counts
from benchmarks.quality import judge, write_exact
from benchmarks.stored import load, path_of, pieces, read_pieces
from benchmarks.table import ratio

pytestmark = pytest.mark.slow

ROWS, FEATURES, K = 400, 12, 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = Factors(FEATURES, power_law(4, 9.0), noise=0.5, mean=np.full(FEATURES, 20.0), seed=1)
    write_dense(tmp_path / "data.zarr", model, ROWS, "float64", 2)
    write_exact(tmp_path, K)
    return tmp_path


def test_drawn_rows_have_the_moments_of_their_model() -> None:
    model = Factors(6, np.array([4.0, 1.0]), noise=0.25, mean=np.arange(6.0), seed=3)
    rows = model.rows(200_000, (4, 0), "float64")
    expected = (model.basis * model.variances) @ model.basis.T + 0.25 * np.eye(6)
    np.testing.assert_allclose(np.cov(rows, rowvar=False), expected, atol=0.05)
    np.testing.assert_allclose(rows.mean(axis=0), np.arange(6.0), atol=0.02)
    np.testing.assert_array_equal(rows[:5], model.rows(200_000, (4, 0), "float64")[:5])


def test_counts_follow_zipf_and_topics() -> None:
    counts = zipf_counts(2000, 1000, topics=5, tokens=60, seed=5)
    assert counts.shape == (2000, 1000)
    assert (counts.data >= 1).all()
    assert 40 < counts.sum() / 2000 < 90
    frequency = np.asarray(counts.sum(axis=0)).ravel()
    assert frequency[0] > 3 * np.median(frequency)


def test_exact_components_capture_all_and_others_less(folder: Path) -> None:
    data = np.asarray(load(path_of(folder)))
    axes, variances, noise = closed_form(data, K)
    np.save(folder / "best.npy", 3.0 * axes)
    best = judge(folder, 1.0, str(folder / "best.npy"))
    assert best["captured"] == pytest.approx(1.0, abs=1e-12)
    assert abs(best["gap"]) < 1e-13
    covariance = (axes.T * (variances - noise)) @ axes + noise * np.eye(FEATURES)
    dense = gaussian_log_likelihood(data, data.mean(axis=0), covariance)
    assert best["span_log_likelihood"] == pytest.approx(dense, rel=1e-12)
    np.save(folder / "other.npy", np.eye(FEATURES)[:K])
    other = judge(folder, 1.0, str(folder / "other.npy"))
    assert other["captured"] < 0.9
    assert other["gap"] > 1e-3


def test_quality_of_sparse_data_needs_no_dense_copy(tmp_path: Path) -> None:
    from dlatent import ingest

    counts = zipf_counts(300, 40, topics=3, tokens=20, seed=6)
    sp.save_npz(tmp_path / "counts.npz", counts)
    ingest(tmp_path / "counts.npz", path_of(tmp_path), unit_norm=True)
    write_exact(tmp_path, K)
    matrix = load(path_of(tmp_path))
    assert sp.issparse(matrix)
    np.save(tmp_path / "best.npy", closed_form(matrix.toarray(), K)[0])
    assert judge(tmp_path, 1.0, str(tmp_path / "best.npy"))["captured"] == pytest.approx(1.0, abs=1e-12)


def test_the_pieces_of_a_store_are_all_of_it(folder: Path) -> None:
    path = path_of(folder)
    assert read_pieces(path, pieces(path)) == zarr.open_array(path).nbytes


def test_five_labels_per_class_and_none_else() -> None:
    classes = np.repeat([3, 1, 8], 20)
    labels = partly_labelled(classes, 0)
    assert {name: int((labels == name).sum()) for name in (3, 1, 8)} == {3: 5, 1: 5, 8: 5}
    assert (labels[labels >= 0] == classes[labels >= 0]).all()
    assert (partly_labelled(classes, 1) != labels).any()


def test_the_pass_that_reaches_a_level() -> None:
    trace = [-200.0, -110.0, -100.01, -100.0]
    assert pass_reaching(trace, -100.0, 1e-3) == 3
    assert pass_reaching(trace, -100.0, 1e-9) == 4
    assert pass_reaching(trace, -99.0, 1e-3) is None


def test_splits_label_two_images_of_each_person() -> None:
    classes = np.repeat(np.arange(7), 5)
    first, second = splits(classes, 2)
    assert (np.bincount(classes[first]) == 2).all()
    assert (first != second).any()


def test_nearest_error_counts_wrong_neighbours() -> None:
    space = np.array([[0.0], [10.0], [1.0], [9.0], [8.0], [2.0]])
    classes = np.array([0, 1, 0, 1, 0, 0])
    labelled = np.array([True, True, False, False, False, False])
    assert nearest_error(space, classes, labelled) == 0.25


def test_ratios_stay_within_a_run() -> None:
    own = [{"run": "a", "fit_seconds": 4.0}, {"run": "b", "fit_seconds": 30.0}]
    reference = [{"run": "a", "fit_seconds": 2.0}, {"run": "b", "fit_seconds": 10.0}]
    assert ratio(own, reference) == 2.5
    assert ratio(own, [{"run": "c", "fit_seconds": 1.0}]) is None


def test_shapes_are_planned_without_values(tmp_path: Path) -> None:
    from dlatent import open_data

    _store_without_values(tmp_path / "dense.zarr", 1_000_000, 100, None)
    _store_without_values(tmp_path / "sparse.zarr", 5_000, 30_000, 0.001)
    assert open_data(tmp_path / "dense.zarr").nbytes == 800_000_000
    assert open_data(tmp_path / "sparse.zarr").nnz == 150_000
    assert sum(file.stat().st_size for file in tmp_path.rglob("*")) < 2**20
    assert _choice(str(tmp_path / "dense.zarr"), 10, None)["solver"] in ("covariance", "krylov")


def _rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_whole_run_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    asked = ["run", "tall", "--scale", "0.003", "--repeats", "1", "--work", str(tmp_path), "--out", str(out)]
    assert main([*asked, "--methods", "limit-gram", "dlatent-threads"]) == 0
    said = capsys.readouterr().out
    assert "| dlatent-threads |" in said
    assert "reduced size" in said
    own = _rows(out)[-1]
    assert own["quality"]["captured"] == pytest.approx(1.0, abs=1e-9)
    assert own["passes"] == 1
    assert own["bytes_read"] >= 600 * 512 * 8
    page = tmp_path / "report" / "page.md"
    page.parent.mkdir()
    assert main(["report", str(out), "--out", str(page)]) == 0
    assert "![tall-seconds](tall-seconds.png)" in page.read_text()
    assert (page.parent / "tall-seconds.png").stat().st_size > 1000


def test_a_requirement_that_is_not_met_shows_in_page_and_status(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    row = {
        "run": "a", "time": "2026-01-01 00:00:00", "case": "exactness", "task": "orl/moments", "repeat": 0,
        "scale": 1.0, "arguments": {}, "status": "ok", "solver": "covariance", "passes": 1, "log_likelihood": -5.0,
        "likelihood_difference": 1e-5, "evaluation_difference": 0.0, "noise_difference": 0.0, "angle": 1e-9,
        "machine": {"processor": "p", "cores": 2, "memory": 2**33, "system": "s"}, "load": 0.1, "data": {},
    }  # fmt: skip
    out.write_text(json.dumps(row) + "\n")
    page = tmp_path / "page.md"
    assert main(["report", str(out), "--out", str(page)]) == 1
    assert "**not met**: orl/moments" in page.read_text()


def test_ratings_are_as_many_as_their_shape_asks_for() -> None:
    known = ratings.Truth(0.004)
    found = sum(batch.nnz for batch in known.batches())
    wanted = ratings.OBSERVED * (known.users / ratings.USERS) * (known.items / ratings.ITEMS)
    assert abs(found / wanted - 1.0) < 0.03
