"""Statistics of samples in a graph: what ordinary moments become when the samples have the precision Δ.

    T ~ N(1μᵀ, Δ⁻¹, C),  C = WWᵀ + Ψ,  Δ = γI + (αI + A)²:
    log p(T) = −½ [N D log 2π − D log|Δ| + N log|C| + N tr(C⁻¹H)],   H = (T − 1μᵀ)ᵀ Δ (T − 1μᵀ) / N,   μ = TᵀΔ1 / 1ᵀΔ1

so that NH takes the place of the scatter matrix, and all that was written for independent samples holds.  Rows
send thin rows R to their neighbours, R ← αR + AR, once for (αI + A)R and twice for ΔR; Δ and H are never formed.  The
same holds for every Δ = γI + F² that is known by its hops (see `operators.sample_precision`); αI + A is F here.  Where
Δ is given, one hop makes ΔR, and RᵀΔR is the product of both in the place of γRᵀR + (FR)ᵀ(FR).
Source: PRPCA (15)–(18); rows are samples here, so matrices are the transposes of the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Exchanged, Features, Rows
from dlatent.gaussian.expectation import LOG_2PI, Latent, joined, pattern_projection
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.products import PatternProducts, PatternSums, weighted_sums
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import check_rows
from dlatent.operators.sample_precision import SamplePrecision
from dlatent.operators.sparse import rows_about
from dlatent.passes import Edges


class GraphRequest(NamedTuple):
    """Δ, the shift (D,), directions V (D, b) or None, columns of the features or None, whether sums are wanted too, and
    whether all-zero rows are refused."""

    precision: SamplePrecision
    shift: Array
    directions: Array | None
    columns: slice | None
    sums: bool
    refuse_zero_rows: bool


class GraphProducts(NamedTuple):
    """(X−s)ᵀΔ(X−s)V (D, b), and where asked (X−s)ᵀΔ1, 1ᵀΔ1, YᵀΔ1, (X−s)ᵀΔY, YᵀΔY; additive over samples."""

    product: Array
    total: Array | None
    weight: float
    target_total: Array
    cross: Array
    target_gram: Array


def _kept(first: Rows, last: Rows, hop: int, request: Any, twice: bool) -> Rows:
    """The share of the rows themselves that a hop adds."""
    precision: SamplePrecision = request.precision
    return precision.share(first, last, hop, hops_of(precision, twice=twice))


def exchange_of(rows: Callable[[Block, Any], Rows], precision: SamplePrecision, *, twice: bool = False) -> Edges:
    """The exchange that makes F R of rows R, without the features, or `twice`, F²R with the features; in a pass whose
    parameters have the `precision`."""
    keep = partial(_kept, twice=twice)
    return Edges(rows, keep, hops_of(precision, twice=twice), precision.normalised, features=twice)


def hops_of(precision: SamplePrecision, *, twice: bool) -> int:
    """Hops of F, or of F²; of a Δ that is no square, those of Δ."""
    return precision.hops * (1 + (twice and precision.squared))


def _targets(block: Block) -> Array:
    return np.zeros((block.rows, 0)) if block.targets is None else block.targets


def product_rows(block: Block, request: GraphRequest) -> Array:
    """The thin rows that a block sends: (X−s)V (n, b), with sums [(X−s)V, Y, 1] (n, b + L + 1)."""
    assert request.directions is not None
    rows: Array = np.asarray(_about(block.features, request.shift) @ request.directions)
    return np.hstack([rows, _targets(block), np.ones((block.rows, 1))]) if request.sums else rows


def _about(x: Features, shift: Array) -> Any:
    """Rows less the shift."""
    rows, rest = rows_about(x, shift)
    return rows if isinstance(rows, sp.csr_array) else rows - rest


def fold_products(block: Block, request: GraphRequest) -> GraphProducts:
    """The products of a block after two hops; O(nnz b) or O(n D b). Raises DataError where sums find bad values."""
    first, met = _dense(block.exchanged)
    precision = request.precision
    weighted = precision.gamma * first + precision.factor(hops_of(precision, twice=True)) * met
    y = _targets(block)
    if not request.sums:
        moved, _ = weighted_sums(block.features, request.shift, lambda rows, place: weighted[place], energies=False)
        return GraphProducts(moved, None, 0.0, np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))
    width = first.shape[1] - y.shape[1] - 1
    # The plain sum of the rows, in the last column, finds values that are not finite where they are.
    plain = np.column_stack([weighted, np.ones(block.rows)])
    moved, _ = weighted_sums(block.features, request.shift, lambda rows, place: plain[place], energies=False)
    check_rows(block, moved[:, -1], refuse_zero_rows=request.refuse_zero_rows)
    return GraphProducts(
        moved[:, :width],
        moved[:, -2],
        float(weighted[:, -1].sum()),
        y.T @ weighted[:, -1],
        moved[:, width:-2],
        y.T @ weighted[:, width:-1],
    )


def _dense(exchanged: Exchanged | None) -> tuple[Array, Array]:
    assert exchanged is not None
    assert isinstance(exchanged.sent, np.ndarray)
    assert isinstance(exchanged.met, np.ndarray)
    return exchanged.sent, exchanged.met


def energy_rows(block: Block, request: GraphRequest) -> Rows:
    """Some columns of X−s."""
    assert request.columns is not None
    part = _about(block.features[:, request.columns], request.shift[request.columns])
    return cast(Rows, part.astype(np.float64, copy=False) if isinstance(part, sp.csr_array) else np.asarray(part))


def fold_energy(block: Block, request: GraphRequest) -> float:
    """Σ γ‖x_i−s‖² + ‖Σ_j F_ij (x_j−s)‖² over the rows of a block and the columns asked for, after the hops of F; or
    Σ (x_i−s)ᵀ Σ_j Δ_ij (x_j−s)."""
    assert block.exchanged is not None
    assert request.columns is not None
    first, met = block.exchanged
    return float(_weighted(_inner, first, met, request.precision))


def _weighted(product: Callable[[Any, Any], Any], first: Rows, met: Rows, precision: SamplePrecision) -> Any:
    """A product of rows with ΔR, from R and what came of it after the hops of F, or of Δ."""
    factor = precision.factor(precision.hops)
    if not precision.squared:
        return factor * product(first, met)
    return precision.gamma * product(first, first) + factor**2 * product(met, met)


def _inner(rows: Any, others: Any) -> float:
    """Σ r_iᵀr'_i."""
    if isinstance(rows, np.ndarray):
        return float(rows.ravel() @ others.ravel())
    return float(rows.data @ rows.data if rows is others else rows.multiply(others).sum())


