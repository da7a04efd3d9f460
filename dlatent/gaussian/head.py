"""Heads tell targets from scores E[z|x]: estimated after a fit, from the rows that have targets.

The likelihood of a fit chooses the loadings of the targets, too, and does so without a prior: where components are many
beside labels, they fit the labels and nothing else.  A head has a prior, and takes its variance from the evidence.

Sources: MacKay (1992), "Bayesian interpolation"; Bishop (2006), section 3.5, with the prior relative to the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
from scipy.special import log_softmax

from dlatent.arrays import Array, Block, Features, Integers, add
from dlatent.gaussian.classes import FOLDS, ClassSums, discriminants, softmax
from dlatent.gaussian.expectation import LOG_2PI, posterior_scores
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import Arrangement, sorted_views, take

MOST_NUMBERS = 2**20
"""Of scores and targets, where outputs of a row may be missing: of more rows a random part, which tells as much."""
FEW_NUMBERS = 2**18
"""Of scores and targets elsewhere: sums over all rows are learned from, and the part tells how sure that is."""
ROWS = 1024
"""Rows whose covariances are made at a time."""
STEP, LEAST, MOST = 0.125, -14.0, 9.0
"""Of the logarithms of prior variances that are compared: the step, a prior that leaves nothing of w, and one where w
explains thousands of times what the noise does.  The evidence may have several maxima; a grid has the best."""
TINY = 1e-300


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
        outputs = scores @ self.coefficients
        if self.lengths is not None:
            outputs /= _lengths(scores @ self.lengths)
        return np.asarray(outputs + self.offsets)

    @classmethod
    def of_view(cls, loadings: Array, mean: Array, noise: Array) -> Head:
        """The head of a view of loadings (L, K), mean and noise (L,): E[y|x] = μ_y + W_y E[z|x]."""
        return cls(loadings.T, mean, noise)

    def variance(self, covariance: Array) -> Array:
        """Variance of the outputs (L,) given rows of which z has this covariance (K, K)."""
        return np.asarray(((covariance @ self.coefficients) * self.coefficients).sum(axis=0) + self.noise)

    def log_probabilities(self, means: Array, covariance: Array) -> Array:
        """log p(c | x) (n, C) of classes, from the posterior means (n, K) alone."""
        return np.asarray(log_softmax(self.outputs(means), axis=1))


class ClassSpaces(NamedTuple):
    """Where classes of a table of codes (C, L') may be normal: scores z, or zR in the metric R (K, K) of the features,
    as they are or scaled to length 1."""

    table: Array
    metric: Array

    def each(self, scores: Array) -> list[tuple[Array, bool, Array]]:
        """The root of each space (K, K), whether lengths are 1, and the rows there (n, K)."""
        spaces = []
        for root in (self.metric, np.eye(scores.shape[1])):
            rows = scores @ root
            spaces += [(root, False, rows), (root, True, rows / _lengths(rows))]
        return spaces

    def codes(self, targets: Array) -> Integers:
        """The numbers of the classes (n,) of encoded targets (n, L')."""
        square = (self.table**2).sum(axis=1)
        pieces = (targets[at : at + ROWS] for at in range(0, len(targets), ROWS))
        return np.concatenate([(square - 2.0 * piece @ self.table.T).argmin(axis=1) for piece in pieces])

    def sums(self, scores: Array, targets: Array) -> tuple[ClassSums, ...]:
        """The sums of the classes of rows (n, K) in each space."""
        codes = self.codes(targets)
        return tuple(ClassSums.of(rows, codes, len(self.table)) for _, _, rows in self.each(scores))


def output_sums(scores: Array, targets: Array) -> Array:
    """The Gram matrix of [1, scores, targets] (1 + K + L')²."""
    joint = np.hstack([np.ones((len(scores), 1)), scores, targets])
    return joint.T @ joint


class LabelledRows(NamedTuple):
    """Rows with targets, or some of them: scores (n, K), encoded targets (n, L'), and the sum of their posterior
    covariances (K, K); and the sums over all rows, where these are wanted."""

    scores: Array
    targets: Array
    covariance: Array
    sums: Any = None


def joined(left: LabelledRows | None, right: LabelledRows | None) -> LabelledRows | None:
    """The rows of both, in their order."""
    if left is None or right is None:
        return left if right is None else right
    scores, targets = np.concatenate([left.scores, right.scores]), np.concatenate([left.targets, right.targets])
    return LabelledRows(scores, targets, left.covariance + right.covariance, add(left.sums, right.sums))


class RowsRequest(NamedTuple):
    """E[z|x] (n, K) and, where each row has its own, the covariances (n, K²) of rows x; that of all rows elsewhere; the
    part of the labelled rows that is wanted; and what is summed over all of them, of their scores and targets."""

    scores: Callable[[Features, Array | None], Array]
    covariance: Array | Callable[[Features, Array | None], Array]
    part: float
    sums: Callable[[Array, Array], Any] | None


def block_labelled(block: Block, request: RowsRequest) -> LabelledRows | None:
    """The labelled rows of a block, or a random part of them; None where it has none."""
    assert block.targets is not None
    known = np.flatnonzero(~np.isnan(block.targets).all(axis=1))
    if not len(known):
        return None
    some, covariance = _some(len(known), block, request.part), request.covariance
    scores, targets = request.scores(take(block.features, known), None), block.targets[known]
    sums = None if request.sums is None else request.sums(scores, targets)
    k = scores.shape[1]
    if callable(covariance):
        x = take(block.features, known[some])
        pieces = (covariance(x[at : at + ROWS], None) for at in range(0, x.shape[0], ROWS))
        total = sum((each.sum(axis=0).reshape(k, k) for each in pieces), np.zeros((k, k)))
    else:
        total = some.sum() * covariance
    return LabelledRows(scores[some], targets[some], total, sums)


def fraction_of_rows(labelled: int, width: int, *, summed: bool) -> float:
    """The fraction of so many labelled rows, with so many scores and targets each, that is learned from as rows."""
    return (FEW_NUMBERS if summed else MOST_NUMBERS) / (labelled * width)


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


def _lengths(rows: Array) -> Array:
    """The length of each row (n, 1), never 0."""
    return np.asarray(np.maximum(np.sqrt((rows**2).sum(axis=1, keepdims=True)), np.finfo(float).tiny))


def feature_metric(parameters: Parameters, specification: Specification) -> Array:
    """The root R of WᵀΨ⁻¹W over the features (K, K): ‖(z − z') R‖ is how far samples with these latent variables lie
    apart in the features, in units of the noise."""
    features = slice(0, specification.slices[-1].start)
    loadings = parameters.loadings[features]
    noise = specification.per_feature(parameters.noise_variance)[features]
    values, vectors = la.eigh(loadings.T @ (loadings / noise[:, None]))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def class_head(rows: LabelledRows, spaces: ClassSpaces, shares: Array) -> Head:
    """Normal classes with one covariance, in the space in which labels that are left out are most probable; or any
    linear rule there, where each class has rows enough to leave some out, and these are then more probable by more than
    two standard errors."""
    codes, compared = spaces.codes(rows.targets), []
    for sums, (root, unit, space) in zip(rows.sums, spaces.each(rows.scores), strict=True):
        compared.append((discriminants(sums, space, codes, shares), root, unit, space))
    best, root, unit, space = max(compared, key=lambda each: each[0].left_out.mean())
    if np.bincount(codes, minlength=len(spaces.table)).min() >= FOLDS:
        linear = softmax(space, codes, len(spaces.table))
        gain = linear.left_out - best.left_out
        best = linear if gain.mean() > 2.0 * gain.std() / np.sqrt(len(gain)) else best
    return Head(root @ best.coefficients, best.offsets, np.zeros(0), root if unit else None)


def output_head(rows: LabelledRows, rotation: Array, centre: Array, metric: Array) -> Head:
    """Regression of each output, T·`rotation`ᵀ + centre (n, L) of encoded targets T (n, L'), NaN where missing, by
    ridge; in scores or in the metric of the features, as the evidence says.

    The noise is the mean square of what outputs that are left out miss, without what z leaves open.
    """
    covariance, k, columns = rows.covariance / max(len(rows.scores), 1), len(metric), []
    for weights, middle in zip(rotation, centre, strict=True):
        y = rows.targets[:, weights != 0.0] @ weights[weights != 0.0]
        seen = ~np.isnan(y)
        x, y = rows.scores[seen], y[seen]
        sums = RidgeSums.of(x, y) if rows.sums is None else RidgeSums.within(rows.sums, k, weights)
        tried = [(root, ridge(sums.turned(root), x @ root, y)) for root in (metric, np.eye(k))]
        root, best = max(tried, key=lambda each: each[1].evidence)
        w = root @ best.coefficients
        noise = max(float(np.mean(best.left_out**2) - w @ covariance @ w), 0.0)
        columns.append((w, best.offset + middle, noise))
    coefficients, offsets, noises = zip(*columns, strict=True)
    return Head(np.column_stack(coefficients), np.array(offsets), np.array(noises))


class RidgeSums(NamedTuple):
    """Sums for the regression of y on rows x (K): their number, their means (K,) and ȳ, and about these XᵀX (K, K),
    Xᵀy (K,) and yᵀy."""

    samples: float
    middle: Array
    offset: float
    gram: Array
    cross: Array
    energy: float

    @classmethod
    def of(cls, x: Array, y: Array) -> RidgeSums:
        """Those of rows x (n, K) and y (n,)."""
        middle, offset = x.mean(axis=0), float(y.mean())
        inside, rest = x - middle, y - offset
        return cls(float(len(y)), middle, offset, inside.T @ inside, inside.T @ rest, float(rest @ rest))

    @classmethod
    def within(cls, gram: Array, k: int, output: Array) -> RidgeSums:
        """Those of y = Ta, with `output` a (L,), from the Gram matrix of [1, X, T] (1 + K + L)²."""
        count, first = float(gram[0, 0]), gram[1 : k + 1]
        middle, offset = first[:, 0] / count, float(gram[0, k + 1 :] @ output) / count
        cross, energy = first[:, k + 1 :] @ output, float(output @ gram[k + 1 :, k + 1 :] @ output)
        return cls(
            count,
            middle,
            offset,
            first[:, 1 : k + 1] - count * np.outer(middle, middle),
            cross - count * offset * middle,
            max(energy - count * offset**2, 0.0),
        )

    def turned(self, root: Array) -> RidgeSums:
        """Those of rows xR, R (K, K')."""
        return self._replace(middle=self.middle @ root, gram=root.T @ self.gram @ root, cross=root.T @ self.cross)


def prior_variances(rows: RidgeSums) -> Array:
    """The prior variances r that are compared."""
    ratios = np.exp(np.arange(LEAST, MOST + np.log(rows.samples), STEP))
    return np.asarray(ratios / max(float(np.trace(rows.gram)) / len(rows.gram), TINY))


class Ridge(NamedTuple):
    """Coefficients (K,), offset, log evidence in nats, and y − ŷ of some rows (n,), each with ŷ fitted to all rows but
    itself."""

    coefficients: Array
    offset: float
    evidence: float
    left_out: Array


def ridge(rows: RidgeSums, x: Array, y: Array) -> Ridge:
    """The regression y = b + Xw + ε, w ~ N(0, r σ² I), ε ~ N(0, σ² I), b flat, with the prior variance r of the
    largest evidence, and what it says of some of the rows, x (n, K) and y (n,); O(nK² + K³).

    With s the eigenvalues of XᵀX and q = UᵀXᵀy about the means, and σ² at its maximum, the evidence of the n − 1
    contrasts of y is

        log p(y | r) = −½ [(n − 1)(log 2πσ² + 1) + Σ log(1 + r s)],   (n − 1) σ² = yᵀy − Σ r q² / (1 + r s)

    What a row that is left out misses is (y − ŷ) / (1 − h), with its leverage h at the same r.
    """
    n, middle, offset, gram, cross, energy = rows
    s, u = la.eigh(gram)
    s, q = np.maximum(s, 0.0), u.T @ cross
    ratios = prior_variances(rows)
    spread = 1.0 + ratios[:, None] * s
    left = np.maximum(energy - (ratios[:, None] * q**2 / spread).sum(axis=1), np.finfo(float).eps * energy + TINY)
    noise = left / max(n - 1, 1)
    evidence = -0.5 * ((n - 1) * (LOG_2PI + np.log(noise) + 1.0) + np.log(spread).sum(axis=1))
    best = int(evidence.argmax())
    gain = (u * (ratios[best] / spread[best])) @ u.T
    w, inside, rest = gain @ cross, x - middle, y - offset
    leverage = ((inside @ gain) * inside).sum(axis=1) + 1.0 / n
    missed = (rest - inside @ w) / np.maximum(1.0 - leverage, np.finfo(float).eps)
    return Ridge(w, offset - float(middle @ w), float(evidence[best]), missed)
