"""Δ = γI + (αI + A)² by what it does, against dense matrices that are formed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.errors import DataError
from dlatent.operators import graph_precision
from dlatent.operators.graph_precision import estimated
from dlatent.operators.sample_precision import Precision
from tests.graphs import power_law_graph
from tests.law_examples import examples


def formed(adjacency, precision):
    inner = precision.alpha * np.eye(adjacency.shape[0]) + adjacency.toarray()
    return precision.gamma * np.eye(len(inner)) + inner.T @ inner


precisions = st.builds(Precision, st.floats(0, 3), st.floats(1e-3, 2))
graphs = st.builds(
    lambda n, m, seed, weight: weight * power_law_graph(n, min(m, n * (n - 1) // 4), random_state=seed),
    st.integers(3, 30),
    st.integers(0, 60),
    st.integers(0, 100),
    st.floats(0.1, 2),
)


@settings(max_examples=examples(40))
@given(graphs, precisions)
def test_determinant_and_inverse_are_those_of_the_formed_matrix(adjacency, precision):
    dense = formed(adjacency, precision)
    expected = np.linalg.slogdet(dense)[1]
    assert graph_precision.log_determinant(adjacency, precision) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    rows = np.arange(adjacency.shape[0])[::2]
    found = graph_precision.inverse_diagonal(adjacency, precision, rows)
    np.testing.assert_allclose(found, np.diag(np.linalg.inv(dense))[rows], rtol=1e-7)


@settings(max_examples=examples(40))
@given(graphs, st.floats(0, 2))
def test_rank_without_gamma_is_that_of_the_formed_matrix(adjacency, alpha):
    singular = np.linalg.svd(alpha * np.eye(adjacency.shape[0]) + adjacency.toarray(), compute_uv=False)
    clear = singular[singular > 1e-6 * max(singular.max(), 1)]
    if len(clear) == (singular > 1e-12 * max(singular.max(), 1)).sum():  # else the rank is a matter of taste
        assert graph_precision.rank(adjacency, Precision(alpha, 0.0)) == len(clear)
        found = graph_precision.log_determinant(adjacency, Precision(alpha, 0.0))
        assert found == pytest.approx(2 * np.log(clear).sum(), rel=1e-8, abs=1e-8)


def test_an_isolated_pair_makes_the_precision_singular():
    pair = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0.0]]))
    assert graph_precision.rank(pair, Precision(1.0, 0.0)) == 2
    assert graph_precision.rank(pair, Precision(1.0, 1e-6)) == 3


@settings(max_examples=examples(40))
@given(graphs, st.floats(0, 3), st.sampled_from([1e-6, 1e-3, 1.0]), st.integers(0, 100))
def test_the_other_rows_are_the_least_squares_of_the_given_ones(adjacency, alpha, gamma, seed):
    """By QR of [√γI; αI + A], which does not square the condition number either."""
    random, n = np.random.default_rng(seed), adjacency.shape[0]
    known, precision = random.random(n) < 0.6, Precision(alpha, gamma)
    root = np.vstack([np.sqrt(gamma) * np.eye(n), alpha * np.eye(n) + adjacency.toarray()])
    given_rows = random.standard_normal((known.sum(), 3))
    found = graph_precision.completed(adjacency, precision, known, given_rows)
    expected = np.linalg.lstsq(root[:, ~known], -root[:, known] @ given_rows, rcond=None)[0]
    scale = max(np.abs(expected).max(initial=0.0), 1.0)
    np.testing.assert_allclose(found.rows, expected, rtol=1e-8, atol=1e-9 * scale)
    logs = 2 * np.log(np.linalg.svd(root[:, ~known], compute_uv=False)).sum()
    assert found.log_determinant == pytest.approx(logs, rel=1e-9, abs=1e-9)


def twins(gamma):
    """Of samples that are joined and have the same neighbours, which differ in γ alone, four given three."""
    adjacency = sp.csr_array(0.3 * (np.ones((7, 7)) - np.eye(7)))
    known, given_rows = np.array([True] * 3 + [False] * 4), np.array([[1.0], [-2.0], [0.7]])
    return graph_precision.completed(adjacency, Precision(0.3, gamma), known, given_rows).rows


@pytest.mark.parametrize("gamma", [1e-6, 1e-9, 1e-12])
def test_rows_that_gamma_alone_tells_apart(gamma):
    """Each takes an equal part of what the three sum up to."""
    np.testing.assert_allclose(twins(gamma), np.full((4, 1), 0.3 / 4), rtol=max(1e-9, 20 * gamma))


@pytest.mark.parametrize("gamma", [1e-20, 1e-30, 1e-300])
def test_a_gamma_that_rounding_hides_is_refused(gamma):
    with pytest.raises(DataError, match="too small beside the edges"):
        twins(gamma)


def test_a_component_too_large_for_its_eigenvalues_is_refused(monkeypatch):
    monkeypatch.setattr(graph_precision, "EXACT_COMPONENT", 5)
    ring = power_law_graph(30, 60, random_state=0)
    with pytest.raises(DataError, match=r"gamma=1e-6, which gives the same subspace"):
        graph_precision.rank(ring, Precision(1.0, 0.0))


def test_quadrature_is_exact_once_the_krylov_space_is_all():
    adjacency, precision = power_law_graph(12, 25, random_state=1), Precision(1.0, 0.1)
    dense = formed(adjacency, precision)
    values, vectors = np.linalg.eigh(dense)
    logarithm = vectors * np.log(values) @ vectors.T
    probes = np.random.default_rng(0).integers(0, 2, (12, 5)) * 2.0 - 1.0
    found, _ = graph_precision.probe_log_determinants(lambda v: adjacency @ v, probes, precision, 12)
    np.testing.assert_allclose(found, np.einsum("ij,ik,kj->j", probes, logarithm, probes), rtol=1e-8)


# An eigenvalue near zero weighs log γ, which the last case has most of: its quadrature knows that it is rougher.
@pytest.mark.parametrize(
    ("precision", "most"), [(Precision(1.0, 1e-2), 0.02), (Precision(0.5, 1.0), 0.02), (Precision(1.0, 1e-6), 0.04)]
)
def test_quadrature_comes_within_its_own_error(precision, most):
    adjacency = power_law_graph(1500, 4500, random_state=3)
    exact = graph_precision.log_determinant(adjacency, precision)
    probes = np.random.default_rng(1).integers(0, 2, (1500, 40)) * 2.0 - 1.0
    found = estimated(*graph_precision.probe_log_determinants(lambda v: adjacency @ v, probes, precision, 120))
    assert abs(found.value - exact) < 4 * found.standard_error
    assert found.standard_error < most * 1500
