"""Supervised PPCA of samples in a graph: labelled documents that cite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import xarray as xr

from dlatent.engine.connect import Where
from dlatent.models import feature_methods, precision_methods, row_methods, target_methods
from dlatent.models import task as tasks
from dlatent.models.between import related
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import (
    GraphSolver,
    Head,
    Start,
    TargetType,
    model,
    parameter,
)
from dlatent.models.inputs import Data, GraphLike, Mask, PathLike, TargetsLike
from dlatent.models.model import LinearModel
from dlatent.models.precision_methods import joint_log_likelihood, require_completable
from dlatent.models.relational import ALPHA, GAMMA, SOLVER, START, START_NOISE, check_start
from dlatent.models.table import table_task, with_targets
from dlatent.models.task import FitRun, FitTask
from dlatent.operators.graph_precision import Estimate
from dlatent.solvers.plan import Plan


@model
class RelationalSupervisedPPCA(LinearModel):
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

    alpha: float = parameter(ALPHA, default=1.0)
    gamma: float = parameter(GAMMA, default=1e-6)
    solver: GraphSolver = parameter(SOLVER, default="auto")
    start: Start = parameter(START, default="random")
    start_noise: float | None = parameter(START_NOISE, default=None)
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")

    _rules = (check_start,)

    def __sklearn_tags__(self) -> Any:
        return target_methods.target_tags(self, super().__sklearn_tags__())

    def _task(
        self,
        X: Data,
        *,
        y: TargetsLike = None,
        labelled: Mask = None,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        **data: Any,
    ) -> FitTask:
        task = with_targets(table_task(self, X, dim, weights), y, labelled, self)
        if len(task.specification.patterns) > 1:
            require_completable(self, task.source.shape[0])
        return related(self, task, graph)

    @described
    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        labelled: Mask = None,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, with what its neighbour sums move; reads the graph once, and no features.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets)
            The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.
        """
        return tasks.plan(self._task(X, y=y, labelled=labelled, graph=graph, dim=dim, weights=weights), client)

    @described
    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        labelled: Mask = None,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to features, targets of all samples or of some, and the graph between the samples.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets)
            The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.

        Raises
        ------
        DataError
            For data, targets or a graph that cannot be fitted; also where some samples have no targets, and γ = 0 or
            there are more than 20,000.
        """
        task = self._task(X, y=y, labelled=labelled, graph=graph, dim=dim, weights=weights)
        return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))

    @described
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

    @described
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
            require_completable(self, len(targets))
        return joint_log_likelihood(self, X, graph, None, targets, client, determinant)

    log_determinant, node_variance = precision_methods.log_determinant, precision_methods.node_variance
    precision, precision_rank_ = precision_methods.precision_numbers, precision_methods.precision_rank_
    transform, score_samples, score = row_methods.transform, row_methods.score_samples, row_methods.score
    impute, impute_variance, sample = row_methods.impute, row_methods.impute_variance, target_methods.sample
    components_, mean_ = feature_methods.components_, feature_methods.mean_
    inverse_transform, get_covariance = feature_methods.inverse_transform, feature_methods.get_covariance
    get_precision = feature_methods.get_precision
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
