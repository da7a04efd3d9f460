"""Probabilistic relational PCA: documents that cite, pages that link, products bought together."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import xarray as xr

from dlatent.arrays import Array, DataSource
from dlatent.engine.connect import connect
from dlatent.errors import DataError
from dlatent.estimators.base import Watch
from dlatent.estimators.linked import LinkedModel
from dlatent.estimators.map_rows import open_input
from dlatent.estimators.ppca import PPCA
from dlatent.estimators.supervised import SupervisedPPCA
from dlatent.estimators.targets import EncodedTargets
from dlatent.fitting.plan import Plan
from dlatent.fitting.relational import linked_log_likelihood
from dlatent.operators.graph_precision import Estimate


class RelationalPPCA(LinkedModel, PPCA):
    """Probabilistic relational PCA: T ~ N(1μᵀ, Δ⁻¹, WWᵀ + σ²I) with Δ = γI + (αI + A)ᵀ(αI + A), by maximum likelihood.

    Linked instances share what they say: the fit is PCA of the features summed over each instance and its
    neighbours, (αI + A)(T − 1μᵀ), with a little of the features alone (γ).  With A = 0, α = 0, γ = 1 it is PPCA.

    Parameters
    ----------
    n_components : K, the number of latent variables; less than the numbers of instances and features.
    alpha : α ≥ 0, the weight of an instance beside its neighbours.
    gamma : γ ≥ 0, the weight of the features alone. With 0 the precision may be singular: its rank takes the place of
        N (errata 17), found for connected components of up to 4,000 instances.
    tol : relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over data and links (60), or EM iterations with solver="em" (2,000); None takes these.
    random_state : seed of the first directions.
    solver : "auto" finds the global maximum from eigenvectors (PRPCA (17)–(18)); "em" iterates (19)–(22).
    route : "auto" lets the planner choose between "moments" (one pass, D² numbers) and "krylov" (about ten passes).
    start : where "em" begins: "random", or "pca" as in the paper.
    start_noise : σ² at which "em" begins, in squared units of the features (the paper has 1e-6); None takes that of
        the start.
    noise_floor : smallest noise variance, as a part of the mean variance of the features.
    suspect_data : "refuse" raises for all-zero rows, "keep" fits them.

    Attributes
    ----------
    Those of PPCA; variances are those of H = (T − 1μᵀ)ᵀΔ(T − 1μᵀ)/N, `mean_` is weighted by Δ1, and `log_likelihood_`
    is without ½ D log|Δ|, a constant of the graph (see `log_likelihood`).
    precision_rank_ : rank of Δ, N for γ > 0.

    Source: Li, Yeung and Zhang (2009), with errata 15–19 (docs/models/relational.md); rows are instances here.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: float = 1.0,
        gamma: float = 1e-6,
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Any = 0,
        solver: Literal["auto", "em"] = "auto",
        route: Literal["auto", "moments", "krylov"] = "auto",
        start: Literal["random", "pca"] = "random",
        start_noise: float | None = None,
        noise_floor: float = 1e-6,
        suspect_data: Literal["refuse", "keep"] = "refuse",
    ) -> None:
        super().__init__(
            n_components,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            solver=solver,
            route=route,
            noise_floor=noise_floor,
            suspect_data=suspect_data,
        )
        self.alpha = alpha
        self.gamma = gamma
        self.start = start
        self.start_noise = start_noise

    def plan(self, X: Any, y: Any = None, *, links: Any = None, client: Any = None) -> Plan:
        """What `fit` would do and cost, with what its exchanges move; reads the links once, and no data.

        Parameters: `X` (N, D), `links` and `client` as in `fit`; `y` is ignored.
        Returns: the plan; `str(plan)` is a page to read.
        Errors: PlanError where no route fits in memory, with the way out; DataError as in `fit`.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        return self._make_plan(source, self._make_specification(source, None), client, self._open_links(links, source))

    def fit(self, X: Any, y: Any = None, *, links: Any = None, client: Any = None, watch: Watch | None = None) -> Self:
        """Fit the model to instances × features and the graph between the instances.

        Parameters: `X` (N, D) and `client`, `watch` as in PPCA; `links`, what `dlatent.stores.links.open_links` takes
        or returns: a symmetric sparse adjacency matrix (N, N), a Zarr store of one, a networkx graph; `y` is ignored.
        Errors: DataError naming row, column and block, or the link; PlanError before data move; warns as PPCA.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        self._fit(source, None, client, watch or Watch(), self._open_links(links, source))
        return self

    def posterior(self, X: Any, *, links: Any = None, client: Any = None) -> xr.Dataset:
        """The distribution of the latent variables given the features (PRPCA (19)): their means and covariances.

        Parameters: `X` (N, D); `links` between these instances, None for instances without links; `client` as in `fit`.
        Returns: Dataset with `scores` (instance, component), `covariance` (component, component_2) = M⁻¹, and
        `instance_variance` (instance): the covariance of instance i is instance_variance_i · M⁻¹, with (Δ⁻¹)_ii, or
        1/(γ + α²) where there are no links.
        Errors: NotFittedError; DataError for other features, for γ = 0 with links, or for more than 20,000 instances.
        """
        found = PPCA.posterior(self, X, client=client)
        instances, dim = found.sizes[found["scores"].dims[0]], found["scores"].dims[0]
        each = np.full(instances, 1.0 / self._alone()) if links is None else self.instance_variance(links)
        if len(each) != instances:
            raise DataError(f"the links join {len(each)} instances, but {instances} were given")
        return found.assign(instance_variance=(dim, each))

    def log_likelihood(self, X: Any, links: Any, *, client: Any = None, **determinant: Any) -> Estimate:
        """log p(T) of linked instances together, with ½ D log|Δ|.

        Parameters: `X` (N, D) and `links` as in `fit`; `determinant`, keywords of `log_determinant`.
        Returns: the value in nats, and its standard error (0 where log|Δ| is exact); never compare it across γ.
        Errors: NotFittedError; DataError as in `fit`.
        """
        return joint_log_likelihood(self, X, links, None, client, determinant)

    def sample(self, n_samples: int = 1, *, random_state: Any = None) -> Any:
        """Draw instances without links: x ~ N(μ, C / (γ + α²)).

        Parameters and returns as in PPCA. Errors: NotFittedError.
        """
        drawn = super().sample(n_samples, random_state=random_state)
        return self.mean_ + (drawn - self.mean_) / np.sqrt(self._alone())


