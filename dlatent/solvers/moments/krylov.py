"""The subspace of one view whose likelihood is an eigenproblem: the block Lanczos method.

With A = Σ(x−μ)(x−μ)ᵀ, what the products of the newest directions lack is all that the products of any direction lack,
so that of AQ no more than the newest columns is kept, and QᵀAV of new directions V is known but for the newest rows.
A subspace of several views or patterns (`rayleigh_ritz`), where noises differ, needs all products.  Source:
docs/models/solvers.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.products import PatternProducts, PatternSums
from dlatent.gaussian.specification import Specification
from dlatent.operators import tall
from dlatent.operators.tall import DROP, GrowingColumns, orthonormal, principal_directions


@dataclass(frozen=True)
class KrylovSpace:
    """Q (D, r), QᵀAQ (r, r), the products AV (D, b) of the newest directions, their coefficients QᵀAV (r, b), and how
    the part of AQ outside the span follows from that of AV: AQ = Q(QᵀAQ) + (AV − QQᵀAV)·`coupling`ᵀ (r, b).

    Where directions were dropped because they depend on others (not `complete`), the coupling lacks their part.
    `spare` is the number of further features, of which only the energy is known: it is in that of the sums.
    """

    columns: GrowingColumns
    inner: Array
    newest: Array
    inside: Array
    coupling: Array
    sums: PatternSums
    shift: Array
    spare: int = 0
    complete: bool = True

    @classmethod
    def begin(cls, directions: Array, products: PatternProducts, shift: Array, spare: int = 0) -> Self:
        """The subspace of the first directions (D, b), orthonormal, after the pass that asked for the sums too."""
        assert products.sums is not None
        product = _centred(products.product[0], directions, products.sums)
        inner = _corner(directions, product)
        return cls(
            GrowingColumns.of(directions), inner, product, inner, np.eye(len(inner)), products.sums, shift, spare
        )

    @property
    def basis(self) -> Array:
        """Q (D, r)."""
        return self.columns.matrix

    @property
    def ranks(self) -> tuple[int, ...]:
        """Width of the subspace, r."""
        return (int(self.basis.shape[1]),)

    @property
    def samples(self) -> float:
        """Number of samples."""
        return self.sums.samples

    @property
    def exhausted(self) -> bool:
        """Whether no other direction is left."""
        return self.ranks == (len(self.basis),)

    @property
    def offset(self) -> Array:
        """Mean relative to the shift (D,)."""
        return np.asarray(self.sums.total / self.samples)

    def extended(
        self, directions: Sequence[Array], products: tuple[PatternProducts, ...], most: int | None = None
    ) -> Self:
        """With more directions V (D, b), those of `growth`, and their products; O(D b²), `most` is the largest r."""
        (fresh,), (products_of,) = directions, products
        product = _centred(products_of.product[0], fresh, self.sums)
        complete = self.complete and fresh.shape[1] == self.newest.shape[1]
        side = self.coupling @ tall.inner(self.newest, fresh) if complete else tall.inner(self.basis, product)
        corner = _corner(fresh, product)
        return replace(
            self,
            columns=self.columns.appended(fresh, most),
            inner=np.block([[self.inner, side], [side.T, corner]]),
            newest=product,
            inside=np.vstack([side, corner]),
            coupling=np.vstack([np.zeros_like(side), np.eye(len(corner))]),
            complete=complete,
        )

    def restarted(self, keep: Sequence[Array]) -> Self:
        """Thick restart: the subspace Q·keep for orthonormal `keep` (r, r') that spans eigenvectors of QᵀAQ, as those
        of the loadings and the principal directions do; with no access to the data."""
        (kept,) = keep
        # All that is lacking still is what lies outside of the span of before; of what vanishes there rounding is left.
        newest = tall.without(self.newest.T, self.basis, self.inside).T
        vanishing = la.norm(newest, axis=0) <= DROP * la.norm(self.newest, axis=0)
        newest[:, vanishing] = 0.0
        basis = tall.product(self.basis, kept)
        inner = kept.T @ self.inner @ kept
        return replace(
            self,
            columns=GrowingColumns.of(basis),
            inner=(inner + inner.T) / 2,
            newest=newest,
            inside=tall.inner(basis, newest),
            coupling=kept.T @ self.coupling,
            complete=self.complete and not vanishing.any(),
        )

    def moments(self, specification: Specification) -> Moments:
        """Moments of Qᵀ(x−μ), with the energy outside."""
        (rank,) = self.ranks
        size = len(self.basis) - rank + self.spare
        outside = float(self.sums.energy[0]) - self.samples * float(self.offset @ self.offset)
        outside -= float(np.trace(self.inner))
        pattern = PatternMoments(self.samples, np.zeros(rank), self.inner)
        return Moments(
            (pattern,), np.zeros(rank), np.array([float(size)]), np.array([max(outside, 0.0) if size else 0.0])
        )

    def principal(self, loadings: Array, count: int, view: int = 0) -> Array:
        """The leading principal directions (r, count) outside the span of the loadings (r, K)."""
        return principal_directions(self.inner, loadings, count)

    def growth(
        self, parameters: Parameters, specification: Specification, extra: int, *, first: bool
    ) -> tuple[Array, ...]:
        """Where the subspace has to grow, orthonormal (D, b): the part of AV outside, of which the gradient of the
        likelihood at any loadings inside, and what principal directions lack, are combinations."""
        return (orthonormal(self.newest, self.basis, self.inside),)

    def lifted(self, parameters: Parameters) -> Parameters:
        """Parameters of the features (mean about zero) from those inside (mean about that of the data)."""
        mean = self.shift + self.offset + self.basis @ parameters.mean
        return Parameters(tall.product(self.basis, parameters.loadings), mean, parameters.noise_variance)


def _centred(product: Array, directions: Array, sums: PatternSums) -> Array:
    """AV (D, b) from products about the shift, Σ(x−s)(x−s)ᵀV."""
    total = sums.total / sums.samples
    return tall.without(product.T, sums.total[:, None], (total @ directions)[None]).T


def _corner(directions: Array, product: Array) -> Array:
    """VᵀAV (b, b), symmetric."""
    corner = tall.inner(directions, product)
    return (corner + corner.T) / 2
