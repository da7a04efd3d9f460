"""The evidence and the criterion for a number of components, beside their definitions."""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from dlatent.gaussian.dimension import bic, explaining, log_evidence, noise_eigenvalues


def spectrum(seed: int, size: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).gamma(1.0, 2.0, size))[::-1]


def minka(values: np.ndarray, samples: int, k: int) -> float:
    """Minka (2000), (77) with (78)-(80), factor by factor."""
    d = len(values)
    noise = values[k:].sum() / (d - k)
    hat = np.append(values[:k], np.full(d - k, noise))
    found = -k * log(2.0) + sum(lgamma((d - i) / 2) - (d - i) / 2 * log(pi) for i in range(k))
    found += -samples / 2 * sum(log(v) for v in values[:k]) - samples * (d - k) / 2 * log(noise)
    m = d * k - k * (k + 1) / 2
    found += (m + k) / 2 * log(2 * pi) - k / 2 * log(samples)
    for i in range(k):
        for j in range(i + 1, d):
            found -= 0.5 * log((1 / hat[j] - 1 / hat[i]) * (values[i] - values[j]) * samples)
    return found


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(10, 1000))
def test_the_evidence_is_that_of_the_paper(seed: int, size: int, samples: int) -> None:
    values = spectrum(seed, size)
    expected = [minka(values, samples, k) for k in range(size)]
    np.testing.assert_allclose(log_evidence(values, samples)[:-1], expected, rtol=1e-9)


@given(st.integers(0, 10_000), st.integers(3, 9), st.floats(1e-6, 1e6))
def test_units_do_not_change_what_is_compared(seed: int, size: int, unit: float) -> None:
    values = spectrum(seed, size)
    for score in (log_evidence, bic):
        one, other = score(values, 100)[:-1], score(unit * values, 100)[:-1]
        np.testing.assert_allclose(other - other[0], one - one[0], rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_the_criterion_is_that_of_the_normal_distribution_at_the_maximum(k: int) -> None:
    """Tipping and Bishop's maximum, evaluated as a dense normal distribution."""
    samples, size = 60, 5
    x = np.random.default_rng(0).standard_normal((samples, size)) * [3.0, 2.0, 1.0, 0.7, 0.5]
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = values[k:].mean()
    covariance = (vectors[:, :k] * (values[:k] - noise)) @ vectors[:, :k].T + noise * np.eye(size)
    twice = -2.0 * multivariate_normal(x.mean(axis=0), covariance).logpdf(x).sum()
    free = size * k - k * (k - 1) / 2 + 1 + size
    assert bic(values, samples)[k] == pytest.approx(twice + free * log(samples), rel=1e-10)


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.01, 0.99))
def test_a_part_of_the_variance_is_explained_by_no_fewer(seed: int, size: int, part: float) -> None:
    values = spectrum(seed, size)
    k = explaining(part, values)
    assert values[:k].sum() > part * values.sum() * (1 - 1e-12)
    assert values[: k - 1].sum() <= part * values.sum() * (1 + 1e-12)


def largest(x: np.ndarray) -> float:
    """The largest eigenvalue of the covariance, as a multiple of their mean."""
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    return float(values[0] * x.shape[1] / values.sum())


@pytest.mark.parametrize(("samples", "features"), [(60, 8), (20, 50), (9, 9), (50, 1)])
def test_noise_in_the_place_of_components_is_that_of_normal_samples(samples: int, features: int) -> None:
    drawn = [largest(x) for x in np.random.default_rng(0).standard_normal((1000, samples, features))]
    values = np.linspace(3.0, 1.0, features)
    (found,) = noise_eigenvalues(values, samples, 1, random_state=0) / values.mean()
    assert 0.9 < np.mean(np.array(drawn) <= found * (1 + 1e-12)) <= (0.99 if features > 1 else 1.0)


def test_components_are_compared_with_what_those_before_leave() -> None:
    values = np.array([90.0, 30.0, 3.0, 1.1, 1.0, 0.9])
    found = noise_eigenvalues(values, 100, 4, random_state=1)
    for k in range(1, 4):
        assert found[k] == pytest.approx(noise_eigenvalues(values[k:], 100 - k, 1, random_state=2)[0], rel=0.05)
    assert (values[:4] > found).tolist() == [True, True, True, False]
    np.testing.assert_allclose(noise_eigenvalues(7.0 * values, 100, 4, random_state=1), 7.0 * found)
