"""Several views with targets against the stacked Gaussian of each sample, with what the sample lacks deleted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dlatent import CorrespondencePPCA, CorrespondenceSupervisedPPCA, SupervisedPPCA
from tests.fitted import parameters_of, specification_of
from tests.one_solver import only_solver
from tests.oracles import dense as oracles
from tests.oracles.views import some_views, split, stacked_rows, table_of
from tests.simulators import hide, simulate

SIZES, N = (6, 5, 2), 80
SOLVERS = ["covariance", "krylov"]


def case(seed=0, share=0.4, n=N):
    """Views, their table, targets with NaN, and the rows of all three as oracles take them."""
    data = simulate(n, SIZES, 2, noise=(0.3, 0.5, 0.4), offset=3.0, random_state=seed).stacked
    has = some_views(n, 2, random_state=seed + 100)
    labelled = np.random.default_rng(seed + 200).random(n) < share
    labelled[:5] = True
    y = hide(data[:, 11:], labelled)
    rows = np.hstack([stacked_rows(data[:, :11], SIZES[:2], has), y])
    return split(data[:, :11], SIZES[:2], has), table_of(has), y, rows


def model_of(fitted):
    """Views and original outputs; regression targets of full rank are not rotated."""
    loadings = np.hstack([*fitted.components_.values(), fitted.target_components_]).T
    mean = np.concatenate([*fitted.mean_.values(), fitted.target_mean_])
    noise = [*fitted.noise_variance_.values(), fitted.target_noise_variance_]
    return oracles.DenseModel(loadings, mean, np.repeat(noise, SIZES))


@pytest.fixture(scope="module", params=SOLVERS)
def fitted(request):
    views, table, y, rows = case()
    model = CorrespondenceSupervisedPPCA(2, solver=request.param, tol=1e-13, head="likelihood")
    model.fit(views, y, correspondence=table)
    return model, views, table, y, rows


def test_log_likelihood_is_that_of_a_normal_distribution_for_each_pattern(fitted):
    """From the definition: what a sample has is normal with the rows and columns that are its own, by scipy."""
    model, views, table, y, rows = fitted
    truth = model_of(model)
    covariance = truth.loadings @ truth.loadings.T + np.diag(truth.noise)
    expected = np.empty(len(rows))
    for i, row in enumerate(rows):
        own = ~np.isnan(row)
        expected[i] = multivariate_normal.logpdf(row[own], truth.mean[own], covariance[np.ix_(own, own)])
    assert model.log_likelihood_ == pytest.approx(expected.sum(), rel=1e-9)
    np.testing.assert_allclose(model.score_samples(views, y, correspondence=table), expected, rtol=1e-9)
    assert model.score(views, y, correspondence=table) == pytest.approx(expected.mean(), rel=1e-9)
    without = np.where(np.arange(13) < 11, rows, np.nan)
    expected = oracles.log_densities(truth, without)
    np.testing.assert_allclose(model.score_samples(views, correspondence=table), expected, rtol=1e-9)


def test_the_slope_at_the_maximum_is_zero(fitted):
    model, _, _, _, rows = fitted
    centred = rows - np.concatenate([np.zeros(11), np.nanmean(rows[:, 11:], axis=0)])
    assert abs(oracles.score_vector(parameters_of(model), specification_of(model), centred)).max() < 2e-6
    wrong = parameters_of(model)._replace(mean=parameters_of(model).mean + 0.1)
    assert abs(oracles.score_vector(wrong, specification_of(model), centred)).max() > 1e-3


def test_posteriors_are_dense_conditionals(fitted):
    model, views, table, y, rows = fitted
    expected = [oracles.latent_given(model_of(model), row) for row in rows]
    about = model.posterior(views, y, correspondence=table)
    np.testing.assert_allclose(about["scores"], [e.mean for e in expected], rtol=1e-9, atol=1e-9)
    covariances = about["covariance"].values[about["pattern_of"].values]
    np.testing.assert_allclose(covariances, [e.covariance for e in expected], rtol=1e-9, atol=1e-10)
    has = np.column_stack([table >= 0, ~np.isnan(y[:, 0])])
    np.testing.assert_array_equal(about["has"].values[about["pattern_of"].values], has)
    assert about["view"].values.tolist() == ["a", "b", "targets"]


def test_predictions_are_dense_conditionals(fitted):
    """Mean and variance of the outputs given the views that a sample has, of joint samples and of one view."""
    model, views, table, _, rows = fitted
    hidden = np.where(np.arange(13) < 11, rows, np.nan)
    expected = [oracles.missing_given(model_of(model), row) for row in hidden]
    means, variances = model.predict(views, correspondence=table, return_variance=True)
    np.testing.assert_allclose(means, [e.mean[-2:] for e in expected], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variances, [np.diag(e.covariance)[-2:] for e in expected], rtol=1e-9)
    np.testing.assert_array_equal(means["row_b"], table[:, 1])
    own = np.full((len(views["b"]), 13), np.nan)
    own[:, 6:11] = views["b"]
    expected = [oracles.missing_given(model_of(model), row) for row in own]
    means, variance = model.predict({"b": views["b"]}, return_variance=True)
    np.testing.assert_allclose(means, [e.mean[-2:] for e in expected], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(expected[0].covariance)[-2:], rtol=1e-9)


def test_textbook_em_ends_at_the_same_maximum_from_below():
    views, table, y, _ = case(3)
    best = CorrespondenceSupervisedPPCA(2, tol=1e-13).fit(views, y, correspondence=table)
    plain = CorrespondenceSupervisedPPCA(2, solver="em", tol=1e-13, max_iter=4000).fit(views, y, correspondence=table)
    assert plain.log_likelihood_ <= best.log_likelihood_ + 1e-7
    assert plain.log_likelihood_ == pytest.approx(best.log_likelihood_, rel=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_targets_are_one_more_view(solver):
    """The same maximum as that of three views, of which the third are the targets in the model's terms."""
    views, table, y, _ = case(4)
    own = CorrespondenceSupervisedPPCA(2, tol=1e-13, target_noise_floor=1e-6, solver=solver, head="likelihood")
    own.fit(views, y, correspondence=table)
    labelled = ~np.isnan(y[:, 0])
    three = np.column_stack([table, np.where(labelled, np.cumsum(labelled) - 1, -1)])
    all_views = views | {"c": y[labelled]}
    plain = CorrespondencePPCA(2, tol=1e-13, solver=solver, head="likelihood").fit(all_views, correspondence=three)
    assert own.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-11)
    np.testing.assert_allclose(own.target_components_, plain.components_["c"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own.target_mean_, plain.mean_["c"], rtol=1e-6)
    found = own.predict({"a": views["a"]})
    np.testing.assert_allclose(found, plain.reconstruct(views["a"], "a", "c"), rtol=1e-5, atol=1e-6)


def test_pieces_of_one_matrix_are_at_least_as_likely_as_the_matrix():
    """Views that every sample has: a noise variance for each piece says no less than one for both, and nearly the same
    where the truth has one."""
    data = simulate(1500, (9, 2), 2, noise=(0.4, 0.3), random_state=6)
    y = hide(data.targets, np.arange(1500) % 3 == 0)
    one = SupervisedPPCA(2, tol=1e-12).fit(data.features, y)
    pieces = {"a": data.features[:, :5], "b": data.features[:, 5:]}
    table = np.column_stack([np.arange(1500)] * 2)
    two = CorrespondenceSupervisedPPCA(2, tol=1e-12).fit(pieces, y, correspondence=table)
    assert 0 <= two.log_likelihood_ - one.log_likelihood_ < 5.0
    found = two.predict(pieces, correspondence=table)
    np.testing.assert_allclose(found, one.predict(data.features), atol=0.05)


def test_em_over_data_is_em_over_moments():
    views, table, y, _ = case(5)
    found = []
    for route in SOLVERS:
        model = CorrespondenceSupervisedPPCA(2, solver="em", max_iter=20)
        with only_solver(route), pytest.warns(match="iterations"):
            found.append(model.fit(views, y, correspondence=table).history_["iteration_log_likelihood"])
    np.testing.assert_allclose(*found, rtol=1e-8)


def test_labels_of_one_view_tell_of_the_other():
    """Classes known of rows of one view only are found in the other by way of the pairs."""
    rng = np.random.default_rng(7)
    classes = rng.integers(3, size=400)
    z = np.eye(3)[classes] * 2.0 + 0.2 * rng.standard_normal((400, 3))
    rows = z @ rng.standard_normal((3, 14)) + 0.2 * rng.standard_normal((400, 14))
    views, pairs = {"a": rows[:250, :8], "b": rows[150:, 8:]}, np.column_stack([np.arange(150, 250), np.arange(100)])
    model = CorrespondenceSupervisedPPCA(2).fit(
        views, {"a": np.array(list("xyz"))[classes[:250]]}, correspondence=pairs
    )
    assert (model.predict({"b": views["b"][100:]}) == np.array(list("xyz"))[classes[250:]]).mean() > 0.9
    assert model.classes_.tolist() == ["x", "y", "z"]
