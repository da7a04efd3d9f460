"""Where the search for the maximum begins, when views are missing: EM finds the top of the basin that it starts in."""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
from scipy.linalg import lapack

from dlatent.arrays import Array
from dlatent.gaussian.expectation import pattern_projection
from dlatent.gaussian.moments import Moments, PatternMoments, centred, view_counts, view_variances
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.spectral import Profile, near_best
from dlatent.operators.symmetric import top_eigenpairs

LITTLE_NOISE = 1e-2
"""Part of a view's mean variance that counts as little noise for a start."""
LEAST_NOISE = 1e-3
"""Little noise of another start, where there would be less."""
VANISHED = 1e-12
"""Part of the largest second moment of a view's features below which is rounding."""


def starting_points(moments: Moments, specification: Specification) -> list[Parameters]:
    """Starts in different basins, from moments about the means: the principal components of the samples of a view,
    for each view that appears without others; those of all these views, turned towards each other; and two from the
    complete samples.

    All have some noise in every view: where K reaches a view's features its principal components leave none, and the
    likelihood is nearly flat there, far below its maximum.
    """
    variances = view_variances(moments, specification.sizes, specification.patterns)
    starts = _in_basins(moments, specification)
    noisy = [start.at_least(LITTLE_NOISE * variances) for start in starts]
    least = LEAST_NOISE * variances
    return noisy + [start.at_least(least) for start in starts if (start.noise_variance < least).any()]


def _in_basins(moments: Moments, specification: Specification) -> list[Parameters]:
    """The starts with the noise that they come with."""
    views = range(len(specification.views))
    alone = [v for v in views if any(v in p and len(p) < len(views) for p in specification.patterns)]
    several = len(alone) > 1
    each = {view: principal_start(moments, specification, view) for view in (views if several else alone)}
    together = [aligned(moments, specification, list(each.values()))] if several else []
    return [*(each[view] for view in alone), *together, *_complete_starts(moments, specification)]


def principal_start(moments: Moments, specification: Specification, view: int) -> Parameters:
    """One view: PPCA of the samples that have it.  Other views: regressed on those scores by a first EM step, noise
    of a tenth."""
    features, k, width = specification.slices[view], specification.n_components, specification.sizes[view]
    count = view_counts(moments, specification.patterns, len(specification.views))[view]
    second = second_moments(moments, specification, view) / count
    values, vectors = top_eigenpairs(second, min(k, width))
    variances = view_variances(moments, specification.sizes, specification.patterns)
    noise = np.maximum(variances / 10.0, specification.floors)
    rest = np.trace(second) + moments.spare_energy[view] / count - values.sum()
    rest /= width + moments.spare_size[view]
    noise[view] = max(rest, specification.floors[view], values[0] * 1e-12)
    loadings = np.zeros((sum(specification.sizes), k))
    loadings[features, : len(values)] = vectors * np.sqrt(np.maximum(values - noise[view], 1e-2 * noise[view]))
    # A direction of its own for every component that the view leaves empty, so that no symmetry stays unbroken.
    small = np.sqrt(noise[view]) * 1e-3 * np.cos(np.arange(loadings.size, dtype=float)).reshape(loadings.shape)
    return Parameters(loadings + small, np.zeros(len(loadings)), noise)


def aligned(moments: Moments, specification: Specification, each: list[Parameters]) -> Parameters:
    """Each view's own principal components, turned so that samples of several views have like scores in them.

    The rotation of a view is that of orthogonal Procrustes: the polar factor of Σ E[z|x_w] E[z|x_v]ᵀ over samples
    that have it and a view that was turned before.
    """
    count = len(specification.views)
    placed = list(zip(each, specification.slices, strict=True))
    loadings = np.vstack([start.loadings[at] for start, at in placed])
    noise = np.array([start.noise_variance[view] for view, start in enumerate(each)])
    aligned_start = Parameters(loadings, np.zeros(len(loadings)), noise)
    # B of E[z | x_v] = B (x_v − μ_v)
    maps = [pattern_projection(aligned_start, specification, (view,)).coefficients for view in range(count)]
    turned, left = [0], list(range(1, count))
    while left:
        together = {view: _shared(moments, specification, maps, turned, view) for view in left}
        view = max(left, key=lambda v: float(np.abs(together[v]).sum()))
        u, _, vt = la.svd(together[view])
        rotation = np.asarray(u @ vt)
        loadings[specification.slices[view]] @= rotation.T
        maps[view] = rotation @ maps[view]
        turned.append(view)
        left.remove(view)
    return aligned_start


