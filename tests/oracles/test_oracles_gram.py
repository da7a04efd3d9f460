"""The dual is the primal; a kernel is its features; Theorem 3 is where EM ends."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA

from dlatent import PPCA, KernelPPCA, KernelSupervisedPPCA, SupervisedPPCA
from tests.simulators import simulate

FACES = {"orl": "orl_32x32.npz", "yale": "yale_32x32.npz"}
FINE = {"tol": 1e-15, "max_iter": 300}


def faces(name):
    folder = os.environ.get("DLATENT_DATA")
    if folder is None:
        pytest.skip("DLATENT_DATA is not set: the faces are not here")
    raw = np.load(Path(folder) / FACES[name], allow_pickle=False)
    images = raw["X"].astype(float)
    return images / np.linalg.norm(images, axis=1, keepdims=True), raw["y"]


def words(seed=0):
    """Sparse rows of rank 8 in expectation, fewer than features, and two outputs for a third of them."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((120, 4))
    dense = np.maximum(z @ rng.standard_normal((4, 500)) - 2.5, 0.0)
    rows = sp.csr_array(dense + sp.random_array((120, 500), density=0.01, rng=rng).toarray())
    outputs = z[:, :2] + 0.3 * rng.standard_normal((120, 2))
    return rows, outputs


def case(name):
    """Rows, and targets of which most are missing."""
    if name == "sparse":
        rows, outputs = words()
        return rows, np.where(np.arange(120)[:, None] % 3 == 0, outputs, np.nan)
    images, classes = faces(name)
    rng = np.random.default_rng(0)
    labelled = np.zeros(len(classes), dtype=bool)
    for person in np.unique(classes):
        labelled[rng.permutation(np.flatnonzero(classes == person))[:2]] = True
    return images, np.where(labelled, classes, -1)


def difference(one, other):
    """Largest difference as a part of the largest value."""
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other))) / np.max(np.abs(other)))


@pytest.mark.parametrize("name", ["sparse", "yale", "orl"])
def test_the_dual_of_s2ppca_is_the_primal(name):
    """Scores and predictions of new rows, and noises, to 1e-8."""
    rows, targets = case(name)
    count = rows.shape[0]
    train = np.arange(count) % 5 != 4
    new = rows[~train]
    primal, dual = (
        SupervisedPPCA(8 if name == "orl" else 4, solver=solver, zero_rows="keep", **FINE).fit(
            rows[train], targets[train]
        )
        for solver in ("covariance", "gram")
    )
    assert dual.n_passes_ == 3  # the last for the head
    assert abs(dual.noise_variance_ / primal.noise_variance_ - 1) < 1e-8
    assert abs(dual.target_noise_variance_ / primal.target_noise_variance_ - 1) < 1e-8
    assert difference(dual.mean_, primal.mean_) < 1e-8
    assert difference(dual.transform(new), primal.transform(new)) < 1e-8
    assert difference(dual.decision_function(new), primal.decision_function(new)) < 1e-8
    assert difference(dual.score_samples(new), primal.score_samples(new)) < 1e-8
    assert primal.log_likelihood_ == pytest.approx(dual.log_likelihood_, rel=1e-12)


@pytest.mark.parametrize("complete", [False, True], ids=["semi-supervised", "complete"])
def test_a_linear_kernel_is_the_dual(complete):
    rows, outputs = words(1)
    targets = outputs if complete else np.where(np.arange(120)[:, None] % 3 == 0, outputs, np.nan)
    new = rows[:20] * 1.5
    options = {"head": "likelihood", **FINE}  # the head of features sees these, which kernels do not write down
    dual = SupervisedPPCA(4, solver="gram", **options).fit(rows, targets)
    for solver in ("memory", "recomputed"):
        kernel = KernelSupervisedPPCA(4, kernel="linear", solver=solver, **options).fit(rows, targets)
        signs = np.sign((kernel.transform(new) * dual.transform(new)).sum(axis=0))
        assert difference(kernel.transform(new) * signs, dual.transform(new)) < 1e-7
        assert difference(kernel.decision_function(new), dual.decision_function(new)) < 1e-7
        assert difference(kernel.score_samples(new), dual.score_samples(new)) < 1e-9
        assert abs(kernel.noise_variance_ / dual.noise_variance_ - 1) < 1e-8
        assert abs(kernel.target_noise_variance_ / dual.target_noise_variance_ - 1) < 1e-8


def test_ppca_by_inner_products_is_ppca():
    rows, _ = words(2)
    dual, primal = (PPCA(5, solver=solver, tol=1e-14).fit(rows) for solver in ("gram", "covariance"))
    assert difference(dual.components_, primal.components_) < 1e-8
    assert dual.log_likelihood_ == pytest.approx(primal.log_likelihood_, rel=1e-12)
    assert PPCA(5).plan(rows).solver == "gram"


def quadratic_features(rows):
    """φ(x) with φ(x)ᵀφ(x') = (x₁ᵀx' + 1)² − 1: the constant feature is left out, as it vanishes about the mean."""
    first, second = np.triu_indices(rows.shape[1])
    products = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))
    return np.hstack([np.sqrt(2.0) * rows, products])


