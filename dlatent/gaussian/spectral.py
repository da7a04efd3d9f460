"""Closed forms for complete data: PPCA by eigenvectors, the supervised model by eigenvectors and a search for two
noises.

For fixed noise the maximum over the loadings is an eigenproblem of the scaled second moment
S̃ = Ψ^(-1/2) S Ψ^(-1/2):  W̃ = U (Λ − I)₊^(1/2), with the K largest eigenvalues and those below one clipped (SPPCA,
Theorem 2; errata 12, docs/models/supervised.md).  What is left is a function of one number per view, the profile
likelihood, which can have several maxima (errata 14).  For given ratios of the noises the best scale is known too, that
of PPCA, so that a scan of the ratios finds the basins, and a quasi-Newton search their tops.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.specification import Maximum, Parameters, Specification
from dlatent.operators.symmetric import thin_root, top_eigenpairs, top_eigenvalues

RATIOS = 97
"""Ratios of two noise variances in the first scan: over nine decades, about ten a decade; with more views, so many
combinations of ratios."""
FEW_RATIOS = 25
"""Ratios where another search only begins from the best of them."""
HALVINGS = 4
"""Times that an interval between two ratios is halved where a better maximum could be inside."""
BETTER = 1e-12
"""Relative difference of log-likelihoods from which a maximum is another one."""
SCANNED_FRACTION = 1e-6
"""Fraction of a view's mean variance down to which the scan goes, unless the view leaves less to its noise."""
SMALLEST_FRACTION = 1e-12
"""Fraction of a view's mean variance below which the search takes no noise: less is rounding, whatever the floor."""


def ppca(moments: Moments, specification: Specification) -> Maximum:
    """Maximum-likelihood PPCA from moments about the mean: σ² = mean of the discarded eigenvalues, W = U(Λ−σ²)^(1/2).

    Source: Tipping and Bishop (1999), (7)–(8).  Features outside the moments count among the discarded ones.  With as
    many components as features none is discarded, and every σ² up to the smallest eigenvalue has the same likelihood:
    half of it is taken, so that no component is lost.
    """
    part = moments.patterns[0]
    k, width = specification.n_components, len(part.gram) + int(moments.spare_size[0])
    values, vectors = top_eigenpairs(part.gram / part.samples, k)
    energy = (np.trace(part.gram) + moments.spare_energy[0]) / part.samples
    noise = (energy - values.sum()) / (width - k) if width > k else 0.5 * values[-1]
    noise = max(noise, specification.views[0].floor)
    loadings = vectors * np.sqrt(np.maximum(values - noise, 0.0))
    variance = np.array([noise])
    value = _profile(moments, specification, variance, energies=np.array([energy]), values=values / noise)
    return Maximum(Parameters(loadings, np.zeros(len(loadings)), variance), value)


def _of_groups(values: Array, specification: Specification) -> Array:
    """Numbers of the views, each for its noise groups; only views of one group have features outside the moments."""
    return np.repeat(values, [view.groups for view in specification.views])


def _profile(
    moments: Moments, specification: Specification, variance: Array, *, energies: Array, values: Array
) -> float:
    """Log-likelihood at the best loadings for given noise, from the largest eigenvalues of S̃."""
    sizes = np.array(specification.group_sizes) + _of_groups(moments.spare_size, specification)
    count = moments.patterns[0].samples
    kept = values[values > 1.0]
    explained = float((kept - 1.0 - np.log(kept)).sum())
    constant = float((sizes * (LOG_2PI + np.log(variance)) + energies / variance).sum())
    return -0.5 * count * (constant - explained)


