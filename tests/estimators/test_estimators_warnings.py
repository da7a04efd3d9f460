"""What a fit says when it is not what one thinks: floors, lost digits, unfinished iterations; at the user's line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA

from dlatent import (
    PPCA,
    ConvergenceWarning,
    FactorAnalysis,
    MisfitWarning,
    NoiseFloorWarning,
    PrecisionWarning,
    SupervisedPPCA,
)
from tests.fitted import encoding_of
from tests.one_solver import only_solver
from tests.simulators import documents, first_of_each, simulate


def caught(action):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = action()
    return model, found


def few_labels():
    """Three classes, six labels, three components: K ≥ C − 1, where the likelihood has no bound (errata 13)."""
    data = documents(80, 40, random_state=2)
    return data.features, np.where(first_of_each(data.labels, 2), data.labels, -1)


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_few_labels_and_many_components_end_at_the_floor(solver):
    x, labels = few_labels()
    model, found = caught(lambda: SupervisedPPCA(3, solver=solver).fit(x, labels))
    assert model.at_floor_ == (False, True)
    floors = [w for w in found if w.category is NoiseFloorWarning]
    assert len(floors) == 1
    text = str(floors[0].message)
    assert "the noise variance of the targets is at its floor" in text
    assert "use fewer components" in text
    indicators = np.eye(3)[labels[labels >= 0]] @ encoding_of(model).rotation
    assert model.target_noise_variance_ == pytest.approx(1e-3 * indicators.var(axis=0).mean(), rel=1e-6)


@pytest.mark.slow
def test_on_its_rank_the_likelihood_rises_to_a_bound_as_the_floor_falls():
    """Errata 13: on all C columns every decade of the floor would add 6/2 · log 10 nats and more, without end."""
    x, labels = few_labels()
    values = []
    for floor in (1e-2, 1e-4, 1e-6):
        with pytest.warns(NoiseFloorWarning):
            values.append(SupervisedPPCA(3, target_noise_floor=floor).fit(x, labels).log_likelihood_)
    gains = np.diff(values)
    assert (gains > 0).all()
    assert gains[1] < gains[0] / 10


def test_one_component_for_three_classes_stays_off_the_floor():
    x, labels = few_labels()
    data = simulate(100, (8,), 2)
    assert caught(lambda: PPCA(2).fit(data.features))[1] == []
    model, found = caught(lambda: SupervisedPPCA(1).fit(x, labels))
    assert model.at_floor_ == (False, False)
    assert [w.category for w in found] == []


def test_features_without_noise_end_at_their_floor():
    """Data of rank K have no noise: σ² is the floor, said so, and not zero or negative."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 8))
    model, found = caught(lambda: PPCA(2).fit(x))
    assert model.at_floor_ == (True,)
    assert any(w.category is NoiseFloorWarning and "features" in str(w.message) for w in found)
    assert 0 < model.noise_variance_ < 1e-12 * x.var(axis=0).mean()
    assert "which is rounding: the components explain them wholly" in str(found[0].message)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_noise_in_float32_is_said_to_have_few_digits(dtype):
    data = simulate(400, (10,), 2, noise=(1e-5,), strength=2.0)
    model, found = caught(lambda: PPCA(2, solver="covariance", noise_floor=1e-9).fit(data.features.astype(dtype)))
    said = [w for w in found if w.category is PrecisionWarning]
    if dtype == np.float64:
        assert said == []
        assert model.noise_variance_ == pytest.approx(1e-5, rel=0.1)
    else:
        assert len(said) == 1
        assert "store the data as float64" in str(said[0].message)


def test_the_route_of_products_keeps_float32_data_in_float64():
    data = simulate(400, (60,), 2, noise=(1e-5,), strength=2.0)
    model, found = caught(lambda: PPCA(2, solver="krylov", noise_floor=1e-9).fit(data.features.astype(np.float32)))
    assert [w for w in found if w.category is PrecisionWarning] == []
    assert model.noise_variance_ == pytest.approx(1e-5, rel=0.1)


