"""What users of scikit-learn type: other names of the same, and errors that say what to use here."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.impute
import sklearn.manifold
import sklearn.mixture
from estimator_cases import X

from dlatent import (
    PPCA,
    DataError,
    FactorAnalysis,
    Imputer,
    KernelPPCA,
    LocallyLinearEmbedding,
    NoiseFloorWarning,
    PPCAMixture,
)

THEIRS = {
    PPCA: sklearn.decomposition.PCA,
    FactorAnalysis: sklearn.decomposition.FactorAnalysis,
    KernelPPCA: sklearn.decomposition.KernelPCA,
    LocallyLinearEmbedding: sklearn.manifold.LocallyLinearEmbedding,
    PPCAMixture: sklearn.mixture.GaussianMixture,
    Imputer: sklearn.impute.SimpleImputer,
}
WITHOUT_ANOTHER = {
    FactorAnalysis: {"noise_variance_init"},
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


@pytest.mark.parametrize("ours", [cls for cls in THEIRS if cls is not Imputer], ids=lambda cls: cls.__name__)
def test_a_keyword_that_is_set_says_what_to_use(ours):
    known = inspect.signature(ours).parameters
    for name in inspect.signature(THEIRS[ours]).parameters.keys() - known.keys() - WITHOUT_ANOTHER.get(ours, set()):
        with pytest.raises(ValueError, match=rf"^Invalid parameter '{name}' for estimator {ours.__name__}: \w"):
            ours().set_params(**{name: None})


@pytest.mark.parametrize(
    ("cls", "slip", "meant"),
    [
        (PPCA, "n_component", "n_components"),
        (PPCAMixture, "n_mixture", "n_mixtures"),
        (Imputer, "estimater", "estimator"),
    ],
)
def test_a_slip_is_told_what_was_meant(cls, slip, meant):
    said = re.escape(f"'{slip}': did you mean {meant}?")
    with pytest.raises(TypeError, match=said):
        cls(**{slip: 3})
    with pytest.raises(TypeError, match=r"'colour'$"):
        cls(colour=3)


def test_a_slip_is_told_what_was_meant_where_it_is_set():
    with pytest.raises(ValueError, match=r"'n_component' for estimator PPCA: did you mean n_components\?$"):
        PPCA().set_params(n_component=3)
    with pytest.raises(ValueError, match="Valid parameters are"):
        PPCA().set_params(colour=3)
    assert Imputer(PPCA()).set_params(estimator__n_components=3).estimator.n_components == 3


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


def test_singular_values_are_those_of_the_centred_rows():
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(PPCA(3).fit(X).singular_values_, expected[:3], rtol=1e-8)


@pytest.mark.parametrize("rows", [slice(None), slice(5)], ids=["tall", "wide"])
def test_none_takes_as_many_components_as_there_can_be(rows):
    some = X[rows]
    with warnings.catch_warnings(action="ignore", category=NoiseFloorWarning):  # fewer rows than features have no noise
        model = PPCA(None, noise_floor=1e-9).fit(some)
    assert model.n_components_ == min(len(some) - 1, some.shape[1])
    np.testing.assert_allclose(model.get_covariance(), np.cov(some.T, bias=True), atol=1e-8)
    assert model.get_params()["n_components"] is None


def test_none_is_of_ppca_alone():
    with pytest.raises(DataError, match="n_components is None; expected an integer of at least 1, or 'auto'"):
        FactorAnalysis(None).fit(X)


def test_none_of_rows_that_come_in_parts_is_refused():
    with pytest.raises(DataError, match="n_components is None; rows that are added need a number"):
        PPCA(None).partial_fit(X)


def test_mixtures_fit_and_predict():
    rows = np.vstack([X, X + 9.0])
    clusters = PPCAMixture(1, 2).fit_predict(rows)
    np.testing.assert_array_equal(clusters, PPCAMixture(1, 2).fit(rows).predict(rows))
    assert len(set(clusters[: len(X)])) == len(set(clusters[len(X) :])) == 1


LINKS = "from dlatent import PPCA; print(PPCA()._get_doc_link()); print('dlatent.PPCA.html' in PPCA()._repr_html_())"


@pytest.mark.parametrize("address", ["https://docs.example/stable/", None])
def test_the_html_links_to_the_documentation_where_the_package_says_where_it_is(tmp_path, address):
    lines = ["Metadata-Version: 2.1", "Name: dlatent", "Version: 1", "Project-URL: Source, https://code.example"]
    lines += [] if address is None else [f"Project-URL: Documentation, {address}"]
    (tmp_path / "dlatent-1.dist-info").mkdir()
    (tmp_path / "dlatent-1.dist-info" / "METADATA").write_text("\n".join([*lines, ""]), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {LINKS}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wanted = ["", "False"] if address is None else ["https://docs.example/stable/reference/dlatent.PPCA.html", "True"]
    assert run.stdout.splitlines() == wanted
