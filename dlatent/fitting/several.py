"""The best of several maxima of factor analysis with missing entries or views, all found on the driver.

What a search needs is the likelihood with its gradient, an EM step, and the second moments that the data would have if
nothing were missing, given the parameters.  Moves from one maximum towards another are those of complete data with
these moments, for which they cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array, Block
from dlatent.linear_gaussian.entries import Entries, EntryRequest, block_entries, gradient, maximise_entries, weights_of
from dlatent.linear_gaussian.entries import posterior as posterior_of
from dlatent.linear_gaussian.expectation import expect_moments, projection
from dlatent.linear_gaussian.factor_analysis import LOW, moves_from
from dlatent.linear_gaussian.maximisation import maximise, slope
from dlatent.linear_gaussian.moments import Moments, PatternMoments, recentred
from dlatent.linear_gaussian.observed import chunks, observed, rows_of
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.patterns import PatternSums, entries_of_patterns
from dlatent.linear_gaussian.specification import Specification, View

SAMPLE = 2**16
"""Entries of the rows that are held on the driver, half a megabyte."""
RANDOM_STARTS = 24
"""Every second begins with EM steps: what these and quasi-Newton steps lead to differs."""
EM_STEPS = 10
AGAIN = 12
"""Starts that lead to the best maximum, after which there are no more."""
WORK = 6e9
"""Multiplications, of about a nanosecond each, after which no climb begins; after half of them none from a start."""
ENOUGH = 200
"""Evaluations for which there must be work; else no other maximum is searched."""
EACH = 2**17
"""What an evaluation costs at least for each pattern, in multiplications."""
OF_WHOLE = 0.125
"""The same of a multiplication in products of whole matrices, as views have them."""
LOOK = 1e-4
"""Largest derivative of the log-likelihood per instance at which a first look at where a start leads ends."""
WORTH = 0.05
"""Nats per instance below the best maximum from which a first look is not followed up."""
SAME = 0.05
"""Largest difference of log noise variances of points that count as the same maximum."""
GRADIENT = 1e-9
"""Largest derivative of the log-likelihood per instance at which a search ends."""
NEAR = 1e-5
"""The same while maxima are compared."""
MAX_STEPS = 200
FEWEST, MOST = 50, 400
"""Evaluations of a climb until it begins again, as far as there is work left."""
RESTARTS = 10
ROUNDING = 1e-12
"""Relative difference of log-likelihoods that is rounding."""

Pattern = tuple[Any, PatternMoments]
"""Which features some instances have, and their moments."""


class Problem(NamedTuple):
    """A likelihood in units in which features have variance 1 about 0.

    `work` is about how many multiplications an evaluation takes.  `evaluate` gives the likelihood with its gradient by
    `Parameters.flatten`, `step` the EM image and the likelihood, `complete` the second moments (D, D) about the mean
    that whole instances are expected to have, of as many as `instances` tells.
    """

    specification: Specification
    instances: float
    work: float
    evaluate: Callable[[Parameters], tuple[float, Array]]
    step: Callable[[Parameters], tuple[Parameters, float]]
    complete: Callable[[Parameters], Array]


def of_views(moments: Moments, specification: Specification) -> Problem:
    """Instances of which some lack whole views."""

    def evaluate(point: Parameters) -> tuple[float, Array]:
        latent = expect_moments(point, moments, specification)
        return sum(part.log_likelihood for part in latent), slope(latent, point, specification)

    def step(point: Parameters) -> tuple[Parameters, float]:
        latent = expect_moments(point, moments, specification)
        return maximise(latent, specification), sum(part.log_likelihood for part in latent)

    held = list(zip(map(specification.features_of, specification.patterns), moments.patterns, strict=True))
    count = sum(found.instances for found in moments.patterns)
    return Problem(
        specification,
        count,
        _work(held, specification, OF_WHOLE),
        evaluate,
        step,
        lambda point: _completed(held, point),
    )


def _work(held: Iterable[Pattern], specification: Specification, times: float = 1.0) -> float:
    return float(sum(EACH + times * len(found.gram) ** 2 * specification.n_components for _, found in held))


def of_patterns(sums: PatternSums, specification: Specification) -> Problem:
    """Rows of few masks, from the sums of each."""
    held = [
        (at, PatternMoments(float(count), total[at], gram[np.ix_(at, at)]))
        for count, mask, total, gram in zip(*sums, strict=True)
        if len(at := np.flatnonzero(mask))
    ]
    return _of_entries(
        lambda request: entries_of_patterns(sums, request),
        specification,
        sum(found.instances for _, found in held),
        _work(held, specification),
        lambda point: _completed(held, point),
    )


def of_rows(rows: Array, specification: Specification) -> Problem:
    """Some rows (n, D), NaN where missing."""
    block = Block(0, 0, rows)
    return _of_entries(
        lambda request: block_entries(block, request),
        specification,
        float(len(rows)),
        float(EACH + rows.size * specification.n_components**2),
        lambda point: _completed_rows(rows, point),
    )


def _of_entries(
    gather: Callable[[EntryRequest], Entries],
    specification: Specification,
    instances: float,
    work: float,
    complete: Callable[[Parameters], Array],
) -> Problem:
    width = sum(specification.sizes)
    shift, scale = np.zeros(width), np.ones(width)

    def evaluate(point: Parameters) -> tuple[float, Array]:
        found = gather(EntryRequest(point, specification, shift, scale))
        return found.log_likelihood, gradient(found, point, specification)

    def step(point: Parameters) -> tuple[Parameters, float]:
        found = gather(EntryRequest(point, specification, shift, scale))
        return maximise_entries(found, point, specification), found.log_likelihood

    return Problem(specification, instances, work, evaluate, step, complete)


def _completed(held: Iterable[Pattern], point: Parameters) -> Array:
    """Second moments of patterns, what is missing by its expectation given the rest."""
    width = len(point.mean)
    total = np.zeros((width, width))
    for at, found in held:
        own = np.arange(width)[at]
        gone = np.setdiff1d(np.arange(width), own)
        middle = recentred(found, point.mean[own])
        about = projection(point.loadings[own], point.noise_variance[own])
        across = middle.gram @ about.coefficients.T
        inner = found.instances * about.covariance + about.coefficients @ across
        lost = point.loadings[gone]
        total[np.ix_(own, own)] += middle.gram
        total[np.ix_(own, gone)] += across @ lost.T
        total[np.ix_(gone, own)] += lost @ across.T
        total[np.ix_(gone, gone)] += lost @ inner @ lost.T
        total[gone, gone] += found.instances * point.noise_variance[gone]
    return total


def _completed_rows(rows: Array, point: Parameters) -> Array:
    """The same of rows."""
    width, k = point.loadings.shape
    weights = weights_of(point.loadings, point.noise_variance)
    total = np.zeros((width, width))
    for at in chunks(rows, (k + 1) * (k + 2) // 2):
        seen = observed(rows[at], point.mean, np.ones(width))
        about = posterior_of(seen, weights)
        gone = np.isnan(rows[at])
        filled = np.where(gone, about.mean.T @ point.loadings.T, np.asarray(seen.residuals))
        spread = np.moveaxis(seen.spread(about.covariance), -1, 0)
        lost = gone[:, :, None] * (point.loadings @ np.linalg.cholesky(spread))
        total += filled.T @ filled + np.einsum("njk,nlk->jl", lost, lost, optimize=True)
        total[np.diag_indices(width)] += gone.sum(axis=0) * point.noise_variance
    return total


class SampleRequest(NamedTuple):
    """How many of all instances, evenly spread, and the shift and scale (D,) of u = (x − shift)/scale."""

    rows: int
    instances: int
    shift: Array
    scale: Array


def block_sample(block: Block, request: SampleRequest) -> Array:
    """Rows u (rows, D) of the sample that lie in a block, the others zero; additive."""
    features = np.asarray(rows_of(block))
    places = np.arange(request.rows) * request.instances // request.rows
    own = np.flatnonzero((places >= block.start) & (places < block.start + len(features)))
    found = np.zeros((request.rows, features.shape[1]))
    found[own] = (features[places[own] - block.start] - request.shift) / request.scale
    return found


def best_of(problem: Problem, starts: Sequence[Parameters], random_state: Any) -> Parameters:
    """The best of the maxima to which given starts, random ones and moves away from the best lead; the first of the
    given starts where a search takes too much work."""
    if problem.work * ENOUGH > WORK:
        return starts[0]
    search, heights = _Search(problem), []
    for start in chain(starts, _random_starts(problem, random_state)):
        heights.append(search.look(start))
        again = sum(height >= search.value - problem.instances * NEAR for height in heights)
        if again >= AGAIN or search.work > 0.5 * WORK:
            break
    improved = True
    while improved:
        value, improved = search.value, False
        for start in _moves(problem, search.best):
            if improved or search.work > WORK:
                break
            search.look(start)
            improved = search.value > value + problem.instances * NEAR
    return search.climb(search.best, GRADIENT)[0]


def _random_starts(problem: Problem, random_state: Any) -> Iterator[Parameters]:
    rng, specification = np.random.default_rng(random_state), problem.specification
    width = sum(specification.sizes)
    for number in range(RANDOM_STARTS):
        loadings = rng.standard_normal((width, specification.n_components))
        loadings *= np.sqrt(0.5 / (loadings**2).sum(axis=1))[:, None]
        start = Parameters(loadings, np.zeros(width), np.maximum(0.5, specification.floors))
        for _ in range(EM_STEPS * (1 - number % 2)):
            start = problem.step(start)[0]
        yield start


def _moves(problem: Problem, best: Parameters) -> Iterator[Parameters]:
    """Where complete data with the expected second moments would move to."""
    width = len(best.mean)
    whole = Specification(
        (View("features", width, tuple(problem.specification.floors.tolist()), shared=False),),
        ((0,),),
        problem.specification.n_components,
    )
    found = PatternMoments(problem.instances, np.zeros(width), problem.complete(best))
    moments = Moments((found,), np.zeros(width), np.zeros(1), np.zeros(1))
    for moved in moves_from(moments, whole, best.noise_variance):
        yield moved._replace(mean=best.mean)


class _Search:
    """The maxima found so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.floors = problem.specification.floors
        self.found: list[tuple[Parameters, float]] = []
        self.work = 0.0

    @property
    def best(self) -> Parameters:
        """The best of them."""
        return max(self.found, key=lambda one: one[1])[0]

    @property
    def value(self) -> float:
        """Its log-likelihood."""
        return max(value for _, value in self.found)

    def look(self, start: Parameters) -> float:
        """The height to which a climb from a start comes: the top where that may be a maximum that is new and not far
        below the best."""
        for steepest in (LOOK, NEAR):
            start, value = self.climb(start, steepest)
            low = self.found and value < self.value - WORTH * self.problem.instances
            if low or self.known(start, value):
                return value
        self.found.append((start, value))
        return value

    def known(self, point: Parameters, value: float) -> bool:
        """Whether the point is at one of the maxima, and not above it; how little noise is does not matter."""
        noise = np.log(np.maximum(point.noise_variance, LOW))
        return any(
            value <= height + abs(height) * ROUNDING
            and float(abs(noise - np.log(np.maximum(other.noise_variance, LOW))).max()) < SAME
            for other, height in self.found
        )

    def climb(self, start: Parameters, gradient: float) -> tuple[Parameters, float]:
        """Quasi-Newton steps, begun again where a line search fails; noise that falls without end goes to its floor.

        Loadings and means are in units of the noise at each beginning, in which their curvature does not depend on it.
        """
        count, low = self.problem.instances, np.full(len(start.flatten()), -np.inf)
        low[-len(self.floors) :] = np.log(np.maximum(self.floors, np.finfo(float).tiny))
        vector = np.maximum(start.flatten(), low)
        unit = np.ones_like(vector)

        def objective(scaled: Array) -> tuple[float, Array]:
            self.work += self.problem.work
            value, rise = self.problem.evaluate(start.unflatten(scaled * unit))
            return -value / count, -rise * unit / count

        height = objective(vector)[0]
        for _ in range(RESTARTS):
            before, most = height, max(FEWEST, min(MOST, int((WORK - self.work) / self.problem.work)))
            spread = np.exp(0.5 * vector[-len(self.floors) :])
            unit[: -len(spread)] = np.r_[np.repeat(spread, start.loadings.shape[1]), spread]
            found = opt.minimize(
                objective,
                vector / unit,
                jac=True,
                method="L-BFGS-B",
                bounds=opt.Bounds(low, np.inf),
                options={"ftol": 0.0, "gtol": gradient, "maxiter": MAX_STEPS, "maxfun": most, "maxcor": 30},
            )
            if found.fun < height:
                vector, height = found.x * unit, float(found.fun)
            for place in np.flatnonzero((vector > low) & (low > -np.inf) & (vector < np.log(LOW))):
                lowered = vector.copy()
                lowered[place] = low[place]
                if (value := objective(lowered / unit)[0]) < height:
                    vector, height = lowered, value
            if not height < before - ROUNDING * max(abs(height), 1.0) or self.work > WORK:
                break
        point = start.unflatten(vector)
        return point._replace(noise_variance=np.maximum(point.noise_variance, self.floors)), -height * count
