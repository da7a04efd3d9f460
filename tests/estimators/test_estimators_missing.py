"""Models of data with missing entries: against dense Gaussians, on all kinds of input, and what odd data are told."""

from __future__ import annotations

import warnings
from functools import partial

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine

import dlatent
from dlatent import PPCA, DataError, DataWarning, FactorAnalysis, SupervisedPPCA
from dlatent.gaussian.specification import Parameters
from tests.fitted import encoding_of, parameters_of, specification_of
from tests.oracles import dense as oracles
from tests.simulators import simulate
from tests.sparse_stores import observed_entries

N, D, L, K = 150, 8, 2, 2
DATA = simulate(N, (D, L), K, noise=(0.3, 0.2), random_state=4)


def with_holes(x, part, seed=0):
    """A part of the entries NaN, at least one of each row observed."""
    rng = np.random.default_rng(seed)
    holes = rng.random(x.shape) < part
    holes[np.arange(len(x)), rng.integers(x.shape[1], size=len(x))] = False
    return np.where(holes, np.nan, x)


X = with_holes(DATA.features, 0.3)
Y = with_holes(DATA.targets, 0.4, seed=1)
Y[:20] = np.nan
GONE = np.isnan(X)


def dense(model):
    """The fitted model over the features as a dense Gaussian."""
    return oracles.DenseModel(model.components_.T, model.mean_, np.broadcast_to(model.noise_variance_, D))


ML, FACTORS = (partial(kind, prior="ml") for kind in (PPCA, FactorAnalysis))
MODELS = {"ppca": partial(ML, whiten=True), "fa": FACTORS}
# The search of factor analysis over many starts takes seconds.
SOME = [pytest.param(ML, id="PPCA"), pytest.param(FACTORS, id="FactorAnalysis", marks=pytest.mark.slow)]


def disjoint_halves(x, part, rng):
    """Half of the rows observe something of one half of the features only, the others of the other."""
    first, left = np.arange(len(x)) < len(x) // 2, np.arange(x.shape[1]) < x.shape[1] // 2
    return (rng.random(x.shape) < part) | (first[:, None] == left)


MISSING = {
    "at random": lambda x, part, rng: rng.random(x.shape) < part,
    "large values": lambda x, part, rng: x > np.quantile(x, 1.0 - part),
    "dropout": lambda x, part, rng: (
        np.arange(x.shape[1]) >= rng.binomial(x.shape[1], 1.0 - part, len(x)).clip(1)[:, None]
    ),
    "by feature": lambda x, part, rng: rng.random(x.shape) < part ** np.linspace(2.0, 0.2, x.shape[1]),
    "disjoint halves": disjoint_halves,
}


@pytest.fixture(scope="module", params=["ppca", pytest.param("fa", marks=pytest.mark.slow)])
def model(request):
    return MODELS[request.param](K, missing="nan", tol=1e-13).fit(X)


@pytest.mark.slow
def test_the_maximum_has_no_gradient(model):
    noise = np.atleast_1d(model.noise_variance_)
    p = Parameters(model.components_.T, model.mean_, noise)
    assert abs(oracles.score_vector(p, specification_of(model), X)).max() < 1e-6
    assert model.log_likelihood_ == pytest.approx(oracles.log_densities(dense(model), X).sum(), rel=1e-12)


def test_results_are_conditional_gaussians(model):
    means, filled, variances = model.transform(X), model.impute(X), model.impute_variance(X)
    spreads = model.posterior(X)["covariance"]
    assert spreads.dims == ("sample", "component", "component_2")
    for i in range(0, N, 17):
        latent, gone = oracles.latent_given(dense(model), X[i]), GONE[i]
        np.testing.assert_allclose(means[i], latent.mean, atol=1e-9)
        np.testing.assert_allclose(spreads[i], latent.covariance, atol=1e-9)
        missing = oracles.missing_given(dense(model), X[i])
        np.testing.assert_allclose(filled[i, gone], missing.mean, atol=1e-9)
        np.testing.assert_allclose(variances[i, gone], np.diag(missing.covariance), atol=1e-9)
    np.testing.assert_array_equal(filled[~GONE], X[~GONE])
    np.testing.assert_allclose(model.score_samples(X), oracles.log_densities(dense(model), X), rtol=1e-9)
    assert model.score(X) * N == pytest.approx(model.log_likelihood_, rel=1e-10)


