"""How well the components of smoothed rows are known from cells that they have not seen, for several strengths λ of the
filter at once.

A part of the cells is set to the mean, all others are scaled up as much; rows are smoothed, and projected on the
leading directions of each λ.  The rows themselves, not smoothed, are regressed on these scores: its singular directions
are components, of which the scores say something from cells that are seen and from neighbours, and the hidden cells
from themselves.  How far both agree is a correlation for each, and their mean is compared: each component counts alike,
as to what is made of scores, so that the largest, which may be each sample's own, does not decide alone.  Of sparse
rows the mean is zero here, but in columns far from it.

Statistics are additive over samples.  The candidates share the passes: each has columns of its own in the thin rows
that meet their neighbours, with its own coefficients; λ = 0 needs no neighbour and sends none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, Rows
from dlatent.gaussian.missing_entries.incomplete import FOLDS, Hiding, hidden_cells
from dlatent.gaussian.products import projected, weighted_sums
from dlatent.gaussian.views import check_rows
from dlatent.operators.sample_precision import coefficients
from dlatent.operators.sparse import column_sums, rows_about
from dlatent.solvers.task import Comparison

CHUNK_ENTRIES = 1_000_000
"""Entries, of dense or sparse rows, that are worked on at a time; there are some copies of them."""
FEWEST_ROWS = 64
"""Rows that are worked on at a time, at least: each time all sums are added up."""
VARYING = 1e-10
"""Directions of scores in which they vary by a smaller part of the largest variance are left out."""
Truths: TypeAlias = npt.NDArray[np.bool_]


class Axes(NamedTuple):
    """Components of rows: what they are of scores [Z, 1] (b + 1, b), and along which features they lie (D, b)."""

    of_scores: Array
    along: Array


class SmoothingRequest(NamedTuple):
    """Candidates λ, the hops of f, whether f² is applied (f where not), the hiding, the shift (D,), as many directions
    (D, b) of each candidate; for scores the mean (D,) of each, and where these are compared the axes."""

    smoothings: tuple[float, ...]
    hops: int
    twice: bool
    hiding: Hiding
    shift: Array
    directions: tuple[Array, ...]
    means: tuple[Array, ...] = ()
    axes: tuple[Axes, ...] = ()

    @property
    def moving(self) -> list[Array]:
        """Directions of each candidate that has neighbours, λ > 0."""
        return [v for v, smoothing in zip(self.directions, self.smoothings, strict=True) if smoothing]

    @property
    def ways(self) -> Array:
        """Coefficients of f or f² (C, hops of it + 1) of each candidate that has neighbours."""
        once = [coefficients(smoothing, self.hops) for smoothing in self.smoothings if smoothing]
        return np.array([np.convolve(one, one) if self.twice else one for one in once])


def check_and_add(block: Block, refuse_zero_rows: bool) -> tuple[int, Array, Array]:
    """The number of rows, their sum (D,) and, of sparse ones, that of their squares (D,), after what the first pass
    asks of every block."""
    x = block.features
    total = np.asarray(x.sum(axis=0, dtype=np.float64)).ravel()
    check_rows(block, total, refuse_zero_rows=refuse_zero_rows)
    return block.rows, total, column_sums(x, squared=True) if isinstance(x, sp.csr_array) else np.zeros(0)


def _about(block: Block, request: SmoothingRequest) -> tuple[Block, SmoothingRequest]:
    """Sparse rows less the shift, which is then zero; dense ones as they are."""
    rows, rest = rows_about(block.features, request.shift)
    if rows is block.features:
        return block, request
    means = tuple(mean - request.shift for mean in request.means)
    return replace(block, features=rows), request._replace(shift=rest, means=means)


def _with_hidden(x: Features, start: int, request: SmoothingRequest) -> Features:
    """X̃: hidden cells at the shift, the others as much farther from it as cells are hidden."""
    seen, scale = ~hidden_cells(x, start, request.hiding), 1.0 / (1.0 - request.hiding.part)
    if isinstance(x, sp.csr_array):
        return sp.csr_array((np.where(seen, x.data * scale, 0.0), x.indices, x.indptr), shape=x.shape)
    return request.shift + (x - request.shift) * (seen * scale)


def _pieces(block: Block) -> Iterator[slice]:
    """Rows of a block, a few at a time."""
    x = block.features
    entries = x.nnz / max(block.rows, 1) if isinstance(x, sp.csr_array) else x.shape[1]
    step = max(FEWEST_ROWS, int(CHUNK_ENTRIES // max(entries, 1)))
    return (slice(start, min(start + step, block.rows)) for start in range(0, block.rows, step))


def sent_rows(block: Block, request: SmoothingRequest) -> Array:
    """[(X̃−s)V, 1] (n, b + 1) of each candidate that has neighbours, side by side."""
    block, request = _about(block, request)
    rows = np.empty((block.rows, sum(v.shape[1] + 1 for v in request.moving)))
    for at in _pieces(block):
        x = _with_hidden(block.features[at], block.start + at.start, request)
        rows[at] = np.hstack([_thin(x, v, request) for v in request.moving])
    return rows


def _thin(x: Features, directions: Array, request: SmoothingRequest) -> Array:
    return np.column_stack([projected(x, request.shift, directions), np.ones(x.shape[0])])


def shares(first: Rows, previous: Rows, hop: int, request: SmoothingRequest) -> Rows:
    """The share of the first rows that a hop adds, by Horner's scheme for each candidate."""
    ways = request.ways
    last = ways.shape[1] - 1
    return np.asarray(first * np.repeat(ways[:, last - hop] / ways[:, last], first.shape[1] // len(ways)))


def _arrived(block: Block, at: slice, x: Features, request: SmoothingRequest) -> list[Array]:
    """f or f² of [(X̃−s)V, 1] (n, b + 1) of each candidate, of some rows `at`, which are `x` with hidden cells."""
    assert block.exchanged is not None
    met, ways = np.asarray(block.exchanged.met)[at], request.ways
    parts = zip(np.split(met, len(ways), axis=1), ways[:, -1], strict=True)
    arrived = []
    for smoothing, v in zip(request.smoothings, request.directions, strict=True):
        part, factor = next(parts) if smoothing else (_thin(x, v, request), 1.0)
        arrived.append(part * factor)
    return arrived


def fold_smoothed(block: Block, request: SmoothingRequest) -> tuple[Array, Array]:
    """Of each candidate (X̃−s)ᵀf²[(X̃−s)V, 1] (D, b + 1) and 1ᵀf²[(X̃−s)V, 1] (b + 1,), side by side, for rows X̃ with
    hidden cells; O(nnz b) or O(n D b) for each candidate."""
    block, request = _about(block, request)
    width = sum(v.shape[1] + 1 for v in request.directions)
    moved, sums = np.zeros((block.features.shape[1], width)), np.zeros(width)
    for at in _pieces(block):
        x = _with_hidden(block.features[at], block.start + at.start, request)
        together = np.hstack(_arrived(block, at, x, request))
        moved += weighted_sums(x, request.shift, partial(_rows_of, together), energies=False)[0]
        sums += together.sum(axis=0)
    return moved, sums


def _rows_of(together: Array, x: Features, place: slice) -> Array:
    return together[place]


def _scores(block: Block, at: slice, x: Features, request: SmoothingRequest) -> list[Array]:
    """f(S)(X̃ − 1μᵀ)V (n, b) of each candidate, of some rows."""
    arrived = zip(_arrived(block, at, x, request), request.directions, request.means, strict=True)
    return [part[:, :-1] - np.outer(part[:, -1], (mean - request.shift) @ v) for part, v, mean in arrived]


def fold_scores(block: Block, request: SmoothingRequest) -> tuple[Array, Array]:
    """Of each candidate (X̃−s)ᵀ[Z, 1] (D, b + 1), side by side, and [Z, 1]ᵀ[Z, 1] (C, b + 1, b + 1), for scores Z;
    O(nnz b) or O(n D b) for each candidate."""
    block, request = _about(block, request)
    count, width = len(request.directions), request.directions[0].shape[1] + 1
    moved, grams = np.zeros((block.features.shape[1], count * width)), np.zeros((count, width, width))
    for at in _pieces(block):
        x = _with_hidden(block.features[at], block.start + at.start, request)
        scores = [_with_one(z) for z in _scores(block, at, x, request)]
        together = partial(_rows_of, np.hstack(scores))
        moved += weighted_sums(x, request.shift, together, energies=False)[0]
        grams += [z.T @ z for z in scores]
    return moved, grams


def _with_one(scores: Array) -> Array:
    return np.column_stack([scores, np.ones(len(scores))])


def score_axes(moved: Array, grams: Array) -> tuple[Axes, ...]:
    """The singular directions of the regression of rows on scores, of each candidate."""
    return tuple(map(_axes, np.split(moved, len(grams), axis=1), grams))


def _axes(moved: Array, gram: Array) -> Axes:
    middle = gram[-1, :-1] / gram[-1, -1]
    variances, axes = la.eigh(gram[:-1, :-1] - gram[-1, -1] * np.outer(middle, middle))
    varying = variances > VARYING * max(variances[-1], 0.0)
    white = axes * np.where(varying, 1.0 / np.sqrt(np.where(varying, variances, 1.0)), 0.0)
    along, _, across = la.svd((moved[:, :-1] - np.outer(moved[:, -1], middle)) @ white, full_matrices=False)
    turn = white @ across.T
    return Axes(np.vstack([turn, -middle @ turn]), along)


def fold_compared(block: Block, request: SmoothingRequest) -> Array:
    """Of each candidate, each set of rows and each component the sums of 1, x, x², p, p² and xp over what hidden cells
    say of it, x, and what scores say, p (C, FOLDS, 6, b)."""
    block, request = _about(block, request)
    totals = np.zeros((len(request.axes), FOLDS, 6, request.directions[0].shape[1]))
    for at in _pieces(block):
        rows, start = block.features[at], block.start + at.start
        scores = _scores(block, at, _with_hidden(rows, start, request), request)
        sets, hidden = (start + np.arange(rows.shape[0])) % FOLDS, _hidden(rows, start, request)
        for total, z, axes in zip(totals, scores, request.axes, strict=True):
            x, p = np.asarray(hidden @ axes.along), _with_one(z) @ axes.of_scores
            np.add.at(total, sets, np.stack([np.ones_like(x), x, x**2, p, p**2, x * p], axis=1))
    return totals


def _hidden(x: Features, start: int, request: SmoothingRequest) -> Features:
    """The hidden cells about the shift, and 0 elsewhere."""
    places = hidden_cells(x, start, request.hiding)
    if isinstance(x, sp.csr_array):
        return sp.csr_array((x.data * places, x.indices, x.indptr), shape=x.shape)
    return (x - request.shift) * places


def compared(sums: Array) -> Comparison:
    """The smallest candidate whose mean correlation is within a standard error of the largest, from `fold_compared`.

    The standard error is that of the jackknife over the sets of rows.  Where no candidate predicts anything, and
    without variation, nothing is known, and the first one is taken.
    """
    correlation = _correlations(sums.sum(axis=1))
    without = np.stack([_correlations(sums.sum(axis=1) - sums[:, one]) for one in range(FOLDS)])
    best = int(correlation.argmax())
    differences = without[:, [best]] - without
    spread = ((differences - differences.mean(axis=0)) ** 2).sum(axis=0)
    error = np.sqrt((FOLDS - 1) / FOLDS * spread)
    chosen = int(np.flatnonzero(correlation[best] - correlation <= error)[0]) if correlation[best] > 0.0 else 0
    return Comparison(correlation, error, chosen)


def _correlations(sums: Array) -> Array:
    """Mean correlations (C,) from sums of 1, x, x², p, p² and xp (C, 6, b); that of two of which one does not vary is
    0."""
    count, x, xx, p, pp, xp = np.moveaxis(sums, 1, 0)
    count = np.maximum(count, 1.0)
    scale = np.sqrt(np.maximum(xx - x * x / count, 0.0) * np.maximum(pp - p * p / count, 0.0))
    each = np.divide(xp - x * p / count, scale, out=np.zeros_like(scale), where=scale > 0.0)
    return np.asarray(each.mean(axis=1))
