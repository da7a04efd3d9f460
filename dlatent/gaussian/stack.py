"""Classes and labels told from scores by several rules at once: the mean of their probabilities, with weights by which
labels that are left out are most probable, and a prior that holds them where labels are few.

Which rule is best is not sure where labels are few; a mean with such weights is as good as the best rule on rows that
are left out, and better where rules err on different rows.

Sources: Wolpert (1992), "Stacked generalization"; Smyth and Wolpert (1999) for densities and their weights by EM.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_expit, log_softmax

from dlatent.arrays import Array, Features, Integers
from dlatent.gaussian.classes import VARIANCES, ClassSums, discriminants, logistic, softmax
from dlatent.gaussian.head import ROWS, LabelledRows, regressions

WEIGHT_STEPS, SMALL = 1000, 1e-9
"""EM steps for weights at most, and the gain of a row, in nats, at which they end."""
PRIOR_ROWS = 2.0
"""Rows, shared evenly by the rules, that the prior of the weights counts as: few rows may be told by chance."""
MANY = 10
"""Labelled rows a class, from which the variance of the prior of logistic regression is chosen."""
LOG_ODDS = 100.0
"""Its variance where labels are fewer: that of the log-odds of a row of mean length."""


class Stack(NamedTuple):
    """p = Σ_m w_m p_m of M rules.  Log-odds of a rule are u A_m + b_m with scores u = z, or u = z / ‖z R_m‖ where R_m
    is not zero, and xB more of the last rule: of classes up to a number for each row, of labels of 0 or 1 each by
    itself.

    Parameters
    ----------
    coefficients : A (M, K, L).
    offsets : b (M, L).
    lengths : R (M, K, K).
    weights : w (M, L); of classes the same in each column.
    classes : whether the outputs are classes, of which a row has one.
    features : B (D, L); None where scores alone count.
    """

    coefficients: Array
    offsets: Array
    lengths: Array
    weights: Array
    classes: bool
    features: Array | None = None

    def about(self, mean: Array) -> Stack:
        """The rules of features, from those of features about this mean (D,)."""
        if self.features is None:
            return self
        offsets = self.offsets.copy()
        offsets[-1] -= mean @ self.features
        return self._replace(offsets=offsets)

    @property
    def width(self) -> int:
        """The number of classes or labels."""
        return int(self.offsets.shape[1])

    def decisions(self, means: Array, covariance: Array | None = None, x: Features | None = None) -> Array:
        """log p(c | x) (n, C) of classes, or log p(1 | x) / p(0 | x) (n, L) of labels, from the posterior means (n, K)
        and the features (n, D)."""
        shape = (len(means), self.width)
        yes, no = np.full(shape, -np.inf), np.full(shape, -np.inf)
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        for m, (a, b, root) in enumerate(zip(self.coefficients, self.offsets, self.lengths, strict=True)):
            outputs, weight = means @ a, log_weights[m]
            if root.any():
                outputs /= _lengths(means @ root)
            if self.features is not None and m == len(log_weights) - 1:
                assert x is not None
                outputs += x @ self.features
            outputs += b
            if self.classes:
                yes = np.logaddexp(yes, weight + log_softmax(outputs, axis=1))
            else:
                yes = np.logaddexp(yes, weight + log_expit(outputs))
                no = np.logaddexp(no, weight + log_expit(-outputs))
        return np.asarray(yes if self.classes else yes - no)


class ClassSpaces(NamedTuple):
    """Where classes of a table of codes (C, L') are told apart: scores zR in the metric R (K, K) of the features, as
    they are or scaled to length 1."""

    table: Array
    metric: Array

    def each(self, scores: Array) -> tuple[Array, Array]:
        """The rows (n, K) in both spaces, the second of length 1."""
        rows = scores @ self.metric
        return rows, rows / _lengths(rows)

    def codes(self, targets: Array) -> Integers:
        """The numbers of the classes (n,) of encoded targets (n, L')."""
        square = (self.table**2).sum(axis=1)
        pieces = (targets[at : at + ROWS] for at in range(0, len(targets), ROWS))
        return np.concatenate([(square - 2.0 * piece @ self.table.T).argmin(axis=1) for piece in pieces])

    def sums(self, scores: Array, targets: Array) -> tuple[ClassSums, ...]:
        """The sums of the classes of rows (n, K) in each space."""
        codes = self.codes(targets)
        return tuple(ClassSums.of(rows, codes, len(self.table)) for rows in self.each(scores))


def _lengths(rows: Array) -> Array:
    """The length of each row (n, 1), never 0."""
    return np.asarray(np.maximum(np.sqrt((rows**2).sum(axis=1, keepdims=True)), np.finfo(float).tiny))


def stacking_weights(log_probabilities: Array) -> Array:
    """The most probable weights (M,) of the mean of M rules, by what each says of rows (M, n), with a Dirichlet prior.

    The logarithm of a mean is concave in the weights, so that EM from equal ones finds the maximum.
    """
    p = np.exp(log_probabilities - log_probabilities.max(axis=0))
    weights, value, share, rows = np.full(len(p), 1.0 / len(p)), -np.inf, PRIOR_ROWS / len(p), p.shape[1] + PRIOR_ROWS
    for _ in range(WEIGHT_STEPS):
        mean = weights @ p
        now = float(np.log(mean).sum() + share * np.log(weights).sum()) / rows
        if now - value <= SMALL:
            break
        value, weights = now, (weights * (p / mean).sum(axis=1) + share) / rows
    return weights


def class_head(rows: LabelledRows, spaces: ClassSpaces, shares: Array) -> Stack:
    """Normal classes with one covariance in each space, and logistic regression: in each space with one prior where
    labels are few, else in the better one with that prior by which labels that are left out are most probable."""
    codes, each, classes = spaces.codes(rows.targets), spaces.each(rows.scores), len(spaces.table)
    rules = [discriminants(sums, x, codes, shares) for sums, x in zip(rows.sums, each, strict=True)]
    tried, variances = [0, 1], np.array([LOG_ODDS / rows.scores.shape[1]])
    if len(codes) >= MANY * classes:
        tried, variances = [int(np.argmax([rule.left_out.sum() for rule in rules]))], VARIANCES
    rules += [softmax(each[at], codes, classes, variances) for at in tried]
    weights = stacking_weights(np.array([rule.left_out for rule in rules]))
    return Stack(
        np.array([spaces.metric @ rule.coefficients for rule in rules]),
        np.array([rule.offsets for rule in rules]),
        np.array([at * spaces.metric for at in (0, 1, *tried)]),
        np.repeat(weights[:, None], len(shares), axis=1),
        classes=True,
    )


def label_head(rows: LabelledRows, rotation: Array, centre: Array, metric: Array) -> Stack:
    """Each label by logistic regression on scores as they are, on scores of length 1, and on what a linear regression
    says of it, which is learned from all rows, and from features, too; of this, on rows that it has not seen."""
    k, unit = len(metric), rows.scores / _lengths(rows.scores)
    coefficients, offsets, weights, features = [], [], [], []
    for found in regressions(rows, rotation, centre, metric):
        y = np.round(found.values)
        plain, short = logistic(rows.scores[found.seen], y), logistic(unit[found.seen], y)
        slope = logistic((found.values - found.left_out)[:, None], y)
        factor = float(slope.coefficients[0])
        coefficients.append([plain.coefficients, short.coefficients, factor * found.coefficients[:k]])
        features.append(factor * found.coefficients[k:])
        offsets.append([plain.offsets, short.offsets, slope.offsets + factor * found.offset])
        weights.append(stacking_weights(np.array([plain.left_out, short.left_out, slope.left_out])))
    lengths = np.stack([np.zeros((k, k)), np.eye(k), np.zeros((k, k))])
    of_features = np.ascontiguousarray(np.transpose(features))
    return Stack(
        np.ascontiguousarray(np.transpose(coefficients, (1, 2, 0))),
        np.transpose(np.array(offsets)).copy(),
        lengths,
        np.transpose(np.array(weights)).copy(),
        classes=False,
        features=of_features if of_features.any() else None,
    )
