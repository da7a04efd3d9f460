"""Probabilistic latent-variable models for data larger than memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlatent.models import MODELS

if TYPE_CHECKING:
    from dlatent.arrays import DataSource as DataSource
    from dlatent.arrays import Graph as Graph
    from dlatent.engine.executor import Workers as Workers
    from dlatent.engine.session import PassRecord as PassRecord
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
    from dlatent.models.correspondence import CorrespondenceFactorAnalysis as CorrespondenceFactorAnalysis
    from dlatent.models.correspondence import CorrespondencePPCA as CorrespondencePPCA
    from dlatent.models.correspondence import (
        CorrespondenceSupervisedPPCA as CorrespondenceSupervisedPPCA,
    )
    from dlatent.models.correspondence_lle import CorrespondenceLLE as CorrespondenceLLE
    from dlatent.models.correspondence_lle import self_correspondence as self_correspondence
    from dlatent.models.factor_analysis import FactorAnalysis as FactorAnalysis
    from dlatent.models.graph_ppca import GraphPPCA as GraphPPCA
    from dlatent.models.imputer import Imputer as Imputer
    from dlatent.models.joint_views import JointViews as JointViews
    from dlatent.models.kernel import KernelPPCA as KernelPPCA
    from dlatent.models.kernel import KernelSupervisedPPCA as KernelSupervisedPPCA
    from dlatent.models.local_linear import LocallyLinearEmbedding as LocallyLinearEmbedding
    from dlatent.models.mixture import PPCAMixture as PPCAMixture
    from dlatent.models.model import NotFittedError as NotFittedError
    from dlatent.models.ppca import PPCA as PPCA
    from dlatent.models.ppca import SupervisedPPCA as SupervisedPPCA
    from dlatent.models.relational import RelationalPPCA as RelationalPPCA
    from dlatent.models.relational import RelationalSupervisedPPCA as RelationalSupervisedPPCA
    from dlatent.models.saved import load as load
    from dlatent.models.selection import select_n_components as select_n_components
    from dlatent.operators.graph_precision import Estimate as Estimate
    from dlatent.solvers.lle.fit import LocalPlan as LocalPlan
    from dlatent.solvers.plan import Duration as Duration
    from dlatent.solvers.plan import Plan as Plan
    from dlatent.solvers.solver import Iteration as Iteration
    from dlatent.stores.graph.ingest import GraphReport as GraphReport
    from dlatent.stores.graph.ingest import ingest_graph as ingest_graph
    from dlatent.stores.graph.open import open_graph as open_graph
    from dlatent.stores.graph.open import open_precision as open_precision
    from dlatent.stores.graph.reorder import ReorderReport as ReorderReport
    from dlatent.stores.graph.reorder import reorder as reorder
    from dlatent.stores.ingest.run import IngestReport as IngestReport
    from dlatent.stores.ingest.run import ingest as ingest
    from dlatent.stores.label_files import read_labels as read_labels
    from dlatent.stores.open import open_data as open_data
    from dlatent.stores.rechunk import RechunkReport as RechunkReport
    from dlatent.stores.rechunk import rechunk as rechunk
    from dlatent.stores.verify import VerifyReport as VerifyReport
    from dlatent.stores.verify import verify as verify

__version__ = "0.1.0"

_PACKAGES = ("plot", "testing")
_ERRORS = ("DataError", "DlatentError", "EngineError", "PlanError", "StoreError")
_WARNINGS = ("ConvergenceWarning", "DataWarning", "MisfitWarning", "NoiseFloorWarning", "PrecisionWarning")
_MODULES = {
    **dict.fromkeys((*_ERRORS, *_WARNINGS), "errors"),
    **{model.name: f"models.{model.module}" for model in MODELS},
    "Workers": "engine.executor",
    "annotate": "models.annotated",
    "Callback": "models.callbacks",
    "ProgressBar": "models.callbacks",
    "show_progress": "models.callbacks",
    "select_n_components": "models.selection",
    "NotFittedError": "models.model",
    "load": "models.saved",
    "Imputer": "models.imputer",
    "JointViews": "models.joint_views",
    "self_correspondence": "models.correspondence_lle",
    "open_data": "stores.open",
    "read_labels": "stores.label_files",
    **dict.fromkeys(("ingest", "IngestReport"), "stores.ingest.run"),
    **dict.fromkeys(("rechunk", "RechunkReport"), "stores.rechunk"),
    **dict.fromkeys(("verify", "VerifyReport"), "stores.verify"),
    **dict.fromkeys(("open_graph", "open_precision"), "stores.graph.open"),
    **dict.fromkeys(("ingest_graph", "GraphReport"), "stores.graph.ingest"),
    **dict.fromkeys(("reorder", "ReorderReport"), "stores.graph.reorder"),
    **dict.fromkeys(("DataSource", "Graph"), "arrays"),
    **dict.fromkeys(("Duration", "Plan"), "solvers.plan"),
    "LocalPlan": "solvers.lle.fit",
    "Iteration": "solvers.solver",
    "PassRecord": "engine.session",
    "Estimate": "operators.graph_precision",
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
    return sorted([*__all__, *_PACKAGES, "__version__"])
