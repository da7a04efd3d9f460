"""PPCA against scikit-learn's full PCA and against the closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, subspace_angles

from benchmarks.cluster import fitted, local_cluster
from benchmarks.external import data_file
from benchmarks.generate import Factors, power_law, write_dense
from benchmarks.stored import load, path_of
from benchmarks.table import markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
COMPONENTS = 10
SIZE = (20_000, 300)
LEVELS = {"likelihood": 1e-9, "angle": 1e-6}


def prepare(folder: Path, scale: float) -> Row:
    """A dense random store with more rows than columns."""
    rows = max(1000, round(SIZE[0] * scale))
    mean = 5.0 * np.random.default_rng(21).standard_normal(SIZE[1])
    write_dense(
        folder / "data.zarr", Factors(SIZE[1], power_law(40, 30.0), noise=1.0, mean=mean, seed=22), rows, "float64", 23
    )
    return {"shape": [rows, SIZE[1]]}


def gaussian_log_likelihood(data: Array, mean: Array, covariance: Array) -> float:
    """Σ log N(x; mean, covariance) by a Cholesky factor: nothing of PPCA's structure is used."""
    factor = np.linalg.cholesky(covariance)
    solved = np.linalg.solve(factor, (data - mean).T)
    constant = len(data) * (len(mean) * np.log(2 * np.pi) + 2 * np.log(np.diag(factor)).sum())
    return float(-0.5 * (constant + np.einsum("ij,ij->", solved, solved)))


def _compared(model: Any, row: Row, data: Array, axes: Array, variances: Array, noise: float) -> Row:
    """Ours beside the other's axes (K, D), variances along them, and noise; likelihoods by the dense Gaussian."""
    excess = axes.T * (variances - noise)
    other = gaussian_log_likelihood(data, data.mean(axis=0), excess @ axes + noise * np.eye(data.shape[1]))
    own = gaussian_log_likelihood(data, model.mean_, model.get_covariance())
    return row | {
        "other_log_likelihood": other,
        "own_log_likelihood": own,
        "likelihood_difference": abs(model.log_likelihood_ - other) / abs(other),
        "evaluation_difference": abs(model.log_likelihood_ - own) / abs(own),
        "noise_difference": abs(model.noise_variance_ - noise) / noise,
        "angle": float(subspace_angles(model.components_.T, axes.T).max()),
    }


def against_sklearn(folder: Path, scale: float, solver: str) -> Row:
    """From the store on two worker processes, against PCA(svd_solver="full") in memory.

    scikit-learn divides by N − 1; its variances are rescaled to the maximum-likelihood ones, divided by N.
    """
    from sklearn.decomposition import PCA

    from dlatent import PPCA

    options = {} if solver == "default" else {"solver": solver, "tol": 1e-15}
    with local_cluster() as client:
        model, row = fitted(PPCA(COMPONENTS, **options), path_of(folder), client=client)
    data = np.asarray(load(path_of(folder)))
    pca = PCA(COMPONENTS, svd_solver="full").fit(data)
    shrink = (len(data) - 1) / len(data)
    return _compared(
        model, row, data, pca.components_, pca.explained_variance_ * shrink, float(pca.noise_variance_) * shrink
    )


def closed_form(data: Array, k: int) -> tuple[Array, Array, float]:
    """Axes (K, D), variances and noise of the PPCA maximum from the eigenvectors of the covariance (divided by N)."""
    covariance = np.cov(data, rowvar=False, bias=True)
    values, vectors = eigh(covariance)
    order = np.argsort(values)[::-1][:k]
    noise = float((np.trace(covariance) - values[order].sum()) / (data.shape[1] - k))
    return vectors[:, order].T, values[order], noise


def against_closed_form(folder: Path, scale: float, solver: str) -> Row:
    """ORL faces, fewer images than pixels, where scikit-learn's noise is divided by min(N, D) − K instead of D − K."""
    from dlatent import PPCA

    images = np.load(data_file("orl_32x32.npz"), allow_pickle=False)["X"].astype(np.float64)
    options = {} if solver == "default" else {"solver": solver, "tol": 1e-15}
    model, row = fitted(PPCA(COMPONENTS, **options), images)
    return _compared(model, row, images, *closed_form(images, COMPONENTS))


def tasks(scale: float) -> tuple[Task, ...]:
    """Both comparisons by both routes, and with the defaults (which are reported and not held to the levels)."""
    module = "benchmarks.cases.exactness"
    found = []
    for solver in ("covariance", "krylov", "default"):
        arguments = {"solver": solver}
        found.append(Task(f"sklearn/{solver}", f"{module}:against_sklearn", arguments, ("sklearn",), once=True))
        found.append(Task(f"orl/{solver}", f"{module}:against_closed_form", arguments, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Differences of likelihood, noise and subspace."""
    lines, checks = [], []
    for row in finished(rows):
        lines.append(
            (
                row["task"], row["solver"], row["passes"], f"{row['log_likelihood']:.6f}", row["likelihood_difference"],
                row["evaluation_difference"], row["noise_difference"], row["angle"],
            )
        )  # fmt: skip
        if not row["task"].endswith("default"):
            close = row["likelihood_difference"] <= LEVELS["likelihood"] and row["angle"] < LEVELS["angle"]
            checks.append(Check(f"{row['task']}: log-likelihood to 1e-9, largest principal angle < 1e-6", close))
    headers = (
        "comparison", "solver", "passes", "log-likelihood", "relative difference", "against a dense evaluation",
        "noise variance", "largest angle",
    )  # fmt: skip
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


CASE = Case(
    "exactness",
    "PPCA against scikit-learn (N > D) and the closed form (ORL, N < D)",
    "benchmarks.cases.exactness:prepare",
    tasks,
    summarise,
)