class Profile:
    """The likelihood of complete data as a function of the logarithms of the noise variances.

    Callable in the form of an objective: minus the log-likelihood per sample, and its gradient
    ∂/∂log σ_g² = ½ (D_g − residual_g / σ_g²), the residual being that of the best loadings (envelope theorem).
    """

    def __init__(self, moments: Moments, specification: Specification) -> None:
        part = moments.patterns[0]
        self.moments, self.specification = moments, specification
        self.second = part.gram / part.samples
        self.single = not specification.shared.any()
        self.root = thin_root(self.second, specification.n_components) if self.single else None
        diagonal = np.diag(self.second)
        inside = np.array([diagonal[s].sum() for s in specification.group_slices])
        self.energies = inside + _of_groups(moments.spare_energy, specification) / part.samples
        self.sizes = np.array(specification.group_sizes) + _of_groups(moments.spare_size, specification)

    def _eigen(self, variance: Array) -> tuple[Array, Array, Array]:
        scale, k = 1.0 / np.sqrt(self.specification.per_feature(variance)), self.specification.n_components
        if self.root is None:
            return *top_eigenpairs(self.second * scale[:, None] * scale, k), scale
        scaled = self.root * scale[:, None]
        values, inner = top_eigenpairs(scaled.T @ scaled, k)
        # Directions with less than the noise, λ < 1, explain nothing, whatever their length.
        return values, scaled @ (inner / np.sqrt(np.maximum(values, 1.0))), scale

    def __call__(self, log_variance: Array) -> tuple[float, Array]:
        """Minus the profile log-likelihood per sample and its gradient."""
        variance = np.exp(log_variance)
        values, vectors, _ = self._eigen(variance)
        count = self.moments.patterns[0].samples
        value = _profile(self.moments, self.specification, variance, energies=self.energies, values=values)
        # Directions with λ > 1 are explained up to the noise, so that a share λ − 1 of their energy is not residual.
        gain = np.maximum(values - 1.0, 0.0)
        if self.single:
            explained = np.ascontiguousarray(gain * vectors**2).sum(axis=1)
        else:
            groups = self.specification.group_slices
            explained = np.array([(gain * (vectors[s] ** 2).sum(axis=0)).sum() for s in groups])
        return -value / count, 0.5 * (self.sizes - self.energies / variance + explained)

    def at_ratios(self, log_ratios: Array, lower: Array, upper: Array) -> Array:
        """The best log noise variances (views,) of given ratios to the first, between the bounds, and their
        log-likelihood.

        Scaling the views by their ratios leaves a PPCA: σ² is the mean of the discarded eigenvalues, and the likelihood
        falls to both sides of it, so that the nearest admissible value is the best.
        """
        offset = np.concatenate([[0.0], log_ratios])
        root = np.exp(-0.5 * self.specification.per_feature(offset))
        values = top_eigenvalues(self.second * root[:, None] * root, self.specification.n_components)
        rest = float((self.energies / np.exp(offset)).sum() - values.sum())
        noise = max(rest / (self.sizes.sum() - len(values)), np.finfo(float).tiny)
        scale = np.clip(np.log(noise), (lower - offset).max(), (upper - offset).min())
        variance = np.exp(scale + offset)
        height = _profile(
            self.moments, self.specification, variance, energies=self.energies, values=values / np.exp(scale)
        )
        return np.append(np.clip(scale + offset, lower, upper), height)

    def residual(self, log_variance: Array) -> Array:
        """The residual of the best loadings, S̃ − I (D, D)."""
        values, vectors, scale = self._eigen(np.exp(log_variance))
        rest = self.second * scale[:, None] * scale - (vectors * np.maximum(values - 1.0, 0.0)) @ vectors.T
        rest[np.diag_indices_from(rest)] -= 1.0
        return np.asarray(rest)

    def solution(self, log_variance: Array) -> Maximum:
        """The best loadings at the given noise."""
        variance = np.exp(log_variance)
        values, vectors, scale = self._eigen(variance)
        loadings = vectors * np.sqrt(np.maximum(values - 1.0, 0.0)) / scale[:, None]
        value = _profile(self.moments, self.specification, variance, energies=self.energies, values=values)
        return Maximum(Parameters(loadings, np.zeros(len(loadings)), variance), value)


def complete(moments: Moments, specification: Specification, starts: tuple[Array, ...] = ()) -> list[Maximum]:
    """Maxima of the likelihood of complete data over loadings and noise, best first.

    `starts` are noise variances (views,) to refine; without any the ratios of the noises are scanned first, between the
    floors and the views' mean variances.  Moments must be about the mean.
    """
    if len(specification.views) == 1:
        return [ppca(moments, specification)]
    profile = Profile(moments, specification)
    if specification.fixed:
        return [profile.solution(np.log(specification.floors))]
    lower, upper = _bounds(profile)
    least = _least_scanned(profile, lower, upper)
    scan = None if starts else _scan(profile, least, upper, RATIOS)
    guesses = [np.clip(np.log(s), lower, upper) for s in starts] if scan is None else _basins(scan)
    maxima = [_top(profile, guess, lower, upper) for guess in guesses]
    if scan is not None and scan.ndim == 2:
        maxima += _hidden(profile, scan, maxima, least, upper)
    return _distinct(sorted(maxima, key=lambda s: -s.log_likelihood))


def near_best(moments: Moments, specification: Specification) -> Maximum:
    """The best loadings at the best of a few ratios of the noises of several views: where another search begins."""
    profile = Profile(moments, specification)
    lower, upper = _bounds(profile)
    scan = _scan(profile, _least_scanned(profile, lower, upper), upper, FEW_RATIOS).reshape(-1, len(lower) + 1)
    return profile.solution(scan[scan[:, -1].argmax(), :-1])


