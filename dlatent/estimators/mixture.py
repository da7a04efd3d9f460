"""A mixture of probabilistic PCA, or of factor analysers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, DataSource, Graph
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.engine.session import Session
from dlatent.errors import DataError, StoreError
from dlatent.estimators.base import Fitted, LatentVariableModel
from dlatent.estimators.callbacks import Callback
from dlatent.estimators.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.estimators.map_rows import map_rows, open_input
from dlatent.estimators.restored import noise_name, restored_outcome
from dlatent.estimators.targets import EncodedTargets
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.plan import Plan, Problem
from dlatent.fitting.task import Task
from dlatent.linear_gaussian import mixture
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View


class PPCAMixture(LatentVariableModel):
    """A mixture of probabilistic PCA: c ~ π, x = W_c z + μ_c + ε with z ~ N(0, I_K) and ε ~ N(0, σ_c²I), or N(0, Ψ_c).

    Every sample comes from one of M components, each with a subspace of its own; which one is not known.

    Parameters
    ----------
    n_components : K, the number of latent variables of each component; less than the numbers of samples and features.
    n_mixtures : M, the number of components of the mixture (what scikit-learn's GaussianMixture calls n_components).
    noise : "isotropic", one noise variance for each component (PPCA), or "diagonal", one for each component and feature
        (factor analysis).
    tol : estimated relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over the data (300), or EM iterations with solver="em" (2,000); None takes these.
    n_init : number of starts, each climbed from on some rows of the data; the best goes on over all of them.
    random_state : seed of these rows and of the starts.
    solver : "auto" for accelerated EM; "em" iterates textbook EM from the same start.
    noise_floor : smallest noise variance, as a part of the mean variance of the features (isotropic), or of that of the
        feature.  It keeps a component from collapsing on few rows, where the likelihood has no bound; below 1e-8 it
        counts as that.
    zero_rows : "keep" fits rows of zeros, and a warning counts them; "raise" stops at the first.

    Attributes
    ----------
    weights_ : π (M,), in decreasing order.
    means_ : μ (M, D), in units of the features.
    components_ : Wᵀ (M, K, D), loadings in units of the features; those of each component as in PPCA.
    noise_variance_ : σ² (M,) or, with noise="diagonal", ψ (M, D), in squared units of the features.
    n_parameters_ : free numbers of the model, rotations of the loadings not counted.
    log_likelihood_ : of all samples, in nats.
    n_iter_ : iterations of the loop, as in `history_`.
    n_passes_ : passes over the data, the initial mean of their first block not counted.
    converged_ : whether the tolerance was met.
    at_floor_ : truth values in the shape of `noise_variance_`, whether a noise variance is at its floor.
    n_samples_ : number of samples N.
    n_features_in_ : number of features D.
    feature_names_in_ : names of the features (D,), where the data of the fit had names, all of them texts.
    history_ : Dataset with a line for each iteration and for each pass.

    A maximum is a local one: the likelihood of a mixture has several, and more starts find better ones.  With one
    component the model is PPCA, or factor analysis, and is fitted as such.

    Source: Tipping and Bishop (1999), "Mixtures of probabilistic principal component analysers".
    """

    missing = "raise"
    _solvers = ()

    def __init__(
        self,
        n_components: int = 2,
        n_mixtures: int = 2,
        *,
        noise: Literal["isotropic", "diagonal"] = "isotropic",
        tol: float = 1e-9,
        max_iter: int | None = None,
        n_init: int = 5,
        random_state: Seed = 0,
        solver: Literal["auto", "em"] = "auto",
        noise_floor: float = 1e-6,
        zero_rows: Literal["keep", "raise"] = "keep",
    ) -> None:
        self.n_components = n_components
        self.n_mixtures = n_mixtures
        self.noise = noise
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state
        self.solver = solver
        self.noise_floor = noise_floor
        self.zero_rows = zero_rows

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        for name in ("n_mixtures", "n_init"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise DataError(f"{name} is {value!r}; expected an integer of at least 1")
        if self.noise not in ("isotropic", "diagonal"):
            raise DataError(f"noise is {self.noise!r}; expected 'isotropic' or 'diagonal'")

    def _check_shape(self, source: DataSource) -> None:
        super()._check_shape(source)
        if self.n_mixtures > source.shape[0]:
            raise DataError(
                f"n_mixtures is {self.n_mixtures}, but the {source.description} has {source.shape[0]} samples; ask for "
                "fewer components of the mixture"
            )

    def _make_specification(self, source: DataSource, encoded: EncodedTargets | None) -> Specification:
        view = View("features", source.shape[1], shared=self.noise == "isotropic")
        return Specification((view,), ((0,),), int(self.n_components))

    def _problem(
        self,
        session: Session,
        specification: Specification,
        encoded: EncodedTargets | None = None,
        graph: Graph | None = None,
    ) -> Problem:
        found = super()._problem(session, specification, encoded, graph)
        return replace(found, mixtures=int(self.n_mixtures))

    def _task(
        self,
        plan: Plan,
        session: Session,
        specification: Specification,
        encoded: EncodedTargets | None = None,
        graph: Graph | None = None,
    ) -> Task:
        task = super()._task(plan, session, specification, encoded, graph)
        return replace(task, options=replace(task.options, starts=int(self.n_init)))

    def plan(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> Plan:
        """What `fit` would do and cost, from metadata alone: solver and why, passes, bytes, tasks, memory.

        Parameters: `X` (N, D) and `client` as in `fit`; `y` is ignored.
        Returns: the plan; `str(plan)` is a page to read.
        Errors: PlanError where no solver fits in memory, with the way out; DataError for data that cannot be fitted.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        return self._make_plan(source, self._make_specification(source, None), client)

    def fit(self, X: Data, y: TargetsLike = None, *, client: Where = None, callbacks: Sequence[Callback] = ()) -> Self:
        """Fit the model to samples × features of any kind that `dlatent.stores.open` takes.

        Parameters: `X` (N, D) numpy, scipy.sparse, dask.array, xarray, a data frame of pandas or polars, zarr, or the
        path or URL of a Zarr store; `y` is ignored; `client` a distributed.Client (None: the active one, or this
        process's threads); `callbacks` hear how the fit goes on.
        Errors: DataError naming row, column and block; PlanError before data move; warns ConvergenceWarning,
        NoiseFloorWarning, PrecisionWarning, and DataWarning for components without samples.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        self._fit(source, None, client, callbacks)
        return self

    def _keep(self, fitted: Fitted, task: Task) -> None:
        outcome = fitted.outcome
        if outcome.weights is None:
            # Of one component, which another route has fitted.
            first = Parameters(*(part[None] for part in outcome.parameters))
            outcome = replace(outcome, parameters=first, weights=np.ones(1))
        super()._keep(replace(fitted, outcome=outcome), task)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        assert outcome.weights is not None
        self._mixture = mixture.Mixture(outcome.weights, *outcome.parameters)
        count, width, k = self._mixture.loadings.shape
        self.weights_ = self._mixture.weights
        self.means_ = self._mixture.mean
        self.components_: Array = np.ascontiguousarray(self._mixture.loadings.transpose(0, 2, 1))
        noise, shared = self._mixture.noise_variance, outcome.specification.views[0].shared
        self.noise_variance_: Array = noise[:, 0] if shared else noise
        self.n_features_in_ = width
        each = width * (k + 1) - k * (k - 1) // 2 + noise.shape[1]
        self.n_parameters_: int = count * each + count - 1
        self._publish_course(outcome, passes)
        self.at_floor_ = np.array(outcome.at_floor).reshape(self.noise_variance_.shape)

    def _parameter_variables(self) -> dict[str, Any]:
        shared = self.noise == "isotropic"
        return {
            "mixture": self._mixture_names,
            "mixture_weight": self.weights_,
            "mixture_loadings": self._parameters.loadings,
            "mixture_mean": self.means_,
            f"mixture_{noise_name(shared, 'noise_variance')}": self.noise_variance_,
            f"mixture_{noise_name(shared, 'at_floor')}": self.at_floor_,
            noise_name(shared, "noise_floor"): self._specification.floors,
        }

    def _restored_outcome(self, values: dict[str, Any], attributes: dict[str, Any]) -> Outcome:
        weights, loadings, shared = values["mixture_weight"], values["mixture_loadings"], self.noise == "isotropic"
        if abs(weights.sum() - 1.0) > 1e-9:
            raise StoreError(f"the weights of the mixture add up to {weights.sum():.10g}, not to 1")
        noise, low = (values[f"mixture_{noise_name(shared, name)}"] for name in ("noise_variance", "at_floor"))
        floors = values[noise_name(shared, "noise_floor")]
        floor = float(floors[0]) if shared else tuple(floors.tolist())
        view = View("features", loadings.shape[1], floor, shared=shared)
        parameters = Parameters(loadings, values["mixture_mean"], noise.reshape(len(weights), view.groups))
        made = Specification((view,), ((0,),), loadings.shape[2])
        return replace(
            restored_outcome(values, attributes, parameters, made, tuple(low.ravel().tolist())), weights=weights
        )

    @property
    def _mixture_names(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.weights_))

    def _of_rows(self, X: Data, function: Any, columns: str, names: Any, name: str, **options: Any) -> Rows | str:
        self._require_fitted()
        bound, known = partial(function, mixture=self._mixture), self._known_features()
        return map_rows(X, bound, known, columns=columns, names=names, name=name, **options)

    def predict_proba(
        self, X: Data, *, out: PathLike | None = None, overwrite: bool = False, client: Where = None
    ) -> Rows | str:
        """Responsibilities p(c|x) = π_c p(x|c) / Σ π_c' p(x|c').

        Parameters: `X` (N, D); `out`, a Zarr store to be written instead of memory, `overwrite` one that is there;
        `client` as in `fit`.
        Returns: (N, M), rows with the sum 1, in the kind of the input (numpy, lazy dask, xarray), or the path.
        Errors: NotFittedError; DataError as in PPCA.transform.
        """
        self._require_fitted()
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        names = self._mixture_names
        return self._of_rows(X, mixture.responsibilities, "mixture", names, "responsibilities", **options)

    def predict(self, X: Data, *, client: Where = None) -> Rows:
        """The component of the mixture with the largest responsibility.

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N,) whole numbers from 0, in the kind of the input. Errors: as in `predict_proba`.
        """
        found: Any = self._of_rows(X, mixture.likeliest, "", None, "mixture", client=client)
        return cast(Rows, found.astype(np.int64))

    def transform(
        self, X: Data, *, out: PathLike | None = None, overwrite: bool = False, client: Where = None
    ) -> Rows | str:
        """Posterior means E[z|x, c] = M_c⁻¹W_cᵀΨ_c⁻¹(x − μ_c) with M_c = I + W_cᵀΨ_c⁻¹W_c, in the component c that
        `predict` gives.

        The coordinates of different components have nothing in common: compare those of one component.

        Parameters: as in `predict_proba`.
        Returns: (N, K) in the kind of the input, or the path. Errors: as in `predict_proba`.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        self._require_fitted()
        names = self.component_names_
        return self._of_rows(X, mixture.scores, "component", names, "scores", **options)

    def reconstruct(
        self, X: Data, *, out: PathLike | None = None, overwrite: bool = False, client: Where = None
    ) -> Rows | str:
        """The rows as their components see them: W_c E[z|x, c] + μ_c, in the component c that `predict` gives.

        Parameters: as in `predict_proba`.
        Returns: (N, D) in the kind of the input, or the path. Errors: as in `predict_proba`.
        """
        labels = self._require_fitted().labels
        names = np.arange(self.n_features_in_) if labels.features is None else np.asarray(labels.features)
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        return self._of_rows(X, mixture.reconstructions, labels.dims[1], names, "reconstructed", **options)

    def inverse_transform(self, Z: ScoresLike, labels: npt.ArrayLike) -> Array:
        """What the model expects of the features for given latent variables: E[x|z, c] = W_c z + μ_c.

        Parameters: `Z` (n, K) scores; `labels` (n,), of which component c each row is.
        Returns: (n, D), in units of the features.
        Errors: NotFittedError; DataError for another number of latent variables, or labels that are no components.
        """
        z, chosen = self._latent(Z), np.asarray(labels)
        if chosen.shape != (len(z),) or chosen.dtype.kind not in "iu" or not np.isin(chosen, self._mixture_names).all():
            raise DataError(
                f"the labels must be {len(z)} whole numbers from 0 to {len(self.weights_) - 1}, as `predict` gives them"
            )
        found = np.empty((len(z), self.n_features_in_))
        for c in self._mixture_names:
            found[chosen == c] = z[chosen == c] @ self.components_[c] + self.means_[c]
        return found

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        """Log-likelihood log p(x) = log Σ_c π_c N(x | μ_c, W_c W_cᵀ + Ψ_c) of each sample; O(DKM) each.

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N,) in nats, in the kind of the input. Errors: as in `predict_proba`.
        """
        return cast(Rows, self._of_rows(X, mixture.log_densities, "", None, "log_likelihood", client=client))

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats.

        Parameters: `X` (N, D); `y` is ignored.
        Returns: a number. Errors: as in `predict_proba`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, client=client))))

    def bic(self, X: Data, *, client: Where = None) -> float:
        """Bayesian information criterion −2 log p(X) + `n_parameters_` · log N: the lower, the better.

        Parameters: `X` (N, D). Returns: a number. Errors: as in `predict_proba`.
        """
        each = np.asarray(self.score_samples(X, client=client))
        return float(-2.0 * each.sum() + self.n_parameters_ * np.log(len(each)))

    def aic(self, X: Data, *, client: Where = None) -> float:
        """Akaike's information criterion −2 log p(X) + 2 `n_parameters_`: the lower, the better.

        Parameters: `X` (N, D). Returns: a number. Errors: as in `predict_proba`.
        """
        return float(-2.0 * np.asarray(self.score_samples(X, client=client)).sum() + 2.0 * self.n_parameters_)

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Draw samples from the model: c ~ π, z ~ N(0, I), x = W_c z + μ_c + ε.

        Parameters: `n_samples`; `random_state`, a seed or numpy Generator (None: another draw at every call).
        Returns: (n_samples, D), in units of the features, and the component of each (n_samples,).
        Errors: NotFittedError.
        """
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        z = rng.standard_normal((n_samples, self.components_.shape[1]))
        spread = np.sqrt(self._mixture.noise_variance)[labels]
        noise = rng.standard_normal((n_samples, self.n_features_in_)) * spread
        return self.inverse_transform(z, labels) + noise, labels
