"""Route rows: any entry may be missing.  One pass for each iteration, and few of them; two in all for few masks.

A pass returns the EM statistics, from which the driver takes the EM image, the log-likelihood and the gradient.  The
image is that of PX-EM, extrapolated by Anderson's combination; the gradient says beforehand whether the combination
leads up, and how much is left to gain.  All of it happens in units in which each noise group has variance 1 about 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.fitting.acceleration import accelerate
from dlatent.fitting.advice import advise, at_floors, noise_floors
from dlatent.fitting.outcome import Gather, Options, Outcome, Progress, Report
from dlatent.fitting.subspace import require_variation
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.entries import (
    Entries,
    EntryRequest,
    EntrySums,
    PairRequest,
    PairSums,
    SketchRequest,
    block_entries,
    block_entry_sums,
    block_pairs,
    block_sketch,
    gradient,
    maximise_entries,
)
from dlatent.linear_gaussian.factor_analysis import factors
from dlatent.linear_gaussian.moments import Moments, PatternMoments
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.patterns import (
    PatternRequest,
    PatternSums,
    block_patterns,
    distinct,
    entries_of_patterns,
    few_buckets,
    pairs_of_patterns,
)
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import complete

PAIRWISE = 256
"""Features up to which a pass for the second moments of all pairs costs about what it saves."""
SMALLEST_VARIANCE = 1e-3
"""Eigenvalue that second moments of pairs are raised to, in units of a feature's variance."""
START_FLOOR = 0.02
"""Noise variance that a start has at least, in the same units."""
MORE_DIRECTIONS = 30
"""Directions of the first sketch beyond the components: they cost little, and save as many passes as they are."""
SKETCHES = 2
SMALLEST_NOISE = 0.1
"""Part of a feature's variance that a start leaves to the noise at least."""
ROUNDING = 1e-15
"""Relative change of the log-likelihood that is rounding."""
LONGEST = 64.0
"""Times the EM step that a stretched one is long at most."""


class Units(NamedTuple):
    """u = (x − shift)/scale (D,): every feature with mean 0, every noise group with variance 1; counts (D,) of the
    observed entries, and the mean variances (groups,) in the units of the data."""

    shift: Array
    scale: Array
    counts: Array
    variances: Array

    def restored(self, parameters: Parameters, specification: Specification) -> Parameters:
        """Parameters in the units of the data; a feature that was never observed has the mean NaN and, where it has one
        of its own, the noise variance of a feature of mean variance."""
        mean = np.where(self.counts > 0.5, self.shift + self.scale * parameters.mean, np.nan)
        first = [at.start for at in specification.group_slices]
        noise = parameters.noise_variance * self.scale[first] ** 2
        noise = np.where(np.add.reduceat(self.counts, first) > 0.5, noise, self.variances)
        return Parameters(parameters.loadings * self.scale[:, None], mean, noise)

    @property
    def jacobian(self) -> float:
        """What the log-likelihood of the data is more than that of u."""
        return -float(self.counts @ np.log(self.scale))


def fit_rows(
    gather: Gather,
    specification: Specification,
    shift: Array,
    options: Options,
    *,
    solver: str = "auto",
    report: Report | None = None,
) -> Outcome:
    """Maximum likelihood of the observed entries; `shift` (D + L′,) is a pilot mean, `solver` "auto" or "em" (plain EM
    from random loadings)."""
    sums: EntrySums = gather(block_entry_sums, shift, name="sums")
    units, floors = _units(sums, specification, shift, options)
    scaled = specification.with_floors(floors)
    patterns = _patterns(gather, sums, units)
    iterating = options if patterns is None or solver == "em" else _tight(options)
    climb = _Climb(gather, scaled, units, iterating, report, patterns)
    if solver == "em":
        best, value, converged = climb.textbook(_random_start(scaled, options))
    else:
        start = _found_start(gather, scaled, units, sums, patterns, options)
        best, value, converged = climb.accelerated(start)
    restored = units.restored(best, specification)
    first = [at.start for at in specification.group_slices]
    floored = specification.with_floors(floors * units.scale[first] ** 2)
    history = tuple(climb.history)
    low = at_floors(restored, floored)
    said = advise(restored, floored, history, options, units.variances, low, converged=converged)
    return Outcome(
        canonical(restored, floored),
        floored,
        value,
        history,
        converged,
        len(history),
        low,
        int(sums.instances),
        _view_instances(sums, specification),
        tuple(float(units.variances[at].mean()) for at in specification.noise_slices),
        said + _unseen(sums),
    )


