"""Fits that go on from the parameters of the last one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from dlatent import PPCA, DataError, FactorAnalysis, PPCAMixture, load
from tests.oracles import dense as oracles
from tests.simulators import simulate

FULL = simulate(240, (7,), 2, noise=(0.5,), random_state=3).features
HOLES = np.where(np.random.default_rng(0).random(FULL.shape) < 0.2, np.nan, FULL)
MODELS = {
    "ppca": (PPCA(2, missing="nan", prior="ml", warm_start=True), HOLES),
    "ppca, em": (PPCA(2, missing="nan", prior="ml", solver="em", tol=1e-7, warm_start=True), HOLES),
    "factors": (FactorAnalysis(1, missing="nan", prior="ml", solver="em", tol=1e-6, warm_start=True), HOLES),
    "rotated factors": (
        FactorAnalysis(2, missing="nan", prior="ml", solver="em", tol=1e-6, rotation="varimax", warm_start=True),
        HOLES,
    ),
    "mixture": (PPCAMixture(1, 2, tol=1e-7, warm_start=True), FULL),
    "mixture of factors": (PPCAMixture(1, 2, noise="diagonal", noise_prior=0.0, tol=1e-6, warm_start=True), FULL),
}


@pytest.mark.filterwarnings("ignore::dlatent.ConvergenceWarning", "ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_begins_where_the_last_one_ended(name):
    """The first line of its history is the likelihood of the last parameters, and it ends at the same maximum."""
    model, x = MODELS[name]
    cold = clone(model).fit(x)
    model = clone(model).set_params(max_iter=3).fit(x)
    before = model.score_samples(x).sum()
    model.set_params(max_iter=None).fit(x)
    lines = model.history_["iteration_log_likelihood"].values
    assert lines[0] == pytest.approx(before, rel=1e-10)
    assert (np.diff(lines) >= -1e-9 * abs(lines[0])).all()
    assert model.log_likelihood_ == pytest.approx(cold.log_likelihood_, rel=1e-5)


def test_a_fit_that_was_finished_is_finished_soon(tmp_path):
    model, x = MODELS["ppca"]
    cold = clone(model).fit(x)
    cold.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr").fit(x)
    assert again.n_passes_ < cold.n_passes_ / 2
    assert again.log_likelihood_ == pytest.approx(cold.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(again.get_covariance(), cold.get_covariance(), rtol=1e-3, atol=1e-4)


def test_more_rows_go_on_from_fewer():
    """The likelihood at the start is that of the old parameters for the new rows, as a dense normal distribution."""
    model = PPCA(2, missing="nan", prior="ml", warm_start=True).fit(HOLES[:150])
    dense = oracles.DenseModel(model.components_.T, model.mean_, np.full(7, model.noise_variance_))
    before = oracles.log_densities(dense, HOLES).sum()
    model.fit(HOLES)
    assert model.history_["iteration_log_likelihood"].values[0] == pytest.approx(before, rel=1e-10)
    assert model.log_likelihood_ == pytest.approx(
        PPCA(2, missing="nan", prior="ml").fit(HOLES).log_likelihood_, rel=1e-8
    )


def test_a_copy_and_a_fit_without_it_begin_anew():
    model = PPCA(2, missing="nan", warm_start=True).fit(HOLES)
    cold = PPCA(2, missing="nan").fit(HOLES)
    np.testing.assert_array_equal(clone(model).fit(HOLES).components_, cold.components_)
    np.testing.assert_array_equal(model.set_params(warm_start=False).fit(HOLES).components_, cold.components_)


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_a_mixture_of_one_component_goes_on_as_the_model_that_it_is(noise):
    model = PPCAMixture(2, 1, noise=noise, warm_start=True).fit(FULL)
    before = model.components_
    np.testing.assert_allclose(model.fit(FULL).components_, before, rtol=1e-6)


def test_refusals(tmp_path):
    with pytest.raises(DataError, match="of complete data the best maximum is found without a start"):
        PPCA(2, warm_start=True).fit(FULL)
    with pytest.raises(DataError, match="warm_start is 1; expected True or False"):
        PPCA(2, missing="nan", warm_start=1).fit(HOLES)
    model = PPCA(2, missing="nan", warm_start=True).fit(HOLES)
    with pytest.raises(DataError, match=r"shapes \(7, 2\) and \(1,\), and this fit has \(6, 2\)"):
        model.fit(HOLES[:, :6])
    with pytest.raises(DataError, match=r"this fit has \(7, 3\)"):
        model.set_params(n_components=3).fit(HOLES)
    with pytest.raises(DataError, match="no checkpoint holds"):
        model.set_params(n_components=2).fit(HOLES, checkpoint=tmp_path / "c")
    mixture = PPCAMixture(1, 2, tol=1e-3, warm_start=True).fit(FULL)
    with pytest.raises(DataError, match=r"this fit has \(3, 7, 1\)"):
        mixture.set_params(n_mixtures=3).fit(FULL)
    with pytest.raises(DataError, match=r"and \(2, 7\)"):
        mixture.set_params(n_mixtures=2, noise="diagonal").fit(FULL)
