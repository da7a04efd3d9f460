"""PPCA with a prior on the loadings: components that are found or switched off, and what it says of rows."""

from __future__ import annotations

from copy import copy

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    DataError,
    FactorAnalysis,
    KernelPPCA,
    KernelSupervisedPPCA,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
    select_n_components,
)
from dlatent.arrays import Block
from dlatent.gaussian.missing_entries import prior
from dlatent.gaussian.missing_entries.entries import EntryRequest, block_entries
from dlatent.solvers.missing.starts import Units
from tests.fitted import parameters_of, specification_of

pytestmark = pytest.mark.filterwarnings("ignore::dlatent.DataWarning")


def with_holes(x, part, rng):
    return np.where(rng.random(x.shape) < part, np.nan, x)


def planted(k, n=250, d=40, noise=1.0, part=0.3, seed=0):
    """Rows of k components that stand out of the noise, and the same with holes."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) + noise * rng.standard_normal((n, d)) + 2.0
    return x, with_holes(x, part, rng)


def ard(k, **options):
    return PPCA(k, missing="nan", prior="ard", **{"scale": "none", **options})


def ratings(seed=0, n=400, items=150, part=0.1):
    """Ratings with levels of rows and of items, tastes, and heavy tails, most of them unknown."""
    rng = np.random.default_rng(seed)
    level, taste = rng.standard_normal((n, 1)), rng.standard_normal((n, 3)) @ rng.standard_normal((3, items))
    x = 3.5 + 0.4 * level + 0.5 * rng.standard_normal(items) + 0.4 * taste + 0.5 * rng.standard_t(4, size=(n, items))
    return x, np.where(rng.random(x.shape) < part, x, np.nan)


COMPLETE, X = planted(3)
GONE = np.isnan(X)


@pytest.fixture(scope="module")
def model():
    return ard(6).fit(X)


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_has_no_component(seed):
    rng = np.random.default_rng(seed)
    x = with_holes(rng.standard_normal((200, 20)), 0.4, rng)
    model = ard(8).fit(x)
    assert model.n_components_effective_ == 0
    assert not model.components_.any()
    np.testing.assert_array_equal(model.transform(x), 0.0)
    # What is left are means N(m, τ²) and noise: of n entries x of a feature N(m, τ² + σ²/n) is the mean, and what is
    # about it is noise.
    n, means = (~np.isnan(x)).sum(axis=0), np.nanmean(x, axis=0)
    within = np.nansum((x - means) ** 2, axis=0)

    def log_likelihood(m, tau, noise):
        each = -0.5 * ((n - 1) * np.log(2 * np.pi * noise) + within / noise + np.log(n))
        return (each + norm.logpdf(means, m, np.sqrt(tau + noise / n))).sum()

    m = model.mean_.mean()
    tau = np.mean((model.mean_ - m) ** 2 + parameters_of(model).mean_variance)
    assert model.log_likelihood_ == pytest.approx(log_likelihood(m, tau, model.noise_variance_), rel=1e-9)
    for factor in (0.999, 1.001):
        assert log_likelihood(m, tau, factor * model.noise_variance_) < model.log_likelihood_
        assert log_likelihood(m, factor * tau, model.noise_variance_) < model.log_likelihood_ + 1e-6
        assert log_likelihood(m + factor - 1.0, tau, model.noise_variance_) < model.log_likelihood_


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))])
def test_ten_planted_components_are_ten(seed):
    model = ard(16).fit(planted(10, seed=seed)[1])
    assert model.n_components_effective_ == 10
    assert model.components_[:10].any(axis=1).all()
    assert not model.components_[10:].any()
    assert model.n_passes_ <= 40


def test_with_many_rows_it_is_the_maximum_of_the_likelihood():
    """The prior and the uncertainty of the loadings weigh less and less."""
    away = []
    for n in (100, 1000, 10_000):
        _, x = planted(2, n=n, d=10, seed=1)
        one, other = ard(5).fit(x), PPCA(2, missing="nan", prior="ml").fit(x)
        assert one.n_components_effective_ == 2
        away.append(np.linalg.norm(one.components_[:2] - other.components_) / np.linalg.norm(other.components_))
    assert away[2] < away[1] / 3 < away[0] / 9
    assert away[2] < 1e-3


@pytest.mark.parametrize("seed", [0, 2])
def test_components_that_fade_into_the_noise_take_no_more_passes(seed):
    """Which of them are of use is asked along the axes of the prior, which no coordinates of the loadings need have."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((120, 40)) * np.arange(1, 41) ** -1.5
    x = np.sqrt(40) * x @ np.linalg.qr(rng.standard_normal((40, 40)))[0] + 0.1 * rng.standard_normal(x.shape)
    x = with_holes(x, 0.2, rng)
    model, more = ard(16).fit(x), ard(20).fit(x)
    assert model.n_passes_ <= PPCA(16, missing="nan", prior="ml").fit(x).n_passes_
    assert 5 < model.n_components_effective_ == more.n_components_effective_ < 10
    assert more.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-6)


