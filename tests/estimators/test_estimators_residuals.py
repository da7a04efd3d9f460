"""Residuals are those of each entry given the others of its row; weights are those of Student's distribution."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import PPCA, FactorAnalysis


def rows(rng, samples=120, features=7, noise=0.5):
    about = rng.normal(size=(samples, 2)) @ rng.normal(size=(2, features))
    return 2.0 + about + noise * rng.normal(size=(samples, features))


def given_the_others(x, mean, covariance):
    """Mean and variance of each observed entry given the other observed ones; of a missing one given all (n, D)."""
    means, variances = np.empty(x.shape), np.empty(x.shape)
    for (i, j), _ in np.ndenumerate(x):
        others = ~np.isnan(x[i])
        others[j] = False
        weights = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, j])
        means[i, j] = mean[j] + weights @ (x[i, others] - mean[others])
        variances[i, j] = covariance[j, j] - weights @ covariance[others, j]
    return means, variances


@pytest.mark.parametrize(
    "model",
    [
        PPCA(2),
        PPCA(2, scale="spread"),
        FactorAnalysis(2),
        FactorAnalysis(2, rotation="promax"),
        PPCA(2, missing="nan", prior="ml"),
        FactorAnalysis(2, missing="nan", prior="ml"),
    ],
    ids=str,
)
def test_normal_residuals_are_those_of_entries_given_the_others(model):
    rng = np.random.default_rng(0)
    x = rows(rng)
    if model.missing == "nan":
        x[rng.random(x.shape) < 0.2] = np.nan
    result = model.fit(x).residuals(x)
    means, variances = given_the_others(x, model.mean_, model.get_covariance())
    np.testing.assert_allclose(result["mean"], means, rtol=1e-8)
    np.testing.assert_allclose(result["residual"], (x - means) / np.sqrt(variances), rtol=1e-7, atol=1e-9)
    assert result.attrs == {"likelihood": "normal"}
    assert "weight" not in result


def test_rows_are_off_by_the_distance_of_a_multivariate_t():
    rng = np.random.default_rng(1)
    x = rows(rng)
    x[::10] *= 10.0
    x[rng.random(x.shape) < 0.1] = np.nan
    model = PPCA(2, likelihood="student_rows", missing="nan").fit(x)
    result, nu = model.residuals(x), model.residuals(x).attrs["degrees_of_freedom"]
    shape = model.components_.T @ model.components_ + model.noise_variance_ * np.eye(7)
    means, variances = given_the_others(x, model.mean_, shape)
    np.testing.assert_allclose(result["mean"], means, rtol=1e-8)
    np.testing.assert_allclose(result["residual"], (x - means) / np.sqrt(variances), rtol=1e-7, atol=1e-9)
    for row, weight in zip(x - model.mean_, result["weight"].values, strict=True):
        seen = ~np.isnan(row)
        distance = row[seen] @ np.linalg.solve(shape[np.ix_(seen, seen)], row[seen])
        assert weight == pytest.approx((nu + seen.sum()) / (nu + distance), rel=1e-9)
    assert result["weight"].dims == ("sample",)


def test_entries_that_are_far_off_have_small_weights():
    rng = np.random.default_rng(2)
    x = rows(rng, 300, 20)
    off = rng.random(x.shape) < 0.05
    x[off] += 20.0 * rng.choice([-1.0, 1.0], size=off.sum())
    model = PPCA(2, likelihood="student").fit(x)
    result = model.residuals(x)
    weight, nu = result["weight"].values, result.attrs["degrees_of_freedom"]
    assert weight[off].max() < 0.05 < weight[~off].min()
    assert weight.mean() == pytest.approx(1.0, abs=0.2)
    # u = (ν + 1)/(ν + d), d at least the squared distance from the mean that the entry itself has moved.
    away = (x - model.inverse_transform(model.transform(x))) ** 2 / model.noise_variance_
    assert (weight <= (nu + 1.0) / (nu + away) * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", ["student", "poisson", "negative_binomial", "bernoulli"])
def test_means_of_other_entries_are_nearly_what_is_imputed_without_them(name):
    """The term of an entry leaves the posterior of its row; what it did to the terms of the others stays."""
    rng = np.random.default_rng(3)
    x = 0.5 * rows(rng, 200, 20)
    draw = {
        "student": lambda e: e + 0.3 * rng.standard_t(3, e.shape),
        "bernoulli": lambda e: (rng.random(e.shape) < 1.0 / (1.0 + np.exp(-e))).astype(float),
        "poisson": lambda e: rng.poisson(np.exp(e)).astype(float),
        "negative_binomial": lambda e: rng.poisson(np.exp(e) * rng.gamma(3.0, 1.0 / 3.0, e.shape)).astype(float),
    }
    x = draw[name](x)
    model = PPCA(2, likelihood=name, row_effects=False).fit(x).set_params(missing="nan")
    result = model.residuals(x)
    without = np.empty(x.shape)
    for feature in range(x.shape[1]):
        holes = x.copy()
        holes[:, feature] = np.nan
        without[:, feature] = model.impute(holes)[:, feature]
    left_in = model.inverse_transform(model.transform(x))
    error, before = (np.sqrt(np.mean((mean - without) ** 2)) for mean in (result["mean"].values, left_in))
    assert error < (0.3 if name == "student" else 0.1) * before
    holes = np.where(np.arange(20) == 4, np.nan, x)
    np.testing.assert_allclose(model.residuals(holes)["mean"][:, 4], without[:, 4], rtol=1e-10)


def test_squares_are_one_on_average_where_counts_vary_as_the_model_says():
    rng = np.random.default_rng(4)
    means = np.exp(0.5 * rows(rng, 1000, 20, noise=0.0))
    poisson, wider = rng.poisson(means), rng.poisson(means * rng.gamma(2.0, 0.5, means.shape))

    def square(likelihood, x):
        return float((PPCA(2, likelihood=likelihood, row_effects=False).fit(x).residuals(x)["residual"] ** 2).mean())

    assert square("poisson", poisson) == pytest.approx(1.0, abs=0.05)
    assert square("negative_binomial", wider) == pytest.approx(1.0, abs=0.05)
    assert square("poisson", wider) > 1.5


def test_kinds_of_data_have_the_same_residuals():
    rng = np.random.default_rng(5)
    counts = rng.poisson(np.exp(0.4 * rows(rng)))
    model = PPCA(2, likelihood="poisson").fit(counts)
    expected = model.residuals(counts)
    assert expected["residual"].dims == ("sample", "feature")
    for other in (sp.csr_array(counts), da.from_array(counts, chunks=(50, 7)), pd.DataFrame(counts)):
        np.testing.assert_allclose(model.residuals(other)["residual"], expected["residual"], rtol=1e-9)
    unstored = PPCA(2, likelihood="poisson", missing="unstored").fit(sp.csr_array(counts))
    result = unstored.residuals(sp.csr_array(counts))
    np.testing.assert_array_equal(np.isnan(result["residual"]), counts == 0)


def test_residuals_lie_over_the_dimensions_of_the_features():
    rng = np.random.default_rng(6)
    values, years = rows(rng, 60, 8).reshape(60, 2, 4), 1900 + np.arange(60)
    field = xr.DataArray(values, dims=("year", "lat", "lon"), coords={"year": years}, attrs={"units": "K"})
    model = PPCA(2, likelihood="student_rows").fit(field, dim="year")
    result = model.residuals(field)
    assert result["residual"].dims == ("year", "lat", "lon")
    assert (result["mean"].attrs, result["residual"].attrs) == ({"units": "K"}, {})
    assert result["weight"].dims == ("year",)
    np.testing.assert_array_equal(result["weight"]["year"], years)
    entries = PPCA(2, likelihood="student").fit(field, dim="year").residuals(field)
    assert entries["weight"].dims == ("year", "lat", "lon")
