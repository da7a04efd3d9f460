"""PPCA of rows that are smoothed over a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Graph
from dlatent.engine.connect import Where
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.plan import Plan
from dlatent.fitting.smoothing import CANDIDATES, chosen_averaging, chosen_smoothing
from dlatent.fitting.task import Relation, Task
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.specification import Specification
from dlatent.models.base import Fitted, Given
from dlatent.models.callbacks import Callback
from dlatent.models.heads import Draws, Imputes, Reconstructs, Scores, Transforms
from dlatent.models.hyperparameters import GraphPPCAHyperparameters
from dlatent.models.inputs import Data, GraphLike, PathLike, Rows, TargetsLike
from dlatent.models.map_rows import Way, open_edges
from dlatent.operators.smooth_filter import SmoothFilter
from dlatent.passes import Run

SMOOTHING_SCORES = ("smoothing_correlation", "smoothing_error")
"""What is known of each candidate."""


class GraphPPCA(GraphPPCAHyperparameters, Transforms, Scores, Imputes, Reconstructs, Draws):
    r"""PPCA of samples in a graph, whose rows are smoothed over it.

    .. math:: f(S) (T - 1 \mu^\top) = Z W^\top + E, \qquad
        f(S) = \sum_{k=0}^h \left(\frac{\lambda}{1 + \lambda}\right)^k S^k, \qquad S = D^{-1/2} A D^{-1/2}

    T are the samples × features, A the adjacency matrix of the graph with degrees D, and the rows of Z and E are as in
    PPCA.  A sample without edges keeps its own row; with λ = 0 it is PPCA.

    With missing entries the rows are weighted means, each cell over those of the samples near by that have it,

    .. math:: y_{ij} = \frac{\sum_m f(S)_{im}\, o_{mj}\, t_{mj}}{\sum_m f(S)_{im}\, o_{mj}}

    with o 1 for observed entries and 0 for missing ones; they are fitted by PPCA with missing entries and its prior on
    the loadings.

    Attributes
    ----------
    smoothing_ : float
        λ, given or chosen.
    smoothing_scores_ : xarray.Dataset or None
        Over the candidates `smoothing` of "auto": `smoothing_correlation` with the hidden cells, and `smoothing_error`,
        the standard error of its difference to the largest.  None where λ was given.
    log_likelihood_ : float
        Of the smoothed rows, in nats; likelihoods of different λ are those of different data, and do not compare.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by f(S)²1; with missing entries that of the weighted means.

    See Also
    --------
    RelationalPPCA : PRPCA, a precision between samples, without degrees.

    References
    ----------
    The filter is that of Zhou, Bousquet, Lal, Weston and Schölkopf (2004), "Learning with local and global
    consistency", cut after h terms.  Read more in :doc:`/models/graph_ppca`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dlatent import GraphPPCA
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> ring = sp.csr_array(np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0))
    >>> model = GraphPPCA(2).fit(X, graph=ring)
    >>> model.transform(X, graph=ring).shape
    (30, 2)
    >>> model.smoothing_  # these rows are noise
    0.0
    """

    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, with what its neighbour sums move; reads the graph once, and no data."""
        return self._plan(self._in_graph(self._given(X, dim, weights), graph), client)

    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to samples × features and the graph between the samples.

        Raises
        ------
        DataError
            For data or a graph that cannot be fitted, naming row, column and block, or the edge.
        PlanError
            Where no solver fits in memory; before data move.
        StoreError
            For a checkpoint of another fit, with what differs.
        """
        given = self._in_graph(self._given(X, dim, weights), graph)
        return self._fit(given, client, callbacks, checkpoint, resume)

    def transform(
        self,
        X: Data,
        *,
        graph: GraphLike = None,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        r"""Scores: the mean of the latent variables of each sample, given its smoothed row.

        .. math:: M^{-1} W^\top [f(S) (X - 1 \mu^\top)]_i / \sigma^2, \qquad M = I + W^\top W / \sigma^2

        Parameters
        ----------
        graph : sparse matrix, networkx graph, path or URL, optional
            Edges between these samples; by default there are none, so that each row is its own smoothed row.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input (of a Dask array with a graph in memory), or the path `out`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For other features or another order of them, for NaN or infinity, and for a graph of other samples.
        """
        options = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._scores(X, None, **options, **self._smoothed(graph))

    def fit_transform(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Rows:
        """`fit`, then `transform` of the same samples with their edges.

        Returns
        -------
        array of shape (n_samples, n_components)
            As `transform`.
        """
        self.fit(X, graph=graph, dim=dim, weights=weights, client=client)
        return cast(Rows, self.transform(X, graph=graph, client=client))

    def posterior(self, X: Data, *, graph: GraphLike = None, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables of each sample, given its smoothed row.

        Parameters
        ----------
        graph : sparse matrix, networkx graph, path or URL, optional
            As in `transform`.

        Returns
        -------
        xarray.Dataset
            `scores` (sample, component) and `covariance` M⁻¹ (component, component_2), shared by all samples; where
            entries may be missing each sample has its own (sample, component, component_2).

        Raises
        ------
        NotFittedError, DataError
            As in `transform`.
        """
        return self._posterior(X, None, client, **self._smoothed(graph))

    def impute(
        self,
        X: Data,
        *,
        graph: GraphLike = None,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """The data with each missing entry (NaN) replaced by what the model expects there.

        Parameters
        ----------
        graph : sparse matrix, networkx graph, path or URL, optional
            Edges between these samples, of a model that was fitted with `missing="nan"`: missing entries are then
            w_jᵀE[z|y] + μ_j, given the smoothed row y.  By default there are none, and they are expected given the
            observed entries of their row.

        Returns
        -------
        array of shape (n_samples, n_features), or str
            In the kind of the input, or the path `out`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For other features, infinite values or sparse data, and for a graph with a model of complete data, whose
            smoothed rows are sums over neighbours and not in units of the features.
        """
        options = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        edges = self._smoothed(graph, holes=True)
        if not edges:
            return self._imputed(incomplete.imputed, X, None, "imputed", **options)
        edges["way"] = edges["way"]._replace(beside=True)
        return self._imputed(incomplete.imputed_beside, X, None, "imputed", **options, **edges)

    def _smoothed(self, graph: GraphLike, *, holes: bool = False) -> dict[str, Any]:
        """How scores of rows meet those of their neighbours, or where rows may have `holes` the rows themselves."""
        self._require_fitted()
        if graph is None or not self.smoothing_:
            return {}
        if not self._averaged and (holes or self._averaging):
            raise DataError(
                "the fit was one of complete data, whose smoothed rows are sums over neighbours; for rows with missing "
                "entries and edges fit with missing='nan', or leave out graph="
            )
        shift = np.nan_to_num(self._parameters.mean) if self._averaged else None
        return {"graph": graph, "way": Way(SmoothFilter(self.smoothing_, self._hops), shift)}

    @property
    def _averaging(self) -> bool:
        """Whether entries may be missing, so that rows are averaged."""
        return self.missing != "raise"

    def _in_graph(self, given: Given, graph: GraphLike) -> Given:
        """What a fit is given, with the graph between the samples, where rows are smoothed over it."""
        return replace(given, graph=open_edges(graph, given.source)) if self.smoothing else given

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        candidates = len(CANDIDATES) if self.smoothing == "auto" else 0
        return super()._more_of_problem(given, specification) | {"hops": int(self.hops), "candidates": candidates}

    def _more_of_task(self, session: Session, given: Given, specification: Specification) -> dict[str, Any]:
        if given.graph is None:
            return {}
        if self.smoothing == "auto":
            return {}
        return {"relation": self._relation(float(self.smoothing), given.graph)}

    def _relation(self, smoothing: float, graph: Graph) -> Relation | None:
        return Relation(SmoothFilter(smoothing, int(self.hops)), graph.samples) if smoothing else None

    def _settled(self, task: Task, plan: Plan, given: Given, run: Run) -> Task:
        if self.smoothing != "auto":
            return task
        assert given.graph is not None
        if not self._averaging:
            found = chosen_smoothing(task, plan, int(self.hops), run, sparse=given.source.sparse)
        else:
            found = chosen_averaging(task, plan, int(self.hops), run)
        return replace(task, compared=found, relation=self._relation(CANDIDATES[found.chosen], given.graph))

    def _finished(self, outcome: Outcome, given: Given) -> Outcome:
        return outcome if self._averaging else self._with_prior(outcome, float(given.source.shape[0]))

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        super()._keep(fitted, task, given)
        between = None if task.relation is None else task.relation.precision
        self.smoothing_ = between.smoothing if isinstance(between, SmoothFilter) else 0.0
        self._hops, self.smoothing_scores_ = int(self.hops), None
        self._averaged = self._averaging
        if task.compared is not None:
            self.smoothing_scores_ = _scores_of(CANDIDATES, task.compared.correlation, task.compared.standard_error)
        self._edges = 0 if given.graph is None else given.graph.entries // 2

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        found, scores = super()._variables(whole=whole), self.smoothing_scores_
        if scores is None:
            return found
        return found | {name: scores[name].values for name in ("smoothing", *SMOOTHING_SCORES)}

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        graph = {"smoothing": self.smoothing_, "hops": self._hops, "edges": self._edges, "averaged": self._averaged}
        return super()._attributes(whole=whole) | (graph if whole else {})

    def _facts(self) -> dict[str, Any]:
        graph: dict[str, Any] = {"edges": self._edges, "smoothing": self.smoothing_, "hops": self._hops}
        if self.smoothing_scores_ is not None:
            scores = self.smoothing_scores_
            graph["compared"] = {name: scores[name].values.tolist() for name in ("smoothing", *SMOOTHING_SCORES)}
        return super()._facts() | {"graph": graph}

    def _words(self) -> dict[str, str]:
        found, scores = super()._words(), self.smoothing_scores_
        if scores is not None:
            pairs = zip(scores["smoothing"].values, scores["smoothing_correlation"].values, strict=True)
            found["smoothing"] = "correlation with hidden cells " + ", ".join(f"{c:.4f} (λ = {s:g})" for s, c in pairs)
        if not self.smoothing_:
            return found | {"graph": "not used, as λ = 0"}
        found["log-likelihood"] += " of the smoothed rows"
        hops = f"{self._hops} hop{'s' if self._hops > 1 else ''}"
        return found | {"graph": f"{self._edges:,} edges, with λ = {self.smoothing_:g} and {hops}"}

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        super()._restore(values, attributes)
        names = ("smoothing", "hops", "edges", "averaged")
        self.smoothing_, self._hops, self._edges, self._averaged = (attributes[name] for name in names)
        known = "smoothing" in values
        self.smoothing_scores_ = _scores_of(*(values[n] for n in ("smoothing", *SMOOTHING_SCORES))) if known else None


def _scores_of(smoothings: npt.ArrayLike, correlation: Array, error: Array) -> xr.Dataset:
    """What is known of each candidate."""
    scores = zip(SMOOTHING_SCORES, (correlation, error), strict=True)
    return xr.Dataset({name: ("smoothing", values) for name, values in scores}, {"smoothing": np.asarray(smoothings)})
