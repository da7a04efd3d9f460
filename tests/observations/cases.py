"""Data of each likelihood."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.stats as st

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


def distribution(name: str, eta: Any, noise: Any, shape: Any) -> Any:
    """That of entries with the predictor η, by SciPy."""
    match name:
        case "normal":
            return st.norm(eta, np.sqrt(noise))
        case "student":
            return st.t(shape, loc=eta, scale=np.sqrt(noise))
        case "poisson":
            return st.poisson(np.exp(eta))
        case "bernoulli":
            return st.bernoulli(1.0 / (1.0 + np.exp(-eta)))
        case _:
            return st.nbinom(shape, shape / (shape + np.exp(eta)))


def log_density(name: str, x: Any, *about: Any) -> Any:
    """log p(x | η)."""
    found = distribution(name, *about)
    return found.logpdf(x) if name in ("normal", "student") else found.logpmf(x)
