"""Data and comparisons that the tests of the laws share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp

from dlatent import PPCA, SupervisedPPCA
from tests.simulators import documents, first_of_each, hide, simulate

FITTED = ("components_", "mean_", "noise_variance_", "log_likelihood_")
TARGETS = ("target_components_", "target_mean_", "target_noise_variance_")
ROUTES = ("covariance", "krylov")


def numbers(n=70, d=9, k=3, seed=0):
    """Dense features with three strong directions, two outputs, and which rows are labelled."""
    data = simulate(n, (d, 2), k, noise=(0.3, 0.4), random_state=seed)
    labelled = np.random.default_rng(seed).random(n) < 0.5
    labelled[:4] = True
    return data.features, data.targets, labelled


def texts(n=90, d=60, seed=0):
    """Sparse documents, their classes, and −1 for all but eight of each class."""
    data = documents(n, d, random_state=seed)
    labels = np.where(first_of_each(data.labels, 8), data.labels, -1)
    return data.features, labels


CASES = ("ppca", "complete", "semi", "classes")


def fit(case: str, x: Any, y: Any, labelled: Any, **options: Any) -> PPCA:
    """One of the cases with the same options."""
    fit_options = {name: options.pop(name) for name in ("client",) if name in options}
    options = {"n_components": 2, "tol": 1e-11} | options
    if case == "ppca":
        return PPCA(**options).fit(x, **fit_options)
    if case == "complete":
        return SupervisedPPCA(**options).fit(x, y, **fit_options)
    if case == "semi":
        return SupervisedPPCA(**options).fit(x, hide(y, labelled), **fit_options)
    first = np.asarray(y)[:, 0]
    classes = np.where(labelled, (first > np.median(first[labelled])).astype(int), -1)
    return SupervisedPPCA(**options).fit(x, classes, **fit_options)


def names_of(model: Any) -> tuple[str, ...]:
    return FITTED + (TARGETS if isinstance(model, SupervisedPPCA) else ())


def same_bits(one: Any, other: Any) -> bool:
    """Whether two fitted models are equal to the last bit."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names_of(one))


def assert_close(one: Any, other: Any, rtol: float, atol: float = 0.0) -> None:
    """Whether two fitted models are the same up to rounding."""
    for name in names_of(one):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=atol, err_msg=name)


def assert_same_maximum(one: Any, other: Any) -> None:
    """Whether two fits found one maximum: its height to 1e-11; where it is only to the root of that, being flat."""
    assert_close(one, other, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(one.log_likelihood_, other.log_likelihood_, rtol=1e-11)


def as_dask(x: Any, rows: tuple[int, ...], columns: tuple[int, ...] | None = None) -> Any:
    """The features as a Dask array with these chunks; sparse features keep sparse chunks."""
    if sp.issparse(x):
        bounds = np.concatenate([[0], np.cumsum(rows)])
        parts = [
            da.from_array(_Rows(x[a:b]), chunks=-1, asarray=False, meta=sp.csr_array((0, 0)))
            for a, b in pairwise(bounds)
        ]
        return da.concatenate(parts, axis=0)
    return da.from_array(x, chunks=(rows, columns or (x.shape[1],)))


class _Rows:
    """Sparse rows that Dask may cut by slices."""

    def __init__(self, matrix: Any) -> None:
        self.matrix, self.shape, self.dtype, self.ndim = matrix, matrix.shape, matrix.dtype, 2

    def __getitem__(self, where: Any) -> Any:
        return self.matrix[where]
