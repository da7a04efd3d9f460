"""What is between the samples of a task: a graph over which rows are smoothed, or a precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import DataSource, Graph
from dlatent.errors import DataError
from dlatent.fitted.graph import Compared, Edges, Entries, Smoothed
from dlatent.fitted.linear import LinearGaussian
from dlatent.gaussian.specification import Specification
from dlatent.models.inputs import GraphLike
from dlatent.models.map_rows import open_edges
from dlatent.models.table import table_fields
from dlatent.models.task import Known, Task
from dlatent.operators import graph_precision
from dlatent.operators.graph_precision import EXACT_COMPONENT
from dlatent.operators.sample_precision import GivenPrecision, Precision, SmoothFilter
from dlatent.passes import Run
from dlatent.solvers.plan import Plan
from dlatent.solvers.smoothing.choice import CANDIDATES, chosen_averaging, chosen_smoothing
from dlatent.solvers.task import Relation
from dlatent.solvers.task import Task as SolverTask
from dlatent.stores.graph.open import open_graph, open_precision


@dataclass(frozen=True)
class Smoothing:
    """Rows are smoothed over a graph, as much as is said or as held-out cells choose."""

    graph: Graph
    strength: float | Literal["auto"]
    hops: int

    def shape(self) -> dict[str, Any]:
        """How far neighbours reach, and how many strengths are compared."""
        return {"hops": self.hops, "candidates": len(CANDIDATES) if self.strength == "auto" else 0}

    def relation(self, specification: Specification) -> Relation | None:
        """The filter, where its strength is given."""
        return None if self.strength == "auto" else self._by(float(self.strength))

    def settled(self, task: SolverTask, plan: Plan, run: Run) -> SolverTask:
        """The task with the filter of the strength that was chosen."""
        if self.strength != "auto":
            return task
        if task.options.refuse_missing:
            compared = chosen_smoothing(task, plan, self.hops, run, sparse=task.problem.nnz is not None)
        else:
            compared = chosen_averaging(task, plan, self.hops, run)
        return replace(task, compared=compared, relation=self._by(CANDIDATES[compared.chosen]))

    def _by(self, strength: float) -> Relation | None:
        return Relation(SmoothFilter(strength, self.hops), self.graph.samples) if strength else None


def fitted_smoothed(task: Task, known: Known, hops: int) -> LinearGaussian:
    """The fitted model, with the strength of smoothing and what it was compared with."""
    relation, compared = known.asked.relation, known.asked.compared
    between = None if relation is None else relation.precision
    scores = None
    if compared is not None:
        scores = Compared(np.asarray(CANDIDATES), compared.correlation, compared.standard_error)
    strength = between.smoothing if isinstance(between, SmoothFilter) else 0.0
    edges = 0 if task.graph is None else task.graph.entries // 2
    return LinearGaussian(**table_fields(task, known), between=Smoothed(strength, hops, edges, scores))


@dataclass(frozen=True)
class Relating:
    """Samples depend on each other by Δ, which a graph makes or is given in its place; where "em" begins."""

    graph: Graph
    precision: Precision | GivenPrecision
    start: str
    start_noise: float | None

    def shape(self) -> dict[str, Any]:
        """Whether the precision is given."""
        return {"given_precision": self.graph.precision}

    def relation(self, specification: Specification) -> Relation:
        """Δ and its rank.  Errors: DataError where there are no fewer components."""
        rank, partly = self._rank(), len(specification.patterns) > 1
        if specification.n_components >= rank:
            instead = "" if self.graph.precision else ", or gamma > 0"
            raise DataError(f"n_components is {specification.n_components}, but Δ has rank {rank}; use fewer{instead}")
        return Relation(self.precision, rank, self.start, self.start_noise, self.graph if partly else None)

    def settled(self, task: SolverTask, plan: Plan, run: Run) -> SolverTask:
        """The task as it is."""
        return task

    def _rank(self) -> int:
        """Rank of Δ; a given one that is too large to be counted is taken as definite."""
        graph = self.graph
        counted = graph.samples <= EXACT_COMPONENT if graph.precision else self.precision.gamma == 0
        return graph_precision.rank(whole(graph), self.precision) if counted else graph.samples


def whole(graph: Graph) -> sp.csr_array:
    """The adjacency matrix in memory, for what factorises it."""
    return graph.rows.load(0, graph.samples)


def related(model: Any, task: Task, graph: GraphLike, precision: GraphLike = None) -> Task:
    """The task of samples in a graph, or of a precision.  Errors: DataError where this is none between them."""
    between = opened(model, graph, precision, task.source)
    delta = GivenPrecision() if between.precision else model.precision
    relating = Relating(between, delta, model.start, model.start_noise)
    return replace(task, between=relating, fitted=fitted_related)


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


def fitted_related(task: Task, known: Known) -> LinearGaussian:
    """The fitted model, with what is between the samples."""
    relation, graph = known.asked.relation, task.graph
    assert relation is not None
    assert graph is not None
    delta, between = relation.precision, Entries(graph.entries, relation.rank)
    edges = Edges(delta.alpha, delta.gamma, graph.entries // 2, relation.rank) if isinstance(delta, Precision) else None
    return LinearGaussian(**table_fields(task, known), between=edges or between)
