"""Correspondences in all their forms give one table of instances; what contradicts itself is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlatent.errors import DataError
from dlatent.estimators.correspondence import instance_table, named_views

NONE = (None, None)


def table(correspondence=None, rows=(3, 4), labels=NONE, on=None):
    return instance_table(("a", "b"), rows, labels, correspondence, on)


def test_pairs_come_first_and_all_other_rows_are_alone():
    found = table([[2, 0], [0, 3]])
    np.testing.assert_array_equal(found, [[2, 0], [0, 3], [1, -1], [-1, 1], [-1, 2]])


def test_no_pairs_leave_all_rows_alone():
    assert table(np.empty((0, 2), dtype=int)).shape == (7, 2)


def test_labels_are_the_same_instance():
    labels = (np.array(["x", "y", "z"]), np.array(["w", "z", "x", "v"]))
    np.testing.assert_array_equal(table(labels=labels, on="label"), [[0, 2], [1, -1], [2, 1], [-1, 0], [-1, 3]])


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_every_row_of_every_view_is_one_instance(seed, views):
    random = np.random.default_rng(seed)
    rows = random.integers(1, 9, views).tolist()
    shared = int(random.integers(0, min(rows) + 1))
    pairs = np.column_stack([random.permutation(count)[:shared] for count in rows])
    names = [str(view) for view in range(views)]
    found = instance_table(names, rows, [None] * views, pairs)
    for view, count in enumerate(rows):
        own = found[:, view]
        np.testing.assert_array_equal(np.sort(own[own >= 0]), np.arange(count))
    assert len(found) == sum(rows) - shared * (views - 1)
    assert (found >= 0).any(axis=1).all()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([[0, 4]], "row 0 of the correspondence names row 4 of view 'b', which has 4 rows"),
        ([[0, 1], [-2, 0]], "names row -2 of view 'a'"),
        ([[0, 1], [0, 2]], "row 0 of view 'a' is named twice by the correspondence, in rows 0 and 1"),
        ([[0, 1], [-1, -1]], "row 1 of the correspondence names no row"),
        ([[0, 1, 2]], "a column for each of the 2 views"),
        ([[0.0, 1.0]], "expected integers"),
        (None, "either"),
    ],
)
def test_contradictions_are_named(pairs, words):
    with pytest.raises(DataError, match=words):
        table(pairs)


@pytest.mark.parametrize(
    ("labels", "on", "words"),
    [
        ((np.array(["x", "y", "x"]), np.arange(4)), "label", "'x' stands for several rows of view 'a'"),
        ((np.arange(3), None), "label", "view 'b' has no labels"),
        ((np.arange(3), np.arange(4)), "name", "expected 'label'"),
    ],
)
def test_labels_that_do_not_tell_are_refused(labels, on, words):
    with pytest.raises(DataError, match=words):
        table(labels=labels, on=on)


def test_views_have_names():
    assert list(named_views([1, 2])) == ["view_0", "view_1"]
    assert named_views({"left": 1}) == {"left": 1}
    with pytest.raises(DataError, match="a mapping of names"):
        named_views(np.ones((2, 2)))
