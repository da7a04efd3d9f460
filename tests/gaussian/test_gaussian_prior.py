"""Loadings with a prior: the bound, its gradient and its M-step against the definition, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.arrays import Block
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.missing_entries import incomplete, prior
from dlatent.gaussian.missing_entries.entries import EntryRequest, block_entries, block_entry_sums
from dlatent.gaussian.missing_entries.patterns import PatternRequest, block_patterns, entries_of_patterns, few_buckets
from dlatent.gaussian.missing_entries.prior import Means, Priors, shrunk_means
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.operators.symmetric import unpacked
from tests.law_examples import examples

D, K = 6, 3
SHARED = Specification((View("features", D),), ((0,),), K)
EACH = Specification((View("features", D, shared=False),), ((0,),), K)
TWO = Specification((View("features", 4), View("targets", 2)), ((0, 1),), K)
SPECIFICATIONS = [SHARED, EACH, TWO]
IDS = ["one variance", "a variance per feature", "features and targets"]
HOLES = [0.0, 0.3, 0.8]


def rows(part, n=25, seed=0):
    """Correlated rows of which a part is missing, at least one entry of each row and feature observed."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2)) @ rng.standard_normal((2, D)) + 0.5 * rng.standard_normal((n, D)) + 1.0
    holes = rng.random(x.shape) < part
    holes[np.arange(n), np.arange(n) % D] = False
    return np.where(holes, np.nan, x)


FREE = Priors()
OFFSET = np.array([0.3, -1.0, 0.0, 0.5, 2.0, -0.2])
"""Where features with the mean 0 are."""
PRIORS = pytest.mark.parametrize(
    "priors", [FREE, Priors(OFFSET), Priors(OFFSET, 0.4)], ids=["means free", "means with a prior", "variance given"]
)


def parameters_of(specification, seed=0, k=K, priors=FREE):
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((D, k, k + 2)) * 0.4
    noise = rng.uniform(0.3, 1.5, len(specification.group_sizes))
    spread = prior.packed(factors @ factors.transpose(0, 2, 1))
    of_means = None if priors.offset is None else rng.uniform(0.05, 0.3, D)
    return Parameters(rng.standard_normal((D, k)), rng.standard_normal(D), noise, spread, of_means)


def counts(x):
    return (~np.isnan(x)).sum(axis=0).astype(float)


def found(x, p, specification):
    return block_entries(Block(0, 0, x), EntryRequest(p, specification, np.zeros(D), np.ones(D)))


def value(x, p, specification, priors=FREE):
    return found(x, p, specification).log_likelihood - prior.divergence(p, counts(x), priors)


def divergence(mean, covariance, variance):
    """KL(N(mean, covariance) ‖ N(0, variance))."""
    inverse = np.linalg.inv(variance)
    logs = np.linalg.slogdet(variance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(inverse @ covariance) + mean @ inverse @ mean - len(mean) + logs)


def of_means(x, p, offset):
    """The best m and τ² of the features that some row observes."""
    own = counts(x) > 0
    place = (p.mean + offset)[own]
    return place.mean(), place.var() + p.mean_variance[own].mean()


def variance_of(x, p, priors):
    """V: as given, or the best."""
    own = counts(x) > 0
    best = (p.loadings[own].T @ p.loadings[own] + prior.spreads(p)[own].sum(axis=0)) / own.sum()
    return best if priors.variance is None else priors.variance * np.eye(len(best))


def definition(x, p, specification, means, covariances, variance, priors=FREE, mean_prior=None):
    """E[log p(x | z, w, μ)] − Σ KL(q(z) ‖ N(0, I)) − Σ KL(q(w) ‖ N(0, V)) − Σ KL(q(μ) ‖ N(m, τ²)), entry by entry."""
    noise, spread, total = specification.per_feature(p.noise_variance), prior.spreads(p), 0.0
    unsure = np.zeros(D) if p.mean_variance is None else p.mean_variance
    for row, m, c in zip(x, means, covariances, strict=True):
        if not np.isnan(row).all():
            total -= divergence(m, c, np.eye(len(m)))
        for j in np.flatnonzero(~np.isnan(row)):
            both = np.sum((np.outer(p.loadings[j], p.loadings[j]) + spread[j]) * (np.outer(m, m) + c))
            away = row[j] - p.mean[j]
            square = away**2 + unsure[j] - 2.0 * away * p.loadings[j] @ m + both
            total -= 0.5 * (np.log(2.0 * np.pi * noise[j]) + square / noise[j])
    each = zip(p.loadings, spread, counts(x), strict=True)
    total -= sum(divergence(w, s, variance) for w, s, n in each if n)
    if priors.offset is None:
        return total
    m, tau = of_means(x, p, priors.offset) if mean_prior is None else mean_prior
    each = zip(p.mean + priors.offset - m, p.mean_variance, counts(x), strict=True)
    return total - sum(divergence(np.array([a]), np.array([[s]]), np.array([[tau]])) for a, s, n in each if n)