class RelationalSupervisedPPCA(LinkedModel, SupervisedPPCA):
    """Supervised PPCA of linked instances: features and targets share z, instances the precision Δ of RelationalPPCA.

    H takes the place of the joint covariance of features and targets; every instance must have its targets.

    Parameters
    ----------
    n_components, tol, max_iter, random_state, solver, route, noise_floor, suspect_data : as in SupervisedPPCA.
    target_type, target_noise_floor : as in SupervisedPPCA.
    alpha, gamma, start, start_noise : as in RelationalPPCA.

    Attributes
    ----------
    Those of SupervisedPPCA and RelationalPPCA.

    Source: Li, Yeung and Zhang (2009) and Yu et al. (2006), joined; docs/models/relational.md.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: float = 1.0,
        gamma: float = 1e-6,
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Any = 0,
        solver: Literal["auto", "em"] = "auto",
        route: Literal["auto", "moments", "krylov"] = "auto",
        start: Literal["random", "pca"] = "random",
        start_noise: float | None = None,
        noise_floor: float = 1e-6,
        suspect_data: Literal["refuse", "keep"] = "refuse",
        target_type: Any = "auto",
        target_noise_floor: float = 1e-3,
    ) -> None:
        super().__init__(
            n_components,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            solver=solver,
            route=route,
            noise_floor=noise_floor,
            suspect_data=suspect_data,
            target_type=target_type,
            target_noise_floor=target_noise_floor,
        )
        self.alpha = alpha
        self.gamma = gamma
        self.start = start
        self.start_noise = start_noise

    def _encoded(self, source: DataSource, y: Any, labelled: Any) -> EncodedTargets:
        encoded = super()._encoded(source, y, labelled)
        if not encoded.complete:
            raise DataError(
                "some instances have no targets; relational supervised PPCA needs all of them: use SupervisedPPCA "
                "without links, or RelationalPPCA without targets"
            )
        return encoded

    def plan(self, X: Any, y: Any = None, *, labelled: Any = None, links: Any = None, client: Any = None) -> Plan:
        """What `fit` would do and cost; see RelationalPPCA.plan.

        Parameters: `X`, `y`, `links` and `client` as in `fit`; `labelled` as in SupervisedPPCA, all must be.
        Returns: the plan. Errors: PlanError, DataError as in `fit`.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        encoded = self._encoded(source, y, labelled)
        specification = self._make_specification(source, encoded)
        return self._make_plan(source, specification, client, self._open_links(links, source), encoded)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        labelled: Any = None,
        links: Any = None,
        client: Any = None,
        watch: Watch | None = None,
    ) -> Self:
        """Fit the model to features, targets of every instance, and the graph between the instances.

        Parameters: `X`, `y`, `client`, `watch` as in SupervisedPPCA; `links` as in RelationalPPCA.
        Errors: DataError (also: an instance without targets), PlanError.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        encoded = self._encoded(source, y, labelled)
        self._fit(source, encoded, client, watch or Watch(), self._open_links(links, source))
        self._publish_targets(encoded.encoding)
        return self

    def predictive_variance(self) -> Array:
        """Variance of each output of an instance without links, given its features (L,)."""
        return super().predictive_variance() / self._alone()

    def posterior(self, X: Any, y: Any = None, *, client: Any = None) -> xr.Dataset:
        """The distribution of the latent variables of instances without links; as in SupervisedPPCA."""
        found = super().posterior(X, y, client=client)
        return found.assign(covariance=found["covariance"] / self._alone())

    def log_likelihood(self, X: Any, y: Any, links: Any, *, client: Any = None, **determinant: Any) -> Estimate:
        """log p(T) of features and targets of linked instances together; see RelationalPPCA.log_likelihood."""
        return joint_log_likelihood(self, X, links, self._encode_new(X, y), client, determinant)

    def sample(self, n_samples: int = 1, *, random_state: Any = None) -> Any:
        """Draw instances without links; as in SupervisedPPCA."""
        x, y = super().sample(n_samples, random_state=random_state)
        scale = 1.0 / np.sqrt(self._alone())
        return self.mean_ + (x - self.mean_) * scale, self.target_mean_ + (y - self.target_mean_) * scale


def joint_log_likelihood(
    model: Any, X: Any, links: Any, targets: Array | None, client: Any, determinant: dict[str, Any]
) -> Estimate:
    """Log-likelihood of linked instances together, with the constant of the graph."""
    model._require_fitted()
    source, _ = open_input(X)
    model._known_features().check(source.shape, source.labels.features)
    opened = model._open_links(links, source)
    constant = model.log_determinant(opened, client=client, **determinant)
    specification = model._specification
    with connect(source, targets=targets, client=client, links=opened) as session:
        plan = model._planned(session, specification, None, opened)
        task = model._task(plan, source, specification, links=opened)
        session.keep(plan.cache_bytes)
        value = linked_log_likelihood(task, plan, model._parameters, session.run)
    width = sum(specification.sizes)
    return Estimate(value + 0.5 * width * constant.value, 0.5 * width * constant.standard_error)