def test_how_many_components_there_may_be_does_not_matter(model):
    fewer = ard(4).fit(X)
    assert model.n_components_effective_ == fewer.n_components_effective_ == 3
    np.testing.assert_allclose(model.get_covariance(), fewer.get_covariance(), rtol=1e-3, atol=1e-3)
    assert model.log_likelihood_ == pytest.approx(fewer.log_likelihood_, rel=1e-8)


def test_few_entries_are_not_overfitted():
    """Ratings that were held out are predicted better than by any number of components without a prior."""
    x, known = ratings()
    rest = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, known)
    away = ~np.isnan(known) & np.isnan(rest)
    models = [ard(20), *(PPCA(k, missing="nan", prior="ml", tol=1e-6) for k in (1, 2, 3, 5))]
    errors = [np.sqrt(np.mean((m.fit(rest).impute(rest) - x)[away] ** 2)) for m in models]
    assert errors[0] < 0.98 * min(errors[1:])
    assert models[0].n_passes_ <= 40


def test_intervals_know_that_loadings_are_uncertain():
    """Of hidden values about nine tenths lie in the 90 % intervals, also where entries are few."""
    x, holes = planted(3, n=60, d=50, noise=0.5, part=0.7, seed=2)
    inside = {}
    for name in ("ard", "ml"):
        model = PPCA(3, missing="nan", prior=name, tol=1e-7).fit(holes)
        gone = np.isnan(holes)
        away = abs(x - model.impute(holes))[gone] / np.sqrt(model.impute_variance(holes)[gone])
        inside[name] = (away < 1.645).mean()
    assert 0.87 < inside["ard"] < 0.93
    assert inside["ml"] < inside["ard"]


def test_means_of_few_entries_are_pulled_together():
    """By as much as their entries are few, and no more than the features differ: beside the best of two extremes."""
    errors, inside = [], []
    for apart in (0.0, 0.3, 10.0):
        rng = np.random.default_rng(5)
        x = apart * rng.standard_normal(200) + rng.standard_normal((300, 200))
        known = np.where(rng.random(x.shape) < 0.03, x, np.nan)
        known[:2] = x[:2]
        gone, model = np.isnan(known), ard(1).fit(known)
        away = (x - model.impute(known))[gone]
        inside.append(np.mean(np.abs(away) < 1.645 * np.sqrt(model.impute_variance(known)[gone])))
        each, one = (np.broadcast_to(m, x.shape)[gone] for m in (np.nanmean(known, axis=0), np.nanmean(known)))
        errors.append([np.sqrt(np.mean(e**2)) for e in (away, x[gone] - each, x[gone] - one)])
    errors = np.array(errors)
    assert (errors[:, 0] <= 1.002 * errors[:, 1:].min(axis=1)).all()
    assert errors[1, 0] < 0.985 * errors[1, 1:].min()
    assert all(0.88 < part < 0.92 for part in inside)


def test_few_masks_take_two_passes():
    x = COMPLETE.copy()
    x[:100, :15] = np.nan
    x[100:150, 30:] = np.nan
    model = ard(6).fit(da.from_array(x, chunks=(50, 40)))
    assert model.n_passes_ == 2
    assert model.n_components_effective_ == 3


def test_complete_rows_are_told_the_same_by_a_model_of_complete_data(model):
    complete = copy(model).set_params(missing="raise", prior="ml")
    for name in ("transform", "score_samples"):
        np.testing.assert_allclose(getattr(complete, name)(COMPLETE), getattr(model, name)(COMPLETE), rtol=1e-12)


