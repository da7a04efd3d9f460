"""A symmetric matrix by half of its tiles is the matrix."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dlatent.operators import tall
from dlatent.operators.tall import SymmetricTiles


def cut(sizes, seed=0):
    """A random symmetric matrix, and its tiles of these sizes."""
    raw = np.random.default_rng(seed).standard_normal((sum(sizes), sum(sizes)))
    matrix, bounds = raw + raw.T, np.cumsum([0, *sizes])
    at = [slice(a, b) for a, b in pairwise(bounds)]
    return matrix, SymmetricTiles.of([matrix[a, b] for a, b in combinations_with_replacement(at, 2)])


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 4), st.integers(0, 99))
def test_it_does_what_the_matrix_does(sizes, columns, seed):
    matrix, tiles = cut(sizes, seed)
    thin = np.random.default_rng(seed).standard_normal((sum(sizes), columns))
    assert tiles.size == len(matrix)
    assert_array_equal(tiles.matrix(), matrix)
    assert_array_equal(tiles.diagonal, np.diag(matrix))
    assert_allclose(tiles @ thin, np.einsum("nm,mb->nb", matrix, thin), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cores", [2, 3, 64])
def test_bits_do_not_depend_on_cores(cores, monkeypatch):
    _, tiles = cut([150, 151, 149, 7, 160])
    thin, found = np.random.default_rng(1).standard_normal((617, 9)), []
    for number in (1, cores):
        monkeypatch.setattr(tall, "_cores", lambda number=number: number)
        found.append(tiles @ thin)
    assert_array_equal(*found)
