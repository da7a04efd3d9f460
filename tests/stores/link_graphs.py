"""What the tests of links share: the graph as a dense matrix, and the directions by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlatent.arrays import Links

Dense = np.ndarray[Any, Any]


def dense(links: Links) -> Dense:
    """The adjacency matrix, after the checks of what every opened graph promises."""
    loaded = links.rows.load(0, links.instances)
    assert loaded.has_canonical_format
    assert loaded.dtype == np.float64
    assert loaded.nnz == links.entries
    assert np.all(loaded.data > 0)
    found: Dense = loaded.toarray()
    assert not np.diag(found).any()
    np.testing.assert_array_equal(found, found.T)
    return found


def symmetrised(given: Dense) -> Dense:
    """By definition, pair by pair."""
    given = given - np.diag(np.diag(given))
    weighted = np.any((given != 0) & (given != 1))
    made = np.zeros_like(given)
    for i in range(len(given)):
        for j in range(len(given)):
            made[i, j] = given[i, j] + given[j, i] if weighted else float(given[i, j] > 0 or given[j, i] > 0)
    return made


def co_linked(given: Dense) -> Dense:
    """By definition: a third instance k to which both link, or which links to both."""
    size = len(given)

    def link(i: int, j: int) -> bool:
        return i != j and bool(given[i, j] > 0)

    made = np.zeros_like(given)
    for i in range(size):
        for j in range(size):
            common = any((link(i, k) and link(j, k)) or (link(k, i) and link(k, j)) for k in range(size))
            made[i, j] = float(i != j and common)
    return made
