"""Rows with few distinct masks: moments of each mask, from which EM needs no further pass over the data.

What observes the same entries shares a posterior covariance, and meets EM through its count, sum and Gram matrix alone.
Masks are told apart by the bucket that a hash puts them in, so that how many there are is known from counts that are
added; two masks in one bucket are noticed, and the rows are then visited as if they were many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block
from dlatent.gaussian.expectation import expect_pattern, projection_of
from dlatent.gaussian.missing_entries.entries import Entries, EntryRequest, PairSums
from dlatent.gaussian.missing_entries.observed import chunks, mask_buckets, observed, rows_of
from dlatent.gaussian.moments import PatternMoments, recentred
from dlatent.operators.symmetric import triangle

MOST = 32
"""Distinct masks that count as few."""
LARGEST = 2**20
"""Numbers of their Gram matrices that may be held: 8 MiB."""


class PatternRequest(NamedTuple):
    """The buckets of the masks that occur (P,), and the shift and scale (D,) of u = (x − shift)/scale."""

    buckets: np.ndarray
    shift: Array
    scale: Array


class MaskMoments(NamedTuple):
    """Sums over the rows of each bucket, additive: Σ 1 (P,), of the masks (P, D), of u (P, D) and u uᵀ (P, D, D), with
    u zero where missing."""

    samples: Array
    masks: Array
    total: Array
    gram: Array


def few_buckets(counts: Array | None, features: int) -> np.ndarray | None:
    """The buckets that occur, where they are few enough to hold a Gram matrix of each; else None."""
    if counts is None:
        return None
    buckets = np.flatnonzero(counts)
    return buckets if len(buckets) <= MOST and len(buckets) * features**2 <= LARGEST else None


def block_patterns(block: Block, request: PatternRequest) -> MaskMoments:
    """Moments of the rows of each bucket of a block; additive, O(n D²)."""
    features = rows_of(block)
    assert not isinstance(features, sp.csr_array)
    size, width = len(request.buckets), len(request.shift)
    masks, total, gram = np.zeros((size, width)), np.zeros((size, width)), np.zeros((size, width, width))
    sums = MaskMoments(np.zeros(size), masks, total, gram)
    for at in chunks(features, width):
        places = mask_buckets(features[at])
        rows = observed(features[at], request.shift, request.scale).residuals
        for number, bucket in enumerate(request.buckets):
            inside = np.asarray(rows[places == bucket])
            sums.samples[number] += len(inside)
            sums.masks[number] += (~np.isnan(features[at][places == bucket])).sum(axis=0)
            sums.total[number] += inside.sum(axis=0)
            sums.gram[number] += inside.T @ inside
    return sums


def distinct(sums: MaskMoments) -> bool:
    """Whether each bucket has rows of one mask only."""
    return bool(((sums.masks == 0) | (sums.masks == sums.samples[:, None])).all())


def entries_of_patterns(sums: MaskMoments, request: EntryRequest) -> Entries:
    """The statistics of `block_entries` for all rows together, from the moments of their masks; O(P D² K).

    The sums are in the units of the request, about its shift.
    """
    parameters, noise = request.parameters, request.noise
    width, k = parameters.loadings.shape
    first, second = triangle(k + 1)
    packed, cross, energy = np.zeros((len(first), width)), np.zeros((k + 1, width)), np.zeros(width)
    latent, value, evidence = np.zeros(len(first)), 0.0, np.zeros(k)
    for count, mask, total, gram in zip(*sums, strict=True):
        at = np.flatnonzero(mask)
        if not len(at):
            continue
        moments = recentred(PatternMoments(float(count), total[at], gram[np.ix_(at, at)]), parameters.mean[at])
        about, seen = projection_of(parameters, noise, at), parameters.of(at)._replace(mean=np.zeros(len(at)))
        expected = expect_pattern(moments, about, seen, noise[at])
        each = expected.second[first, second]
        packed[:, at] += each[:, None]
        latent += each
        cross[:, at] += expected.cross.T
        energy[at] += expected.energy
        value += expected.log_likelihood
        variance = np.diag(about.covariance)
        explained = np.einsum("kj,jk->k", about.coefficients, expected.cross[:, :k])
        evidence += count * np.log(variance) + explained / variance
    return Entries(packed, cross, energy, latent, value, evidence)


def pairs_of_patterns(sums: MaskMoments) -> PairSums:
    """The sums of pairs of features over all rows."""
    seen = (sums.masks > 0).astype(np.float64)
    return PairSums(sums.gram.sum(axis=0), (seen * sums.samples[:, None]).T @ seen)
