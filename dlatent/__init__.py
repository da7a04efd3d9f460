"""Probabilistic latent-variable models for data larger than memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlatent.errors import (
        ConvergenceWarning,
        DataError,
        DataWarning,
        DlatentError,
        EngineError,
        MisfitWarning,
        NoiseFloorWarning,
        NotFittedError,
        PlanError,
        PrecisionWarning,
        StoreError,
    )
    from dlatent.estimators.callbacks import Callback, ProgressBar
    from dlatent.estimators.choice import select_n_components
    from dlatent.estimators.correspondence import CorrespondenceFactorAnalysis, CorrespondencePPCA
    from dlatent.estimators.correspondence_lle import CorrespondenceLLE, self_correspondence
    from dlatent.estimators.factor_analysis import FactorAnalysis
    from dlatent.estimators.kernel import KernelPPCA, KernelSupervisedPPCA
    from dlatent.estimators.local_linear import LocallyLinearEmbedding
    from dlatent.estimators.ppca import PPCA
    from dlatent.estimators.relational import RelationalPPCA, RelationalSupervisedPPCA
    from dlatent.estimators.saved import load
    from dlatent.estimators.supervised import SupervisedPPCA

__version__ = "0.1.0"

__all__ = [
    "PPCA",
    "Callback",
    "ConvergenceWarning",
    "CorrespondenceFactorAnalysis",
    "CorrespondenceLLE",
    "CorrespondencePPCA",
    "DataError",
    "DataWarning",
    "DlatentError",
    "EngineError",
    "FactorAnalysis",
    "KernelPPCA",
    "KernelSupervisedPPCA",
    "LocallyLinearEmbedding",
    "MisfitWarning",
    "NoiseFloorWarning",
    "NotFittedError",
    "PlanError",
    "PrecisionWarning",
    "ProgressBar",
    "RelationalPPCA",
    "RelationalSupervisedPPCA",
    "StoreError",
    "SupervisedPPCA",
    "load",
    "select_n_components",
    "self_correspondence",
]

_PACKAGES = ("plot", "stores", "testing")

_ROOMS = {
    "CorrespondenceLLE": "dlatent.estimators.correspondence_lle",
    "LocallyLinearEmbedding": "dlatent.estimators.local_linear",
    "self_correspondence": "dlatent.estimators.correspondence_lle",
    "select_n_components": "dlatent.estimators.choice",
    "CorrespondenceFactorAnalysis": "dlatent.estimators.correspondence",
    "CorrespondencePPCA": "dlatent.estimators.correspondence",
    "FactorAnalysis": "dlatent.estimators.factor_analysis",
    "KernelPPCA": "dlatent.estimators.kernel",
    "KernelSupervisedPPCA": "dlatent.estimators.kernel",
    "PPCA": "dlatent.estimators.ppca",
    "RelationalPPCA": "dlatent.estimators.relational",
    "RelationalSupervisedPPCA": "dlatent.estimators.relational",
    "SupervisedPPCA": "dlatent.estimators.supervised",
    "Callback": "dlatent.estimators.callbacks",
    "ProgressBar": "dlatent.estimators.callbacks",
    "load": "dlatent.estimators.saved",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: workers and the command line start without what they do not need."""
    if name in _PACKAGES:
        return import_module(f"dlatent.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'dlatent' has no attribute {name!r}")
    value = getattr(import_module(_ROOMS.get(name, "dlatent.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not yet."""
    return sorted({*globals(), *__all__, *_PACKAGES})
