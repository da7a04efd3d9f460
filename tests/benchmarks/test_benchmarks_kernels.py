"""The cases with kernels, on small made data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.cases import faces, kernel_memory, kernels
from benchmarks.task import Check


def test_rows_of_a_class_lie_on_a_closed_curve() -> None:
    rows, classes = kernel_memory.rows_and_classes(3000)
    assert rows.shape == (3000, kernel_memory.FEATURES)
    own = rows[classes == 0]
    values = np.linalg.eigvalsh(np.cov(own, rowvar=False))[::-1]
    assert values[1] > 5 * values[2] > 0, "two strong directions, the plane of the curve"
    assert abs(np.linalg.norm(own - own.mean(axis=0), axis=1).std()) > 0
    np.testing.assert_array_equal(rows, kernel_memory.rows_and_classes(3000)[0])


def test_five_rows_of_each_class_are_labelled(tmp_path) -> None:
    np.save(tmp_path / "classes.npy", np.arange(500) % kernel_memory.CLASSES)
    labels = kernel_memory.labels_of(tmp_path)
    assert np.bincount(labels[labels >= 0]).tolist() == [kernel_memory.PER_CLASS] * kernel_memory.CLASSES


def test_sparse_rows_have_the_neighbours_of_dense_ones() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((40, 9)) * (rng.random((40, 9)) < 0.5) + 1e-3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    classes, labelled = np.arange(40) % 3, np.arange(40) < 12
    dense = faces.nearest_error(rows, classes, labelled)
    assert faces.nearest_error(sp.csr_array(rows), classes, labelled) == dense
    assert 0 < dense < 1


def test_every_model_is_measured_at_every_number_of_components() -> None:
    tasks = kernels.tasks(1.0)
    assert len({task.name for task in tasks}) == len(tasks)
    asked = {(task.arguments["data"], task.arguments["model"], task.arguments["n_components"]) for task in tasks}
    assert len(asked) == 2 * (1 + 8 * 3) + (1 + 7 * 3)
    assert ("newsgroups", "kernel-s2ppca-laplacian", 5) not in asked
    for one in asked:
        own = [t.arguments for t in tasks if (*map(t.arguments.get, ("data", "model", "n_components")),) == one]
        seeds = [seed for part in own for seed in range(part["first"], part["last"])]
        assert seeds == list(range(5 if one[0] == "newsgroups" else kernels.MODELS[one[1]].splits))


def test_splits_of_a_portion_are_those_of_the_whole() -> None:
    classes = np.arange(40) % 4
    for data in ("orl", "newsgroups"):
        whole = list(kernels.splits(data, classes, 0, 4))
        np.testing.assert_array_equal(list(kernels.splits(data, classes, 2, 4)), whole[2:])


def row(task: str, **values: object) -> dict[str, object]:
    plan = {"worker_memory": 100}
    cap = {"limit": kernel_memory.CAP, "oom_kills": 0}
    base = {"task": task, "status": "ok", "run": 0, "fit_seconds": 2.0, "peak_worker_rss": 50, "plan": plan, "cap": cap}
    return base | {"log_likelihood": 1000.0, "left_behind": False, "passes": 8} | values


REQUIREMENTS = {
    "hard cap": {"cap": {"limit": kernel_memory.CAP, "oom_kills": 1}},
    "plan's projection": {"peak_worker_rss": 101},
    "one likelihood": {"log_likelihood": 1000.1},
    "left behind": {"left_behind": True},
}


@pytest.mark.parametrize("words", REQUIREMENTS)
def test_requirements_can_fail(words: str) -> None:
    good = [row("limit-compute"), row("limit-read"), row("kernel-ppca/recomputed"), row("kernel-ppca/stored")]
    assert all(check.passed for check in kernel_memory.summarise(good).checks)
    bad = [*good[:3], row("kernel-ppca/stored", **REQUIREMENTS[words])]
    failed: list[Check] = [check for check in kernel_memory.summarise(bad).checks if not check.passed]
    assert len(failed) == 1
    assert words in failed[0].text
