"""What users ask of a mixture: results in the kind of the data, labels, samples, refusals, and a saved model."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dlatent
from dlatent import DataError, NotFittedError, PPCAMixture, StoreError
from tests.fitted import parameters_of
from tests.oracles.mixture import joint_log_densities, simulate_mixture

DATA = simulate_mixture(150, 6, separation=3.0, own_noise=True, noise=0.5, random_state=1)
X, N, D = DATA.features, 150, 6


@pytest.fixture(params=["isotropic", "diagonal"], scope="module")
def model(request):
    return PPCAMixture(2, 3, noise=request.param, noise_prior=0.0).fit(X)


def test_shapes(model):
    noise = (3,) if model.noise == "isotropic" else (3, D)
    assert model.weights_.shape == (3,)
    assert (model.means_.shape, model.components_.shape) == ((3, D), (3, 2, D))
    assert model.noise_variance_.shape == model.at_floor_.shape == noise
    assert (model.n_samples_, model.n_features_in_) == (N, D)
    each = D + 2 * D - 1 + (1 if model.noise == "isotropic" else D)
    assert model.n_parameters_ == 3 * each + 2
    assert list(model.get_feature_names_out()) == ["ppcamixture0", "ppcamixture1"]
    assert model.result_["mixture_loadings"].dims == ("mixture", "feature", "component")
    assert model.result_["mixture_weight"].values.tolist() == model.weights_.tolist()


def test_labels_are_those_of_the_largest_responsibility(model):
    shares = model.predict_proba(X)
    assert shares.shape == (N, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    labels = model.predict(X)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, shares.argmax(axis=1))
    expected = joint_log_densities(parameters_of(model), X)
    np.testing.assert_allclose(shares, np.exp(expected - model.score_samples(X)[:, None]), atol=1e-9)


def test_scores_and_reconstructions_belong_together(model):
    z, labels = model.transform(X), model.predict(X)
    np.testing.assert_allclose(model.inverse_transform(z, labels), model.reconstruct(X), rtol=1e-12, atol=1e-12)
    apart = np.square(X - model.reconstruct(X)).mean()
    assert apart < np.square(X - model.means_[labels]).mean() / 2
    assert model.score(X) == pytest.approx(model.log_likelihood_ / N, rel=1e-10)


def test_results_come_in_the_kind_of_the_data(model):
    dims = {"transform": ["component"], "predict_proba": ["mixture"], "reconstruct": ["column"]}
    lazy = da.from_array(X, chunks=(40, D))
    named = xr.DataArray(X, dims=("row", "column"), coords={"row": [f"r{i}" for i in range(N)]})
    of_names = PPCAMixture(2, 3, noise=model.noise).fit(named)
    for name in (*dims, "predict", "score_samples"):
        plain, found = getattr(model, name)(X), getattr(model, name)(lazy)
        assert isinstance(plain, np.ndarray)
        assert isinstance(found, da.Array)
        np.testing.assert_allclose(found.compute(), plain, rtol=1e-10, atol=1e-12)
        found = getattr(of_names, name)(named)
        assert found.dims == ("row", *dims.get(name, []))
        assert found["row"].values[3] == "r3"


def test_samples_are_those_of_the_model(model):
    drawn, labels = model.sample(20_000, random_state=3)
    np.testing.assert_allclose(np.bincount(labels) / 20_000, model.weights_, atol=0.015)
    for c in range(3):
        own = drawn[labels == c]
        noise = (
            np.broadcast_to(np.asarray(model.noise_variance_).T, (D, 3))[:, c] if model.noise == "isotropic" else None
        )
        noise = model.noise_variance_[c] if noise is None else noise
        covariance = model.components_[c].T @ model.components_[c] + np.diag(noise)
        np.testing.assert_allclose(np.cov(own.T), covariance, atol=0.1 * np.diag(covariance).max())
    np.testing.assert_array_equal(model.sample(5, random_state=1)[0], model.sample(5, random_state=1)[0])


def test_the_information_criteria_find_the_number_of_clusters():
    found = {}
    for count in (1, 2, 3, 4):
        fitted = PPCAMixture(2, count, n_init=3).fit(X)
        found[count] = fitted.bic(X)
        assert fitted.aic(X) < fitted.bic(X)
    assert min(found, key=found.get) == 3


def test_weights_that_are_none_do_not_open(model, tmp_path):
    model.save(tmp_path / "m.zarr")
    group = zarr.open_group(tmp_path / "m.zarr", mode="r+", use_consolidated=False)
    group.attrs["result"] = {k: v for k, v in dict(group.attrs["result"]).items() if k != "digest"}
    group["mixture_weight"][:] = np.array([0.5, 0.4, 0.3])
    with pytest.raises(StoreError, match=r"weights of the mixture add up to 1\.2"):
        dlatent.load(tmp_path / "m.zarr")


REFUSED = {
    "n_mixtures": (0, "n_mixtures is 0; expected an integer of at least 1"),
    "n_init": (1.5, "n_init is 1.5"),
    "noise": ("full", "expected 'isotropic' or 'diagonal'"),
    "solver": ("krylov", "solver is 'krylov'"),
    "n_components": (7, "allow at most 6"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hyperparameters_that_make_no_sense_are_refused(name):
    value, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        PPCAMixture(**{name: value}).fit(X)


def test_other_refusals(model):
    with pytest.raises(DataError, match="has 150 samples; ask for fewer"):
        PPCAMixture(1, 151).fit(X)
    holes = X.copy()
    holes[3, 1] = np.nan
    with pytest.raises(DataError, match="row 3, column 1"):
        PPCAMixture(1, 2).fit(holes)
    with pytest.raises(DataError, match="row 3, column 1"):
        model.predict(holes)
    for name in ("transform", "predict", "predict_proba", "score_samples", "reconstruct"):
        with pytest.raises(NotFittedError):
            getattr(PPCAMixture(), name)(X)
    with pytest.raises(NotFittedError):
        PPCAMixture().sample()
    z = model.transform(X)
    for labels in (np.full(N, 3), np.zeros(N), np.zeros(4, dtype=int), np.full(N, -1)):
        with pytest.raises(DataError, match="whole numbers from 0 to 2"):
            model.inverse_transform(z, labels)
    assert "missing" not in model.get_params()


def test_it_is_an_estimator_of_scikit_learn():
    found = make_pipeline(StandardScaler(), PPCAMixture(2, 3)).fit(X)
    assert found.predict(X).shape == (N,)
    assert found.transform(X).shape == (N, 2)
    assert clone(PPCAMixture(2, 4, noise="diagonal")).get_params()["n_mixtures"] == 4
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(D)])
    assert PPCAMixture(1, 2).fit(frame).feature_names_in_.tolist() == list(frame.columns)


def test_progress_is_told():
    lines, passes = [], []
    heard = dlatent.Callback(on_iteration=lines.append, on_pass=passes.append)
    model = PPCAMixture(2, 3).fit(X, callbacks=[heard])
    assert len(lines) == model.n_iter_
    assert len(passes) == model.n_passes_
