"""Correspondences against the stacked Gaussian of each sample, with the views that it lacks deleted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA, FactorAnalysis
from dlatent.errors import ConvergenceWarning
from tests.fitted import parameters_of, specification_of
from tests.one_solver import only_solver
from tests.oracles import dense as oracles
from tests.oracles.views import some_views, split, stacked_rows, table_of
from tests.simulators import simulate

SIZES, N = (6, 5, 4), 80
WAYS = [
    (CorrespondencePPCA, "covariance"),
    (CorrespondencePPCA, "krylov"),
    (CorrespondenceFactorAnalysis, "covariance"),
    (CorrespondenceFactorAnalysis, "accelerated_em"),
]
IDS = [f"{model.__name__} by {solver}" for model, solver in WAYS]


def case(seed=0, views=3, n=N, noise=(0.3, 0.5, 0.4)):
    data = simulate(n, SIZES[:views], 2, noise=noise[:views], offset=3.0, random_state=seed).stacked
    has = some_views(n, views, random_state=seed + 100)
    return data, has, stacked_rows(data, SIZES[:views], has)


def model_of(fitted):
    p = parameters_of(fitted)
    return oracles.DenseModel(p.loadings, p.mean, specification_of(fitted).per_feature(p.noise_variance))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(way, id=name, marks=[pytest.mark.slow] * (name == "CorrespondenceFactorAnalysis by covariance"))
        for way, name in zip(WAYS, IDS, strict=True)
    ],
)
def fitted(request):
    kind, solver = request.param
    data, has, rows = case()
    views, table = split(data, SIZES, has), table_of(has)
    return kind(2, solver=solver, tol=1e-13, head="likelihood").fit(views, correspondence=table), views, table, rows


def test_log_likelihood_is_that_of_the_dense_model(fitted):
    model, views, table, rows = fitted
    expected = oracles.log_densities(model_of(model), rows)
    assert model.log_likelihood_ == pytest.approx(expected.sum(), rel=1e-9)
    np.testing.assert_allclose(model.score_samples(views, correspondence=table), expected, rtol=1e-9)


def test_the_slope_at_the_maximum_is_zero(fitted):
    model, _, _, rows = fitted
    slope = oracles.score_vector(parameters_of(model), specification_of(model), rows)
    assert abs(slope).max() < 2e-6
    wrong = parameters_of(model)._replace(mean=parameters_of(model).mean + 0.1)
    assert abs(oracles.score_vector(wrong, specification_of(model), rows)).max() > 1e-3


def test_posteriors_are_dense_conditionals(fitted):
    model, views, table, rows = fitted
    expected = [oracles.latent_given(model_of(model), row) for row in rows]
    about = model.posterior(views, correspondence=table)
    np.testing.assert_allclose(about["scores"], [e.mean for e in expected], rtol=1e-9, atol=1e-9)
    covariances = about["covariance"].values[about["pattern_of"].values]
    np.testing.assert_allclose(covariances, [e.covariance for e in expected], rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(about["has"].values[about["pattern_of"].values], table >= 0)


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("c", "a")])
def test_reconstructions_are_dense_conditionals(fitted, one, other):
    """One view deleted but for `from_view`: mean and variance of `to_view` given it."""
    model, views, _, _ = fitted
    bounds = np.cumsum([0, *SIZES])
    own = {name: slice(bounds[i], bounds[i + 1]) for i, name in enumerate("abc")}
    rows = np.full((5, bounds[-1]), np.nan)
    rows[:, own[one]] = views[one][:5]
    expected = [oracles.missing_given(model_of(model), row) for row in rows]
    places = np.flatnonzero(np.isnan(rows[0]))
    wanted = (places >= own[other].start) & (places < own[other].stop)
    mean, variance = model.reconstruct(views[one][:5], one, other, return_variance=True)
    np.testing.assert_allclose(mean, [e.mean[wanted] for e in expected], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(expected[0].covariance)[wanted], rtol=1e-9)


def test_factor_analysis_of_views_that_all_samples_have_is_that_of_their_features_side_by_side():
    data, _, _ = case(5, views=2, noise=(0.5, 0.6))
    views, rows = [data[:, : SIZES[0]], data[:, SIZES[0] :]], np.arange(N)
    model = CorrespondenceFactorAnalysis(2).fit(views, correspondence=np.column_stack([rows, rows]))
    beside = FactorAnalysis(2).fit(data)
    assert model.log_likelihood_ == pytest.approx(beside.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(np.concatenate([*model.noise_variance_.values()]), beside.noise_variance_, rtol=1e-5)
    rows = np.concatenate(views, axis=1)
    assert model.log_likelihood_ == pytest.approx(oracles.log_densities(model_of(model), rows).sum(), rel=1e-9)


@pytest.mark.parametrize(
    "kind", [CorrespondencePPCA, pytest.param(CorrespondenceFactorAnalysis, marks=pytest.mark.slow)]
)
def test_textbook_em_ends_at_the_same_maximum_from_below(kind):
    data, has, _ = case(3, views=2, noise=(0.5, 0.6))
    views, table = split(data, SIZES[:2], has), {"correspondence": table_of(has)}
    best = kind(2, tol=1e-13).fit(views, **table)
    plain = kind(2, solver="em", tol=1e-13, max_iter=4000).fit(views, **table)
    assert plain.log_likelihood_ <= best.log_likelihood_ + 1e-7
    assert plain.log_likelihood_ == pytest.approx(best.log_likelihood_, rel=1e-7)


def test_em_over_data_is_em_over_moments():
    data, has, _ = case(4)
    views, table = split(data, SIZES, has), {"correspondence": table_of(has)}
    found = []
    for kind, route in WAYS:
        with only_solver(route), pytest.warns(ConvergenceWarning):
            found.append(kind(2, solver="em", max_iter=20).fit(views, **table))
    for one, other in ((found[0], found[1]), (found[2], found[3])):
        np.testing.assert_allclose(
            one.history_["iteration_log_likelihood"], other.history_["iteration_log_likelihood"], rtol=1e-8
        )


def test_the_fit_ends_where_sample_by_sample_em_ends():
    sizes = (3, 2)
    data = simulate(25, sizes, 1, noise=(0.4, 0.5), random_state=8).stacked
    has = some_views(25, 2, random_state=9)
    rows = stacked_rows(data, sizes, has)
    model = oracles.naive_em(rows, sizes, 1, 200)
    best = CorrespondencePPCA(1, tol=1e-13).fit(split(data, sizes, has), correspondence=table_of(has))
    assert best.log_likelihood_ == pytest.approx(oracles.log_densities(model, rows).sum(), rel=1e-7)
    np.testing.assert_allclose(model_of(best).observed.covariance, model.observed.covariance, rtol=2e-3, atol=2e-3)


def residual(model, rows):
    """Σ of squares that least squares in z leaves of the observed features of each row."""
    total = 0.0
    for row in rows:
        seen = ~np.isnan(row)
        design, answer = model.loadings[seen], row[seen] - model.mean[seen]
        total += float(((answer - design @ np.linalg.lstsq(design, answer, rcond=None)[0]) ** 2).sum())
    return total


def test_without_noise_nothing_reconstructs_better():
    """The limit of PCA: alternating least squares from its end, and from the maximum with noise, gains nothing."""
    data, has, rows = case(5)
    views, table = split(data, SIZES, has), {"correspondence": table_of(has)}
    limit = CorrespondencePPCA(2, noise="zero", tol=1e-13).fit(views, **table)
    noisy = CorrespondencePPCA(2, tol=1e-13).fit(views, **table)
    best = residual(model_of(limit), rows)
    assert best < residual(model_of(noisy), rows) - 1e-3
    model = model_of(limit)
    for _ in range(30):
        scores = []
        for row in rows:
            seen = ~np.isnan(row)
            scores.append(np.linalg.lstsq(model.loadings[seen], row[seen] - model.mean[seen], rcond=None)[0])
        design = np.column_stack([np.array(scores), np.ones(len(rows))])
        found = np.empty((rows.shape[1], 3))
        for feature in range(rows.shape[1]):
            at = ~np.isnan(rows[:, feature])
            found[feature] = np.linalg.lstsq(design[at], rows[at, feature], rcond=None)[0]
        model = oracles.DenseModel(found[:, :2], found[:, 2], model.noise)
    assert residual(model, rows) == pytest.approx(best, rel=1e-6)


def test_sampled_views_have_the_moments_of_the_model():
    data, has, _ = case(6)
    model = CorrespondencePPCA(2).fit(split(data, SIZES, has), correspondence=table_of(has))
    drawn = model.sample(40_000, random_state=0)
    both = np.hstack([drawn[name] for name in "abc"])
    np.testing.assert_allclose(np.cov(both.T), model_of(model).observed.covariance, rtol=0.06, atol=0.1)


def test_views_that_correspond_share_their_coordinates():
    """Enough pairs: the second view is predicted from the first about as well as the truth does."""
    data = simulate(600, (8, 8), 2, noise=(0.2, 0.2), strength=1.5, random_state=7)
    has = np.ones((600, 2), dtype=bool)
    has[40:300, 1] = False
    has[300:, 0] = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CorrespondencePPCA(2, head="likelihood").fit(
            split(data.stacked, (8, 8), has), correspondence=table_of(has)
        )
    truth = oracles.dense(data.parameters, (8, 8))
    rows = np.where(np.arange(16) < 8, data.stacked[40:300], np.nan)
    best = np.array([oracles.missing_given(truth, row).mean for row in rows])
    found = model.reconstruct(data.stacked[40:300, :8], "a", "b")
    wanted = data.stacked[40:300, 8:]
    assert ((found - wanted) ** 2).mean() < 1.15 * ((best - wanted) ** 2).mean()
