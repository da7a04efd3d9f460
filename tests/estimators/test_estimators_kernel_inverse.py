"""From scores of kernel models back to rows: kernel ridge regression of the training rows on their scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import CLASSES, D, X
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dlatent import DataError, KernelPPCA, KernelSupervisedPPCA

NEW = np.random.default_rng(1).normal(size=(5, 3))


def by_ridge(scores, rows, new, alpha, **kernel):
    """What scikit-learn's kernel ridge regression says."""
    return KernelRidge(alpha=alpha, **kernel).fit(scores, rows - rows.mean(axis=0)).predict(new) + rows.mean(axis=0)


def middle(scores):
    """γ of the rbf kernel by the median of the distances."""
    return 1.0 / (2.0 * np.median(euclidean_distances(scores, squared=True)[np.triu_indices(len(scores), 1)]))


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"scale": "spread"}, {"gamma": 0.01}], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 1e-2])
def test_it_is_kernel_ridge_of_the_rows_on_their_scores(options, alpha):
    model = KernelPPCA(3, **options).fit(X)
    # Whitened scores are the others in other units, and mean the same rows.
    scores = KernelPPCA(3, **options | {"whiten": False}).fit(X).transform(X)
    new = NEW * np.linalg.norm(scores, axis=0) / np.linalg.norm(model.transform(X), axis=0)
    expected = by_ridge(scores, X, new, alpha, kernel="rbf", gamma=middle(scores))
    np.testing.assert_allclose(model.inverse_transform(NEW, alpha=alpha), expected, rtol=1e-7, atol=1e-7)


def test_a_kernel_that_is_a_function_is_that_between_scores():
    model = KernelPPCA(2, kernel=cubic).fit(X)
    scores = model.transform(X)
    between = cubic(scores, scores)
    weights = np.linalg.solve(between + np.trace(between) / len(X) * np.eye(len(X)), X - X.mean(axis=0))
    expected = cubic(scores[:4], scores) @ weights + X.mean(axis=0)
    np.testing.assert_allclose(model.inverse_transform(scores[:4]), expected, rtol=1e-6)


def cubic(x, y):
    return np.asarray((x @ y.T + 1.0) ** 3)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "laplacian"])
def test_rows_come_back_nearly_where_components_tell_them(kernel):
    plane = X[:, :2] @ np.random.default_rng(2).normal(size=(2, D))
    model = KernelPPCA(2, kernel=kernel, gamma="median", degree=2).fit(plane)
    back = model.inverse_transform(model.transform(plane), alpha=1e-3)
    assert ((back - plane) ** 2).sum() < 0.2 * ((plane - plane.mean(axis=0)) ** 2).sum()


def test_sparse_rows_and_supervised_models_go_back_too():
    whole = KernelSupervisedPPCA(2).fit(X, CLASSES)
    sparse = KernelSupervisedPPCA(2).fit(sp.csr_array(X), CLASSES)
    scores = whole.transform(X)[:4]
    np.testing.assert_allclose(sparse.inverse_transform(scores), whole.inverse_transform(scores), rtol=1e-5)


def test_with_landmarks_it_is_learned_from_these():
    model = KernelPPCA(2, landmarks=12).fit(X)
    kept = np.concatenate([block.load() for block in model._model.compared.rows])
    scores = model.transform(kept)
    expected = by_ridge(scores, kept, scores, 1.0, kernel="rbf", gamma=middle(scores))
    np.testing.assert_allclose(model.inverse_transform(scores), expected, rtol=1e-7)


def test_pipelines_go_back():
    pipeline = make_pipeline(StandardScaler(), KernelPPCA(3)).fit(X)
    back = pipeline.inverse_transform(pipeline.transform(X))
    assert back.shape == X.shape
    assert np.corrcoef(back[:, 0], X[:, 0])[0, 1] > 0.5


def test_single_precision_stays():
    assert KernelPPCA(3).fit(X).inverse_transform(NEW.astype(np.float32)).dtype == np.float32


def test_what_cannot_go_back_says_so():
    with pytest.raises(DataError, match="a precomputed kernel has no rows"):
        KernelPPCA(3, kernel="precomputed").fit(X @ X.T).inverse_transform(NEW)
    model = KernelPPCA(3).fit(X)
    with pytest.raises(DataError, match="samples × 3 components"):
        model.inverse_transform(NEW[:, :2])
    with pytest.raises(DataError, match="alpha is 0; expected a positive number"):
        model.inverse_transform(NEW, alpha=0)
