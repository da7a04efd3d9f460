"""What users of scikit-learn type: other names of the same, and errors that say what to use here."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.manifold
import sklearn.mixture
from estimator_cases import X

import dlatent
from dlatent import PPCA, DataError, FactorAnalysis, KernelPPCA, LocallyLinearEmbedding, PPCAMixture

THEIRS = {
    PPCA: sklearn.decomposition.PCA,
    FactorAnalysis: sklearn.decomposition.FactorAnalysis,
    KernelPPCA: sklearn.decomposition.KernelPCA,
    LocallyLinearEmbedding: sklearn.manifold.LocallyLinearEmbedding,
    PPCAMixture: sklearn.mixture.GaussianMixture,
}
WITHOUT_ANOTHER = {
    FactorAnalysis: {"noise_variance_init"},
    KernelPPCA: {"alpha"},
    LocallyLinearEmbedding: {"max_iter", "tol", "random_state", "hessian_tol", "modified_tol"},
    PPCAMixture: {"weights_init", "means_init", "precisions_init", "verbose_interval"},
}
"""Numbers for what these do not do at all."""


@pytest.mark.parametrize("ours", THEIRS, ids=lambda cls: cls.__name__)
def test_each_keyword_of_scikit_learn_is_taken_or_says_what_to_use(ours):
    known = inspect.signature(ours).parameters
    for name in inspect.signature(THEIRS[ours]).parameters.keys() - known.keys() - WITHOUT_ANOTHER.get(ours, set()):
        refusal = rf"^{ours.__name__}\.__init__\(\) got an unexpected keyword argument '{name}': \w"
        with pytest.raises(TypeError, match=refusal):
            ours(**{name: None})


def test_a_hint_names_what_the_class_has():
    with pytest.raises(TypeError, match="'svd_solver': solver says"):
        PPCA(2, svd_solver="full")
    with pytest.raises(TypeError, match="'whiten': leave it out: scores are latent variables"):
        FactorAnalysis(2, whiten=True)
    assert PPCA(2, whiten=True).whiten
    assert pickle.loads(pickle.dumps(PPCA(2, whiten=True))).whiten


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (PPCA(2, solver="full"), "or 'em'; 'covariance' does the same"),
        (PPCA(2, solver="randomized"), "'krylov' is for few of many"),
        (FactorAnalysis(2, solver="lapack"), "'covariance' does the same"),
        (KernelPPCA(2, kernel="sigmoid"), "sigmoid is no inner product"),
        (KernelPPCA(2, gamma=None), "'median'; scikit-learn's default is 1/n_features"),
        (LocallyLinearEmbedding(eigen_solver="arpack"), "'iterative' does not factorise"),
    ],
    ids=str,
)
def test_a_word_of_scikit_learn_is_refused_by_what_to_use(model, hint):
    with pytest.raises(DataError, match=hint):
        model.fit(X)


def test_poly_is_the_polynomial_kernel():
    short, long = (KernelPPCA(2, kernel=kernel).fit(X) for kernel in ("poly", "polynomial"))
    assert short.get_params()["kernel"] == "poly"
    np.testing.assert_array_equal(short.transform(X), long.transform(X))


def test_poly_is_saved_and_loaded(tmp_path):
    model = KernelPPCA(2, kernel="poly").fit(X)
    model.save(tmp_path / "model.zarr")
    loaded = dlatent.load(tmp_path / "model.zarr")
    assert loaded.kernel == "poly"
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
