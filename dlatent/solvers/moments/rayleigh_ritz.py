"""The model inside a subspace of the features of each view, and where the subspaces have to grow.

With loadings W_v = Q_v C_v restricted to the spans of Q_v (D_v, r_v), orthonormal, the likelihood depends on the data
only through small moments of Q_vᵀx_v and the energy outside.  Keeping P = Σ xx_vᵀQ_v per pattern, those moments, and
the gradient of the likelihood at any C, cost no further access to the data.  Source: docs/models/solvers.md; for one
pattern and one view see `krylov`.  Targets are a view whose subspace is the whole of it from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.expectation import pattern_projection
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.products import PatternProducts, PatternSums
from dlatent.gaussian.specification import Parameters, Specification, slices_of
from dlatent.operators import tall
from dlatent.operators.tall import GrowingColumns, orthonormal, principal_directions


@dataclass(frozen=True)
class Subspace:
    """Q_v (D_v, r_v) of each view v, and for each pattern and view of it P = Σ(x−s)((x_v−s_v)ᵀQ_v) (D_p, r_v); for each
    pattern Σ Qᵀ(x−s)(x−s)ᵀQ (r_p, r_p) as blocks by views, Σ Qᵀ(x−s) (r_p,) by views, and the sums; s is the shift of
    the stacked features.

    `spare` is the number of further features of the first view, of which only the energy is known: it is in that of
    the sums.
    """

    patterns: tuple[tuple[int, ...], ...]
    basis_columns: tuple[GrowingColumns, ...]
    product_columns: tuple[tuple[GrowingColumns, ...], ...]
    inner: tuple[tuple[tuple[Array, ...], ...], ...]
    totals: tuple[tuple[Array, ...], ...]
    sums: tuple[PatternSums, ...]
    shift: Array
    spare: int = 0

    @classmethod
    def begin(
        cls,
        patterns: tuple[tuple[int, ...], ...],
        directions: Sequence[Array],
        first_products: tuple[PatternProducts, ...],
        shift: Array,
        spare: int = 0,
    ) -> Self:
        """The subspace after the first pass, which asked for the sums too."""
        sums = tuple(part.sums for part in first_products if part.sums is not None)
        basis = tuple(map(GrowingColumns.of, directions))
        products = tuple(tuple(map(GrowingColumns.of, part.product)) for part in first_products)
        inner = tuple(
            _corners([directions[view] for view in pattern], part.product)
            for pattern, part in zip(patterns, first_products, strict=True)
        )
        totals = tuple(
            _inner_totals(pattern, directions, part.total) for pattern, part in zip(patterns, sums, strict=True)
        )
        return cls(patterns, basis, products, inner, totals, sums, shift, spare)

    @property
    def basis(self) -> tuple[Array, ...]:
        """Q_v of each view."""
        return tuple(columns.matrix for columns in self.basis_columns)

    @property
    def products(self) -> tuple[tuple[Array, ...], ...]:
        """P of each pattern and view of it."""
        return tuple(tuple(columns.matrix for columns in columns_of) for columns_of in self.product_columns)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Width of the subspace of each view."""
        return tuple(int(q.shape[1]) for q in self.basis)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features of each view."""
        return tuple(len(q) for q in self.basis)

    def rows(self, pattern: int, view: int) -> slice:
        """Where the features of a view are among those of a pattern."""
        views = self.patterns[pattern]
        start = sum(self.sizes[other] for other in views[: views.index(view)])
        return slice(start, start + self.sizes[view])

    def having(self, view: int) -> list[tuple[int, int]]:
        """The patterns that have a view, and its place in each."""
        return [(p, pattern.index(view)) for p, pattern in enumerate(self.patterns) if view in pattern]

    def count(self, view: int) -> float:
        """Number of samples that have a view."""
        return sum(self.sums[p].samples for p, _ in self.having(view))

    def offset(self, view: int) -> Array:
        """Mean of a view over the samples that have it, relative to the shift (D_v,)."""
        total = sum(self.sums[p].total[self.rows(p, view)] for p, _ in self.having(view))
        return np.asarray(total / self.count(view))

    def inner_offset(self, view: int) -> Array:
        """Mean of a view in the coordinates of the subspace, Q_vᵀ·offset (r_v,)."""
        return np.asarray(sum(self.totals[p][i] for p, i in self.having(view)) / self.count(view))

    def inside(self, view: int) -> Array:
        """Σ Q_vᵀ(x_v−s_v)(x_v−s_v)ᵀQ_v (r_v, r_v) over the samples that have a view."""
        return np.asarray(sum(self.inner[p][i][i] for p, i in self.having(view)))

    def crossing(self, view: int, other: int) -> list[Array]:
        """Σ(x_v−s_v)((x_w−s_w)ᵀQ_w) (D_v, r_w) of each pattern that has both views."""
        both = [p for p, pattern in enumerate(self.patterns) if view in pattern and other in pattern]
        return [self.products[p][self.patterns[p].index(other)][self.rows(p, view)] for p in both]

    @property
    def exhausted(self) -> bool:
        """Whether no other direction is left."""
        return self.ranks == self.sizes

    def extended(
        self, directions: Sequence[Array], products: tuple[PatternProducts, ...], most: int | None = None
    ) -> Self:
        """With more directions, orthonormal and orthogonal to Q_v, and their products; the inner products grow by what
        is new, O(D r b).  `most` is the widest that a view's subspace may become."""
        inner = []
        for pattern, old, new in zip(self.patterns, self.inner, products, strict=True):
            at = slices_of(self.sizes[view] for view in pattern)
            corner = _corners([directions[view] for view in pattern], new.product)
            views = range(len(pattern))
            side = [[tall.inner(self.basis[pattern[w]], new.product[v][at[w]]) for v in views] for w in views]
            inner.append(
                tuple(
                    tuple(np.block([[old[w][v], side[w][v]], [side[v][w].T, corner[w][v]]]) for v in views)
                    for w in views
                )
            )
        return replace(
            self,
            basis_columns=tuple(q.appended(v, most) for q, v in zip(self.basis_columns, directions, strict=True)),
            product_columns=tuple(
                tuple(a.appended(b, most) for a, b in zip(old, new.product, strict=True))
                for old, new in zip(self.product_columns, products, strict=True)
            ),
            inner=tuple(inner),
            totals=tuple(
                tuple(map(np.append, old, _inner_totals(pattern, directions, part.total)))
                for pattern, old, part in zip(self.patterns, self.totals, self.sums, strict=True)
            ),
        )

    def restarted(self, keep: Sequence[Array]) -> Self:
        """Thick restart: the subspaces Q_v·keep_v for orthonormal `keep` (r_v, r_v'), with no access to the data."""
        kept = [[keep[view] for view in pattern] for pattern in self.patterns]
        return replace(
            self,
            basis_columns=tuple(GrowingColumns.of(tall.product(q, k)) for q, k in zip(self.basis, keep, strict=True)),
            product_columns=tuple(
                tuple(GrowingColumns.of(tall.product(p, k)) for p, k in zip(old, ks, strict=True))
                for old, ks in zip(self.products, kept, strict=True)
            ),
            inner=tuple(
                tuple(tuple(ks[w].T @ old[w][v] @ ks[v] for v in range(len(ks))) for w in range(len(ks)))
                for old, ks in zip(self.inner, kept, strict=True)
            ),
            totals=tuple(
                tuple(k.T @ t for k, t in zip(ks, old, strict=True)) for old, ks in zip(self.totals, kept, strict=True)
            ),
        )

    def moments(self, specification: Specification) -> Moments:
        """Moments of Qᵀx per pattern about the shift, with the energy of each view outside its span."""
        patterns = []
        for inner, totals, sums in zip(self.inner, self.totals, self.sums, strict=True):
            gram = np.block([list(row) for row in inner])
            patterns.append(PatternMoments(sums.samples, np.concatenate(totals), (gram + gram.T) / 2))
        views = range(len(self.basis))
        spare_size, spare_energy = np.zeros(len(views)), np.zeros(len(views))
        for view in views:
            spare_size[view] = self.sizes[view] - self.ranks[view] + (0 if view else self.spare)
            if spare_size[view]:
                spare_energy[view] = max(self._outside(view), 0.0)
        return Moments(tuple(patterns), np.zeros(sum(self.ranks)), spare_size, spare_energy)

    def _outside(self, view: int) -> float:
        """Σ of squares of a view about its mean, outside the span."""
        offset, inside = self.offset(view), self.inner_offset(view)
        energy = sum(float(self.sums[p].energy[place]) for p, place in self.having(view))
        energy -= float(np.trace(self.inside(view)))
        return energy - self.count(view) * float(offset @ offset - inside @ inside)

    def principal(self, loadings: Array, count: int, view: int = 0) -> Array:
        """The `count` leading principal directions (r_v, count) of a view's subspace, outside the span of its loadings
        (r_v, K)."""
        offset = self.inner_offset(view)
        return principal_directions(self.inside(view) - self.count(view) * np.outer(offset, offset), loadings, count)

    def lifted(self, parameters: Parameters) -> Parameters:
        """Parameters of the stacked features (about zero) from those inside (mean about the shift).

        Outside the span the loadings are zero, so the best mean there is the mean of the data.
        """
        loadings, mean = [], []
        shifts = np.split(self.shift, np.cumsum(self.sizes)[:-1])
        for view, at in enumerate(slices_of(self.ranks)):
            q, offset = self.basis[view], self.offset(view)
            mean.append(shifts[view] + offset + q @ (parameters.mean[at] - self.inner_offset(view)))
            loadings.append(tall.product(q, parameters.loadings[at]))
        return Parameters(np.vstack(loadings), np.concatenate(mean), parameters.noise_variance)

    def growth(
        self, parameters: Parameters, specification: Specification, extra: int, *, first: bool
    ) -> tuple[Array, ...]:
        """Where the subspaces have to grow, orthonormal (D_v, b_v): the gradient's part outside each, `extra` Krylov
        directions, and at first what the view shares with others."""
        slices = specification.resized(self.ranks).slices
        return tuple(
            self._growth(view, at, parameters, specification, extra, first=first) for view, at in enumerate(slices)
        )

    def _growth(
        self, view: int, at: slice, parameters: Parameters, specification: Specification, extra: int, *, first: bool
    ) -> Array:
        if self.ranks[view] == self.sizes[view]:
            return np.zeros((self.sizes[view], 0))
        candidates = [gradient_block(self, parameters, specification, view)]
        candidates.append(ritz_residuals(self, parameters.loadings[at], extra, view))
        if first:
            others = (other for other in range(len(self.basis)) if other != view)
            candidates += [cross for other in others for cross in self.crossing(view, other)]
        return orthonormal(np.hstack(candidates), self.basis[view])


