"""Every model, listed once: the public name of its class, where it is, and what the commands know of it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Model(NamedTuple):
    """A model.

    Parameters
    ----------
    name : of its class.
    module : that has the class, within `dlatent.models`.
    command : the word for it on the command line; nothing where the commands do not fit it.
    description : what it is.
    labels, graph, precision, views : whether it takes labels, a graph, a precision in its place, or several views.
    """

    name: str
    module: str
    command: str = ""
    description: str = ""
    labels: bool = False
    graph: bool = False
    precision: bool = False
    views: bool = False

    def load(self) -> Any:
        """The class."""
        return getattr(import_module(f"dlatent.models.{self.module}"), self.name)


MODELS = (
    Model("PPCA", "ppca", "ppca", "probabilistic PCA"),
    Model(
        "SupervisedPPCA",
        "ppca",
        "supervised",
        "supervised PPCA; semi-supervised where some rows have no label",
        labels=True,
    ),
    Model(
        "FactorAnalysis",
        "factor_analysis",
        "fa",
        "factor analysis, with a noise variance for each feature",
    ),
    Model(
        "RelationalPPCA",
        "relational",
        "relational",
        "probabilistic relational PCA: rows in a graph",
        graph=True,
        precision=True,
    ),
    Model(
        "RelationalSupervisedPPCA",
        "relational",
        "relational-supervised",
        "supervised PPCA of rows in a graph, of which some have a label",
        labels=True,
        graph=True,
    ),
    Model("GraphPPCA", "graph_ppca", "graph-ppca", "PPCA of rows smoothed over a graph", graph=True),
    Model("KernelPPCA", "kernel", "kernel", "PPCA of features that a kernel makes"),
    Model(
        "KernelSupervisedPPCA",
        "kernel",
        "kernel-supervised",
        "supervised PPCA of features that a kernel makes",
        labels=True,
    ),
    Model(
        "CorrespondencePPCA",
        "correspondence",
        "correspondence",
        "PPCA of several views of which some rows correspond",
        views=True,
    ),
    Model(
        "CorrespondenceFactorAnalysis",
        "correspondence",
        "correspondence-fa",
        "factor analysis of several views of which some rows correspond",
        views=True,
    ),
    Model(
        "CorrespondenceSupervisedPPCA",
        "correspondence",
        "correspondence-supervised",
        "supervised PPCA of several views of which some rows correspond",
        labels=True,
        views=True,
    ),
    Model("PPCAMixture", "mixture", "mixture", "a mixture of PPCA, or of factor analysers"),
    Model("LocallyLinearEmbedding", "local_linear"),
    Model("CorrespondenceLLE", "correspondence_lle"),
)

PUBLIC = {model.name for model in MODELS}
