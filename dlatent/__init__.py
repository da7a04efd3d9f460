"""Probabilistic latent-variable models for data larger than memory."""

from dlatent.errors import (
    ConvergenceWarning,
    DataError,
    DlatentError,
    EngineError,
    NoiseFloorWarning,
    NotFittedError,
    PlanError,
    PrecisionWarning,
    StoreError,
)
from dlatent.estimators.base import Watch
from dlatent.estimators.ppca import PPCA
from dlatent.estimators.saved import load
from dlatent.estimators.supervised import SupervisedPPCA

__version__ = "0.1.0"

__all__ = [
    "PPCA",
    "ConvergenceWarning",
    "DataError",
    "DlatentError",
    "EngineError",
    "NoiseFloorWarning",
    "NotFittedError",
    "PlanError",
    "PrecisionWarning",
    "StoreError",
    "SupervisedPPCA",
    "Watch",
    "load",
]
