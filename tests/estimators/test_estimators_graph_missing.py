"""GraphPPCA of rows with missing entries: PPCA of weighted means over the samples near by that have a cell."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent import PPCA, GraphPPCA, RelationalPPCA, select_n_components
from dlatent.arrays import Block, Exchanged
from dlatent.errors import DataError, PlanError
from dlatent.gaussian.missing_entries.incomplete import hidden_cells
from dlatent.solvers.graph.averaged_rows import averaged_rows
from dlatent.solvers.smoothing.selection import CANDIDATES, HIDING
from tests.graphs import power_law_graph
from tests.simulators import plain_features
from tests.sparse_stores import observed_entries

N, D = 90, 8
GRAPH = sp.csr_array(np.pad(power_law_graph(N - 2, 150, random_state=4).toarray(), (0, 2)))  # two without edges
FULL = plain_features(N, D) + 5.0
GONE = np.random.default_rng(7).random(FULL.shape) < 0.6
GONE[:, 0] &= ~GONE.all(axis=1)
HOLES = np.where(GONE, np.nan, FULL)
TIGHT = {"tol": 1e-13}


def averages(rows, graph, smoothing, hops):
    """The definition, cell by cell, and over walks instead of powers of a matrix."""
    dense = graph.toarray()
    degrees = dense.sum(axis=1)
    found = np.full(rows.shape, np.nan)
    for i in range(len(rows)):
        reach, weights = np.eye(len(rows))[i], np.eye(len(rows))[i]
        for _ in range(hops):
            reach = [
                smoothing
                * sum(reach[m] * dense[m, n] / np.sqrt(degrees[m] * degrees[n]) for m in np.flatnonzero(dense[:, n]))
                for n in range(len(rows))
            ]
            weights = weights + reach
        for j in range(rows.shape[1]):
            have = [m for m in np.flatnonzero(weights) if not np.isnan(rows[m, j])]
            if have:
                found[i, j] = np.average(rows[have, j], weights=weights[have])
    return found


@pytest.fixture(scope="module", params=[(3.0, 2), (0.5, 1)], ids=["two hops", "one hop"])
def case(request):
    smoothing, hops = request.param
    rows = averages(HOLES, GRAPH, smoothing, hops)
    options = {"missing": "nan", "scale": "none", **TIGHT}
    model = GraphPPCA(2, smoothing=smoothing, hops=hops, **options).fit(HOLES, graph=GRAPH)
    return rows, PPCA(2, **options).fit(rows), model


def test_the_fit_is_ppca_of_the_weighted_means(case):
    _, dense, model = case
    np.testing.assert_allclose(model.log_likelihood_, dense.log_likelihood_, rtol=1e-10)
    np.testing.assert_allclose(model.mean_, dense.mean_, rtol=1e-8)
    np.testing.assert_allclose(model.get_covariance(), dense.get_covariance(), rtol=1e-6, atol=1e-8)


def test_scores_posteriors_and_filled_entries_are_those_of_the_weighted_means(case):
    rows, _, model = case
    alone = model.transform(rows)
    np.testing.assert_allclose(model.transform(HOLES, graph=GRAPH), alone, rtol=1e-9, atol=1e-10)
    found = model.posterior(HOLES, graph=GRAPH)["covariance"].values
    np.testing.assert_allclose(found, model.posterior(rows)["covariance"].values, rtol=1e-9, atol=1e-11)
    expected = np.where(GONE, model.inverse_transform(alone), FULL)
    np.testing.assert_allclose(model.impute(HOLES, graph=GRAPH), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.impute(HOLES), PPCA.impute(model, HOLES))


def test_means_that_are_zero_are_no_missing_entries():
    """A sparse product need not store a sum that is zero."""
    met = sp.csr_array([[0.0, 4.0, 1.0, 2.0], [0.0, 0.0, 0.0, 3.0]])
    met.eliminate_zeros()
    found = averaged_rows(Block(0, 0, np.zeros((2, 0)), exchanged=Exchanged(met, met)), np.array([10.0, 20.0]))
    np.testing.assert_array_equal(found.toarray(), [[10.0, 22.0], [0.0, 20.0]])
    assert found.nnz == 3


def test_without_smoothing_it_is_ppca_with_missing_entries_to_the_bit():
    plain = PPCA(2, missing="nan").fit(HOLES)
    for graph in (None, GRAPH):
        model = GraphPPCA(2, smoothing=0, missing="nan").fit(HOLES, graph=graph)
        np.testing.assert_array_equal(model.components_, plain.components_)
        np.testing.assert_array_equal(model.transform(HOLES, graph=graph), plain.transform(HOLES))
        np.testing.assert_array_equal(model.impute(HOLES, graph=graph), plain.impute(HOLES))


def friends(samples=300, features=40, known=0.1):
    """Raters of a few circles, most of whose ratings are missing, and edges inside the circles."""
    rng = np.random.default_rng(2)
    circle = rng.integers(0, 10, samples)
    rows = rng.normal(size=(10, 3))[circle] @ rng.normal(size=(3, features)) + rng.normal(size=(samples, features))
    near = circle[:, None] == circle
    np.fill_diagonal(near, False)
    upper = np.triu(near & (rng.random(near.shape) < 0.2))
    seen = rng.random(rows.shape) < known
    seen[:, 0] |= ~seen.any(axis=1)
    return rows, np.where(seen, rows, np.nan), sp.csr_array((upper + upper.T).astype(float))


@pytest.mark.slow
def test_neighbours_fill_in_where_they_are_alike_and_are_left_out_where_they_are_not():
    rows, holes, graph = friends()
    gone = np.isnan(holes)

    def error(model, **graph):
        return np.sqrt(np.mean((np.asarray(model.impute(holes, **graph)) - rows)[gone] ** 2))

    options = {"missing": "nan", "scale": "none"}
    plain, model = PPCA(3, **options).fit(holes), GraphPPCA(3, **options).fit(holes, graph=graph)
    assert model.smoothing_ >= 0.5
    assert error(model, graph=graph) < 0.8 * error(plain)
    assert GraphPPCA(3, missing="unstored").fit(observed_entries(holes), graph=graph).smoothing_ >= 0.5
    order = np.random.default_rng(0).permutation(len(rows))
    strangers = graph[order][:, order]
    misled = GraphPPCA(3, **options).fit(holes, graph=strangers)
    assert misled.smoothing_ == 0.0
    np.testing.assert_array_equal(misled.components_, plain.components_)


@pytest.mark.slow
def test_the_choice_compares_cells_that_no_fit_has_seen():
    """By the definition: a fit without them, and what it expects there."""
    rows, holes, graph = friends(known=0.5)
    model = GraphPPCA(3, missing="nan", scale="none", random_state=0).fit(holes, graph=graph)
    cells = hidden_cells(holes, 0, HIDING)
    visible, compared, means = np.where(cells, np.nan, holes), cells & ~np.isnan(holes), np.nanmean(holes, axis=0)
    for smoothing, correlation in zip(CANDIDATES, model.smoothing_scores_["smoothing_correlation"].values, strict=True):
        given = GraphPPCA(3, missing="nan", scale="none", smoothing=smoothing, max_iter=40).fit(visible, graph=graph)
        expected = given.impute(visible, graph=graph)
        about = [(values - means)[compared] for values in (rows, expected)]
        np.testing.assert_allclose(correlation, np.corrcoef(about)[0, 1], atol=2e-3)


def test_the_plan_counts_rows_and_masks_that_travel():
    wide = GraphPPCA(2, smoothing=3.0, missing="nan").plan(HOLES, graph=GRAPH)
    assert wide.solver == "accelerated_em"
    assert "edges move" in str(wide)
    assert GraphPPCA(2, missing="nan").plan(HOLES, graph=GRAPH).seconds > 5 * wide.seconds
    with pytest.raises(PlanError, match="any entry may be missing"):
        GraphPPCA(2, smoothing=3.0, missing="nan", solver="krylov").fit(HOLES, graph=GRAPH)


def test_misuse_is_refused():
    complete = GraphPPCA(2, smoothing=3.0).fit(FULL, graph=GRAPH)
    with pytest.raises(DataError, match="complete data"):
        complete.impute(HOLES, graph=GRAPH)
    with pytest.raises(DataError, match="complete data"):
        complete.set_params(missing="nan").transform(HOLES, graph=GRAPH)
    bad = HOLES.copy()
    bad[7, 3] = np.inf
    for smoothing in (3.0, "auto"):
        with pytest.raises(DataError, match="row 7, column 3"):
            GraphPPCA(2, smoothing=smoothing, missing="nan").fit(bad, graph=GRAPH)
    with pytest.raises(DataError, match="no graph joins"):
        select_n_components(GraphPPCA(missing="nan"), HOLES, [1, 2], graph=GRAPH, criterion="held_out")
    with pytest.raises(TypeError):
        RelationalPPCA(2, missing="nan")
