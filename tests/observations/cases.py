"""Data of each likelihood."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlatent.arrays import Array


class Case(NamedTuple):
    """Entries (N, D), and the loadings (D, K) that they were drawn with."""

    entries: Array
    loadings: Array


def case(name: str, samples: int, width: int, k: int = 2, seed: int = 0) -> Case:
    """Entries drawn from a model with this likelihood, by NumPy alone."""
    rng = np.random.default_rng([seed, samples, width])
    loadings = rng.normal(size=(width, k)) * 0.7
    eta = rng.normal(size=(samples, k)) @ loadings.T + rng.normal(-0.3, 0.5, width)
    match name:
        case "student":
            x = eta + 0.5 * rng.standard_t(2.5, eta.shape)
        case "student_rows":
            x = (eta + 0.5 * rng.normal(size=eta.shape)) / np.sqrt(rng.gamma(1.5, 1.0 / 1.5, (samples, 1)))
        case "poisson":
            x = rng.poisson(np.exp(eta + 0.5 * rng.normal(size=(samples, 1)))).astype(float)
        case "bernoulli":
            x = (rng.random(eta.shape) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
        case _:
            x = rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, eta.shape)).astype(float)
    return Case(x, loadings)


def drawn(name: str, samples: int, width: int) -> Array:
    """The entries alone."""
    return case(name, samples, width).entries