def _units(sums: EntrySums, specification: Specification, shift: Array, options: Options) -> tuple[Units, Array]:
    """The units of the fit, and the noise floors in them."""
    if not sums.counts.any():
        raise DataError("no entry is observed: all are missing")
    counts = np.maximum(sums.counts, 1.0)
    offset = sums.total / counts
    energies = np.maximum(sums.energy - counts * offset**2, 0.0)
    starts = [at.start for at in specification.group_slices]
    cells = np.add.reduceat(sums.counts, starts)
    variances = np.add.reduceat(energies, starts) / np.maximum(cells, 1.0)
    require_variation(np.array([variances.max()]))
    variances[cells < 0.5] = variances[cells > 0.5].mean()
    floors = noise_floors(specification, variances, shift + offset, options)
    usual = np.where(variances > 0.0, variances, variances.mean())
    scale = np.sqrt(specification.per_feature(usual))
    return Units(shift + offset, scale, sums.counts, variances), floors / usual


def _view_instances(sums: EntrySums, specification: Specification) -> tuple[int, ...]:
    """Instances that observe something of each view; of several views the count of the feature that most observe."""
    if len(specification.views) == 1:
        return (int(sums.instances - sums.empty),)
    return tuple(int(sums.counts[own].max()) for own in specification.slices)


def _unseen(sums: EntrySums) -> tuple[str, ...]:
    """What to say of rows and features without an observed entry."""
    said = []
    if sums.empty:
        said.append(
            f"data: {int(sums.empty)} of {int(sums.instances)} instances have no observed entry; nothing is known of "
            "them, and their scores are those of the prior"
        )
    never = np.flatnonzero(sums.counts < 0.5)
    if len(never):
        said.append(
            f"data: {len(never)} of {len(sums.counts)} features were never observed (the first is column {never[0]}); "
            "their loadings are 0 and their means NaN, take them out"
        )
    return tuple(said)


def _random_start(specification: Specification, options: Options) -> Parameters:
    rng = np.random.default_rng(options.random_state)
    shape = (sum(specification.sizes), specification.n_components)
    loadings = rng.standard_normal(shape) / np.sqrt(specification.n_components)
    return Parameters(loadings, np.zeros(shape[0]), np.ones(len(specification.group_sizes)))


def _patterns(gather: Gather, sums: EntrySums, units: Units) -> PatternSums | None:
    """The moments of each mask, where these are few: one pass, and none after it."""
    buckets = few_buckets(sums.buckets, len(units.shift))
    if buckets is None:
        return None
    found: PatternSums = gather(block_patterns, PatternRequest(buckets, units.shift, units.scale), name="patterns")
    return found if distinct(found) else None


def _tight(options: Options) -> Options:
    """Iterations that cost no pass go on nearly to rounding."""
    return replace(options, tolerance=min(options.tolerance, 1e-12), max_iterations=max(options.max_iterations, 1000))


