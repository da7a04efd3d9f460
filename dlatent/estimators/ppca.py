"""Probabilistic principal component analysis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Features
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.errors import DataError
from dlatent.estimators.base import LatentVariableModel
from dlatent.estimators.callbacks import Callback
from dlatent.estimators.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.estimators.map_rows import map_rows, open_input
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.expectation import pattern_projection
from dlatent.linear_gaussian.likelihood import log_likelihoods, posterior_means
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification


def score_rows(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Posterior means of the latent variables (n, K), from features and, where present, targets."""
    return _per_pattern(x, y, parameters, specification, _means)


def likelihood_rows(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Log-likelihood of each row (n,), of features and, where present, targets."""
    return _per_pattern(x, y, parameters, specification, log_likelihoods)


def _means(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    return posterior_means(x, y, parameters, specification)[0]


def _per_pattern(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, function: Any
) -> Array:
    """Rows with and without targets go their own ways and come back in order."""
    if y is None:
        return np.asarray(function(x, None, parameters, specification))
    present = ~np.isnan(y[:, 0])
    if present.all():
        return np.asarray(function(x, y, parameters, specification))
    without = np.asarray(function(x[~present], None, parameters, specification))
    found = np.empty((len(present), *without.shape[1:]))
    found[~present] = without
    if present.any():
        found[present] = function(x[present], y[present], parameters, specification)
    return found


class PPCA(LatentVariableModel):
    """Probabilistic PCA: x = Wz + μ + ε with z ~ N(0, I_K) and ε ~ N(0, σ²I), fitted by maximum likelihood.

    Parameters
    ----------
    n_components : K, the number of latent variables; less than the numbers of samples and features.
    tol : relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over the data (60), or EM iterations with solver="em" (2,000); None takes these.
    random_state : seed of the first directions.
    solver : "auto" takes the cheapest of those that find the global maximum: "covariance" (one pass, D² numbers),
        "krylov" (about ten passes, D·K) and, with fewer samples than features, "gram" (two passes, N² numbers); data
        with missing entries go by "accelerated_em" (about twenty passes).  "em" is textbook EM, for teaching and
        checking.
    noise_floor : smallest noise variance, as a part of the mean variance of the features.
    zero_rows : "keep" fits rows of zeros, and a warning counts them; "raise" stops at the first.
    missing : "raise" raises for NaN; with "nan" the entries of dense data that are NaN are missing, with "unstored"
        the stored entries of sparse data, zeros among them, are the observed ones.  The model is then that of the
        observed entries, wherever they are; `transform`, `posterior`, `score_samples` and `impute` take such rows too.

    Attributes
    ----------
    components_ : Wᵀ (K, D), loadings in units of the features; rows in decreasing order of explained variance.
    mean_ : μ (D,), in units of the features.
    noise_variance_ : σ², in squared units of the features.
    explained_variance_ : (K,), variance along each component, noise included.
    explained_variance_ratio_ : (K,), the same as parts of the total variance of the features.
    log_likelihood_ : of all samples, in nats.
    n_iter_ : iterations of the loop, as in `history_`.
    n_passes_ : passes over the data, the initial mean of their first block not counted.
    converged_ : whether the tolerance was met.
    at_floor_ : one truth value, whether the noise variance is at its floor.
    n_samples_ : number of samples N.
    n_features_in_ : number of features D.
    feature_names_in_ : names of the features (D,), where the data of the fit had names, all of them texts.
    history_ : Dataset with a line for each iteration and for each pass.
    plan_ : what was planned, as a dictionary: route, reason, passes, bytes and memory.

    Source: Tipping and Bishop (1999), equations (7)–(8); "Routes" of this documentation for many features.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Seed = 0,
        solver: Literal["auto", "covariance", "krylov", "gram", "accelerated_em", "em"] = "auto",
        noise_floor: float = 1e-6,
        zero_rows: Literal["keep", "raise"] = "keep",
        missing: Literal["raise", "nan", "unstored"] = "raise",
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.solver = solver
        self.noise_floor = noise_floor
        self.zero_rows = zero_rows
        self.missing = missing

    def plan(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> Plan:
        """What `fit` would do and cost, from metadata alone: route and why, passes, bytes, tasks, memory.

        Parameters: `X` (N, D) and `client` as in `fit`; `y` is ignored.
        Returns: the plan; `str(plan)` is a page to read.
        Errors: PlanError where no route fits in memory, with the way out; DataError for data that cannot be fitted.
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
        Errors: DataError naming row, column and block; PlanError before data moves; warns ConvergenceWarning,
        NoiseFloorWarning, PrecisionWarning.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        self._fit(source, None, client, callbacks)
        return self

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        self._publish_loadings(outcome)
        self._publish_course(outcome, passes)
        self.noise_variance_ = float(outcome.parameters.noise_variance[0])
        self.at_floor_ = outcome.at_floor
        loadings = outcome.parameters.loadings[outcome.specification.slices[0]]
        self.explained_variance_: Array = (loadings**2).sum(axis=0) + self.noise_variance_
        self.explained_variance_ratio_: Array = self.explained_variance_ / (outcome.total_variance[0] * self._dimension)

    def _publish_loadings(self, outcome: Outcome) -> None:
        """What the fit says of the features."""
        own = outcome.specification.slices[0]
        self.components_ = outcome.parameters.loadings[own].T
        self.mean_ = outcome.parameters.mean[own]
        self.n_features_in_ = len(self.mean_)

    @property
    def _dimension(self) -> int:
        """Number of features that share the noise."""
        return self.n_features_in_

    def _rows(self, function: Any) -> Any:
        self._require_fitted()
        return partial(function, parameters=self._parameters, specification=self._specification)

    def _scores(self, X: Data, targets: Array | None, **options: Any) -> Rows | str:
        """Posterior means of the rows, with encoded targets (N, L') where there are any."""
        function = self._rows(score_rows if self.missing == "raise" else incomplete.scores)
        names, known = self.component_names_, self._known_features()
        return map_rows(X, function, known, columns="component", names=names, name="scores", targets=targets, **options)

    def _log_likelihoods(self, X: Data, targets: Array | None, *, client: Where) -> Rows:
        """Log-likelihoods of the rows, with encoded targets (N, L') where there are any."""
        function, known = self._likelihood_function(), self._known_features()
        options: dict[str, Any] = {"columns": "", "names": None, "name": "log_likelihood", "client": client}
        return cast(Rows, map_rows(X, function, known, targets=targets, **options))

    def _likelihood_function(self) -> Any:
        """The log-likelihood as a function of rows and their encoded targets."""
        return self._rows(likelihood_rows if self.missing == "raise" else incomplete.log_likelihoods)

    def _covariances(self, X: Data, targets: Array | None, *, client: Where) -> Array:
        """The posterior covariance of each row (N, K²)."""
        names = np.arange(self._n_features_out**2)
        options: dict[str, Any] = {"columns": "entry", "names": names, "name": "covariance", "client": client}
        function = self._rows(incomplete.covariances)
        return np.asarray(map_rows(X, function, self._known_features(), targets=targets, **options))

    def transform(
        self, X: Data, *, out: PathLike | None = None, overwrite: bool = False, client: Where = None
    ) -> Rows | str:
        """Posterior means E[z|x] = M⁻¹Wᵀ(x − μ)/σ² with M = I + WᵀW/σ².

        Parameters: `X` (N, D); `out`, a Zarr store to be written instead of memory, `overwrite` one that is there;
        `client` as in `fit`.
        Returns: (N, K) in the kind of the input (numpy, lazy dask, xarray with dims (sample, component)), or the
        path.
        Errors: NotFittedError; DataError for other features or another order of them, and naming row and column of NaN
        or infinity (of a lazy result when it is computed); a UserWarning where the order cannot be checked.
        """
        return self._scores(X, None, out=out, overwrite=overwrite, client=client)

    def posterior(self, X: Data, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables: z | x ~ N(M⁻¹Wᵀ(x − μ)/σ², M⁻¹) with M = I + WᵀW/σ².

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: Dataset with `scores` (sample, component) and `covariance` (component, component_2), shared by all
        rows; where entries may be missing each row has its own (sample, component, component_2).
        Errors: NotFittedError; DataError as in `transform`.
        """
        scores = cast(Rows, self.transform(X, client=client))
        if self.missing != "raise":
            return own_posteriors(scores, self._covariances(X, None, client=client))
        about = pattern_projection(self._parameters, self._specification, (0,))
        return posterior_dataset(scores, about.covariance[None], np.zeros(scores.shape[0], dtype=np.int64))

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        """Log-likelihood log p(x) = −½ [D log 2π + log|C| + (x−μ)ᵀC⁻¹(x−μ)] of each sample; O(DK) each.

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N,) in nats, in the kind of the input.
        Errors: NotFittedError; DataError as in `transform`.
        """
        return self._log_likelihoods(X, None, client=client)

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats (as scikit-learn's PCA.score).

        Parameters: `X` (N, D); `y` is ignored.
        Returns: a number. Errors: as in `score_samples`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, client=client))))

    def _imputed(self, function: Any, X: Data, targets: Array | None, name: str, options: dict[str, Any]) -> Rows | str:
        fitted = self._require_fitted()
        if self.missing == "unstored":
            raise DataError(
                "the rows of sparse data are too many to be filled in whole; transform them, and take from "
                "inverse_transform of a few scores what is wanted"
            )
        labels, width = fitted.labels.features, self.n_features_in_
        names = np.arange(width) if labels is None else np.asarray(labels)
        return map_rows(
            X,
            self._rows(function),
            self._known_features(holes=True),
            columns=fitted.labels.dims[1],
            names=names,
            name=name,
            targets=targets,
            **options,
        )

    def impute(
        self, X: Data, *, out: PathLike | None = None, overwrite: bool = False, client: Where = None
    ) -> Rows | str:
        """The data with each missing entry (NaN) replaced by its mean given the observed entries of its row.

        x_j | x_o ~ N(μ_j + w_jᵀE[z|x_o], w_jᵀ Cov[z|x_o] w_j + ψ_j).

        Parameters: `X` (N, D) dense, NaN where missing; `out`, `overwrite` and `client` as in `transform`.
        Returns: (N, D) in the kind of the input (numpy, lazy dask, xarray), or the path of the store.
        Errors: NotFittedError; DataError for other features, infinite values, or sparse data.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        return self._imputed(incomplete.imputed, X, None, "imputed", options)

    def impute_variance(
        self, X: Data, *, out: PathLike | None = None, overwrite: bool = False, client: Where = None
    ) -> Rows | str:
        """The variance of each missing entry given the observed entries of its row, noise included; 0 where observed.

        Parameters, returns and errors: as in `impute`.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        return self._imputed(incomplete.imputed_variances, X, None, "imputed_variance", options)

    def inverse_transform(self, Z: ScoresLike) -> npt.NDArray[Any]:
        """What the model expects of the features for given latent variables: E[x|z] = Wz + μ.

        Parameters: `Z` (n, K) scores.
        Returns: (n, D), in units of the features.
        Errors: NotFittedError; DataError for another number of components, or for their labels in another order.
        """
        return np.asarray(self._latent(Z) @ self.components_ + self.mean_)

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> npt.NDArray[np.float64]:
        """Draw samples from the model: z ~ N(0, I), x = Wz + μ + ε.

        Parameters: `n_samples`; `random_state`, a seed or numpy Generator (None: another draw at every call).
        Returns: (n_samples, D), in units of the features. Errors: NotFittedError.
        """
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        z = rng.standard_normal((n_samples, self.components_.shape[0]))
        noise = rng.standard_normal((n_samples, self.n_features_in_)) * np.sqrt(self.noise_variance_)
        return np.asarray(z @ self.components_ + self.mean_ + noise)

    def get_covariance(self) -> Array:
        """The model's covariance of the features, C = WWᵀ + σ²I.

        Returns: (D, D), in squared units of the features. Errors: NotFittedError.
        """
        self._require_fitted()
        return np.asarray(self.components_.T @ self.components_ + self.noise_variance_ * np.eye(self.n_features_in_))


def own_posteriors(scores: Any, covariances: Array) -> xr.Dataset:
    """Scores (N, K) and the posterior covariance of each row, (N, K²), as a Dataset."""
    if not isinstance(scores, xr.DataArray):
        scores = xr.DataArray(scores, dims=("sample", "component"), coords={"component": np.arange(scores.shape[1])})
    rows, k = scores.shape
    own = (scores.dims[0], "component", "component_2")
    return xr.Dataset({"scores": scores, "covariance": (own, np.asarray(covariances).reshape(rows, k, k))})


def posterior_dataset(scores: Any, covariances: Array, pattern: npt.NDArray[np.int64]) -> xr.Dataset:
    """Scores and posterior covariances as a Dataset; samples of one pattern share a covariance."""
    if not isinstance(scores, xr.DataArray):
        scores = xr.DataArray(scores, dims=("sample", "component"), coords={"component": np.arange(scores.shape[1])})
    both = ("component", "component_2")
    if len(covariances) == 1:
        return xr.Dataset({"scores": scores, "covariance": (both, covariances[0])})
    return xr.Dataset(
        {"scores": scores, "covariance": (("pattern", *both), covariances), "pattern_of": (scores.dims[0], pattern)}
    )
