"""Factor analysis from moments: one noise variance for each feature, and rotations of its loadings."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from sklearn.decomposition import FactorAnalysis as OfSklearn

from dlatent.gaussian.canonical import oblimin, promax, quartimax, varimax
from dlatent.gaussian.factor_analysis import bartlett_coefficients, factors, hessian
from dlatent.gaussian.maximisation import em_step
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.spectral import Profile
from tests.oracles import dense as oracles

WIDTH, K = 8, 2


def specified(width=WIDTH, k=K, floor=0.0):
    return Specification((View("features", width, floor, shared=False),), ((0,),), k)


def rows(n=120, seed=0, width=WIDTH, k=K):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.2, 2.0, width)
    latent = rng.standard_normal((n, k)) @ rng.standard_normal((k, width)) * 1.5
    return latent + rng.standard_normal((n, width)) * np.sqrt(noise) + 3.0


def moments_of(x):
    middle = x - x.mean(axis=0)
    found = PatternMoments(float(len(x)), middle.sum(axis=0), middle.T @ middle)
    return Moments((found,), x.mean(axis=0), np.zeros(1), np.zeros(1))


def random_parameters(seed=1, width=WIDTH, k=K):
    rng = np.random.default_rng(seed)
    return Parameters(rng.standard_normal((width, k)), np.zeros(width), rng.uniform(0.3, 2.0, width))


def test_an_em_step_with_a_variance_for_each_feature_is_the_textbook_one():
    x, p = rows(40), random_parameters()
    step = em_step(p, moments_of(x), specified(), expand=False)
    centred = x - x.mean(axis=0)
    model = oracles.dense(p, (1,) * WIDTH)
    assert step.log_likelihood == pytest.approx(oracles.log_densities(model, centred).sum(), rel=1e-12)
    expected = oracles.em_step(model, centred, (1,) * WIDTH)
    np.testing.assert_allclose(step.parameters.loadings, expected.loadings, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(step.parameters.noise_variance, expected.noise, rtol=1e-9)


def test_the_second_derivatives_are_those_of_the_gradient():
    profile = Profile(moments_of(rows()), specified())
    at = np.log(random_parameters().noise_variance)
    numerical = np.array([oracles.numerical_gradient(lambda v, i=i: profile(v)[1][i], at) for i in range(WIDTH)])
    np.testing.assert_allclose(hessian(profile, at), numerical, atol=1e-8)


def test_the_residual_is_what_the_best_loadings_leave_of_the_covariance():
    x, noise = rows(), random_parameters().noise_variance
    profile = Profile(moments_of(x), specified())
    best = profile.solution(np.log(noise)).parameters.loadings
    rest = np.cov(x.T, bias=True) - best @ best.T - np.diag(noise)
    np.testing.assert_allclose(profile.residual(np.log(noise)), rest / np.sqrt(np.outer(noise, noise)), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_maximum_has_no_gradient_and_is_not_below_that_of_others(seed):
    x = rows(seed=seed)
    found = factors(moments_of(x), specified(floor=1e-6))
    best = found.solution.parameters
    assert found.converged
    centred = x - x.mean(axis=0)
    assert abs(oracles.score_vector(best, specified(), centred)).max() < 1e-7
    dense = oracles.log_densities(oracles.dense(best, (1,) * WIDTH), centred).sum()
    assert found.solution.log_likelihood == pytest.approx(dense, rel=1e-12)
    other = OfSklearn(K, tol=1e-10, max_iter=5000).fit(x)
    assert found.solution.log_likelihood >= other.score(x) * len(x) - 1e-7


def test_with_fewer_rows_than_features_the_maximum_is_that_of_the_dense_likelihood():
    x = rows(n=20, width=40)
    found = factors(moments_of(x), specified(40, floor=1e-3))
    centred, best = x - x.mean(axis=0), found.solution.parameters
    dense = oracles.log_densities(oracles.dense(best, (1,) * 40), centred).sum()
    assert found.solution.log_likelihood == pytest.approx(dense, rel=1e-10)
    inside = best.noise_variance > 2e-3
    assert inside.sum() > 30
    assert abs(oracles.score_vector(best, specified(40), centred)[-40:][inside]).max() < 1e-5


@pytest.mark.parametrize("tolerance", [1e-4, 1e-9])
def test_the_tolerance_is_a_distance_from_the_maximum(tolerance):
    moments, wide = moments_of(rows(n=100, width=160)), specified(160)
    best, found = factors(moments, wide), factors(moments, wide, tolerance=tolerance)
    height = best.solution.log_likelihood
    assert height - found.solution.log_likelihood <= tolerance * abs(height)
    assert len(found.path) < len(best.path)


def test_the_likelihood_rises_on_the_way():
    seen = []
    found = factors(moments_of(rows()), specified(), seen.append)
    assert tuple(seen) == found.path
    assert (np.diff(seen) >= -1e-9).all()
    assert seen[-1] == found.solution.log_likelihood


def test_a_feature_that_repeats_a_factor_ends_at_its_floor():
    """A Heywood case: K features that other features repeat exactly are explained wholly."""
    x = rows()
    x = np.column_stack([x, x[:, 0] + x[:, 1]])
    x[:, 1] = x[:, 0] * 2.0
    spread = x.var(axis=0)
    found = factors(moments_of(x), specified(WIDTH + 1, 1, tuple((1e-4 * spread).tolist())))
    low = found.solution.parameters.noise_variance / spread
    np.testing.assert_allclose(low[:2], 1e-4, rtol=1e-9)
    assert (low[2:WIDTH] > 1e-3).all()


def test_bartlett_scores_are_weighted_least_squares():
    p = random_parameters()
    x = rows(5) - 3.0
    for row, score in zip(x, x @ bartlett_coefficients(p.loadings, p.noise_variance).T, strict=True):
        root = np.sqrt(p.noise_variance)
        expected = np.linalg.lstsq(p.loadings / root[:, None], row / root, rcond=None)[0]
        np.testing.assert_allclose(score, expected, rtol=1e-9)


def unit_rows(loadings):
    return loadings / np.sqrt((loadings**2).sum(axis=1))[:, None]


CRITERIA = {
    varimax: lambda loadings: (unit_rows(loadings) ** 2).var(axis=0).sum(),
    quartimax: lambda loadings: (unit_rows(loadings) ** 4).sum(),
}


@pytest.mark.parametrize("rotate", CRITERIA)
def test_no_plane_rotation_improves_an_orthogonal_one(rotate):
    loadings, criterion = np.random.default_rng(3).standard_normal((15, 4)), CRITERIA[rotate]
    found = rotate(loadings)
    np.testing.assert_allclose(found.transformation @ found.transformation.T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(found.correlations, np.eye(4), atol=1e-12)
    best = criterion(found.loadings)
    for i, j in ((0, 1), (0, 2), (1, 3), (2, 3)):
        for angle in (-0.3, -1e-3, 1e-3, 0.3):
            turn = np.eye(4)
            turn[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
            assert criterion(found.loadings @ turn) <= best + 1e-9


def overlap(rows):
    """What oblimin makes small: how far features load on several factors."""
    squares = rows**2
    return sum((squares[:, k] * squares[:, j]).sum() for k in range(rows.shape[1]) for j in range(k))


def test_no_pair_of_axes_has_less_overlap_than_those_of_oblimin():
    loadings = np.random.default_rng(4).standard_normal((12, 2)) * [2.0, 0.7]
    found, rows = oblimin(loadings), unit_rows(loadings)
    best = overlap(rows @ found.transformation)
    angles = np.linspace(0.0, np.pi, 181)
    axes = [np.array([[np.cos(a), np.cos(b)], [np.sin(a), np.sin(b)]]) for a in angles for b in angles if a + 0.1 < b]
    others = [overlap(rows @ np.linalg.inv(axis).T) for axis in axes if abs(np.linalg.det(axis)) > 0.1]
    assert best <= min(others) + 1e-12
    assert best > min(others) - 1e-2  # the grid comes near it


@pytest.mark.parametrize("rotate", [varimax, quartimax, oblimin])
@pytest.mark.parametrize("seed", [0, 1])
def test_rotations_are_those_of_statsmodels(rotate, seed):
    reason = "statsmodels comes with the tools of development"
    other = pytest.importorskip("statsmodels.multivariate.factor_rotation", reason=reason)
    rows = unit_rows(np.random.default_rng(seed).standard_normal((12, 3)))
    theirs, _ = other.rotate_factors(rows, rotate.__name__, *((0, "oblique") if rotate is oblimin else ()))
    between = np.abs(rotate(rows).loadings.T @ theirs)
    lengths = np.sqrt((rotate(rows).loadings ** 2).sum(axis=0))[:, None] * np.sqrt((theirs**2).sum(axis=0))
    np.testing.assert_allclose((between / lengths).max(axis=1), 1.0, atol=1e-8)


def test_varimax_finds_simple_structure():
    simple = np.kron(np.eye(3), np.array([[0.9], [0.7], [0.8]]))
    turn = scipy.stats.special_ortho_group.rvs(3, random_state=0)
    found = varimax(simple @ turn).loadings
    np.testing.assert_allclose(np.sort(abs(found), axis=1)[:, :2], 0.0, atol=1e-6)
    np.testing.assert_allclose(abs(found).max(axis=1), simple.max(axis=1), rtol=1e-6)


@pytest.mark.parametrize("rotate", [promax, oblimin])
def test_oblique_rotations_leave_the_model_as_it_is_and_find_correlated_factors(rotate):
    simple = np.kron(np.eye(2), np.array([[0.9], [0.7], [0.8], [0.85]]))
    between = np.array([[1.0, 0.5], [0.5, 1.0]])
    loadings = simple @ np.linalg.cholesky(between)
    found = rotate(loadings)
    rebuilt = found.loadings @ found.correlations @ found.loadings.T
    np.testing.assert_allclose(rebuilt, loadings @ loadings.T, atol=1e-10)
    np.testing.assert_allclose(np.diag(found.correlations), 1.0, rtol=1e-9)
    np.testing.assert_allclose(np.sort(abs(found.loadings), axis=1), np.sort(simple, axis=1), atol=0.06)
    assert abs(found.correlations[0, 1]) == pytest.approx(0.5, abs=0.1)