def _found_start(
    gather: Gather,
    specification: Specification,
    units: Units,
    sums: EntrySums,
    patterns: PatternSums | None,
    options: Options,
) -> Parameters:
    """A start from second moments of pairs of features, where these are few; else from a sketch of the mean-filled
    data."""
    if patterns is not None:
        return _pairwise_start(pairs_of_patterns(patterns), specification, sums.instances, options)
    if sums.buckets is not None and len(units.shift) <= PAIRWISE:
        pairs: PairSums = gather(block_pairs, PairRequest(units.shift, units.scale), name="pairs")
        return _pairwise_start(pairs, specification, sums.instances, options)
    return _sketched_start(*_sketches(gather, specification, units, options), specification, sums.instances, options)


def _pairwise_start(pairs: PairSums, specification: Specification, instances: float, options: Options) -> Parameters:
    """The maximum for complete data with these second moments, each from the rows that observe both features.

    They need not be those of any data: negative eigenvalues are raised.
    """
    second = pairs.gram / np.maximum(pairs.counts, 1.0)
    values, vectors = la.eigh(second)
    second = (vectors * np.maximum(values, SMALLEST_VARIANCE)) @ vectors.T
    width, views = len(second), len(specification.views)
    moments = Moments(
        (PatternMoments(instances, np.zeros(width), second * instances),),
        np.zeros(width),
        np.zeros(views),
        np.zeros(views),
    )
    above = np.maximum(specification.floors, START_FLOOR)
    whole = replace(specification.with_floors(above), patterns=(tuple(range(views)),))
    if views == 1 and not whole.views[0].shared:
        parameters = factors(moments, whole).solution.parameters
    else:
        parameters = complete(moments, whole)[0].parameters
    rng = np.random.default_rng(options.random_state)
    # Components that are clipped get a direction of their own, so that no symmetry stays unbroken.
    return parameters._replace(loadings=parameters.loadings + 1e-3 * rng.standard_normal(parameters.loadings.shape))


def _sketches(gather: Gather, specification: Specification, units: Units, options: Options) -> tuple[Array, Array]:
    """The mean-filled Gram matrix times some directions, and these, from two passes with random ones to begin with."""
    width, k = sum(specification.sizes), specification.n_components
    columns = min(width, k + max(MORE_DIRECTIONS, k))
    rng = np.random.default_rng(options.random_state)
    directions: Array = np.asarray(la.qr(rng.standard_normal((width, columns)), mode="economic")[0])
    for left in reversed(range(SKETCHES)):
        request = SketchRequest(directions, units.shift, units.scale)
        product: Array = gather(block_sketch, request, name="sketch")
        if left:
            directions = np.asarray(la.qr(product, mode="economic")[0])
    return product, directions


def _sketched_start(
    product: Array, directions: Array, specification: Specification, instances: float, options: Options
) -> Parameters:
    """Leading eigenvectors of the mean-filled data (Nyström), a little stirred, and noise that is left over."""
    width, k = sum(specification.sizes), specification.n_components
    values, vectors = _nystrom(product / instances, directions)
    rng = np.random.default_rng(options.random_state)
    loadings = vectors[:, :k] * np.sqrt(values[:k])
    # Components that the sketch does not see get a direction of their own, so that no symmetry stays unbroken.
    loadings += 1e-3 * rng.standard_normal(loadings.shape)
    left_over = np.maximum(1.0 - (loadings**2).sum(axis=1), SMALLEST_NOISE)
    starts = [at.start for at in specification.group_slices]
    noise = np.add.reduceat(left_over, starts) / np.array(specification.group_sizes)
    return Parameters(loadings, np.zeros(width), np.maximum(noise, specification.floors))


def _nystrom(product: Array, directions: Array) -> tuple[Array, Array]:
    """Eigenpairs of a positive semidefinite G (D, D), largest first, from P = GV (D, b) and V: G ≈ P(VᵀP)⁻¹Pᵀ."""
    small = 10.0 * np.finfo(float).eps * float(np.linalg.norm(product))
    moved = product + small * directions
    core = directions.T @ moved
    factor = la.cholesky((core + core.T) / 2, lower=True)
    vectors, roots, _ = la.svd(la.solve_triangular(factor, moved.T, lower=True).T, full_matrices=False)
    return np.maximum(roots**2 - small, 0.0), vectors


