"""Loadings with a prior whose variance the evidence chooses (automatic relevance determination), or is given, by
variational EM.

    w_j ~ N(0, V),   q(w_j) = N(W_j, Σ_j),   q(z) = N(m, C),   V = mean_j (W_j W_jᵀ + Σ_j)

The bound on the log-likelihood is that of the rows, Σ_j w_j w_jᵀ/ψ_j being replaced by its expectation, less
Σ_j KL(q(w_j) ‖ N(0, V)).  At the best V, which is the one above, the divergences are ½ Σ_j (log|V| − log|Σ_j|), and a
rotation of z makes V diagonal: a variance for each component.  Units of z that are stretched by L have |V| and all
|Σ_j| stretched alike, so that parameter expansion never loses.  The rotation that Luttinen and Ilin look for is that of
the best V, which may have any axes.

The means of the features may have a prior, too, of which the evidence chooses where it is and how wide,

    μ_j ~ N(m, τ²),   q(μ_j) = N(μ̂_j, s_j²),   m = mean_j μ̂_j,   τ² = mean_j ((μ̂_j − m)² + s_j²)

Then an `offset` (D,) says where in common units a feature with the mean 0 is.  The bound loses ½ n_j s_j²/ψ_j on the
n_j entries of each feature, and the divergences from the prior, which at the best m and τ² are ½ Σ_j log τ²/s_j².

Sources: Bishop (1999), "Variational principal components"; Ilin and Raiko (2010); Luttinen and Ilin (2010); Efron and
Morris (1975), "Data analysis using Stein's estimator and its generalizations", for means of unequal variances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.missing_entries.entries import Entries, gradient, pooled_noise
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import congruent, packed_squares, triangle, unpacked

AT_FIRST = 0.5
"""Fraction of the variance that a start leaves to the components at least."""
SEEN = 0.5
"""Entries from which a feature counts as observed."""
SMALLEST = 1e-8
"""The smallest τ² that is compared, over the smallest c_j: it stands for zero, to which iterations would creep."""
SCANNED = 100
"""Values of τ² in the first scan."""


class MeanPrior(NamedTuple):
    """m and τ²."""

    centre: float
    variance: float


class Means(NamedTuple):
    """μ̂ and s² (D,) of the features that some row observes, in units that all have in common."""

    mean: Array
    variance: Array


def mean_prior(means: Means) -> MeanPrior:
    """The best prior of means."""
    centre = means.mean.mean()
    return MeanPrior(float(centre), float(((means.mean - centre) ** 2 + means.variance).mean()))


def shrunk_means(estimates: Array, uncertainty: Array, precision: Array, before: float) -> Means:
    """The best means for the best prior, from y and c (D,) and n/ψ (D,); `before` is a τ² that is compared, too.

    Where the entries alone, with the best loadings for each mean, say y_j ± √c_j, the best are

        μ̂_j = (y_j/c_j + m/τ²)/(1/c_j + 1/τ²),   s_j² = 1/(n_j/ψ_j + 1/τ²)

    and the bound is −½ Σ_j [(y_j − m)²/(c_j + τ²) + log(1 + n_j τ²/ψ_j)], but for what does not depend on m and τ².
    """

    def bound(variance: Array) -> Array:
        weight = 1.0 / (uncertainty + variance[:, None])
        away = estimates - ((weight @ estimates) / weight.sum(axis=1))[:, None]
        return np.asarray(-0.5 * (weight * away**2 + np.log1p(precision * variance[:, None])).sum(axis=1))

    least = float(uncertainty.min())
    most = max(float(estimates.var() + uncertainty.max()), before)
    scan = np.sort(np.append(np.geomspace(SMALLEST * least, most, SCANNED), before))
    best = int(bound(scan).argmax())
    low, high = np.log(scan[max(best - 1, 0)]), np.log(scan[min(best + 1, SCANNED)])
    highest = opt.minimize_scalar(
        lambda at: -float(bound(np.exp([at]))[0]), bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    ends = np.array([np.exp(highest.x), scan[best]])
    variance = float(ends[int(bound(ends).argmax())])
    weight = 1.0 / (uncertainty + variance)
    centre = float(weight @ estimates / weight.sum())
    mean = centre + (estimates - centre) * variance * weight
    return Means(mean, 1.0 / (precision + 1.0 / variance))


class Priors(NamedTuple):
    """Priors as far as they are known beforehand: the offset (D,) of the means, which have no prior without it, and the
    variance of all loadings, which the evidence chooses without it."""

    offset: Array | None = None
    variance: float | None = None


EVIDENCE = Priors()
"""The variances of the loadings by evidence; means that have no prior."""


def spreads(parameters: Parameters) -> Array:
    """Σ_j of all features (D, K, K)."""
    assert parameters.loadings_covariance is not None
    k = parameters.loadings.shape[1]
    return np.ascontiguousarray(unpacked(parameters.loadings_covariance.T, k).transpose(2, 0, 1))


def packed(matrices: Array) -> Array:
    """Symmetric matrices (D, K, K) as packed triangles (D, K(K+1)/2)."""
    first, second = triangle(matrices.shape[1])
    return np.ascontiguousarray(matrices[:, first, second])


def prior_variance(parameters: Parameters, counts: Array) -> Array:
    """The best V (K, K), from the features that some row observes."""
    assert parameters.loadings_covariance is not None
    seen = counts > SEEN
    mean = (packed_squares(parameters.loadings[seen]) + parameters.loadings_covariance[seen]).mean(axis=0)
    return unpacked(mean, parameters.loadings.shape[1])


def turned_back(sums: Entries, by: Array) -> Entries:
    """The statistics of z from those of A⁻¹z, A orthogonal (K, K); what is evidence of components remains that of the
    latter."""
    back = np.eye(len(by) + 1)
    back[:-1, :-1] = by.T
    second, latent = congruent(sums.second.T, back).T, congruent(sums.latent[None], back)[0]
    return sums._replace(second=second, cross=back.T @ sums.cross, latent=latent)


def _fixed_or(best: Array, priors: Priors) -> Array:
    """V (K, K)."""
    return best if priors.variance is None else priors.variance * np.eye(len(best))


def axes_of(parameters: Parameters, counts: Array) -> Array:
    """The axes of V (K, K), the longest first: V is diagonal for parameters that are turned by them."""
    return np.asarray(la.eigh(prior_variance(parameters, counts))[1][:, ::-1])


def diagonal(parameters: Parameters, counts: Array) -> Parameters:
    """The model with V diagonal and decreasing, without the axes that have none."""
    straight = parameters.turned(axes_of(parameters, counts))
    values = np.diag(prior_variance(straight, counts))
    return straight.turned(np.eye(len(values))[:, values > len(values) * np.finfo(float).eps * values.max()])


def means_of(parameters: Parameters, offset: Array, chosen: npt.NDArray[np.bool_]) -> Means:
    """Means in common units, and their variances, of some features (D,)."""
    assert parameters.mean_variance is not None
    return Means((offset + parameters.mean)[chosen], parameters.mean_variance[chosen])


def divergence(parameters: Parameters, counts: Array, priors: Priors = EVIDENCE) -> float:
    """Σ_j KL(q(w_j) ‖ N(0, V)) at the given V, or the best, and where means have a prior that of them."""
    seen, best = counts > SEEN, prior_variance(parameters, counts)
    variance = _fixed_or(best, priors)
    each = np.linalg.slogdet(variance)[1] + np.trace(np.linalg.inv(variance) @ best) - len(best)
    total = 0.5 * float((each - np.linalg.slogdet(spreads(parameters)[seen])[1]).sum())
    if priors.offset is None:
        return total
    means = means_of(parameters, priors.offset, seen)
    return total + 0.5 * float(np.log(mean_prior(means).variance / means.variance).sum())


def with_prior(parameters: Parameters, counts: Array) -> Parameters:
    """A start with the covariances of the loadings that z ~ N(0, I) would leave, in units in which features have
    variance 1; loadings that explain less than `AT_FIRST` are stretched, as small ones are taken for none."""
    loadings, size = parameters.loadings, len(parameters.loadings)
    loadings = loadings * np.sqrt(max(1.0, AT_FIRST * size / np.sum(loadings**2)))
    variance = loadings.T @ loadings / size + np.finfo(float).eps * np.eye(loadings.shape[1])
    precision = counts[:, None, None] * np.eye(loadings.shape[1]) + la.inv(variance)
    noise = np.minimum(parameters.noise_variance, 1.0 - AT_FIRST)
    return Parameters(loadings, parameters.mean, noise, packed(np.asarray(np.linalg.inv(precision), dtype=np.float64)))


class _Regressions(NamedTuple):
    """For each feature the loadings (D, K), their covariance Σ_j (D, K, K), and what the mean is more than it was (D,);
    the means, where they have a prior."""

    loadings: Array
    spread: Array
    change: Array
    means: Means | None


def _regressed(second: Array, sums: Entries, noise: Array, parameters: Parameters, priors: Priors) -> _Regressions:
    """Regressions on z̃ = (z, 1) with the ridge ψ_j V⁻¹ on the loadings, and that of the prior on the mean."""
    k, counts = parameters.loadings.shape[1], sums.second[-1]
    seen, constant = counts > SEEN, second[:, :k, k]
    ridge = noise[:, None, None] * np.linalg.inv(_fixed_or(prior_variance(parameters, counts), priors))
    inverse = np.asarray(np.linalg.inv(second[:, :k, :k] + ridge), dtype=np.float64)
    inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
    # Loadings are free − change · pulled: the mean by itself first.
    free, pulled = (np.einsum("jab,jb->ja", inverse, right) for right in (sums.cross[:k].T, constant))
    weight = np.where(seen, counts - np.einsum("ja,ja->j", constant, pulled), 1.0)
    change, means = (sums.cross[k] - np.einsum("ja,ja->j", constant, free)) / weight, None
    if priors.offset is not None:
        before = means_of(parameters, priors.offset, seen)
        estimates, uncertainty, precision = before.mean + change[seen], (noise / weight)[seen], (counts / noise)[seen]
        means = shrunk_means(estimates, uncertainty, precision, mean_prior(before).variance)
        change[seen] = means.mean - before.mean
    return _Regressions(free - change[:, None] * pulled, noise[:, None, None] * inverse, change, means)


def _shift(sums: Entries, second: Array, image: _Regressions, noise: Array) -> Array:
    """The b (K,) for z − b that the priors of z and of the means, and the uncertain loadings, like best together."""
    k = image.loadings.shape[1]
    latent, each = unpacked(sums.latent, k + 1), image.spread / noise[:, None, None]
    weight = latent[k, k] * np.eye(k) + np.einsum("j,jab->ab", second[:, k, k], each)
    wanted = latent[:k, k] + np.einsum("jab,jb->a", each, second[:, :k, k])
    if image.means is not None:
        prior, loadings = mean_prior(image.means), image.loadings[sums.second[-1] > SEEN]
        weight += loadings.T @ loadings / prior.variance
        wanted -= loadings.T @ (image.means.mean - prior.centre) / prior.variance
    return np.asarray(la.solve(weight, wanted, assume_a="pos"))


def _about(second: Array, shift: Array) -> Array:
    """Σ E[(z − b)(z − b)ᵀ] (…, K, K) from Σ E[z̃z̃ᵀ] (…, K+1, K+1)."""
    k = len(shift)
    first = second[..., :k, k]
    both = first[..., :, None] * shift
    return np.asarray(second[..., :k, :k] - both - both.swapaxes(-1, -2) + second[..., k:, k:] * np.outer(shift, shift))


def maximise_bound(
    sums: Entries,
    parameters: Parameters,
    specification: Specification,
    priors: Priors = EVIDENCE,
    *,
    expand: bool = True,
) -> Parameters:
    """M-step: the bound does not fall.  With `expand` the mean and covariance of z are free parameters of the step."""
    k, counts = parameters.loadings.shape[1], sums.second[-1]
    noise = specification.per_feature(parameters.noise_variance)
    second = np.ascontiguousarray(unpacked(sums.second, k + 1).transpose(2, 0, 1))
    loadings, spread, change, means = image = _regressed(second, sums, noise, parameters, priors)
    shift = _shift(sums, second, image, noise) if expand else np.zeros(k)
    solution = np.hstack([loadings, change[:, None]])
    residual = sums.energy - 2.0 * np.einsum("jk,kj->j", solution, sums.cross)
    residual += np.einsum("ja,jab,jb->j", solution, second, solution)
    residual += np.einsum("jab,jab->j", spread, _about(second, shift))
    uncertain = None
    if means is not None:
        # Of features that nobody observed the prior alone is known.
        uncertain = np.full(len(counts), mean_prior(means).variance)
        uncertain[counts > SEEN] = means.variance
        residual += counts * uncertain
    variance = pooled_noise(residual, counts, parameters, specification)
    mean = parameters.mean + change + loadings @ shift
    fitted = Parameters(loadings, mean, variance, packed(spread), uncertain)
    if not expand:
        return fitted
    latent = unpacked(sums.latent, k + 1)
    root = la.cholesky(_about(latent, shift) / latent[k, k], lower=True)
    if priors.variance is not None:
        root = _balanced(root, fitted, counts, float(latent[k, k]), priors.variance)
    return fitted.turned(root)


def _balanced(root: Array, parameters: Parameters, counts: Array, rows: float, variance: float) -> Array:
    """The L that is best for z → L⁻¹z of covariance CCᵀ, C the root, where loadings N(0, v) become longer by it.

    For R = LLᵀ and B = Σ_j E[w_j w_jᵀ] of n features and N rows, ½ [(n − N) log|R| − N tr R⁻¹CCᵀ − tr RB/v] is the
    largest; along the axes of CᵀBC, of eigenvalues b, R is C diag(r) Cᵀ with br²/v + (N − n)r = N.
    """
    features = float((counts > SEEN).sum())
    values, axes = la.eigh(features * root.T @ prior_variance(parameters, counts) @ root)
    weight, less = values / variance, rows - features
    stretch = 2.0 * rows / (less + np.sqrt(less**2 + 4.0 * weight * rows))
    return np.asarray(root @ (axes * np.sqrt(stretch)) @ axes.T)


def bound_gradient(
    sums: Entries, parameters: Parameters, specification: Specification, priors: Priors = EVIDENCE
) -> Array:
    """∂ bound/∂(W, μ, log ψ) for given Σ_j and s_j², in the order of `Parameters.flatten`."""
    k, counts = parameters.loadings.shape[1], sums.second[-1]
    noise = specification.per_feature(parameters.noise_variance)
    pulled, free = np.zeros_like(parameters.loadings), k - int(specification.row_effects)
    free_part = parameters.turned(np.eye(k, free))
    pulled[:, :free] = free_part.loadings @ np.linalg.inv(_fixed_or(prior_variance(free_part, counts), priors))
    pulled[counts < SEEN] = 0.0
    uncertain = np.einsum("jab,abj->j", spreads(parameters), unpacked(sums.second, k + 1)[:k, :k]) / noise
    uncertain += counts * parameters.uncertainty(noise)
    starts = [at.start for at in specification.group_slices]
    slope = gradient(sums, parameters, specification)
    slope[: pulled.size] -= pulled.ravel()
    if priors.offset is not None:
        seen = counts > SEEN
        means = means_of(parameters, priors.offset, seen)
        prior = mean_prior(means)
        slope[pulled.size :][: len(noise)][seen] -= (means.mean - prior.centre) / prior.variance
    slope[-len(starts) :] += 0.5 * np.add.reduceat(uncertain, starts)
    return slope


def worth(sums: Entries, parameters: Parameters) -> Array:
    """By how much the bound is higher with each component than without it (K,), all else being equal.

    With z_k and all w_jk held at 0, that of the rows is lower by Σ ½ (log C_kk + m_k²/C_kk) (the ratio of Savage and
    Dickey), and the divergences are lower by ½ Σ_j log [(Σ_j⁻¹)_kk/(V⁻¹)_kk].
    """
    counts = sums.second[-1]
    seen = counts > SEEN
    precision = np.diag(la.inv(prior_variance(parameters, counts)))
    each = np.diagonal(np.linalg.inv(spreads(parameters)[seen]), axis1=1, axis2=2)
    return np.asarray(0.5 * (sums.evidence[: len(precision)] - np.log(each / precision).sum(axis=0)))


def without_components(parameters: Parameters, specification: Specification, counts: Array, squares: Array) -> Entries:
    """The statistics where there is no component: the features (D,) have entries about 0, with sums of squares."""
    noise, mean = specification.per_feature(parameters.noise_variance), parameters.mean
    energy = squares + counts * mean**2
    each = counts * (LOG_2PI + np.log(noise) + parameters.uncertainty(noise)) + energy / noise
    nothing = np.ones(1), -0.5 * float(each.sum()), np.zeros(0)
    return Entries(counts[None], (-counts * mean)[None], energy, *nothing)


def certainty(parameters: Parameters, counts: Array) -> Array:
    """The fraction of the variance V_kk of each component's loadings that is that of their means (K,), the rest being
    their uncertainty: 0 where the data say nothing of it."""
    seen = counts > SEEN
    variance = np.diag(prior_variance(parameters, counts))
    return np.asarray((parameters.loadings[seen] ** 2).mean(axis=0) / variance)