def moment_rows(block: Block, request: GraphRequest) -> Array:
    """[X−s, Y, 1] (n, D + L + 1), for few features."""
    x = block.features
    check_rows(
        block,
        np.asarray(x.sum(axis=0, dtype=np.float64)).ravel(),
        refuse_zero_rows=request.refuse_zero_rows,
    )
    dense: Any = x.toarray() if isinstance(x, sp.csr_array) else x
    return np.hstack([dense - request.shift, _targets(block), np.ones((block.rows, 1))])


def fold_moments(block: Block, request: GraphRequest) -> Array:
    """RᵀΔR (D + L + 1)² of the rows of a block after the hops of F: the Gram matrix of [√γ R ; FR]; or of R and ΔR."""
    return np.asarray(_weighted(lambda a, b: a.T @ b, *_dense(block.exchanged), request.precision))


def graph_moments(gram: Array, shift: Array, samples: int) -> Moments:
    """Moments about the weighted mean μ = TᵀΔ1 / 1ᵀΔ1 (PRPCA (16)), from RᵀΔR; `samples` is N, or rank Δ."""
    weight, total = float(gram[-1, -1]), gram[:-1, -1]
    inner = gram[:-1, :-1] - np.outer(total, total) / weight
    targets = np.zeros(len(total) - len(shift))
    pattern = PatternMoments(float(samples), np.zeros(len(total)), (inner + inner.T) / 2)
    spare = np.zeros(1 + bool(len(targets)))
    return Moments((pattern,), np.concatenate([shift, targets]) + total / weight, spare, spare)


class CentredSums(NamedTuple):
    """Sums of [X, Y] about a mean, weighted by Δ: N or rank Δ, tr XᵀΔX, XᵀΔY (D, L) and YᵀΔY (L, L)."""

    samples: float
    energy: float
    cross: Array
    target_gram: Array

    @property
    def pattern(self) -> PatternSums:
        """The sums of a pattern of views."""
        views = [self.energy, float(np.trace(self.target_gram))][: 1 + bool(len(self.target_gram))]
        return PatternSums(self.samples, np.zeros(sum(self.cross.shape)), np.array(views))


