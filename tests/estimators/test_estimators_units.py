"""Scores in units of the features, and fits that do not depend on the units of the features."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA

import dlatent as d
from dlatent.errors import DataError, DataWarning

X, GRAPE = load_wine(return_X_y=True)
SPREAD = X.std(axis=0, ddof=1)
RING = sp.csr_array(np.roll(np.eye(178), 1, axis=0) + np.roll(np.eye(178), -1, axis=0))
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
MODELS = {
    "ppca": (d.PPCA(3), {}),
    "ppca krylov": (d.PPCA(3, solver="krylov"), {}),
    "ppca ard": (d.PPCA(5, prior="ard"), {}),
    "factor analysis": (d.FactorAnalysis(2), {}),
    "supervised": (d.SupervisedPPCA(3), {"y": GRAPE}),
    "supervised ard": (d.SupervisedPPCA(3, prior="ard"), {"y": GRAPE}),
    "graph": (d.GraphPPCA(3, smoothing=1.0), {"graph": RING}),
    "relational": (d.RelationalPPCA(3), {"graph": RING}),
    "relational supervised": (d.RelationalSupervisedPPCA(3), {"y": GRAPE, "graph": RING}),
    "mixture": (d.PPCAMixture(2, 2), {}),
    "mixture diagonal": (d.PPCAMixture(1, 2, noise="diagonal"), {}),
    "kernel": (d.KernelPPCA(3), {}),
    "kernel landmarks": (d.KernelSupervisedPPCA(3, landmarks=40), {"y": GRAPE}),
}


def fitted(name, rows, **options):
    model, data = MODELS[name]
    return type(model)(**{**model.get_params(), "tol": 1e-12, **options}).fit(rows, **data)


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.mark.parametrize("name", ["ppca", "ppca ard", "factor analysis"])
def test_the_distribution_is_that_of_the_data(name):
    model = fitted(name, X, scale="spread")
    dense = multivariate_normal(model.mean_, model.get_covariance(), allow_singular=True)
    np.testing.assert_allclose(np.eye(13), model.get_covariance() @ model.get_precision(), atol=1e-6)
    if name != "ppca ard":  # whose densities know how uncertain loadings are
        np.testing.assert_allclose(model.score_samples(X), dense.logpdf(X), rtol=1e-6)


def test_features_in_mixed_units_are_filled_in_better_than_by_their_means():
    for shift in (0.0, X.mean(axis=0)):
        rows, hidden = GAPS - shift, np.isnan(GAPS)
        errors = [
            np.sqrt(np.mean((((filled - X + shift) / SPREAD)[hidden]) ** 2))
            for filled in (d.PPCA(missing="nan").fit(rows).impute(rows), np.broadcast_to(np.nanmean(rows, 0), X.shape))
        ]
        assert errors[0] < 0.9 * errors[1]


def test_a_constant_feature_and_one_of_few_entries_have_units():
    rows = np.column_stack([GAPS, np.full(178, 7.0), np.zeros(178), np.full(178, np.nan)])
    rows[:3, -1] = [1.0, 1.0, 1.0 + 1e-9]
    filled = d.PPCA(3, missing="nan").fit(rows).impute(rows)
    np.testing.assert_allclose(filled[:, 13:15], rows[:, 13:15], atol=1e-12)
    assert abs(filled[:, 15] - 1.0).max() < 1.0


def test_scores_are_those_of_pca_but_for_what_noise_takes():
    rows, pca = X / SPREAD, PCA(4)
    theirs, model = pca.fit_transform(rows), d.PPCA(4).fit(rows)
    left = 1.0 - model.noise_variance_ / model.explained_variance_
    np.testing.assert_allclose(abs(model.transform(rows)), abs(theirs) * left, atol=1e-10)
    both = d.PPCA(4, whiten=True).fit(rows)
    latent = both.transform(rows)
    np.testing.assert_allclose(latent.std(axis=0), np.sqrt(left), rtol=1e-10)
    np.testing.assert_allclose(both.inverse_transform(latent), model.inverse_transform(model.transform(rows)))


def test_scores_and_their_covariances_have_one_unit(name):
    if "factor" in name:  # scores of factors are latent variables
        assert "whiten" not in MODELS[name][0].get_params()
        return
    model, whitened = fitted(name, X / SPREAD), fitted(name, X / SPREAD, whiten=True)
    scores, latent = model.transform(X / SPREAD), whitened.transform(X / SPREAD)
    if "mixture" in name:
        part = model.predict(X / SPREAD)
        np.testing.assert_allclose(scores, latent * np.linalg.norm(model.components_, axis=2)[part], rtol=1e-9)
        np.testing.assert_allclose(model.inverse_transform(scores, part), model.reconstruct(X / SPREAD), rtol=1e-9)
        return
    lengths = np.sqrt(model.explained_variance_ - np.ravel(model.noise_variance_)[0])
    np.testing.assert_allclose(scores, latent * lengths, rtol=1e-6, atol=1e-6)
    about, latent_about = (each.posterior(X[:5] / SPREAD)["covariance"].values for each in (model, whitened))
    np.testing.assert_allclose(about, latent_about * np.outer(lengths, lengths), rtol=1e-6, atol=1e-9)
    if hasattr(model, "inverse_transform"):
        expected = whitened.inverse_transform(latent)
        np.testing.assert_allclose(model.inverse_transform(scores), expected, rtol=1e-6, atol=1e-6)


def test_components_that_are_off_have_scores_of_zero():
    rows = np.random.default_rng(0).normal(size=(60, 5))
    model = d.PPCA(3, prior="ard").fit(rows)
    assert model.n_components_effective_ < 3
    off = ~model.components_.any(axis=1)
    assert not model.transform(rows)[:, off].any()
    assert np.isfinite(model.inverse_transform(np.ones((2, 3)))).all()


def test_the_level_of_a_row_is_its_last_score():
    rng = np.random.default_rng(1)
    level = rng.normal(size=(300, 1))
    rows = level + 0.3 * rng.normal(size=(300, 12))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    model = d.PPCA(1, missing="nan", row_effects=True).fit(rows)
    found = model.transform(rows)[:, -1]
    assert np.corrcoef(found, level[:, 0])[0, 1] > 0.95
    assert np.std(found) == pytest.approx(np.std(level), rel=0.2)


def test_the_level_of_a_row_has_the_units_of_the_fit():
    options = {"missing": "nan", "row_effects": True, "scale": "spread", "tol": 1e-12}
    model, latent = (d.PPCA(1, whiten=whiten, **options).fit(GAPS) for whiten in (False, True))
    levels = latent.transform(GAPS)[:, -1] * np.sqrt(model.row_effect_variance_)
    np.testing.assert_allclose(model.transform(GAPS)[:, -1], levels, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["relational", "relational supervised"])
def test_the_likelihood_of_samples_in_a_graph_is_that_of_the_data(name):
    plain, scaled = fitted(name, X / SPREAD), fitted(name, X, scale="spread")
    y = (GRAPE,) if "supervised" in name else ()
    found, expected = scaled.log_likelihood(X, *y, graph=RING), plain.log_likelihood(X / SPREAD, *y, graph=RING)
    assert found.value == pytest.approx(expected.value - 178 * np.log(SPREAD).sum(), rel=1e-7)


@pytest.mark.parametrize("model", [d.PPCA(2), d.SupervisedPPCA(2), d.PPCAMixture(1, 2)])
def test_mixed_units_are_told_with_what_helps(model):
    y = {"y": GRAPE} if isinstance(model, d.SupervisedPPCA) else {}
    with pytest.warns(DataWarning, match="scale='spread'"):
        model.fit(X, **y)


@pytest.mark.filterwarnings("error")
def test_features_that_spread_alike_are_no_mixed_units():
    d.PPCA(2).fit(X / SPREAD)
    d.FactorAnalysis(2).fit(X)
    d.PPCA(2, scale="spread").fit(X)


def test_where_units_cannot_be_found_it_is_said():
    with pytest.raises(DataError, match="partial_fit"):
        d.PPCA(2, scale="spread").partial_fit(X)
    with pytest.raises(DataError, match="precomputed"):
        d.KernelPPCA(2, kernel="precomputed", scale="spread").fit(X @ X.T)
    with pytest.raises(DataError, match="scale is 'unit'"):
        d.PPCA(2, scale="unit").fit(X)


@pytest.mark.parametrize("missing", ["raise", "unstored"])
def test_sparse_rows_have_the_spreads_of_their_entries(missing):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(200, 8)) * (rng.random((200, 8)) < 0.4) * 10.0 ** np.arange(-4, 4)
    whole = np.where(rows == 0.0, np.nan, rows) if missing == "unstored" else rows
    found = d.PPCA(2, missing=missing, scale="spread", tol=1e-12).fit(sp.csr_array(rows))
    expected = d.PPCA(2, missing="nan" if missing == "unstored" else "raise", scale="spread", tol=1e-12).fit(whole)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(found.result_["feature_scale"], np.nanstd(whole, axis=0, ddof=1), rtol=1e-9)


def test_a_warm_start_goes_on_in_the_units_of_the_fit():
    model = d.PPCA(3, missing="nan", warm_start=True).fit(GAPS)
    before = model.log_likelihood_, model.n_passes_, model.result_["feature_scale"].values
    model.fit(GAPS)
    assert model.log_likelihood_ == pytest.approx(before[0], rel=1e-6)
    assert model.n_passes_ < before[1]
    np.testing.assert_array_equal(model.result_["feature_scale"], before[2])


@pytest.mark.parametrize("criterion", ["held_out", "cross_validation", "bic"])
@pytest.mark.parametrize(
    ("model", "rows"), [(d.PPCA(scale="spread"), X), (d.PPCA(missing="nan"), GAPS), (d.FactorAnalysis(), X)]
)
@pytest.mark.filterwarnings("ignore::dlatent.DataWarning")
def test_numbers_of_components_are_compared_in_any_unit(model, rows, criterion):
    units = 10.0 ** np.random.default_rng(1).uniform(-2, 2, 13)
    here, there = (d.select_n_components(model, each, [0, 1, 2], criterion=criterion) for each in (rows, rows * units))
    before, after = (found[found.attrs["score"]].values for found in (here, there))
    np.testing.assert_allclose(after - after[0], before - before[0], rtol=1e-5, atol=1e-6)
    if criterion == "bic":
        fits = [clone(model).set_params(n_components=k).fit(rows * units).bic(rows * units) for k in (1, 2)]
        np.testing.assert_allclose(after[1:], fits, rtol=1e-9)
