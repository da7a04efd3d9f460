"""Rayleigh–Ritz EM: one pass for the products of new directions, everything else on the driver.

The loop is the same whether the products come from the data (solver krylov) or from a Gram matrix that one pass has
collected (solver covariance with many features).

The subspace of one view, whose likelihood is an eigenproblem, is that of the block Lanczos method.  With
A = Σ(x−μ)(x−μ)ᵀ, what the products of the newest directions lack is all that the products of any direction lack, so
that of AQ no more than the newest columns is kept, and QᵀAV of new directions V is known but for the newest rows.  A
subspace of several views or patterns (`rayleigh_ritz`), where noises differ, needs all products.  Source:
docs/models/solvers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.gram import DualSpace
from dlatent.gaussian.moments import Moments, PatternMoments, centred, view_variances
from dlatent.gaussian.products import PatternProducts, PatternSums
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators import tall
from dlatent.operators.tall import DROP, GrowingColumns, fresh_directions, orthonormal, principal_directions
from dlatent.solvers.diagnostics import noise_floors
from dlatent.solvers.moments.rayleigh_ritz import Subspace
from dlatent.solvers.moments.reduced_problem import COARSE, TOLERANCE, Warm, solve
from dlatent.solvers.solver import History, Iteration, Report
from dlatent.solvers.task import Task


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


FeatureSpace = KrylovSpace | Subspace
"""A space of directions of features."""


class Products(Protocol):
    """Products of the data with directions (D_v, b_v) of each view, for each pattern, and where asked the sums."""

    def __call__(self, directions: tuple[Array, ...], sums: bool = False) -> tuple[PatternProducts, ...]:
        """The products of each pattern."""


S = TypeVar("S", FeatureSpace, DualSpace)
"""A part of the features of each view in which the loadings lie, and what the likelihood there depends on: directions
of features, or combinations of samples."""


class SubspaceFit(Generic[S]):
    """The state of one Rayleigh–Ritz fit: the subspace, the last solution and the history."""

    def __init__(self, space: S, task: Task, report: Report | None) -> None:
        self.space: S = space
        self.task, self.growing = task, task.growing
        self.specification = task.specification
        self.counts = [part.samples for part in space.moments(task.specification).patterns]
        variances = self.variances()
        self.specification = task.specification.with_floors(noise_floors(task, variances, np.zeros(sum(space.ranks))))
        self.history = History(report)
        self.warm: Warm | None = None
        self.solved_ranks = (0,) * len(space.ranks)

    def variances(self) -> Array:
        """Mean variance per feature of each view."""
        sizes, patterns = self.space.ranks, self.specification.patterns
        return view_variances(centred(self.space.moments(self.specification), sizes, patterns), sizes, patterns)

    def sizes(self) -> Array:
        """Features of each view, also those outside of a specification that counts combinations of samples."""
        return np.asarray(self.space.ranks + self.space.moments(self.specification).spare_size)

    def solve(self, *, thorough: bool = False) -> float:
        """Solve the model inside the subspace and write a line of history; the log-likelihood."""
        ranks, moments = self.space.ranks, self.space.moments(self.specification)
        grown = tuple(new - old for new, old in zip(ranks, self.solved_ranks, strict=True))
        tolerance = TOLERANCE if thorough or self.space.exhausted else self._tolerance()
        solution, self.warm = solve(
            moments,
            self.specification.resized(ranks),
            warm=self.warm,
            ranks_grown=grown,
            thorough=thorough,
            tolerance=tolerance,
        )
        self.solved_ranks = ranks
        return solution.log_likelihood

    def _tolerance(self) -> float:
        """Solve much closer than the last gain; closer still is wasted on a subspace that will grow."""
        if len(self.history) < 2:
            return COARSE
        last = self.history[-1]
        return float(np.clip(1e-5 * abs(last.gain / last.log_likelihood), TOLERANCE, COARSE))

    def record(self, value: float) -> Iteration:
        """Add a line of history with the estimated relative distance to the optimum."""
        last = self.history[-1] if len(self.history) > 1 else None
        # The first gain is that of random directions, far above the series that follows.
        before = float("nan") if len(self.history) == 2 or last is None else last.gain
        remaining = float("nan") if last is None else _remaining(value - last.log_likelihood, before)
        scale = max(abs(value), sum(self.counts))
        return self.history.add(value, remaining / scale, max(self.space.ranks[view] for view in self.growing))

    @property
    def solution(self) -> Parameters:
        """The current parameters inside the subspace, mean about the shift."""
        assert self.warm is not None
        return self.warm.parameters

    def directions(self, extra: int) -> tuple[Array, ...]:
        """Where the subspaces have to grow."""
        return self.space.growth(self.solution, self.specification, extra, first=len(self.history) == 1)

    def restart(self, width: int) -> None:
        """Thick restart: keep the loadings' span and the leading principal directions."""
        parameters, keep = self.solution, []
        slices = self.specification.resized(self.space.ranks).slices
        for view, (rank, at) in enumerate(zip(self.space.ranks, slices, strict=True)):
            if view not in self.growing or rank <= width:
                keep.append(np.eye(rank))
                continue
            used = la.orth(parameters.loadings[at])
            keep.append(np.hstack([used, self.space.principal(used, width - used.shape[1], view)]))
        pieces = list(zip(keep, slices, strict=True))
        inside = Parameters(
            np.vstack([k.T @ parameters.loadings[at] for k, at in pieces]),
            np.concatenate([k.T @ parameters.mean[at] for k, at in pieces]),
            parameters.noise_variance,
        )
        assert self.warm is not None
        self.warm = Warm(inside, self.warm.noises, self.warm.converged)
        self.space = self.space.restarted(tuple(keep))
        self.solved_ranks = self.space.ranks


