"""How good components are: the variance that they capture relative to the best, and the likelihood that follows.

For an orthonormal basis Q (D, K) of the components' span and the second moment S about the mean,
captured = tr(QᵀSQ) / sum of the K largest eigenvalues of S, and the best log-likelihood of PPCA with this span is
−N/2 · (D log 2π + Σ log λ_j + (D − K) log σ² + D) with λ = eig(QᵀSQ) and σ² = (tr S − Σ λ_j) / (D − K).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse.linalg as sla

from benchmarks.stored import Matrix, load, path_of

Array = npt.NDArray[np.float64]
EXACT = "exact.json"


def mean_of(matrix: Matrix) -> Array:
    """The mean of each feature."""
    return np.asarray(matrix.mean(axis=0), dtype=np.float64).ravel()


def centred_operator(matrix: Matrix, mean: Array) -> sla.LinearOperator:
    """X − 1mᵀ as an operator; sparse data stay sparse."""
    rows, columns = matrix.shape
    return sla.LinearOperator(
        (rows, columns),
        matvec=lambda v: matrix @ v - mean @ v,
        rmatvec=lambda u: matrix.T @ u - mean * u.sum(),
        matmat=lambda v: matrix @ v - mean @ v,
        rmatmat=lambda u: matrix.T @ u - np.outer(mean, u.sum(axis=0)),
        dtype=np.float64,
    )


def total_variance(matrix: Matrix, mean: Array) -> float:
    """tr S, from centred values for dense data and from sums of squares for sparse data."""
    if isinstance(matrix, np.ndarray):
        step = max(1, 2**22 // matrix.shape[1])
        parts = (matrix[start : start + step] - mean for start in range(0, len(matrix), step))
        return float(sum(np.einsum("ij,ij->", part, part) for part in parts) / len(matrix))
    return float((matrix.data.astype(np.float64) ** 2).sum() / matrix.shape[0] - mean @ mean)


def write_exact(folder: Path, count: int) -> dict[str, float]:
    """The `count` largest eigenvalues of S to rounding (Lanczos), and tr S, beside the store."""
    matrix = load(path_of(folder))
    mean = mean_of(matrix)
    operator = centred_operator(matrix, mean)
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    values = sla.svds(operator, k=count, tol=0, v0=start, return_singular_vectors=False)
    variances = np.sort(np.asarray(values))[::-1] ** 2 / matrix.shape[0]
    total = total_variance(matrix, mean)
    exact = {"eigenvalues": variances.tolist(), "total": total, "samples": matrix.shape[0], "mean": mean.tolist()}
    (folder / EXACT).write_text(json.dumps(exact))
    return {"total_variance": total, "largest_eigenvalue": float(variances[0])}


def log_likelihood(variances: Array, total: float, samples: int, features: int) -> float:
    """The best log-likelihood of PPCA whose span has these variances, in nats."""
    rest = features - len(variances)
    noise = (total - variances.sum()) / rest
    return float(
        -0.5 * samples * (features * np.log(2 * np.pi) + np.log(variances).sum() + rest * np.log(noise) + features)
    )


def judge(folder: Path, scale: float, components: str) -> dict[str, float]:
    """Captured variance relative to the exact one, and the relative gap of the log-likelihood, of rows (K, D)."""
    exact = json.loads((folder / EXACT).read_text())
    rows = np.load(components)
    basis, _ = np.linalg.qr(rows.T)
    matrix, mean = load(path_of(folder)), np.array(exact["mean"])
    scores = np.asarray(matrix @ basis) - mean @ basis
    found = np.sort(np.linalg.eigvalsh(scores.T @ scores / exact["samples"]))[::-1]
    best = np.array(exact["eigenvalues"])[: len(rows)]
    size = (exact["total"], exact["samples"], matrix.shape[1])
    top, value = log_likelihood(best, *size), log_likelihood(found, *size)
    return {
        "captured": float(found.sum() / best.sum()),
        "missing": float(1.0 - found.sum() / best.sum()),
        "span_log_likelihood": value,
        "gap": (top - value) / abs(top),
    }
