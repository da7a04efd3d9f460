"""What is between the samples of a task: a graph over which rows are smoothed, or a precision."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import DataSource, Graph
from dlatent.errors import DataError
from dlatent.fitted.linear import Compared, Edges, Entries, LinearGaussian, Smoothed
from dlatent.models.inputs import GraphLike
from dlatent.models.map_rows import open_edges
from dlatent.models.table import table_fields
from dlatent.models.task import FitTask
from dlatent.operators import graph_precision
from dlatent.operators.graph_precision import EXACT_COMPONENT
from dlatent.operators.sample_precision import GivenPrecision, Precision, SmoothFilter
from dlatent.solvers.smoothing.choice import CANDIDATES
from dlatent.solvers.solution import Solution
from dlatent.solvers.task import Between, Relation
from dlatent.stores.graph.open import open_graph, open_precision


def smoothed(model: Any, task: FitTask, graph: GraphLike) -> FitTask:
    """The task of rows that are smoothed over a graph, as much as is said or as held-out cells choose."""
    hops, strength = int(model.hops), model.smoothing
    task = replace(task, fitted=partial(fitted_smoothed, hops=hops))
    if not strength:
        return task
    edges = open_edges(graph, task.source)
    if isinstance(strength, str):
        return replace(task, between=Between(edges, None, hops, len(CANDIDATES)))
    relation = Relation(SmoothFilter(float(strength), hops), edges.samples)
    return replace(task, between=Between(edges, relation, hops))


def fitted_smoothed(task: FitTask, solution: Solution, hops: int) -> LinearGaussian:
    """The fitted model, with the strength of smoothing and what it was compared with."""
    relation, comparison = task.relation, None if task.between is None else task.between.comparison
    precision, scores = None if relation is None else relation.precision, None
    if comparison is not None:
        scores = Compared(np.asarray(CANDIDATES), comparison.correlation, comparison.standard_error)
    strength = precision.smoothing if isinstance(precision, SmoothFilter) else 0.0
    return LinearGaussian(**table_fields(task, solution), between=Smoothed(strength, hops, task.edges // 2, scores))


def related(model: Any, task: FitTask, graph: GraphLike, precision: GraphLike = None) -> FitTask:
    """The task of samples that depend on each other by Δ, which a graph makes or is given in its place.

    Errors: DataError where this is none between them, and where there are no fewer components than its rank.
    """
    edges, components = opened(model, graph, precision, task.source), task.specification.n_components
    delta = GivenPrecision() if edges.precision else model.precision
    rank = rank_of(edges, delta)
    if components >= rank:
        instead = "" if edges.precision else ", or gamma > 0"
        raise DataError(f"n_components is {components}, but Δ has rank {rank}; use fewer{instead}")
    between = Between(edges, Relation(delta, rank, model.start, model.start_noise))
    return replace(task, between=between, fitted=fitted_related)


def rank_of(graph: Graph, precision: Precision | GivenPrecision) -> int:
    """Rank of Δ; a given one that is too large to be counted is taken as definite."""
    counted = graph.samples <= EXACT_COMPONENT if graph.precision else precision.gamma == 0
    return graph_precision.rank(whole(graph), precision) if counted else graph.samples


def whole(graph: Graph) -> sp.csr_array:
    """The adjacency matrix in memory, for what factorises it."""
    return graph.rows.load(0, graph.samples)


def opened(model: Any, graph: GraphLike, precision: GraphLike, source: DataSource | None = None) -> Graph:
    """The graph between the samples, or the precision that takes its place, with its α and γ.

    Errors: DataError where both are given, or α or γ beside a precision; for edges that are none between the samples.
    """
    if precision is None:
        if source is None:
            return open_graph(graph)
        edges = open_edges(graph, source)
        if not edges.entries and not model.alpha and not model.gamma:
            raise DataError("alpha and gamma are 0 and there is no edge, so that Δ is zero; give alpha > 0")
        return edges
    if graph is not None:
        raise DataError("graph= and precision= both say what is between the samples; give one of them")
    for name in ("alpha", "gamma"):
        if getattr(model, name) != getattr(type(model), name):
            raise DataError(
                f"{name} makes a precision of a graph, and precision= is one already; leave {name} out, or give the "
                "graph as graph=…"
            )
    if source is None:
        return open_precision(precision)
    return open_precision(precision, samples=source.shape[0], origin=source.labels.origin)


def fitted_related(task: FitTask, solution: Solution) -> LinearGaussian:
    """The fitted model, with what is between the samples."""
    relation, graph = task.relation, task.graph
    assert relation is not None
    assert graph is not None
    delta, between = relation.precision, Entries(graph.entries, relation.rank)
    edges = Edges(delta.alpha, delta.gamma, graph.entries // 2, relation.rank) if isinstance(delta, Precision) else None
    return LinearGaussian(**table_fields(task, solution), between=edges or between)
