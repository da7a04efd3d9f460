"""Neighbours are those of the exact distances, whatever the precision of the products; ties go to the smaller index."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from dlatent.arrays import Block
from dlatent.errors import DataError
from dlatent.solvers.lle import near_pairs
from dlatent.solvers.lle.neighbours import NeighbourRequest, block_bounds, block_neighbours, nearest, single_is_enough
from tests.law_examples import examples


def by_definition(x, k, y=None):
    """Distances and indices by sorting all differences."""
    others = x if y is None else y
    squares = np.array([((row - others) ** 2).sum(axis=1) for row in np.asarray(x, dtype=np.float64)])
    if y is None:
        np.fill_diagonal(squares, np.inf)
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(squares, order, 1), order


def in_blocks(x, k, sizes, single=False, sparse=False):
    """Bounds from the blocks, then all pairs of blocks once, as the engine does it."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    made = sp.csr_array if sparse else np.asarray
    blocks = [Block(i, int(a), made(x[a:b])) for i, (a, b) in enumerate(pairwise(ends))]
    shift = np.zeros(x.shape[1]) if sparse else x.mean(axis=0, dtype=np.float64)
    first = NeighbourRequest(k, shift, np.eye(x.shape[1])[:, :6])
    parts = [block_bounds(block, first)[0] for block in blocks]
    bounds, order = (np.concatenate([getattr(part, name) for part in parts]) for name in ("bounds", "order"))
    request = first._replace(bounds=bounds, order=order, single=single)
    found = {}
    for own, other in combinations_with_replacement(blocks, 2):
        for index, value in zip(sorted({own.index, other.index}), block_neighbours(own, other, request), strict=False):
            found[index] = near_pairs.merged(found[index], value) if index in found else value
    values = [found[block.index] for block in blocks]
    return np.vstack([part.distances for part in values]), np.vstack([part.indices for part in values])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@settings(max_examples=examples(40))
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


def cut_into(monkeypatch, leaf, rows, columns):
    for name, value in (("LEAF", leaf), ("TILE_ROWS", rows), ("TILE_COLUMNS", columns)):
        monkeypatch.setattr(near_pairs, name, value)


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_neighbours_do_not_depend_on_runs_and_tiles(monkeypatch, single):
    """Clusters far apart, of which most pairs are left out, with some points between them and many in one place."""
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(size=(90, 4)) + 9.0 * random.normal(size=4) for _ in range(5)])
    x = np.concatenate([x, 9.0 * random.normal(size=(30, 4)), np.ones((40, 4))])[random.permutation(520)]
    expected = by_definition(x, 5)
    for leaf, rows, columns in ((2, 4, 6), (8, 8, 64), (16, 64, 32), (64, 128, 1024)):
        cut_into(monkeypatch, leaf, rows, columns)
        distances, indices = in_blocks(x, 5, [150, 370], single)
        np.testing.assert_array_equal(indices, expected[1])
        np.testing.assert_allclose(distances, expected[0], rtol=1e-12)


def test_runs_that_are_far_apart_are_not_multiplied(monkeypatch):
    """On a line of 1,024 points a run of 16 meets itself and those beside it, and not all 64."""
    met = []
    cut_into(monkeypatch, 16, 16, 1024)
    pieces = near_pairs._pieces

    def counted(*values):
        for piece in pieces(*values):
            met.append(len(np.arange(1024)[piece]))
            yield piece

    monkeypatch.setattr(near_pairs, "_pieces", counted)
    x = np.random.default_rng(0).permutation(1024.0 * np.arange(1024))[:, None]
    _, indices = in_blocks(x, 2, [1024])
    np.testing.assert_array_equal(indices, by_definition(x, 2)[1])
    assert 2 * 1024 < sum(met) < 2 * 4 * 64 * 16


def test_an_order_is_a_permutation_in_which_runs_are_small():
    x = np.random.default_rng(2).random((1000, 2))
    order = near_pairs.near_order(x)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    spans = [np.ptp(x[order[at : at + near_pairs.LEAF]], axis=0).max() for at in range(0, 1000, near_pairs.LEAF)]
    assert max(spans) < 0.5


def test_many_points_in_one_place_are_neighbours_by_their_number():
    x = np.zeros((3000, 2))
    x[1500:] = 1.0
    distances, indices = in_blocks(x, 3, [1000, 2000])
    assert (distances == 0).all()
    np.testing.assert_array_equal(indices[:4], [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    np.testing.assert_array_equal(indices[1501], [1500, 1502, 1503])


def test_fewer_others_than_neighbours_leave_places_empty():
    found = nearest(np.eye(2), np.ones((3, 2)), 4, np.zeros(2))
    np.testing.assert_array_equal(found.indices, [[0, 1, 2, -1]] * 2)
    assert np.isinf(found.distances[:, 3]).all()


def test_other_points_have_no_self():
    random = np.random.default_rng(2)
    x, y = random.normal(size=(30, 3)), random.normal(size=(500, 3))
    found = nearest(x, y, 6, np.zeros(3))
    expected, order = by_definition(x, 6, y)
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-12)


def test_float32_products_only_where_their_error_is_small():
    bounds = np.full(10, 1.0)
    assert single_is_enough(bounds, 100.0, 50)
    assert not single_is_enough(bounds, 1e5, 50)
    assert not single_is_enough(bounds, 100.0, 10**6)
    assert not single_is_enough(np.full(10, np.inf), 1.0, 5)


def test_digits_have_the_neighbours_of_scikit_learn_up_to_ties():
    """The distances are equal in every row, and the neighbours where the next one is not as near as the last."""
    x = load_digits().data
    _, indices = in_blocks(x, 30, [600, 1, 1196])
    distances, found = NearestNeighbors(n_neighbors=32).fit(x).kneighbors(x)
    own = np.array([((row - x[near]) ** 2).sum(axis=1) for row, near in zip(x, indices, strict=True)])
    np.testing.assert_allclose(np.sqrt(own), distances[:, 1:31], rtol=1e-12)
    clear = distances[:, 31] > distances[:, 30] + 1e-9
    assert clear.sum() == 1797 - 106
    np.testing.assert_array_equal(np.sort(indices[clear], axis=1), np.sort(found[clear, 1:31], axis=1))


def test_nan_is_named():
    x = np.ones((5, 3))
    x[2, 1] = np.nan
    with pytest.raises(DataError, match="row 12, column 1"):
        block_bounds(Block(1, 10, x), NeighbourRequest(2, np.zeros(3), np.eye(3)))
