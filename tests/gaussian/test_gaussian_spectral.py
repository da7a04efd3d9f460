"""The closed forms for complete data, their profile likelihood, and the search over two noise variances."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.gaussian import spectral
from dlatent.gaussian.canonical import canonical, column_signs
from dlatent.gaussian.maximisation import em_step
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.spectral import Profile, complete, ppca
from dlatent.solvers.ascent import accelerate
from tests.oracles import dense as oracles
from tests.simulators import random_parameters, simulate, specification_of


def moments_of(rows, views=1):
    moved = rows - rows.mean(axis=0)
    found = PatternMoments(float(len(rows)), np.zeros(rows.shape[1]), moved.T @ moved)
    return Moments((found,), rows.mean(axis=0), np.zeros(views), np.zeros(views))


def lifted(parameters, rows):
    return parameters._replace(mean=parameters.mean + rows.mean(axis=0))


def dense_value(parameters, rows, sizes):
    return oracles.log_densities(oracles.dense(lifted(parameters, rows), sizes), rows).sum()


@pytest.mark.parametrize(("n", "d", "k"), [(60, 8, 3), (12, 30, 4), (9, 9, 1), (40, 5, 4)])
def test_ppca_is_the_textbook_closed_form(n, d, k):
    rows = simulate(n, (d,), k, random_state=n).features
    found = ppca(moments_of(rows), specification_of((d,), k))
    expected = oracles.principal_components(rows, k)
    model = oracles.dense(found.parameters, (d,))
    np.testing.assert_allclose(model.observed.covariance, expected.observed.covariance, rtol=1e-9, atol=1e-11)
    assert found.log_likelihood == pytest.approx(oracles.log_densities(expected, rows).sum(), rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_profile_likelihood_is_the_likelihood_of_its_loadings(seed):
    rows = simulate(40, (6, 3), 2, noise=(0.2, 0.9), random_state=seed).stacked
    specification = specification_of((6, 3), 2)
    profile = Profile(moments_of(rows, 2), specification)
    for point in ([0.1, 0.4], [0.7, 0.05], [2.0, 3.0]):
        solution = profile.solution(np.log(point))
        assert solution.log_likelihood == pytest.approx(dense_value(solution.parameters, rows, (6, 3)), rel=1e-10)
        value, gradient = profile(np.log(point))
        assert value == pytest.approx(-solution.log_likelihood / 40, rel=1e-12)
        expected = oracles.numerical_gradient(lambda v: profile(v)[0], np.log(point), 1e-4)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


def test_of_given_noise_variances_the_loadings_are_the_best():
    data = simulate(200, (5, 4), 2, noise=(0.5, 0.8), random_state=1).stacked
    rows = data - data.mean(axis=0)
    views = tuple(View(name, size, floor, fixed=True) for name, size, floor in (("a", 5, 0.4), ("b", 4, 0.9)))
    (found,) = complete(moments_of(rows, views=2), Specification(views, ((0, 1),), 2))
    np.testing.assert_allclose(found.parameters.noise_variance, [0.4, 0.9])
    assert found.log_likelihood == pytest.approx(dense_value(found.parameters, rows, (5, 4)), rel=1e-10)
    slope = oracles.score_vector(found.parameters, Specification(views, ((0, 1),), 2), rows)
    np.testing.assert_allclose(slope[: 9 * 2], 0.0, atol=1e-8)


def test_loadings_of_eigenvalues_below_one_vanish():
    """Errata 12: Theorem 2 needs λ_K > 1; a direction with less is noise, and its column is zero, not imaginary."""
    rows = simulate(50, (5, 2), 1, noise=(0.3, 0.3), random_state=1).stacked
    profile = Profile(moments_of(rows, 2), specification_of((5, 2), 3))
    solution = profile.solution(np.log([30.0, 30.0]))
    assert np.isfinite(solution.parameters.loadings).all()
    assert (solution.parameters.loadings == 0).all()
    better = profile.solution(np.log([0.3, 0.3]))
    assert np.count_nonzero((better.parameters.loadings**2).sum(axis=0)) >= 1


@pytest.mark.parametrize("k", [1, 2, 4])
def test_no_direction_leads_up_from_the_best_maximum(k):
    rows = simulate(60, (6, 2), 2, noise=(0.4, 0.3), random_state=k).stacked
    specification = specification_of((6, 2), k, floors=(1e-6, 1e-4))
    best = complete(moments_of(rows, 2), specification)[0]
    assert best.log_likelihood == pytest.approx(dense_value(best.parameters, rows, (6, 2)), rel=1e-10)
    slope = oracles.score_vector(lifted(best.parameters, rows), specification, rows)
    free = np.ones(len(slope), dtype=bool)
    free[-2:] = best.parameters.noise_variance > specification.floors * 1.001
    assert abs(slope[free]).max() < 1e-5
    away = lifted(best.parameters, rows)._replace(noise_variance=best.parameters.noise_variance * 1.3)
    assert abs(oracles.score_vector(away, specification, rows)).max() > 1e-2, "finite differences see a slope"


def climb_by_em(start, moments, specification, steps=4000):
    floors = specification.floors
    return accelerate(
        lambda p: em_step(p, moments, specification),
        start,
        tolerance=1e-13,
        max_evaluations=steps,
        project=lambda p: p._replace(noise_variance=np.maximum(p.noise_variance, floors)),
    )


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_search_is_never_below_em_from_twelve_starts(seed):
    """Errata 14: with K >= L the likelihood over loadings and both noises has several maxima."""
    sizes, k = (6, 2), 3
    rows = simulate(30, sizes, 2, noise=(1.0, 0.2), random_state=seed).stacked
    moments = moments_of(rows, 2)
    scale = np.array([rows[:, :6].var(axis=0).mean(), rows[:, 6:].var(axis=0).mean()])
    specification = specification_of(sizes, k, floors=tuple(1e-3 * scale))
    best = complete(moments, specification)[0].log_likelihood
    found = []
    for start in range(12):
        noise = scale * 10.0 ** np.random.default_rng(start).uniform(-3, 0, 2)
        point = random_parameters(sizes, k, noise=noise, offset=0.0, random_state=start)
        found.append(climb_by_em(point, moments, specification).value)
    assert best >= max(found) - 1e-6
    assert max(found) >= best - 1e-3 * abs(best), "EM comes near, so that the bound is no empty one"


@pytest.mark.slow
def test_em_from_bad_starts_ends_in_lower_maxima():
    """The search earns its keep: among such cases some start of EM ends at least one nat lower."""
    gaps = []
    for seed in range(4):
        rows = simulate(30, (6, 2), 2, noise=(1.0, 0.2), random_state=seed).stacked
        moments = moments_of(rows, 2)
        scale = np.array([rows[:, :6].var(axis=0).mean(), rows[:, 6:].var(axis=0).mean()])
        specification = specification_of((6, 2), 3, floors=tuple(1e-3 * scale))
        best = complete(moments, specification)[0].log_likelihood
        for noise in ((1e-3, 1.0), (1.0, 1e-3)):
            start = random_parameters((6, 2), 3, noise=scale * noise, offset=0.0, random_state=seed)
            gaps.append(best - climb_by_em(start, moments, specification).value)
    assert max(gaps) > 1.0


def test_maxima_on_both_sides_of_a_crossing_of_eigenvalues_are_found():
    """Two maxima whose noise ratios differ by a factor of 1.4, with a kink between them."""
    rows = simulate(40, (6, 2), 2, noise=(0.3, 0.4), random_state=15).stacked
    scale = np.array([rows[:, :6].var(axis=0).mean(), rows[:, 6:].var(axis=0).mean()])
    specification = specification_of((6, 2), 3, floors=(1e-6 * scale[0], 1e-3 * scale[1]))
    found = complete(moments_of(rows, 2), specification)
    assert [s.log_likelihood for s in found] == pytest.approx([-403.7351787, -403.9025221], abs=1e-6)
    assert len({round(float(s.parameters.noise_variance[0]), 3) for s in found}) == len(found) == 2


def test_canonical_form_is_idempotent_and_blind_to_rotation():
    specification = specification_of((7, 3), 4)
    parameters = random_parameters((7, 3), 4, noise=(0.2, 1.5), random_state=2)
    once = canonical(parameters, specification)
    np.testing.assert_allclose(canonical(once, specification).loadings, once.loadings, rtol=1e-10, atol=1e-12)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    turned = parameters._replace(loadings=parameters.loadings @ rotation)
    np.testing.assert_allclose(canonical(turned, specification).loadings, once.loadings, rtol=1e-8, atol=1e-10)


def test_canonical_columns_fall_in_weight_and_have_positive_peaks():
    specification = specification_of((7, 3), 4)
    parameters = random_parameters((7, 3), 4, noise=(0.2, 1.5), random_state=2)
    found = canonical(parameters, specification)
    weights = (found.loadings**2 / specification.per_feature(found.noise_variance)[:, None]).sum(axis=0)
    assert (np.diff(weights) < 0).all()
    peaks = found.loadings[:7][abs(found.loadings[:7]).argmax(axis=0), range(4)]
    assert (peaks > 0).all()
    assert column_signs(np.array([[0.0, -2.0], [0.0, 1.0]])).tolist() == [1.0, -1.0]


def test_parameters_survive_flattening():
    parameters = random_parameters((4, 2), 3, noise=(0.3, 2.0))
    again = parameters.unflatten(parameters.flatten())
    assert isinstance(again, Parameters)
    for a, b in zip(again[:3], parameters[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)


def two_view_case(seed):
    """Views of a few shared and private directions, the model with the floors that supervised fits have."""
    rng = np.random.default_rng(seed)
    d, outputs = int(rng.integers(3, 13)), int(rng.integers(1, 8))
    k, n, shared = int(rng.integers(1, min(d - 1, 8) + 1)), int(rng.integers(12, 150)), int(rng.integers(1, 5))
    z = rng.normal(size=(n, shared))
    x = z @ rng.normal(size=(shared, d)) * rng.uniform(0.3, 2)
    x += 10 ** rng.uniform(-1.3, 0.4) * rng.normal(size=(n, d))
    if rng.random() < 0.4:
        z = np.column_stack([z, rng.normal(size=(n, 2))])
    y = z @ rng.normal(size=(z.shape[1], outputs)) * rng.uniform(0.3, 2)
    y += 10 ** rng.uniform(-2, 0.5) * rng.normal(size=(n, outputs))
    rows = np.hstack([x, y])
    spread = [x.var(axis=0).mean(), y.var(axis=0).mean()]
    whole = specification_of((d, outputs), k, unlabelled=False)
    return moments_of(rows, 2), whole, np.array(spread) * [1e-6, 1e-3]


@pytest.mark.parametrize("ratios", [9, 13])
def test_a_maximum_between_two_points_of_the_scan_is_found(ratios, monkeypatch):
    """Of a coarse scan the maximum, which lies in a basin between two of its points."""
    moments, whole, floors = two_view_case(7028)
    specification = whole.with_floors(floors)
    expected = complete(moments, specification)[0].log_likelihood
    monkeypatch.setattr(spectral, "RATIOS", ratios)
    assert complete(moments, specification)[0].log_likelihood == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(spectral, "_hidden", lambda *scanned: [])
    assert complete(moments, specification)[0].log_likelihood < expected - 1e-6


@pytest.mark.parametrize(
    "seed", [*range(7000, 7005), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(7005, 7020))]
)
def test_a_lower_floor_of_the_targets_never_lowers_the_maximum(seed):
    """The admissible noises are then more, and among them are those of before."""
    moments, whole, floors = two_view_case(seed)
    found = [
        complete(moments, whole.with_floors(floors * [1.0, part]))[0].log_likelihood for part in (10, 1, 0.1, 0.01)
    ]
    assert (np.diff(found) > -1e-8).all()
