"""Where blocks begin and end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlatent.errors import StoreError
from dlatent.stores.partition import BLOCK_BYTES, STRETCH, dense_bounds, sparse_bounds, sparse_bytes, wanted_bytes

sizes = st.integers(1, 500)


@given(total=st.integers(1, 10**10), least=st.integers(2**16, 2**24))
def test_default_blocks_are_one_or_two_or_multiples_of_four(total: int, least: int) -> None:
    size = wanted_bytes(None, total, least)
    number = -(-total // size)
    if size == BLOCK_BYTES:
        assert number >= 2
    elif total <= 2 * least:
        assert number <= 2
    else:
        assert number in (2, 4, 8, 12, 16)
        assert size >= least / 2
    assert wanted_bytes(77, total, least) == 77


@given(row_entries=st.integers(1, 40), rows=st.integers(2_000, 20_000))
def test_default_blocks_of_sparse_rows_leave_no_small_rest(row_entries: int, rows: int) -> None:
    pointers = np.arange(rows + 1) * row_entries
    total = sparse_bytes(rows, rows * row_entries, 12)
    wanted = wanted_bytes(None, total, 30_000)
    bounds = sparse_bounds([pointers], entry_bytes=12, block_bytes=wanted, place="here", total=total)
    sizes = np.array([stop - start for start, stop, *_ in bounds])
    assert len(sizes) in (1, 2, 4, 8, 12, 16)
    assert sizes.max() <= sizes.min() + 1


@given(rows=sizes, row_bytes=sizes, chunk=sizes, block=st.integers(1, 5000))
def test_dense_blocks_are_whole_chunks_unless_those_are_far_too_large(
    rows: int, row_bytes: int, chunk: int, block: int
) -> None:
    bounds = dense_bounds(rows, row_bytes, chunk, block)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == rows
    assert all(stop == start for (_, stop), (start, _) in pairwise(bounds))
    assert all(a < b for a, b in bounds)
    largest = max(b - a for a, b in bounds) * row_bytes
    if sum(start < chunk for start, _ in bounds) == 1:
        assert all(start % min(chunk, rows) == 0 for start, _ in bounds)
        assert largest <= max(block, STRETCH * block, row_bytes)
    else:
        assert min(chunk, rows) * row_bytes > STRETCH * block
        assert largest <= max(STRETCH * block, row_bytes)
    if min(chunk, rows) * row_bytes <= block:
        assert largest <= block


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=80), block=st.integers(1, 600), piece=st.integers(1, 20)
)
def test_sparse_blocks_do_not_depend_on_how_indptr_is_read(counts: list[int], block: int, piece: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(counts)])
    pieces = [indptr[s : s + piece + 1] for s in range(0, len(counts), piece)]
    streamed = sparse_bounds(pieces, entry_bytes=12, block_bytes=block, place="test")
    assert streamed == sparse_bounds([indptr], entry_bytes=12, block_bytes=block, place="test")
    assert streamed[0][0] == 0
    assert streamed[-1][1] == len(counts)
    for start, stop, first, last in streamed:
        assert (first, last) == (indptr[start], indptr[stop])
        assert stop > start
        cost = 12 * (last - first) + 4 * (stop - start)
        assert cost <= block or stop == start + 1
        if stop < len(counts):  # no block could have held one more row
            assert cost + 12 * counts[stop] + 4 > block


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=200), block=st.integers(1, 5000), cut=st.integers(1, 60)
)
def test_sparse_blocks_are_as_equal_as_rows_allow(counts: list[int], block: int, cut: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(counts)])
    total, heaviest = sparse_bytes(len(counts), sum(counts), 12), 12 * max(counts) + 4
    pieces = [indptr[at : at + cut + 1] for at in range(0, len(counts), cut)]
    found = sparse_bounds(pieces, entry_bytes=12, block_bytes=block, place="test", total=total)
    assert found == sparse_bounds([indptr], entry_bytes=12, block_bytes=block, place="test", total=total)
    assert found[-1][1] == len(counts)
    number = -(-total // block)
    costs = [sparse_bytes(stop - start, last - first, 12) for start, stop, first, last in found]
    for cost, (start, stop, *_) in zip(costs, found, strict=True):
        assert stop > start
        assert cost <= block or stop == start + 1
    if heaviest * 4 < total / number < block - heaviest:
        assert len(costs) == number
        assert max(costs) - min(costs) <= 2 * heaviest


@pytest.mark.parametrize(
    ("indptr", "words"), [([1, 2, 3], "starts at 1"), ([0, 2, 1, 4], "decreases at row 1"), ([0, 0, -1], "at row 1")]
)
def test_damaged_pointers_are_named(indptr: list[int], words: str) -> None:
    with pytest.raises(StoreError, match=words):
        sparse_bounds([np.array(indptr)], entry_bytes=8, block_bytes=100, place="test")
