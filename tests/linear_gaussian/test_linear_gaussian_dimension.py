"""The evidence and the criterion for a number of components, beside their definitions."""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from dlatent.linear_gaussian.dimension import bic, explaining, log_evidence


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
    expected = [minka(values, samples, k) for k in range(1, size)]
    np.testing.assert_allclose(log_evidence(values, samples)[:-1], expected, rtol=1e-9)


@given(st.integers(0, 10_000), st.integers(3, 9), st.floats(1e-6, 1e6))
def test_units_do_not_change_what_is_compared(seed: int, size: int, unit: float) -> None:
    values = spectrum(seed, size)
    for score in (log_evidence, bic):
        one, other = score(values, 100)[:-1], score(unit * values, 100)[:-1]
        np.testing.assert_allclose(other - other[0], one - one[0], rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 4])
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
    assert bic(values, samples)[k - 1] == pytest.approx(twice + free * log(samples), rel=1e-10)


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.01, 0.99))
def test_a_part_of_the_variance_is_explained_by_no_fewer(seed: int, size: int, part: float) -> None:
    values = spectrum(seed, size)
    k = explaining(part, values)
    assert values[:k].sum() > part * values.sum() * (1 - 1e-12)
    assert values[: k - 1].sum() <= part * values.sum() * (1 + 1e-12)