def posterior(x, p, specification):
    size = specification.sizes[0]
    parts = x[:, :size], x[:, size:] if size < D else None
    means = incomplete.scores(*parts, p, specification)
    return means, incomplete.covariances(*parts, p, specification).reshape(-1, *2 * (means.shape[1],))


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
@pytest.mark.parametrize("part", HOLES)
@PRIORS
def test_the_bound_is_that_of_the_definition_at_its_best_posterior_and_prior(specification, part, priors):
    x, p = rows(part), parameters_of(specification, priors=priors)
    means, covariances = posterior(x, p, specification)
    variance = variance_of(x, p, priors)
    best = definition(x, p, specification, means, covariances, variance, priors)
    assert value(x, p, specification, priors) == pytest.approx(best, rel=1e-12)
    if priors.offset is not None:
        m, tau = of_means(x, p, priors.offset)
        for other in ((m + 0.1, tau), (m - 0.1, tau), (m, 1.1 * tau), (m, 0.9 * tau)):
            assert definition(x, p, specification, means, covariances, variance, priors, other) < best
    rng = np.random.default_rng(1)
    for _ in range(5):
        moved = 0.03 * rng.standard_normal((K, K))
        others = (
            (means + 0.03 * rng.standard_normal(means.shape), covariances, variance),
            (means, covariances + moved @ moved.T, variance),
            (means, covariances, variance + moved + moved.T),
        )[: 3 if priors.variance is None else 2]
        assert all(definition(x, p, specification, *other, priors) < best for other in others)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
@PRIORS
def test_the_gradient_is_that_of_the_definition(specification, priors):
    x, p = rows(0.4), parameters_of(specification, priors=priors)
    slope = prior.bound_gradient(found(x, p, specification), p, specification, priors)
    at, step = p.flatten(), 1e-5
    for i in range(len(at)):
        ends = [p.unflatten(at + sign * step * np.eye(len(at))[i]) for sign in (1, -1)]
        above, below = (
            definition(x, q, specification, *posterior(x, q, specification), variance_of(x, q, priors), priors)
            for q in ends
        )
        assert slope[i] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-6)


@given(
    part=st.floats(0.0, 0.9),
    seed=st.integers(0, 100),
    each=st.booleans(),
    expand=st.booleans(),
    pulled=st.booleans(),
    variance=st.sampled_from([None, 0.05, 3.0]),
)
@settings(max_examples=examples(40), derandomize=True)
def test_no_step_lowers_the_bound(part, seed, each, expand, pulled, variance):
    specification = EACH if each else SHARED
    specification = specification.with_floors(np.full(len(specification.group_sizes), 1e-3))
    # Where the means of the features are one, the prior leaves them no variance.
    priors = Priors((OFFSET if seed % 2 else np.zeros(D)) if pulled else None, variance)
    x, p = rows(part, seed=seed), parameters_of(specification, seed, priors=priors)
    before = -np.inf
    for _ in range(12):
        statistics = found(x, p, specification)
        now = statistics.log_likelihood - prior.divergence(p, counts(x), priors)
        assert now >= before - 1e-11 * abs(now)
        before, p = now, prior.maximise_bound(statistics, p, specification, priors, expand=expand)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
