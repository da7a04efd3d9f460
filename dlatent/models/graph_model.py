"""What estimators for samples in a graph share: opening the graph, Δ, its determinant, and samples without edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, DataSource, Features, Graph, GraphRows
from dlatent.engine.connect import Where, connect
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitting.task import Relation, Task
from dlatent.linear_gaussian.complete import log_likelihoods
from dlatent.linear_gaussian.expectation import LOG_2PI, pattern_projection
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.models.base import Fitted, Given
from dlatent.models.hyperparameters import GraphHyperparameters
from dlatent.models.inputs import GraphLike, Seed
from dlatent.models.linear import LinearModel
from dlatent.models.map_rows import open_edges
from dlatent.operators import given_precision, graph_precision
from dlatent.operators.given_precision import GivenPrecision
from dlatent.operators.graph_precision import EXACT_COMPONENT, EXACT_SAMPLES, Estimate, Precision
from dlatent.passes import Pass
from dlatent.stores.graph.open import open_graph, open_precision

GRAPH_BLOCK_ENTRIES = 4_000_000
"""Stored edges that the multiplication with a graph beyond memory reads at a time."""
HELD_ENTRIES = 50_000_000
"""Up to this many stored edges (600 MB) a task keeps the graph in memory between multiplications."""
PROBES_A_TASK = 4


class GraphModel(GraphHyperparameters, LinearModel):
    """The common part of the estimators for samples in a graph; see RelationalPPCA.

    Parameters
    ----------
    max_iter : int, optional
        Most passes over data and edges (by default 60), or EM iterations with `solver="em"` (by default 2,000).

    Attributes
    ----------
    precision_rank_ : int
        Rank of Δ, N for γ > 0.  That of a given precision is counted up to 4,000 samples; larger ones are taken as
        definite, with rank N.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by Δ1.
    """

    _given_entries = 0
    """Stored entries of a given precision; 0 where a graph made it."""

    @property
    def precision(self) -> Precision:
        """The numbers of Δ = γI + (αI + A)²."""
        return Precision(float(self.alpha), float(self.gamma))

    def _in_graph(self, given: Given, graph: GraphLike, precision: GraphLike = None) -> Given:
        """What a fit is given, with the graph between the samples, or the precision."""
        return replace(given, graph=self._open_graph(graph, precision, given.source))

    def _open_graph(self, graph: GraphLike, precision: GraphLike, source: DataSource) -> Graph:
        if precision is not None:
            return self._open_precision(graph, precision, source)
        found = open_edges(graph, source)
        if not found.entries and not self.alpha and not self.gamma:
            raise DataError("alpha and gamma are 0 and there is no edge, so that Δ is zero; give alpha > 0")
        return found

    def _open_precision(self, graph: GraphLike, precision: GraphLike, source: DataSource | None = None) -> Graph:
        """A precision that takes the place of a graph, with its α and γ.

        Errors: DataError where these are given, too.
        """
        if graph is not None:
            raise DataError("graph= and precision= both say what is between the samples; give one of them")
        for name in ("alpha", "gamma"):
            if getattr(self, name) != getattr(type(self), name):
                raise DataError(
                    f"{name} makes a precision of a graph, and precision= is one already; leave {name} out, or give "
                    "the graph as graph=…"
                )
        if source is None:
            return open_precision(precision)
        return open_precision(precision, samples=source.shape[0], origin=source.labels.origin)

    def _between(self, graph: Graph) -> Precision | GivenPrecision:
        """Δ."""
        return GivenPrecision() if graph.precision else self.precision

    def _rank(self, graph: Graph) -> int:
        """Rank of Δ; a given one that is too large to be counted is taken as definite."""
        if graph.precision and graph.samples <= EXACT_COMPONENT:
            return given_precision.rank(whole(graph))
        if not graph.precision and self.gamma == 0:
            return graph_precision.rank(whole(graph), self.precision)
        return graph.samples

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        found = super()._more_of_problem(given, specification)
        return found | {"given_precision": given.graph is not None and given.graph.precision}

    def _more_of_task(self, session: Session, given: Given, specification: Specification) -> dict[str, Any]:
        graph = given.graph
        assert graph is not None
        partly, rank = len(specification.patterns) > 1, self._rank(graph)
        if self.n_components >= rank:
            way_out = "" if graph.precision else ", or gamma > 0"
            raise DataError(f"n_components is {self.n_components}, but Δ has rank {rank}; use fewer{way_out}")
        relation = Relation(self._between(graph), rank, self.start, self.start_noise, graph if partly else None)
        return {"relation": relation}

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        super()._keep(fitted, task, given)
        assert task.relation is not None
        assert given.graph is not None
        self.precision_rank_, self._edges, self._given_entries = task.relation.rank, given.graph.entries // 2, 0
        if given.graph.precision:
            self._edges, self._given_entries = 0, given.graph.entries

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        graph = {"precision_rank": self.precision_rank_, "edges": self._edges}
        if self._given_entries:
            graph["precision_entries"] = self._given_entries
        return super()._attributes(whole=whole) | (graph if whole else {})

    def _facts(self) -> dict[str, Any]:
        if self._given_entries:
            return super()._facts() | {"precision": {"entries": self._given_entries, "rank": self.precision_rank_}}
        numbers = {"alpha": float(self.alpha), "gamma": float(self.gamma)}
        return super()._facts() | {"graph": {"edges": self._edges, **numbers, "rank": self.precision_rank_}}

    def _words(self) -> dict[str, str]:
        found, rank = super()._words(), self.precision_rank_
        less = "" if rank == self.n_samples_ else f", rank of Δ {rank:,}"
        if self._given_entries:
            found["log-likelihood"] += " without ½ D log|Δ|"
            return found | {"precision": f"given, {self._given_entries:,} entries{less}"}
        found["log-likelihood"] += " without ½ D log|Δ| of the graph"
        return found | {"graph": f"{self._edges:,}, with α = {self.alpha:g} and γ = {self.gamma:g}{less}"}

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        super()._restore(values, attributes)
        self.precision_rank_, self._edges = attributes["precision_rank"], attributes["edges"]
        self._given_entries = attributes.get("precision_entries", 0)

    def log_determinant(
        self,
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
        own = open_graph(graph) if precision is None else self._open_precision(graph, precision)
        exact = method == "exact" or (method == "auto" and own.samples <= EXACT_SAMPLES)
        if exact and own.precision:
            return Estimate(given_precision.log_determinant(whole(own)), 0.0)
        if not own.precision and (exact or self.gamma == 0):
            return Estimate(graph_precision.log_determinant(whole(own), self.precision), 0.0)
        if probes < 2 or steps < 2:
            raise DataError(f"{probes} probes and {steps} steps were asked for; an estimate needs 2 of each")
        request = ProbeRequest(own.rows, _row_edges(own), own.entries <= HELD_ENTRIES, self._between(own), steps)
        with connect(_probes(own.samples, probes), client=client, cache_bytes=0) as session:
            values, changes = session.run(Pass(probe_block, request, combine=joined_probes, name="log determinant"))
        return graph_precision.estimated(values, changes)

    def node_variance(
        self, graph: GraphLike = None, rows: npt.ArrayLike | None = None, *, precision: GraphLike = None
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
        own = open_graph(graph) if precision is None else self._open_precision(graph, precision)
        if own.samples > EXACT_SAMPLES:
            raise DataError(
                f"the graph has {own.samples} samples; (Δ⁻¹)_ii is a factorisation, done up to {EXACT_SAMPLES}"
            )
        chosen = np.arange(own.samples) if rows is None else np.asarray(rows)
        if own.precision:
            return given_precision.inverse_diagonal(whole(own), chosen)
        return graph_precision.inverse_diagonal(whole(own), self.precision, chosen)

    def _drawn(self, n_samples: int, random_state: Seed) -> Array:
        """Samples without edges: x ~ N(μ, C / (γ + α²))."""
        drawn, mean = super()._drawn(n_samples, random_state), self._parameters.mean
        return np.asarray(mean + (drawn - mean) / np.sqrt(self._alone()))

    def _likelihood_function(self) -> Any:
        return partial(self._rows(isolated_likelihood_rows), precision=self._alone())

    def _alone(self) -> float:
        """Precision of a sample without edges; beside samples of a given precision 1."""
        if self._given_entries:
            return 1.0
        value = graph_precision.isolated_precision(self.precision)
        if value == 0.0:
            raise DataError("with alpha = 0 and gamma = 0 a sample without edges has no distribution")
        return value


def whole(graph: Graph) -> sp.csr_array:
    """The adjacency matrix in memory, for what factorises it."""
    return graph.rows.load(0, graph.samples)


def _row_edges(graph: Graph) -> tuple[int, ...]:
    pieces = max(1, -(-graph.entries // GRAPH_BLOCK_ENTRIES))
    return tuple(np.linspace(0, graph.samples, pieces + 1).astype(int).tolist())


@dataclass(eq=False)
class ProbeRows:
    """The numbers of some random probes, as a block source: a task for each."""

    start: int
    stop: int
    nbytes: int

    @property
    def collection(self) -> None:
        """None: nothing is computed by Dask."""
        return

    def load(self) -> Features:
        """The numbers of the probes (n, 1)."""
        return np.arange(self.start, self.stop, dtype=np.float64)[:, None]

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The block itself."""
        (part,) = parts
        return cast(Features, part)


