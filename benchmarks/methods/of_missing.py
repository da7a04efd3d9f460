"""What others offer for data with missing entries; their time includes reading the store.

For data without, `complete` gives components (K, D) in the place of all parameters.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generate import Array
from benchmarks.missing import ROWS_AT_ONCE, packed
from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of
from benchmarks.task import Row


def _row(watch: Stopwatch, components: Array | None, **more: Any) -> Row:
    found = {"from": "Zarr", "fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, **more}
    return found if components is None else found | {"components": components}


def numpy_em(folder: Path, scale: float, n_components: int, iterations: int) -> Row:
    """Exact EM as a careful user writes it in NumPy: rows at a time, batched solves, a start from mean-filled PCA."""
    with Stopwatch() as watch:
        started = time.perf_counter()
        data = np.asarray(load(path_of(folder)), dtype=np.float64)
        mean = np.nanmean(data, axis=0)
        filled = np.where(np.isnan(data), 0.0, data - mean)
        values, vectors = np.linalg.eigh(filled.T @ filled / len(filled))
        noise = float(values[:-n_components].mean())
        loadings = vectors[:, -n_components:] * np.sqrt(np.maximum(values[-n_components:] - noise, 0.0))
        del filled
        trace: list[tuple[float, float]] = []
        for _ in range(iterations):
            loadings, mean, noise, value = _em(data, loadings, mean, noise)
            trace.append((time.perf_counter() - started, value))
            if len(trace) > 1 and value - trace[-2][1] < 1e-9 * abs(value):
                break
    return _row(watch, packed(loadings, mean, noise), trace=trace, passes=len(trace))


def _em(data: Array, loadings: Array, mean: Array, noise: float) -> tuple[Array, Array, float, float]:
    """One iteration; the log-likelihood is that of where it started."""
    width, k = loadings.shape
    outer = (loadings[:, :, None] * loadings[:, None, :] / noise).reshape(width, -1)
    normal, cross = np.zeros((width, (k + 1) ** 2)), np.zeros((width, k + 1))
    energy, count, value = 0.0, 0.0, 0.0
    for start in range(0, len(data), ROWS_AT_ONCE):
        rows = data[start : start + ROWS_AT_ONCE]
        seen = (~np.isnan(rows)).astype(np.float64)
        rows = np.where(seen > 0, rows - mean, 0.0)
        precision = (seen @ outer).reshape(-1, k, k) + np.eye(k)
        covariance = np.linalg.inv(precision)
        projected = rows @ (loadings / noise)
        scores = np.einsum("nij,nj->ni", covariance, projected)
        joint = np.hstack([scores, np.ones((len(rows), 1))])
        second = joint[:, :, None] * joint[:, None, :]
        second[:, :k, :k] += covariance
        normal += seen.T @ second.reshape(len(rows), -1)
        cross += rows.T @ joint
        squares = float((rows**2).sum())
        energy, count = energy + squares, count + float(seen.sum())
        value -= 0.5 * (
            seen.sum() * np.log(2 * np.pi * noise)
            + squares / noise
            + np.linalg.slogdet(precision)[1].sum()
            - float((projected * scores).sum())
        )
    solution = np.linalg.solve(normal.reshape(width, k + 1, k + 1), cross[:, :, None])[:, :, 0]
    new = (energy - float((solution * cross).sum())) / count
    return solution[:, :k], mean + solution[:, k], new, float(value)


def ppca_package(folder: Path, scale: float, n_components: int, *, complete: bool = False) -> Row:
    """The package `ppca`: missing entries are filled in on the way, with standardised features."""
    from ppca import PPCA

    np.random.seed(0)  # noqa: NPY002 - the package draws from the global generator
    with Stopwatch() as watch:
        data = np.asarray(load(path_of(folder)), dtype=np.float64)
        model = PPCA()
        model.fit(data, d=n_components, tol=1e-6)
    # It gives orthonormal axes of standardised features: the noise and the variances follow from its own scores.
    scores = np.asarray(model.transform())
    noise = float(np.nanmean(((data - model.means) / model.stds - scores @ model.C.T) ** 2))
    loadings = model.C * np.sqrt(np.maximum(scores.var(axis=0) - noise, 0.0)) * model.stds[:, None]
    return _row(watch, loadings.T if complete else packed(loadings, model.means, noise * model.stds**2))


def ppca_rs(folder: Path, scale: float, n_components: int) -> Row:
    """The package `ppca_rs`, written in Rust: its ten iterations of exact EM."""
    from ppca_rs import Dataset, PPCATrainer

    with Stopwatch() as watch:
        data = np.asarray(load(path_of(folder)), dtype=np.float64)
        model = PPCATrainer(Dataset(data)).train(state_size=n_components, quiet=True)
    mean, noise = np.asarray(model.mean).ravel(), float(model.isotropic_noise) ** 2
    return _row(watch, packed(np.asarray(model.transform), mean, noise))


def pyppca_package(folder: Path, scale: float, n_components: int, *, complete: bool = False) -> Row:
    """The package `pyppca`, after Verbeek: a factorised approximation of the posterior."""
    import pyppca

    np.random.seed(0)  # noqa: NPY002 - the package draws from the global generator
    with Stopwatch() as watch:
        data = np.asarray(load(path_of(folder)), dtype=np.float64)
        axes, noise, mean, scores, _ = pyppca.ppca(data, n_components, False)
    # Its axes are orthonormal: the lengths of the loadings follow from the variances of its scores.
    loadings = np.asarray(axes) * np.sqrt(np.maximum(np.asarray(scores).var(axis=0) - noise, 0.0))
    return _row(watch, loadings.T if complete else packed(loadings, np.asarray(mean).ravel(), float(noise)))


def iterative_imputer(folder: Path, scale: float) -> Row:
    """scikit-learn's IterativeImputer with its defaults, ten rounds of ridge regressions; it has no likelihood."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    with Stopwatch() as watch:
        IterativeImputer(random_state=0).fit_transform(np.asarray(load(path_of(folder)), dtype=np.float64))
    return _row(watch, None)