def test_imputed_variances_are_calibrated():
    """Of the hidden values about 95 % lie within two standard deviations of their means."""
    model = PPCA(K, missing="nan").fit(X)
    away = (DATA.features - model.impute(X))[GONE] / np.sqrt(model.impute_variance(X)[GONE])
    assert 0.9 < (abs(away) < 2.0).mean() < 0.99


@pytest.mark.parametrize("make", SOME)
def test_without_holes_the_maximum_is_that_of_complete_data(make):
    one = make(K, missing="nan", tol=1e-13).fit(DATA.features)
    other = make(K).fit(DATA.features)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-5)


@pytest.mark.parametrize("components", [2, 6, 11, 12])
def test_without_holes_little_components_are_found_too(components):
    """Of features in units of their own, which little noise is left of."""
    x = load_wine().data
    with_holes, complete = PPCA(components, missing="nan", prior="ml").fit(x), PPCA(components).fit(x)
    assert with_holes.log_likelihood_ == pytest.approx(complete.log_likelihood_, abs=1e-5)


@pytest.mark.parametrize("part", [0.0, 0.02, 0.2, 0.5])
def test_a_prior_takes_no_components_away_that_little_noise_tells_of(part):
    """In units of their own most features have less variance than noise that a start once had."""
    x = load_wine().data
    x[np.random.default_rng(1).random(x.shape) < part] = np.nan
    few, many = (PPCA(k, missing="nan", scale="none").fit(x) for k in (2, 6))
    assert many.log_likelihood_ > few.log_likelihood_ + 300


def test_zeros_that_are_stored_are_observed():
    x = observed_entries(X)
    x.data[::3] = 0.0
    known = np.full(X.shape, np.nan)
    lines, columns = x.tocoo().coords
    known[lines, columns] = x.data
    options = {"scale": "none", "tol": 1e-13}
    one, other = (PPCA(K, missing=how, **options).fit(data) for how, data in (("unstored", x), ("nan", known)))
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-11)


def test_a_model_of_complete_data_takes_incomplete_rows_when_told():
    model = PPCA(K, whiten=True).fit(DATA.features).set_params(missing="nan")
    for i in (0, 50):
        latent = oracles.latent_given(dense(model), X[i])
        np.testing.assert_allclose(model.transform(X)[i], latent.mean, atol=1e-9)