def _remaining(gain: float, before: float) -> float:
    """The rest of a geometric series of gains, a slow one where the gain before is not known."""
    if gain <= 0.0:
        return 0.0
    ratio = min(gain / before, 0.95) if before > 0 else 0.95
    return gain * ratio / (1.0 - ratio)


def search(
    products: Products,
    task: Task,
    shift: Array,
    report: Report | None = None,
    *,
    every_feature: bool = False,
    spare: int = 0,
) -> tuple[SubspaceFit[FeatureSpace], bool]:
    """Grow the subspaces until the log-likelihood is within the tolerance of its maximum; the state and whether it is.

    `shift` is that of the stacked features; with `every_feature` no view is seen through a subspace, nothing is left to
    grow.  `spare` features more than the directions of the first view have share its noise; their energy is in that of
    the sums.
    """
    specification, rng = task.specification, np.random.default_rng(task.random_state)
    # Random directions of the views that grow, all of the others.
    first = tuple(
        first_directions(size, specification.n_components, rng)
        if view in task.growing and not every_feature
        else np.eye(size)
        for view, size in enumerate(specification.sizes)
    )
    first_products = products(first, True)
    space: FeatureSpace
    if specification.single:
        space = KrylovSpace.begin(first[0], first_products[0], shift, spare)
    else:
        space = Subspace.begin(specification.patterns, first, first_products, shift, spare)
    state: SubspaceFit[FeatureSpace] = SubspaceFit(space, task, report)
    return state, grow(state, products)


def first_directions(size: int, n_components: int, rng: np.random.Generator) -> Array:
    """Random orthonormal directions (size, b) for the first pass, or all where these are few."""
    width = min(size, fresh_directions(n_components))
    if size <= 2 * width:
        return np.eye(size)
    return orthonormal(rng.standard_normal((size, width)))


def grow(state: SubspaceFit[S], products: Callable[[tuple[Array, ...]], Any]) -> bool:
    """Let the space of a fit grow by the products of one pass at a time; whether the maximum is reached."""
    task, k = state.task, state.specification.n_components
    width = fresh_directions(k)
    most = max(task.max_rank, 3 * width)
    while True:
        line = state.record(state.solve())
        exhausted = state.space.exhausted
        if exhausted or line.remaining <= task.tol:
            # Of one view the problem inside is an eigenproblem, whose solution no other start can better.
            improved = line.log_likelihood if state.specification.single else state.solve(thorough=True)
            met = improved <= line.log_likelihood + task.tol * max(abs(improved), 1.0)
            if improved > line.log_likelihood:
                left = line.remaining if met else float("nan")
                state.history[-1] = Iteration(line.iteration, improved, line.gain, left, line.rank)
            if met or exhausted:
                return True
        if len(state.history) >= task.max_iter:
            return False
        if any(state.space.ranks[view] + width > most for view in state.growing):
            state.restart(most // 2)
        fresh = state.directions(width - k)
        if not any(v.shape[1] for v in fresh):
            return True
        state.space = state.space.extended(fresh, products(fresh), most)