class _Climb:
    """Iterations over the data: the history, and what the last pass said."""

    def __init__(
        self,
        gather: Gather,
        specification: Specification,
        units: Units,
        options: Options,
        report: Report | None,
        patterns: PatternSums | None,
    ) -> None:
        self.patterns = patterns
        self.gather, self.specification, self.units = gather, specification, units
        self.options, self.report = options, report
        self.history: list[Progress] = []
        self.slopes: dict[int, Array] = {}
        self.stretch, self.calm = 1.0, 0

    def visit(self, parameters: Parameters) -> tuple[Entries, float]:
        """One pass, or none where masks are few: the statistics at these parameters, and their log-likelihood in the
        units of the data."""
        request = EntryRequest(parameters, self.specification, self.units.shift, self.units.scale)
        found: Entries
        if self.patterns is None:
            found = self.gather(block_entries, request, name="entries")
        else:
            found = entries_of_patterns(self.patterns, request)
        return found, found.log_likelihood + self.units.jacobian

    def record(self, value: float, left: float) -> Progress:
        """A line of the history; `left` is what there may be to gain, in nats."""
        gain = value - self.history[-1].log_likelihood if self.history else float("nan")
        line = Progress(len(self.history) + 1, value, gain, left / self.size(value), 0)
        self.history.append(line)
        if self.report is not None:
            self.report(line)
        return line

    def size(self, value: float) -> float:
        """What gains are relative to."""
        return max(abs(value), float(self.units.counts.max()))

    def textbook(self, parameters: Parameters) -> tuple[Parameters, float, bool]:
        """Plain EM, until an iteration gains less than the tolerance."""
        for _ in range(self.options.max_iterations):
            found, value = self.visit(parameters)
            line = self.record(value, float("nan"))
            if abs(line.gain) <= self.options.tolerance * max(abs(value), 1.0):
                return parameters, value, True
            before, parameters = parameters, maximise_entries(found, parameters, self.specification, expand=False)
        return before, value, False

    def accelerated(self, start: Parameters) -> tuple[Parameters, float, bool]:
        """PX-EM with Anderson acceleration, until little is left by the gradient."""
        found = accelerate(
            self._step,
            start,
            tolerance=ROUNDING,
            max_evaluations=self.options.max_iterations,
            project=self._admissible,
            steer=self._steer,
        )
        if not self.history or found.value != self.history[-1].log_likelihood:
            self.record(found.value, float("nan"))
        return found.point, found.value, found.converged

    def _admissible(self, point: Parameters) -> Parameters:
        return point._replace(noise_variance=np.maximum(point.noise_variance, self.specification.floors))

    def _step(self, point: Parameters) -> tuple[Parameters, float]:
        found, value = self.visit(point)
        self.slopes = {id(point): gradient(found, point, self.specification)}
        return maximise_entries(found, point, self.specification), value

    def _steer(self, point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters | None:
        """Where to go from a point: to Anderson's combination where that leads up, else along a stretched EM step.

        Near a saddle the combination leads back to it, and EM leaves it by steps that grow slowly: stretching helps.
        What the combination promises, half its slope, is the estimate of what is left to gain.
        """
        at = point.flatten()
        promise = 0.5 * float(self.slopes[id(point)] @ (candidate.flatten() - at))
        line = self.record(value, max(promise, 0.0))
        near = 0.0 <= line.remaining <= 0.5 * self.options.tolerance and promise >= 0.0
        slow = line.gain <= 100.0 * self.options.tolerance * self.size(value)
        self.calm = self.calm + 1 if near and slow else 0
        if self.calm >= 2:
            return None
        if promise > 0.0:
            self.stretch = 1.0
            return candidate
        self.stretch = min(2.0 * self.stretch, LONGEST)
        return self._admissible(point.unflatten(at + self.stretch * (image.flatten() - at)))
