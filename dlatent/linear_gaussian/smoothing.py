"""How well smoothed rows predict cells that they have not seen, for several strengths λ of the filter at once.

A part of the cells is set to the mean, all others are scaled up as much; rows are smoothed, projected on the leading
directions of each λ, and the reconstructions are correlated with the hidden cells.  Of sparse rows the mean is zero
here: to hide a zero changes nothing, so that all zeros together say what a part of them would.

Statistics are additive over samples.  The candidates share the passes: each has columns of its own in the thin rows
that meet their neighbours, with its own coefficients; λ = 0 needs no neighbour and sends none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, Rows
from dlatent.linear_gaussian.held_out import Hiding, hidden_cells
from dlatent.linear_gaussian.moments import check_rows
from dlatent.linear_gaussian.products import projected, weighted_sums
from dlatent.operators.smooth_filter import coefficients

FOLDS = 10
"""Every tenth row belongs together: what is left without one of ten such sets tells the standard error."""
CHUNK_ENTRIES = 4_000_000
"""Reconstructed entries of dense rows that are in memory at a time."""


class SmoothingRequest(NamedTuple):
    """Candidates λ, the hops of f, whether f² is applied (f where not), the hiding, the shift (D,), directions (D, b)
    of each candidate, and where cells are predicted the mean (D,) of each."""

    smoothings: tuple[float, ...]
    hops: int
    twice: bool
    hiding: Hiding
    shift: Array
    directions: tuple[Array, ...]
    means: tuple[Array, ...] = ()

    @property
    def moving(self) -> list[Array]:
        """Directions of each candidate that has neighbours, λ > 0."""
        return [v for v, smoothing in zip(self.directions, self.smoothings, strict=True) if smoothing]

    @property
    def ways(self) -> Array:
        """Coefficients of f or f² (C, hops of it + 1) of each candidate that has neighbours."""
        once = [coefficients(smoothing, self.hops) for smoothing in self.smoothings if smoothing]
        return np.array([np.convolve(one, one) if self.twice else one for one in once])


class SmoothedProducts(NamedTuple):
    """Of each candidate (X̃−s)ᵀf²(X̃−s)V (D, b), (X̃−s)ᵀf²1 (D,), and 1ᵀf²1, of the rows X̃ with hidden cells."""

    product: tuple[Array, ...]
    total: tuple[Array, ...]
    weight: Array


def check_and_add(block: Block, refuse_zero_rows: bool) -> tuple[int, Array]:
    """The number of rows, and their sum (D,), after what the first pass asks of every block."""
    total = np.asarray(block.features.sum(axis=0, dtype=np.float64)).ravel()
    check_rows(block, total, refuse_zero_rows=refuse_zero_rows)
    return block.rows, total


def _with_hidden(block: Block, request: SmoothingRequest) -> Features:
    """X̃: hidden cells at the shift, the others as much farther from it as cells are hidden."""
    x, scale = block.features, 1.0 / (1.0 - request.hiding.part)
    seen = ~hidden_cells(x, block.start, request.hiding)
    if isinstance(x, sp.csr_array):
        return sp.csr_array((np.where(seen, x.data * scale, 0.0), x.indices, x.indptr), shape=x.shape)
    return request.shift + (x - request.shift) * (seen * scale)


def sent_rows(block: Block, request: SmoothingRequest) -> Array:
    """[(X̃−s)V, 1] (n, b + 1) of each candidate that has neighbours, side by side."""
    x = _with_hidden(block, request)
    return np.hstack([_thin(x, v, request) for v in request.moving])


def _thin(x: Features, directions: Array, request: SmoothingRequest) -> Array:
    return np.column_stack([projected(x, request.shift, directions), np.ones(x.shape[0])])


def shares(first: Rows, hop: int, request: SmoothingRequest) -> Rows:
    """What a hop adds of the first rows, by Horner's scheme for each candidate (see `operators.smooth_filter`)."""
    ways = request.ways
    last = ways.shape[1] - 1
    widths = [v.shape[1] + 1 for v in request.moving]
    return np.asarray(first * np.repeat(ways[:, last - hop] / ways[:, last], widths))


def _arrived(block: Block, x: Features, request: SmoothingRequest) -> list[Array]:
    """f or f² of [(X̃−s)V, 1] (n, b + 1) of each candidate."""
    assert block.exchanged is not None
    cuts = np.cumsum([v.shape[1] + 1 for v in request.moving])[:-1]
    parts = zip(np.split(np.asarray(block.exchanged.met), cuts, axis=1), request.ways[:, -1], strict=True)
    found = []
    for smoothing, v in zip(request.smoothings, request.directions, strict=True):
        part, factor = next(parts) if smoothing else (_thin(x, v, request), 1.0)
        found.append(part * factor)
    return found


