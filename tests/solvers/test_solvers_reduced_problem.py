"""The search on the driver where views are missing: against independent searches of dense normal distributions."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.optimize as opt

from dlatent import CorrespondencePPCA, NoiseFloorWarning, SupervisedPPCA
from dlatent.gaussian.maximisation import likelihood
from dlatent.gaussian.moments import Moments, PatternMoments, centred
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.spectral import complete, near_best
from dlatent.solvers import ascent
from dlatent.solvers.moments import reduced_problem
from dlatent.solvers.moments import starts as view_starts
from tests.fitted import encoding_of, parameters_of, specification_of
from tests.oracles import dense as oracles


def grouped(rows):
    masks = ~np.isnan(rows)
    for mask in np.unique(masks, axis=0):
        yield np.flatnonzero(mask), rows[(masks == mask).all(axis=1)][:, mask]


def dense_objective(rows, sizes, k):
    """Minus the log-likelihood by (W, μ, log σ²) and its gradient, from covariances that are formed and inverted."""
    width, group = sum(sizes), np.repeat(np.arange(len(sizes)), sizes)
    parts = [(at, len(x), x.mean(axis=0), np.cov(x.T, bias=True)) for at, x in grouped(rows)]

    def objective(vector):
        w, mean, noise = vector[: width * k].reshape(width, k), vector[width * k : -len(sizes)], vector[-len(sizes) :]
        value, by_w, by_mean, by_noise = 0.0, np.zeros_like(w), np.zeros(width), np.zeros(width)
        for at, count, centre, covariance in parts:
            model = w[at] @ w[at].T + np.diag(np.exp(noise)[group[at]])
            inverse, moved = np.linalg.inv(model), centre - mean[at]
            seen = inverse @ (covariance + np.outer(moved, moved))
            value += 0.5 * count * (np.linalg.slogdet(2 * np.pi * model)[1] + np.trace(seen))
            slope = 0.5 * count * (inverse - seen @ inverse)
            by_w[at] += 2.0 * slope @ w[at]
            by_mean[at] -= count * inverse @ moved
            by_noise[at] += np.diag(slope)
        by_log = np.bincount(group, by_noise) * np.exp(noise)
        return value / len(rows), np.concatenate([by_w.ravel(), by_mean, by_log]) / len(rows)

    return objective


def best_of_random_starts(rows, sizes, k, floors, starts=12):
    rng, width = np.random.default_rng(0), sum(sizes)
    spread = np.add.reduceat(np.nanvar(rows, axis=0), np.cumsum([0, *sizes])[:-1]) / sizes
    low = np.append(np.full(width * (k + 1), -np.inf), np.log(floors))
    found = []
    for _ in range(starts):
        w = rng.standard_normal((width, k)) * np.sqrt(np.repeat(spread, sizes))[:, None] * 10 ** rng.uniform(-1.5, 0.2)
        noise = np.log(spread) + np.log(10) * rng.uniform(-2.5, 0, len(sizes))
        start = np.maximum(np.concatenate([w.ravel(), np.nanmean(rows, axis=0), noise]), low)
        run = opt.minimize(
            dense_objective(rows, sizes, k),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=opt.Bounds(low, np.inf),
            options={"ftol": 1e-14, "gtol": 1e-8, "maxiter": 1500, "maxcor": 20},
        )
        found.append(-run.fun * len(rows))
    return max(found)


def two_views(seed, sizes=(4, 5), latent=3, noise=0.3):
    """100 rows of each view of 160 samples, the middle 40 of which have both."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(160, latent))
    both = [z @ rng.normal(size=(latent, size)) + noise * rng.normal(size=(160, size)) for size in sizes]
    rows = np.full((160, sum(sizes)), np.nan)
    rows[:100, : sizes[0]], rows[60:, sizes[0] :] = both[0][:100], both[1][60:]
    return rows, [both[0][:100], both[1][60:]], np.column_stack([np.arange(60, 100), np.arange(40)])


@pytest.fixture
def steps():
    """The sizes of the views at each step that a search evaluates, as Python's profiler sees it."""
    found, watched = [], {reduced_problem.em_step.__code__, ascent.likelihood.__code__}

    def watch(frame, event, _):
        if event == "call" and frame.f_code in watched:
            found.append(frame.f_locals["specification"].sizes)

    sys.setprofile(watch)
    yield found
    sys.setprofile(None)


