"""How well smoothed rows predict hidden cells: block functions against dense matrices that are formed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent import open_data, open_graph
from dlatent.engine.connect import connect
from dlatent.gaussian.missing_entries.incomplete import Hiding, hidden_cells
from dlatent.solvers.smoothing import statistics as smoothing_sums
from dlatent.solvers.smoothing.selection import _pass
from dlatent.solvers.smoothing.statistics import (
    FOLDS,
    Axes,
    SmoothingRequest,
    compared,
    fold_compared,
    fold_scores,
    fold_smoothed,
    score_axes,
)
from tests.graphs import power_law_graph

SAMPLES, FEATURES, HIDING = 50, 9, Hiding(0.2, 0)
GRAPH = sp.csr_array(np.pad(power_law_graph(SAMPLES - 2, 90, random_state=1).toarray(), (0, 2)))
SMOOTHINGS = (0.0, 0.5, 4.0)
RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(SAMPLES, FEATURES)) + 2.0
SPARSE = sp.random_array((SAMPLES, FEATURES), density=0.4, rng=np.random.default_rng(3), format="csr")
CASES = {"dense": (DENSE, DENSE.mean(axis=0)), "sparse": (SPARSE, np.zeros(FEATURES))}
DIRECTIONS = tuple(RNG.normal(size=(FEATURES, 4)) for _ in SMOOTHINGS)


def smooth(smoothing, hops=2):
    degrees = GRAPH.sum(axis=1)
    s = GRAPH.toarray() / np.sqrt(np.outer(degrees, degrees) + (GRAPH.toarray() == 0))
    return sum(smoothing**k * np.linalg.matrix_power(s, k) for k in range(hops + 1))


def places():
    return hidden_cells(np.zeros((SAMPLES, FEATURES)), 0, HIDING)


def with_hidden(x, shift):
    dense = x.toarray() if sp.issparse(x) else x
    return shift + np.where(places(), 0.0, (dense - shift) / 0.8)


def run(fold, request, x):
    with connect(open_data(x), client="serial", graph=open_graph(GRAPH)) as session:
        return session.run(_pass(fold, request, "smoothing"))


@pytest.fixture(autouse=True, params=[1, 10**6], ids=["by pieces", "whole"])
def entries(request, monkeypatch):
    """How many entries are worked on at a time."""
    monkeypatch.setattr(smoothing_sums, "CHUNK_ENTRIES", request.param)
    monkeypatch.setattr(smoothing_sums, "FEWEST_ROWS", 7)


@pytest.mark.parametrize("kind", CASES)
def test_products_are_those_of_the_formed_filter(kind):
    x, shift = CASES[kind]
    moved, sums = run(fold_smoothed, SmoothingRequest(SMOOTHINGS, 2, True, HIDING, shift, DIRECTIONS), x)
    parts, weights = np.split(moved, 3, axis=1), np.split(sums, 3)
    rows = with_hidden(x, shift) - shift
    for at, smoothing in enumerate(SMOOTHINGS):
        weighted = smooth(smoothing) @ smooth(smoothing)
        expected = rows.T @ weighted @ rows @ DIRECTIONS[at]
        np.testing.assert_allclose(parts[at][:, :-1], expected, rtol=1e-9, atol=1e-10 * abs(expected).max())
        np.testing.assert_allclose(parts[at][:, -1], rows.T @ weighted.sum(axis=1), rtol=1e-9, atol=1e-9)
        assert weights[at][-1] == pytest.approx(weighted.sum(), rel=1e-12)


def formed_scores(smoothing, x, shift, v, mean):
    return smooth(smoothing) @ (with_hidden(x, shift) - mean) @ v


@pytest.mark.parametrize("kind", CASES)
def test_components_are_those_of_rows_regressed_on_scores(kind):
    """Singular directions of the regression on scores, of which they are combinations of length 1 about 0."""
    x, shift = CASES[kind]
    means = tuple(shift + RNG.normal(size=FEATURES) for _ in SMOOTHINGS)
    request = SmoothingRequest(SMOOTHINGS, 2, False, HIDING, shift, DIRECTIONS, means)
    rows = with_hidden(x, shift) - shift
    for smoothing, v, mean, found in zip(
        SMOOTHINGS, DIRECTIONS, means, score_axes(*run(fold_scores, request, x)), strict=True
    ):
        scores = formed_scores(smoothing, x, shift, v, mean)
        unit = scores @ found.of_scores[:-1] + found.of_scores[-1]
        np.testing.assert_allclose(unit.T @ np.column_stack([unit, np.ones(SAMPLES)]), np.eye(4, 5), atol=1e-9)
        np.testing.assert_allclose(found.along.T @ found.along, np.eye(4), atol=1e-9)
        projection = np.linalg.qr(scores - scores.mean(axis=0))[0]
        lengths = np.linalg.svd(projection.T @ rows, compute_uv=False)
        np.testing.assert_allclose(unit.T @ rows, lengths[:, None] * found.along.T, rtol=1e-8, atol=1e-9)


def test_scores_that_do_not_vary_make_no_component():
    shift, twice = CASES["dense"][1], np.eye(FEATURES)[:, [0, 0, 1]]
    request = SmoothingRequest((1.0,), 2, False, HIDING, shift, (twice,), (shift,))
    (axes,) = score_axes(*run(fold_scores, request, DENSE))
    assert np.flatnonzero(abs(axes.of_scores).max(axis=0) < 1e-9).tolist() == [2]
    sums = run(fold_compared, request._replace(axes=(axes,)), DENSE)
    assert abs(sums[0, :, 3:, 2]).max() < 1e-9


@pytest.mark.parametrize("kind", CASES)
def test_hidden_cells_are_compared_with_what_scores_say_of_components(kind):
    x, shift = CASES[kind]
    means = tuple(shift + RNG.normal(size=FEATURES) for _ in SMOOTHINGS)
    axes = tuple(Axes(RNG.normal(size=(5, 4)), RNG.normal(size=(FEATURES, 4))) for _ in SMOOTHINGS)
    request = SmoothingRequest(SMOOTHINGS, 2, False, HIDING, shift, DIRECTIONS, means, axes=axes)
    found = run(fold_compared, request, x)
    hidden = np.where(places(), (x.toarray() if sp.issparse(x) else x) - shift, 0.0)
    for at, smoothing in enumerate(SMOOTHINGS):
        scores = formed_scores(smoothing, x, shift, DIRECTIONS[at], means[at])
        said, seen = scores @ axes[at].of_scores[:-1] + axes[at].of_scores[-1], hidden @ axes[at].along
        for fold in range(FOLDS):
            a, b = seen[fold::FOLDS], said[fold::FOLDS]
            expected = [t.sum(axis=0) for t in (np.ones_like(a), a, a**2, b, b**2, a * b)]
            np.testing.assert_allclose(found[at, fold], expected, rtol=1e-9, atol=1e-9)


def sums_of(*pairs):
    """Sums of candidates, from values and what each predicts, a row each."""
    found = np.zeros((len(pairs), FOLDS, 6, 1))
    for at, (x, p) in enumerate(pairs):
        for fold in range(FOLDS):
            a, b = x[fold::FOLDS], p[fold::FOLDS]
            found[at, fold, :, 0] = [t.sum() for t in (np.ones_like(a), a, a**2, b, b**2, a * b)]
    return found


def test_the_smallest_candidate_within_a_standard_error_is_chosen():
    x, noise = RNG.normal(size=500), RNG.normal(size=(3, 500))
    bad, good, hardly_better = x + 3 * noise[0], x + noise[1], x + noise[1] + 0.02 * noise[2]
    found = compared(sums_of((x, bad), (x, good), (x, hardly_better)))
    expected = [np.corrcoef(x, p)[0, 1] for p in (bad, good, hardly_better)]
    np.testing.assert_allclose(found.correlation, expected, rtol=1e-9)
    assert found.chosen == 1
    best = int(np.argmax(expected))
    without = [np.delete(np.arange(500), np.arange(fold, 500, FOLDS)) for fold in range(FOLDS)]
    each = np.array([[np.corrcoef(x[i], p[i])[0, 1] for p in (bad, good, hardly_better)] for i in without])
    apart = each[:, [best]] - each
    np.testing.assert_allclose(found.standard_error, np.sqrt(9 * apart.var(axis=0)), rtol=1e-6, atol=1e-12)
    assert compared(sums_of((x, good), (x, good))).chosen == 0


def test_components_count_alike():
    x, p, q = RNG.normal(size=(3, 500))
    both = np.concatenate([sums_of((x, x + p)), sums_of((100 * x, x + 3 * q))], axis=3)
    each = [np.corrcoef(x, x + p)[0, 1], np.corrcoef(x, x + 3 * q)[0, 1]]
    assert compared(both).correlation[0] == pytest.approx(np.mean(each), rel=1e-9)


def test_where_no_candidate_predicts_anything_the_first_is_chosen():
    x = RNG.normal(size=500)
    found = compared(sums_of((x, -x), (x, RNG.normal(size=500) - 0.2 * x)))
    assert found.correlation[0] < found.correlation[1] - found.standard_error[0] < 0.0
    assert found.chosen == 0


def test_without_variation_nothing_is_smoothed():
    found = compared(sums_of((np.ones(50), np.ones(50)), (np.ones(50), np.arange(50.0))))
    np.testing.assert_array_equal(found.correlation, 0.0)
    assert found.chosen == 0