def fold_smoothed(block: Block, request: SmoothingRequest) -> SmoothedProducts:
    """The products of a block; O(nnz b) or O(n D b) for each candidate."""
    x = _with_hidden(block, request)
    arrived = _arrived(block, x, request)
    together, cuts = np.hstack(arrived), np.cumsum([part.shape[1] for part in arrived])[:-1]
    moved, _ = weighted_sums(x, request.shift, lambda rows, place: together[place], energies=False)
    products = [np.array(part) for part in np.split(moved, cuts, axis=1)]
    weight = np.array([part[:, -1].sum() for part in arrived])
    return SmoothedProducts(tuple(p[:, :-1] for p in products), tuple(p[:, -1] for p in products), weight)


def fold_predicted(block: Block, request: SmoothingRequest) -> Array:
    """Of each candidate and each set of rows the sums of 1, x, x², p, p² and xp over hidden cells x and what is
    predicted of them, p, both about the shift (C, FOLDS, 6)."""
    found = np.zeros((len(request.directions), FOLDS, 6))
    sets = (block.start + np.arange(block.rows)) % FOLDS
    arrived = _arrived(block, _with_hidden(block, request), request)
    for at, (part, v, mean) in enumerate(zip(arrived, request.directions, request.means, strict=True)):
        middle = mean - request.shift
        # f(S)(X̃ − 1μᵀ)V
        scores = part[:, :-1] - np.outer(part[:, -1], middle @ v)
        sums = _sparse_sums if isinstance(block.features, sp.csr_array) else _dense_sums
        np.add.at(found[at], sets, sums(block, scores, v, middle, request))
    return found


def _dense_sums(block: Block, scores: Array, loadings: Array, middle: Array, request: SmoothingRequest) -> Array:
    x, found = np.asarray(block.features), np.empty((block.rows, 6))
    hiding, step = request.hiding, max(1, CHUNK_ENTRIES // x.shape[1])
    for start in range(0, block.rows, step):
        at = slice(start, start + step)
        places = hidden_cells(x[at], block.start + start, hiding)
        values, predicted = x[at] - request.shift, scores[at] @ loadings.T + middle
        terms = (np.ones_like(values), values, values**2, predicted, predicted**2, values * predicted)
        found[at] = np.column_stack([(term * places).sum(axis=1) for term in terms])
    return found


def _sparse_sums(block: Block, scores: Array, loadings: Array, middle: Array, request: SmoothingRequest) -> Array:
    """Hidden entries that are stored, and the part that is hidden of all zeros."""
    x, part = block.features, request.hiding.part
    assert isinstance(x, sp.csr_array)
    rows, columns, n = np.repeat(np.arange(block.rows), np.diff(x.indptr)), x.indices, block.rows
    places, values = hidden_cells(x, block.start, request.hiding), np.asarray(x.data, dtype=np.float64)
    predicted = middle[columns]
    for own, across in zip(scores.T, loadings.T, strict=True):
        predicted = predicted + own[rows] * across[columns]

    def summed(terms: Array) -> Array:
        return np.asarray(np.bincount(rows, weights=terms, minlength=n), dtype=np.float64)

    everywhere = (
        np.full(n, float(x.shape[1])),
        scores @ loadings.sum(axis=0) + middle.sum(),
        np.einsum("ik,kl,il->i", scores, loadings.T @ loadings, scores)
        + 2.0 * scores @ (loadings.T @ middle)
        + middle @ middle,
    )
    count, first, second = (
        summed(places * term) + part * (whole - summed(term))
        for term, whole in zip((np.ones_like(values), predicted, predicted**2), everywhere, strict=True)
    )
    own = [summed(places * term) for term in (values, values**2, values * predicted)]
    return np.column_stack([count, own[0], own[1], first, second, own[2]])


class Comparison(NamedTuple):
    """Of each candidate the correlation with hidden cells (C,), and the standard error of its difference to the largest
    (C,); and the number of the chosen one."""

    correlation: Array
    standard_error: Array
    chosen: int


def compared(sums: Array) -> Comparison:
    """The smallest candidate whose correlation is within a standard error of the largest, from `fold_predicted`.

    The standard error is that of the jackknife over the sets of rows.  Without variation nothing is known, and the
    first candidate is taken.
    """
    whole = _correlations(sums.sum(axis=1))
    without = np.stack([_correlations(sums.sum(axis=1) - sums[:, one]) for one in range(FOLDS)])
    best = int(whole.argmax())
    differences = without[:, [best]] - without
    spread = ((differences - differences.mean(axis=0)) ** 2).sum(axis=0)
    error = np.sqrt((FOLDS - 1) / FOLDS * spread)
    return Comparison(whole, error, int(np.flatnonzero(whole[best] - whole <= error)[0]))


def _correlations(sums: Array) -> Array:
    """Of 1, x, x², p, p² and xp (C, 6); 0 where one of the two does not vary."""
    count, x, xx, p, pp, xp = sums.T
    count = np.maximum(count, 1.0)
    scale = np.sqrt(np.maximum(xx - x * x / count, 0.0) * np.maximum(pp - p * p / count, 0.0))
    found: Array = np.divide(xp - x * p / count, scale, out=np.zeros_like(scale), where=scale > 0.0)
    return found