def _inner_totals(pattern: Sequence[int], directions: Sequence[Array], total: Array) -> tuple[Array, ...]:
    """V_vᵀ Σ(x_v−s_v) (b_v,) of each view of a pattern."""
    chosen = [directions[view] for view in pattern]
    return tuple(v.T @ total[rows] for v, rows in zip(chosen, slices_of(map(len, chosen)), strict=True))


def _corners(directions: Sequence[Array], products: Sequence[Array]) -> tuple[tuple[Array, ...], ...]:
    """V_wᵀP_v for all pairs of views, symmetric as a whole."""
    at = slices_of(map(len, directions))
    blocks = [[tall.inner(v, p[rows]) for p in products] for v, rows in zip(directions, at, strict=True)]
    views = range(len(directions))
    return tuple(tuple((blocks[w][v] + blocks[v][w].T) / 2 for v in views) for w in views)


def gradient_block(space: Subspace, parameters: Parameters, specification: Specification, view: int) -> Array:
    """Σ (x_v−μ_v) E[z]ᵀ (D_v, K) at reduced parameters, over the samples that have a view: the M-step's new loadings
    up to a K×K factor.  No data access."""
    reduced = specification.resized(space.ranks)
    block = np.zeros((space.sizes[view], specification.n_components))
    offset = space.offset(view)
    for pattern, _ in space.having(view):
        views = space.patterns[pattern]
        b = pattern_projection(parameters, reduced, views).coefficients
        mean, rows = parameters.mean[reduced.features_of(views)], space.rows(pattern, view)
        for other, at in zip(space.products[pattern], slices_of(space.ranks[v] for v in views), strict=True):
            block += other[rows] @ b[:, at].T
        block -= np.outer(space.sums[pattern].total[rows], b @ mean)
        block -= np.outer(offset, b @ (np.concatenate(space.totals[pattern]) - space.sums[pattern].samples * mean))
    return block


def ritz_residuals(space: Subspace, loadings: Array, count: int, view: int = 0) -> Array:
    """XᵀXu (D_v, count) for the leading principal directions u of a view that the loadings do not use yet. No data
    access."""
    chosen, offset = space.principal(loadings, count, view), space.offset(view)
    product = np.asarray(sum(part @ chosen for part in space.crossing(view, view)))
    return product - space.count(view) * np.outer(offset, space.inner_offset(view) @ chosen)
