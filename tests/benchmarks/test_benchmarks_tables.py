"""The cases after the tables of the paper on supervised PPCA, on small made data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp

from benchmarks.cases import faces, kernels, newsgroups_classes, yeast
from dlatent.operators.kernels import Kernel

CLASSES, PER_CLASS, FEATURES = 4, 3, 30


@pytest.fixture
def words() -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
    """Sparse rows of length 1, their classes, and which are labelled; more features than labelled rows."""
    rng = np.random.default_rng(3)
    classes = np.arange(60) % CLASSES
    rows = rng.random((60, FEATURES)) * (rng.random((60, FEATURES)) < 0.3) + np.eye(CLASSES, FEATURES)[classes]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return sp.csr_array(rows), classes, np.arange(60) < CLASSES * PER_CLASS


def distances(space: np.ndarray) -> np.ndarray:
    return np.linalg.norm(space[:, None] - space[None], axis=2)


def test_partial_least_squares_in_the_span_of_the_labelled_rows_are_those_of_all_features(words: Any) -> None:
    rows, classes, labelled = words
    inside = newsgroups_classes.pls(rows, classes, labelled, 5)["scores"]
    whole = faces.pls(rows.toarray(), classes, labelled, 5)["scores"]
    np.testing.assert_allclose(distances(inside), distances(whole), atol=1e-10)


def test_discriminants_are_the_eigenvectors_of_the_pseudo_inverse_of_the_scatter_within_classes(words: Any) -> None:
    rows, classes, labelled = words
    dense, known = rows.toarray(), classes[labelled]
    means = np.stack([dense[labelled][known == c].mean(axis=0) for c in range(CLASSES)])
    within = dense[labelled] - means[known]
    between = means[known] - dense[labelled].mean(axis=0)
    values, vectors = la.eigh(within.T @ within)
    used = values > 1e-10 * values[-1]
    assert used.sum() == CLASSES * PER_CLASS - CLASSES
    root = vectors[:, used] / np.sqrt(values[used])
    directions = la.eigh(root.T @ between.T @ between @ root)[1][:, ::-1]
    for k in (2, 5):
        expected = dense @ root @ directions[:, : min(k, CLASSES - 1)]
        found = newsgroups_classes.lda(rows, classes, labelled, k)[newsgroups_classes.PSEUDO]
        assert found.shape[1] == min(k, CLASSES - 1)
        np.testing.assert_allclose(distances(found), distances(expected), atol=1e-8)


def test_discriminants_in_the_null_space_put_labelled_rows_of_a_class_on_one_point(words: Any) -> None:
    rows, classes, labelled = words
    found = newsgroups_classes.lda(rows, classes, labelled, 5)[newsgroups_classes.NULL]
    same = classes[labelled][:, None] == classes[labelled]
    between = distances(found[labelled])
    assert found.shape == (60, CLASSES - 1)
    assert between[same].max() < 1e-10 < 0.1 < between[~same].min()
    assert newsgroups_classes.lda(rows, classes, labelled, 2)[newsgroups_classes.NULL].shape == (60, 2)


def test_principal_axes_of_sparse_rows_are_those_of_dense_ones(words: Any) -> None:
    rows, classes, labelled = words
    for method in (faces.pca, faces.sppca, faces.s2ppca):
        sparse, dense = (method(x, classes, labelled, 3)[faces.PRINCIPAL] for x in (rows, rows.toarray()))
        np.testing.assert_allclose(distances(sparse), distances(dense), atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_tasks_cover_every_split_once(scale: float) -> None:
    found: dict[tuple[str, int], list[int]] = {}
    for task in newsgroups_classes.tasks(scale):
        asked = dict(task.arguments)
        key = (asked["method"], asked["n_components"])
        found.setdefault(key, []).extend(range(asked["first"], asked["last"]))
    assert len(found) == 1 + 5 * len(faces.COMPONENTS)
    assert all(seeds == list(range(round(50 * scale))) for seeds in found.values())


def test_portions_of_a_method_become_one_line() -> None:
    rows = [
        {
            "task": f"s2ppca-5/{first}",
            "status": "ok",
            "fit_cpu_seconds": 1.0,
            "arguments": {"method": "s2ppca", "n_components": 5},
            "errors": {faces.POSTERIOR: values},
        }
        for first, values in ((0, [0.1, 0.2]), (2, [0.3, 0.4]))
    ]
    line = newsgroups_classes.summarise(rows).markdown.splitlines()[2]
    assert line == "| s2ppca | E[z\\|x] | 0.250 ± 0.129 | – | – | 4 | 2 |"


def test_five_members_of_each_group_are_labelled() -> None:
    rng = np.random.default_rng(0)
    groups = (rng.random((300, 6)) < np.array([0.03, 0.1, 0.2, 0.3, 0.5, 0.7])).astype(float)
    chosen = list(yeast.few_labelled(groups, 3))
    assert all((groups[labelled].sum(axis=0) >= yeast.PER_GROUP).all() for labelled in chosen)
    assert all(labelled.sum() <= 6 * yeast.PER_GROUP for labelled in chosen)
    assert (chosen[0] != chosen[1]).any()


def test_a_space_that_tells_the_groups_has_full_marks_and_noise_has_not() -> None:
    rng = np.random.default_rng(1)
    groups = (rng.random((300, 3)) < 0.4).astype(float)
    labelled = np.arange(300) < 100
    assert yeast.measured(groups - 0.5, groups, labelled) == {"F1-macro": 1.0, "F1-micro": 1.0, "AUC": 1.0}
    noise = yeast.measured(rng.standard_normal((300, 4)), groups, labelled)
    assert 0.35 < noise["AUC"] < 0.65
    assert noise["F1-micro"] < 0.7


def test_a_written_kernel_is_computed_once(tmp_path: Any, words: Any) -> None:
    kernel = kernels.default_kernel("rbf", words[0])
    found = kernels.written_kernel(tmp_path, kernel, words[0])
    np.testing.assert_array_equal(found, kernel(words[0], words[0]))
    again = kernels.written_kernel(tmp_path, Kernel("rbf", 7.0), words[0])
    np.testing.assert_array_equal(again, found)


def test_the_linear_part_of_the_inner_product_is_all_of_it(words: Any) -> None:
    assert kernels.kernel_facts(Kernel("linear"), words[0])["linear_part"] == pytest.approx(1.0)
    spiky = kernels.kernel_facts(Kernel("rbf", 200.0), words[0])
    assert spiky["linear_part"] < 0.5
    assert spiky["quantiles"] == sorted(spiky["quantiles"])


def test_gamma_is_one_of_the_factors_times_the_median_heuristic(words: Any) -> None:
    rows, classes, _ = words
    dense, labelled = rows.toarray(), np.arange(60) < 2 * CLASSES
    targets = np.where(labelled, classes, -1)
    found = kernels.tuned(2, dense, targets, labelled)
    middle = kernels.default_kernel("rbf", dense).gamma
    assert min(abs(found.gamma_ / middle - factor) for factor in kernels.FACTORS) < 1e-9
    assert found.transform(dense).shape == (60, 2)