class TestSupervised:
    """Holes in the features and in the targets alike."""

    model = SupervisedPPCA(K, missing="nan", prior="ml", tol=1e-13, head="likelihood", whiten=True).fit(X, Y)

    def stacked(self):
        p, centre = parameters_of(self.model), encoding_of(self.model).centre
        noise = np.repeat(p.noise_variance, (D, L))
        return oracles.DenseModel(p.loadings, p.mean, noise), np.hstack([X, Y - centre])

    @pytest.mark.slow
    def test_the_maximum_has_no_gradient(self):
        whole, rows = self.stacked()
        specification = specification_of(self.model)
        assert abs(oracles.score_vector(parameters_of(self.model), specification, rows)).max() < 1e-6
        expected = oracles.log_densities(whole, rows)
        np.testing.assert_allclose(self.model.score_samples(X, Y), expected, rtol=1e-8)
        assert self.model.log_likelihood_ == pytest.approx(expected.sum(), rel=1e-12)

    def test_results_are_conditional_gaussians(self):
        whole, rows = self.stacked()
        found = self.model.posterior(X, Y)
        filled, means = self.model.impute(X, Y), self.model.decision_function(X)
        values, spread = self.model.predict(X, return_variance=True)
        np.testing.assert_array_equal(values, means)
        for i in range(0, N, 31):
            latent = oracles.latent_given(whole, rows[i])
            np.testing.assert_allclose(found["scores"][i], latent.mean, atol=1e-9)
            np.testing.assert_allclose(found["covariance"][i], latent.covariance, atol=1e-9)
            missing = oracles.missing_given(whole, rows[i])
            gone = np.isnan(rows[i])
            np.testing.assert_allclose(filled[i][GONE[i]], missing.mean[: gone[:D].sum()], atol=1e-9)
            alone = rows[i].copy()
            alone[D:] = np.nan
            ahead = oracles.missing_given(whole, alone)
            np.testing.assert_allclose(means[i], ahead.mean[-L:] + encoding_of(self.model).centre, atol=1e-9)
            np.testing.assert_allclose(spread[i], np.diag(ahead.covariance)[-L:], atol=1e-9)

    def test_holes_in_targets_alone_are_refused_unless_asked_for(self):
        with pytest.raises(DataError, match="is missing but others are present"):
            SupervisedPPCA(K).fit(DATA.features, Y)

    def test_with_whole_rows_of_targets_the_maximum_is_that_of_the_other_routes(self):
        y = DATA.targets.copy()
        y[::3] = np.nan
        one = SupervisedPPCA(K, missing="nan", prior="ml").fit(DATA.features, y)
        other = SupervisedPPCA(K).fit(DATA.features, y)
        assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-9)

    def test_classes(self):
        labels = np.where(np.arange(N) % 4 == 0, None, np.where(DATA.features[:, 0] > 1, "a", "b"))
        model = SupervisedPPCA(1, missing="nan", prior="ml").fit(X, labels)
        known = labels != None  # noqa: E711
        assert (model.predict(X)[known] == labels[known]).mean() > 0.7


