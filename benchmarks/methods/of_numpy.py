"""EM as a textbook has it, in NumPy, on complete data in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.processes import Stopwatch
from benchmarks.quality import mean_of, total_variance
from benchmarks.stored import bytes_of, load, path_of
from benchmarks.task import Row


def em(folder: Path, scale: float, n_components: int, iterations: int, tolerance: float = 1e-9) -> Row:
    """EM for PPCA from random loadings, until an iteration gains less than `tolerance` of the log-likelihood.

    Bishop, Pattern Recognition and Machine Learning (2006), equations 12.54 to 12.57; sparse rows are not centred.
    """
    matrix = load(path_of(folder))
    (count, width), trace = matrix.shape, []
    with Stopwatch() as watch:
        mean = mean_of(matrix)
        energy = count * total_variance(matrix, mean)
        loadings = np.random.default_rng(0).standard_normal((width, n_components))
        noise = energy / (count * width)
        for _ in range(iterations):
            posterior = loadings.T @ loadings + noise * np.eye(n_components)
            projected = np.asarray(matrix @ loadings) - mean @ loadings
            scores = np.linalg.solve(posterior, projected.T).T
            trace.append(-0.5 * (
                count * (width * np.log(2 * np.pi) + (width - n_components) * np.log(noise)
                         + np.linalg.slogdet(posterior)[1])
                + (energy - float((projected * scores).sum())) / noise
            ))  # fmt: skip
            if len(trace) > 1 and trace[-1] - trace[-2] < tolerance * abs(trace[-1]):
                break
            cross = np.asarray(matrix.T @ scores) - np.outer(mean, scores.sum(axis=0))
            second = scores.T @ scores + count * noise * np.linalg.inv(posterior)
            loadings = np.linalg.solve(second, cross.T).T
            noise = (energy - float((loadings * cross).sum())) / (count * width)
    return {
        "from": "memory",
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "bytes_read": bytes_of(matrix),
        "passes": len(trace),
        "log_likelihood": trace[-1],
        "trace": trace,
        "components": loadings.T,
    }
