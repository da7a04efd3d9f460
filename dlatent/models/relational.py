"""Probabilistic relational PCA: documents that cite, pages that link, products bought together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import xarray as xr

from dlatent.arrays import Array, AxisLabels
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.targets import EncodedTargets
from dlatent.fitting.graph_samples import graph_log_likelihood
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.plan import Plan
from dlatent.models.base import Given
from dlatent.models.callbacks import Callback
from dlatent.models.graph_model import GraphModel
from dlatent.models.heads import Draws, Imputes, Reconstructs, Scores, Transforms
from dlatent.models.hyperparameters import RelationalHyperparameters, RelationalSupervisedHyperparameters
from dlatent.models.inputs import Data, GraphLike, Mask, PathLike, TargetsLike
from dlatent.models.map_rows import open_input
from dlatent.models.target_heads import (
    DrawsWithTargets,
    ImputesWithTargets,
    Predicts,
    ScoresWithTargets,
    TransformsWithTargets,
)
from dlatent.operators.graph_precision import EXACT_SAMPLES, Estimate


class RelationalPPCA(RelationalHyperparameters, GraphModel, Transforms, Scores, Imputes, Reconstructs, Draws):
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

    def _finished(self, outcome: Outcome, given: Given) -> Outcome:
        if self._prior == "ml":  # the rank may be that of many eigenvalues
            return outcome
        assert given.graph is not None
        return self._with_prior(outcome, float(self._rank(given.graph)))

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
        return self._plan(self._in_graph(self._given(X, dim, weights), graph, precision), client)

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
        PlanError
            Where no solver fits in memory; before data move.
        StoreError
            For a checkpoint of another fit, with what differs.
        """
        given = self._in_graph(self._given(X, dim, weights), graph, precision)
        return self._fit(given, client, callbacks, checkpoint, resume)

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
        NotFittedError
            Before `fit`.
        DataError
            For other features, for a singular Δ, or for more than 20,000 samples with edges.
        """
        found = self._posterior(X, None, client)
        samples, dim = found.sizes[found["scores"].dims[0]], found["scores"].dims[0]
        apart = graph is None and precision is None
        each = np.full(samples, 1.0 / self._alone()) if apart else self.node_variance(graph, precision=precision)
        if len(each) != samples:
            raise DataError(f"the edges join {len(each)} samples, but {samples} were given")
        return found.assign(node_variance=(dim, each))

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

        Raises
        ------
        NotFittedError, DataError
            As in `fit` and `transform`.
        """
        return joint_log_likelihood(self, X, graph, precision, None, client, determinant)


class RelationalSupervisedPPCA(
    RelationalSupervisedHyperparameters,
    GraphModel,
    TransformsWithTargets,
    ScoresWithTargets,
    ImputesWithTargets,
    Predicts,
    Reconstructs,
    DrawsWithTargets,
):
    """Supervised PPCA of samples in a graph: features and targets share z, samples the precision Δ of RelationalPPCA.

    H takes the place of the joint covariance of features and targets.  Where some samples have no targets, the
    likelihood is that of all features and of the targets that are there; for gamma > 0, solver "covariance" or "em",
    and up to 20,000 samples, whose rows come together on the driver.

    Attributes
    ----------
    log_likelihood_ : float
        In nats, the targets on their rank, without ½ [(D + L) log|Δ| − L log|Δ_UU|], a constant of the graph and of the
        samples U without targets, with L columns of targets.

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

    def _encoded(self, y: TargetsLike, labelled: Mask, samples: int, labels: AxisLabels) -> EncodedTargets:
        encoded = super()._encoded(y, labelled, samples, labels)
        if not encoded.complete:
            self._require_completable(samples)
        return encoded

    def _require_completable(self, samples: int) -> None:
        """Refuse samples without targets where the rest of a graph cannot tell of them."""
        if self.gamma == 0:
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
        return self._plan(self._in_graph(self._given_targets(X, y, labelled, dim, weights), graph), client)

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
        PlanError
            Where no solver fits in memory; before data move.
        StoreError
            For a checkpoint of another fit, with what differs.
        """
        given = self._in_graph(self._given_targets(X, y, labelled, dim, weights), graph)
        return self._fit(given, client, callbacks, checkpoint, resume)

    @property
    def _own_precision(self) -> float:
        return self._alone()

    def predictive_variance(self) -> Array:
        """Variance of each target of a sample without edges, given its features.

        Returns
        -------
        ndarray of shape (n_targets,)
            In squared units of the targets.
        """
        return super().predictive_variance()

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
        found = super().posterior(X, y, client=client)
        return found.assign(covariance=found["covariance"] / self._alone())

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
        targets = self._encode_new(X, y)
        if targets is not None and np.isnan(targets[:, 0]).any():
            self._require_completable(len(targets))
        return joint_log_likelihood(self, X, graph, None, targets, client, determinant)


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
    model._require_fitted()
    known = model._known_features()
    source, _ = open_input(X, known=known.grid)
    known.check(source.shape, source.labels.features)
    given = model._in_graph(Given(source), graph, precision)
    between = {"graph" if precision is None else "precision": given.graph}
    constant = model.log_determinant(**between, client=client, **determinant)
    specification = model._specification
    if targets is not None:
        partly = bool(np.isnan(targets[:, 0]).any())
        specification = replace(specification, patterns=((0, 1), (0,)) if partly else ((0, 1),))
    with connect(source, targets=targets, client=client, graph=given.graph) as session:
        task = model._task(session, given, specification)
        plan = model._planned(task, session)
        session.keep(plan.cache_bytes)
        value = graph_log_likelihood(task, plan, model._parameters, session.run)
    width = sum(specification.sizes)
    return Estimate(value + 0.5 * width * constant.value, 0.5 * width * constant.standard_error)
