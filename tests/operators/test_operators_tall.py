"""Products by slabs are products, and their bits do not depend on cores."""

from __future__ import annotations

from threading import get_ident

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info

from dlatent.operators import tall

SLAB = 8


@pytest.fixture(autouse=True, scope="module")
def small_slabs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tall, "SLAB", SLAB)
        yield


def matrices(rows, rank, columns, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((rows, rank)), rng.standard_normal((rows, columns))
    return np.asfortranarray(a), b, rng.standard_normal((rank, columns))


def products(a, b, c):
    return tall.inner(a, b), tall.product(a, c), tall.without(b.T, a, c)


@given(st.integers(0, 5 * SLAB + 1), st.integers(0, 4), st.integers(0, 3), st.integers(0, 99))
def test_products_are_those_of_numpy(rows, rank, columns, seed):
    a, b, c = matrices(rows, rank, columns, seed)
    combined = np.einsum("dr,rb->db", a, c)
    expected = np.einsum("dr,db->rb", a, b), combined, (b - combined).T
    for found, wanted in zip(products(a, b, c), expected, strict=True):
        assert found.shape == wanted.shape
        assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cores", [2, 3, 64])
def test_bits_do_not_depend_on_cores(cores, monkeypatch):
    monkeypatch.setattr(tall, "SLAB", 1_000)
    a, b, c = matrices(10_500, 7, 5, 0)
    found = []
    for number in (1, cores):
        monkeypatch.setattr(tall, "_cores", lambda number=number: number)
        found.append(products(a, b, c))
    for one, many in zip(*found, strict=True):
        assert_array_equal(one, many)


def test_slabs_are_worked_on_by_several_threads_each_with_one_of_blas(monkeypatch):
    monkeypatch.setattr(tall, "_cores", lambda: 2)
    seen = []

    def look(at):
        threads = {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
        seen.append((at.start, at.stop, get_ident(), threads))
        return at.start

    assert tall._of_slabs(look, 3 * SLAB + 1) == [0, SLAB, 2 * SLAB, 3 * SLAB]
    assert sorted(place[:2] for place in seen) == [(0, 8), (8, 16), (16, 24), (24, 25)]
    assert get_ident() not in {thread for _, _, thread, _ in seen}
    assert all(threads <= {1} for *_, threads in seen)


def test_fewer_rows_than_two_slabs_are_one_product_without_threads():
    assert tall._of_slabs(lambda at: (at, get_ident()), 2 * SLAB - 1) == [(slice(0, 2 * SLAB - 1), get_ident())]


def test_an_error_of_a_slab_is_raised():
    a, _, _ = matrices(5 * SLAB, 2, 2, 0)
    with pytest.raises(ValueError, match="mismatch"):
        tall.product(a, np.zeros((3, 2)))
