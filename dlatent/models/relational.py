"""Probabilistic relational PCA: documents that cite, pages that link, products bought together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import xarray as xr

from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models import feature_methods, precision_methods, row_methods
from dlatent.models import task as tasks
from dlatent.models.between import related
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARED,
    GraphSolver,
    Parameter,
    Prior,
    Start,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Data, GraphLike, PathLike, TargetsLike
from dlatent.models.model import LinearModel
from dlatent.models.precision_methods import joint_log_likelihood
from dlatent.models.row_methods import RowsRun
from dlatent.models.table import table_task
from dlatent.models.task import FitRun, FitTask
from dlatent.operators.graph_precision import Estimate
from dlatent.solvers.plan import Plan

ALPHA = Parameter(NOT_NEGATIVE, "float", "α ≥ 0, the weight of a sample beside its neighbours.", short="A")
GAMMA = Parameter(
    NOT_NEGATIVE,
    "float",
    "γ ≥ 0, the weight of the features alone.  With 0 the precision may be singular: its rank takes the place of N "
    "(errata 17), found for connected components of up to 4,000 samples.",
    short="G",
)
SOLVER = choice(
    GraphSolver,
    'How the maximum is found.  "auto" takes the cheaper of two that find the global maximum from eigenvectors (PRPCA '
    '(17)–(18)): "covariance" (one pass, D² numbers) and "krylov" (about ten passes); "em" iterates (19)–(22).',
)
START = choice(Start, 'Where "em" begins; "pca" as in the paper.')
START_NOISE = Parameter(
    POSITIVE.or_none(),
    "float",
    'σ² at which "em" begins with `start="pca"`, in squared units of the features (the paper has 1e-6); by default '
    "that of the start.",
    short="VARIANCE",
)
PRIOR = replace(
    SHARED["prior"],
    text='Prior of the loadings.  "auto" and "ml" are none: maximum likelihood.  "ard" (automatic relevance '
    "determination) gives those of each component a normal prior whose variance the evidence chooses, and switches off "
    "components that the data do not support.  A number is the variance of all loadings, in squared units of the "
    "features.",
)


def check_start(model: Any) -> None:
    """Refuse a noise variance of a start that has none.  Errors: DataError."""
    if model.start_noise is not None and model.start != "pca":
        raise DataError("start_noise belongs to start='pca', the start of the paper; give both, or none")


@model
class RelationalPPCA(LinearModel):
    r"""Probabilistic relational PCA of samples in a graph, by maximum likelihood.

    .. math:: T \sim N(1 \mu^\top, \Delta^{-1}, W W^\top + \sigma^2 I), \qquad
        \Delta = \gamma I + (\alpha I + A)^\top (\alpha I + A)

    T are the samples × features, A the adjacency matrix.  Samples in a graph share what they say: the fit is PCA of the
    features summed over each sample and its neighbours, (αI + A)(T − 1μᵀ), with a little of the features alone (γ).
    With A = 0, α = 0, γ = 1 it is PPCA.  Variances are those of H = (T − 1μᵀ)ᵀΔ(T − 1μᵀ)/N.  Another Δ is given as
    `precision=` in the place of a graph.

    Attributes
    ----------
    log_likelihood_ : float
        In nats, without ½ D log|Δ|, a constant of the graph; see `log_likelihood`.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by Δ1.

    References
    ----------
    Li, Yeung and Zhang (2009), with errata 15–19; rows are samples here.  Read more in :doc:`/models/relational`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dlatent import RelationalPPCA
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> ring = sp.csr_array(np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0))
    >>> model = RelationalPPCA(2).fit(X, graph=ring)
    >>> model.precision_rank_
    30
    """

    alpha: float = parameter(ALPHA, default=1.0)
    gamma: float = parameter(GAMMA, default=1e-6)
    solver: GraphSolver = parameter(SOLVER, default="auto")
    start: Start = parameter(START, default="random")
    start_noise: float | None = parameter(START_NOISE, default=None)
    prior: Prior | float = parameter(PRIOR, default="auto")

    _rules = (check_start,)

    def _task(
        self,
        X: Data,
        *,
        graph: GraphLike = None,
        precision: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        **data: Any,
    ) -> FitTask:
        return related(self, table_task(self, X, dim, weights), graph, precision)

    @described
    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        precision: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, with what its neighbour sums move; reads the graph once, and no data."""
        task = self._task(X, graph=graph, precision=precision, dim=dim, weights=weights)
        return tasks.plan(task, client)

    @described
    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        precision: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to samples × features and the graph between the samples, or a precision.

        Raises
        ------
        DataError
            For data, a graph or a precision that cannot be fitted, naming row, column and block, the edge or the entry.
        """
        task = self._task(X, graph=graph, precision=precision, dim=dim, weights=weights)
        return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))

    @described
    def posterior(
        self, X: Data, *, graph: GraphLike = None, precision: GraphLike = None, client: Where = None
    ) -> xr.Dataset:
        """The distribution of the latent variables given the features (PRPCA (19)).

        Parameters
        ----------
        graph : sparse matrix, networkx graph, path or URL, optional
            Edges between these samples; by default there are none.
        precision : sparse matrix, path or URL, optional
            The precision between these samples, of a model that was fitted to one; by default I.

        Returns
        -------
        xarray.Dataset
            `scores` (sample, component), `covariance` (component, component_2), which is M⁻¹, and `node_variance`
            (sample).  The covariance of a sample is its `node_variance` times M⁻¹: (Δ⁻¹)_ii, or 1/(γ + α²) where there
            are no edges, and 1 where a precision would say otherwise.

        Raises
        ------
        DataError
            For other features, for a singular Δ, or for more than 20,000 samples with edges.
        """
        dataset = row_methods.posteriors(self, X, None, RowsRun(client=client))
        samples, dim = dataset.sizes[dataset["scores"].dims[0]], dataset["scores"].dims[0]
        if graph is None and precision is None:
            each = np.full(samples, 1.0 / self._model.row_precision)
        else:
            each = self.node_variance(graph, precision=precision)
        if len(each) != samples:
            raise DataError(f"the edges join {len(each)} samples, but {samples} were given")
        return dataset.assign(node_variance=(dim, each))

    @described
    def log_likelihood(
        self,
        X: Data,
        graph: GraphLike = None,
        *,
        precision: GraphLike = None,
        client: Where = None,
        **determinant: str | int,
    ) -> Estimate:
        """log p(T) of samples in a graph together, with ½ D log|Δ|.

        Parameters
        ----------
        **determinant : optional
            Keywords of `log_determinant`.

        Returns
        -------
        Estimate
            The value in nats, and its standard error (0 where log|Δ| is exact); never compare it across γ.
        """
        return joint_log_likelihood(self, X, graph, precision, None, client, determinant)

    log_determinant, node_variance = precision_methods.log_determinant, precision_methods.node_variance
    precision, precision_rank_ = precision_methods.precision_numbers, precision_methods.precision_rank_
    transform, score_samples, score = row_methods.transform, row_methods.score_samples, row_methods.score
    impute, impute_variance, sample = row_methods.impute, row_methods.impute_variance, feature_methods.sample
    components_, mean_ = feature_methods.components_, feature_methods.mean_
    inverse_transform, get_covariance = feature_methods.inverse_transform, feature_methods.get_covariance
    get_precision = feature_methods.get_precision
