"""The small problem on the driver: the best parameters for given moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.maximisation import em_step
from dlatent.gaussian.moments import Moments, PatternMoments, centred, view_counts, view_variances
from dlatent.gaussian.specification import Maximum, Parameters, Specification
from dlatent.gaussian.spectral import complete
from dlatent.solvers.ascent import accelerate, ascend, settle
from dlatent.solvers.moments.starts import occupied, starting_points, turned

TOLERANCE = 1e-13
"""Relative change of the log-likelihood at which the driver's iterations stop: as far as rounding lets them go."""
LEAST_SQUARES = 1e-11
"""Tolerance where there is no noise: a relative change of the residual."""
COARSE = 1e-8
"""Tolerance while the subspace is still far from its end, where more would be wasted."""
ROUNDS = ((50, 300), (100, 1000), (900, 1000))
"""EM steps and quasi-Newton steps of each round, until either settles."""
EM_ALONE = ((50, 0),)
LOOK = 1e-9
"""Tolerance of the quasi-Newton steps of a first look: a larger one takes saddles for maxima."""
AFTER_LOOK = ((10, 300), *ROUNDS[1:])
"""Rounds from where a first look ended."""
MAX_EVALUATIONS = 3000
"""EM steps where there is no noise."""
STILL = 1e-13
"""Relative length of an EM step at which the parameters stand still."""
MAX_SETTLING = 200
ROUNDING = 1e-13
"""Relative difference of two log-likelihoods that is none."""
LITTLE_BELOW = 1e-6
"""Part of the log-likelihood that a point near a maximum may lack."""
ALIKE = 1e-2
"""Differences of log noise variances, and squares of those of shares of signal, that points near a maximum may have."""
KEPT_MAXIMA = 3
NOISY_FLOOR = 1e-6
"""Floors of the model with noise from which the limit of no noise starts, as parts of mean variances."""


@dataclass(frozen=True)
class Warm:
    """The result of a solve for the next one: its parameters (about the shift) and the noises of its best maxima;
    `searched` where it came from all starts, and there is nothing to find for them again in the same space."""

    parameters: Parameters
    noises: tuple[Array, ...]
    converged: bool
    searched: bool = False


def solve(
    moments: Moments,
    specification: Specification,
    *,
    warm: Warm | None = None,
    ranks_grown: tuple[int, ...] | None = None,
    thorough: bool = False,
    tolerance: float = TOLERANCE,
) -> tuple[Maximum, Warm]:
    """The maximum-likelihood parameters, mean about `moments.shift`, from the last solution or from scratch.

    Complete data: eigenvectors and, with several views, the search over the noises.  Views missing: accelerated PX-EM
    from the last solution; with `thorough` (or without a last one) also from `starting_points`, best kept.  Noise
    variances that are fixed near zero: from the best ones that are not.  `ranks_grown` columns were added to each view
    since the last solution.
    """
    middle = centred(moments, specification.sizes, specification.patterns)
    offset = middle.shift - moments.shift
    if len(specification.patterns) == 1:
        starts = () if warm is None or thorough else warm.noises
        maxima = complete(middle, specification, starts)
        if thorough and len(specification.views) > 1 and not specification.fixed:
            maxima[0] = _settled(maxima[0], middle, specification)
        noises = tuple(s.parameters.noise_variance for s in maxima[:KEPT_MAXIMA])
        best = Maximum(maxima[0].parameters.moved(offset), maxima[0].log_likelihood)
        return best, Warm(best.parameters, noises, converged=True)
    units = _units(middle, specification)
    scaled = in_units(middle, specification, np.repeat(units, specification.sizes))
    scaled = scaled._replace(spare_energy=middle.spare_energy / units / units)
    standard = specification.with_floors(specification.floors / units / units)
    axes = None
    if not standard.fixed:
        scaled, standard, axes = occupied(scaled, standard)
    searched = warm is not None and warm.searched and not any(ranks_grown or ())
    candidates = []
    if warm is not None:
        grown = ranks_grown or (0,) * len(specification.views)
        last = _widened(warm.parameters, specification, grown).moved(-offset)
        candidates = [turned(_times(last, specification, 1.0 / units), None if axes is None else axes.T)]
    if warm is None or (thorough and not searched):
        searched = tolerance <= TOLERANCE
        candidates += _noisy(scaled, standard) if standard.fixed else starting_points(scaled, standard)
    run, converged = _highest(candidates, scaled, standard, tolerance)
    if thorough and converged and not standard.fixed:
        run = _settled(run, scaled, standard)
    parameters = _times(turned(run.parameters, axes), specification, units).moved(offset)
    # The density of the data, not of their multiples of the units.
    value = run.log_likelihood - float(_cells(scaled, standard) @ np.log(units))
    return Maximum(parameters, value), Warm(parameters, (), converged, searched)


