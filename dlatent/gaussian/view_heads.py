"""What one view tells of another by regression, learned after a fit from the samples that have both.

The likelihood of a fit describes all that the views have, so that its components need not be those which tell of the
other view.  Two ridge regressions are learned instead: of all features on all features of the view that is given, and
of those in the span of the other view's loadings on E[z|x], where the samples without counterpart tell most.  Samples
that are left out say how strong each is and in which parts they are mixed (stacking), and what is missed of them is the
variance.  The expectation of the fit itself is not compared: it has seen the pairs, and no closed form tells what it
would be without one of them.

Sources: Golub, Heath and Wahba (1979), "Generalized cross-validation", for the closed form of samples that are left
out; Breiman (1996), "Stacked regressions".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.expectation import pattern_projection
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import Arrangement, Parts, Patterns, sorted_views
from dlatent.operators.sparse import times

MOST_NUMBERS = 2**23
"""Of the rows that are learned from, of all views; of more a random part."""
FEWEST_ROWS = 1000
"""Of a part; views of which fewer fit are so wide that the likelihood, which has seen all samples, tells more."""
RATIOS = np.exp(np.arange(-12.0, 12.0, 0.5))
"""Prior variances that are compared, relative to what would make prior and noise equal."""
MOST_OUTPUTS = 64
"""Outputs by which strengths are compared; of more, random sums of them."""
TINY = 1e-300


class ViewHead(NamedTuple):
    """x_w = x_v `left` `right` + offset from rows x_v: left (D_v, r), right (r, D_w), offset and variance (D_w,)."""

    left: Array
    right: Array
    offset: Array
    variance: Array

    def outputs(self, rows: Features) -> Array:
        """The other view (n, D_w) of rows (n, D_v)."""
        inside = rows @ self.left if isinstance(rows, np.ndarray) else times(rows, self.left)
        return np.asarray(inside @ self.right + self.offset)

    def in_data_units(self, given: Array, other: Array) -> ViewHead:
        """The regression in the units of the data, of one of features divided by these, (D_v,) and (D_w,)."""
        left = self.left / given[:, None]
        return ViewHead(left, self.right * other, self.offset * other, self.variance * other**2)


class PairedRowsRequest(NamedTuple):
    """The patterns of the samples, how they are arranged, the number of views with features, and the part of the
    samples with several of these that is wanted."""

    patterns: Patterns
    arrangement: Arrangement
    views: int
    part: float


PairedRows = tuple[tuple[Array, ...] | None, ...]
"""For each pattern the rows of its views, dense; None where it has one view."""


def block_paired_rows(block: Block, request: PairedRowsRequest) -> PairedRows | None:
    """The rows of a block that have several views, or a random part of them; None where it has none."""
    patterns, arrangement, views, part = request
    pattern, parts = sorted_views(block, patterns, arrangement)
    parts = parts[: sum(view < views for view in pattern)]
    if len(parts) < 2:
        return None
    some = np.random.default_rng(block.start).random(block.rows) < part
    rows = [x[some].toarray() if isinstance(x, sp.csr_array) else x[some] for x in parts]
    return tuple(tuple(x.astype(np.float64) for x in rows) if each == pattern else None for each in patterns)


def fraction_of_pairs(patterns: Patterns, arrangement: Arrangement, views: int) -> float:
    """The fraction of the samples with several of the views that is learned from; 0 where views are so wide that these
    would be few of many."""
    pairs = numbers = 0
    for pattern, (start, stop) in zip(patterns, pairwise(arrangement.bounds), strict=True):
        sizes = [arrangement.sizes[view] for view in pattern if view < views]
        if len(sizes) > 1:
            pairs, numbers = pairs + stop - start, numbers + (stop - start) * sum(sizes)
    part = MOST_NUMBERS / max(numbers, 1)
    return part if part >= 1.0 or part * pairs >= FEWEST_ROWS else 0.0


def joined(left: PairedRows | None, right: PairedRows | None) -> PairedRows | None:
    """The rows of both, in their order."""
    if left is None or right is None:
        return left if right is None else right
    both = list[tuple[Array, ...] | None]()
    for one, other in zip(left, right, strict=True):
        if one is None or other is None:
            both.append(other if one is None else one)
        else:
            both.append(tuple(np.concatenate(rows) for rows in zip(one, other, strict=True)))
    return tuple(both)


def expected_by(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification, head: ViewHead
) -> Array:
    """Another view (n, D_w) of rows of one view."""
    return head.outputs(parts[0])


def view_heads(
    rows: PairedRows, parameters: Parameters, specification: Specification, samples: Sequence[int], views: int
) -> dict[tuple[int, int], ViewHead]:
    """The regressions of every view on every other that it shares samples with; `samples` are those of each view."""
    heads, patterns = {}, list(zip(specification.patterns, rows, strict=True))
    for given, other in permutations(range(views), 2):
        both = [
            (parts[pattern.index(given)], parts[pattern.index(other)])
            for pattern, parts in patterns
            if parts is not None and given in pattern and other in pattern
        ]
        if both:
            x, y = (np.concatenate(each) for each in zip(*both, strict=True))
            heads[given, other] = view_head(x, y, (given, other), parameters, specification, samples)
    return heads


def view_head(
    x: Array,
    y: Array,
    views: tuple[int, int],
    parameters: Parameters,
    specification: Specification,
    samples: Sequence[int],
) -> ViewHead:
    """The regression of one view on another, from rows of both (n, D_v) and (n, D_w); `samples` are those of each
    view."""
    given, other = (specification.slices[view] for view in views)
    noise, loadings = specification.per_feature(parameters.noise_variance), parameters.loadings
    total = (loadings**2).sum(axis=1) + noise
    # Views whose features have noise variances of their own may have any units.
    shared = [specification.views[view].shared for view in views]
    units = [np.ones(x.shape[1]) if shared[0] else np.sqrt(total[given])]
    units.append(np.ones(y.shape[1]) if shared[1] else np.sqrt(total[other]))
    span: Array = np.asarray(la.qr(loadings[other] / units[1][:, None], mode="economic")[0], dtype=np.float64)
    projection = pattern_projection(parameters, specification, views[:1]).coefficients.T * units[0][:, None]
    # Of few pairs the mean of all samples is better, unless the pairs are samples of another kind, or tell nearly all.
    n, k, compared = len(x), loadings.shape[1], []
    for centre, leverage in (
        ((parameters.mean[given], parameters.mean[other]), 1.0 / samples[views[1]]),
        ((x.mean(axis=0), y.mean(axis=0)), 1.0 / n),
    ):
        inside, outputs = (x - centre[0]) / units[0], (y - centre[1]) / units[1]
        ridge = left_out_ridge(RowsSVD.of(inside, leverage), outputs, None)
        compared.append((ridge, centre, leverage, inside, outputs))
    plain, centre, leverage, inside, outputs = min(compared, key=lambda each: float((each[0].missed ** 2).sum()))
    scores = left_out_ridge(RowsSVD.of(inside @ projection, leverage), outputs, span)
    # Projection and span are of K vectors that were fitted to all samples of the views, the pairs among them.
    seen = [max(1.0 - k / samples[view], TINY) for view in views]
    missed = scores.missed / (seen[0] * seen[1])
    gain = plain.missed - missed
    part = float(np.clip((plain.missed * gain).sum() / max(float((gain**2).sum()), TINY), 0.0, 1.0))
    left = np.hstack([plain.left, projection @ scores.left]) / units[0][:, None]
    right = np.vstack([(1.0 - part) * plain.right, part * scores.right]) * units[1]
    # One more sample, of which nothing is known, stands for what few pairs do not tell of the noise.
    squares = (((plain.missed - part * gain) * units[1]) ** 2).sum(axis=0)
    return ViewHead(left, right, centre[1] - centre[0] @ left @ right, (squares + total[other]) / (n + 1.0))


class RowsSVD(NamedTuple):
    """Rows U diag(d) Vᵀ (n, m), and the leverage of each in the mean: vectors U (n, r), values d (r,), V (m, r)."""

    vectors: Array
    values: Array
    right: Array
    leverage: float

    @classmethod
    def of(cls, rows: Array, leverage: float) -> RowsSVD:
        """Those of rows about their centre, without directions that are lost in rounding."""
        n, m = rows.shape
        squares, vectors = la.eigh(rows @ rows.T if n < m else rows.T @ rows)
        kept = squares > squares[-1] * max(n, m) * np.finfo(float).eps + TINY
        values, vectors = np.sqrt(squares[kept]), vectors[:, kept]
        if n < m:
            return cls(vectors, values, rows.T @ vectors / values, leverage)
        return cls(rows @ vectors / values, values, vectors, leverage)


class LeftOutRidge(NamedTuple):
    """Coefficients left (m, r) times right (r, L), and what each row misses that is left out (n, L)."""

    left: Array
    right: Array
    missed: Array


def left_out_ridge(rows: RowsSVD, outputs: Array, basis: Array | None) -> LeftOutRidge:
    """The regression of outputs (n, L), or of those in the span of an orthonormal basis (L, K), with the strength by
    which the least is missed of rows that are left out.

    With ŷ = Hy, H = U diag(d² / (d² + 1/r)) Uᵀ, a row that is left out misses (y − ŷ) / (1 − H_ii − c), with its
    leverage c in the mean.
    """
    wanted = outputs if basis is None else outputs @ basis
    u, d, v, leverage = rows
    compared = wanted
    if wanted.shape[1] > MOST_OUTPUTS:
        compared = wanted @ np.random.default_rng(0).choice((-1.0, 1.0), (wanted.shape[1], MOST_OUTPUTS))
    squares, inside = u**2, u.T @ compared
    scale = len(u) / max(float((d**2).sum()), TINY)
    errors = []
    for ratio in RATIOS * scale:
        kept = _kept(d, ratio)
        left_out = (compared - u @ (kept[:, None] * inside)) / _others(squares @ kept + leverage)
        errors.append(float((left_out**2).sum()))
    kept = _kept(d, RATIOS[int(np.argmin(errors))] * scale)
    inside = kept[:, None] * (u.T @ wanted)
    missed = (wanted - u @ inside) / _others(squares @ kept + leverage)
    right = inside / d[:, None]
    if basis is not None:
        outside = outputs - wanted @ basis.T
        missed, right = missed @ basis.T + outside / max(1.0 - leverage, TINY), right @ basis.T
    return LeftOutRidge(v, right, missed)


def _kept(values: Array, ratio: float) -> Array:
    """The part of each direction that the ridge leaves."""
    return np.asarray(ratio * values**2 / (1.0 + ratio * values**2))


def _others(leverages: npt.NDArray[np.float64]) -> Array:
    """What the other rows have of each row's prediction (n, 1)."""
    return np.asarray(np.maximum(1.0 - leverages, np.finfo(float).eps)[:, None])