class GraphSums(NamedTuple):
    """The result of the first pass: the sums of [X−s, Y] about their weighted mean, that mean relative to the shift,
    and (X−s)ᵀΔ1 and 1ᵀΔ1, by which later products are centred."""

    sums: CentredSums
    offset: Array
    total: Array
    weight: float


def graph_sums(products: GraphProducts, energy: float, samples: int) -> GraphSums:
    """Sums about the weighted mean, from those of the first pass and tr (X−s)ᵀΔ(X−s); `samples` is N, or rank Δ."""
    assert products.total is not None
    total, weight, targets = products.total, products.weight, products.target_total
    sums = CentredSums(
        float(samples),
        energy - float(total @ total) / weight,
        products.cross - np.outer(total, targets) / weight,
        products.target_gram - np.outer(targets, targets) / weight,
    )
    return GraphSums(sums, np.concatenate([total, targets]) / weight, total, weight)


def moved_products(products: GraphProducts, energy: float, directions: Array, by: Array) -> tuple[GraphProducts, float]:
    """Products with directions (D, b), and tr (X−s)ᵀΔ(X−s), about s + `by` (D,) from those about s."""
    assert products.total is not None
    total = products.total - products.weight * by
    product = products.product - np.outer(products.total, by @ directions) - np.outer(by, total @ directions)
    cross = products.cross - np.outer(by, products.target_total)
    return products._replace(product=product, total=total, cross=cross), energy - float((products.total + total) @ by)


def sums_about(products: GraphProducts, energy: float, samples: int, targets: Array) -> CentredSums:
    """The sums of [X−s, Y−t] for given t (L,), where the shift is the mean that is meant; see `graph_sums`."""
    assert products.total is not None
    moved = np.outer(products.target_total, targets)
    gram = products.target_gram - moved - moved.T + products.weight * np.outer(targets, targets)
    cross = products.cross - np.outer(products.total, targets)
    return CentredSums(float(samples), energy, cross, gram)


def pattern_products(
    product: Array, directions: tuple[Array, ...], inner: CentredSums, *, sums: bool = False
) -> PatternProducts:
    """NHV of features and targets from that of the features (D, b), for directions of the features and of the
    targets."""
    first = directions[0]
    if len(directions) == 1:
        return PatternProducts((product,), inner.pattern if sums else None)
    both = np.asfortranarray(np.vstack([product, inner.cross.T @ first]))
    targets = np.vstack([inner.cross, inner.target_gram]) @ directions[1]
    return PatternProducts((both, np.asfortranarray(targets)), inner.pattern if sums else None)


def centred_product(product: Array, directions: Array, known: GraphSums) -> Array:
    """NHV (D, b) from (X−s)ᵀΔ(X−s)V: the mean is carried through as a rank-one term."""
    centred: Array = product - np.outer(known.total, known.total @ directions) / known.weight
    return centred


def expect_graph(
    products: PatternProducts, parameters: Parameters, sums: CentredSums, specification: Specification
) -> Latent:
    """E-step of PRPCA (19), (20) from NHW of the loadings of each view, for parameters whose mean is the weighted one
    (written as 0).

    The log-likelihood in it is without ½ D log|Δ|, which does not depend on the parameters.
    """
    pattern = specification.patterns[0]
    count = sums.samples
    coefficients, covariance, constant = pattern_projection(parameters, specification, pattern)
    of_views = zip(products.product, parameters.noise_variance, strict=True)
    gram_b = np.sum([product / noise for product, noise in of_views], axis=0) @ covariance
    second = count * covariance + coefficients @ gram_b
    cross = np.column_stack([gram_b, np.zeros(len(gram_b))])
    energy = np.array([sums.energy, float(np.trace(sums.target_gram))])[: len(specification.views)]
    noise = specification.per_feature(parameters.noise_variance)
    trace = float((energy / parameters.noise_variance).sum())
    trace -= float(np.sum(gram_b * (parameters.loadings / noise[:, None])))
    value = -0.5 * (count * (len(noise) * LOG_2PI + constant) + trace)
    return Latent(joined(second, np.zeros(second.shape[0]), count), cross, energy, value)
