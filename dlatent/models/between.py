"""Precisions between samples of relational models, given or made of a graph, and the methods that read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, DataSource, Graph
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.between import Edges, Entries
from dlatent.fitted.linear import LinearGaussian
from dlatent.models.inputs import Data, GraphLike
from dlatent.models.map_rows import between_samples, open_edges
from dlatent.models.model import attribute
from dlatent.models.table import opened, table_fields, table_task
from dlatent.models.task import FitTask
from dlatent.operators import graph_precision
from dlatent.operators.graph_precision import (
    EXACT_COMPONENT,
    EXACT_SAMPLES,
    Estimate,
    probe_pass,
    probe_source,
)
from dlatent.operators.sample_precision import Precision, UserPrecision
from dlatent.solvers.graph.samples import graph_log_likelihood
from dlatent.solvers.planner import make_plan
from dlatent.solvers.solver import Solution
from dlatent.solvers.task import Between, Relation
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.rows import in_units


def related(model: Any, task: FitTask, graph: GraphLike, precision: GraphLike = None) -> FitTask:
    """The task of samples that depend on each other by Δ, which a graph makes or is given in its place.

    Errors: DataError where this is none between them, and where there are no fewer components than its rank.
    """
    edges, components = open_between(model, graph, precision, task.source), task.specification.n_components
    delta = UserPrecision() if edges.precision else model.precision
    rank = rank_of(edges, delta)
    if task.rule == "auto" and 1 < rank <= components:
        components = rank - 1
        task = replace(task, specification=replace(task.specification, n_components=components))
    if components >= rank:
        instead = "" if edges.precision else ", or gamma > 0"
        raise DataError(f"n_components is {components}, but Δ has rank {rank}; use fewer{instead}")
    between = Between(edges, Relation(delta, rank, model.start, model.start_noise))
    return replace(task, between=between, fitted=fitted_related)


def rank_of(graph: Graph, precision: Precision | UserPrecision) -> int:
    """Rank of Δ; a given one that is too large to be counted is taken as definite."""
    counted = graph.samples <= EXACT_COMPONENT if graph.precision else precision.gamma == 0
    return graph_precision.rank(adjacency_matrix(graph), precision) if counted else graph.samples


def adjacency_matrix(graph: Graph) -> sp.csr_array:
    """The adjacency matrix in memory, for what factorises it."""
    return graph.rows.load(0, graph.samples)


def open_between(model: Any, graph: GraphLike, precision: GraphLike, source: DataSource | None = None) -> Graph:
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
    entries = between_samples(precision, source)
    return open_precision(entries, samples=source.shape[0], origin=source.labels.origin)


def fitted_related(task: FitTask, solution: Solution) -> LinearGaussian:
    """The fitted model, with what is between the samples."""
    relation, graph = task.relation, task.graph
    assert relation is not None
    assert graph is not None
    delta, between = relation.precision, Entries(graph.entries, relation.rank)
    edges = Edges(delta.alpha, delta.gamma, graph.entries // 2, relation.rank) if isinstance(delta, Precision) else None
    return LinearGaussian(**table_fields(task, solution), between=edges or between)


@attribute
def precision_numbers(self: Any) -> Precision:
    """The numbers of Δ = γI + (αI + A)²."""
    return Precision(float(self.alpha), float(self.gamma))


@attribute
def precision_rank_(self: Any) -> int:
    """int: Rank of Δ, N for γ > 0.  That of a given precision is counted up to 4,000 samples; larger ones are taken as
    definite, with rank N."""
    between: Any = self._model.between
    rank: int = between.rank
    return rank


def log_determinant(
    self: Any,
    graph: GraphLike = None,
    *,
    precision: GraphLike = None,
    method: str = "auto",
    probes: int = 32,
    steps: int = 100,
    client: Where = None,
) -> Estimate:
    r"""log|Δ|, which no fit needs.

    .. math:: \log |\Delta| = \sum_i \log\left(\gamma + (\alpha + \lambda_i)^2\right)

    over the eigenvalues λ_i of the adjacency matrix; of a given precision Σ log λ_i over its own.

    Parameters
    ----------
    method : {"auto", "exact", "lanczos"}, default "auto"
        "exact" is a sparse factorisation (of a singular Δ over the non-zero eigenvalues), "lanczos" stochastic
        Lanczos quadrature; "auto" is exact up to 20,000 samples.
    probes : int, default 32
        Random vectors of "lanczos".
    steps : int, default 100
        Steps of "lanczos".

    Returns
    -------
    Estimate
        The value in nats, and its standard error (0 where it is exact).

    Raises
    ------
    DataError
        For other methods, or where Δ is singular and too large for its eigenvalues.
    """
    if method not in ("auto", "exact", "lanczos"):
        raise DataError(f"method is {method!r}; expected 'auto', 'exact' or 'lanczos'")
    between = open_between(self, graph, precision)
    exact = method == "exact" or (method == "auto" and between.samples <= EXACT_SAMPLES)
    delta = UserPrecision() if between.precision else self.precision
    if exact or self.gamma == 0:
        return Estimate(graph_precision.log_determinant(adjacency_matrix(between), delta), 0.0)
    if probes < 2 or steps < 2:
        raise DataError(f"{probes} probes and {steps} steps were asked for; an estimate needs 2 of each")
    with connect(probe_source(between.samples, probes), client=client, cache_bytes=0) as session:
        values, changes = session.run(probe_pass(between, delta, steps))
    return graph_precision.estimated(values, changes)


def node_variance(
    self: Any, graph: GraphLike = None, rows: npt.ArrayLike | None = None, *, precision: GraphLike = None
) -> Array:
    """(Δ⁻¹)_ii of samples in a graph, by which the posterior covariance of each is multiplied.

    Parameters
    ----------
    rows : array of int of shape (n,), optional
        Positions of samples; by default all.

    Returns
    -------
    ndarray of shape (n,)
        A number for each.

    Raises
    ------
    DataError
        For γ = 0, for a singular precision, or for more than 20,000 samples.
    """
    between = open_between(self, graph, precision)
    if between.samples > EXACT_SAMPLES:
        raise DataError(
            f"the graph has {between.samples} samples; (Δ⁻¹)_ii is a factorisation, done up to {EXACT_SAMPLES}"
        )
    chosen = np.arange(between.samples) if rows is None else np.asarray(rows)
    delta = UserPrecision() if between.precision else self.precision
    return graph_precision.inverse_diagonal(adjacency_matrix(between), delta, chosen)


def joint_log_likelihood(
    model: Any,
    X: Data,
    graph: GraphLike,
    precision: GraphLike,
    targets: Array | None,
    client: Where,
    determinant: dict[str, Any],
) -> Estimate:
    """Log-likelihood of samples in a graph together, or of a precision, with ½ (D + L) log|Δ|."""
    before = model._fitted()
    task = related(model, table_task(model, opened(model, X, before=before), before=before), graph, precision)
    between = {"graph" if precision is None else "precision": task.graph}
    fitted, constant = model._model, model.log_determinant(**between, client=client, **determinant)
    specification, volume = fitted.fitted_specification, 0.0
    if fitted.units is not None:
        volume = (0 if task.relation is None else task.relation.rank) * float(np.log(fitted.units).sum())
        task = replace(task, source=in_units(task.source, fitted.units))
    if targets is not None:
        partly = bool(np.isnan(targets[:, 0]).any())
        specification = replace(specification, patterns=((0, 1), (0,)) if partly else ((0, 1),))
    task = replace(task, specification=specification)
    with connect(task.source, targets=targets, client=client, graph=task.graph) as session:
        task = task.within(session)
        plan = make_plan(task, session.available)
        session.keep(plan.cache_bytes)
        value = graph_log_likelihood(task, plan, fitted.start, session.run) - volume
    width = sum(specification.sizes)
    return Estimate(value + 0.5 * width * constant.value, 0.5 * width * constant.standard_error)


def require_completable(model: Any, samples: int) -> None:
    """Refuse samples without targets where the rest of a graph cannot tell of them.  Errors: DataError."""
    if model.gamma == 0:
        raise DataError(
            "some samples have no targets, and with γ = 0 the precision may be singular, which does not tell what "
            "their neighbours say of them; use gamma=1e-6"
        )
    if samples > EXACT_SAMPLES:
        raise DataError(
            f"some of {samples:,} samples have no targets; with a graph that takes a factorisation, done up to "
            f"{EXACT_SAMPLES:,} samples: use SupervisedPPCA without the graph, RelationalPPCA without targets, or "
            "fit the labelled samples and the edges between them"
        )
