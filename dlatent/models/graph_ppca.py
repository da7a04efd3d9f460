"""PPCA of rows that are smoothed over a graph."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import log10
from typing import Any, Literal, cast

import numpy as np
import xarray as xr

from dlatent.arrays import DataSource
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.between import Compared, Smoothed
from dlatent.fitted.linear import LinearGaussian
from dlatent.fitted.row_work import GraphFilter
from dlatent.fitted.rows import RowFunction, function
from dlatent.fitted.stored import variables
from dlatent.gaussian.missing_entries import incomplete
from dlatent.models import fill_methods, fit_methods, linear, rotation, row_methods
from dlatent.models.hyperparameters import (
    COUNT,
    SMOOTHING,
    Missing,
    Parameter,
    Prior,
    Scale,
    SmoothedSolver,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import CellWeights, Data, GraphLike, PathLike, Rows, SampleDims, TargetsLike
from dlatent.models.map_rows import RowsRun, open_edges
from dlatent.models.table import table_fields, table_task
from dlatent.models.task import FitTask
from dlatent.operators.sample_precision import SmoothFilter
from dlatent.solvers.smoothing.selection import CANDIDATES, with_smoothing
from dlatent.solvers.solver import Solution
from dlatent.solvers.task import Between, Relation


def check_strength(model: Any) -> None:
    """Refuse a λ whose powers leave double precision.  Errors: DataError."""
    if isinstance(model.smoothing, str) or not model.smoothing:
        return
    if 2 * model.hops * abs(log10(model.smoothing)) > 300:
        raise DataError(
            f"smoothing={model.smoothing:g} over {model.hops} hops leaves double precision; take a smoothing nearer to "
            "1, or 0, or fewer hops"
        )


def smoothed(model: Any, task: FitTask, graph: GraphLike) -> FitTask:
    """The task of rows that are smoothed over a graph, as much as is said or as held-out cells choose."""
    hops, strength = int(model.hops), model.smoothing
    task = replace(task, fitted=partial(fitted_smoothed, hops=hops))
    if not strength:
        return task
    edges = open_edges(graph, task.source)
    if isinstance(strength, str):
        between = Between(edges, None, hops, len(CANDIDATES))
        return replace(task, between=between, prepared=with_smoothing)
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


@model
class GraphPPCA(linear.LinearModel):
    r"""PPCA of samples in a graph, whose rows are smoothed over it.

    .. math:: f(S) (T - 1 \mu^\top) = Z W^\top + E, \qquad
        f(S) = \sum_{k=0}^h \lambda^k S^k, \qquad S = D^{-1/2} A D^{-1/2}

    T are the samples × features, A the adjacency matrix of the graph with degrees D, and the rows of Z and E are as in
    PPCA.  A sample without edges keeps its own row; with λ = 0 it is PPCA.

    With missing entries the rows are weighted means, each cell over those of the samples near by that have it,

    .. math:: y_{ij} = \frac{\sum_m f(S)_{im}\, o_{mj}\, t_{mj}}{\sum_m f(S)_{im}\, o_{mj}}

    with o 1 for observed entries and 0 for missing ones; they are fitted by PPCA with missing entries and its prior on
    the loadings.

    Attributes
    ----------
    log_likelihood_ : float
        Of the smoothed rows, in nats; likelihoods of different λ are those of different data, and do not compare.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by f(S)²1; with missing entries that of the weighted means.

    See Also
    --------
    RelationalPPCA : PRPCA, a precision between samples, without degrees.

    References
    ----------
    With λ < 1 the filter is that of Zhou, Bousquet, Lal, Weston and Schölkopf (2004), "Learning with local and global
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

    solver: SmoothedSolver = parameter(
        choice(
            SmoothedSolver,
            'How the maximum is found.  "auto" takes the cheaper of two that find the global maximum from '
            'eigenvectors: "covariance" (one pass, D² numbers) and "krylov" (about ten passes); data with missing '
            'entries go by "accelerated_em" (about twenty passes).  "em" is textbook EM.',
        ),
        default="auto",
    )
    smoothing: float | Literal["auto"] = parameter(
        Parameter(
            SMOOTHING,
            'float or "auto"',
            'λ ≥ 0, the weight of the neighbours beside a sample; with 0 no graph is needed.  "auto" is that of 0, '
            "0.25, 0.5, 1, 2 and 4 with which cells that were hidden say best what the components are.",
            short="L",
        ),
        default="auto",
    )
    hops: int = parameter(Parameter(COUNT, "int", "h, how far neighbours reach.", short="N"), default=2)
    missing: Missing = parameter(
        default="raise",
        text=(
            "Which entries are missing, as in PPCA.  Where entries may be missing, each cell of a smoothed row is a "
            "weighted mean over those of the samples near by that have it."
        ),
    )
    prior: Prior | float = parameter(
        default="auto",
        text=(
            'Prior of the loadings, as in PPCA: "auto" is "ard" with missing entries, and "ml", maximum likelihood, '
            "for complete data."
        ),
    )
    scale: Scale | None = parameter(default="auto")
    whiten: bool = parameter(default=False)

    _rules = (check_strength,)

    def _task(self, X: DataSource, *, graph: GraphLike = None, **data: Any) -> FitTask:
        return smoothed(self, table_task(self, X), graph)

    @property
    def _smoothed(self) -> Smoothed:
        """How the rows of the fit were smoothed."""
        assert isinstance(self._model.between, Smoothed)
        return self._model.between

    def _filter_options(self, graph: GraphLike, *, holes: bool = False) -> dict[str, Any]:
        """How scores of rows meet those of their neighbours, or where rows may have `holes` the rows themselves."""
        fitted, by = self._model, self._smoothed
        if graph is None or not by.smoothing:
            return {}
        if not fitted.missing and (holes or self._rows.holes):
            raise DataError(
                "the fit was one of complete data, whose smoothed rows are sums over neighbours; for rows with missing "
                "entries and edges fit with missing='nan', or leave out graph="
            )
        shift = np.nan_to_num(fitted.parameters.mean) if fitted.missing else None
        return {"graph": graph, "graph_filter": GraphFilter(SmoothFilter(by.smoothing, by.hops), shift)}

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

        .. math:: E[z] = M^{-1} W^\top [f(S) (X - 1 \mu^\top)]_i / \sigma^2, \qquad M = I + W^\top W / \sigma^2

        times the lengths of the loadings, unless `whiten=True`.

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
        DataError
            For other features or another order of them, for NaN or infinity, and for a graph of other samples.
        """
        return row_methods.scored(self, X, None, RowsRun(out, overwrite, resume, client), **self._filter_options(graph))

    def fit_transform(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        dim: SampleDims = None,
        weights: CellWeights = None,
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
            `scores` (sample, component) and `covariance` (component, component_2), shared by all samples; where
            entries may be missing each sample has its own (sample, component, component_2).
        """
        return row_methods.posteriors(self, X, None, RowsRun(client=client), **self._filter_options(graph))

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
        DataError
            For other features, infinite values or sparse data, and for a graph with a model of complete data, whose
            smoothed rows are sums over neighbours and not in units of the features.
        """
        options, run = self._filter_options(graph, holes=True), RowsRun(out, overwrite, resume, client)
        rows = self._rows
        filled: RowFunction = function(rows.imputed)
        if options:
            options["graph_filter"] = options["graph_filter"]._replace(with_rows=True)
            filled = partial(incomplete.graph_imputed, parameters=rows.parameters, specification=rows.specification)
        return fill_methods.filled(self, X, None, filled, "imputed", 1, run, **options)

    @property
    def smoothing_(self) -> float:
        """float: λ, given or chosen."""
        return self._smoothed.smoothing

    @property
    def smoothing_scores_(self) -> xr.Dataset | None:
        """xarray.Dataset or None: Over the candidates `smoothing` of "auto": `smoothing_correlation` of scores with
        hidden cells, the mean over the components, and `smoothing_error`, the standard error of its difference to the
        largest.  None where λ was given."""
        compared = self._smoothed.compared
        if compared is None:
            return None
        return xr.Dataset({name: (each.dims, each.values) for name, each in variables(compared).items()})

    fit, plan, sample = fit_methods.fit_graph, fit_methods.plan_graph, linear.sample
    rotated = rotation.rotated
