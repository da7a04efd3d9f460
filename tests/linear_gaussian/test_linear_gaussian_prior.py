"""Loadings with a prior: the bound, its gradient and its M-step against the definition, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.arrays import Block
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.missing_entries import incomplete, prior
from dlatent.linear_gaussian.missing_entries.entries import EntryRequest, block_entries, block_entry_sums
from dlatent.linear_gaussian.missing_entries.patterns import (
    PatternRequest,
    block_patterns,
    entries_of_patterns,
    few_buckets,
)
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View

D, K = 6, 3
SHARED = Specification((View("features", D),), ((0,),), K)
EACH = Specification((View("features", D, shared=False),), ((0,),), K)
SPECIFICATIONS = [SHARED, EACH]
IDS = ["one variance", "a variance per feature"]
HOLES = [0.0, 0.3, 0.8]


def rows(part, n=25, seed=0):
    """Correlated rows of which a part is missing, at least one entry of each row and feature observed."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2)) @ rng.standard_normal((2, D)) + 0.5 * rng.standard_normal((n, D)) + 1.0
    holes = rng.random(x.shape) < part
    holes[np.arange(n), np.arange(n) % D] = False
    return np.where(holes, np.nan, x)


def parameters_of(specification, seed=0, k=K):
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((D, k, k + 2)) * 0.4
    noise = rng.uniform(0.3, 1.5, len(specification.group_sizes))
    spread = prior.packed(factors @ factors.transpose(0, 2, 1))
    return Parameters(rng.standard_normal((D, k)), rng.standard_normal(D), noise, spread)


def counts(x):
    return (~np.isnan(x)).sum(axis=0).astype(float)


def found(x, p, specification):
    return block_entries(Block(0, 0, x), EntryRequest(p, specification, np.zeros(D), np.ones(D)))


def value(x, p, specification):
    return found(x, p, specification).log_likelihood - prior.divergence(p, counts(x))


def divergence(mean, covariance, variance):
    """KL(N(mean, covariance) ‖ N(0, variance))."""
    inverse = np.linalg.inv(variance)
    logs = np.linalg.slogdet(variance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(inverse @ covariance) + mean @ inverse @ mean - len(mean) + logs)


def definition(x, p, specification, means, covariances, variance):
    """E[log p(x | z, w)] − Σ KL(q(z) ‖ N(0, I)) − Σ KL(q(w) ‖ N(0, V)), entry by entry."""
    noise, spread, total = specification.per_feature(p.noise_variance), prior.spreads(p), 0.0
    for row, m, c in zip(x, means, covariances, strict=True):
        if not np.isnan(row).all():
            total -= divergence(m, c, np.eye(len(m)))
        for j in np.flatnonzero(~np.isnan(row)):
            both = np.sum((np.outer(p.loadings[j], p.loadings[j]) + spread[j]) * (np.outer(m, m) + c))
            away = row[j] - p.mean[j]
            square = away**2 - 2.0 * away * p.loadings[j] @ m + both
            total -= 0.5 * (np.log(2.0 * np.pi * noise[j]) + square / noise[j])
    each = zip(p.loadings, spread, counts(x), strict=True)
    return total - sum(divergence(w, s, variance) for w, s, n in each if n)


def posterior(x, p, specification):
    means = incomplete.scores(x, None, p, specification)
    return means, incomplete.covariances(x, None, p, specification).reshape(-1, *2 * (means.shape[1],))


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
@pytest.mark.parametrize("part", HOLES)
def test_the_bound_is_that_of_the_definition_at_its_best_posterior_and_prior(specification, part):
    x, p = rows(part), parameters_of(specification)
    means, covariances = posterior(x, p, specification)
    variance = prior.prior_variance(p, counts(x))
    best = definition(x, p, specification, means, covariances, variance)
    assert value(x, p, specification) == pytest.approx(best, rel=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(5):
        moved = 0.03 * rng.standard_normal((K, K))
        others = (
            (means + 0.03 * rng.standard_normal(means.shape), covariances, variance),
            (means, covariances + moved @ moved.T, variance),
            (means, covariances, variance + moved + moved.T),
        )
        assert all(definition(x, p, specification, *other) < best for other in others)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
def test_the_gradient_is_that_of_the_definition(specification):
    x, p = rows(0.4), parameters_of(specification)
    slope = prior.bound_gradient(found(x, p, specification), p, specification)
    at, step = p.flatten(), 1e-5
    for i in range(len(at)):
        ends = [p.unflatten(at + sign * step * np.eye(len(at))[i]) for sign in (1, -1)]
        above, below = (
            definition(x, q, specification, *posterior(x, q, specification), prior.prior_variance(q, counts(x)))
            for q in ends
        )
        assert slope[i] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-6)


@given(part=st.floats(0.0, 0.9), seed=st.integers(0, 100), each=st.booleans(), expand=st.booleans())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_no_step_lowers_the_bound(part, seed, each, expand):
    specification = EACH if each else SHARED
    specification = specification.with_floors(np.full(len(specification.group_sizes), 1e-3))
    x, p = rows(part, seed=seed), parameters_of(specification, seed)
    before = -np.inf
    for _ in range(12):
        statistics = found(x, p, specification)
        now = statistics.log_likelihood - prior.divergence(p, counts(x))
        assert now >= before - 1e-11 * abs(now)
        before, p = now, prior.maximise_bound(statistics, p, specification, expand=expand)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
