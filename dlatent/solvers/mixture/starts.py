"""Starts of a mixture: many of several kinds, of which short runs of EM on some rows leave the best.

All starts of a round share its visits of the rows.  The next round has the best of them, and copies of these in which
one component begins again at a random row: a maximum that starts seldom find is often a component away from a good one.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, add
from dlatent.gaussian.moments import MomentRequest
from dlatent.gaussian.products import FeatureSums
from dlatent.gaussian.products import block_feature_sums as feature_sums
from dlatent.gaussian.specification import Specification
from dlatent.operators.sparse import rows_about, times
from dlatent.solvers.mixture.statistics import Mixture, MixtureRequest, NoisePrior, maximise_mixture, mixture_sums

LLOYD = 10
"""Most iterations of k-means."""
FIXED_STEPS = 4
"""Iterations of a start in which each row stays with its centre."""
STEPS = 20
"""Iterations of a round: after six the order of two starts says hardly anything of which ends higher."""
ROUNDS = 2
FIRST_ROWS, FIRST_ROWS_EACH = 500, 40
"""Rows of the first round in all, or for each component of the mixture where that is more; the next has twice as
many."""
FINALISTS = 4
"""Most starts that a round leaves."""
STARTS, FEWEST_STARTS, STARTS_BYTES = 64, 8, 64 * 2**20
"""Starts by default, and fewer, but so many, where the parameters of all would take more bytes."""
KINDS = ("k-means++", "rows")


def starts_that_fit(numbers: int) -> int:
    """As many starts as there is room for, of so many numbers each."""
    return int(np.clip(STARTS_BYTES // (8 * numbers), FEWEST_STARTS, STARTS))


class SubsetRequest(NamedTuple):
    """Increasing numbers of the rows that are wanted, the shift of the features, whether all-zero rows are refused."""

    rows: np.ndarray
    shift: Array
    refuse_zero_rows: bool


class Subset(NamedTuple):
    """First and second sums of each feature over all samples, and some rows as they are, in order."""

    sums: FeatureSums
    rows: tuple[Features, ...]

    @property
    def together(self) -> Features:
        """The rows."""
        rows: Any = self.rows
        return np.vstack(rows) if isinstance(rows[0], np.ndarray) else sp.csr_array(sp.vstack(rows, format="csr"))


def block_subset(block: Block, request: SubsetRequest) -> Subset:
    """Sums of a block, and those of the rows that lie in it.

    Raises DataError for NaN or infinity, and for all-zero rows where asked.
    """
    (sums,) = feature_sums(block, MomentRequest(request.shift, ((0,),), request.refuse_zero_rows))
    first, last = np.searchsorted(request.rows, [block.start, block.start + block.rows])
    inside = request.rows[first:last] - block.start
    return Subset(sums, (cast(Features, block.features[inside]),) if len(inside) else ())


def joined_subsets(left: Subset, right: Subset) -> Subset:
    """The sums added, and the rows one after the other."""
    return Subset(add(left.sums, right.sums), left.rows + right.rows)


class Starts:
    """Rows (n, D) for the starts of a mixture, in a random order of which the first are seen by all, and the clusters
    that k-means finds in these, with `unit`, the spreads of the features (D,)."""

    def __init__(self, rows: Features, shift: Array, unit: Array, mixtures: int, rng: np.random.Generator) -> None:
        self.rows, self.shift, self.unit, self.mixtures, self.rng = rows, shift, unit, mixtures, rng
        self.order, self.size = rng.permutation(rows.shape[0]), max(FIRST_ROWS, FIRST_ROWS_EACH * mixtures)
        moved, rest = rows_about(self._some(self.size), shift)
        dense = isinstance(moved, np.ndarray)
        self.plain = (moved - rest) / unit if dense else cast(Features, moved @ sp.diags_array(1.0 / unit))
        self.means = self._centres("k-means")
        self.clusters = _nearest(self.plain, self.means)

    def within(self) -> Array:
        """The variance of each feature within the clusters of k-means (D,)."""
        plain, counts = self.plain, self.clusters.sum(axis=0)
        squares = np.asarray((plain**2).sum(axis=0)).ravel() - counts @ self.means**2
        return np.asarray(np.maximum(squares, 0.0) / max(len(self.clusters) - len(counts), 1) * self.unit**2)

    def finalists(
        self, starts: int, specification: Specification, prior: NoisePrior, *, bounded: bool
    ) -> list[Mixture]:
        """The best of so many starts, the highest first; where the likelihood is not `bounded` by what was asked for,
        last those in which components have collapsed on few rows."""
        mixtures, shift, unit = self.mixtures, self.shift, self.unit
        kinds = list(islice(cycle(KINDS), starts))
        centres = [self.means, *map(self._centres, kinds[1:])]
        noise = np.tile(unit[specification.group_starts] ** 2, (starts, mixtures, 1))
        loadings = self._loadings(noise, specification)
        # Plain EM from rows: with so wide a noise components have all rows in common at first.
        found = Mixture(np.full((starts, mixtures), 1.0 / mixtures), loadings, np.stack(centres) * unit, noise)
        hard, some = np.array([kind != "rows" for kind in kinds]), self._some(self.size)
        nearest = _chosen(found, hard)
        assigned = np.hstack([_nearest(self.plain, centres[number]) for number in np.flatnonzero(hard)])
        for _ in range(FIXED_STEPS):
            sums = mixture_sums(some, MixtureRequest(nearest, shift), assigned)
            nearest = maximise_mixture(sums, nearest, specification, prior)
            # One noise for all, so that a few rows do not draw a component to themselves.
            common = (nearest.weights[..., None] * nearest.noise_variance).sum(axis=1, keepdims=True)
            nearest = nearest._replace(noise_variance=np.repeat(common, mixtures, axis=1))
        found = _together(nearest, _chosen(found, ~hard))
        found, kept = self._climbed(found, 0, specification, prior, bounded), min(FINALISTS, -(-starts // 2))
        for number in range(1, ROUNDS):
            best = _chosen(found, np.arange(kept))
            moved = self._moved(_chosen(best, np.arange(starts - kept) % kept), specification)
            found = self._climbed(_together(best, moved), number, specification, prior, bounded)
        return [Mixture(*parts) for parts in zip(*_chosen(found, np.arange(kept)), strict=True)]

    def _some(self, size: int) -> Features:
        return self.rows[np.sort(self.order[:size])]

    def _climbed(
        self, found: Mixture, number: int, specification: Specification, prior: NoisePrior, bounded: bool
    ) -> Mixture:
        """Mixtures after a round, in the order of `finalists`."""
        some = self._some(2**number * self.size)
        for _ in range(STEPS):
            sums = mixture_sums(some, MixtureRequest(found, self.shift))
            value = sums.log_likelihood + prior.log_density(found, specification)
            found = maximise_mixture(sums, found, specification, prior)
        low = (found.noise_variance <= specification.floors).all(axis=2)
        collapsed = np.zeros(len(value)) if bounded else low.sum(axis=1)
        return _chosen(found, np.lexsort((-value, collapsed)))

    def _moved(self, found: Mixture, specification: Specification) -> Mixture:
        """Mixtures in each of which one component begins again: at a random row, with the noise of all in the mean."""
        count = len(found.weights)
        place = np.arange(count), self.rng.integers(self.mixtures, size=count)
        noise = (found.weights[..., None] * found.noise_variance).sum(axis=1)
        found.loadings[place] = self._loadings(noise, specification)
        found.mean[place] = self._rows(self.rng.integers(self.plain.shape[0], size=count)) * self.unit
        found.noise_variance[place] = noise
        return found._replace(weights=np.full_like(found.weights, 1.0 / self.mixtures))

    def _loadings(self, noise: Array, specification: Specification) -> Array:
        """Random ones (…, D, K) that explain as much as noise variances (…, groups) do."""
        shape = *noise.shape[:-1], len(self.unit), specification.n_components
        return np.asarray(self.rng.standard_normal(shape) * np.sqrt(noise / shape[-1])[..., None])

    def _rows(self, numbers: np.ndarray) -> Array:
        chosen: Any = self.plain[numbers]
        return np.asarray(chosen if isinstance(chosen, np.ndarray) else chosen.toarray())

    def _centres(self, kind: str) -> Array:
        """Centres (M, D): rows, rows far apart (k-means++), or where Lloyd's iterations lead from those."""
        from sklearn.cluster import kmeans_plusplus

        plain, mixtures, rng = self.plain, self.mixtures, self.rng
        if kind == "rows":
            return self._rows(np.sort(rng.choice(plain.shape[0], mixtures, replace=False)))
        centres, _ = kmeans_plusplus(plain, mixtures, random_state=int(rng.integers(2**31)))
        for _ in range(LLOYD if kind == "k-means" else 0):
            clusters = _nearest(plain, centres)
            centres = _transposed(plain, clusters) / np.maximum(clusters.sum(axis=0), 1.0)[:, None]
        return np.asarray(centres, dtype=np.float64)


def _transposed(plain: Any, clusters: Array) -> Array:
    return np.asarray(plain.T @ clusters).T


def _chosen(found: Mixture, at: np.ndarray) -> Mixture:
    return Mixture(*(part[at] for part in found))


def _together(first: Mixture, second: Mixture) -> Mixture:
    return Mixture(*(np.concatenate(both) for both in zip(first, second, strict=True)))


def _nearest(plain: Features, centres: Array) -> Array:
    """1 for the nearest centre of each row, else 0 (n, M)."""
    distances = (centres**2).sum(axis=1) - 2.0 * times(plain, np.ascontiguousarray(centres.T))
    return np.asarray(np.eye(len(centres))[np.argmin(distances, axis=1)])
