"""The best of several maxima of factor analysis with missing entries or views, all found on the driver.

What a search needs is the likelihood with its gradient, an EM step, and the second moments that the data would have if
nothing were missing, given the parameters.  Moves from one maximum towards another are those of complete data with
these moments, for which they cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dlatent.arrays import Array, Block
from dlatent.gaussian.expectation import projection
from dlatent.gaussian.factor_analysis import moves, random_starts
from dlatent.gaussian.maxima import Maxima
from dlatent.gaussian.maximisation import em_step, likelihood
from dlatent.gaussian.missing_entries.entries import (
    Entries,
    EntryRequest,
    block_entries,
    gradient,
    maximise_entries,
    weights_of,
)
from dlatent.gaussian.missing_entries.entries import posterior as posterior_of
from dlatent.gaussian.missing_entries.observed import chunks, observed, rows_of, sampled
from dlatent.gaussian.missing_entries.patterns import MaskMoments, entries_of_patterns
from dlatent.gaussian.moments import Moments, PatternMoments, recentred
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.spectral import Profile

SAMPLE = 2**16
"""Entries of the rows that are held on the driver, half a megabyte."""
RANDOM_STARTS = 16
"""Every second begins with EM steps: what these and quasi-Newton steps lead to differs."""
EM_STEPS = 10
WORK = 6e9
"""Multiplications, of about a nanosecond each, after which no climb begins; after half of them none from a start."""
ENOUGH = 200
"""Evaluations for which there must be work; else no other maximum is searched."""
EACH = 2**17
"""Least cost of an evaluation for each pattern, in multiplications."""
STEP = 150
"""Cost of a quasi-Newton step for each parameter, in multiplications."""
GEMM_COST = 0.125
"""Cost of a multiplication in products of whole matrices, as views have them."""

Pattern = tuple[Any, PatternMoments]
"""Which features some samples have, and their moments."""


class Likelihood(NamedTuple):
    """A likelihood in units in which features have variance 1 about 0.

    `work` is about how many multiplications an evaluation takes.  `evaluate` gives the likelihood with its gradient by
    `Parameters.flatten`, `step` the EM image and the likelihood, `complete` the second moments (D, D) about the mean
    that whole samples are expected to have, of as many as `samples` tells.
    """

    specification: Specification
    samples: float
    work: float
    evaluate: Callable[[Parameters], tuple[float, Array]]
    step: Callable[[Parameters], tuple[Parameters, float]]
    complete: Callable[[Parameters], Array]


def of_views(moments: Moments, specification: Specification) -> Likelihood:
    """Samples of which some lack whole views."""
    patterns = list(zip(map(specification.features_of, specification.patterns), moments.patterns, strict=True))
    count = sum(part.samples for part in moments.patterns)
    return Likelihood(
        specification,
        count,
        _work(patterns, specification, GEMM_COST),
        lambda point: likelihood(point, moments, specification),
        lambda point: em_step(point, moments, specification),
        lambda point: _completed(patterns, point),
    )


def _work(patterns: Iterable[Pattern], specification: Specification, times: float = 1.0) -> float:
    return float(sum(EACH + times * len(part.gram) ** 2 * specification.n_components for _, part in patterns))


def of_patterns(sums: MaskMoments, specification: Specification) -> Likelihood:
    """Rows of few masks, from the sums of each."""
    patterns = [
        (at, PatternMoments(float(count), total[at], gram[np.ix_(at, at)]))
        for count, mask, total, gram in zip(*sums, strict=True)
        if len(at := np.flatnonzero(mask))
    ]
    return _of_entries(
        lambda request: entries_of_patterns(sums, request),
        specification,
        sum(part.samples for _, part in patterns),
        _work(patterns, specification),
        lambda point: _completed(patterns, point),
    )


def of_rows(rows: Array, specification: Specification) -> Likelihood:
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
    samples: float,
    work: float,
    complete: Callable[[Parameters], Array],
) -> Likelihood:
    width = sum(specification.sizes)
    shift, scale = np.zeros(width), np.ones(width)

    def evaluate(point: Parameters) -> tuple[float, Array]:
        entries = gather(EntryRequest(point, specification, shift, scale))
        return entries.log_likelihood, gradient(entries, point, specification)

    def step(point: Parameters) -> tuple[Parameters, float]:
        entries = gather(EntryRequest(point, specification, shift, scale))
        return maximise_entries(entries, point, specification), entries.log_likelihood

    return Likelihood(specification, samples, work, evaluate, step, complete)


def _completed(patterns: Iterable[Pattern], point: Parameters) -> Array:
    """Second moments of patterns, what is missing by its expectation given the rest."""
    width = len(point.mean)
    total = np.zeros((width, width))
    for at, part in patterns:
        seen = np.arange(width)[at]
        gone = np.setdiff1d(np.arange(width), seen)
        middle = recentred(part, point.mean[seen])
        about = projection(point.loadings[seen], point.noise_variance[seen])
        across = middle.gram @ about.coefficients.T
        inner = part.samples * about.covariance + about.coefficients @ across
        lost = point.loadings[gone]
        total[np.ix_(seen, seen)] += middle.gram
        total[np.ix_(seen, gone)] += across @ lost.T
        total[np.ix_(gone, seen)] += lost @ across.T
        total[np.ix_(gone, gone)] += lost @ inner @ lost.T
        total[gone, gone] += part.samples * point.noise_variance[gone]
    return total


def _completed_rows(rows: Array, point: Parameters) -> Array:
    """Second moments of rows, what is missing by its expectation given the rest."""
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
    """How many of all samples, evenly spread, and the shift and scale (D,) of u = (x − shift)/scale."""

    rows: int
    samples: int
    shift: Array
    scale: Array


def block_sample(block: Block, request: SampleRequest) -> Array:
    """Rows u (rows, D) of the sample that lie in a block, the others zero; additive."""
    features = np.asarray(rows_of(block))
    numbers, places = sampled(block, request.rows, request.samples)
    sample = np.zeros((request.rows, features.shape[1]))
    sample[numbers] = (features[places] - request.shift) / request.scale
    return sample


def best_of(problem: Likelihood, start: Parameters, random_state: Any) -> Parameters:
    """The best of the maxima to which a start, random ones and moves away from the best lead; the start where a search
    takes too much work."""
    work = problem.work + STEP * len(start.flatten())
    if work * ENOUGH > WORK:
        return start
    count, specification = problem.samples, problem.specification
    width, k = start.loadings.shape

    def objective(vector: Array) -> tuple[float, Array]:
        value, rise = problem.evaluate(start.unflatten(vector))
        return -value / count, -rise / count

    def unit(vector: Array) -> Array:
        """Loadings and means are in units of the noise, in which their curvature does not depend on it."""
        spread = np.exp(0.5 * vector[-width:])
        return np.concatenate([np.repeat(spread, k), spread, np.ones(width)])

    def starts() -> Iterator[Array]:
        yield start.flatten()
        for number, point in enumerate(random_starts(specification, RANDOM_STARTS, random_state)):
            for _ in range(EM_STEPS * (1 - number % 2)):
                point = problem.step(point)[0]
            yield point.flatten()

    def moved(vector: Array) -> Iterator[Array]:
        """Where complete data with the expected second moments would move to."""
        best = start.unflatten(vector)
        profile = _completed_profile(problem, best)
        for noise in moves(profile, np.log(best.noise_variance)):
            yield profile.solution(noise).parameters._replace(mean=best.mean).flatten()

    lower = np.log(np.maximum(specification.floors, np.finfo(float).tiny))
    search = Maxima(objective, lower, np.full(width, np.inf), WORK / work, unit)
    return start.unflatten(search.search(starts(), moved).point).at_least(specification.floors)


def _completed_profile(problem: Likelihood, point: Parameters) -> Profile:
    width = len(point.mean)
    features = View("features", width, tuple(problem.specification.floors.tolist()), shared=False)
    complete = PatternMoments(problem.samples, np.zeros(width), problem.complete(point))
    return Profile(
        Moments((complete,), np.zeros(width), np.zeros(1), np.zeros(1)),
        Specification((features,), ((0,),), problem.specification.n_components),
    )
