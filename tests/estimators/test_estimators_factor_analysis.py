"""Factor analysis as an estimator: attributes, scores, rotations, Heywood cases, and the command line."""

from __future__ import annotations

import json
from functools import cache

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.datasets import load_digits
from sklearn.decomposition import FactorAnalysis as OfSklearn

import dlatent
from dlatent import DataError, DataWarning, FactorAnalysis, NoiseFloorWarning, PlanError
from dlatent.cli.main import main
from tests.oracles import dense as oracles

RNG = np.random.default_rng(5)
N, D, K = 200, 9, 3
LOADINGS = RNG.standard_normal((D, K))
NOISE = RNG.uniform(0.2, 1.5, D)
X = RNG.standard_normal((N, K)) @ LOADINGS.T + RNG.standard_normal((N, D)) * np.sqrt(NOISE) + 2.0


@cache
def fitted():
    return FactorAnalysis(K).fit(X)


def dense(model):
    return oracles.DenseModel(model.components_.T, model.mean_, model.noise_variance_)


def test_likelihood_and_scores_are_those_of_a_dense_gaussian():
    np.testing.assert_allclose(fitted().score_samples(X), oracles.log_densities(dense(fitted()), X), rtol=1e-10)
    np.testing.assert_allclose(fitted().score_samples(sp.csr_array(X)), fitted().score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(fitted().transform(X)[7], oracles.latent_given(dense(fitted()), X[7]).mean, atol=1e-10)
    np.testing.assert_allclose(fitted().get_covariance(), dense(fitted()).observed.covariance, rtol=1e-12)


def test_the_likelihood_is_not_below_scikit_learns():
    digits = load_digits().data
    digits = digits[:, digits.std(axis=0) > 0]
    for data, k in ((X, K), (digits, 5)):
        other = OfSklearn(k, tol=1e-9, max_iter=5000).fit(data)
        ours = FactorAnalysis(k).fit(data)
        assert ours.converged_
        assert ours.log_likelihood_ >= other.score(data) * len(data) - 1e-8 * abs(ours.log_likelihood_)


def test_communalities_are_explained_parts_of_the_variance():
    assert fitted().noise_variance_.shape == (D,)
    explained = (fitted().components_ ** 2).sum(axis=0)
    np.testing.assert_allclose(fitted().communalities_, explained / np.diag(fitted().get_covariance()), rtol=1e-12)
    np.testing.assert_allclose(fitted().communalities_ + fitted().uniquenesses_, 1.0)
    # At a maximum the model's variances are those of the data.
    np.testing.assert_allclose(np.diag(fitted().get_covariance()), X.var(axis=0), rtol=1e-6)
    assert fitted().explained_variance_ratio_.sum() == pytest.approx(fitted().communalities_.mean())


def test_bartlett_scores_are_unbiased_and_regression_scores_shrink():
    regression, bartlett = fitted().transform(X), fitted().transform(X, scores="bartlett")
    root = np.sqrt(fitted().noise_variance_)
    expected = np.linalg.lstsq(fitted().components_.T / root[:, None], ((X[3] - fitted().mean_) / root), rcond=None)[0]
    np.testing.assert_allclose(bartlett[3], expected, rtol=1e-8)
    assert ((regression**2).sum(axis=0) < (bartlett**2).sum(axis=0)).all()
    np.testing.assert_allclose(fitted().transform(da.from_array(X, chunks=(50, 9)), scores="bartlett"), bartlett)
    np.testing.assert_allclose(fitted().transform(sp.csr_array(X), scores="bartlett"), bartlett, atol=1e-9)
    with pytest.raises(DataError, match="expected 'regression' or 'bartlett'"):
        fitted().transform(X, scores="median")


@pytest.mark.parametrize("method", ["varimax", "quartimax", "promax", "oblimin"])
def test_rotations_leave_the_model_as_it_is(method):
    found = fitted().rotated(method)
    loadings, between = found["loadings"].values, found["correlations"].values
    covariance = fitted().components_.T @ fitted().components_
    np.testing.assert_allclose(loadings @ between @ loadings.T, covariance, atol=1e-9)
    np.testing.assert_allclose(np.diag(between), 1.0, rtol=1e-9)
    turned = fitted().transform(X) @ np.linalg.inv(found["transformation"].values).T
    np.testing.assert_allclose(turned @ loadings.T, fitted().transform(X) @ fitted().components_, atol=1e-9)
    with pytest.raises(DataError, match=r"expected 'varimax', .* or 'oblimin'"):
        fitted().rotated("equamax")


@pytest.mark.parametrize("rotation", ["varimax", "quartimax"])
def test_a_rotated_fit_is_the_same_model_with_turned_factors(rotation):
    model, found = FactorAnalysis(K, rotation=rotation).fit(X), fitted().rotated(rotation)
    turn = found["transformation"].values
    np.testing.assert_allclose(model.components_.T, found["loadings"].values, atol=1e-12)
    np.testing.assert_allclose(model.transform(X), fitted().transform(X) @ turn, atol=1e-12)
    bartlett = fitted().transform(X, scores="bartlett") @ turn
    np.testing.assert_allclose(model.transform(X, scores="bartlett"), bartlett, atol=1e-9)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X)), fitted().inverse_transform(fitted().transform(X))
    )
    np.testing.assert_allclose(model.get_covariance(), fitted().get_covariance(), rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(X), fitted().score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(model.transform(X)[7], oracles.latent_given(dense(model), X[7]).mean, atol=1e-10)
    assert model.log_likelihood_ == fitted().log_likelihood_
    assert (np.diff(model.explained_variance_) < 0).all()


@pytest.mark.parametrize("rotation", ["varimax", "quartimax"])
def test_rotated_loadings_are_those_of_scikit_learn_where_features_weigh_alike(rotation):
    """scikit-learn does not scale the rows of the loadings to length 1: where all communalities are equal, that is no
    difference.  The covariance of the rows is exactly that of the model."""
    simple = np.kron(np.eye(3), np.array([[0.9], [0.7], [0.8]])) + 0.2 * np.random.default_rng(1).standard_normal(
        (9, 3)
    )
    loadings = 0.8 * simple / np.sqrt((simple**2).sum(axis=1))[:, None]
    white = np.linalg.qr(np.column_stack([np.ones(60), np.random.default_rng(2).standard_normal((60, 9))]))[0][:, 1:]
    x = white * np.sqrt(60) @ np.linalg.cholesky(loadings @ loadings.T + 0.36 * np.eye(9)).T
    ours = FactorAnalysis(3, rotation=rotation).fit(x)
    theirs = OfSklearn(3, rotation=rotation, tol=1e-12, max_iter=20_000, svd_method="lapack").fit(x)
    pairs = np.abs(ours.components_ @ theirs.components_.T).argmax(axis=1)
    assert sorted(pairs) == [0, 1, 2]
    for mine, other in zip(ours.components_, theirs.components_[pairs], strict=True):
        np.testing.assert_allclose(mine, other * np.sign(mine @ other), atol=5e-3)


@pytest.mark.filterwarnings("ignore::dlatent.ConvergenceWarning")
@pytest.mark.parametrize("rotation", ["varimax", "promax"])
def test_rotations_take_missing_entries(rotation):
    holes = np.where(np.random.default_rng(6).random((40, D)) < 0.1, np.nan, X[:40])
    plain = FactorAnalysis(2, missing="nan", prior="ml", solver="em", max_iter=5).fit(holes)
    turned = FactorAnalysis(2, missing="nan", prior="ml", solver="em", max_iter=5, rotation=rotation).fit(holes)
    back = np.linalg.inv(plain.rotated(rotation)["transformation"].values)
    np.testing.assert_allclose(turned.transform(holes), plain.transform(holes) @ back.T, atol=1e-10)
    each = back @ plain.posterior(holes)["covariance"].values @ back.T
    np.testing.assert_allclose(turned.posterior(holes)["covariance"].values, each, atol=1e-10)
    np.testing.assert_allclose(turned.impute(holes), plain.impute(holes), atol=1e-10)


@pytest.mark.parametrize("rotation", ["promax", "oblimin"])
def test_factors_that_correlate_are_those_of_their_definition(rotation):
    """f ~ N(0, Φ) and x = Λf + μ + ε, as one normal distribution."""
    model, found = FactorAnalysis(K, rotation=rotation).fit(X), fitted().rotated(rotation)
    loadings, between = found["loadings"].values, found["correlations"].values
    np.testing.assert_allclose(model.components_.T, loadings, atol=1e-12)
    np.testing.assert_allclose(model.factor_correlation_, between, atol=1e-12)
    covariance = loadings @ between @ loadings.T + np.diag(fitted().noise_variance_)
    np.testing.assert_allclose(model.get_covariance(), covariance, rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(X), fitted().score_samples(X), rtol=1e-10)
    gain = between @ loadings.T @ np.linalg.inv(covariance)
    known = model.posterior(X)
    np.testing.assert_allclose(model.transform(X), (X - X.mean(axis=0)) @ gain.T, atol=1e-9)
    np.testing.assert_allclose(known["scores"].values, model.transform(X), atol=1e-12)
    np.testing.assert_allclose(known["covariance"].values, between - gain @ loadings @ between, atol=1e-9)
    weighted = loadings / fitted().noise_variance_[:, None]
    bartlett = np.linalg.solve(loadings.T @ weighted, weighted.T @ (X - X.mean(axis=0)).T).T
    np.testing.assert_allclose(model.transform(X, scores="bartlett"), bartlett, atol=1e-8)
    np.testing.assert_allclose(model.inverse_transform(np.eye(K)), loadings.T + X.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(model.communalities_, fitted().communalities_, rtol=1e-9)
    assert model.explained_variance_.sum() == pytest.approx(fitted().explained_variance_.sum())
    # Once more, relative to its own factors.
    again = model.rotated("varimax")
    np.testing.assert_allclose(abs(again["loadings"].values), abs(fitted().rotated()["loadings"].values), atol=1e-6)
    shown = model.transform(X) @ np.linalg.inv(again["transformation"].values).T
    np.testing.assert_allclose(
        abs(shown), abs(fitted().transform(X) @ fitted().rotated()["transformation"].values), atol=1e-6
    )
    np.testing.assert_array_equal(model.result_["loadings"].values, model.components_.T)
    np.testing.assert_array_equal(model.result_["factor_correlation"].values, model.factor_correlation_)


def test_factors_of_other_rotations_do_not_correlate():
    for rotation in (None, "varimax"):
        np.testing.assert_array_equal(FactorAnalysis(K, rotation=rotation).fit(X).factor_correlation_, np.eye(K))
    with pytest.raises(DataError, match=r"rotation is 'equamax'; expected 'varimax', .* or 'oblimin', or None"):
        FactorAnalysis(K, rotation="equamax").fit(X)


def test_varimax_finds_simple_structure_whatever_the_units():
    simple = np.kron(np.eye(3), np.array([[0.9], [0.7], [0.8]]))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 3)) @ simple.T + rng.standard_normal((4000, 9)) * 0.4
    found = FactorAnalysis(3).fit(x * np.geomspace(1e-2, 1e2, 9)).rotated()["loadings"].values
    found = abs(found) / np.geomspace(1e-2, 1e2, 9)[:, None]
    np.testing.assert_allclose(np.sort(found, axis=1), np.sort(simple, axis=1), atol=0.08)


