"""A bootstrap of principal components by blocks of consecutive samples, from scores along the axes of one fit.

A replicate takes blocks of samples with replacement, so that each sample counts c_i times.  Its covariance is
Σ c_i z_i z_iᵀ/N − m mᵀ in the axes of the scores z: no replicate visits the data again, and its eigenvectors, taken
back by the axes, are those of the resampled data as far as these lie in their span (Fisher, Caffo, Schwartz and
Zipunnikov, 2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from scipy.optimize import linear_sum_assignment

from dlatent.arrays import Array, Integers


class Replicate(NamedTuple):
    """Loadings in the coordinates of the axes (L, K), eigenvalues (K,), and the total variance, of one resampling."""

    loadings: Array
    eigenvalues: Array
    total: float


def block_counts(
    sizes: Sequence[int], axis: int, length: int, replicates: int, rng: np.random.Generator
) -> Iterator[Integers]:
    """How often each sample counts (N,) in each replicate.

    Samples lie over dimensions of these sizes.  A block are `length` consecutive samples along one of them, which may
    begin anywhere (moving blocks; Künsch, 1989).  ⌈N/length⌉ of them make a replicate, and the last is cut.
    """
    samples = int(np.prod(sizes))
    places = np.moveaxis(np.arange(samples).reshape(sizes), axis, -1).reshape(-1, sizes[axis])
    starts, inside = sizes[axis] - length + 1, np.arange(length)
    for _ in range(replicates):
        drawn = rng.integers(len(places) * starts, size=-(-samples // length))
        rows = places[(drawn // starts)[:, None], (drawn % starts)[:, None] + inside]
        yield np.bincount(rows.ravel()[:samples], minlength=samples)


def replicate(scores: Array, squares: Array, counts: Integers, reference: Array, features: int) -> Replicate:
    """PPCA of samples that count so often, each component beside the one of the fit that it is most alike.

    Parameters: `scores` (N, L) and squared lengths (N,) of the samples about a common point; `reference` (L, K),
    directions of the fit; `features` D.
    """
    n, k = int(counts.sum()), reference.shape[1]
    mean = counts @ scores / n
    covariance = scores.T @ (scores * counts[:, None]) / n - np.outer(mean, mean)
    total = float(counts @ squares) / n - float(mean @ mean)
    axes = len(mean)
    values, vectors = la.eigh(covariance, subset_by_index=[axes - k, axes - 1])
    noise = max(total - float(values.sum()), 0.0) / max(features - k, 1)
    alike = reference.T @ vectors
    _, order = linear_sum_assignment(-np.abs(alike))
    signs = np.where(alike[np.arange(k), order] < 0.0, -1.0, 1.0)
    lengths = np.sqrt(np.maximum(values[order] - noise, 0.0))
    return Replicate(vectors[:, order] * (signs * lengths), values[order], total)
