"""The model in the span of the samples: loadings as combinations of centred features, W = Φᵀ A, known by a kernel.

The likelihood wants W in the span of the samples' features (N of them, whatever their dimension M).  With A
restricted to the span of E (N, r), everything follows from T = K̃E, K̃ = ΦΦᵀ the centred kernel: with a frame S for
which SᵀEᵀK̃ES = I, the directions ΦᵀES are orthonormal, the coordinates of the samples in them are the rows of TS, and
of the other M − r' dimensions only the energy tr K̃ − ‖TS‖² is left.  So what `rayleigh_ritz` does with directions of
features, this does with combinations of samples (SPPCA (25): the features that a kernel does not show count in the
noise).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array, Integers
from dlatent.errors import DataError
from dlatent.gaussian.canonical import canonical, column_signs
from dlatent.gaussian.expectation import LOG_2PI, pattern_projection
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import top_eigenvalues
from dlatent.operators.tall import GrowingColumns, orthonormal, principal_directions

NEGLIGIBLE = 1e-11
"""A direction with less than this fraction of the largest energy is rounding."""
INDEFINITE = 1e-6
"""A kernel with an eigenvalue below minus this fraction of the largest is none."""


class DualData(NamedTuple):
    """The data of a dual fit beside products with K̃: the rows of each pattern, the targets (N, L), centred (zero where
    missing; L = 0 without any), the energy tr K̃, and the number M of features φ."""

    rows: tuple[Integers, ...]
    targets: Array
    energy: float
    dimension: int

    @property
    def samples(self) -> int:
        """Number of samples N."""
        return len(self.targets)


def dual_data(targets: Array | None, specification: Specification, samples: int, dimension: int) -> DualData:
    """The rows of each pattern from the targets (N, L), NaN where missing; the energy is not known yet."""
    if targets is None:
        return DualData((np.arange(samples),), np.zeros((samples, 0)), 0.0, dimension)
    present = ~np.isnan(targets[:, 0])
    rows = tuple(np.flatnonzero(present == (1 in pattern)) for pattern in specification.patterns)
    return DualData(rows, np.where(present[:, None], targets, 0.0), 0.0, dimension)


@dataclass(frozen=True)
class DualSpace:
    """E (N, r) orthonormal, T = K̃E (N, r), EᵀT (r, r), the frame S (r, r'), and what is known of the data."""

    basis_columns: GrowingColumns
    product_columns: GrowingColumns
    inner: Array
    frame: Array
    data: DualData

    @classmethod
    def begin(cls, directions: Array, products: Array, data: DualData, least: int = 0) -> Self:
        """The space of the first directions (N, b) from their products with K̃.

        Where the samples span fewer than `least` dimensions, empty ones are added, for components that vanish.
        """
        nothing = GrowingColumns.of(np.zeros((len(directions), 0)))
        empty = cls(nothing, nothing, np.zeros((0, 0)), np.zeros((0, 0)), data)
        space = empty.extended((directions,), products)
        lacking = np.zeros((space.frame.shape[0], max(least - space.rank, 0)))
        return replace(space, frame=np.hstack([space.frame, lacking]))

    @property
    def basis(self) -> Array:
        """E (N, r)."""
        return self.basis_columns.matrix

    @property
    def products(self) -> Array:
        """T (N, r)."""
        return self.product_columns.matrix

    @property
    def rank(self) -> int:
        """Dimensions of features that the space spans, r'."""
        return int(self.frame.shape[1])

    @property
    def ranks(self) -> tuple[int, ...]:
        """Dimensions for each view: targets are whole."""
        targets = self.data.targets.shape[1]
        return (self.rank, targets) if targets else (self.rank,)

    @property
    def exhausted(self) -> bool:
        """Whether no other combination of samples is left."""
        return bool(self.basis.shape[1] >= self.data.samples - 1)

    @property
    def coordinates(self) -> Array:
        """The samples in the orthonormal directions ΦᵀES, TS (N, r')."""
        return np.asarray(self.products @ self.frame)

    def extended(self, directions: Sequence[Array], products: Array, most: int | None = None) -> Self:
        """Add directions (N, b) of the first view, orthonormal and orthogonal to E, and their products with K̃; the old
        frame stays.  `most` is the largest r that there may be."""
        side = self.basis.T @ products
        inside = directions[0].T @ products
        inner = np.block([[self.inner, side], [side.T, (inside + inside.T) / 2]])
        return replace(
            self,
            basis_columns=self.basis_columns.appended(directions[0], most),
            product_columns=self.product_columns.appended(products, most),
            inner=inner,
            frame=extended_frame(self.frame, inner, self.data.dimension),
        )

    def restarted(self, keep: Sequence[Array]) -> Self:
        """Thick restart: the space of the orthonormal directions of features ΦᵀES·keep, keep (r', k) of the first
        view."""
        combination = self.frame @ keep[0]
        # In an orthonormal basis of samples again, so that new directions stay clear of the old ones.
        left, upper = np.linalg.qr(combination)
        inner = left.T @ self.inner @ left
        return replace(
            self,
            basis_columns=GrowingColumns.of(self.basis @ left),
            product_columns=GrowingColumns.of(self.products @ left),
            inner=inner,
            frame=upper,
        )

    def moments(self, specification: Specification) -> Moments:
        """Moments of the coordinates and the targets per pattern, with the energy and number of all other features."""
        rows = self.coordinates
        patterns = []
        for pattern, at in zip(specification.patterns, self.data.rows, strict=True):
            seen = rows[at]
            if 1 in pattern:
                seen = np.hstack([seen, self.data.targets[at]])
            patterns.append(PatternMoments(float(len(at)), seen.sum(axis=0), seen.T @ seen))
        views = len(specification.views)
        spare_size, spare_energy = np.zeros(views), np.zeros(views)
        flat = rows.ravel()
        require_dimension(self.rank, self.data.dimension)
        spare_size[0] = self.data.dimension - self.rank
        spare_energy[0] = max(self.data.energy - float(flat @ flat), 0.0)
        width = self.rank + sum(specification.sizes[1:])
        return Moments(tuple(patterns), np.zeros(width), spare_size, spare_energy)

    def principal(self, loadings: Array, count: int, view: int = 0) -> Array:
        """The `count` leading principal directions (r', count) outside the span of the loadings (r', K); only the
        first view grows."""
        rows = self.coordinates
        return principal_directions(rows.T @ rows, loadings, count)

    def growth(
        self, parameters: Parameters, specification: Specification, extra: int, *, first: bool
    ) -> tuple[Array, ...]:
        """Where the space has to grow, orthonormal (N, b): the gradient's combination of samples, E[z], and K̃ times
        the leading principal combinations that the loadings do not use yet."""
        rows = self.coordinates
        candidates = [posterior_rows(rows, self.data, parameters, specification)]
        candidates.append(rows @ principal_directions(rows.T @ rows, parameters.loadings[: self.rank], extra))
        if first:
            candidates.append(self.data.targets)
        combinations = np.hstack(candidates)
        return (orthonormal(combinations - combinations.mean(axis=0), self.basis),)


def extended_frame(frame: Array, inner: Array, dimension: int) -> Array:
    """A frame S (r, r') with SᵀGS = I for the Gram matrix G (r, r), whose first columns are those of the old frame.

    Columns beyond the `dimension` of the features are rounding, as long as they are small.

    Errors: DataError where G has a clearly negative eigenvalue.
    """
    old, kept = frame.shape
    size = len(inner)
    start = np.vstack([frame, np.zeros((size - old, kept))])
    fresh = np.vstack([np.zeros((old, size - old)), np.eye(size - old)])
    for _ in range(2):
        fresh = fresh - start @ (start.T @ (inner @ fresh))
    rest = fresh.T @ inner @ fresh
    values, vectors = la.eigh((rest + rest.T) / 2)
    largest = float(top_eigenvalues(inner, 1)[0])
    require_semidefinite(values[0], largest)
    used = values > NEGLIGIBLE * largest
    if kept + used.sum() > dimension:
        used &= values > INDEFINITE * largest
    return np.hstack([start, (fresh @ vectors[:, used] / np.sqrt(values[used]))[:, ::-1]])


def require_semidefinite(lowest: float, largest: float) -> None:
    """Refuse a matrix that no features have for their inner products, by its extreme eigenvalues."""
    if lowest < -INDEFINITE * largest:
        raise DataError(
            f"the kernel is not positive semi-definite: it has an eigenvalue of about {lowest:.3g} beside "
            f"{largest:.3g}; take another kernel, or other parameters of it"
        )


def require_dimension(rank: int, dimension: int) -> None:
    """Refuse a number of features below that of the dimensions that the samples span."""
    if rank > dimension:
        raise DataError(
            f"the features of the samples span {rank} dimensions, more than the {dimension} that feature_dimension "
            "allows; leave it None, or give a larger number"
        )


def leading(kernel: Array, count: int, dimension: int) -> tuple[Array, Array]:
    """The leading eigenvectors (N, count) of a centred kernel, and their products with it: all that one view needs.

    Errors: DataError where the kernel has a clearly negative eigenvalue, or a higher rank than features.
    """
    values, vectors = la.eigh(kernel)
    require_semidefinite(float(values[0]), float(values[-1]))
    require_dimension(int((values > NEGLIGIBLE * values[-1]).sum()), dimension)
    directions = np.ascontiguousarray(vectors[:, ::-1][:, :count])
    return directions, directions * values[::-1][:count]


def posterior_rows(coordinates: Array, data: DualData, parameters: Parameters, specification: Specification) -> Array:
    """E[z | φ(x)], and E[z | φ(x), y] where labelled (N, K), from coordinates (N, r')."""
    scores = np.empty((data.samples, specification.n_components))
    width = coordinates.shape[1]
    reduced = specification.resized((width, *specification.sizes[1:]))
    for pattern, rows in zip(specification.patterns, data.rows, strict=True):
        about = pattern_projection(parameters, reduced, pattern)
        seen = coordinates[rows]
        if 1 in pattern:
            seen = np.hstack([seen, data.targets[rows]])
        at = reduced.features_of(pattern)
        scores[rows] = (seen - parameters.mean[at]) @ about.coefficients.T
    return scores


class DualSolution(NamedTuple):
    """A fitted model by samples: directions Φᵀ · `combinations` (N, K), orthonormal, and the model in them.

    `parameters` are those of the K coordinates and the targets, means about the mean of the features; the loadings are
    canonical, with the sign for which the entry of largest magnitude of each column of A = combinations · loadings is
    positive.  `span` (r, K) are the directions in the coordinates that the fit worked in.
    """

    combinations: Array
    parameters: Parameters
    span: Array


def dual_solution(space: DualSpace, parameters: Parameters, specification: Specification) -> DualSolution:
    """The model in the span of its loadings, from parameters in the coordinates of a space."""
    frame = space.basis @ space.frame
    # Φ is centred: the mean combination is nothing but rounding.
    return span_solution(frame - frame.mean(axis=0), parameters, specification)


def span_solution(frame: Array, parameters: Parameters, specification: Specification) -> DualSolution:
    """The model in the span of its loadings, from parameters in the coordinates of orthonormal directions Φᵀ · `frame`
    (N, r)."""
    rank, k = frame.shape[1], specification.n_components
    span, _ = la.qr(parameters.loadings[:rank], mode="economic")
    combinations = frame @ span
    inside = Parameters(
        np.vstack([span.T @ parameters.loadings[:rank], parameters.loadings[rank:]]),
        np.concatenate([span.T @ parameters.mean[:rank], parameters.mean[rank:]]),
        parameters.noise_variance,
    )
    inside = canonical(inside, specification.resized((k, *specification.sizes[1:])))
    signs = column_signs(combinations @ inside.loadings[:k])
    return DualSolution(combinations, inside._replace(loadings=inside.loadings * signs), np.asarray(span))


def outside_log_likelihoods(outside: Array, noise: float, features: int) -> Array:
    """The log p of the features of each row outside the span of the loadings: isotropic noise (n,).

    Parameters: `outside` (n,), the squared distance from the mean there; `features`, their number M − K.
    """
    return np.asarray(-0.5 * (features * (LOG_2PI + np.log(noise)) + outside / noise))