def test_heywood_cases_are_reported():
    x = X.copy()
    x[:, 1] = 2.0 * x[:, 0]
    with pytest.warns(NoiseFloorWarning, match=r"2 of 9 features .*Heywood cases: 0, 1"):
        model = FactorAnalysis(1).fit(x)
    assert model.at_floor_.tolist() == [True, True] + [False] * 7


@pytest.mark.slow
@pytest.mark.parametrize("feature", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_constant_features_are_kept_and_named_in_a_warning(feature):
    x = X.copy()
    x[:, feature] = 7.3
    for missing in ("nan", "raise"):
        with pytest.warns(DataWarning, match=f"feature {feature} has one value") as said:
            kept = FactorAnalysis(K, missing=missing, prior="ml").fit(x)
        assert len(said) == 1
    without = FactorAnalysis(K).fit(np.delete(x, feature, axis=1))
    np.testing.assert_allclose(np.delete(kept.communalities_, feature), without.communalities_, atol=1e-4)


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        ([4], "^feature 4 has one value"),
        ([0, 4], r"^2 of 9 features \(0, 4\) have one value"),
        ([0, 1, 2, 3, 4, 5], r"^6 of 9 features \(0, 1, 2, 3, 4, …\) have one value"),
    ],
)
def test_constant_features_are_counted(constant, said):
    x = X.copy()
    x[:, constant] = 7.3
    with pytest.warns(DataWarning, match=said):
        FactorAnalysis(1, prior="ml").fit(x)


