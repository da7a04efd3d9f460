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
    from dlatent.estimators.annotated import annotate as annotate
    from dlatent.estimators.callbacks import Callback as Callback
    from dlatent.estimators.callbacks import ProgressBar as ProgressBar
    from dlatent.estimators.callbacks import show_progress as show_progress
    from dlatent.estimators.choice import select_n_components as select_n_components
    from dlatent.estimators.correspondence import CorrespondenceFactorAnalysis as CorrespondenceFactorAnalysis
    from dlatent.estimators.correspondence import CorrespondencePPCA as CorrespondencePPCA
    from dlatent.estimators.correspondence_lle import CorrespondenceLLE as CorrespondenceLLE
    from dlatent.estimators.correspondence_lle import self_correspondence as self_correspondence
    from dlatent.estimators.correspondence_supervised import (
        CorrespondenceSupervisedPPCA as CorrespondenceSupervisedPPCA,
    )
    from dlatent.estimators.factor_analysis import FactorAnalysis as FactorAnalysis
    from dlatent.estimators.graph_ppca import GraphPPCA as GraphPPCA
    from dlatent.estimators.joint_views import JointViews as JointViews
    from dlatent.estimators.kernel import KernelPPCA as KernelPPCA
    from dlatent.estimators.kernel import KernelSupervisedPPCA as KernelSupervisedPPCA
    from dlatent.estimators.local_linear import LocallyLinearEmbedding as LocallyLinearEmbedding
    from dlatent.estimators.mixture import PPCAMixture as PPCAMixture
    from dlatent.estimators.ppca import PPCA as PPCA
    from dlatent.estimators.relational import RelationalPPCA as RelationalPPCA
    from dlatent.estimators.relational import RelationalSupervisedPPCA as RelationalSupervisedPPCA
    from dlatent.estimators.saved import NotFittedError as NotFittedError
    from dlatent.estimators.saved import load as load
    from dlatent.estimators.supervised import SupervisedPPCA as SupervisedPPCA

__version__ = "0.1.0"

_PACKAGES = ("plot", "stores", "testing")
_ERRORS = ("DataError", "DlatentError", "EngineError", "PlanError", "StoreError")
_WARNINGS = ("ConvergenceWarning", "DataWarning", "MisfitWarning", "NoiseFloorWarning", "PrecisionWarning")
_MODULES = {
    **dict.fromkeys((*_ERRORS, *_WARNINGS), "errors"),
    **{model.name: f"estimators.{model.module}" for model in MODELS},
    "Workers": "engine.imagined",
    "annotate": "estimators.annotated",
    "Callback": "estimators.callbacks",
    "ProgressBar": "estimators.callbacks",
    "show_progress": "estimators.callbacks",
    "select_n_components": "estimators.choice",
    "NotFittedError": "estimators.saved",
    "load": "estimators.saved",
    "JointViews": "estimators.joint_views",
    "self_correspondence": "estimators.correspondence_lle",
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