@pytest.mark.parametrize("solver", ["auto", "em"])
def test_too_few_iterations_are_reported(solver):
    data = documents(150, 300, random_state=1)
    with only_solver("krylov"):
        model, found = caught(lambda: PPCA(5, solver=solver, max_iter=2).fit(data.features))
    said = [w for w in found if w.category is ConvergenceWarning]
    assert len(said) == 1
    assert "stopped after 2 iterations" in str(said[0].message)
    assert "raise max_iter or tol" in str(said[0].message)
    assert not model.converged_
    assert model.n_iter_ == 2
    assert np.isfinite(model.log_likelihood_)


ACTIONS = {
    "fit": lambda x, y: SupervisedPPCA(3).fit(x, y),
    "fit_transform": lambda x, y: SupervisedPPCA(3).fit_transform(x, y),
    "PPCA.fit": lambda x, y: PPCA(3, solver="em", max_iter=2).fit(x),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_warnings_point_at_the_line_of_the_caller(name):
    x, labels = few_labels()
    found = caught(lambda: ACTIONS[name](x, labels))[1]
    assert found
    for warning in found:
        assert warning.filename == __file__
        assert warning.lineno == ACTIONS[name].__code__.co_firstlineno


def maximum_of_ppca(x, k):
    """The log-likelihood at the maximum, from singular values: small ones have more digits than eigenvalues; and what
    the rounding of products changes of it, some digits of the variance, which counts N/2 × over the noise."""
    n, d = x.shape
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2 / n
    noise = values[k:].sum() / (d - k)
    rounding = 0.5 * n * 8 * np.finfo(float).eps * values.sum() / noise
    return -0.5 * n * (d * (np.log(2 * np.pi) + 1) + np.log(values[:k]).sum() + (d - k) * np.log(noise)), rounding


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize("part", [0.1, 0.35, 0.7, 0.99])
def test_the_maximum_of_data_in_mixed_units_is_found(load, solver, part):
    """Noise of 1e-7 (K = 10 of breast_cancer) to 5e-11 of the mean variance is no rounding."""
    x = load().data
    k = int(part * x.shape[1])
    model, found = caught(lambda: PPCA(k, solver=solver).fit(x))
    assert NoiseFloorWarning not in [w.category for w in found]
    assert model.at_floor_ == (False,)
    maximum, rounding = maximum_of_ppca(x, k)
    assert rounding < (0.1 if k < 29 else 0.4)
    near = max(0.1, rounding)
    assert model.log_likelihood_ == pytest.approx(maximum, abs=near)
    assert model.log_likelihood_ == pytest.approx(PCA(k, svd_solver="full").fit(x).score(x) * len(x), abs=near)


def but_for_units(found):
    """What warnings say, but for one that tells of the units."""
    texts = [str(warning.message) for warning in found]
    assert sum("scale='spread'" in text for text in texts) == 1
    return [text for text in texts if "scale='spread'" not in text]


def test_the_maximum_of_data_in_mixed_units_is_found_by_rows():
    x = load_breast_cancer().data
    model, found = caught(lambda: PPCA(10, missing="nan", prior="ml").fit(x))
    assert but_for_units(found) == []
    assert model.log_likelihood_ == pytest.approx(maximum_of_ppca(x, 10)[0], abs=0.1)


def test_supervised_models_find_noise_that_is_a_tiny_part_of_the_variance():
    """Targets of pure chance leave the maximum of the features as it is: the noise is that of PPCA."""
    x = load_breast_cancer().data
    y = np.random.default_rng(0).standard_normal((len(x), 2))
    model, found = caught(lambda: SupervisedPPCA(10, target_type="regression").fit(x, y))
    assert but_for_units(found) == []
    assert model.noise_variance_ == pytest.approx(PPCA(10).fit(x).noise_variance_, rel=1e-3)


@pytest.mark.slow
def test_factor_analysis_finds_features_that_nearly_repeat_others_in_any_units():
    """Feature 1 is feature 0 and noise of 1e-3; with a floor of 1e-6 of the variance the maximum is 150 nats higher."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 8)) + 0.7 * rng.standard_normal((300, 8))
    x[:, 1] = x[:, 0] + 1e-3 * rng.standard_normal(300)
    unit = 10.0 ** np.arange(-3, 5)
    model, other = (caught(lambda data=data: FactorAnalysis(2).fit(data))[0] for data in (x, x * unit))
    covariance = model.components_.T @ model.components_ + np.diag(model.noise_variance_)
    dense = multivariate_normal(model.mean_, covariance, allow_singular=True).logpdf(x).sum()
    assert model.log_likelihood_ == pytest.approx(dense, abs=1e-2)
    assert other.log_likelihood_ == pytest.approx(model.log_likelihood_ - 300 * np.log(unit).sum(), abs=1e-2)
    bounded, _ = caught(lambda: FactorAnalysis(2, noise_floor=1e-6).fit(x))
    assert model.log_likelihood_ > bounded.log_likelihood_ + 100


def test_a_floor_that_was_asked_for_is_not_called_rounding():
    x = load_breast_cancer().data
    _, found = caught(lambda: PPCA(10, noise_floor=1e-6).fit(x))
    (text,) = but_for_units(found)
    assert "1e-06 of their mean variance, and the likelihood would be higher below it" in text
    _, found = caught(lambda: PPCA(29, noise_floor=1e-6).fit(x))
    assert "what they would explain is below the noise floor" in but_for_units(found)[0]
    assert "rank" not in " ".join(but_for_units(found))


@pytest.mark.slow
def test_the_floor_of_few_entries_is_not_called_rounding():
    """Rows that observe no more entries than there are components lose digits: each iteration divides by the noise."""
    x = load_breast_cancer().data
    x[np.random.default_rng(0).random(x.shape) < 0.3] = np.nan
    _, found = caught(lambda: PPCA(29, missing="nan", prior="ml").fit(x))
    text = " ".join(str(w.message) for w in found)
    assert "1e-07 of their mean variance, and the likelihood would be higher below it" in text


@pytest.mark.parametrize("k", [15, 25])
def test_iterations_over_entries_find_a_maximum_of_little_noise(k):
    """8e-9 and 3e-10 of the mean variance, which the maximum of complete data has."""
    x = load_breast_cancer().data
    model, found = caught(lambda: PPCA(k, missing="nan", prior="ml").fit(x))
    assert model.log_likelihood_ == pytest.approx(PPCA(k).fit(x).log_likelihood_, rel=1e-6)
    x[np.random.default_rng(0).random(x.shape) < 0.02] = np.nan
    hidden, also = caught(lambda: PPCA(k, missing="nan", prior="ml").fit(x))
    assert hidden.noise_variance_ == pytest.approx(model.noise_variance_, rel=0.2)
    assert not [w for w in found + also if w.category is NoiseFloorWarning]


@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_of_a_rough_fit_is_that_of_its_parameters(seed):
    """Else the check on the data would take the tolerance for lost precision."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, 8)) @ rng.normal(size=(8, 150)) * np.geomspace(3, 1, 150) + rng.normal(size=(200, 150))
    y = x[:, :2] @ rng.normal(size=(2, 2)) + rng.normal(size=(200, 2))
    y[rng.random(200) < 0.7] = np.nan
    model = SupervisedPPCA(3, tol=1e-2, solver="krylov").fit(x, y)
    assert model.log_likelihood_ == pytest.approx(np.sum(model.score_samples(x, y)), rel=1e-13)


@pytest.mark.parametrize("solver", ["gram", "krylov", "covariance"])
def test_few_labelled_rows_of_many_features_are_no_misfit(solver):
    """Features outside of what the components span have noise, which counts as variance that the model gives."""
    rng = np.random.default_rng(0)
    x = 3.0 * rng.normal(size=(60, 2)) @ rng.normal(size=(2, 300)) + rng.normal(size=(60, 300))
    y = np.where(np.arange(60) < 12, (x[:, 0] > 0.0).astype(int), -1)
    model, said = caught(lambda: SupervisedPPCA(2, solver=solver).fit(x, y))
    given = np.sum(model.components_**2) + 300 * model.noise_variance_
    assert given == pytest.approx(x.var(axis=0).sum(), rel=0.1)
    assert not [warning for warning in said if warning.category is MisfitWarning]