@pytest.mark.slow
@pytest.mark.parametrize("k", [4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_where_components_reach_a_views_features_the_search_is_short_and_ends_at_the_best(seed, k, steps):
    """EM creeps there: it took up to 30,000 steps, and found less (seed 0, K = 5: −968.438, best −968.376)."""
    rows, views, pairs = two_views(seed)
    # At a floor of rounding the covariances that the random starts invert would be singular.
    fitted = CorrespondencePPCA(k, noise_floor=1e-6).fit(views, correspondence=pairs, client="serial")
    assert 0 < len(steps) < 3000
    floors = specification_of(fitted).floors
    assert fitted.log_likelihood_ >= best_of_random_starts(rows, (4, 5), k, floors) - 1e-5
    assert fitted.converged_


@pytest.mark.parametrize(
    ("seed", "labelled", "outputs", "k"), [(0, 8, 2, 3), (1, 12, 5, 4), (2, 40, 1, 6), (3, 20, 3, 7), (4, 60, 6, 5)]
)
def test_few_labels_end_at_the_best_of_random_starts(seed, labelled, outputs, k, steps):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(120, 4))
    x = z @ rng.normal(size=(4, 8)) + 0.5 * rng.normal(size=(120, 8))
    y = z @ rng.normal(size=(4, outputs)) + 0.3 * rng.normal(size=(120, outputs))
    y[labelled:] = np.nan
    fitted = SupervisedPPCA(k).fit(x, y, client="serial")
    assert 0 < len(steps) < 6000
    rows = np.hstack([x, encoding_of(fitted).encode(y, 120)])
    best = best_of_random_starts(rows, specification_of(fitted).sizes, k, specification_of(fitted).floors)
    assert fitted.log_likelihood_ >= best - 1e-5


@pytest.mark.parametrize(("rank", "seed"), [(5, 1), (6, 1), (7, 1), (8, 1)])
def test_where_no_noise_is_left_the_search_ends_at_rounding(rank, seed, steps):
    """Features of rank K or less: rounding is above the tolerance, and EM went on for up to 13,244 steps."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(150, rank))
    x, y = z @ rng.normal(size=(rank, 30)), z @ rng.normal(size=rank)
    y[20:] = np.nan
    with pytest.warns(NoiseFloorWarning):
        fitted = SupervisedPPCA(8).fit(x, y, client="serial")
    assert 0 < len(steps) < 450
    assert fitted.converged_


def test_features_of_few_directions_are_searched_in_these(steps):
    """A step in 6 axes in the place of 30 features, of which the others are noise at its floor; the same parameters."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(150, 6))
    x, y = z @ rng.normal(size=(6, 30)), z[:, :2] + 0.3 * rng.normal(size=(150, 2))
    y[40:] = np.nan
    with pytest.warns(NoiseFloorWarning):
        fitted = SupervisedPPCA(8, noise_floor=1e-6).fit(x, y, client="serial")
    assert set(steps) == {(6, 2)}
    rows = np.hstack([x, encoding_of(fitted).encode(y, 150)])
    dense = oracles.log_densities(oracles.dense(parameters_of(fitted), (30, 2)), rows).sum()
    assert fitted.log_likelihood_ == pytest.approx(dense, rel=1e-9)


def test_a_climb_ends_where_it_comes_near_a_known_maximum():
    rng = np.random.default_rng(5)
    z = rng.normal(size=(90, 2))
    rows = np.hstack([z @ rng.normal(size=(2, 6)), z @ rng.normal(size=(2, 3))]) + 0.5 * rng.normal(size=(90, 9))
    specification = Specification((View("x", 6, 1e-6), View("y", 3, 1e-3)), ((0,), (0, 1)), 2)
    parts = [part - part.mean(axis=0) for part in (rows[30:, :6], rows[:30])]
    found = tuple(PatternMoments(float(len(part)), part.sum(axis=0), part.T @ part) for part in parts)
    moments = Moments(found, np.zeros(9), np.zeros(2), np.zeros(2))
    first, second = view_starts.starting_points(moments, specification)[:2]
    top, converged = reduced_problem._climb(
        first, moments, specification, reduced_problem.TOLERANCE, lambda seen: False
    )
    assert converged
    low = top.log_likelihood - 1e-2
    seen, _ = reduced_problem._climb(
        second, moments, specification, reduced_problem.TOLERANCE, lambda seen: seen.log_likelihood >= low
    )
    assert low <= seen.log_likelihood < top.log_likelihood - 1e-8


def test_quasi_newton_steps_end_where_they_are_told_to():
    moments, specification = two_maxima()
    start = Parameters(np.eye(6)[:, :2], np.zeros(6), np.array([1.0, 1.0]))
    top = ascent.ascend(start, moments, specification, tolerance=1e-13, max_steps=1000)
    low = top.value - 1e-2
    seen = ascent.ascend(
        start, moments, specification, tolerance=1e-13, max_steps=1000, leave=lambda seen: seen.log_likelihood >= low
    )
    assert low <= seen.value < top.value
    assert seen.evaluations < top.evaluations
    assert seen.value == pytest.approx(likelihood(seen.point, moments, specification)[0], rel=1e-12)


def test_components_of_unlike_variances_hold_up_no_quasi_newton_step():
    """In units of the features' spread the likelihood bends hundreds of times more along some: 780 evaluations."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 12)) * 0.3
    rows = rng.normal(size=(400, 4)) @ (np.array([10.0, 5.0, 2.0, 1.0])[:, None] * rng.normal(size=(4, 12))) + noise
    specification = Specification((View("x", 8, 1e-9), View("y", 4, 1e-9)), ((0,), (0, 1)), 4)
    found = tuple(PatternMoments(float(len(x)), x.sum(axis=0), x.T @ x) for x in (rows[:360, :8], rows[360:]))
    about_zero = Moments(found, np.zeros(12), np.zeros(2), np.zeros(2))
    moments = centred(about_zero, specification.sizes, specification.patterns)
    for start in view_starts.starting_points(moments, specification):
        top = ascent.ascend(start, moments, specification, tolerance=1e-12, max_steps=3000)
        assert top.converged
        assert top.evaluations < 400


def test_the_best_maximum_is_that_of_the_best_start_climbed_alone():
    """Starts that end below another are given up, whichever comes first."""
    specification = Specification((View("x", 5, 1e-6), View("y", 3, 1e-3)), ((0,), (0, 1), (1,)), 2)
    disagree = 0
    for seed in (4, 10, 17, 18, 25, 32, 33):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(40, 8)) @ rng.normal(size=(8, 8)) * rng.uniform(0.3, 3.0, size=8)
        parts = [rows[:15, :5], rows[15:25], rows[25:, 5:]]
        found = tuple(PatternMoments(float(len(part)), part.sum(axis=0), part.T @ part) for part in parts)
        about_zero = Moments(found, np.zeros(8), np.zeros(2), np.zeros(2))
        moments = centred(about_zero, specification.sizes, specification.patterns)
        heights = [
            reduced_problem.solve(moments, specification, warm=reduced_problem.Warm(start, (), converged=False))[0][1]
            for start in view_starts.starting_points(moments, specification)
        ]
        disagree += max(heights) - min(heights) > 0.01
        assert reduced_problem.solve(moments, specification)[0].log_likelihood >= max(heights) - 1e-9
    assert disagree >= 3


def two_maxima():
    """Moments of complete rows, and a model of two components for them whose noises have maxima far from each other."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 6)) * np.array([3.0, 2.0, 1.0, 1.0, 1.0, 2.5])
    rows -= rows.mean(axis=0)
    found = PatternMoments(40.0, np.zeros(6), rows.T @ rows)
    specification = Specification((View("x", 5, 1e-6), View("y", 1, 1e-3)), ((0, 1),), 2)
    return Moments((found,), np.zeros(6), np.zeros(2), np.zeros(2)), specification


def test_another_maximum_or_a_higher_point_is_followed():
    moments, specification = two_maxima()
    top, other = complete(moments, specification)[:2]
    assert reduced_problem._below(top, top, moments, specification)
    assert not reduced_problem._below(other, top, moments, specification)
    higher = top._replace(log_likelihood=top.log_likelihood + 1e-6)
    assert not reduced_problem._below(higher, top, moments, specification)
    turned = top.parameters._replace(loadings=top.parameters.loadings[[1, 0, 2, 3, 4, 5]])
    assert not reduced_problem._below(top._replace(parameters=turned), top, moments, specification)


@pytest.mark.parametrize(("labelled", "k"), [(4, 6), (7, 3), (30, 3)])
def test_starts_from_few_labelled_rows_are_found_in_the_axes_where_these_vary(labelled, k):
    """The search there has labelled − 1 features instead of all, and finds the same."""
    rng = np.random.default_rng(labelled)
    rows = rng.normal(size=(labelled, 4)) @ rng.normal(size=(4, 15)) + 0.1 * rng.normal(size=(labelled, 15))
    rows -= rows.mean(axis=0)
    views = (View("x", 12, 1e-6), View("y", 3, 1e-3))
    specification = Specification(views, ((0, 1),), k)
    found = PatternMoments(float(labelled), np.zeros(15), rows.T @ rows)
    moments = Moments((found,), np.zeros(15), np.zeros(2), np.zeros(2))
    inside, small, axes = view_starts.occupied(moments, specification)
    assert small.sizes == (min(labelled - 1, 12), 3)
    start = near_best(inside, small)
    lifted = view_starts._padded(view_starts.turned(start.parameters, axes), specification)
    assert lifted.loadings.shape == (15, k)
    dense = oracles.log_densities(oracles.dense(lifted, (12, 3)), rows).sum()
    assert start.log_likelihood == pytest.approx(dense, rel=1e-9)
    assert start.log_likelihood == pytest.approx(near_best(moments, specification).log_likelihood, rel=1e-9)


def test_the_gradient_of_the_quasi_newton_search_is_that_of_dense_distributions():
    """Three views, means that are not those of the data, features outside, noise variances shared."""
    rng, sizes, k = np.random.default_rng(3), (3, 2, 4), 2
    rows = rng.normal(size=(60, 9)) @ rng.normal(size=(9, 9))
    rows[:20, 3:], rows[20:40, :3], rows[40:50, 5:] = np.nan, np.nan, np.nan
    patterns, found = [], []
    bounds = np.cumsum([0, *sizes])
    for at, part in grouped(rows):
        patterns.append(tuple(view for view in range(3) if bounds[view] in at))
        found.append(PatternMoments(float(len(part)), part.sum(axis=0), part.T @ part))
    specification = Specification(tuple(View(str(n), s) for n, s in enumerate(sizes)), tuple(patterns), k)
    moments = Moments(tuple(found), np.zeros(9), np.zeros(3), np.zeros(3))
    point = Parameters(rng.normal(size=(9, k)), rng.normal(size=9), np.array([0.5, 1.5, 0.8]))
    value, slope = likelihood(point, moments, specification)
    assert value == pytest.approx(oracles.log_densities(oracles.dense(point, sizes), rows).sum(), rel=1e-12)
    expected = 60 * oracles.score_vector(point, specification, rows)
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=60e-8)


def test_features_outside_the_moments_count_in_the_gradient():
    """Features with loadings 0 may be left out of the moments, if their number and energy are told."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 5))
    rows -= rows.mean(axis=0)
    gram = rows.T @ rows
    whole = Specification((View("x", 5),), ((0,),), 2)
    part = whole.resized((3,))
    outside = np.array([np.trace(gram[3:, 3:])])
    everything = Moments((PatternMoments(30.0, np.zeros(5), gram),), np.zeros(5), np.zeros(1), 0 * outside)
    inside = Moments((PatternMoments(30.0, np.zeros(3), gram[:3, :3]),), np.zeros(3), np.array([2.0]), outside)
    loadings = np.vstack([rng.normal(size=(3, 2)), np.zeros((2, 2))])
    noise = np.array([0.7])
    one = likelihood(Parameters(loadings, np.zeros(5), noise), everything, whole)
    other = likelihood(Parameters(loadings[:3], np.zeros(3), noise), inside, part)
    assert one[0] == pytest.approx(other[0], rel=1e-12)
    assert one[1][-1] == pytest.approx(other[1][-1], rel=1e-10)
