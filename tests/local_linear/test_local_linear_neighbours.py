"""Neighbours are those of the exact distances, whatever the precision of the products; ties go to the smaller index."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.arrays import Block
from dlatent.errors import DataError
from dlatent.local_linear import neighbours
from dlatent.local_linear.neighbours import (
    NeighbourRequest,
    block_bounds,
    block_neighbours,
    merged,
    nearest,
    single_is_enough,
)


def by_definition(x, k, y=None):
    """Distances and indices by sorting all differences."""
    others = x if y is None else y
    squares = np.array([((row - others) ** 2).sum(axis=1) for row in np.asarray(x, dtype=np.float64)])
    if y is None:
        np.fill_diagonal(squares, np.inf)
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(squares, order, 1), order


def in_blocks(x, k, sizes, single=False, sparse=False):
    """Bounds from the blocks, then every block with every block, as the engine does it."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    made = sp.csr_array if sparse else np.asarray
    blocks = [Block(i, int(a), made(x[a:b])) for i, (a, b) in enumerate(pairwise(ends))]
    shift = np.zeros(x.shape[1]) if sparse else x.mean(axis=0, dtype=np.float64)
    request = NeighbourRequest(k, shift, None, single)
    bounds = np.concatenate([block_bounds(block, request)[0].bounds for block in blocks])
    request = request._replace(bounds=bounds)
    found = []
    for own in blocks:
        value = block_neighbours(own, blocks[0], request)
        for other in blocks[1:]:
            value = merged(value, block_neighbours(own, other, request))
        found.append(value)
    return np.vstack([part.distances for part in found]), np.vstack([part.indices for part in found])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), k=st.integers(1, 6), grid=st.booleans(), single=st.booleans())
def test_neighbours_are_those_of_all_differences(sparse, seed, k, grid, single):
    """Points on a small grid are full of ties and duplicates."""
    random = np.random.default_rng(seed)
    x = random.integers(0, 3, (40, 3)).astype(float) if grid else random.normal(size=(40, 3))
    distances, indices = in_blocks(x, k, [9, 1, 20, 10], single, sparse)
    expected, order = by_definition(x, k)
    np.testing.assert_allclose(distances, expected, rtol=1e-12, atol=1e-30)
    np.testing.assert_array_equal(indices, order)


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_close_points_far_from_zero_keep_their_order(single):
    """Distances of 1e-5 at 1e3 from the mean: the products say nothing about them, in float32 not even in part."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(6, 1, 5)) * 1e3
    x = (centres + 1e-5 * random.normal(size=(6, 50, 5))).reshape(300, 5)[random.permutation(300)]
    distances, indices = in_blocks(x, 7, [100, 150, 50], single)
    expected, order = by_definition(x, 7)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(distances, expected, rtol=1e-6)


def test_bounds_do_not_depend_on_the_size_of_tiles(monkeypatch):
    x = np.random.default_rng(1).normal(size=(200, 4))
    whole = in_blocks(x, 5, [120, 80])
    for rows, columns in ((7, 11), (64, 3), (512, 2048)):
        monkeypatch.setattr(neighbours, "TILE_ROWS", rows)
        monkeypatch.setattr(neighbours, "TILE_COLUMNS", columns)
        for found, expected in zip(in_blocks(x, 5, [120, 80]), whole, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_many_points_in_one_place_are_neighbours_by_their_number():
    x = np.zeros((3000, 2))
    x[1500:] = 1.0
    distances, indices = in_blocks(x, 3, [1000, 2000])
    assert (distances == 0).all()
    np.testing.assert_array_equal(indices[:4], [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    np.testing.assert_array_equal(indices[1501], [1500, 1502, 1503])


def test_fewer_others_than_neighbours_leave_places_empty():
    request = NeighbourRequest(4, np.zeros(2))
    found = nearest(np.eye(2), np.ones((3, 2)), request)
    np.testing.assert_array_equal(found.indices, [[0, 1, 2, -1]] * 2)
    assert np.isinf(found.distances[:, 3]).all()


def test_other_points_have_no_self():
    random = np.random.default_rng(2)
    x, y = random.normal(size=(30, 3)), random.normal(size=(500, 3))
    found = nearest(x, y, NeighbourRequest(6, np.zeros(3)))
    expected, order = by_definition(x, 6, y)
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-12)


def test_float32_products_only_where_their_error_is_small():
    bounds = np.full(10, 1.0)
    assert single_is_enough(bounds, 100.0, 50)
    assert not single_is_enough(bounds, 1e5, 50)
    assert not single_is_enough(bounds, 100.0, 10**6)
    assert not single_is_enough(np.full(10, np.inf), 1.0, 5)


def test_nan_is_named():
    x = np.ones((5, 3))
    x[2, 1] = np.nan
    with pytest.raises(DataError, match="row 12, column 1"):
        block_bounds(Block(1, 10, x), NeighbourRequest(2, np.zeros(3)))