def test_the_result_says_how_sure_loadings_and_means_are(model):
    assert model.result_["loadings_covariance"].dims == ("feature", "component_pair")
    assert model.result_["mean_variance"].dims == ("feature",)
    complete = PPCA(6, prior="ard").fit(COMPLETE).result_
    assert complete["common_loadings_covariance"].dims == ("component_pair",)


def test_a_fit_goes_on_where_the_last_one_ended(model):
    again = ard(6, warm_start=True).fit(X)
    first = again.n_passes_
    again.fit(X)
    assert again.n_passes_ < first / 2
    assert again.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-8)
    assert again.n_components_effective_ == 3
    # And likelihood from parameters that were uncertain.
    plain = again.set_params(prior="ml", n_components=6).fit(X)
    assert parameters_of(plain).loadings_covariance is None


def test_held_out_cells_choose_between_priors():
    """Predictions of held-out cells know the uncertainty of the loadings, so that more components do no harm."""
    _, known = ratings()
    values = {
        name: select_n_components(PPCA(missing="nan", prior=name, tol=1e-6), known, [1, 8])["held_out_log_likelihood"]
        for name in ("ml", "ard")
    }
    assert float(values["ard"].sel(n_components=8)) > float(values["ml"].max())


@pytest.mark.parametrize("shape", [(200, 30), (30, 60), (90, 90)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("seed", range(3))
def test_complete_data_end_where_variational_em_ends(shape, seed, monkeypatch):
    # The means of complete data have no prior.
    monkeypatch.setattr(Units, "offset", lambda *_: None)
    x, _ = planted(3, n=shape[0], d=shape[1], seed=seed)
    exact, iterated = PPCA(8, prior="ard").fit(x), ard(8, tol=1e-12).fit(x)
    assert exact.n_passes_ <= PPCA(8).fit(x).n_passes_
    assert exact.n_components_effective_ == iterated.n_components_effective_ == 3
    assert exact.log_likelihood_ == pytest.approx(iterated.log_likelihood_, rel=1e-9)
    assert exact.log_likelihood_ >= iterated.log_likelihood_ - 1e-9 * abs(exact.log_likelihood_)
    np.testing.assert_allclose(exact.components_, iterated.components_, atol=1e-4)
    for name in ("transform", "score_samples", "impute_variance"):
        if name == "impute_variance":
            x = np.where(np.random.default_rng(0).random(x.shape) < 0.2, np.nan, x)
            exact = copy(exact).set_params(missing="nan")
        one, other = (getattr(m, name)(x) for m in (exact, iterated))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(150, 20), (20, 40), (50, 50)], ids=["tall", "wide", "square"])
@pytest.mark.parametrize("variance", [0.02, 5.0])
def test_loadings_of_a_given_variance_end_where_variational_em_ends(shape, variance, monkeypatch):
    """With components that are off, too."""
    monkeypatch.setattr(Units, "offset", lambda *_: None)
    x, _ = planted(2, n=shape[0], d=shape[1])
    exact = PPCA(4, prior=variance).fit(x)
    iterated = PPCA(4, prior=variance, missing="nan", tol=1e-12).fit(x)
    assert exact.log_likelihood_ == pytest.approx(iterated.log_likelihood_, rel=1e-10)
    assert exact.log_likelihood_ >= iterated.log_likelihood_ - 1e-10 * abs(exact.log_likelihood_)
    assert exact.noise_variance_ == pytest.approx(iterated.noise_variance_, rel=1e-4)
    np.testing.assert_allclose(exact.components_, iterated.components_, atol=1e-3)
    np.testing.assert_allclose(exact.score_samples(x), iterated.score_samples(x), rtol=1e-4)


def test_a_given_variance_is_in_squared_units_of_the_features():
    one = PPCA(3, missing="nan", prior=0.3, tol=1e-12).fit(X)
    other = PPCA(3, missing="nan", prior=30.0, tol=1e-12).fit(10.0 * X)
    np.testing.assert_allclose(other.components_, 10.0 * one.components_, atol=1e-4)
    assert other.log_likelihood_ == pytest.approx(one.log_likelihood_ - (~GONE).sum() * np.log(10.0), rel=1e-11)


def test_the_variance_by_evidence_is_the_best_of_those_given():
    """One component: that of the loadings as they are found has the highest bound, which is that by evidence."""
    x, _ = planted(1, n=80, d=15)
    model = PPCA(1, prior="ard").fit(x)
    own = parameters_of(model)
    variance = (own.loadings**2).mean() + own.loadings_covariance[0, 0]
    bounds = [PPCA(1, prior=factor * variance).fit(x).log_likelihood_ for factor in (0.98, 1.0, 1.02)]
    assert bounds[1] == pytest.approx(model.log_likelihood_, rel=1e-9)
    assert bounds[1] > max(bounds[0], bounds[2])