def _bounds(profile: Profile) -> tuple[Array, Array]:
    """The least and the largest log noise variances that are searched."""
    upper = np.log(profile.energies / profile.sizes)
    floors = np.maximum(profile.specification.floors, SMALLEST_FRACTION * np.exp(upper))
    return np.minimum(np.log(floors), upper), upper


def _least_scanned(profile: Profile, lower: Array, upper: Array) -> Array:
    """The least log noise variances of the scan: `SCANNED_FRACTION` of a view's mean variance, or less where the view
    alone leaves less to its noise.  What the components leave of a view is never less than its own best ones leave."""
    k, least = profile.specification.n_components, upper + np.log(SCANNED_FRACTION)
    for view, features in enumerate(profile.specification.group_slices):
        if profile.sizes[view] > k:
            inside = top_eigenvalues(profile.second[features, features], min(k, features.stop - features.start))
            left = profile.energies[view] - float(inside.sum())
            least[view] = min(least[view], np.log(max(left / profile.sizes[view], np.finfo(float).tiny)))
    return np.asarray(np.clip(least, lower, upper))


def _top(profile: Profile, guess: Array, lower: Array, upper: Array) -> Maximum:
    """The maximum near log noise variances, between the bounds."""
    best = opt.minimize(
        profile,
        guess,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(lower, upper, strict=True)),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200},
    )
    return profile.solution(best.x)


def _distinct(solutions: list[Maximum]) -> list[Maximum]:
    """Those whose noise variances are not, to three digits, those of a better one."""
    kept: list[Maximum] = []
    for solution in solutions:
        noise = np.log(solution.parameters.noise_variance)
        if all(np.abs(noise - np.log(other.parameters.noise_variance)).max() > 1e-3 for other in kept):
            kept.append(solution)
    return kept


def _scan(profile: Profile, lower: Array, upper: Array, ratios: int) -> Array:
    """The best log noise variances at a grid of about so many of their ratios, and the log-likelihoods
    (…, views + 1)."""
    each = max(3, round(ratios ** (1.0 / (len(lower) - 1))))
    axes = [np.linspace(a - upper[0], b - lower[0], each) for a, b in zip(lower[1:], upper[1:], strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return np.asarray(np.apply_along_axis(lambda r: profile.at_ratios(r, lower, upper), -1, grid))


def _basins(scan: Array) -> list[Array]:
    """Log noise variances at those ratios whose likelihood is not below that of any neighbour, and at the neighbours.

    Where eigenvalues cross, maxima lie on both sides of a kink, and may be closer than two points of the scan.
    """
    points, heights = scan[..., :-1], scan[..., -1]
    near = np.zeros(heights.shape, dtype=bool)
    for index in np.ndindex(heights.shape):
        around = tuple(slice(max(i - 1, 0), i + 2) for i in index)
        if heights[index] >= heights[around].max():
            near[around] = True
    return list(points[near])


def _hidden(profile: Profile, scan: Array, maxima: list[Maximum], lower: Array, upper: Array) -> list[Maximum]:
    """Better maxima of two views between two points of the scan, which sees one where it sees its slopes.

    Intervals whose ends are so high, and beside such slopes, that a better maximum could be inside, are halved again
    and again; what then is a maximum in a place of its own is climbed.
    """
    best = max(solution.log_likelihood for solution in maxima)
    ratios = np.linspace(lower[1] - upper[0], upper[1] - lower[0], len(scan))
    for _ in range(HALVINGS):
        heights = scan[:, -1]
        rises = np.pad(np.abs(np.diff(heights)), 1)
        above = np.maximum(heights[:-1], heights[1:]) + np.maximum(rises[:-2], rises[2:])
        inside = np.flatnonzero(above >= best)
        if not len(inside):  # the best is at a floor, beyond the scan
            break
        middle = (ratios[inside] + ratios[inside + 1]) / 2.0
        fresh = [profile.at_ratios(np.array([r]), lower, upper) for r in middle]
        scan, ratios = np.insert(scan, inside + 1, fresh, axis=0), np.insert(ratios, inside + 1, middle)
    padded = np.pad(scan[:, -1], 1, constant_values=-np.inf)
    tops = np.flatnonzero((scan[:, -1] >= padded[:-2]) & (scan[:, -1] >= padded[2:]))
    known = np.array([np.diff(np.log(solution.parameters.noise_variance))[0] for solution in maxima])
    steps = np.gradient(ratios)
    hidden = [i for i in tops if np.abs(ratios[i] - known).min() > 2.0 * steps[i]]
    more = [_top(profile, scan[i, :-1], lower, upper) for i in hidden]
    return [solution for solution in more if solution.log_likelihood > best + BETTER * abs(best)]
