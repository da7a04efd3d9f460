"""What the tests of edges share: the graph as a dense matrix, and the directions by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlatent.arrays import Graph

Dense = np.ndarray[Any, Any]


def dense(graph: Graph) -> Dense:
    """The adjacency matrix, after the checks of what every opened graph promises."""
    loaded = graph.rows.load(0, graph.samples)
    assert loaded.has_canonical_format
    assert loaded.dtype == np.float64
    assert loaded.nnz == graph.entries
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


def co_graph(given: Dense) -> Dense:
    """By definition: a third sample k to which both edge, or which edges to both."""
    size = len(given)

    def edge(i: int, j: int) -> bool:
        return i != j and bool(given[i, j] > 0)

    made = np.zeros_like(given)
    for i in range(size):
        for j in range(size):
            common = any((edge(i, k) and edge(j, k)) or (edge(k, i) and edge(k, j)) for k in range(size))
            made[i, j] = float(i != j and common)
    return made