def test_a_step_without_expansion_finds_the_best_of_each(specification):
    """The loadings and their covariances are best for the posterior of z and the old noise, the noise for them."""
    x, p = rows(0.4), parameters_of(specification)
    about = posterior(x, p, specification)
    variance = prior.prior_variance(p, counts(x))
    new = prior.maximise_bound(found(x, p, specification), p, specification, expand=False)
    step, rng = 1e-4, np.random.default_rng(0)
    of_loadings = new._replace(noise_variance=p.noise_variance)
    best = definition(x, of_loadings, specification, *about, variance)
    for _ in range(8):
        moved = of_loadings._replace(
            loadings=new.loadings + step * rng.standard_normal(new.loadings.shape),
            mean=new.mean + step * rng.standard_normal(D),
        )
        turn = np.eye(K) + step * rng.standard_normal((K, K))
        spread = prior.packed(turn.T @ prior.spreads(new) @ turn)
        assert definition(x, moved, specification, *about, variance) < best
        other = of_loadings._replace(loadings_covariance=spread)
        assert definition(x, other, specification, *about, variance) < best
    best = definition(x, new, specification, *about, variance)
    for factor in (1.001, 0.999):
        assert (
            definition(x, new._replace(noise_variance=new.noise_variance * factor), specification, *about, variance)
            < best
        )


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
def test_the_bound_does_not_know_the_axes_of_z(specification):
    x, p = rows(0.4), parameters_of(specification)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((K, K)))[0]
    before = value(x, p, specification)
    assert value(x, prior.turned(p, turn), specification) == pytest.approx(before, rel=1e-12)
    straight = prior.diagonal(p, counts(x))
    assert value(x, straight, specification) == pytest.approx(before, rel=1e-12)
    variance = prior.prior_variance(straight, counts(x))
    np.testing.assert_allclose(variance, np.diag(np.sort(np.diag(variance))[::-1]), atol=1e-12)
    one, other = (canonical(q, specification) for q in (p, prior.turned(p, turn)))
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)
    # Steps from both lead to one model.
    ends = [prior.maximise_bound(found(x, q, specification), q, specification) for q in (p, prior.turned(p, turn))]
    for mine, theirs in zip(*(canonical(q, specification) for q in ends), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


def test_statistics_are_turned_back_to_other_axes():
    x, p = rows(0.4), parameters_of(EACH)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((K, K)))[0]
    there = found(x, prior.turned(p, turn), EACH)
    back, here = prior.turned_back(there, turn), found(x, p, EACH)
    for name in ("second", "cross", "latent"):
        np.testing.assert_allclose(getattr(back, name), getattr(here, name), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(back.evidence, there.evidence)


@pytest.mark.parametrize("part", HOLES)
def test_a_component_is_worth_what_the_bound_loses_without_it(part):
    x, p = rows(part), parameters_of(EACH)
    statistics = found(x, p, EACH)
    for k, worth in enumerate(prior.worth(statistics, p)):
        without = prior.turned(p, np.delete(np.eye(K), k, axis=1))
        assert worth == pytest.approx(value(x, p, EACH) - value(x, without, EACH), rel=1e-9)


def test_moments_of_masks_give_what_rows_give():
    x = rows(0.0, n=60)
    x[:20, :3] = np.nan
    x[35:37] = np.nan
    p, zero, one = parameters_of(EACH), np.zeros(D), np.ones(D)
    buckets = few_buckets(block_entry_sums(Block(0, 0, x), zero).buckets, D)
    sums = block_patterns(Block(0, 0, x), PatternRequest(buckets, zero, one))
    few = entries_of_patterns(sums, EntryRequest(p, EACH, zero, one))
    for mine, theirs in zip(few, found(x, p, EACH), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-11)


def test_variances_of_missing_entries_are_those_of_products():
    """Var[wᵀz] = Σ E[w_a w_b] E[z_a z_b] − (E[w]ᵀE[z])², and the noise."""
    x, p = rows(0.5), parameters_of(EACH)
    means, covariances = posterior(x, p, EACH)
    variances, spread = incomplete.imputed_variances(x, None, p, EACH), prior.spreads(p)
    for i, j in np.argwhere(np.isnan(x)):
        loading = np.outer(p.loadings[j], p.loadings[j]) + spread[j]
        latent = np.outer(means[i], means[i]) + covariances[i]
        expected = np.sum(loading * latent) - (p.loadings[j] @ means[i]) ** 2 + p.noise_variance[j]
        assert variances[i, j] == pytest.approx(expected, rel=1e-10)


def test_a_feature_that_no_row_observes_says_nothing():
    x, p = rows(0.3), parameters_of(EACH)
    x[:, 4] = np.nan
    p = prior.maximise_bound(found(x, p, EACH), p, EACH)
    assert not p.loadings[4].any()
    assert np.isfinite(p.flatten()).all()
    rest = np.delete(np.arange(D), 4)
    fewer = Specification((View("features", D - 1, shared=False),), ((0,),), K)
    left = Parameters(p.loadings[rest], p.mean[rest], p.noise_variance[rest], p.loadings_covariance[rest])
    without = block_entries(
        Block(0, 0, np.ascontiguousarray(x[:, rest])), EntryRequest(left, fewer, np.zeros(D - 1), np.ones(D - 1))
    ).log_likelihood - prior.divergence(left, counts(x)[rest])
    assert value(x, p, EACH) == pytest.approx(without, rel=1e-12)
