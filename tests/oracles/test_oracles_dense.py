"""The formulas of the library against dense Gaussians built from the model's definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.expectation import pattern_projection, posterior_scores
from dlatent.gaussian.likelihood import log_likelihoods, predict_view
from tests.law_examples import examples
from tests.oracles.dense import condition, dense, latent_given, log_densities, missing_given
from tests.simulators import draw, random_parameters, specification_of

NOISES = [(0.25, 0.5), (1e-3, 2.0), (3.0, 1e-4)]


def drawn(sizes=(9, 3), k=3, noise=(0.25, 0.5), n=17, seed=0, offset=2.0):
    specification = specification_of(sizes, k, unlabelled=len(sizes) > 1)
    parameters = random_parameters(sizes, k, noise=noise, random_state=seed, offset=offset)
    return draw(parameters, specification, n, seed + 1)


def without_targets(data):
    rows = data.stacked.copy()
    rows[:, data.features.shape[1] :] = np.nan
    return rows


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_log_likelihood_of_each_sample(noise, kind):
    data = drawn(noise=noise)
    x = data.features if kind == "dense" else sp.csr_array(data.features)
    model = dense(data.parameters, data.specification.sizes)
    joint = log_likelihoods(x, data.targets, data.parameters, data.specification)
    alone = log_likelihoods(x, None, data.parameters, data.specification)
    np.testing.assert_allclose(joint, log_densities(model, data.stacked), rtol=1e-9)
    np.testing.assert_allclose(alone, log_densities(model, without_targets(data)), rtol=1e-9)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("seen", ["features", "features and targets"])
def test_posterior_of_the_latent_variables(noise, kind, seen):
    """Errata 7: the covariance is σ²(WᵀW + σ²I)⁻¹, factor included, in the general form M⁻¹."""
    data = drawn(noise=noise)
    x = data.features if kind == "dense" else sp.csr_array(data.features)
    rows = data.stacked if seen == "features and targets" else without_targets(data)
    y = data.targets if seen == "features and targets" else None
    views = ((x,), (0,)) if y is None else ((x, y), (0, 1))
    z, about = posterior_scores(*views, data.parameters, data.specification)
    model = dense(data.parameters, data.specification.sizes)
    expected = [latent_given(model, row) for row in rows]
    np.testing.assert_allclose(z, [e.mean for e in expected], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(about.covariance, expected[0].covariance, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("noise", NOISES)
def test_prediction_of_the_targets_and_its_variance(noise):
    data = drawn(noise=noise)
    z, about = posterior_scores((data.features,), (0,), data.parameters, data.specification)
    found = predict_view(z, about, 1, data.parameters, data.specification)
    model = dense(data.parameters, data.specification.sizes)
    expected = [missing_given(model, row) for row in without_targets(data)]
    np.testing.assert_allclose(found.mean, [e.mean for e in expected], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.variance, np.diag(expected[0].covariance), rtol=1e-8)


def test_log_determinant_against_the_dense_covariance():
    data = drawn()
    model = dense(data.parameters, data.specification.sizes)
    for pattern, width in (((0,), 9), ((0, 1), 12)):
        about = pattern_projection(data.parameters, data.specification, pattern)
        expected = np.linalg.slogdet(model.observed.covariance[:width, :width])[1]
        assert about.constant == pytest.approx(expected, rel=1e-10)


@settings(max_examples=examples(25))
@given(
    features=st.integers(2, 12),
    targets=st.integers(1, 4),
    k=st.integers(1, 5),
    noise=st.tuples(st.floats(1e-3, 10.0), st.floats(1e-3, 10.0)),
    seed=st.integers(0, 1000),
)
def test_any_shape_has_the_dense_likelihood(features, targets, k, noise, seed):
    data = drawn((features, targets), k, noise, n=4, seed=seed)
    model = dense(data.parameters, (features, targets))
    found = log_likelihoods(data.features, data.targets, data.parameters, data.specification)
    np.testing.assert_allclose(found, log_densities(model, data.stacked), rtol=1e-8)


def test_canonical_form_leaves_the_distribution_alone():
    """Errata 10: the rotation diagonalises WᵀΨ⁻¹W with the noises as weights, and is orthogonal."""
    data = drawn(noise=(0.1, 3.0))
    found = canonical(data.parameters, data.specification)
    before, after = (dense(p, data.specification.sizes) for p in (data.parameters, found))
    np.testing.assert_allclose(after.observed.covariance, before.observed.covariance, rtol=1e-10, atol=1e-12)
    weighted = after.loadings.T @ np.diag(1.0 / after.noise) @ after.loadings
    off = weighted - np.diag(np.diag(weighted))
    assert abs(off).max() < 1e-10 * weighted.max()
    unweighted = after.loadings.T @ after.loadings
    assert abs(unweighted - np.diag(np.diag(unweighted))).max() > 1e-3 * unweighted.max(), "the case tells them apart"


def test_conditioning_oracle_agrees_with_a_case_by_hand():
    """Two standard normals of correlation r: y | x ~ N(r x, 1 − r²)."""
    from tests.oracles.dense import Gaussian

    joint = Gaussian(np.array([1.0, 2.0]), np.array([[1.0, 0.6], [0.6, 1.0]]))
    found = condition(joint, np.array([True, False]), np.array([3.0]))
    np.testing.assert_allclose(found.mean, [2.0 + 0.6 * 2.0])
    np.testing.assert_allclose(found.covariance, [[1 - 0.36]])