def _probes(samples: int, probes: int) -> DataSource:
    edges = [*range(0, probes, PROBES_A_TASK), probes]
    # Their size in bytes is that of the vectors that they become, so that each block is a task of its own.
    blocks = tuple(ProbeRows(a, b, 8 * samples * (b - a)) for a, b in pairwise(edges))
    return DataSource((probes, 1), np.dtype(np.float64), blocks, uuid4().hex, description="probes", in_memory=False)


class ProbeRequest(NamedTuple):
    """The graph by rows, where they are cut, whether it stays in memory, Δ, and the Lanczos steps."""

    rows: GraphRows
    edges: tuple[int, ...]
    held: bool
    precision: Precision | GivenPrecision
    steps: int


def probe_block(block: Block, request: ProbeRequest) -> tuple[Array, Array]:
    """Estimates of log|Δ| from the probes of a block, and what their last steps changed."""
    numbers = np.asarray(block.features)[:, 0].astype(int)
    samples, cuts = request.edges[-1], list(pairwise(request.edges))
    signs = [np.random.default_rng([1, number]).integers(0, 2, samples) for number in numbers.tolist()]
    held = [request.rows.load(a, b) for a, b in cuts] if request.held else None

    def multiply(vectors: Array) -> Array:
        pieces = held if held is not None else (request.rows.load(a, b) for a, b in cuts)
        product: Array = np.concatenate([np.asarray(piece @ vectors) for piece in pieces])
        return product

    vectors = np.stack(signs, axis=1).astype(np.float64) * 2.0 - 1.0
    return graph_precision.probe_log_determinants(multiply, vectors, request.precision, request.steps)


def joined_probes(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Probes of both, one after the other."""
    return np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])


def isolated_likelihood_rows(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, precision: float
) -> Array:
    """Log-likelihood of rows without edges (n,): C/δ in the place of C, δ = γ + α²."""
    values = log_likelihoods(x, y, parameters, specification)
    if precision == 1.0:
        return values
    labelled = np.zeros(len(values), dtype=bool) if y is None else ~np.isnan(y[:, 0])
    for pattern, at in (((0,), ~labelled), ((0, 1), labelled)):
        if not at.any():
            continue
        size = sum(specification.sizes[view] for view in pattern)
        constant = pattern_projection(parameters, specification, pattern).constant
        distance = -2.0 * values[at] - size * LOG_2PI - constant
        values[at] += 0.5 * size * np.log(precision) - 0.5 * (precision - 1.0) * distance
    return values