@pytest.mark.parametrize("k", [0, 10])
@pytest.mark.parametrize("seed", range(20))
def test_complete_data_have_the_components_that_were_planted(k, seed):
    x, _ = planted(k, n=120, d=50, seed=seed)
    model = PPCA(20, prior="ard").fit(x)
    assert model.n_components_effective_ == k


def test_the_bound_of_complete_data_is_the_best_for_any_noise_and_loadings():
    """No other noise variance, length or covariance of the loadings has a higher bound, by its definition."""
    x, _ = planted(2, n=60, d=12)
    model = PPCA(2, prior="ard").fit(x)
    own, counts = parameters_of(model), np.full(12, 60.0)
    own = own._replace(loadings_covariance=np.repeat(own.loadings_covariance, 12, axis=0))
    specification, zero, one = specification_of(model), np.zeros(12), np.ones(12)

    def bound(p):
        rows = block_entries(Block(0, 0, x), EntryRequest(p, specification, zero, one)).log_likelihood
        return rows - prior.divergence(p, counts)

    best = bound(own)
    assert model.log_likelihood_ == pytest.approx(best, rel=1e-12)
    for factor in (0.999, 1.001):
        assert bound(own._replace(noise_variance=factor * own.noise_variance)) < best
        assert bound(own._replace(loadings=factor * own.loadings)) < best
        assert bound(own._replace(loadings_covariance=factor * own.loadings_covariance)) < best


def test_it_is_the_default_where_entries_are_missing(model):
    default = PPCA(6, missing="nan", scale="none").fit(X)
    np.testing.assert_array_equal(default.components_, model.components_)
    assert PPCA(3).fit(COMPLETE).log_likelihood_ == PPCA(3, prior="ml").fit(COMPLETE).log_likelihood_
    assert parameters_of(FactorAnalysis(1, missing="nan", tol=1e-3).fit(X)).loadings_covariance is not None
    assert parameters_of(FactorAnalysis(1).fit(COMPLETE)).loadings_covariance is None


@pytest.mark.slow
def test_factor_analysis_has_it_in_any_units_and_after_rotations():
    x, _ = planted(3, n=300, d=15)
    rng = np.random.default_rng(4)
    x = with_holes(x + rng.uniform(0.0, 1.5, 15) * rng.standard_normal(x.shape), 0.3, rng)
    scale = np.geomspace(1.0, 1000.0, 15)
    one = FactorAnalysis(6, missing="nan").fit(x)
    other = FactorAnalysis(6, missing="nan", rotation="promax").fit(scale * x)
    assert one.n_components_effective_ == other.n_components_effective_ == 3
    lines = one.history_["iteration_log_likelihood"].values
    assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()
    seen = (~np.isnan(x)).sum(axis=0)
    assert other.log_likelihood_ == pytest.approx(one.log_likelihood_ - seen @ np.log(scale), rel=1e-9)
    for name in ("impute", "impute_variance"):
        mine, theirs = (getattr(m, name)(y) for m, y in ((one, x), (other, scale * x)))
        np.testing.assert_allclose(theirs / scale ** (1 + (name != "impute")), mine, rtol=1e-3, atol=1e-3)
    assert other.score(scale * x) == pytest.approx(one.score(x) - seen @ np.log(scale) / len(x), rel=1e-5)


@pytest.mark.filterwarnings("ignore::dlatent.ConvergenceWarning")
def test_factor_analysis_with_it_has_no_heywood_cases():
    """Held-out cells, beside maximum likelihood, which gives features of few entries no noise."""
    x, known = ratings(n=300, items=60)
    gone, errors = np.isnan(known), []
    for name in ("ard", "ml"):
        model = FactorAnalysis(6, missing="nan", prior=name, tol=1e-6, max_iter=60, solver="em").fit(known)
        errors.append(np.sqrt(np.mean((x - model.impute(known))[gone] ** 2)))
        if name == "ard":
            assert not model.at_floor_.any()
    assert errors[0] < 0.95 * errors[1]


