"""Block statistics against direct sums over samples, and the steps of EM against the textbook."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.arrays import Block, add
from dlatent.errors import DataError
from dlatent.gaussian.expectation import ExpectationRequest, block_expectation, expect_moments
from dlatent.gaussian.likelihood import LikelihoodRequest, block_log_likelihood
from dlatent.gaussian.maximisation import em_step, maximise, slope
from dlatent.gaussian.moments import (
    CHUNK_ROWS,
    MomentRequest,
    Moments,
    block_column_sums,
    block_mean,
    block_moments,
    centred,
    representable,
    view_counts,
    view_variances,
)
from dlatent.gaussian.products import ProductRequest, block_feature_sums, block_products
from tests.oracles import dense as oracles
from tests.simulators import draw, hide, random_parameters, specification_of

SIZES, K, N = (7, 3), 2, 30
SHIFT = np.linspace(-1.0, 2.0, SIZES[0])


@pytest.fixture
def data():
    parameters = random_parameters(SIZES, K, noise=(0.3, 0.6), random_state=3)
    return draw(parameters, specification_of(SIZES, K, unlabelled=True), N, 4)


@pytest.fixture
def labelled():
    return np.random.default_rng(5).random(N) < 0.4


def blocks(data, labelled, cuts=(0, 4, 5, 22, N), kind="dense"):
    targets = hide(data.targets, labelled)
    for index, (a, b) in enumerate(pairwise(cuts)):
        x = np.ascontiguousarray(data.features[a:b])
        yield Block(index, a, sp.csr_array(x) if kind == "sparse" else x, targets[a:b])


def gathered(function, request, data, labelled, **options):
    found = [function(block, request) for block in blocks(data, labelled, **options)]
    total = found[0]
    for other in found[1:]:
        total = add(total, other)
    return total


def stacked_rows(data, labelled):
    return np.hstack([data.features, hide(data.targets, labelled)])


def start():
    return random_parameters(SIZES, K, noise=(1.0, 0.4), random_state=8)


def exact_moments(data, labelled, shift=SHIFT):
    request = MomentRequest(shift, data.specification.patterns, False)
    found = gathered(block_moments, request, data, labelled)
    return Moments(found, np.concatenate([shift, np.zeros(SIZES[1])]), np.zeros(2), np.zeros(2))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_block_moments_are_the_direct_sums(data, labelled, kind):
    found = gathered(block_moments, MomentRequest(SHIFT, data.specification.patterns, False), data, labelled, kind=kind)
    moved = np.hstack([data.features - SHIFT, data.targets])
    for part, rows, width in zip(found, (moved[labelled], moved[~labelled]), (10, 7), strict=True):
        assert part.samples == len(rows)
        np.testing.assert_allclose(part.total, rows[:, :width].sum(axis=0), rtol=1e-12, atol=1e-12)
        expected = sum(np.outer(row, row) for row in rows[:, :width])
        np.testing.assert_allclose(part.gram, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_moments_of_more_rows_than_are_taken_at_once(kind):
    x, y = np.split(np.random.default_rng(0).normal(size=(2 * CHUNK_ROWS + 9, 5)), [3], axis=1)
    (part,) = block_moments(Block(0, 0, kind(x), y), MomentRequest(SHIFT[:3], ((0, 1),), False))
    rows = np.hstack([x - SHIFT[:3], y])
    np.testing.assert_allclose(part.gram, rows.T @ rows, rtol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_block_products_are_the_direct_sums(data, labelled, kind):
    rng = np.random.default_rng(0)
    directions = (rng.standard_normal((SIZES[0], 4)), rng.standard_normal((SIZES[1], 2)))
    request = ProductRequest(directions, SHIFT, data.specification.patterns, True)
    found = gathered(block_products, request, data, labelled, kind=kind)
    views = (data.features - SHIFT, data.targets)
    for part, rows, pattern in zip(found, (labelled, ~labelled), ((0, 1), (0,)), strict=True):
        stacked = np.hstack([views[view][rows] for view in pattern])
        for view, product in zip(pattern, part.product, strict=True):
            own = views[view][rows] @ directions[view]
            expected = sum(np.outer(row, z) for row, z in zip(stacked, own, strict=True))
            np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-11)
        sums = part.sums
        np.testing.assert_allclose(sums.total, stacked.sum(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sums.energy, [(views[view][rows] ** 2).sum() for view in pattern], rtol=1e-12)
        assert sums.samples == rows.sum()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_feature_sums_are_the_direct_sums(data, labelled, kind):
    request = MomentRequest(SHIFT, data.specification.patterns, False)
    found = gathered(block_feature_sums, request, data, labelled, kind=kind)
    moved = np.hstack([data.features - SHIFT, data.targets])
    for part, rows, width in zip(found, (moved[labelled], moved[~labelled]), (10, 7), strict=True):
        assert part.samples == len(rows)
        np.testing.assert_allclose(part.total, rows[:, :width].sum(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(part.energy, (rows[:, :width] ** 2).sum(axis=0), rtol=1e-12, atol=1e-12)


def test_columns_far_from_zero_are_those_of_the_weighted_rows():
    rng = np.random.default_rng(0)
    x, weights = rng.normal([0.0, 20.0, 3.0], 1.0, (50, 3)), rng.uniform(0.5, 2.0, 50)
    found = block_column_sums(Block(0, 0, sp.csr_array(x), weights=weights), None)
    np.testing.assert_allclose(found.samples, weights.sum())
    np.testing.assert_allclose(found.total, weights @ x, rtol=1e-12)
    np.testing.assert_allclose(found.squares, weights @ x**2, rtol=1e-12)
    np.testing.assert_allclose(found.far, [0.0, np.average(x[:, 1], weights=weights), 0.0])


def test_products_without_sums_hold_none(data, labelled):
    directions = (np.eye(SIZES[0])[:, :2], np.zeros((SIZES[1], 0)))
    request = ProductRequest(directions, SHIFT, data.specification.patterns, False)
    assert all(part.sums is None for part in gathered(block_products, request, data, labelled))


def direct_expectation(model, rows, shift):
    """Σ E[z̃z̃ᵀ], Σ (x−s) E[z̃]ᵀ, Σ (x−s)² per feature, Σ log p, from dense conditionals of every sample."""
    second, cross, squares = 0.0, 0.0, 0.0
    for row in rows:
        about = oracles.latent_given(model, row)
        seen = ~np.isnan(row)
        extended = np.append(about.mean, 1.0)
        spread = np.zeros((K + 1, K + 1))
        spread[:K, :K] = about.covariance
        second = second + np.outer(extended, extended) + spread
        moved = (row - shift)[seen]
        cross = cross + np.outer(moved, extended)
        squares = squares + moved**2
    return second, cross, squares, oracles.log_densities(model, rows).sum()


@pytest.mark.parametrize("solver", ["accelerated_em", "sparse rows", "covariance"])
def test_expectation_is_the_sum_of_dense_conditionals(data, labelled, solver):
    parameters, specification = start(), data.specification
    shift = np.concatenate([SHIFT, np.zeros(SIZES[1])])
    relative = parameters._replace(mean=parameters.mean - shift)
    if solver == "covariance":
        found = expect_moments(relative, exact_moments(data, labelled), specification)
    else:
        kind = "sparse" if solver.startswith("sparse") else "dense"
        found = gathered(
            block_expectation, ExpectationRequest(relative, specification, SHIFT), data, labelled, kind=kind
        )
    model, rows = oracles.dense(parameters, SIZES), stacked_rows(data, labelled)
    for part, chosen in zip(found, (labelled, ~labelled), strict=True):
        second, cross, squares, value = direct_expectation(model, rows[chosen], shift)
        np.testing.assert_allclose(part.second, second, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(part.cross, cross, rtol=1e-9, atol=1e-9)
        bounds = [0, SIZES[0]] if len(squares) > SIZES[0] else [0]
        np.testing.assert_allclose(part.energy, np.add.reduceat(squares, bounds), rtol=1e-10)
        assert part.log_likelihood == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("shared", [True, False], ids=["a noise for each view", "a noise for each feature"])
def test_the_slope_is_that_of_the_dense_likelihood(data, labelled, shared):
    specification = data.specification
    if not shared:
        views = tuple(replace(view, shared=False) for view in specification.views)
        specification = replace(specification, views=views)
    moments, rows = exact_moments(data, labelled), stacked_rows(data, labelled)
    noise = np.linspace(0.3, 0.9, len(specification.group_sizes))
    point = start()._replace(noise_variance=noise)
    expected = oracles.score_vector(point, specification, rows) * N
    relative = point._replace(mean=point.mean - moments.shift)
    found = slope(expect_moments(relative, moments, specification), relative, specification)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("all_labelled", [False, True], ids=["semi-supervised", "complete"])
def test_em_steps_are_those_of_the_textbook(data, labelled, all_labelled):
    """Twenty iterations of SPPCA's Algorithms 1 and 2, with errata 7 and 11, against per-sample dense EM."""
    if all_labelled:
        labelled = np.ones(N, dtype=bool)
    moments, rows = exact_moments(data, labelled), stacked_rows(data, labelled)
    parameters = start()._replace(mean=start().mean - moments.shift)
    model = oracles.dense(start(), SIZES)
    for _ in range(20):
        value = oracles.log_densities(model, rows).sum()
        parameters, found = em_step(parameters, moments, data.specification, expand=False)
        model = oracles.em_step(model, rows, SIZES)
        assert found == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(parameters.loadings, model.loadings, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(parameters.mean + moments.shift, model.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(parameters.noise_variance, model.noise[[0, -1]], rtol=1e-8)


@pytest.mark.parametrize("expand", [False, True], ids=["EM", "PX-EM"])
def test_the_likelihood_never_decreases(data, labelled, expand):
    moments, rows = exact_moments(data, labelled), stacked_rows(data, labelled)
    parameters = start()._replace(mean=start().mean - moments.shift)
    values = []
    for _ in range(60):
        lifted = parameters._replace(mean=parameters.mean + moments.shift)
        values.append(oracles.log_densities(oracles.dense(lifted, SIZES), rows).sum())
        parameters = em_step(parameters, moments, data.specification, expand=expand).parameters
    assert np.diff(values).min() > -1e-9 * abs(values[-1])
    assert values[-1] > values[0] + 1.0


def test_without_its_factor_the_covariance_lowers_the_likelihood(data, labelled):
    """Errata 7: (12) of the SPPCA paper as printed is no EM step; the case keeps the corrected one honest."""
    moments, rows = exact_moments(data, labelled), stacked_rows(data, labelled)
    parameters = random_parameters(SIZES, K, noise=(0.05, 0.05), random_state=8)
    parameters = parameters._replace(mean=parameters.mean - moments.shift)
    for _ in range(30):
        parameters = em_step(parameters, moments, data.specification, expand=False).parameters

    def value(point):
        lifted = point._replace(mean=point.mean + moments.shift)
        return oracles.log_densities(oracles.dense(lifted, SIZES), rows).sum()

    latent = expect_moments(parameters, moments, data.specification)
    printed = []
    for pattern, part in zip(data.specification.patterns, latent, strict=True):
        at = data.specification.features_of(pattern)
        noise = data.specification.per_feature(parameters.noise_variance)[at]
        loadings = parameters.loadings[at]
        covariance = np.linalg.inv(np.eye(K) + loadings.T @ (loadings / noise[:, None]))
        second = part.second.copy()
        second[:K, :K] += second[-1, -1] * covariance * (1.0 / parameters.noise_variance[0] - 1.0)
        printed.append(part._replace(second=second))
    assert value(maximise(latent, data.specification, expand=False)) >= value(parameters) - 1e-9
    assert value(maximise(tuple(printed), data.specification, expand=False)) < value(parameters) - 1e-3


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_block_log_likelihood_sums_the_samples(data, labelled, kind):
    parameters = start()
    found = gathered(block_log_likelihood, LikelihoodRequest(parameters, data.specification), data, labelled, kind=kind)
    model = oracles.dense(parameters, SIZES)
    assert found == pytest.approx(oracles.log_densities(model, stacked_rows(data, labelled)).sum(), rel=1e-10)


def test_centred_moments_are_about_the_means_of_the_observing_samples(data, labelled):
    middle = centred(exact_moments(data, labelled), SIZES, data.specification.patterns)
    means = np.concatenate([data.features.mean(axis=0), data.targets[labelled].mean(axis=0)])
    np.testing.assert_allclose(middle.shift, means, rtol=1e-10, atol=1e-12)
    variances = view_variances(middle, SIZES, data.specification.patterns)
    expected = [data.features.var(axis=0).mean(), data.targets[labelled].var(axis=0).mean()]
    np.testing.assert_allclose(variances, expected, rtol=1e-10)
    np.testing.assert_array_equal(view_counts(middle, data.specification.patterns, 2), [N, labelled.sum()])


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_a_initial_mean_keeps_the_moments_exact(offset):
    """Design, "Precision": raw moments at an offset of 1e8 spreads have a negative eigenvalue."""
    rng = np.random.default_rng(0)
    spread = np.round(rng.standard_normal((50, 4)) * 2**10) / 2**10
    x = spread + offset
    shift = representable(x[0] + 0.25, x.dtype)
    part = block_moments(Block(0, 0, x), MomentRequest(shift, ((0,),), False))[0]
    moments = centred(Moments((part,), shift, np.zeros(1), np.zeros(1)), (4,), ((0,),))
    expected = (spread - spread.mean(axis=0)).T @ (spread - spread.mean(axis=0))
    np.testing.assert_allclose(moments.patterns[0].gram, expected, rtol=1e-12, atol=1e-11)


def test_float32_blocks_are_summed_in_float64():
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((40_000, 3)) + 100.0).astype(np.float32)
    shift = block_mean(Block(0, 0, x[:100]), None)
    near = representable(shift, x.dtype)
    part = block_moments(Block(0, 0, x), MomentRequest(near, ((0,),), False))[0]
    exact = x.astype(np.float64) - near
    np.testing.assert_allclose(part.gram, exact.T @ exact, rtol=3e-6, atol=0.1)
    np.testing.assert_allclose(part.total, exact.sum(axis=0), rtol=1e-4, atol=0.05)


def test_an_overflowing_sum_is_told_from_bad_values():
    x = np.full((4, 2), 1e308)
    with pytest.raises(DataError, match=r"overflows float64 in block 0 \(rows 0–3\)"):
        block_moments(Block(0, 0, x), MomentRequest(np.zeros(2), ((0,),), False))
