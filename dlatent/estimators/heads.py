"""What a fitted model of one table of samples can do; a model is put together from these.

Each head is defined once, over rows, parameters and specification.  A model without a head does not have its methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.estimators.callbacks import Callback
from dlatent.estimators.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.estimators.linear import LinearModel, RowModel
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters


class Fits(RowModel):
    """Models that are fitted to features alone."""

    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, from metadata alone: solver and why, passes, bytes, tasks, memory.

        Parameters: `X` (N, D), `dim`, `weights` and `client` as in `fit`; `y` is ignored.
        Returns: the plan; `str(plan)` is a page to read.
        Errors: PlanError where no solver fits in memory, with the way out; DataError for data that cannot be fitted.
        """
        return self._plan(self._given(X, dim, weights), client)

    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to samples × features of any kind that `dlatent.stores.open` takes.

        Parameters: `X` (N, D) numpy, scipy.sparse, dask.array, xarray, a data frame of pandas or polars, zarr, or the
        path or URL of a Zarr store; `y` is ignored; `dim`, of xarray data of any number of dimensions, the one that the
        samples lie along: all cells of the others are features, but for those without a value in any sample; `weights`,
        a DataArray over some of these others: features are multiplied by its square root in the model, and results
        are given without; `client` a distributed.Client (None: the active one, or this process's threads);
        `callbacks` hear how the fit goes on; `checkpoint`, a directory or URL that gets the result of every pass;
        `resume` (True) goes on behind the last one of them, or begins where there is no checkpoint, and gives the bits
        of a fit that was not interrupted.  The checkpoint stays until you remove it.
        Errors: DataError naming row, column and block; PlanError before data move; StoreError for a checkpoint of
        another fit, with what differs; warns ConvergenceWarning, NoiseFloorWarning, PrecisionWarning, DataWarning.
        """
        return self._fit(self._given(X, dim, weights), client, callbacks, checkpoint, resume)


class Transforms(LinearModel):
    """Models that give the latent variables of rows."""

    def transform(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Posterior means E[z|x] = M⁻¹Wᵀ(x − μ)/σ² with M = I + WᵀW/σ².

        Parameters: `X` (N, D); `out`, a Zarr store to be written instead of memory, `overwrite` one that is there;
        `resume`, to keep what an interrupted call has written and to go on from there; `client` as in `fit`.
        Returns: (N, K) in the kind of the input (numpy, lazy dask, xarray with dims (sample, component)), or the
        path.
        Errors: NotFittedError; DataError for other features or another order of them, and naming row and column of NaN
        or infinity (of a lazy result when it is computed); a UserWarning where the order cannot be checked.
        """
        return self._scores(X, None, out=out, overwrite=overwrite, resume=resume, client=client)

    def posterior(self, X: Data, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables: z | x ~ N(M⁻¹Wᵀ(x − μ)/σ², M⁻¹) with M = I + WᵀW/σ².

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: Dataset with `scores` (sample, component) and `covariance` (component, component_2), shared by all
        rows; where entries may be missing each row has its own (sample, component, component_2).
        Errors: NotFittedError; DataError as in `transform`.
        """
        return self._posterior(X, None, client)


class Scores(LinearModel):
    """Models that give the likelihood of rows."""

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        """Log-likelihood log p(x) = −½ [D log 2π + log|C| + (x−μ)ᵀC⁻¹(x−μ)] of each sample; O(DK) each.

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N,) in nats, in the kind of the input.
        Errors: NotFittedError; DataError as in `transform`.
        """
        return self._log_likelihoods(X, None, client)

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats (as scikit-learn's PCA.score).

        Parameters: `X` (N, D); `y` is ignored.
        Returns: a number. Errors: as in `score_samples`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, client=client))))


def free_numbers(features: int, components: int, noises: int) -> int:
    """Free numbers of W (without its rotations), of μ, and of the noise variances."""
    return features * (components + 1) - components * (components - 1) // 2 + noises


class Criteria(RowModel):
    """Models of independent rows that are compared by their likelihood and their number of parameters."""

    _parameters: Parameters

    @property
    def n_parameters_(self) -> int:
        """Free numbers of the model, rotations of the loadings not counted: DK − K(K − 1)/2 + D, and those of the
        noise."""
        self._require_fitted()
        features, components = self._parameters.loadings.shape
        return free_numbers(features, components, len(self._parameters.noise_variance))

    def bic(self, X: Data, *, client: Where = None) -> float:
        """Bayesian information criterion −2 log p(X) + `n_parameters_` · log N: the lower, the better.

        Parameters: `X` (N, D); `client` as in `fit`. Returns: a number. Errors: as in `score_samples`.
        """
        each = np.asarray(self.score_samples(X, client=client))
        return float(-2.0 * each.sum() + self.n_parameters_ * np.log(len(each)))

    def aic(self, X: Data, *, client: Where = None) -> float:
        """Akaike's information criterion −2 log p(X) + 2 `n_parameters_`: the lower, the better.

        Parameters: `X` (N, D); `client` as in `fit`. Returns: a number. Errors: as in `score_samples`.
        """
        return float(-2.0 * np.asarray(self.score_samples(X, client=client)).sum() + 2.0 * self.n_parameters_)

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        """Log-likelihood of each sample (N,)."""
        raise NotImplementedError


class Imputing(LinearModel):
    """Models that fill in missing entries of rows."""

    def _imputed(self, function: Any, X: Data, targets: Array | None, name: str, **options: Any) -> Rows | str:
        self._require_fitted()
        if self._missing == "unstored":
            raise DataError(
                "the rows of sparse data are too many to be filled in whole; transform them, and take from "
                "inverse_transform of a few scores what is wanted"
            )
        options |= {"power": 2 if function is incomplete.imputed_variances else 1, "targets": targets, "holes": True}
        return self._mapped(X, self._rows(function), name, **self._feature_axis(), **options)


class Imputes(Imputing):
    """Models that fill in missing entries of rows, from the features alone."""

    def impute(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """The data with each missing entry (NaN) replaced by its mean given the observed entries of its row.

        x_j | x_o ~ N(μ_j + w_jᵀE[z|x_o], w_jᵀ Cov[z|x_o] w_j + ψ_j).

        Parameters: `X` (N, D) dense, NaN where missing; `out`, `overwrite`, `resume` and `client` as in `transform`.
        Returns: (N, D) in the kind of the input (numpy, lazy dask, xarray), or the path of the store.
        Errors: NotFittedError; DataError for other features, infinite values, or sparse data.
        """
        return self._imputed(
            incomplete.imputed, X, None, "imputed", out=out, overwrite=overwrite, resume=resume, client=client
        )

    def impute_variance(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """The variance of each missing entry given the observed entries of its row, noise included; 0 where observed.

        Parameters, returns and errors: as in `impute`.
        """
        function, name = incomplete.imputed_variances, "imputed_variance"
        return self._imputed(function, X, None, name, out=out, overwrite=overwrite, resume=resume, client=client)


class Reconstructs(LinearModel):
    """Models that lead back from latent variables to features."""

    def inverse_transform(self, Z: ScoresLike) -> npt.NDArray[Any] | xr.DataArray:
        """What the model expects of the features for given latent variables: E[x|z] = Wz + μ.

        Parameters: `Z` (n, K) scores.
        Returns: (n, D), in units of the features; a DataArray over the dimensions of the features where the fit had
        several of them, and where it had a DataArray and `Z` is one.
        Errors: NotFittedError; DataError for another number of components, or for their labels in another order.
        """
        return self._over_features(np.asarray(self._latent(Z) @ self.components_ + self.mean_), Z)

    def get_covariance(self) -> Array:
        """The model's covariance of the features, C = WWᵀ + σ²I.

        Returns: (D, D), in squared units of the features. Errors: NotFittedError.
        """
        self._require_fitted()
        return self._covariance(self._own)

    def get_precision(self) -> Array:
        """The inverse of `get_covariance`: C⁻¹ = Ψ⁻¹ − Ψ⁻¹W(I + WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹ with the noise Ψ, σ²I or diag ψ.

        Returns: (D, D), in units of the features to the power of −2. Errors: NotFittedError.
        """
        self._require_fitted()
        loadings = self._parameters.loadings[self._own]
        noise = self._specification.per_feature(self._parameters.noise_variance)[self._own]
        white = loadings / np.sqrt(noise)[:, None]
        factor = np.linalg.cholesky(np.eye(white.shape[1]) + white.T @ white)
        explained = np.linalg.solve(factor, (white / np.sqrt(noise)[:, None]).T)
        return np.asarray(np.diag(1.0 / noise) - explained.T @ explained)


class Draws(LinearModel):
    """Models that samples are drawn from."""

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> npt.NDArray[np.float64] | xr.DataArray:
        """Draw samples from the model: z ~ N(0, I), x = Wz + μ + ε.

        Parameters: `n_samples`; `random_state`, a seed or numpy Generator (None: another draw at every call).
        Returns: (n_samples, D), in units of the features; a DataArray over the dimensions of the features where the
        fit had several of them. Errors: NotFittedError.
        """
        return self._over_features(self._drawn(n_samples, random_state))