def test_samples_in_a_graph_count_as_the_rank_of_their_precision():
    """Pairs that are joined, whose Δ has half the rank."""
    x = planted(2, n=80, d=6, noise=0.5)[0]
    pairs = sp.csr_array(np.kron(np.eye(40), [[0.0, 1.0], [1.0, 0.0]]))
    model = RelationalPPCA(4, alpha=1.0, gamma=0.0, prior="ard").fit(x, graph=pairs)
    assert (model.precision_rank_, model.n_components_effective_) == (40, 2)
    # Both rows of a pair are summed: twice the same row, which is one of length √2.
    summed = np.sqrt(2.0) * (x[::2] + x[1::2])
    plain = PPCA(4, prior="ard").fit(summed)
    assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(model.components_, plain.components_, atol=1e-6)


def labelled(seed=0, n=300, d=20, each=3, classes=8):
    """Rows of four components, and labels of a few that tell the rows' places along two of these."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 4))
    x = z @ rng.standard_normal((4, d)) + 0.7 * rng.standard_normal((n, d))
    codes = (4 * (np.arctan2(z[:, 0], z[:, 1]) / np.pi + 1.0)).astype(int) % classes
    known = np.concatenate([np.flatnonzero(codes == c)[:each] for c in range(classes)])
    return x, codes, np.where(np.isin(np.arange(n), known), codes, -1)


@pytest.fixture(scope="module")
def few_labels():
    x, codes, known = labelled()
    return x, codes, known, SupervisedPPCA(12, prior="ard", head="likelihood").fit(x, known)


def test_supervised_ppca_has_it_for_complete_data_too(few_labels):
    x, _, known, model = few_labels
    assert model.components_.any(axis=1).sum() == 4
    lines = model.history_["iteration_log_likelihood"].values
    assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()
    holes = SupervisedPPCA(12, missing="nan", head="likelihood", scale="none").fit(x, known)
    assert holes.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(holes.predict_proba(x), model.predict_proba(x), atol=1e-5)
    assert SupervisedPPCA(2).fit(x, known).n_passes_ == SupervisedPPCA(2, prior="ml").fit(x, known).n_passes_


def test_few_labels_are_not_learned_by_heart(few_labels):
    """What the likelihood says of rows without labels, beside maximum likelihood with the right number of components,
    and with too many."""
    x, codes, known, model = few_labels
    rest = known < 0

    def loss(model):
        return -np.log(np.maximum(model.predict_proba(x)[rest, codes[rest]], 1e-6)).mean()

    assert loss(model) < min(loss(SupervisedPPCA(k, head="likelihood").fit(x, known)) for k in (4, 12))


def test_where_it_is_refused():
    for wrong in ("ard", 0.3):
        with pytest.raises(DataError, match="of factor analysis is for data with missing entries"):
            FactorAnalysis(2, prior=wrong).fit(COMPLETE)
    with pytest.raises(DataError, match="both choose how many components"):
        PPCA("mle", prior="ard").fit(COMPLETE)
    with pytest.raises(DataError, match="both choose how many components"):
        PPCA(0.9, prior=1.0).fit(COMPLETE)
    for wrong in ("flat", 0.0, -1.0, np.inf, True):
        with pytest.raises(DataError, match="expected a positive number, 'auto', 'ml' or 'ard'"):
            PPCA(2, missing="nan", prior=wrong).fit(X)
    with pytest.raises(DataError, match="of supervised PPCA is for dense data or missing='unstored', and the scipy"):
        SupervisedPPCA(2, prior="ard").fit(sp.csr_array(COMPLETE), np.arange(len(COMPLETE)))
    for other in (KernelPPCA, KernelSupervisedPPCA, PPCAMixture, CorrespondencePPCA, RelationalSupervisedPPCA):
        with pytest.raises(TypeError, match="prior"):
            other(2, prior="ard")


@pytest.mark.slow
def test_what_components_are_worth_is_asked_where_iterations_ended():
    """The last point that was looked at may be another, which extrapolation tried and gave up."""
    rng = np.random.default_rng(300)
    n, d, k = (int(rng.integers(*ends)) for ends in ((20, 60), (10, 30), (4, 12)))
    rows = (rng.normal(size=(n, d // 2)) * np.geomspace(1, 0.05, d // 2)) @ rng.normal(size=(d // 2, d))
    rows += 0.02 * rng.normal(size=(n, d))
    rows[rng.random((n, d)) < 0.25] = np.nan
    bounds = PPCA(k, missing="nan", prior="ard").fit(rows).history_["iteration_log_likelihood"].values
    assert (np.diff(bounds) > -1e-10 * abs(bounds[-1])).all()


def variances_of(values, units, *names):
    """V = mean_j (W_j W_jᵀ + Σ_j) on and off its diagonal, of features with these units squared."""
    loadings = np.vstack([values[name] for name in names])
    spread = np.vstack([values[f"{name}_covariance"] for name in names])
    first, second = np.triu_indices(loadings.shape[1])
    found = ((loadings[:, first] * loadings[:, second] + spread) / units[:, None]).mean(axis=0)
    return found[first == second], found[first != second]


def with_classes(part):
    """Samples of three classes, some entries missing."""
    rng, labels = np.random.default_rng(3), np.arange(90) % 3
    x = rng.standard_normal((90, 4)) + 0.8 * np.eye(3, 4)[labels]
    return with_holes(x @ rng.standard_normal((4, 12)) + rng.standard_normal((90, 12)), part, rng), labels


@pytest.mark.parametrize("missing", ["raise", "nan"])
def test_loadings_of_features_and_targets_are_along_the_axes_of_their_prior(missing):
    model = SupervisedPPCA(3, missing=missing, prior="ard", scale="none")
    values = model.fit(*with_classes(0.2 * (missing == "nan"))).result_
    units = np.repeat(values["total_variance"].values, [12, 2])
    own, between = variances_of(values, units, "loadings", "rank_loadings")
    assert own[0] > own[1] > own[2] > 0
    np.testing.assert_allclose(between, 0.0, atol=1e-12)


def test_loadings_of_factor_analysis_are_along_the_axes_of_their_prior():
    x = with_classes(0.2)[0] * np.geomspace(1e-2, 1e2, 12)
    own, between = variances_of(FactorAnalysis(3, missing="nan").fit(x).result_, np.nanvar(x, axis=0), "loadings")
    assert own[0] > own[1] > own[2] > 0
    np.testing.assert_allclose(between, 0.0, atol=1e-12)


def test_components_that_are_of_use_together_are_not_all_switched_off():
    """Each of the last two is of no use beside the other, and without both the bound is lower by 8 nats."""
    x = scale(load_wine().data)
    hidden = np.random.default_rng(14).random(x.shape) > 0.1
    model = PPCA(12, missing="nan").fit(np.where(hidden, np.nan, x))
    bounds = model.history_["iteration_log_likelihood"].values
    assert (np.diff(bounds) > -1e-10 * abs(bounds[-1])).all()
    assert bounds[-1] > -327.1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "best"), [(0, -655.785), (4, -736.929)])
def test_more_factors_are_never_worse_than_fewer(seed, best):
    """From one start three factors ended 3.9 and 2.9 nats below one and two."""
    rng = np.random.default_rng(seed)
    n, d, k = (int(rng.integers(*ends)) for ends in ((20, 60), (5, 12), (1, 4)))
    x = rng.standard_normal((n, k)) @ rng.standard_normal((k, d))
    x += rng.uniform(0.3, 1.5, d) * rng.standard_normal((n, d))
    x[rng.random(x.shape) < rng.uniform(0.1, 0.4)] = np.nan
    bounds = [FactorAnalysis(k, missing="nan").fit(x).log_likelihood_ for k in (1, 2, 3)]
    assert (np.diff(bounds) > -1e-4).all()
    assert bounds[-1] > best - 1e-3


@pytest.mark.slow
def test_more_factors_begin_where_fewer_do_too():
    """From starts of its own, and from these without a component, two factors ended 3.8 nats below one."""
    rng = np.random.default_rng([5, 7])
    d, n, k = (int(rng.integers(*ends)) for ends in ((5, 14), (40, 200), (1, 4)))
    x = rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) * rng.uniform(0.5, 2.0)
    x += rng.standard_normal((n, d)) * np.exp(rng.normal(0.0, 0.7, d))
    x *= np.exp(rng.uniform(-3.0, 3.0, d))
    x[rng.random(x.shape) < rng.uniform(0.05, 0.6)] = np.nan
    bounds = [FactorAnalysis(k, missing="nan").fit(x).log_likelihood_ for k in (1, 2, 3)]
    assert (np.diff(bounds) > -1e-4).all()
