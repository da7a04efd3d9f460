"""Ways to predict one view from another, given some rows that correspond; a new one is one more function.

Each gets all rows of both views, x (N, D) and y (M, L), the rows that are known to correspond (m, 2), and the size of
its latent space; it returns y for all rows of x, and x for all rows of y.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Method = Callable[[Array, Array, npt.NDArray[np.int64], int], tuple[Array, Array]]
RIDGES = np.logspace(-4, 2, 13)
"""Ridges that are tried, as parts of the mean squared length of a row."""


def _regressed(x: Array, y: Array, known: npt.NDArray[np.int64], model: Callable[[Array], Any]) -> tuple[Array, Array]:
    """Two regressions on the rows that correspond, one in each direction."""
    own, other = x[known[:, 0]], y[known[:, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(own).fit(own, other).predict(x), model(other).fit(other, own).predict(y)


def linear_regression(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """Least squares; of the many solutions for few rows that of the smallest norm."""
    from sklearn.linear_model import LinearRegression

    return _regressed(x, y, known, lambda rows: LinearRegression())


def ridge_regression(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """Ridge regression, the ridge by leave-one-out among the rows that correspond."""
    from sklearn.linear_model import RidgeCV

    return _regressed(x, y, known, lambda rows: RidgeCV(RIDGES * float((rows**2).sum(axis=1).mean())))


def neural_network(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """One hidden layer of 32 units, with some weight decay."""
    from sklearn.neural_network import MLPRegressor

    options: dict[str, Any] = {"solver": "adam", "alpha": 1e-2, "max_iter": 500, "random_state": 0}
    return _regressed(
        x, y, known, lambda rows: MLPRegressor(hidden_layer_sizes=(32,), learning_rate_init=3e-3, **options)
    )


def _fitted(model: Any, x: Array, y: Array, known: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit({"x": x, "y": y}, correspondence=known)
    return model.reconstruct(x, "x", "y"), model.reconstruct(y, "y", "x")


def ppca(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """CorrespondencePPCA."""
    from dlatent import CorrespondencePPCA

    return _fitted(CorrespondencePPCA(k, zero_rows="keep", tol=1e-7, head="likelihood"), x, y, known)


def ppca_without_noise(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """CorrespondencePPCA in the limit of no noise, the PCA of the paper."""
    from dlatent import CorrespondencePPCA

    return _fitted(CorrespondencePPCA(k, noise="zero", zero_rows="keep", tol=1e-7, head="likelihood"), x, y, known)


def factor_analysis(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """CorrespondenceFactorAnalysis; features that never vary have a floor of their own."""
    from dlatent import CorrespondenceFactorAnalysis

    options: Any = {"solver": "accelerated_em", "zero_rows": "keep", "tol": 1e-7, "head": "likelihood"}
    return _fitted(CorrespondenceFactorAnalysis(k, **options), x, y, known)


def locally_linear(x: Array, y: Array, known: npt.NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """CorrespondenceLLE with five neighbours; each image is at its own place in the embedding."""
    from dlatent import CorrespondenceLLE

    model = CorrespondenceLLE(n_neighbors=5, n_components=k, disconnected="keep")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit({"x": x, "y": y}, correspondence=known)
    return model.reconstruct(None, "x", "y"), model.reconstruct(None, "y", "x")


METHODS: dict[str, Method] = {
    "linear regression": linear_regression,
    "ridge regression": ridge_regression,
    "neural network": neural_network,
    "PPCA": ppca,
    "PCA, no noise": ppca_without_noise,
    "factor analysis": factor_analysis,
    "locally linear": locally_linear,
}
