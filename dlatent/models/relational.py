"""Probabilistic relational PCA: documents that cite, pages that link, products bought together."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr

from dlatent.arrays import DataSource
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models import between, fill_methods, fit_methods, linear, rotation, row_methods, target_methods
from dlatent.models.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    GraphSolver,
    Head,
    Parameter,
    Prior,
    Scale,
    Start,
    TargetType,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Data, GraphLike, Mask, TargetsLike
from dlatent.models.map_rows import RowsRun
from dlatent.models.table import table_task, with_targets
from dlatent.models.task import FitTask
from dlatent.operators.graph_precision import Estimate

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


def check_start(model: Any) -> None:
    """Refuse a noise variance of a start that has none.  Errors: DataError."""
    if model.start_noise is not None and model.start != "pca":
        raise DataError("start_noise belongs to start='pca', the start of the paper; give both, or none")


@model
class RelationalPPCA(linear.LinearModel):
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
    prior: Prior | float = parameter(
        default="auto",
        text=(
            'Prior of the loadings.  "auto" and "ml" are none: maximum likelihood.  "ard" (automatic relevance '
            "determination) gives those of each component a normal prior whose variance the evidence chooses, and "
            "switches off components that the data do not support.  A number is the variance of all loadings, in "
            "squared units of the features."
        ),
    )
    scale: Scale | None = parameter(default="none")
    whiten: bool = parameter(default=False)

    _rules = (check_start,)

    def _task(self, X: DataSource, *, graph: GraphLike = None, precision: GraphLike = None, **data: Any) -> FitTask:
        return between.related(self, table_task(self, X), graph, precision)

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
            `scores` (sample, component), `covariance` (component, component_2), which is M⁻¹ in the units of the
            scores, and `node_variance` (sample).  The covariance of a sample is that times its `node_variance`:
            (Δ⁻¹)_ii, or 1/(γ + α²) where there are no edges, and 1 where a precision would say otherwise.

        Raises
        ------
        DataError
            For other features, for a singular Δ, or for more than 20,000 samples with edges.
        """
        dataset = row_methods.posteriors(self, X, None, RowsRun(client=client))
        first = dataset["scores"].isel(component=0)
        samples = first.size
        if graph is None and precision is None:
            each = np.full(samples, 1.0 / self._model.row_precision)
        else:
            each = self.node_variance(graph, precision=precision)
        if len(each) != samples:
            raise DataError(f"the edges join {len(each)} samples, but {samples} were given")
        return dataset.assign(node_variance=(first.dims, each.reshape(first.shape)))

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
        return between.joint_log_likelihood(self, X, graph, precision, None, client, determinant)

    log_determinant, node_variance = between.log_determinant, between.node_variance
    precision, precision_rank_ = between.precision_numbers, between.precision_rank_
    fit, plan = fit_methods.fit_precision, fit_methods.plan_precision
    transform, impute, sample = row_methods.transform, fill_methods.impute, linear.sample
    rotated = rotation.rotated


@model
class RelationalSupervisedPPCA(linear.LinearModel):
    """Supervised PPCA of samples in a graph: features and targets share z, samples the precision Δ of RelationalPPCA.

    H takes the place of the joint covariance of features and targets.  Where some samples have no targets, the
    likelihood is that of all features and of the targets that are there; for gamma > 0, solver "covariance" or "em",
    and up to 20,000 samples, whose rows come together on the driver.

    Attributes
    ----------
    log_likelihood_ : float
        In nats, the targets on their rank, without ½ [(D + L) log|Δ| − L log|Δ_UU|], a constant of the graph and of the
        samples U without targets, with L columns of targets.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by Δ1.

    References
    ----------
    Li, Yeung and Zhang (2009) and Yu et al. (2006), joined.  Read more in :doc:`/models/relational`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dlatent import RelationalSupervisedPPCA
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> ring = sp.csr_array(np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0))
    >>> model = RelationalSupervisedPPCA(2).fit(X, X[:, 0], graph=ring)
    >>> model.predict(X).shape
    (30,)
    """

    n_components: int | Literal["auto"] = parameter(
        linear.NUMBER, default="auto", kw_only=False, text=f"{linear.COUNTED}  {linear.MANY}"
    )
    alpha: float = parameter(ALPHA, default=1.0)
    gamma: float = parameter(GAMMA, default=1e-6)
    solver: GraphSolver = parameter(SOLVER, default="auto")
    start: Start = parameter(START, default="random")
    start_noise: float | None = parameter(START_NOISE, default=None)
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")
    scale: Scale | None = parameter(default="none")
    whiten: bool = parameter(default=False)

    _rules = (check_start,)

    def _task(
        self, X: DataSource, *, y: TargetsLike = None, labelled: Mask = None, graph: GraphLike = None, **data: Any
    ) -> FitTask:
        task = with_targets(table_task(self, X), y, labelled, self)
        if len(task.specification.patterns) > 1:
            between.require_completable(self, task.source.shape[0])
        return between.related(self, task, graph)

    def posterior(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables of samples without edges.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets), optional
            Targets as in `fit`.  Of samples without, and without `y`, the features alone count.

        Returns
        -------
        xarray.Dataset
            As in SupervisedPPCA.posterior.
        """
        dataset = row_methods.posterior(self, X, y, client=client)
        return dataset.assign(covariance=dataset["covariance"] / self._model.row_precision)

    def log_likelihood(
        self, X: Data, y: TargetsLike, graph: GraphLike, *, client: Where = None, **determinant: str | int
    ) -> Estimate:
        """log p of features and targets of samples in a graph together, with the constant of the graph.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Targets as in `fit`; those that are missing are integrated out.
        **determinant : optional
            Keywords of `log_determinant`.

        Returns
        -------
        Estimate
            The value in nats, and its standard error (0 where log|Δ| is exact); never compare it across γ.
        """
        targets = row_methods.encoded(self, X, y)
        if targets is not None and np.isnan(targets[:, 0]).any():
            between.require_completable(self, len(targets))
        return between.joint_log_likelihood(self, X, graph, None, targets, client, determinant)

    log_determinant, node_variance = between.log_determinant, between.node_variance
    precision, precision_rank_ = between.precision_numbers, between.precision_rank_
    fit, plan = fit_methods.fit_graph_targets, fit_methods.plan_graph_targets
    transform, impute, sample = row_methods.transform, fill_methods.impute, target_methods.sample
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