@pytest.mark.parametrize("complete", [False, True], ids=["semi-supervised", "complete"])
def test_a_polynomial_kernel_is_supervised_ppca_of_the_monomials(complete):
    """A kernel whose features can be written down: scores, predictions and likelihoods of new rows are theirs."""
    data = simulate(60, (4, 2), 2, noise=(0.3, 0.3), random_state=0)
    rows, targets = data.features, data.targets
    if not complete:
        targets = np.where(np.arange(60)[:, None] % 3 == 0, targets, np.nan)
    new = rows[:9] + 0.3
    kernel = KernelSupervisedPPCA(
        3, kernel="polynomial", gamma=1.0, degree=2, coef0=1.0, feature_dimension=14, head="likelihood", **FINE
    ).fit(rows, targets)
    features = SupervisedPPCA(3, head="likelihood", **FINE).fit(quadratic_features(rows), targets)
    assert kernel.log_likelihood_ == pytest.approx(features.log_likelihood_, rel=1e-10)
    assert kernel.noise_variance_ == pytest.approx(features.noise_variance_, rel=1e-7)
    inside = quadratic_features(new)
    np.testing.assert_allclose(kernel.decision_function(new), features.decision_function(inside), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel.score_samples(new), features.score_samples(inside), rtol=1e-7)
    np.testing.assert_allclose(abs(kernel.transform(new)), abs(features.transform(inside)), rtol=1e-4, atol=1e-5)


def dual_em(kernel, outputs, dimension, k, iterations):
    """Textbook EM for complete labels that looks at the centred kernel alone, from the definition of the model.

    W_x = ΦᵀA and μ = 0 (all is centred).  E[z] = M⁻¹ (ΦW_x/σ_x² + Y W_y/σ_y²); the M-step is a regression on z.
    """
    count, width = outputs.shape
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((count, k)) * 0.1, rng.standard_normal((width, k)) * 0.1
    noise_x, noise_y = np.trace(kernel) / (count * dimension), (outputs**2).mean()
    for _ in range(iterations):
        precision = np.eye(k) + a.T @ kernel @ a / noise_x + w.T @ w / noise_y
        covariance = np.linalg.inv(precision)
        z = (kernel @ a / noise_x + outputs @ w / noise_y) @ covariance
        second = z.T @ z + count * covariance
        a, w = z @ np.linalg.inv(second), outputs.T @ z @ np.linalg.inv(second)
        noise_x = (np.trace(kernel) - np.trace(a.T @ kernel @ z)) / (count * dimension)
        noise_y = ((outputs**2).sum() - np.trace(w.T @ outputs.T @ z)) / (count * width)
    return a, w, noise_x, noise_y


def test_theorem_3_is_where_em_ends():
    """The closed form at the best noises, against EM on the kernel from random combinations."""
    data = simulate(40, (5, 3), 2, noise=(0.5, 0.4), random_state=3)
    model = KernelSupervisedPPCA(2, kernel="rbf", feature_dimension=39, **FINE).fit(data.features, data.targets)
    squares = ((data.features[:, None] - data.features[None]) ** 2).sum(axis=2)
    middle = np.eye(40) - 1 / 40
    kernel = middle @ np.exp(-model.gamma_ * squares) @ middle
    outputs = data.targets - data.targets.mean(axis=0)
    a, w, noise_x, noise_y = dual_em(kernel, outputs, 39, 2, 4000)
    assert model.noise_variance_ == pytest.approx(noise_x, rel=1e-6)
    assert model.target_noise_variance_ == pytest.approx(noise_y, rel=1e-6)
    found, targets = model.dual_components_.T, model.target_components_.T
    np.testing.assert_allclose(kernel @ found @ found.T @ kernel, kernel @ a @ a.T @ kernel, atol=1e-6)
    np.testing.assert_allclose(targets @ targets.T, w @ w.T, atol=1e-5)
    np.testing.assert_allclose(kernel @ found @ targets.T, kernel @ a @ w.T, atol=1e-6)


def test_without_noise_it_is_kernel_pca():
    """More and more features share the noise: σ² → 0, and the scores are those of kernel PCA, each of variance 1."""
    data = simulate(70, (4,), 3, noise=(0.3,), random_state=4).features
    new = data[:11] + 0.2
    model = KernelPPCA(3, kernel="rbf", gamma=0.2, feature_dimension=10**10, whiten=True).fit(data)
    other = KernelPCA(3, kernel="rbf", gamma=0.2).fit(data)
    expected = other.transform(new) / np.sqrt(other.eigenvalues_ / len(data))
    signs = np.sign((expected * model.transform(new)).sum(axis=0))
    assert model.noise_variance_ < 1e-10
    np.testing.assert_allclose(model.transform(new) * signs, expected, rtol=1e-6, atol=1e-7)
    # With noise they shrink, each component by its own factor.
    noisy = KernelPPCA(3, kernel="rbf", gamma=0.2, whiten=True).fit(data)
    ratios = noisy.transform(new) * signs / expected
    factors = np.sqrt(np.maximum(1 - noisy.noise_variance_ / (other.eigenvalues_ / len(data)), 0))
    np.testing.assert_allclose(ratios, np.broadcast_to(factors, ratios.shape), rtol=1e-6)


def test_the_number_of_features_changes_the_answer():
    """Errata 12: M is a parameter of a kernel model, because the noise is shared by M features."""
    data = simulate(60, (4, 2), 2, noise=(0.3, 0.5), random_state=5)
    few, many = (
        KernelSupervisedPPCA(2, feature_dimension=m, head="likelihood")
        .fit(data.features, data.targets)
        .decision_function(data.features)
        for m in (59, 5900)
    )
    assert difference(few, many) > 1e-2
