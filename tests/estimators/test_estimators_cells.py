"""Single cells of incomplete data, and features without any entry."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dlatent import PPCA, DataError, DataWarning, FactorAnalysis, SupervisedPPCA, load
from dlatent.operators.symmetric import unpacked
from tests.fitted import parameters_of
from tests.simulators import simulate
from tests.sparse_stores import observed_entries

N, D = 90, 7
DATA = simulate(N, (D, 1), 2, noise=(0.3, 0.2), random_state=5)
X = np.where(np.random.default_rng(6).random((N, D)) < 0.3, np.nan, DATA.features)
Y = DATA.targets
KINDS = {
    "prior": PPCA(3, missing="nan"),
    "levels": PPCA(3, missing="nan", row_effects=True),
    "likelihood": PPCA(2, missing="nan", prior="ml"),
    "factors": FactorAnalysis(2, missing="nan"),
    "complete": PPCA(2),
}
PLACES = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, D - 1)), max_size=30)


@cache
def fitted(name: str) -> Any:
    return KINDS[name].fit(DATA.features if name == "complete" else X)


@pytest.mark.parametrize("name", KINDS)
@given(places=PLACES)
def test_cells_are_those_of_rows_that_are_filled(name: str, places: list[tuple[int, int]]) -> None:
    model, (rows, columns) = fitted(name), np.array(places, dtype=int).reshape(-1, 2).T
    cells = model.predict_cells(X, rows, columns)
    np.testing.assert_allclose(cells["mean"], np.asarray(model.impute(X))[rows, columns], rtol=1e-12)
    np.testing.assert_allclose(cells["variance"], np.asarray(model.impute_variance(X))[rows, columns], rtol=1e-12)
    assert cells["row"].values.tolist() == rows.tolist()
    assert cells["column"].values.tolist() == columns.tolist()


def test_they_are_normal_given_the_observed_entries_of_their_row() -> None:
    model, (row, column) = fitted("likelihood"), np.argwhere(np.isnan(X))[0]
    seen, c = ~np.isnan(X[row]), model.get_covariance()
    weights = np.linalg.solve(c[np.ix_(seen, seen)], c[seen, column])
    cells = model.predict_cells(X, [row], [column])
    expected = model.mean_[column] + weights @ (X[row] - model.mean_)[seen]
    assert cells["mean"].item() == pytest.approx(expected, rel=1e-9)
    assert cells["variance"].item() == pytest.approx(c[column, column] - weights @ c[seen, column], rel=1e-9)


def test_targets_tell_of_cells() -> None:
    model, rows, columns = SupervisedPPCA(2, missing="nan").fit(X, Y), np.arange(N)[::-3], np.arange(30) % D
    cells = model.predict_cells(X, rows, columns, Y)
    np.testing.assert_allclose(cells["mean"], np.asarray(model.impute(X, Y))[rows, columns], rtol=1e-12)
    assert (cells["variance"] < model.predict_cells(X, rows, columns)["variance"]).any()


def test_entries_that_are_not_stored(tmp_path: Any) -> None:
    """Of an array in memory, a store in blocks, and lazy chunks."""
    rows, columns = np.random.default_rng(0).integers([[N], [D]], size=(2, 200))
    sparse = PPCA(3, missing="unstored", tol=1e-13).fit(observed_entries(X))
    expected = PPCA(3, missing="nan", scale="none", tol=1e-13).fit(X).predict_cells(X, rows, columns)
    xr.testing.assert_allclose(sparse.predict_cells(observed_entries(X), rows, columns), expected, rtol=1e-6)
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(20, D))
    for data in (tmp_path / "x.zarr", da.from_array(X, chunks=(17, 3))):
        one = fitted("levels").predict_cells(data, rows, columns)
        xr.testing.assert_allclose(one, fitted("levels").predict_cells(X, rows, columns), rtol=1e-12)


def test_only_blocks_with_these_rows_are_read() -> None:
    def chunk(block: Any, block_info: Any = None) -> Any:
        assert block_info[0]["chunk-location"][0] in (0, 2)
        return block

    lazy = da.from_array(X, chunks=(30, D)).map_blocks(chunk, dtype=float, meta=np.empty((0, 0)))
    assert fitted("prior").predict_cells(lazy, [1, 80, 2], [0, 1, 2]).sizes == {"cell": 3}
    with pytest.raises(AssertionError):
        fitted("prior").predict_cells(lazy, [31], [0])


def test_units_are_those_of_the_data() -> None:
    weights = xr.DataArray(np.linspace(0.5, 3, D), dims="place")
    data = xr.DataArray(X, dims=("time", "place"))
    model = PPCA(2, missing="nan").fit(data, dim="time", weights=weights)
    cells = model.predict_cells(data, [5, 6], [3, 4])
    np.testing.assert_allclose(cells["mean"], model.impute(data).values[[5, 6], [3, 4]], rtol=1e-12)
    np.testing.assert_allclose(cells["variance"], model.impute_variance(data).values[[5, 6], [3, 4]], rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ([3, N], [0, 0], rf"rows\[1\] is {N}, and X has {N} rows, 0 to {N - 1}"),
        ([0], [-1], rf"columns\[0\] is -1, and X has {D} columns"),
        ([0, 1], [0], "there are 2 rows and 1 columns"),
        ([0.5], [0], "rows must be a list of whole numbers"),
        ([[0]], [0], "rows must be a list of whole numbers"),
    ],
)
def test_places_outside_are_named(rows: Any, columns: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        fitted("prior").predict_cells(X, rows, columns)


def test_what_is_infinite_is_named_where_it_is_needed() -> None:
    x = X.copy()
    x[70, 2] = np.inf
    assert np.isfinite(fitted("prior").predict_cells(x, [69, 71], [2, 2])["mean"]).all()
    with pytest.raises(DataError, match="row 70, column 2 is inf"):
        fitted("prior").predict_cells(x, [3, 70], [2, 2])
    with pytest.raises(DataError, match="not stored"):
        fitted("likelihood").predict_cells(observed_entries(X), [0], [0])


def by_prior(model: Any, x: Any, never: list[int]) -> Any:
    """The variance of x_j = μ_j + w_jᵀz + a + ε for each row, with μ_j and w_j as their priors have them."""
    p, about, k = parameters_of(model), model.posterior(x), model.n_components_
    seen, size = np.delete(np.arange(x.shape[1]), never), p.loadings.shape[1]
    m, c = about["scores"].values, about["covariance"].values
    means, spread = p.mean[seen], unpacked(p.loadings_covariance[seen].T, size)[:k, :k].mean(axis=2)
    v = p.loadings[seen, :k].T @ p.loadings[seen, :k] / len(seen) + spread
    v = model.prior * np.eye(k) if model.prior != "auto" else v
    of_mean = means.var() + p.mean_variance[seen].mean()
    of_loadings = np.einsum("ia,ab,ib->i", m[:, :k], v, m[:, :k]) + np.einsum("ab,iab->i", v, c[:, :k, :k])
    return of_mean + of_loadings + model.row_effect_variance_ * c[:, -1, -1] + model.noise_variance_


@pytest.mark.parametrize("options", [{}, {"row_effects": True}, {"prior": 0.5}])
def test_the_prior_tells_of_features_without_an_entry(options: dict[str, Any], tmp_path: Any) -> None:
    """The answer is where the prior is, as sure as the prior is, and the entries of new rows there say nothing."""
    x = np.insert(X, [2, 5], np.nan, axis=1)
    options = {"missing": "nan", "scale": "none", "whiten": True, "tol": 1e-12, **options}
    model = PPCA(2, **options)
    with pytest.warns(DataWarning, match=r"2 of 9 features were never observed \(columns 2, 6\).* that of all feat"):
        model.fit(x)
    rest, never = PPCA(2, **options).fit(X), [2, 6]
    means = np.delete(model.mean_, never)
    np.testing.assert_allclose(means, rest.mean_, rtol=1e-5)
    np.testing.assert_allclose(model.mean_[never], means.mean(), rtol=1e-12)
    assert not model.components_[: model.n_components_, never].any()
    model.save(tmp_path / "m.zarr")
    model = load(tmp_path / "m.zarr")
    cells = model.predict_cells(x, np.arange(N), np.full(N, 2))
    level = model.transform(x)[:, -1] * model.row_effect_variance_**0.5 if model.row_effects is True else 0.0
    np.testing.assert_allclose(cells["mean"], means.mean() + level, rtol=1e-9)
    np.testing.assert_allclose(cells["variance"], by_prior(model, x, never), rtol=1e-4)
    told = np.where(np.isin(np.arange(9), never), 3.0, x)
    np.testing.assert_array_equal(model.transform(told), model.transform(x))
    np.testing.assert_array_equal(model.score_samples(told), model.score_samples(x))


@pytest.mark.parametrize("model", [PPCA(2, missing="nan", prior="ml"), FactorAnalysis(2, missing="nan")])
def test_without_a_prior_of_the_means_nothing_is_known(model: Any) -> None:
    x = np.insert(X, 3, np.nan, axis=1)
    with pytest.warns(DataWarning, match=r"1 of 8 features .*columns 3\).* mean is NaN, take them out"):
        model.fit(x)
    assert np.flatnonzero(np.isnan(model.mean_)).tolist() == [3]
    assert np.isnan(model.predict_cells(x, [0], [3])["mean"]).all()


def test_few_features_are_named() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PPCA(2, missing="nan").fit(np.hstack([X, np.full((N, 9), np.nan)]))
    assert [str(one.message).count(", …") for one in caught] == [1]
