"""Numbers of any size that the dtype holds: the same model in other units, or an error of dlatent's own."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_estimators_conformance import OUTPUTS, PRESETS, X

from dlatent import PPCA, CorrespondencePPCA, FactorAnalysis, LocallyLinearEmbedding, SupervisedPPCA
from dlatent.errors import DlatentError
from dlatent.models import task
from tests.fitted import parameters_of
from tests.simulators import hide

SOME = settings(max_examples=2, suppress_health_check=list(HealthCheck))
REST = hide(OUTPUTS, np.arange(len(X)) % 3 == 0)
# The noise of a fit in spreads has no unit.
HAVE_UNITS = [preset for preset in PRESETS if "in spreads" not in preset.name]
ROUTED = [(preset, solver) for preset in HAVE_UNITS for solver in dict.fromkeys(preset.solvers)]
pytestmark = pytest.mark.filterwarnings("ignore")


def assert_other_units(found, expected, factor, cells, weights=0):
    """Loadings in other units, and the likelihood of densities of them; so many `weights` after the noise stay."""
    scale = abs(expected.components).max()
    np.testing.assert_allclose(found.components / factor, expected.components, rtol=1e-4, atol=1e-5 * scale)
    units = np.full(np.size(expected.noise_variance), 2 * np.log(factor))
    units[len(units) - weights :] = 0.0
    np.testing.assert_allclose(np.log(found.noise_variance), np.log(expected.noise_variance) + units, atol=1e-4)
    moved = expected.log_likelihood - cells * np.log(factor)
    assert found.log_likelihood == pytest.approx(moved, rel=1e-9, abs=1e-6 * abs(expected.log_likelihood))


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "solver"), ROUTED, ids=lambda value: str(value))
@SOME
@given(power=st.sampled_from([-100, -60, -34, 34, 60, 100]))
def test_powers_of_two_scale_the_model(preset, solver, power):
    """Loadings are multiplied, scores in units of the features, too, and the log-likelihood changes by cells · k · log
    2."""
    factor, model = 2.0**power, preset.by_solver[solver]
    scaled = preset.fit(preset.features * factor, solver=solver)
    weights = getattr(preset, "mixtures", 0)
    assert_other_units(preset.values(scaled), preset.values(model), factor, preset.cells, weights)
    own, moved = (np.asarray(p) for p in (preset.transform(model), preset.transform(scaled, preset.features * factor)))
    in_units = model.get_params().get("whiten") is False and "feature_scale" not in model.result_
    np.testing.assert_allclose(moved / (factor if in_units else 1.0), own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("power", [-300, 300])
@pytest.mark.parametrize("solver", ["krylov", "gram"])
def test_products_of_which_the_squares_are_no_numbers_still_lead_on(solver, power):
    rows = np.random.default_rng(0).normal(size=(20, 60)) * np.linspace(1.0, 3.0, 60)
    one, other = (PPCA(3, solver=solver).fit(x, client="serial") for x in (rows, rows * 2.0**power))
    np.testing.assert_allclose(other.components_ / 2.0**power, one.components_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        partial(PPCA, 2),
        partial(PPCA, 2, solver="krylov"),
        pytest.param(partial(FactorAnalysis, 2), marks=pytest.mark.slow),
        partial(SupervisedPPCA, 2),
        partial(SupervisedPPCA, 2, solver="krylov"),
    ],
)
@pytest.mark.parametrize("power", [-100, -34, 60, 83, 100])
def test_float32_of_any_size_is_as_good_as_float64(make, power):
    """Squares of 1e25 are no number of float32, and those of 1e-30 are zero."""
    rows = (X * 2.0**power).astype(np.float32)
    targets = () if make.func in (PPCA, FactorAnalysis) else (REST,)
    single, double = (make().fit(x, *targets, client="serial") for x in (rows, rows.astype(np.float64)))
    assert single.log_likelihood_ == pytest.approx(double.log_likelihood_, rel=1e-5)
    np.testing.assert_allclose(single.noise_variance_, double.noise_variance_, rtol=1e-2)
    assert single.components_.dtype == single.mean_.dtype == np.float64


def test_a_small_feature_of_float32_beside_large_ones_is_not_constant():
    rows = X.astype(np.float32)
    rows[:, 1] *= np.float32(1e-25)
    model = FactorAnalysis(2).fit(rows, client="serial")
    expected = FactorAnalysis(2).fit(rows.astype(np.float64), client="serial")
    np.testing.assert_allclose(model.noise_variance_, expected.noise_variance_, rtol=1e-3)


@pytest.mark.parametrize("labels", [OUTPUTS, REST], ids=["complete", "some"])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@SOME
@given(features=st.sampled_from([-100, 0, 34, 100]), targets=st.sampled_from([-100, -34, 0, 34, 100]))
def test_features_and_targets_of_different_sizes(labels, solver, features, targets):
    model = SupervisedPPCA(2, tol=1e-12, solver=solver).fit(X, labels, client="serial")
    one, other = 2.0**features, 2.0**targets
    scaled = SupervisedPPCA(2, tol=1e-12, solver=solver).fit(X * one, labels * other, client="serial")
    np.testing.assert_allclose(scaled.components_ / one, model.components_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scaled.target_components_ / other, model.target_components_, rtol=1e-4, atol=1e-5)
    cells = X.size * features + np.isfinite(labels).sum() * targets
    expected = model.log_likelihood_ - cells * np.log(2.0)
    assert scaled.log_likelihood_ == pytest.approx(expected, rel=1e-9, abs=1e-6 * abs(model.log_likelihood_))


def degenerate():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 8))
    low = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 8))
    yield "zero", np.zeros((30, 8))
    yield "constant", np.full((30, 8), 3.0)
    yield "a constant feature", np.where(np.arange(8) == 2, 5.0, rows)
    yield "a feature of zeros", np.where(np.arange(8) == 2, 0.0, rows)
    yield "one feature varies", np.where(np.arange(8) == 2, rows, 0.0)
    yield "two values", np.repeat(rows[:2], 15, axis=0)
    yield "duplicates", np.vstack([rows[:6]] * 5)
    yield "features twice", np.hstack([rows[:, :4]] * 2)
    yield "low rank", low
    yield "low rank, far away", low + 1e8
    yield "few rows", rows[:4]
    yield "sizes of all kinds", rows * np.logspace(-150, 150, 8)
    yield "one row far away", np.where(np.arange(30)[:, None] == 3, 1e150 * rows, rows)
    yield "too large", rows * 1e200
    yield "too small", rows * 1e-200


MAKERS = {
    "ppca": lambda x: PPCA(3, zero_rows="keep").fit(x, client="serial"),
    "krylov": lambda x: PPCA(3, solver="krylov", zero_rows="keep").fit(x, client="serial"),
    "em": lambda x: PPCA(3, solver="em", zero_rows="keep").fit(x, client="serial"),
    "missing": lambda x: PPCA(3, missing="nan", zero_rows="keep").fit(x, client="serial"),
    "factors": lambda x: FactorAnalysis(3, zero_rows="keep").fit(x, client="serial"),
    "supervised": lambda x: SupervisedPPCA(3, zero_rows="keep").fit(x, targets_of(x), client="serial"),
    "some labels": lambda x: SupervisedPPCA(3, zero_rows="keep").fit(x, targets_of(x, 3), client="serial"),
    "some labels, krylov": lambda x: SupervisedPPCA(3, solver="krylov", zero_rows="keep").fit(
        x, targets_of(x, 3), client="serial"
    ),
    "views": lambda x: CorrespondencePPCA(3, zero_rows="keep").fit(
        [x[:, :4], x[len(x) // 3 :, 4:]], correspondence=pairs_of(x), client="serial"
    ),
}


def targets_of(x, unlabelled=0):
    y = OUTPUTS[: len(x)].copy()
    y[len(x) - unlabelled if unlabelled else len(x) :] = np.nan
    return y


def pairs_of(x):
    first = len(x) // 3
    return np.column_stack([np.arange(first, len(x)), np.arange(len(x) - first)])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [pytest.param(x, id=name) for name, x in degenerate()])
@pytest.mark.parametrize("kind", MAKERS)
def test_degenerate_data_end_in_a_finite_model_or_an_error_of_dlatent(kind, rows):
    try:
        model = MAKERS[kind](rows)
    except DlatentError:
        return
    numbers = [
        *np.ravel(model.log_likelihood_),
        *parameters_of(model).loadings.ravel(),
        *parameters_of(model).noise_variance,
    ]
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("4-th leading minor"), ValueError(task.NOT_FINITE)])
@pytest.mark.parametrize("make", [partial(PPCA, 2), partial(LocallyLinearEmbedding, n_components=2)])
def test_errors_of_lapack_come_with_advice(make, error, monkeypatch):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr("dlatent.solvers.moments.solver.CovarianceSolver.fit", fail)
    monkeypatch.setattr("dlatent.models.embedding.embed", fail)
    with pytest.raises(DlatentError, match="like scales"):
        make().fit(X, client="serial")


def test_other_errors_pass():
    with pytest.raises(ValueError, match="mine"), task.sound_algebra():
        raise ValueError("mine")
