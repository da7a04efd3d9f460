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
from dlatent.estimators.base import Given
from dlatent.estimators.callbacks import Callback
from dlatent.estimators.graph_model import GraphModel
from dlatent.estimators.heads import Draws, Imputes, Reconstructs, Scores, Transforms
from dlatent.estimators.hyperparameters import RelationalSupervisedHyperparameters
from dlatent.estimators.inputs import Data, GraphLike, Mask, PathLike, TargetsLike
from dlatent.estimators.map_rows import open_input
from dlatent.estimators.target_heads import (
    DrawsWithTargets,
    ImputesWithTargets,
    Predicts,
    ScoresWithTargets,
    TransformsWithTargets,
)
from dlatent.estimators.targets import EncodedTargets
from dlatent.fitting.graph_samples import graph_log_likelihood
from dlatent.fitting.plan import Plan
from dlatent.operators.graph_precision import EXACT_SAMPLES, Estimate


class RelationalPPCA(GraphModel, Transforms, Scores, Imputes, Reconstructs, Draws):
    """Probabilistic relational PCA: T ~ N(1μᵀ, Δ⁻¹, WWᵀ + σ²I) with Δ = γI + (αI + A)ᵀ(αI + A), by maximum likelihood.

    Samples in a graph share what they say: the fit is PCA of the features summed over each sample and its
    neighbours, (αI + A)(T − 1μᵀ), with a little of the features alone (γ).  With A = 0, α = 0, γ = 1 it is PPCA.

    Parameters
    ----------
    n_components : K, the number of latent variables; less than the number of samples, and at most that of features.
    alpha : α ≥ 0, the weight of a sample beside its neighbours.
    gamma : γ ≥ 0, the weight of the features alone. With 0 the precision may be singular: its rank takes the place of
        N (errata 17), found for connected components of up to 4,000 samples.
    tol : relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over data and edges (60), or EM iterations with solver="em" (2,000); None takes these.
    random_state : seed of the first directions.
    solver : "auto" takes the cheaper of two that find the global maximum from eigenvectors (PRPCA (17)–(18)):
        "covariance" (one pass, D² numbers) and "krylov" (about ten passes); "em" iterates (19)–(22).
    start : where "em" begins: "random", or "pca" as in the paper.
    start_noise : σ² at which "em" begins, in squared units of the features (the paper has 1e-6); None takes that of
        the start.
    noise_floor : smallest noise variance, as a part of the mean variance of the features.
    zero_rows : "keep" fits rows of zeros, and a warning counts them; "raise" stops at the first.

    Attributes
    ----------
    Those of PPCA; variances are those of H = (T − 1μᵀ)ᵀΔ(T − 1μᵀ)/N, `mean_` is weighted by Δ1, and `log_likelihood_`
    is without ½ D log|Δ|, a constant of the graph (see `log_likelihood`).
    precision_rank_ : rank of Δ, N for γ > 0.

    Source: Li, Yeung and Zhang (2009), with errata 15–19 (docs/models/relational.md); rows are samples here.
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
        """What `fit` would do and cost, with what its neighbour sums move; reads the graph once, and no data.

        Parameters: `X` (N, D), `graph`, `dim`, `weights` and `client` as in `fit`; `y` is ignored.
        Returns: the plan; `str(plan)` is a page to read.
        Errors: PlanError where no route fits in memory, with the way out; DataError as in `fit`.
        """
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

        Parameters: `X` (N, D), `dim`, `weights`, `client`, `callbacks`, `checkpoint`, `resume` as in PPCA; `graph`,
        what `dlatent.stores.graph.open_graph` takes or returns: a symmetric sparse adjacency matrix (N, N), a Zarr
        store of one, a networkx graph; `y` is ignored.
        Errors: DataError naming row, column and block, or the edge; PlanError before data move; warns as PPCA.
        """
        given = self._in_graph(self._given(X, dim, weights), graph)
        return self._fit(given, client, callbacks, checkpoint, resume)

    def posterior(self, X: Data, *, graph: GraphLike = None, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables given the features (PRPCA (19)): their means and covariances.

        Parameters: `X` (N, D); `graph` between these samples, None for isolated samples; `client` as in `fit`.
        Returns: Dataset with `scores` (sample, component), `covariance` (component, component_2) = M⁻¹, and
        `node_variance` (sample): the covariance of sample i is sample_variance_i · M⁻¹, with (Δ⁻¹)_ii, or
        1/(γ + α²) where there are no edges.
        Errors: NotFittedError; DataError for other features, for γ = 0 with edges, or for more than 20,000 samples.
        """
        found = self._posterior(X, None, client)
        samples, dim = found.sizes[found["scores"].dims[0]], found["scores"].dims[0]
        each = np.full(samples, 1.0 / self._alone()) if graph is None else self.node_variance(graph)
        if len(each) != samples:
            raise DataError(f"the edges join {len(each)} samples, but {samples} were given")
        return found.assign(node_variance=(dim, each))

    def log_likelihood(self, X: Data, graph: GraphLike, *, client: Where = None, **determinant: str | int) -> Estimate:
        """log p(T) of samples in a graph together, with ½ D log|Δ|.

        Parameters: `X` (N, D) and `graph` as in `fit`; `determinant`, keywords of `log_determinant`.
        Returns: the value in nats, and its standard error (0 where log|Δ| is exact); never compare it across γ.
        Errors: NotFittedError; DataError as in `fit`.
        """
        return joint_log_likelihood(self, X, graph, None, client, determinant)


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

    Parameters
    ----------
    n_components, tol, max_iter, random_state, solver, noise_floor, zero_rows : as in SupervisedPPCA.
    target_type, target_noise_floor : as in SupervisedPPCA.
    alpha, gamma, start, start_noise : as in RelationalPPCA.

    Attributes
    ----------
    Those of SupervisedPPCA and RelationalPPCA.  With D features, L columns of targets and samples U without targets,
    `log_likelihood_` is without ½ [(D + L) log|Δ| − L log|Δ_UU|], a constant of the graph and of U.

    Source: Li, Yeung and Zhang (2009) and Yu et al. (2006), joined; docs/models/relational.md.
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
        """What `fit` would do and cost; see RelationalPPCA.plan.

        Parameters: `X`, `y`, `labelled`, `graph`, `dim`, `weights` and `client` as in `fit`.
        Returns: the plan. Errors: PlanError, DataError as in `fit`.
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

        Parameters: `X`, `y`, `labelled`, `dim`, `weights`, `client`, `callbacks`, `checkpoint`, `resume` as in
        SupervisedPPCA; `graph` as in RelationalPPCA.
        Errors: DataError (also: some samples without targets where γ = 0 or there are more than 20,000), PlanError.
        """
        given = self._in_graph(self._given_targets(X, y, labelled, dim, weights), graph)
        return self._fit(given, client, callbacks, checkpoint, resume)

    def predictive_variance(self) -> Array:
        """Variance of each output of a sample without edges, given its features (L,)."""
        return super().predictive_variance() / self._alone()

    def posterior(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables of samples without edges; as in SupervisedPPCA."""
        found = super().posterior(X, y, client=client)
        return found.assign(covariance=found["covariance"] / self._alone())

    def log_likelihood(
        self, X: Data, y: TargetsLike, graph: GraphLike, *, client: Where = None, **determinant: str | int
    ) -> Estimate:
        """log p(T) of features and targets of samples in a graph together; see RelationalPPCA.log_likelihood.

        Where samples have no targets (as in `fit`), those are integrated out.
        """
        targets = self._encode_new(X, y)
        if targets is not None and np.isnan(targets[:, 0]).any():
            self._require_completable(len(targets))
        return joint_log_likelihood(self, X, graph, targets, client, determinant)


def joint_log_likelihood(
    model: Any, X: Data, graph: GraphLike, targets: Array | None, client: Where, determinant: dict[str, Any]
) -> Estimate:
    """Log-likelihood of samples in a graph together, with the constant of the graph."""
    model._require_fitted()
    known = model._known_features()
    source, _ = open_input(X, known=known.grid)
    known.check(source.shape, source.labels.features)
    given = model._in_graph(Given(source), graph)
    constant = model.log_determinant(given.graph, client=client, **determinant)
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
