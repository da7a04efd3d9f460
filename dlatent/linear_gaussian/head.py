"""What tells targets from scores E[z|x]: estimated after a fit, from the rows that have targets.

The likelihood of a fit chooses the loadings of the targets, too, and does so without a prior: where components are many
beside labels, they fit the labels and nothing else.  A head has a prior, and takes its variance from the evidence.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from scipy.special import log_softmax

from dlatent.arrays import Array, Block, Features, Integers
from dlatent.linear_gaussian.discriminants import discriminants
from dlatent.linear_gaussian.expectation import posterior_scores
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.ridge import ridge
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.views import Arrangement, observed, take

MOST_NUMBERS = 2**20
"""Of scores and targets that a head is estimated from: of more rows a random part, which tells as much."""
ROWS = 1024
"""Rows whose covariances are made at a time."""


class Head(NamedTuple):
    """Outputs z A + b, or z A / ‖z R‖ + b, from scores z.

    Parameters
    ----------
    coefficients : A (K, L).
    offsets : b (L,).
    noise : variance of the outputs beside that of z (L,); of classes, whose outputs are log-odds, nothing (0,).
    lengths : R (K, K); None where scores count as they are.
    """

    coefficients: Array
    offsets: Array
    noise: Array
    lengths: Array | None = None

    @property
    def width(self) -> int:
        """The number of outputs."""
        return len(self.offsets)

    def outputs(self, scores: Array) -> Array:
        """The outputs (n, L) of scores (n, K)."""
        found = scores @ self.coefficients
        if self.lengths is not None:
            found /= _lengths(scores @ self.lengths)
        return np.asarray(found + self.offsets)

    @classmethod
    def of_view(cls, loadings: Array, mean: Array, noise: Array) -> Head:
        """What a view of loadings (L, K), mean and noise (L,) says: E[y|x] = μ_y + W_y E[z|x]."""
        return cls(loadings.T, mean, noise)

    def variance(self, covariance: Array) -> Array:
        """Variance of the outputs (L,) given rows of which z has this covariance (K, K)."""
        return np.asarray(((covariance @ self.coefficients) * self.coefficients).sum(axis=0) + self.noise)

    def log_probabilities(self, means: Array, covariance: Array) -> Array:
        """log p(c | x) (n, C) of classes, from the posterior means (n, K) alone."""
        return np.asarray(log_softmax(self.outputs(means), axis=1))


class LabelledRows(NamedTuple):
    """Rows with targets: scores (n, K), encoded targets (n, L'), and the sum of their posterior covariances (K, K)."""

    scores: Array
    targets: Array
    covariance: Array


def joined(left: LabelledRows | None, right: LabelledRows | None) -> LabelledRows | None:
    """The rows of both, in their order."""
    if left is None or right is None:
        return left if right is None else right
    scores, targets = np.concatenate([left.scores, right.scores]), np.concatenate([left.targets, right.targets])
    return LabelledRows(scores, targets, left.covariance + right.covariance)


class RowsRequest(NamedTuple):
    """E[z|x] (n, K) and, where each row has its own, the covariances (n, K²) of rows x; that of all rows elsewhere; and
    the part of the labelled rows that is wanted."""

    scores: Callable[[Features, Array | None], Array]
    covariance: Array | Callable[[Features, Array | None], Array]
    part: float


def block_labelled(block: Block, request: RowsRequest) -> LabelledRows | None:
    """The labelled rows of a block, or a random part of them; None where it has none."""
    assert block.targets is not None
    rows = _chosen(np.flatnonzero(~np.isnan(block.targets).all(axis=1)), block, request.part)
    if not len(rows):
        return None
    x, covariance = take(block.features, rows), request.covariance
    scores = request.scores(x, None)
    if callable(covariance):
        k, pieces = scores.shape[1], range(0, len(rows), ROWS)
        total = sum(covariance(x[at : at + ROWS], None).sum(axis=0).reshape(k, k) for at in pieces)
    else:
        total = len(rows) * covariance
    return LabelledRows(scores, block.targets[rows], np.asarray(total))


class JointRowsRequest(NamedTuple):
    """The model, of which the last view are the targets, how samples are arranged, and the part that is wanted."""

    parameters: Parameters
    specification: Specification
    arrangement: Arrangement
    part: float


def block_labelled_joint(block: Block, request: JointRowsRequest) -> LabelledRows | None:
    """The same of joint samples, given the views that they have."""
    parameters, specification, arrangement, part = request
    patterns, targets = specification.patterns, len(specification.views) - 1
    for pattern, parts in zip(patterns, observed(block, patterns, arrangement), strict=True):
        if parts is None or targets not in pattern or len(pattern) == 1:
            continue
        rows = _chosen(np.arange(block.rows), block, part)
        if len(rows):
            views = tuple(take(x, rows) for x in parts[:-1])
            scores, about = posterior_scores(views, pattern[:-1], parameters, specification)
            return LabelledRows(scores, np.asarray(take(parts[-1], rows)), len(rows) * about.covariance)
    return None


def _chosen(rows: Integers, block: Block, part: float) -> Integers:
    """A random part of some rows of a block, the same in every pass."""
    return rows if part >= 1.0 else rows[np.random.default_rng(block.start).random(len(rows)) < part]


def _lengths(rows: Array) -> Array:
    """The length of each row (n, 1), never 0."""
    return np.asarray(np.maximum(np.sqrt((rows**2).sum(axis=1, keepdims=True)), np.finfo(float).tiny))


def feature_metric(parameters: Parameters, specification: Specification) -> Array:
    """The root R of WᵀΨ⁻¹W over the features (K, K): ‖(z − z') R‖ is how far samples with these latent variables lie
    apart in the features, in units of the noise."""
    own = slice(0, specification.slices[-1].start)
    loadings = parameters.loadings[own]
    noise = specification.per_feature(parameters.noise_variance)[own]
    values, vectors = la.eigh(loadings.T @ (loadings / noise[:, None]))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def class_head(rows: LabelledRows, table: Array, shares: Array, metric: Array) -> Head:
    """Normal classes with one covariance, for rows with codes of a table (C, L').

    Of four spaces that is taken in which labels that are left out are most probable: scores z, or zR in the metric R of
    the features, as they are or scaled to length 1.
    """
    distances = (table**2).sum(axis=1) - 2.0 * rows.targets @ table.T
    codes, k, found = distances.argmin(axis=1), rows.scores.shape[1], []
    for root in (metric, np.eye(k)):
        space = rows.scores @ root
        for unit in (False, True):
            own = discriminants(space / _lengths(space) if unit else space, codes, shares)
            made = Head(root @ own.coefficients, own.offsets, np.zeros(0), root if unit else None)
            found.append((own.score(codes), made))
    return max(found, key=operator.itemgetter(0))[1]


def output_head(rows: LabelledRows, outputs: Array, metric: Array) -> Head:
    """Regression of each output (n, L), NaN where missing, by ridge; in scores or in the metric of the features, as the
    evidence says.

    The noise is the mean square of what outputs that are left out miss, without what z leaves open.
    """
    covariance, columns = rows.covariance / max(len(rows.scores), 1), []
    for y in outputs.T:
        seen = ~np.isnan(y)
        tried = [(root, ridge(rows.scores[seen] @ root, y[seen])) for root in (metric, np.eye(len(metric)))]
        root, best = max(tried, key=lambda one: one[1].evidence)
        w = root @ best.coefficients
        columns.append((w, best.offset, max(float(np.mean(best.left_out**2) - w @ covariance @ w), 0.0)))
    coefficients, offsets, noise = zip(*columns, strict=True)
    return Head(np.column_stack(coefficients), np.array(offsets), np.array(noise))
