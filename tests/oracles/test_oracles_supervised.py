"""Supervised fits against the dense model: the likelihood, its slope at the maximum, and the corrected formulas."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent import SupervisedPPCA
from tests.fitted import encoding_of, parameters_of, specification_of
from tests.one_solver import only_solver
from tests.oracles import dense as oracles
from tests.simulators import Simulated, hide, simulate

ROUTES = ["covariance", "krylov"]
SIZES = (6, 2)


def semi(seed=0, share=0.3, n=60, sizes=SIZES, k=2, noise=(0.4, 0.3)):
    data = simulate(n, sizes, k, noise=noise, random_state=seed)
    labelled = np.random.default_rng(seed + 100).random(n) < share
    labelled[:3] = True
    return data, labelled


def rows_of(data: Simulated, labelled):
    return np.hstack([data.features, hide(data.targets, labelled)])


def fit(data, labelled, k=2, **options):
    return SupervisedPPCA(k, whiten=True, tol=1e-12, head="likelihood", **options).fit(
        data.features, hide(data.targets, labelled)
    )


def model_of(fitted):
    """Features and original outputs; regression targets of full rank are not rotated."""
    loadings = np.hstack([fitted.components_, fitted.target_components_]).T
    mean = np.concatenate([fitted.mean_, fitted.target_mean_])
    noise = [fitted.noise_variance_] * len(fitted.mean_) + [fitted.target_noise_variance_] * len(fitted.target_mean_)
    return oracles.DenseModel(loadings, mean, np.array(noise))


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("share", [0.3, 2.0], ids=["semi-supervised", "complete"])
@pytest.mark.parametrize("seed", range(2))
def test_log_likelihood_is_that_of_the_dense_model(solver, share, seed):
    data, labelled = semi(seed, share)
    fitted = fit(data, labelled, solver=solver)
    expected = oracles.log_densities(model_of(fitted), rows_of(data, labelled))
    assert fitted.log_likelihood_ == pytest.approx(expected.sum(), rel=1e-9)
    found = fitted.score_samples(data.features, hide(data.targets, labelled))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    alone = oracles.log_densities(model_of(fitted), rows_of(data, np.zeros(len(labelled), dtype=bool)))
    np.testing.assert_allclose(fitted.score_samples(data.features), alone, rtol=1e-9)


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("share", [0.3, 2.0], ids=["semi-supervised", "complete"])
def test_the_slope_at_the_maximum_is_zero(solver, share):
    """In (W, μ, log ψ), exact means included (errata 11); a shifted mean shows that the slope is seen."""
    data, labelled = semi(1, share)
    fitted = fit(data, labelled, solver=solver)
    assert fitted.at_floor_ == (False, False)
    rows = rows_of(data, labelled) - np.concatenate([np.zeros(6), encoding_of(fitted).centre])
    slope = oracles.score_vector(parameters_of(fitted), specification_of(fitted), rows)
    assert abs(slope).max() < 2e-6
    wrong = parameters_of(fitted)._replace(mean=parameters_of(fitted).mean + 0.1)
    assert abs(oracles.score_vector(wrong, specification_of(fitted), rows)).max() > 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_posterior_and_prediction_are_dense_conditionals(seed):
    data, labelled = semi(seed)
    fitted = fit(data, labelled)
    model, rows = model_of(fitted), rows_of(data, labelled)
    nothing = rows_of(data, np.zeros(len(labelled), dtype=bool))
    y = hide(data.targets, labelled)
    with_y = [oracles.latent_given(model, row) for row in rows]
    without = [oracles.latent_given(model, row) for row in nothing]
    np.testing.assert_allclose(fitted.transform(data.features, y), [e.mean for e in with_y], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(fitted.transform(data.features), [e.mean for e in without], rtol=1e-8, atol=1e-9)
    about = fitted.posterior(data.features, y)
    covariances = about["covariance"].values[about["pattern_of"].values]
    np.testing.assert_allclose(covariances, [e.covariance for e in with_y], rtol=1e-8, atol=1e-10)
    mean, variance = fitted.predict(data.features, return_variance=True)
    missing = [oracles.missing_given(model, row) for row in nothing]
    np.testing.assert_allclose(mean, [e.mean for e in missing], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(missing[0].covariance), rtol=1e-8)


@pytest.mark.parametrize("solver", ROUTES)
def test_means_are_the_exact_ones(solver):
    """Errata 11: μx = mean of all x; μy = ȳ₁ − Wy · mean over the labelled rows of E[z | x]."""
    data, labelled = semi(2, 0.3)
    fitted = fit(data, labelled, solver=solver)
    np.testing.assert_allclose(fitted.mean_, data.features.mean(axis=0), rtol=1e-5, atol=1e-6)
    z = fitted.transform(data.features[labelled]).mean(axis=0)
    expected = data.targets[labelled].mean(axis=0) - z @ fitted.target_components_
    np.testing.assert_allclose(fitted.target_mean_, expected, rtol=1e-5, atol=1e-6)
    assert abs(fitted.target_mean_ - data.targets[labelled].mean(axis=0)).max() > 1e-3, "the case tells them apart"


def test_exact_means_pay_when_labels_are_selected_on_the_features():
    """Errata 11: with labels on one side of x the labelled mean of y is biased; the exact mean is not."""
    data = simulate(400, (8, 1), 1, noise=(0.2, 0.1), strength=1.5, random_state=3)
    labelled = data.features @ data.parameters.loadings[:8, 0] > 1.0
    fitted = fit(data, labelled, k=1)
    rows = rows_of(data, labelled)
    naive = model_of(fitted)._replace(
        mean=np.concatenate([data.features.mean(axis=0), data.targets[labelled].mean(axis=0)])
    )
    assert fitted.log_likelihood_ > oracles.log_densities(naive, rows).sum() + 10.0
    truth = data.targets[~labelled, 0]
    biased = [oracles.missing_given(naive, row).mean[0] for row in rows[~labelled]]
    exact = fitted.predict(data.features[~labelled])
    assert abs(np.mean(exact - truth)) < 0.1
    assert abs(np.mean(biased - truth)) > 5 * abs(np.mean(exact - truth))


def test_the_fit_ends_where_textbook_em_ends():
    data, labelled = semi(5, 0.5, n=25, sizes=(4, 1), k=1)
    fitted = fit(data, labelled, k=1)
    model = oracles.naive_em(rows_of(data, labelled), (4, 1), 1, 150)
    assert fitted.log_likelihood_ == pytest.approx(
        oracles.log_densities(model, rows_of(data, labelled)).sum(), rel=1e-7
    )
    np.testing.assert_allclose(model_of(fitted).observed.covariance, model.observed.covariance, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("solver", ROUTES)
def test_solver_em_ends_at_the_same_maximum_from_below(solver):
    data, labelled = semi(4, 0.4)
    best = fit(data, labelled, solver=solver)
    plain = SupervisedPPCA(2, solver="em", tol=1e-10, max_iter=1000 if solver == "covariance" else 120)
    with only_solver(solver):
        if solver == "krylov":
            with pytest.warns(UserWarning, match="raise max_iter"):
                plain.fit(data.features, hide(data.targets, labelled))
        else:
            plain.fit(data.features, hide(data.targets, labelled))
    assert plain.log_likelihood_ <= best.log_likelihood_ + 1e-7
    assert plain.log_likelihood_ == pytest.approx(best.log_likelihood_, rel=1e-5)


def test_class_labels_are_the_model_of_their_rotated_indicators():
    """The likelihood of class labels is that of the one-of-C indicators on their rank."""
    data = simulate(90, (6, 3), 2, noise=(0.5, 0.3), random_state=6)
    classes = data.targets.argmax(axis=1)
    fitted = SupervisedPPCA(1, tol=1e-12).fit(data.features, classes)
    indicators = np.eye(3)[classes]
    rotation, centre = encoding_of(fitted).rotation, indicators.mean(axis=0)
    assert rotation.shape == (3, 2)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(2), atol=1e-12)
    rows = np.hstack([data.features, (indicators - centre) @ rotation])
    model = oracles.dense(parameters_of(fitted), (6, 2))
    assert fitted.log_likelihood_ == pytest.approx(oracles.log_densities(model, rows).sum(), rel=1e-10)
    outputs = fitted.transform(data.features) @ fitted.target_components_ + fitted.target_mean_
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0, atol=1e-10)


def test_sampled_features_and_outputs_have_the_moments_of_the_model():
    data, labelled = semi(0)
    fitted = fit(data, labelled)
    x, y = fitted.sample(40_000, random_state=0)
    np.testing.assert_allclose(np.cov(np.hstack([x, y]).T), model_of(fitted).observed.covariance, rtol=0.06, atol=0.1)
    np.testing.assert_allclose(y.mean(axis=0), fitted.target_mean_, atol=0.06)