def test_routes():
    assert fitted().plan(X).solver == "covariance"
    assert fitted().n_passes_ == 1
    with pytest.raises(PlanError, match="'krylov' is none for this model"):
        FactorAnalysis(K, solver="krylov").fit(X)
    with pytest.raises(PlanError, match="'accelerated_em' is none"):
        FactorAnalysis(K, solver="accelerated_em").fit(sp.csr_array(X))


def test_the_command_line_fits_shows_and_transforms(tmp_path, capsys):
    array = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(40, 9))
    place, out = str(tmp_path / "x.zarr"), str(tmp_path / "fa.zarr")
    assert main(["plan", "fa", place, "-k", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["solver"] == "covariance"
    assert main(["fit", "fa", place, "-k", "3", "-o", out, "--quiet"]) == 0
    assert "features (mean)" in capsys.readouterr().out
    assert main(["inspect", out]) == 0
    assert "features (mean)" in capsys.readouterr().out
    assert main(["inspect", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noise"][0]["at_floor"] == 0
    np.testing.assert_array_equal(dlatent.load(out).noise_variance_, FactorAnalysis(3).fit(place).noise_variance_)
    assert main(["transform", out, place, "-o", str(tmp_path / "z.zarr")]) == 0
    array[3, 2] = np.nan
    assert main(["fit", "fa", place, "-k", "3", "-o", out, "--overwrite", "--quiet"]) != 0
    assert "missing='nan'" in capsys.readouterr().err
    assert main(["fit", "fa", place, "-k", "3", "-o", out, "--overwrite", "--quiet", "--missing", "nan"]) == 0