def _units(moments: Moments, specification: Specification) -> Array:
    """The power of two nearest to the spread of each view: extrapolations mix the numbers of all views, and where those
    of one are far smaller they would be rounding."""
    variances = view_variances(moments, specification.sizes, specification.patterns)
    return np.exp2(np.round(0.5 * np.log2(np.where(variances > 0.0, variances, 1.0))))


def in_units(moments: Moments, specification: Specification, units: Array) -> Moments:
    """Moments about the means with each feature in its unit (D,); what is outside of them stays as it is."""
    patterns = []
    for pattern, part in zip(specification.patterns, moments.patterns, strict=True):
        unit = units[specification.features_of(pattern)]
        patterns.append(PatternMoments(part.samples, part.total / unit, part.gram / np.outer(unit, unit)))
    return moments._replace(patterns=tuple(patterns), shift=np.zeros(len(units)))


def _times(parameters: Parameters, specification: Specification, units: Array) -> Parameters:
    """Parameters with each view in units so many times smaller."""
    return parameters.rescaled(np.repeat(units, specification.sizes), units)


def _cells(moments: Moments, specification: Specification) -> Array:
    """Number of entries that samples have in each view, outside the moments too."""
    counts = view_counts(moments, specification.patterns, len(specification.views))
    return np.asarray(counts * (np.array(specification.sizes) + moments.spare_size))


def _widened(parameters: Parameters, specification: Specification, grown: tuple[int, ...]) -> Parameters:
    """The parameters after each view has grown by some features, on which they are zero."""
    ends = np.cumsum([size - more for size, more in zip(specification.sizes, grown, strict=True)])
    at = np.repeat(ends.astype(np.intp), grown)
    loadings = np.insert(parameters.loadings, at, 0.0, axis=0)
    return Parameters(loadings, np.insert(parameters.mean, at, 0.0), parameters.noise_variance)


def _noisy(moments: Moments, specification: Specification) -> list[Parameters]:
    """The maximum with noise, from which the limit of no noise starts: it depends on the start (errata 22)."""
    variances = view_variances(moments, specification.sizes, specification.patterns)
    best, _ = solve(moments, specification.freed(NOISY_FLOOR * variances), tolerance=COARSE)
    return [best.parameters._replace(noise_variance=specification.floors)]


def _highest(
    starts: list[Parameters], moments: Moments, specification: Specification, tolerance: float
) -> tuple[Maximum, bool]:
    """The best maximum that starts lead to.  What comes near one that is known, or ends below it, is not followed."""
    maxima: list[tuple[Maximum, bool]] = []

    def known(seen: Maximum) -> bool:
        return any(_below(seen, other, moments, specification) for other, _ in maxima)

    for start in starts:
        rounds = ROUNDS
        if maxima and tolerance < COARSE and not specification.fixed:
            seen, top = _look(start, moments, specification, known), max(run.log_likelihood for run, _ in maxima)
            if known(seen) or seen.log_likelihood < top - LITTLE_BELOW * abs(top):
                continue
            start, rounds = seen.parameters, AFTER_LOOK
        run = _climb(start, moments, specification, tolerance, known, rounds)
        if not known(run[0]):
            maxima.append(run)
    return max(maxima, key=lambda run: run[0].log_likelihood)


