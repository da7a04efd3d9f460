"""Data in a graph, of any size: graphs with hubs, and documents whose topics are alike along edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array

Labels: TypeAlias = npt.NDArray[np.integer[Any]]


def power_law_graph(
    samples: int,
    edges: int,
    *,
    exponent: float = 3.0,
    groups: Labels | None = None,
    within: float = 0.8,
    random_state: Any = 0,
) -> sp.csr_array:
    """An undirected graph whose degrees follow a power law, P(degree) ~ degree^(−exponent) (Chung and Lu 2002).

    Both ends of an edge are drawn in proportion to a weight of each sample, (rank + 1)^(−1/(exponent − 1)); with
    `groups`, the other end lies in the group of the first with probability `within`.  Parameters are `samples`, N;
    `edges`, the number of different edges between different samples; `exponent` as above; `groups` (N,), numbers from
    0; `random_state`, a seed.

    Returns the adjacency matrix (N, N), symmetric, of ones, with a zero diagonal.
    """
    if not 2 * edges <= samples * (samples - 1) // 2:
        raise ValueError(f"{edges:,} edges are more than half of all pairs of {samples:,} samples; ask for fewer")
    rng = np.random.default_rng(random_state)
    weights: Array = np.power(1.0 + rng.permutation(samples), -1.0 / (exponent - 1.0))
    ends = _Ends(weights, np.zeros(samples, dtype=np.int64) if groups is None else groups)
    pairs = np.empty(0, dtype=np.int64)
    while len(pairs) < edges:
        first = ends.anywhere(rng, int(1.1 * (edges - len(pairs))) + 16)
        near = rng.random(len(first)) < within
        second = np.where(near, ends.in_group_of(first, rng), ends.anywhere(rng, len(first)))
        low, high = np.minimum(first, second), np.maximum(first, second)
        pairs = np.unique(np.concatenate([pairs, (low * samples + high)[low != high]]))
    low, high = np.divmod(rng.permutation(pairs)[:edges], samples)
    upper = sp.coo_array((np.ones(edges), (low, high)), shape=(samples, samples)).tocsr()
    return sp.csr_array(upper + upper.T)


class _Ends:
    """Samples drawn in proportion to their weights, from all or from one group, by one sorted list of sums."""

    def __init__(self, weights: Array, groups: Labels) -> None:
        self._order = np.argsort(groups, kind="stable")
        self._groups = groups
        self._sums = np.concatenate([[0.0], np.cumsum(weights[self._order])])
        counts = np.bincount(groups)
        self._edges = self._sums[np.concatenate([[0], np.cumsum(counts)])]

    def anywhere(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        return self._at(rng.random(count) * self._sums[-1])

    def in_group_of(self, samples: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        group = self._groups[samples]
        start, stop = self._edges[group], self._edges[group + 1]
        return self._at(start + rng.random(len(samples)) * (stop - start))

    def _at(self, places: Array) -> npt.NDArray[np.int64]:
        found = np.searchsorted(self._sums, places, side="right") - 1
        return self._order[np.minimum(found, len(self._order) - 1)]


def topic_documents(
    topics: Labels, words: int, *, length: int = 50, block: int = 8192, random_state: Any = 0
) -> Iterator[sp.csr_array]:
    """Row blocks of documents about given topics (N,): float32, unit norm, `length` different words each, or all drawn.

    Half of the words are drawn by Zipf's law from all, half by the same law from a tenth that belongs to the topic;
    rare words weigh more, as with tf-idf.  With the groups of `power_law_graph` as topics, neighbours are alike.
    """
    rng = np.random.default_rng(random_state)
    frequency = 1.0 / np.arange(1, words + 1)
    frequency /= frequency.sum()
    few = max(1, words // 10)
    own = np.stack([rng.permutation(words)[:few] for _ in range(int(topics.max()) + 1)])
    common, special = np.cumsum(frequency), np.cumsum(frequency[:few] / frequency[:few].sum())
    weights = np.log(1.0 / frequency).astype(np.float32) + np.float32(1.0)
    for start in range(0, len(topics), block):
        topic = topics[start : start + block, None]
        drawn = rng.random((len(topic), 2 * length))
        general = np.minimum(np.searchsorted(common, drawn), words - 1)
        chosen = own[topic, np.minimum(np.searchsorted(special, drawn), few - 1)]
        yield _documents(np.where(rng.random(drawn.shape) < 0.5, general, chosen), length, weights)


def _documents(drawn: npt.NDArray[np.int64], length: int, weights: npt.NDArray[np.float32]) -> sp.csr_array:
    """Rows of the first `length` different words among those drawn (n, m), weighted, of length one."""
    order = np.argsort(drawn, axis=1, kind="stable")
    ordered = np.take_along_axis(drawn, order, axis=1)
    fresh = np.empty(drawn.shape, dtype=bool)
    np.put_along_axis(fresh, order, np.diff(ordered, axis=1, prepend=-1) > 0, axis=1)
    kept = fresh & (np.cumsum(fresh, axis=1) <= length)
    values = np.where(kept, weights[drawn], np.float32(0.0))
    values /= np.sqrt((values**2).sum(axis=1, keepdims=True))
    pointers = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    rows = sp.csr_array((values[kept], drawn[kept].astype(np.int32), pointers), shape=(len(drawn), len(weights)))
    rows.sort_indices()
    return rows
