"""Samples in a graph: NH takes the place of the scatter matrix, and where some have no targets two Gram matrices do.

Every product with the data is a pass with neighbour sums (see `graph.statistics`); the loops are those of all solvers.

With T = [X Y] ~ N(1μᵀ, Δ⁻¹, C), labelled samples L and all others U, rows of Y given X covary by Δ⁻¹ too, so that

    p(X, Y_L) = p([X_L Y_L]; Δ̃) · p(X; Δ) / p(X_L; Δ̃),      Δ̃ = Δ_LL − Δ_LU Δ_UU⁻¹ Δ_UL,

where Δ̃ is the precision of the marginal of L.  The last two factors are the density of the |U| rows E = X_U − X̂_U
with the precision Δ_UU, where X̂_U = −Δ_UU⁻¹Δ_UL X_L is what the others say of them:

    tr C⁻¹[X_L Y_L]ᵀΔ̃[X_L Y_L] + tr C_x⁻¹EᵀΔ_UU E,      |L| and |U| samples,      ½ [(D + L) log|Δ| − L log|Δ_UU|]

This is semi-supervised PPCA with two Gram matrices.  Means: 1̂_U and 1_U − 1̂_U stand where X̂_U and E do.  The mean of X
is that of all samples, μ_x = XᵀΔ1 / 1ᵀΔ1, and of Y it is the regression of the labelled ones taken to μ_x,
μ_y = ȳ_L + C_yx C_x⁻¹ (μ_x − x̄_L).  Both follow from no more than W, σ_x², σ_y²; put into the likelihood they leave the
Gram matrices about x̄_L, ȳ_L and about μ_x.  Own derivation (docs/models/relational.md).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Rows
from dlatent.errors import DataError
from dlatent.gaussian.expectation import expect_moments, pattern_projection
from dlatent.gaussian.maximisation import maximise
from dlatent.gaussian.moments import Moments, PatternMoments, recentred
from dlatent.gaussian.products import PatternProducts
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.graph_precision import NULL, completed
from dlatent.operators.sample_precision import Precision
from dlatent.operators.sparse import far_mean
from dlatent.passes import Pass, Run
from dlatent.solvers.diagnostics import make_solution, noise_floors
from dlatent.solvers.em import em_start, stacked_shift, textbook_em
from dlatent.solvers.graph.statistics import (
    CentredSums,
    GraphProducts,
    GraphRequest,
    GraphSums,
    centred_product,
    energy_rows,
    exchange_of,
    expect_graph,
    fold_energy,
    fold_moments,
    fold_products,
    graph_moments,
    graph_sums,
    moment_rows,
    moved_products,
    pattern_products,
    product_rows,
    sums_about,
)
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import History, Report, Solution
from dlatent.solvers.task import Task

S = TypeVar("S")


class GraphSamples:
    """Samples in a graph: products a few columns at a time, as the plan says."""

    def __init__(self, task: Task, plan: Plan, shift: Array, run: Run) -> None:
        assert task.relation is not None
        self._task, self._relation, self._plan, self._run = task, task.relation, plan, run
        self._shift, self._refuse = shift, task.refuse_zero_rows
        self._sums: GraphSums | None = None
        self._apart: Array | None = None

    @property
    def known(self) -> GraphSums:
        """The sums of the first pass."""
        assert self._sums is not None
        return self._sums

    def products(self, directions: tuple[Array, ...], sums: bool = False) -> tuple[PatternProducts, ...]:
        """NHV of each view, and where asked the sums about the weighted mean, which are kept."""
        energy = self._energy() if sums else 0.0
        parts = list(map(self._run, self._passes(directions[0], sums)))
        if sums:
            self._sums = graph_sums(parts[0], energy, self._relation.rank)
        product = centred_product(_side_by_side(parts), directions[0], self.known)
        if not self._relation.precision.squared:
            require_semidefinite(directions[0].T @ product, self.known.sums.energy)
        return (pattern_products(product, directions, self.known.sums, sums=sums),)

    def about(self, directions: Array, rest: Array, targets: Array) -> tuple[Array, CentredSums]:
        """(X−μ)ᵀΔ(X−μ)V and the sums, features about μ, which is the shift and the `rest` (D,), targets about `targets`
        (L,)."""
        energy = self._energy()
        parts = list(map(self._run, self._passes(directions, True)))
        joined = parts[0]._replace(product=_side_by_side(parts))
        moved, energy = moved_products(joined, energy, directions, rest)
        return moved.product, sums_about(moved, energy, self._relation.rank, targets)

    def moments(self) -> Moments:
        """NH itself, where the features are few; where some samples have no targets, the moments of both kinds."""
        if self.partly:
            moments_apart, self._apart = partly_labelled_moments(self.grams(), self._shift, self._task.specification)
            return moments_apart
        gram: Array = self._run(self._exchange(moment_rows, fold_moments, self._request(None, None, True), "moments"))
        moments = graph_moments(gram, self._shift, self._relation.rank)
        if not self._relation.precision.squared:
            require_semidefinite(moments.patterns[0].gram, float(np.trace(moments.patterns[0].gram)))
        return moments

    @property
    def partly(self) -> bool:
        """Whether some samples have no targets."""
        return len(self._task.specification.patterns) > 1

    def grams(self, targets: Array | None = None) -> PartlyLabelledGrams:
        """Gram matrices of labelled and unlabelled samples, features about the shift and targets about `targets`."""
        assert self._task.between is not None
        request = self._request(None, None, True)
        parts = self._run(Pass(block_moment_rows, request, combine=operator.add, cached=False, name="rows"))
        rows = np.concatenate([part for _, part in sorted(parts, key=operator.itemgetter(0))])
        if targets is not None:
            rows[:, len(self._shift) : -1] -= targets
        graph, precision = self._task.between.graph, self._relation.precision
        assert isinstance(precision, Precision)
        return partly_labelled_grams(rows, len(self._shift), graph.rows.load(0, graph.samples), precision)

    def log_likelihood(self, parameters: Parameters, specification: Specification) -> float:
        """The log-likelihood of all samples at parameters about the weighted mean, without ½ D log|Δ|."""
        (products,) = self.products(_loadings(parameters, specification), False)
        return expect_graph(products, parameters, self.known.sums, specification).log_likelihood

    def about_zero(self, parameters: Parameters) -> Parameters:
        """The parameters with their mean about zero; it was about the weighted one."""
        return parameters.moved(self.known.offset)

    def em(self, start: Parameters | None, report: Report | None) -> Solution:
        """EM (PRPCA (19)–(22), with the new W in (22), errata 15), one pass over the data and edges per iteration."""
        task, specification, width = self._task, self._task.specification, len(self._shift)
        self.products((np.zeros((width, 0)),), True)
        sums, offset = self.known.sums, self.known.offset
        energies = [sums.energy / (sums.samples * width)]
        energies += [float(np.trace(sums.target_gram)) / (sums.samples * n) for n in specification.sizes[1:]]
        variances = np.array(energies)
        mean = offset + stacked_shift(self._shift, specification)
        floored = specification.with_floors(noise_floors(task, variances, mean))

        def step(parameters: Parameters) -> tuple[Parameters, float]:
            (products,) = self.products(_loadings(parameters, specification), False)
            latent = expect_graph(products, parameters, sums, floored)
            return maximise((latent,), floored, expand=False), latent.log_likelihood

        start = em_start(floored, variances, task.random_state) if start is None else start
        history = History(report)
        last, _, converged = textbook_em(step, start, task, history)
        final = last._replace(mean=mean)
        return make_solution(final, floored, history, task, variances, [sums.samples], converged=converged)

    def concluded(self, solution: Solution) -> Solution:
        """The solution of all samples, which the rank of Δ stands for in the sums."""
        if self._apart is not None:
            parameters = with_target_mean(solution.parameters, self._apart, self._task.specification)
            return replace(solution, parameters=parameters)
        if self._sums is not None and not self._task.textbook and not self._relation.precision.squared:
            (loadings, _, noise), sums = solution.parameters[:3], self._sums.sums
            explained = sums.samples * (float((loadings**2).sum()) + loadings.shape[1] * float(noise[0]))
            require_semidefinite(np.array([[sums.energy - explained]]), sums.energy)
        samples = self._task.data.samples
        return replace(solution, samples=samples, view_samples=tuple(samples for _ in solution.view_samples))

    def _passes(self, directions: Array, sums: bool) -> Iterator[Pass[GraphRequest, GraphProducts]]:
        """The passes that give (X−s)ᵀΔ(X−s)V a few columns at a time, the first with the sums where they are asked
        for."""
        width = self._plan.columns_at_once or max(directions.shape[1], 1)
        for start in range(0, max(directions.shape[1], 1), width):
            request = self._request(directions[:, start : start + width], None, sums and not start)
            yield self._exchange(product_rows, fold_products, request, "products", twice=True)

    def _energy(self) -> float:
        """tr (X−s)ᵀΔ(X−s): rows of features meet, some columns at a time, which no thin product can replace; asked for
        first, while there is no cache that would take the memory."""
        column_blocks, total = max(self._plan.column_blocks, 1), 0.0
        for first in range(column_blocks):
            # Every block of columns has columns from everywhere: the frequent words of a vocabulary often come first.
            request = self._request(None, slice(first, None, column_blocks), False)
            total += self._run(self._exchange(energy_rows, fold_energy, request, "energy", cached=column_blocks == 1))
        return total

    def _exchange(
        self,
        rows: Callable[[Block, GraphRequest], Rows],
        fold: Callable[[Block, GraphRequest], S],
        request: GraphRequest,
        name: str,
        *,
        twice: bool = False,
        cached: bool = True,
    ) -> Pass[GraphRequest, S]:
        """A pass in which rows go the hops of F, or twice as many to be multiplied by the features."""
        edges = exchange_of(rows, request.precision, twice=twice)
        return Pass(fold, request, exchange=edges, cached=cached, name=name)

    def _request(self, directions: Array | None, columns: slice | None, sums: bool) -> GraphRequest:
        return GraphRequest(self._relation.precision, self._shift, directions, columns, sums, self._refuse)


def require_semidefinite(inner: Array, total: float) -> None:
    """Refuse a Δ that gives some direction of the features a negative variance.

    Parameters: `inner`, NH in a subspace; `total`, its trace.
    Errors: DataError.
    """
    variances = np.asarray(la.eigvalsh(inner), dtype=np.float64) if inner.size else np.zeros(0)
    least = min(float(variances.min(initial=0.0)), total)
    if least < -NULL * float(np.abs(variances).max(initial=abs(total))):
        raise DataError(
            f"the precision is not positive semi-definite: it gives the features a variance of {least:.3g} in some "
            "direction, times the number of samples"
        )


def _loadings(parameters: Parameters, specification: Specification) -> tuple[Array, ...]:
    """The loadings of each view."""
    return tuple(parameters.loadings[at] for at in specification.slices)


def _side_by_side(parts: list[GraphProducts]) -> Array:
    """The columns of all passes."""
    return np.hstack([part.product for part in parts])


def graph_log_likelihood(task: Task, plan: Plan, parameters: Parameters, run: Run) -> float:
    """Log-likelihood of samples in a graph about the mean of the parameters, in nats, without ½ D log|Δ| for D features
    and columns of targets."""
    width = task.specification.sizes[0]
    mean, targets = parameters.mean[:width], parameters.mean[width:]
    shift = mean
    if task.data.nnz is not None and len(task.specification.patterns) == 1:
        # Of sparse rows only what is far from zero is taken off, as in a fit.
        noise = parameters.noise_variance[0]
        shift = far_mean(mean, (parameters.loadings[:width] ** 2).sum(axis=1) + noise)
    data = GraphSamples(task, plan, shift, run)
    if data.partly:
        return partly_labelled_log_likelihood(data.grams(targets), parameters, task.specification)
    directions = _loadings(parameters, task.specification)
    product, sums = data.about(directions[0], mean - shift, targets)
    products = pattern_products(product, directions, sums)
    return expect_graph(products, parameters, sums, task.specification).log_likelihood


class PartlyLabelledGrams(NamedTuple):
    """RᵀΔ̃R (D + L + 1)² of labelled rows R = [X−s, Y, 1], EᵀΔ_UU E (D + 1)² of what unlabelled rows [X−s, 1] differ by
    from what the others say of them, the numbers of both, and log|Δ_UU|."""

    labelled: Array
    unlabelled: Array
    samples: tuple[int, int]
    log_determinant: float


def block_moment_rows(block: Block, request: GraphRequest) -> tuple[tuple[int, Array], ...]:
    """The place of a block and its rows [X−s, Y, 1]. Raises DataError for bad values."""
    return ((block.start, moment_rows(block, request)),)


def partly_labelled_grams(
    rows: Array, features: int, adjacency: sp.csr_array, precision: Precision
) -> PartlyLabelledGrams:
    """Gram matrices of rows [X−s, Y, 1] (N, D + L + 1), Y NaN where unlabelled, of `features` D columns X.

    As sums of squares of (αI + A)R and √γR, so that they are positive semidefinite.
    Errors: DataError where γ is too small.
    """
    known = ~np.isnan(rows[:, features])
    labelled_rows = rows[known]
    others, log_determinant = completed(adjacency, precision, known, labelled_rows)
    both = [*range(features), -1]
    apart = rows[~known][:, both] - others[:, both]
    inner = sp.csr_array(adjacency + precision.alpha * sp.eye_array(len(rows), format="csr"))

    def gram(met: Array, *parts: Array) -> Array:
        total = met.T @ met
        for part in parts:
            total += precision.gamma * (part.T @ part)
        return np.asarray(total)

    labelled = gram(inner[:, known] @ labelled_rows + inner[:, ~known] @ others, labelled_rows, others)
    unlabelled = gram(inner[:, ~known] @ apart, apart)
    return PartlyLabelledGrams(labelled, unlabelled, (len(labelled_rows), len(apart)), log_determinant)


def partly_labelled_moments(
    grams: PartlyLabelledGrams, shift: Array, specification: Specification
) -> tuple[Moments, Array]:
    """Second moments about the best means, for patterns (features, targets) and (features), and μ_x − x̄_L (D,).

    `Moments.shift` is (μ_x, ȳ_L); see `with_target_mean`.
    """
    size, weight, total = specification.sizes[0], float(grams.labelled[-1, -1]), grams.labelled[:-1, -1]
    mean = total / weight
    first = grams.labelled[:-1, :-1] - np.outer(total, mean)
    rest = grams.unlabelled
    # About x̄_L, then about μ_x together with the labelled samples: Σ over both is that of all about μ_x.
    moved = recentred(PatternMoments(float(rest[-1, -1]), rest[:-1, -1], rest[:-1, :-1]), mean[:size])
    apart = moved.total / (weight + moved.samples)
    second = moved.gram - np.outer(moved.total, apart)
    mean[:size] += apart
    patterns = tuple(
        PatternMoments(float(count), np.zeros(len(gram)), (gram + gram.T) / 2)
        for count, gram in zip(grams.samples, (first, second), strict=True)
    )
    mean[:size] += shift
    return Moments(patterns, mean, np.zeros(2), np.zeros(2)), apart


def with_target_mean(parameters: Parameters, apart: Array, specification: Specification) -> Parameters:
    """The parameters with μ_y = ȳ_L + C_yx C_x⁻¹(μ_x − x̄_L) in the place of ȳ_L, for `apart` = μ_x − x̄_L (D,)."""
    targets = specification.slices[1]
    scores = pattern_projection(parameters, specification, (0,)).coefficients @ apart
    mean = parameters.mean.copy()
    mean[targets] += parameters.loadings[targets] @ scores
    return parameters._replace(mean=mean)


def partly_labelled_log_likelihood(
    grams: PartlyLabelledGrams, parameters: Parameters, specification: Specification
) -> float:
    """Log-likelihood from Gram matrices of rows about the mean of the parameters, without ½ (D + L) log|Δ|."""
    patterns = tuple(
        PatternMoments(float(count), np.zeros(len(gram) - 1), gram[:-1, :-1])
        for count, gram in zip(grams.samples, (grams.labelled, grams.unlabelled), strict=True)
    )
    mean = np.zeros(len(parameters.mean))
    moments = Moments(patterns, mean, np.zeros(2), np.zeros(2))
    latent = expect_moments(parameters._replace(mean=mean), moments, specification)
    value = sum(part.log_likelihood for part in latent)
    return float(value - 0.5 * specification.sizes[1] * grams.log_determinant)
