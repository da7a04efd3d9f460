"""PPCA with a level of each row: against dense normal distributions, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from dlatent import PPCA, DataError
from dlatent.arrays import Block
from dlatent.gaussian.missing_entries.entries import EntryRequest, block_entries
from dlatent.gaussian.missing_entries.prior import Priors, divergence, with_prior
from dlatent.gaussian.missing_entries.row_effects import maximise_levels, others, with_level
from dlatent.gaussian.specification import Parameters, Specification, View
from tests.fitted import parameters_of
from tests.law_examples import examples

pytestmark = pytest.mark.filterwarnings("ignore::dlatent.DataWarning")
N, D, LEVEL = 300, 12, 0.8


def leveled(k, n=N, d=D, part=0.4, seed=0):
    """Rows with levels, k components and noise, entries missing; and the levels."""
    rng = np.random.default_rng(seed)
    levels = LEVEL * rng.standard_normal((n, 1))
    x = levels + rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) + 0.6 * rng.standard_normal((n, d)) + 3.0
    holes = rng.random(x.shape) < part
    holes[np.arange(n), np.arange(n) % d] = False
    return np.where(holes, np.nan, x), levels[:, 0]


def log_likelihood(x, loadings, mean, noise, level):
    """log p of the observed entries, of N(μ, WWᵀ + τ² 11ᵀ + σ²I)."""
    covariance = loadings @ loadings.T + level**2 + noise * np.eye(len(mean))
    total = 0.0
    for row in x:
        at = np.flatnonzero(~np.isnan(row))
        total += multivariate_normal.logpdf(row[at], mean[at], covariance[np.ix_(at, at)])
    return total


def parts(model):
    level = np.sqrt(model.row_effect_variance_)
    return model.components_[:-1].T, model.mean_, model.noise_variance_, level


X, LEVELS = leveled(2)


@pytest.fixture(scope="module")
def model():
    return PPCA(2, missing="nan", prior="ml", row_effects=True, tol=1e-13).fit(X)


def test_the_likelihood_is_that_of_rows_with_levels(model):
    assert model.log_likelihood_ == pytest.approx(log_likelihood(X, *parts(model)), rel=1e-11)
    assert model.score_samples(X).sum() == pytest.approx(model.log_likelihood_, rel=1e-11)
    loadings, _, noise, level = parts(model)
    np.testing.assert_array_equal(model.components_[-1], level)
    expected = loadings @ loadings.T + level**2 + noise * np.eye(D)
    np.testing.assert_allclose(model.get_covariance(), expected, rtol=1e-12)


def test_the_maximum_has_no_gradient(model):
    loadings, mean, noise, level = parts(model)
    shape = loadings.shape

    def height(v):
        rest = v[: loadings.size].reshape(shape), v[loadings.size : -2]
        return log_likelihood(X, *rest, np.exp(v[-2]), np.exp(v[-1]))

    at, step = np.concatenate([loadings.ravel(), mean, [np.log(noise), np.log(level)]]), 1e-4
    for i in [*range(0, len(at) - 2, 5), len(at) - 2, len(at) - 1]:
        move = step * np.eye(len(at))[i]
        assert abs(height(at + move) - height(at - move)) / (2 * step) < 2e-3


def test_levels_are_the_last_scores(model):
    assert model.n_components_ == 2
    scores = model.transform(X)
    assert scores.shape == (N, 3)
    found = scores[:, -1] * np.sqrt(model.row_effect_variance_)
    assert np.corrcoef(found, LEVELS)[0, 1] > 0.6
    assert 0.5 * LEVEL**2 < model.row_effect_variance_ < 2 * LEVEL**2


def test_textbook_em_ends_at_the_same_height(model):
    slow = PPCA(2, missing="nan", prior="ml", row_effects=True, solver="em", tol=1e-11, max_iter=5000).fit(X)
    assert slow.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-6)
    assert slow.log_likelihood_ <= model.log_likelihood_ + 1e-7


def test_a_model_without_levels_needs_a_component_more(model):
    """Levels are a special case of a component, and their model one of those with a component more."""
    fewer, more = (PPCA(k, missing="nan", prior="ml").fit(X) for k in (2, 3))
    assert fewer.log_likelihood_ < model.log_likelihood_ < more.log_likelihood_


def test_levels_alone_switch_all_components_off():
    x, levels = leveled(0, n=400, d=20)
    model = PPCA(5, missing="nan", row_effects=True, prior="ard").fit(x)
    assert model.n_components_effective_ == 0
    assert model.row_effect_variance_ == pytest.approx(LEVEL**2, rel=0.2)
    found = model.transform(x)[:, -1] * np.sqrt(model.row_effect_variance_)
    assert np.corrcoef(found, levels)[0, 1] > 0.95
    # The bound is known: that of levels and noise, less what the means are uncertain, and away from their prior.
    expected = log_likelihood(x, np.zeros((20, 0)), model.mean_, model.noise_variance_, model.row_effect_variance_**0.5)
    unsure, n = parameters_of(model).mean_variance, (~np.isnan(x)).sum(axis=0)
    expected -= 0.5 * (n @ unsure / model.noise_variance_ + np.log((model.mean_.var() + unsure.mean()) / unsure).sum())
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("prior", ["ml", "ard"])
@pytest.mark.parametrize("part", [0.0, 0.2])
def test_rows_whose_levels_are_equal_have_none(prior, part):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((N, 1)) @ rng.standard_normal((1, 8)) + 0.5 * rng.standard_normal((N, 8)) + np.arange(8.0)
    x -= x.mean(axis=1, keepdims=True)
    x[rng.random(x.shape) < part] = np.nan
    options = {"missing": "nan", "scale": "none", "prior": prior, "tol": 1e-10}
    model, plain = PPCA(1, row_effects=True, **options).fit(x), PPCA(1, **options).fit(x)
    assert model.row_effect_variance_ == 0.0
    assert model.converged_
    assert not model.transform(x)[:, -1].any()
    assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-8)


def test_with_a_prior_levels_are_no_component():
    x, _ = leveled(3, n=600, d=30)
    model = PPCA(8, missing="nan", row_effects=True, prior="ard").fit(x)
    assert model.n_components_effective_ == 3
    assert model.row_effect_variance_ == pytest.approx(LEVEL**2, rel=0.3)
    lines = model.history_["iteration_log_likelihood"].values
    assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()
    assert lines[-1] == model.log_likelihood_


@given(part=st.floats(0.0, 0.8), seed=st.integers(0, 100), uncertain=st.booleans(), expand=st.booleans())
@settings(max_examples=examples(25), derandomize=True)
def test_no_step_lowers_the_objective(part, seed, uncertain, expand):
    x, rng = leveled(1, n=40, d=6, part=part, seed=seed)[0] - 3.0, np.random.default_rng(seed)
    specification = Specification((View("features", 6, 1e-3),), ((0,),), 3, row_effects=True)
    counts = (~np.isnan(x)).sum(axis=0).astype(float)
    start = Parameters(rng.standard_normal((6, 2)), np.zeros(6), np.ones(1))
    p, priors = with_level(with_prior(start, counts) if uncertain else start, 0.5), Priors()
    if uncertain:
        p = p._replace(mean_variance=1.0 / (counts + 1.0))
        priors = Priors(rng.standard_normal(6), 0.2 if seed % 2 else None)
    before = -np.inf
    for _ in range(10):
        found = block_entries(Block(0, 0, x), EntryRequest(p, specification, np.zeros(6), np.ones(6)))
        now = found.log_likelihood - (divergence(others(p, specification), counts, priors) if uncertain else 0.0)
        assert now >= before - 1e-11 * abs(now)
        before, p = now, maximise_levels(found, p, specification, priors, expand=expand)
        assert np.ptp(p.loadings[:, -1]) == 0.0


def test_few_entries_are_predicted_better():
    """Held-out entries of rows of which four or five are known."""
    x, _ = leveled(0, n=400, d=150, part=0.0)
    rest = np.where(np.random.default_rng(1).random(x.shape) < 0.03, x, np.nan)
    gone = np.isnan(rest)
    errors = [
        np.sqrt(np.mean((m.fit(rest).impute(rest) - x)[gone] ** 2))
        for m in (
            PPCA(2, missing="nan", prior="ard", row_effects=True),
            PPCA(2, missing="nan", prior="ard"),
            PPCA(1, missing="nan", prior="ml"),
        )
    ]
    assert errors[0] < 0.97 * min(errors[1:])


@pytest.mark.parametrize("prior", ["ml", "ard"])
def test_a_fit_goes_on_where_the_last_one_ended(prior):
    model = PPCA(2, missing="nan", row_effects=True, prior=prior, tol=1e-7).fit(X)
    before = model.log_likelihood_
    assert model.set_params(warm_start=True).fit(X).log_likelihood_ == pytest.approx(before, rel=1e-6)


def test_columns_that_nobody_observed_have_the_levels_alone():
    x = X.copy()
    x[:, 3] = np.nan
    model = PPCA(2, missing="nan", row_effects=True, prior="ard").fit(x)
    assert model.mean_[3] == pytest.approx(np.delete(model.mean_, 3).mean())
    assert not model.components_[:-1, 3].any()
    levels = model.transform(x)[:, -1]
    np.testing.assert_allclose(model.impute(x)[:, 3], model.mean_[3] + levels)


def test_where_it_is_refused():
    with pytest.raises(DataError, match="row_effects=True is for data with missing entries"):
        PPCA(2, row_effects=True).fit(np.nan_to_num(X))