@pytest.mark.slow
class TestOddData:
    def test_rows_and_features_without_entries_are_told(self):
        x = np.vstack([np.column_stack([X, np.full(N, np.nan)]), np.full((3, D + 1), np.nan)])
        with pytest.warns(DataWarning) as caught:
            model = PPCA(K, missing="nan", scale="none").fit(x)
        texts = [str(one.message) for one in caught]
        assert any("3 of 153 samples have no observed entry" in text for text in texts)
        assert any("1 of 9 features were never observed (columns 8)" in text for text in texts)
        assert model.log_likelihood_ == pytest.approx(
            PPCA(K, missing="nan", scale="none").fit(X).log_likelihood_, rel=1e-9
        )
        assert model.mean_[8] == pytest.approx(model.mean_[:8].mean())
        np.testing.assert_array_equal(model.transform(x)[-1], 0.0)
        np.testing.assert_array_equal(model.impute(x)[:, 8], model.mean_[8])
        assert np.isfinite(model.impute(x)).all()

    def test_factor_analysis_gives_features_without_entries_the_noise_of_a_mean_one(self, tmp_path):
        x = np.column_stack([X, np.full(N, np.nan)])
        with pytest.warns(DataWarning, match="never observed"):
            model = FactorAnalysis(K, missing="nan", scale="none").fit(x)
        assert model.noise_variance_[8] == pytest.approx(np.nanvar(X, axis=0).mean())
        assert model.communalities_[8] == 0
        model.save(tmp_path / "m.zarr")
        np.testing.assert_array_equal(dlatent.load(tmp_path / "m.zarr").impute(x), model.impute(x))

    @pytest.mark.parametrize("make", MODELS.values())
    @pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.99])
    @pytest.mark.parametrize("how", ["at random", "large values", "dropout", "by feature", "disjoint halves"])
    def test_sane_answers_however_entries_are_missing(self, how, part, make):
        """Finite answers above the trivial model, no prediction beyond the data, and what is wrong is said."""
        data = simulate(200, (12,), 2, noise=(0.3,), random_state=3).features * np.linspace(1.0, 3.0, 12) + 5.0
        x = np.where(MISSING[how](data, part, np.random.default_rng(1)), np.nan, data)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = make(2, missing="nan", zero_rows="keep").fit(x)
        kinds = {one.category for one in said}
        assert kinds <= {DataWarning, dlatent.ConvergenceWarning, dlatent.NoiseFloorWarning}
        assert model.converged_ or dlatent.ConvergenceWarning in kinds
        # Of a feature with one value a warning of the data says that its noise is at the floor.
        assert np.any(model.at_floor_) == any("at its floor" in str(one.message) for one in said)
        trivial = -0.5 * np.isfinite(x).sum() * (np.log(2 * np.pi * np.nanvar(x)) + 1)
        assert model.log_likelihood_ > trivial
        filled = model.impute(x)[:, np.isfinite(x).any(axis=0)]
        assert np.isfinite(filled).all()
        assert abs(filled - 5.0).max() < 2.0 * abs(data - 5.0).max()

    def test_an_unbounded_likelihood_ends_at_the_floor_and_says_so(self):
        x = with_holes(DATA.features[:30], 0.8)
        with pytest.warns(dlatent.NoiseFloorWarning, match="floor"):
            model = PPCA(4, missing="nan", prior="ml", noise_floor=1e-3, max_iter=2000).fit(x)
        assert model.at_floor_ == (True,)

    def test_too_few_passes_are_told(self):
        with pytest.warns(dlatent.ConvergenceWarning, match="stopped after"):
            assert not PPCA(K, missing="nan", max_iter=2).fit(X).converged_

    def test_refusals(self):
        with pytest.raises(DataError, match="missing='nan'"):
            PPCA(K).fit(X)
        with pytest.raises(DataError, match="is for dense data"):
            PPCA(K, missing="nan").fit(observed_entries(X))
        with pytest.raises(DataError, match="is for sparse data"):
            PPCA(K, missing="unstored").fit(X)
        with pytest.raises(DataError, match="expected 'raise', 'nan' or 'unstored'"):
            PPCA(K, missing="maybe").fit(X)
        with pytest.raises(DataError, match="all are missing"):
            PPCA(K, missing="nan").fit(np.full((5, 4), np.nan))
        with pytest.raises(DataError, match="constant"):
            PPCA(K, missing="nan").fit(np.where(GONE, np.nan, 3.0))
        with pytest.raises(DataError, match=r"row 3, column 1 .* is infinite"):
            PPCA(K, missing="nan").fit(np.where((np.arange(N) == 3)[:, None] & (np.arange(D) == 1), np.inf, X))
        with pytest.raises(dlatent.PlanError, match="'covariance' is none for this model"):
            PPCA(K, missing="nan", solver="covariance").fit(X)
        with pytest.raises(DataError, match="sparse data are too many"):
            PPCA(K, missing="unstored").fit(observed_entries(X)).impute(observed_entries(X))

    @pytest.mark.parametrize("made", [PPCA, FactorAnalysis, SupervisedPPCA])
    @pytest.mark.parametrize("kind", ["sparse", "lazy", "lazy, said to be dense", "into a store"])
    def test_sparse_rows_are_refused_as_in_the_fit(self, made, kind, tmp_path):
        model = made(K, missing="nan").fit(X, *([Y] if made is SupervisedPPCA else []))
        rows = observed_entries(X)
        if kind.startswith("lazy"):
            meta = np.zeros((0, 0)) if "dense" in kind else sp.csr_array((0, 0))
            rows = da.from_array(np.nan_to_num(X), chunks=(20, -1)).map_blocks(sp.csr_array, meta=meta)
        options = {"out": tmp_path / "out.zarr"} if kind == "into a store" else {}
        for asked in (model.transform, model.score_samples, model.impute, model.impute_variance):
            if options and asked == model.score_samples:
                continue
            with pytest.raises(DataError, match=r"missing='nan' is for dense data, and the .* is sparse; with missing"):
                np.asarray(asked(rows, **options))
        assert not (tmp_path / "out.zarr").exists()

    def test_sparse_rows_are_not_filled_in(self):
        model = PPCA(K).fit(np.nan_to_num(X))
        with pytest.raises(DataError, match=r"are filled in, and the .* is sparse; make it dense"):
            model.impute(observed_entries(X))
        assert np.isfinite(model.transform(sp.csr_array(np.nan_to_num(X)))).all()

    def test_a_plan_names_the_route(self):
        plan = PPCA(K, missing="nan").plan(X)
        assert plan.solver == "accelerated_em"
        assert "missing" in str(plan)