@PRIORS
def test_a_step_without_expansion_finds_the_best_of_each(specification, priors):
    """Loadings, means and how uncertain they are, are best for the posterior of z, the old prior of the loadings and
    the old noise, together with the prior of the means; the noise for them."""
    x, p = rows(0.4), parameters_of(specification, priors=priors)
    about = posterior(x, p, specification)
    variance = variance_of(x, p, priors)
    new = prior.maximise_bound(found(x, p, specification), p, specification, priors, expand=False)
    step, rng = 1e-4, np.random.default_rng(0)
    of_loadings = new._replace(noise_variance=p.noise_variance)
    best = definition(x, of_loadings, specification, *about, variance, priors)
    if priors.offset is not None:
        surer = of_loadings._replace(mean_variance=new.mean_variance * (1.0 + step * rng.standard_normal(D)))
        assert definition(x, surer, specification, *about, variance, priors) < best
    for _ in range(8):
        moved = of_loadings._replace(
            loadings=new.loadings + step * rng.standard_normal(new.loadings.shape),
            mean=new.mean + step * rng.standard_normal(D),
        )
        turn = np.eye(K) + step * rng.standard_normal((K, K))
        spread = prior.packed(turn.T @ prior.spreads(new) @ turn)
        assert definition(x, moved, specification, *about, variance, priors) < best
        other = of_loadings._replace(loadings_covariance=spread)
        assert definition(x, other, specification, *about, variance, priors) < best
    best = definition(x, new, specification, *about, variance, priors)
    for factor in (1.001, 0.999):
        other = new._replace(noise_variance=new.noise_variance * factor)
        assert definition(x, other, specification, *about, variance, priors) < best


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=IDS)
def test_the_bound_does_not_know_the_axes_of_z(specification):
    x, p = rows(0.4), parameters_of(specification)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((K, K)))[0]
    before = value(x, p, specification)
    assert value(x, p.turned(turn), specification) == pytest.approx(before, rel=1e-12)
    straight = prior.diagonal(p, counts(x))
    assert value(x, straight, specification) == pytest.approx(before, rel=1e-12)
    variance = prior.prior_variance(straight, counts(x))
    np.testing.assert_allclose(variance, np.diag(np.sort(np.diag(variance))[::-1]), atol=1e-12)
    one, other = (canonical(q, specification) for q in (p, p.turned(turn)))
    for mine, theirs in zip(one[:4], other[:4], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)
    # Steps from both lead to one model.
    ends = [prior.maximise_bound(found(x, q, specification), q, specification) for q in (p, p.turned(turn))]
    for mine, theirs in zip(*(canonical(q, specification)[:4] for q in ends), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


def test_statistics_are_turned_back_to_other_axes():
    x, p = rows(0.4), parameters_of(EACH)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((K, K)))[0]
    there = found(x, p.turned(turn), EACH)
    back, here = prior.turned_back(there, turn), found(x, p, EACH)
    for name in ("second", "cross", "latent"):
        np.testing.assert_allclose(getattr(back, name), getattr(here, name), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(back.evidence, there.evidence)


@pytest.mark.parametrize("part", HOLES)
def test_a_component_is_worth_what_the_bound_loses_without_it(part):
    x, p = rows(part), parameters_of(EACH)
    statistics = found(x, p, EACH)
    for k, worth in enumerate(prior.worth(statistics, p)):
        without = p.turned(np.delete(np.eye(K), k, axis=1))
        assert worth == pytest.approx(value(x, p, EACH) - value(x, without, EACH), rel=1e-9)


def test_certainty_is_the_part_of_the_loadings_that_their_means_are():
    p, seen = parameters_of(SHARED), np.array([3.0, 0.0, 9.0, 1.0, 0.0, 2.0])
    kept, covariance = p.loadings[seen > 0], unpacked(p.loadings_covariance.T, K)[..., seen > 0]
    energy = (kept**2).sum(axis=0)
    np.testing.assert_allclose(prior.certainty(p, seen), energy / (energy + np.einsum("kkj->k", covariance)))


def test_what_is_held_out_does_not_depend_on_how_rows_are_cut():
    x = np.random.default_rng(0).normal(size=(9000, 4))
    one = Specification((View("features", 4),), ((0,),), 1)
    request = incomplete.HeldOutRequest(Parameters(x[:4, :1], x[4], np.ones(1)), one, incomplete.Hiding(0.2, 0))
    cuts = (slice(0, 9000), slice(0, 3001), slice(3001, 9000))
    whole, *parts = (np.stack(incomplete.block_held_out(Block(0, at.start, x[at]), request)) for at in cuts)
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-12)


