"""Heads tell targets from scores E[z|x]: estimated after a fit, from the rows that have targets.

The likelihood of a fit chooses the loadings of the targets, too, and does so without a prior: where components are many
beside labels, they fit the labels and nothing else.  A head has a prior, whose variance the evidence tells.
Here are heads of numbers, and the rows from which all heads are learned; `stack` has those of classes and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
from scipy.special import softmax

from dlatent.arrays import Array, Block, Features, add
from dlatent.gaussian.expectation import posterior_scores
from dlatent.gaussian.ridge import TINY, Axes, RidgeSums, ridge
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import Arrangement, Parts, sorted_views, take

MOST_NUMBERS = 2**20
"""Of scores and targets, where outputs of a row may be missing: of more rows a random part, which tells as much."""
FEW_NUMBERS = 2**18
"""Of scores and targets elsewhere: sums over all rows are learned from, and the part tells how sure that is."""
MOST_FEATURES, FEATURE_NUMBERS = 2**20, 2**22
"""Of the features of labelled rows, or of their Gram matrix, where targets are learned from features, too; and of what
is then learned from as rows, if it is the second."""
NOTHING = 1e-6
"""Part of the evidence that a space must have to count."""
ROUNDING = 1e-12
"""Part of the largest eigenvalue of rows below which is none."""
ROWS = 1024
"""Rows whose covariances are made at a time."""


class Head(NamedTuple):
    """Outputs z A + x B + b from scores z and features x.

    Parameters
    ----------
    coefficients : A (K, L).
    offsets : b (L,).
    noise : variance of the outputs beside that of z (L,).
    features : B (D, L); None where scores alone count.
    """

    coefficients: Array
    offsets: Array
    noise: Array
    features: Array | None = None

    def outputs(self, scores: Array, x: Features | None = None) -> Array:
        """The outputs (n, L) of scores (n, K) and features (n, D)."""
        outputs: Array = scores @ self.coefficients + self.offsets
        if self.features is not None:
            assert x is not None
            outputs += x @ self.features
        return outputs

    def about(self, mean: Array) -> Head:
        """The head of features, from that of features about this mean (D,)."""
        return self if self.features is None else self._replace(offsets=self.offsets - mean @ self.features)

    @classmethod
    def of_view(cls, loadings: Array, mean: Array, noise: Array) -> Head:
        """The head of a view of loadings (L, K), mean and noise (L,): E[y|x] = μ_y + W_y E[z|x]."""
        return cls(loadings.T, mean, noise)

    def variance(self, covariance: Array) -> Array:
        """Variance of the outputs (L,) given rows of which z has this covariance (K, K); (n, L) where each row has its
        own."""
        return np.asarray(((covariance @ self.coefficients) * self.coefficients).sum(axis=-2) + self.noise)


class LabelRule(NamedTuple):
    """Several labels of 0 or 1 each, p(y | x) ∝ N(y | m, v/δ), where a head says m and v; δ is the precision of a row
    by itself."""

    head: Head
    precision: float = 1.0

    @property
    def width(self) -> int:
        """The number of labels."""
        return len(self.head.offsets)

    def decisions(self, means: Array, covariance: Array) -> Array:
        """log p(1 | x) / p(0 | x) (n, L) = δ (m − ½) / v of rows with z | x ~ N(means, covariance)."""
        return self.precision * (self.head.outputs(means) - 0.5) / self.head.variance(covariance)


def output_sums(*rows: Array) -> Array:
    """The Gram matrix of [1, …] for rows (n, K), …, the last of them targets."""
    joint = np.hstack([np.ones((len(rows[0]), 1)), *rows])
    return joint.T @ joint


class LabelledRows(NamedTuple):
    """Rows with targets, or some of them: scores (n, K), encoded targets (n, L'), and the sum of their posterior
    covariances (K, K); the sums over all rows, and the features (n, D) about a mean, where these are wanted."""

    scores: Array
    targets: Array
    covariance: Array
    sums: Any = None
    features: Array | None = None


def joined(left: LabelledRows | None, right: LabelledRows | None) -> LabelledRows | None:
    """The rows of both, in their order."""
    if left is None or right is None:
        return left if right is None else right
    scores, targets = np.concatenate([left.scores, right.scores]), np.concatenate([left.targets, right.targets])
    features = None
    if left.features is not None and right.features is not None:
        features = np.concatenate([left.features, right.features])
    return LabelledRows(scores, targets, left.covariance + right.covariance, add(left.sums, right.sums), features)


class RowsRequest(NamedTuple):
    """E[z|x] (n, K) and, where each row has its own, the covariances (n, K²) of rows x; that of all rows elsewhere; the
    part of the labelled rows that is wanted; what is summed over all of them, of their scores and targets; and the mean
    (D,) about which features are wanted, too, if they are."""

    scores: Callable[[Features, Array | None], Array]
    covariance: Array | Callable[[Features, Array | None], Array]
    part: float
    sums: Callable[..., Any] | None
    mean: Array | None = None


def block_labelled(block: Block, request: RowsRequest) -> LabelledRows | None:
    """The labelled rows of a block, or a random part of them; None where it has none."""
    assert block.targets is not None
    known = np.flatnonzero(~np.isnan(block.targets).all(axis=1))
    if not len(known):
        return None
    some, covariance = _some(len(known), block, request.part), request.covariance
    x, targets, features = take(block.features, known), block.targets[known], None
    scores = request.scores(x, None)
    k = scores.shape[1]
    if request.mean is not None:
        features = (x if isinstance(x, np.ndarray) else x.toarray()) - request.mean
    sums = None if request.sums is None else request.sums(scores, *(() if features is None else (features,)), targets)
    if callable(covariance):
        x = take(block.features, known[some])
        pieces = (covariance(x[at : at + ROWS], None) for at in range(0, x.shape[0], ROWS))
        total = sum((each.sum(axis=0).reshape(k, k) for each in pieces), np.zeros((k, k)))
    else:
        total = some.sum() * covariance
    return LabelledRows(scores[some], targets[some], total, sums, None if features is None else features[some])


def fraction_of_rows(labelled: int, width: int, features: int = 0, *, summed: bool) -> float:
    """The fraction of so many labelled rows, with so many scores and targets, and features, each, that is learned from
    as rows."""
    numbers = FEATURE_NUMBERS if features else FEW_NUMBERS if summed else MOST_NUMBERS
    return numbers / (labelled * (width + features))


class JointRowsRequest(NamedTuple):
    """The model, of which the last view are the targets, how samples are arranged, and as in `RowsRequest`."""

    parameters: Parameters
    specification: Specification
    arrangement: Arrangement
    part: float
    sums: Callable[[Array, Array], Any]


def block_labelled_joint(block: Block, request: JointRowsRequest) -> LabelledRows | None:
    """Labelled rows of joint samples, given the views that they have."""
    parameters, specification, arrangement, part, sums = request
    patterns, last = specification.patterns, len(specification.views) - 1
    pattern, parts = sorted_views(block, patterns, arrangement)
    if last not in pattern or len(pattern) == 1:
        return None
    some, targets = _some(block.rows, block, part), np.asarray(parts[-1])
    scores, about = posterior_scores(parts[:-1], pattern[:-1], parameters, specification)
    return LabelledRows(scores[some], targets[some], some.sum() * about.covariance, sums(scores, targets))


def _some(rows: int, block: Block, part: float) -> npt.NDArray[np.bool_]:
    """Which rows of a block are of a random part, the same in every pass."""
    if part >= 1.0:
        return np.ones(rows, dtype=bool)
    return np.random.default_rng(block.start).random(rows) < part


def feature_metric(parameters: Parameters, specification: Specification) -> Array:
    """The root R of WᵀΨ⁻¹W over the features (K, K): ‖(z − z') R‖ is how far samples with these latent variables lie
    apart in the features, in units of the noise."""
    features = slice(0, specification.slices[-1].start)
    loadings = parameters.loadings[features]
    noise = specification.per_feature(parameters.noise_variance)[features]
    values, vectors = la.eigh(loadings.T @ (loadings / noise[:, None]))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


class Regression(NamedTuple):
    """Coefficients of scores and features (K + D,), offset, which rows have the output (n,), and y and y − ŷ of these,
    each with ŷ fitted to all rows but itself."""

    coefficients: Array
    offset: float
    seen: npt.NDArray[np.bool_]
    values: Array
    left_out: Array


def regressions(rows: LabelledRows, rotation: Array, centre: Array, metric: Array) -> Iterator[Regression]:
    """Ridge regression of each output T·`rotation`ᵀ + `centre` (n, L) of encoded targets T (n, L'), NaN where missing:
    the mean over the spaces in proportion to their evidence, which are scores, as they are or in the metric of the
    features, and the features themselves."""
    k, complete = len(metric), not np.isnan(rows.targets).any()
    spaces: list[tuple[slice, Array | None, Array]] = [(slice(0, k), metric, rows.scores @ metric)]
    spaces.append((slice(0, k), None, rows.scores))
    x, width = rows.features, k
    if x is not None:
        width += x.shape[1]
        root = _span(x) if rows.sums is None else None
        spaces.append((slice(k, width), root, x if root is None else x @ root))
    joint = complete and rows.sums is None
    grams = [output_sums(space, rows.targets) if joint else np.zeros((0, 0)) for _, _, space in spaces]
    shared: list[Axes | None] = [None] * len(spaces)
    for weights, middle in zip(rotation, centre, strict=True):
        y, tried = rows.targets[:, weights != 0.0] @ weights[weights != 0.0], []
        seen = ~np.isnan(y)
        for number, (at, root, space) in enumerate(spaces):
            if not complete:
                sums = RidgeSums.of(space[seen], y[seen])
            elif rows.sums is not None:
                sums = RidgeSums.within(rows.sums, slice(at.start + 1, at.stop + 1), weights).turned(root)
            else:
                sums = RidgeSums.within(grams[number], slice(1, 1 + space.shape[1]), weights)
            axes = shared[number] or Axes.of(sums, space[seen])
            shared[number] = axes if complete else None
            tried.append((ridge(sums, axes, y[seen]), at, root))
        shares = softmax([each.evidence for each, _, _ in tried])
        w, offset, left_out = np.zeros(width), middle, np.zeros(int(seen.sum()))
        for share, (each, at, root) in zip(shares, tried, strict=True):
            if share > NOTHING:
                w[at] += share * (each.coefficients if root is None else root @ each.coefficients)
            offset, left_out = offset + share * each.offset, left_out + share * each.left_out
        yield Regression(w, offset, seen, y[seen] + middle, left_out)


def _span(x: Array) -> Array:
    """An orthonormal basis (D, r) of the rows (n, D), n ≤ D, about their mean."""
    inside = x - x.mean(axis=0)
    values, vectors = la.eigh(inside @ inside.T)
    kept = values > ROUNDING * max(float(values[-1]), TINY)
    return np.asarray(inside.T @ (vectors[:, kept] / np.sqrt(values[kept])))


def output_head(rows: LabelledRows, rotation: Array, centre: Array, metric: Array) -> Head:
    """Outputs by regression.  The noise is the mean square of what outputs that are left out miss, without what z
    leaves open."""
    covariance, k, columns = rows.covariance / max(len(rows.scores), 1), len(metric), []
    for found in regressions(rows, rotation, centre, metric):
        w = found.coefficients[:k]
        noise = max(float(np.mean(found.left_out**2) - w @ covariance @ w), 0.0)
        columns.append((found.coefficients, found.offset, noise))
    coefficients, offsets, noises = (np.array(each) for each in zip(*columns, strict=True))
    features = np.ascontiguousarray(coefficients[:, k:].T)
    return Head(np.ascontiguousarray(coefficients[:, :k].T), offsets, noises, features if features.any() else None)


def joint_outputs(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification, head: Head
) -> Array:
    """Mean of the outputs (n, L) given the views of a pattern."""
    return head.outputs(posterior_scores(parts, pattern, parameters, specification)[0])


def joint_labels(
    parts: Parts,
    pattern: tuple[int, ...],
    parameters: Parameters,
    specification: Specification,
    rule: Any,
    form: Callable[[Array], Array],
) -> Array:
    """Return `form` of what decides on classes (n, C) or labels (n, L) given the views of a pattern."""
    z, about = posterior_scores(parts, pattern, parameters, specification)
    return form(rule.decisions(z, about.covariance))
