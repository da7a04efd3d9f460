"""The E-step against dense integrals over z, and the density of rows against SciPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats as st
from hypothesis import given
from hypothesis import strategies as some
from scipy.special import logsumexp

from dlatent.arrays import Block
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.observations import OBSERVATION_MODELS
from dlatent.observations.posterior import Own
from dlatent.observations.statistics import (
    FirstRequest,
    ObservationRequest,
    Values,
    block_first_sums,
    block_observations,
)
from tests.memory import taking_at_most
from tests.observations.cases import drawn, log_density

GAPS = {"student": 0.06, "poisson": 0.006, "bernoulli": 0.022, "negative_binomial": 0.006}
"""Nats an entry that the bound may be below the evidence, with the best parameters or near them."""
GRID = np.linspace(-9.0, 9.0, 6001)


def parameters_of(name: str, width: int, k: int, seed: int) -> tuple[Parameters, Own]:
    rng = np.random.default_rng(seed)
    model = OBSERVATION_MODELS[name]
    specification = Specification((View("features", width),), ((0,),), k)
    loadings, mean = rng.normal(size=(width, k)) * 0.8, rng.normal(-0.3, 0.5, width)
    parameters = Parameters(loadings, mean, np.array([0.4]), shape=model.first_shape(width))
    return parameters, Own.of(parameters, specification)


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_below_the_evidence_and_near_it(name: str, seed: int) -> None:
    parameters, own = parameters_of(name, 6, 1, seed)
    model, rng = OBSERVATION_MODELS[name], np.random.default_rng(seed)
    x = model.sample(30, parameters, own, rng)
    seen = (rng.random(x.shape) > 0.2).astype(float)
    about = model.expectation(x, seen, parameters, own)
    eta = GRID[:, None, None] * parameters.loadings[:, 0] + parameters.mean
    each = (seen * log_density(name, x[None], eta, own.noise, own.shape)).sum(axis=2) + st.norm.logpdf(GRID)[:, None]
    evidence = logsumexp(each, axis=0) + np.log(GRID[1] - GRID[0])
    gap = evidence - about.bound
    assert gap.min() > -1e-7
    assert gap.sum() / seen.sum() < GAPS[name]
    weights = np.exp(each - logsumexp(each, axis=0))
    mean = GRID @ weights
    spread = np.sqrt(GRID**2 @ weights - mean**2)
    usual = np.median(np.abs(about.mean[:, 0] - mean) / spread)
    assert usual < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_multivariate_t_are_exact(seed: int) -> None:
    parameters, own = parameters_of("student_rows", 7, 2, seed)
    model, rng = OBSERVATION_MODELS["student_rows"], np.random.default_rng(seed)
    x = model.sample(20, parameters, own, rng)
    seen = (rng.random(x.shape) > 0.2).astype(float)
    about = model.expectation(x, seen, parameters, own)
    covariance = parameters.loadings @ parameters.loadings.T + np.diag(own.noise)
    for row, mask, found in zip(x, seen > 0.0, about.bound, strict=True):
        shape = covariance[np.ix_(mask, mask)]
        expected = st.multivariate_t.logpdf(row[mask], parameters.mean[mask], shape, df=4.0)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("factor", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("name", GAPS)
def test_no_other_posterior_is_better(name: str, factor: float) -> None:
    """The slope of the bound by the mean is 0, and the precision is that of the entries: of rows of large counts, of
    zeros, of outliers and of few entries, too."""
    parameters, own = parameters_of(name, 12, 3, 0)
    model, x, rng = OBSERVATION_MODELS[name], drawn(name, 60, 12), np.random.default_rng(0)
    x[:20] = np.minimum(x[:20] * factor, 1.0) if name == "bernoulli" else np.round(x[:20] * factor)
    x[20:30] = 0.0
    seen = (rng.random(x.shape) < np.linspace(0.1, 1.0, 60)[:, None]).astype(float)
    about, loadings = model.expectation(x * seen, seen, parameters, own), parameters.loadings
    pairs = np.einsum("jk,jl->jkl", loadings, loadings)
    precision = np.eye(3) + np.einsum("nj,jkl->nkl", about.terms.precision, pairs)
    covariance = about.covariance[:, [[0, 1, 2], [1, 3, 4], [2, 4, 5]]]
    size = np.sqrt(1.0 + np.abs(about.bound - (seen * model.constant(x * seen, own)).sum(axis=1)))
    np.testing.assert_allclose((precision @ covariance - np.eye(3)) / size[:, None, None], 0.0, atol=1e-5)
    missed = about.terms.slope @ loadings - about.mean
    in_deviations = np.sqrt(np.einsum("nk,nkl,nl->n", missed, covariance, missed))
    np.testing.assert_allclose(in_deviations / size, 0.0, atol=1e-5)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
@given(seed=some.integers(0, 999))
def test_posteriors_of_counts_of_all_sizes_are_found(name: str, seed: int) -> None:
    """Beside an entry of 1e10 the precision of a direction may be 1; single precision does not hold both."""
    rng = np.random.default_rng(seed)
    features, k = int(rng.integers(2, 30)), int(rng.integers(1, 3))
    loadings, mean = 8.0 * rng.normal(size=(features, k)), 3.0 * rng.normal(size=features)
    x = rng.poisson(np.exp(np.minimum(rng.normal(size=(20, k)) @ loadings.T + mean, 23.0))).astype(float)
    shape = np.exp(rng.uniform(-4.0, 11.0, features)) if name == "negative_binomial" else None
    own = Own(np.ones(features), shape)
    parameters = Parameters(loadings, mean, np.ones(1), shape=shape)
    assert np.isfinite(OBSERVATION_MODELS[name].expectation(x, np.ones(x.shape), parameters, own).bound).all()


@pytest.mark.parametrize("name", GAPS)
@given(seed=some.integers(0, 9999))
def test_a_rough_bound_is_near_the_best(name: str, seed: int) -> None:
    """Rough steps leave about as much of the bound of a row as they may, and hardly say more than exact ones, of large
    counts and outliers, too, whose digits single precision lacks."""
    rng = np.random.default_rng(seed)
    parameters, own = parameters_of(name, 12, 2, seed)
    x = OBSERVATION_MODELS[name].sample(10, parameters, own, rng)
    if name != "bernoulli":
        x = np.round(x * 10.0 ** rng.integers(0, 7, (10, 1)))
    seen = (rng.random(x.shape) > 0.2).astype(float)
    exact, rough = (OBSERVATION_MODELS[name].expectation(seen * x, seen, parameters, own, each) for each in (0.0, 1e-4))
    size = 1.0 + np.abs(exact.bound)
    # A row of Student's entries may have two maxima, and the two be at different ones.
    assert ((rough.bound - exact.bound) / size).max() < (1.0 if name == "student" else 1e-5)
    assert np.median((exact.bound - rough.bound) / size) < 1e-3


@pytest.mark.parametrize("name", OBSERVATION_MODELS)
def test_each_row_is_for_itself(name: str) -> None:
    """A row has the same q(z) among others, alone, and with entries that are missing left out."""
    parameters, own = parameters_of(name, 6, 2, 0)
    model = OBSERVATION_MODELS[name]
    x, seen = drawn(name, 12, 6), np.ones((12, 6))
    seen[3, 1] = seen[3, 4] = 0.0
    whole = model.expectation(x * seen, seen, parameters, own)
    few = model.expectation(x[3:4] * seen[3:4], seen[3:4], parameters, own)
    kept = seen[3] > 0.0
    shape = own.shape if own.shape is None or len(own.shape) == 1 else own.shape[kept]
    rest = model.expectation(x[3:4, kept], seen[3:4, kept], parameters.of(kept), Own(own.noise[kept], shape))
    for other in (few, rest):
        np.testing.assert_allclose(whole.mean[3], other.mean[0], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(whole.bound[3], other.bound[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_a_row_with_nothing_has_the_prior(name: str) -> None:
    parameters, own = parameters_of(name, 6, 2, 0)
    about = OBSERVATION_MODELS[name].expectation(np.zeros((1, 6)), np.zeros((1, 6)), parameters, own)
    np.testing.assert_allclose(about.mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(about.covariance, [[1.0, 0.0, 1.0]], atol=1e-12)
    np.testing.assert_allclose(about.bound, 0.0, atol=1e-12)


@pytest.mark.parametrize("rough", [0.0, 1e-4])
def test_one_row_of_so_many_is_one_of_all_blocks(rough: float) -> None:
    """However rows are cut into blocks, the statistics are those of rows 0, 4, 8, …."""
    parameters, _ = parameters_of("poisson", 6, 2, 0)
    specification = Specification((View("features", 6),), ((0,),), 2)
    x, zero, one = drawn("poisson", 50, 6), np.zeros(6), np.ones(6)
    request = ObservationRequest(
        OBSERVATION_MODELS["poisson"], parameters, specification, Values("raise"), zero, one, rough
    )
    alone = block_observations(Block(0, 0, x[::4]), request)
    ends = [0, 3, 17, 18, 41, 50]
    blocks = [Block(number, start, x[start:end]) for number, (start, end) in enumerate(pairwise(ends))]
    parts = [block_observations(block, request._replace(every=4)) for block in blocks]
    assert sum(part.rows for part in parts) == alone.rows == 13.0
    for field in ("second", "cross", "latent", "log_likelihood"):
        found = sum(getattr(part.entries, field) for part in parts)
        np.testing.assert_allclose(found, getattr(alone.entries, field), rtol=1e-3 if rough else 1e-10, atol=1e-3)


def test_sparse_rows_are_made_dense_few_at_a_time() -> None:
    import scipy.sparse as sp

    x = sp.random_array((20_000, 2_000), density=1e-3, format="csr", rng=0, data_sampler=lambda size: np.ones(size))
    with taking_at_most(64 << 20):
        sums = block_first_sums(
            Block(0, 0, x), FirstRequest(OBSERVATION_MODELS["poisson"], Values("raise"), np.zeros(2_000), False)
        )
    np.testing.assert_array_equal(sums.total, x.sum(axis=0))


def test_values_are_observed_as_missing_says() -> None:
    import scipy.sparse as sp

    dense = np.array([[1.0, np.nan], [0.0, 2.0]])
    x, seen, _ = Values("nan").of(dense)
    assert seen.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert x.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    sparse = sp.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert Values("raise").of(sparse)[1].all()
    assert Values("unstored").of(sparse)[1].tolist() == [[1.0, 0.0], [0.0, 1.0]]