def test_moments_of_masks_give_what_rows_give():
    x = rows(0.0, n=60)
    x[:20, :3] = np.nan
    x[35:37] = np.nan
    p, zero, one = parameters_of(EACH, priors=Priors(OFFSET)), np.zeros(D), np.ones(D)
    buckets = few_buckets(block_entry_sums(Block(0, 0, x), zero).buckets, D)
    sums = block_patterns(Block(0, 0, x), PatternRequest(buckets, zero, one))
    few = entries_of_patterns(sums, EntryRequest(p, EACH, zero, one))
    for mine, theirs in zip(few, found(x, p, EACH), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-11)


def test_variances_of_missing_entries_are_those_of_products():
    """Var[wᵀz] = Σ E[w_a w_b] E[z_a z_b] − (E[w]ᵀE[z])², and those of the mean and the noise."""
    x, p = rows(0.5), parameters_of(EACH, priors=Priors(OFFSET))
    means, covariances = posterior(x, p, EACH)
    variances, spread = incomplete.imputed_variances(x, None, p, EACH), prior.spreads(p)
    for i, j in np.argwhere(np.isnan(x)):
        loading = np.outer(p.loadings[j], p.loadings[j]) + spread[j]
        latent = np.outer(means[i], means[i]) + covariances[i]
        expected = np.sum(loading * latent) - (p.loadings[j] @ means[i]) ** 2
        expected += p.mean_variance[j] + p.noise_variance[j]
        assert variances[i, j] == pytest.approx(expected, rel=1e-10)


@PRIORS
def test_a_feature_that_no_row_observes_says_nothing(priors):
    x, p = rows(0.3), parameters_of(EACH, priors=priors)
    x[:, 4] = np.nan
    p = prior.maximise_bound(found(x, p, EACH), p, EACH, priors)
    assert not p.loadings[4].any()
    assert np.isfinite(p.flatten()).all()
    rest = np.delete(np.arange(D), 4)
    fewer = Specification((View("features", D - 1, shared=False),), ((0,),), K)
    fewer_priors = priors if priors.offset is None else priors._replace(offset=priors.offset[rest])
    left = p.of(rest)._replace(noise_variance=p.noise_variance[rest])
    without = block_entries(
        Block(0, 0, np.ascontiguousarray(x[:, rest])), EntryRequest(left, fewer, np.zeros(D - 1), np.ones(D - 1))
    ).log_likelihood - prior.divergence(left, counts(x)[rest], fewer_priors)
    assert value(x, p, EACH, priors) == pytest.approx(without, rel=1e-12)


def test_without_components_no_row_need_be_read():
    x, p = rows(0.4), parameters_of(EACH, k=0, priors=Priors(OFFSET))
    x = x - np.nanmean(x, axis=0)
    mine = prior.without_components(p, EACH, counts(x), np.nansum(x**2, axis=0))
    theirs = found(x, p.turned(np.zeros((0, 1))), EACH)
    np.testing.assert_allclose(mine.second[-1], theirs.second[-1], rtol=1e-12)
    np.testing.assert_allclose(mine.cross[-1], theirs.cross[-1], rtol=1e-12)
    np.testing.assert_allclose(mine.energy, theirs.energy, rtol=1e-12)
    assert mine.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-12)


@pytest.mark.parametrize("apart", [0.0, 1e-3, 0.5, 20.0])
def test_means_are_the_best_on_a_fine_grid(apart):
    """Of the bound as a function of the prior's variance, for uncertainties that differ a hundredfold."""
    rng = np.random.default_rng(3)
    uncertainty = np.geomspace(0.02, 2.0, 40)
    precision = 0.9 / uncertainty
    alone = 3.0 + apart * rng.standard_normal(40) + np.sqrt(uncertainty) * rng.standard_normal(40)

    def bound(means):
        m = means.mean.mean()
        tau = np.mean((means.mean - m) ** 2 + means.variance)
        each = (means.mean - alone) ** 2 / uncertainty + precision * means.variance + np.log(tau / means.variance)
        return -0.5 * each.sum()

    best = shrunk_means(alone, uncertainty, precision, 1.0)
    for tau in np.geomspace(1e-7, 1e4, 400):
        weight = 1.0 / (uncertainty + tau)
        centre = weight @ alone / weight.sum()
        other = Means(centre + (alone - centre) * tau * weight, 1.0 / (precision + 1.0 / tau))
        assert bound(other) <= bound(best) + 1e-6
    if not apart:
        assert np.ptp(best.mean) < 1e-3 * alone.std()
