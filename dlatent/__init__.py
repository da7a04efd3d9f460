"""Probabilistic latent-variable models for data larger than memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlatent.models import MODELS

if TYPE_CHECKING:
    from dlatent.engine.imagined import Workers as Workers
    from dlatent.errors import ConvergenceWarning as ConvergenceWarning
    from dlatent.errors import DataError as DataError
    from dlatent.errors import DataWarning as DataWarning
    from dlatent.errors import DlatentError as DlatentError
    from dlatent.errors import EngineError as EngineError
    from dlatent.errors import MisfitWarning as MisfitWarning
    from dlatent.errors import NoiseFloorWarning as NoiseFloorWarning
    from dlatent.errors import PlanError as PlanError
    from dlatent.errors import PrecisionWarning as PrecisionWarning
    from dlatent.errors import StoreError as StoreError
    from dlatent.models.annotated import annotate as annotate
    from dlatent.models.callbacks import Callback as Callback
    from dlatent.models.callbacks import ProgressBar as ProgressBar
    from dlatent.models.callbacks import show_progress as show_progress
    from dlatent.models.choice import select_n_components as select_n_components
    from dlatent.models.correspondence import CorrespondenceFactorAnalysis as CorrespondenceFactorAnalysis
    from dlatent.models.correspondence import CorrespondencePPCA as CorrespondencePPCA
    from dlatent.models.correspondence_lle import CorrespondenceLLE as CorrespondenceLLE
    from dlatent.models.correspondence_lle import self_correspondence as self_correspondence
    from dlatent.models.correspondence_supervised import (
        CorrespondenceSupervisedPPCA as CorrespondenceSupervisedPPCA,
    )
    from dlatent.models.factor_analysis import FactorAnalysis as FactorAnalysis
    from dlatent.models.graph_ppca import GraphPPCA as GraphPPCA
    from dlatent.models.joint_views import JointViews as JointViews
    from dlatent.models.kernel import KernelPPCA as KernelPPCA
    from dlatent.models.kernel import KernelSupervisedPPCA as KernelSupervisedPPCA
    from dlatent.models.local_linear import LocallyLinearEmbedding as LocallyLinearEmbedding
    from dlatent.models.mixture import PPCAMixture as PPCAMixture
    from dlatent.models.ppca import PPCA as PPCA
    from dlatent.models.relational import RelationalPPCA as RelationalPPCA
    from dlatent.models.relational import RelationalSupervisedPPCA as RelationalSupervisedPPCA
    from dlatent.models.saved import load as load
    from dlatent.models.scikit import NotFittedError as NotFittedError
    from dlatent.models.supervised import SupervisedPPCA as SupervisedPPCA

__version__ = "0.1.0"

_PACKAGES = ("plot", "stores", "testing")
_ERRORS = ("DataError", "DlatentError", "EngineError", "PlanError", "StoreError")
_WARNINGS = ("ConvergenceWarning", "DataWarning", "MisfitWarning", "NoiseFloorWarning", "PrecisionWarning")
_MODULES = {
    **dict.fromkeys((*_ERRORS, *_WARNINGS), "errors"),
    **{model.name: f"models.{model.module}" for model in MODELS},
    "Workers": "engine.imagined",
    "annotate": "models.annotated",
    "Callback": "models.callbacks",
    "ProgressBar": "models.callbacks",
    "show_progress": "models.callbacks",
    "select_n_components": "models.choice",
    "NotFittedError": "models.scikit",
    "load": "models.saved",
    "JointViews": "models.joint_views",
    "self_correspondence": "models.correspondence_lle",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: workers and the command line start without what they do not need."""
    if name in _PACKAGES:
        return import_module(f"dlatent.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'dlatent' has no attribute {name!r}")
    value = getattr(import_module(f"dlatent.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not yet."""
    return sorted({*globals(), *_MODULES, *_PACKAGES})
