"""Weights of samples: whole numbers are repeated rows, and others weigh what the likelihood adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import PPCA, FactorAnalysis
from dlatent.arrays import Block
from dlatent.gaussian.expectation import ExpectationRequest, block_expectation
from dlatent.gaussian.likelihood import LikelihoodRequest, block_log_likelihood
from dlatent.gaussian.moments import MomentRequest, block_moments
from dlatent.gaussian.products import ProductRequest, block_feature_sums, block_products
from dlatent.operators.sparse import by_columns
from tests.law_examples import examples
from tests.simulators import random_parameters, simulate, specification_of

D, L, K = 6, 2, 2
SPECIFICATION = specification_of((D, L), K, unlabelled=True)
PARAMETERS = random_parameters((D, L), K, random_state=0)
SHIFT = np.linspace(-1.0, 1.0, D)
WHOLE = np.append(SHIFT, np.zeros(L))
DIRECTIONS = (np.random.default_rng(0).normal(size=(D, 3)), np.eye(L))
STATISTICS: dict[str, Any] = {
    "moments": (block_moments, MomentRequest(SHIFT, SPECIFICATION.patterns, False)),
    "products": (block_products, ProductRequest(DIRECTIONS, SHIFT, SPECIFICATION.patterns, True)),
    "sums": (block_feature_sums, MomentRequest(SHIFT, SPECIFICATION.patterns, False)),
    "expectation": (block_expectation, ExpectationRequest(PARAMETERS.moved(-WHOLE), SPECIFICATION, SHIFT)),
    "likelihood": (block_log_likelihood, LikelihoodRequest(PARAMETERS, SPECIFICATION)),
}
FORMS = {"dense": np.asarray, "float32": lambda x: np.asarray(x, dtype=np.float32), "sparse": sp.csr_array}


def numbers(found: Any) -> list[np.ndarray]:
    """All numbers of a statistic, one after the other."""
    if isinstance(found, tuple):
        return [one for part in found if part is not None for one in numbers(part)]
    return [np.asarray(found, dtype=np.float64)]


@settings(max_examples=examples(15))
@given(st.integers(0, 10_000), st.sampled_from(sorted(FORMS)), st.lists(st.integers(0, 3), min_size=1, max_size=40))
@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_of_whole_weights_is_that_of_repeated_rows(name: str, seed: int, form: str, often: Any) -> None:
    rng, function, request = np.random.default_rng(seed), *STATISTICS[name]
    x, y = rng.normal(size=(len(often), D)), rng.normal(size=(len(often), L))
    x[rng.random(x.shape) < 0.5] = 0.0
    y[rng.random(len(y)) < 0.4] = np.nan
    one = Block(0, 0, FORMS[form](x), y, weights=np.array(often, dtype=float))
    other = Block(0, 0, FORMS[form](np.repeat(x, often, axis=0)), np.repeat(y, often, axis=0))
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if form == "float32" else {"rtol": 1e-9, "atol": 1e-9}
    for found, expected in zip(numbers(function(one, request)), numbers(function(other, request)), strict=True):
        np.testing.assert_allclose(found, expected, **tolerance)


def test_products_by_columns_have_the_weights_of_their_rows() -> None:
    rng = np.random.default_rng(1)
    x, weights = sp.csr_array(rng.normal(size=(300, D))), rng.gamma(1.0, size=300)
    request = ProductRequest(DIRECTIONS[:1], SHIFT, ((0,),), True)
    by_rows, held = (block_products(Block(0, 0, rows, weights=weights), request) for rows in (x, by_columns(x)))
    assert by_columns(x) is not x
    for found, expected in zip(numbers(held), numbers(by_rows), strict=True):
        np.testing.assert_array_equal(found, expected)


X = simulate(120, (12,), 2, noise=(0.5,), random_state=3).features * np.linspace(1.0, 2.0, 12)
OFTEN = np.random.default_rng(2).integers(0, 4, 120)
REPEATED = np.repeat(X, OFTEN, axis=0)
MODELS = {
    "covariance": PPCA(2, solver="covariance"),
    "krylov": PPCA(2, solver="krylov", tol=1e-13),
    "em": PPCA(2, solver="em", max_iter=40),
    "mle": PPCA("mle"),
    "auto": PPCA(),
    "factors": FactorAnalysis(2),
    "factors, em": FactorAnalysis(2, solver="em", max_iter=40),
}


@pytest.mark.filterwarnings("ignore::dlatent.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "dense") for name in MODELS), ("covariance", "sparse"), ("krylov", "sparse")]
)
def test_a_fit_with_whole_weights_is_that_of_repeated_rows(name: str, kind: str) -> None:
    model = MODELS[name]
    expected = model.fit(FORMS[kind](REPEATED)).get_covariance(), model.mean_, model.log_likelihood_
    model.fit(FORMS[kind](X), sample_weight=OFTEN)
    for found, one in zip((model.get_covariance(), model.mean_, model.log_likelihood_), expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-6, atol=1e-7)
    assert model.n_samples_ == 120
    assert model.score(X, sample_weight=OFTEN) == pytest.approx(model.score(REPEATED), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_the_maximum_is_that_of_the_weighted_covariance(solver: str, scale: float) -> None:
    """Tipping and Bishop's maximum (7), (8), of NumPy's weighted mean and covariance."""
    weights = scale * np.random.default_rng(3).gamma(1.0, size=120)
    values, vectors = np.linalg.eigh(np.cov(X.T, aweights=weights, bias=True))
    noise = values[:-2].mean()
    expected = (vectors[:, -2:] * (values[-2:] - noise)) @ vectors[:, -2:].T + noise * np.eye(12)
    model = PPCA(2, solver=solver, tol=1e-13).fit(X, sample_weight=weights)
    np.testing.assert_allclose(model.get_covariance(), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.mean_, np.average(X, axis=0, weights=weights), rtol=1e-9)
    assert model.log_likelihood_ == pytest.approx(weights @ model.score_samples(X), rel=1e-9)
