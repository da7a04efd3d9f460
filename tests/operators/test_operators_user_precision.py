"""A given Δ by what it does, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.errors import DataError
from dlatent.operators import graph_precision
from dlatent.operators.sample_precision import UserPrecision
from tests.law_examples import examples


def drawn(n, seed, least=0.1):
    """A sparse symmetric matrix with entries of either sign, its smallest eigenvalue `least`, its rows shuffled."""
    random = np.random.default_rng(seed)
    half = np.triu(random.normal(size=(n, n)) * (random.random((n, n)) < 0.3), 1)
    whole = half + half.T
    return whole + (least - np.linalg.eigvalsh(whole).min()) * np.eye(n)


cases = st.builds(drawn, st.integers(2, 25), st.integers(0, 200))


@settings(max_examples=examples(40))
@given(cases)
def test_determinant_inverse_and_rank_are_those_of_the_dense_matrix(dense):
    matrix = sp.csr_array(dense)
    assert graph_precision.rank(matrix, UserPrecision()) == len(dense)
    expected = np.linalg.slogdet(dense)[1]
    assert graph_precision.log_determinant(matrix, UserPrecision()) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    rows = np.arange(len(dense))[::2]
    found = graph_precision.inverse_diagonal(matrix, UserPrecision(), rows)
    np.testing.assert_allclose(found, np.diag(np.linalg.inv(dense))[rows], rtol=1e-8)


@settings(max_examples=examples(40))
@given(st.integers(2, 12), st.integers(0, 200), st.integers(1, 3))
def test_a_singular_matrix_has_the_rank_of_its_factor(n, seed, alone):
    """BᵀB of fewer rows than columns, beside samples that meet nobody, the last of which weighs nothing."""
    factor = np.random.default_rng(seed).normal(size=(n - 1, n))
    dense = np.zeros((n + alone, n + alone))
    dense[:n, :n] = factor.T @ factor
    dense[np.arange(n, n + alone - 1), np.arange(n, n + alone - 1)] = 2.0
    dense = (dense + dense.T) / 2
    matrix = sp.csr_array(dense)
    assert graph_precision.rank(matrix, UserPrecision()) == n - 1 + alone - 1
    expected = np.log(np.linalg.eigvalsh(factor @ factor.T)).sum() + (alone - 1) * np.log(2.0)
    assert graph_precision.log_determinant(matrix, UserPrecision()) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    with pytest.raises(DataError, match=r"needs a positive definite precision.*Δ \+ 1e-6 I"):
        graph_precision.inverse_diagonal(matrix, UserPrecision(), np.arange(n))


@settings(max_examples=examples(20))
@given(st.integers(3, 15), st.integers(0, 200), st.floats(-2.0, -1e-3))
def test_a_negative_eigenvalue_is_named(n, seed, least):
    matrix = sp.csr_array(drawn(n, seed, least))
    for of in (graph_precision.rank, graph_precision.log_determinant):
        with pytest.raises(DataError, match="its smallest eigenvalue is -"):
            of(matrix, UserPrecision())


def test_what_is_too_large_for_its_eigenvalues_must_be_definite(monkeypatch):
    singular = sp.csr_array(np.ones((5, 5)))
    monkeypatch.setattr(graph_precision, "EXACT_COMPONENT", 4)
    with pytest.raises(DataError, match=r"not positive definite, so that log\|Δ\| is not finite"):
        graph_precision.log_determinant(singular, UserPrecision())


def test_quadrature_is_exact_once_the_krylov_space_is_all():
    dense = drawn(12, 3)
    values, vectors = np.linalg.eigh(dense)
    logarithm = vectors * np.log(values) @ vectors.T
    probes = np.random.default_rng(0).integers(0, 2, (12, 5)) * 2.0 - 1.0
    found, _ = graph_precision.probe_log_determinants(lambda v: dense @ v, probes, UserPrecision(), 12)
    np.testing.assert_allclose(found, np.einsum("ij,ik,kj->j", probes, logarithm, probes), rtol=1e-8)