def _look(
    start: Parameters, moments: Moments, specification: Specification, known: Callable[[Maximum], bool]
) -> Maximum:
    """A point a little below the maximum that a start leads to, or near one that is `known`."""
    seen, _ = _climb(start, moments, specification, COARSE, known, EM_ALONE)
    if known(seen):
        return seen
    # EM also slows down far from any maximum.
    top = ascend(seen.parameters, moments, specification, tolerance=LOOK, max_steps=ROUNDS[-1][1], leave=known)
    return Maximum(top.point, top.value)


def _below(seen: Maximum, top: Maximum, moments: Moments, specification: Specification) -> bool:
    """Whether a point is a little below a maximum and near to it: noises and the space of the components are alike."""
    lacking, rounding = top.log_likelihood - seen.log_likelihood, _rounding(top, moments, specification)
    if not -rounding <= lacking <= LITTLE_BELOW * abs(top.log_likelihood) + rounding:
        return False
    if np.abs(np.log(seen.parameters.noise_variance / top.parameters.noise_variance)).max() > ALIKE:
        return False
    one, other = (_shares(solution.parameters, specification) for solution in (seen, top))
    apart = ((one.T @ one) ** 2).sum() + ((other.T @ other) ** 2).sum() - 2.0 * ((one.T @ other) ** 2).sum()
    return bool(apart <= ALIKE)


def _rounding(solution: Maximum, moments: Moments, specification: Specification) -> float:
    """Rounding of a log-likelihood: squares of the data over small noise variances, of which little is left."""
    variances = view_variances(moments, specification.sizes, specification.patterns)
    least = np.array([solution.parameters.noise_variance[groups].min() for groups in specification.noise_slices])
    return float(np.finfo(float).eps * (_cells(moments, specification) * variances / least).sum())


def _shares(parameters: Parameters, specification: Specification) -> Array:
    """The directions of the components (D, K), their squared lengths the shares of signal in the variance along them,
    in units of the noise."""
    scaled = parameters.loadings / np.sqrt(specification.per_feature(parameters.noise_variance))[:, None]
    u, values, _ = np.linalg.svd(scaled, full_matrices=False)
    return np.asarray(u * (values / np.hypot(1.0, values)))


def _climb(
    start: Parameters,
    moments: Moments,
    specification: Specification,
    tolerance: float,
    known: Callable[[Maximum], bool],
    rounds: tuple[tuple[int, int], ...] = ROUNDS,
) -> tuple[Maximum, bool]:
    """The maximum that a start leads to, or a point near one that is `known`, by accelerated EM, and where that creeps
    by quasi-Newton steps in turn with it; without noise by EM alone, which does not leave the start's neighbourhood."""
    fixed = specification.fixed
    best, settled, before = Maximum(start, -np.inf), False, -np.inf
    for steps, further in ((MAX_EVALUATIONS, 0),) if fixed else rounds:
        run = accelerate(
            lambda p: em_step(p, moments, specification),
            best.parameters,
            tolerance=max(tolerance, LEAST_SQUARES) if fixed else tolerance,
            max_evaluations=steps,
            project=lambda p: p.at_least(specification.floors),
            steer=lambda point, candidate, image, value: None if known(Maximum(point, value)) else candidate,
        )
        settled = run.converged
        if run.value >= best.log_likelihood:
            best = Maximum(run.point, run.value)
        if settled or not further:
            break
        top = ascend(best.parameters, moments, specification, tolerance=tolerance, max_steps=further, leave=known)
        if top.value >= best.log_likelihood:
            best = Maximum(top.point, top.value)
        # Where that is larger than the tolerance, EM never comes to rest.
        settled = top.converged or best.log_likelihood - before <= _rounding(best, moments, specification)
        if settled:
            break
        before = best.log_likelihood
    return best, settled


def _settled(solution: Maximum, moments: Moments, specification: Specification) -> Maximum:
    """The maximum with parameters that stand still, so that other ways to it find the same digits."""
    point = settle(
        lambda p: em_step(p, moments, specification),
        solution.parameters,
        tolerance=STILL,
        max_evaluations=MAX_SETTLING,
        project=lambda p: p.at_least(specification.floors),
    )
    value = em_step(point, moments, specification).log_likelihood
    return Maximum(point, value) if value >= solution.log_likelihood - ROUNDING * abs(value) else solution