def _shared(moments: Moments, specification: Specification, maps: list[Array], turned: list[int], view: int) -> Array:
    """Σ E[z|x_w] E[z|x_v]ᵀ (K, K) over the samples that have the view and some of the others."""
    total = np.zeros((specification.n_components,) * 2)
    for pattern, part in zip(specification.patterns, moments.patterns, strict=True):
        if view not in pattern:
            continue
        at = specification.slices_within(pattern)
        for other in turned:
            if other in pattern:
                total += maps[other] @ part.gram[at[other], at[view]] @ maps[view].T
    return total


def _complete_starts(moments: Moments, specification: Specification) -> list[Parameters]:
    """The best maximum for the samples that have every view, and their best loadings at little noise of other views.

    Nothing where there are no such samples, or too few of them to vary.
    """
    full = tuple(range(len(specification.views)))
    if full not in specification.patterns:
        return []
    complete = moments.patterns[specification.patterns.index(full)]
    counts = view_counts(moments, specification.patterns, len(specification.views))
    alone = Specification(specification.views, (full,), specification.n_components)
    part = Moments((complete,), moments.shift, moments.spare_size, moments.spare_energy * (complete.samples / counts))
    middle = centred(part, alone.sizes, alone.patterns)
    variances = view_variances(middle, alone.sizes, alone.patterns)
    if not (variances > 0.0).all():
        return []
    inside, small, axes = occupied(middle, alone)
    best = near_best(inside, small).parameters
    quiet = best.noise_variance.copy()
    quiet[1:] = np.maximum(LITTLE_NOISE * variances[1:], np.maximum(alone.floors[1:], np.finfo(float).tiny))
    close = Profile(inside, small).solution(np.log(quiet)).parameters
    return [_stirred(_padded(turned(start, axes), specification), specification) for start in (best, close)]


def occupied(moments: Moments, specification: Specification) -> tuple[Moments, Specification, Array | None]:
    """Moments about the means in the axes (D, r) in which the features of each view vary, where these are fewer, and
    the model of them; the other axes are outside, with an energy that is rounding, and no axes where all are needed.

    A view with one noise variance has no loadings where it does not vary, and is the same model in any axes.
    """
    turns, spare_size, spare_energy = [], moments.spare_size.copy(), moments.spare_energy.copy()
    counts = view_counts(moments, specification.patterns, len(specification.views))
    for view, (width, noise) in enumerate(zip(specification.sizes, specification.noise_slices, strict=True)):
        turns.append(np.eye(width))
        if not specification.views[view].shared:
            continue
        second = second_moments(moments, specification, view)
        rank = max(lapack.dpstrf(second, tol=VANISHED * second.diagonal().max())[2], 1)
        if rank < width:
            values, axes = top_eigenpairs(second, rank)
            total = float(second.trace())
            energy = max(total - float(values.sum()), 0.0)
            if energy <= max(counts[view] * specification.floors[noise][0], VANISHED * total):
                turns[view] = axes
                spare_size[view] += width - rank
                spare_energy[view] += energy
    sizes = tuple(turn.shape[1] for turn in turns)
    if sizes == specification.sizes:
        return moments, specification, None
    inside_patterns = []
    for pattern, part in zip(specification.patterns, moments.patterns, strict=True):
        turn = la.block_diag(*(turns[view] for view in pattern))
        inside_patterns.append(PatternMoments(part.samples, part.total @ turn, turn.T @ part.gram @ turn))
    axes_of_all = la.block_diag(*turns)
    inside = Moments(tuple(inside_patterns), moments.shift @ axes_of_all, spare_size, spare_energy)
    return inside, specification.resized(sizes), axes_of_all


def second_moments(moments: Moments, specification: Specification, view: int) -> Array:
    """Σ (x−μ)(x−μ)ᵀ of a view over the samples that have it."""
    parts = zip(specification.patterns, moments.patterns, strict=True)
    grams = [(part.gram, specification.slices_within(pattern)[view]) for pattern, part in parts if view in pattern]
    return np.asarray(sum(gram[at, at] for gram, at in grams))


def turned(parameters: Parameters, axes: Array | None) -> Parameters:
    """Parameters of features from those in their axes (D, r)."""
    if axes is None:
        return parameters
    return parameters._replace(loadings=axes @ parameters.loadings, mean=axes @ parameters.mean)


def _padded(start: Parameters, specification: Specification) -> Parameters:
    """Parameters of all components, means of zero."""
    missing = specification.n_components - start.loadings.shape[1]
    return start._replace(loadings=np.pad(start.loadings, ((0, 0), (0, missing))), mean=np.zeros(len(start.mean)))


def _stirred(start: Parameters, specification: Specification) -> Parameters:
    """Clipped components are zero and would stay so: EM moves a column only when it is not exactly zero."""
    scale = np.sqrt(specification.per_feature(start.noise_variance))[:, None] * 1e-3
    wave = np.sin(1.0 + np.arange(start.loadings.size, dtype=float)).reshape(start.loadings.shape)
    return start._replace(loadings=start.loadings + scale * wave)
