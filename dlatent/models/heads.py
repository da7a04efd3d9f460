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
from dlatent.fitted.room import require_room
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.dimension import free_numbers
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.models.callbacks import Callback
from dlatent.models.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.models.linear import LinearModel, RowModel


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
        """What `fit` would do and cost, from metadata alone: solver and why, passes, bytes, tasks, memory."""
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
        """Fit the model to samples × features."""
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
        r"""Scores: the mean of the latent variables of each sample, given its features.

        .. math:: E[z \mid x] = M^{-1} W^\top \Psi^{-1} (x - \mu), \qquad M = I + W^\top \Psi^{-1} W

        with the noise Ψ, which is σ²I in all models but factor analysis.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input (numpy, lazy Dask, xarray with dims (sample, component)), or the path `out`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For other features or another order of them, and naming row and column of NaN or infinity (of a lazy result
            when it is computed).

        Warns
        -----
        UserWarning
            Where the order of the features cannot be checked.
        """
        return self._scores(X, None, out=out, overwrite=overwrite, resume=resume, client=client)

    def posterior(self, X: Data, *, client: Where = None) -> xr.Dataset:
        r"""The distribution of the latent variables of each sample, given its features.

        .. math:: z \mid x \sim N\left(M^{-1} W^\top \Psi^{-1} (x - \mu),\; M^{-1}\right), \qquad
            M = I + W^\top \Psi^{-1} W

        Returns
        -------
        xarray.Dataset
            `scores` (sample, component) and `covariance` (component, component_2), shared by all samples; where entries
            may be missing each sample has its own (sample, component, component_2).

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            As in `transform`.
        """
        return self._posterior(X, None, client)


class Scores(LinearModel):
    """Models that give the likelihood of rows."""

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        r"""Log-likelihood of each sample, in O(DK) each.

        .. math:: \log p(x) = -\frac{1}{2} \left[ D \,\log\, 2\pi + \log |C| + (x - \mu)^\top C^{-1} (x - \mu) \right]

        Returns
        -------
        array of shape (n_samples,)
            In nats, in the kind of the input.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            As in `transform`.
        """
        return self._log_likelihoods(X, None, client)

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats (as scikit-learn's PCA.score).

        Returns
        -------
        float
            The mean of `score_samples`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, client=client))))


class Criteria(RowModel):
    """Models of independent rows that are compared by their likelihood and their number of parameters.

    Attributes
    ----------
    n_parameters_ : int
        Free numbers of the model, rotations of the loadings not counted; for `bic` and `aic`.
    """

    _parameters: Parameters

    @property
    def n_parameters_(self) -> int:
        """Free numbers of the model, rotations of the loadings not counted: DK − K(K − 1)/2 + D, and those of the
        noise."""
        self._require_fitted()
        features, components = self._parameters.loadings.shape
        return free_numbers(features, components, len(self._parameters.noise_variance))

    def bic(self, X: Data, *, client: Where = None) -> float:
        """Bayesian information criterion: the lower, the better.

        Returns
        -------
        float
            −2 log p(X) + `n_parameters_` · log N.
        """
        each = np.asarray(self.score_samples(X, client=client))
        return float(-2.0 * each.sum() + self.n_parameters_ * np.log(len(each)))

    def aic(self, X: Data, *, client: Where = None) -> float:
        """Akaike's information criterion: the lower, the better.

        Returns
        -------
        float
            −2 log p(X) + 2 `n_parameters_`.
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
        r"""The data with each missing entry (NaN) replaced by its mean given the observed entries of its row.

        .. math:: x_j \mid x_o \sim N\left(\mu_j + w_j^\top E[z \mid x_o],\;
            w_j^\top \,\operatorname{Cov}[z \mid x_o] w_j + \psi_j\right)

        with x_j a missing entry, x_o the observed ones, and w_j the loadings of feature j.

        Returns
        -------
        array of shape (n_samples, n_features), or str
            In the kind of the input, or the path `out`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For other features, infinite values, or sparse data.
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
        """The variance of each missing entry given the observed entries of its row, noise included.

        Returns
        -------
        array of shape (n_samples, n_features), or str
            0 where an entry was observed; in the kind of the input, or the path `out`.

        Raises
        ------
        NotFittedError, DataError
            As in `impute`.
        """
        function, name = incomplete.imputed_variances, "imputed_variance"
        return self._imputed(function, X, None, name, out=out, overwrite=overwrite, resume=resume, client=client)


class Reconstructs(LinearModel):
    """Models that lead back from latent variables to features.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Wᵀ, loadings in units of the features; rows in decreasing order of explained variance.
    mean_ : ndarray of shape (n_features,)
        μ, in units of the features.
    """

    def inverse_transform(self, Z: ScoresLike) -> npt.NDArray[Any] | xr.DataArray:
        """What the model expects of the features for given latent variables, E[x|z] = Wz + μ.

        Returns
        -------
        array of shape (n_samples, n_features)
            In units of the features.  A DataArray over the dimensions of the features where the fit had several of
            them, and where it had a DataArray and `Z` is one.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For another number of components, or for their labels in another order.
        """
        return self._over_features(np.asarray(self._latent(Z) @ self.components_ + self.mean_), Z)

    def get_covariance(self) -> Array:
        """The model's covariance of the features, C = WWᵀ + Ψ.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            In squared units of the features.
        """
        self._require_fitted()
        return self._covariance(self._own)

    def get_precision(self) -> Array:
        r"""The inverse of `get_covariance`, with the noise Ψ, σ²I or diag ψ.

        .. math:: C^{-1} = \Psi^{-1} - \Psi^{-1} W (I + W^\top \Psi^{-1} W)^{-1} W^\top \Psi^{-1}

        Returns
        -------
        ndarray of shape (n_features, n_features)
            In units of the features to the power of −2.
        """
        self._require_fitted()
        loadings = self._parameters.loadings[self._own]
        instead = "use its formula in the documentation instead, whose factors are features × components"
        require_room(len(loadings), len(loadings), "the precision of the features", instead)
        noise = self._specification.per_feature(self._parameters.noise_variance)[self._own]
        white = loadings / np.sqrt(noise)[:, None]
        factor = np.linalg.cholesky(np.eye(white.shape[1]) + white.T @ white)
        explained = np.linalg.solve(factor, (white / np.sqrt(noise)[:, None]).T)
        found = np.asarray(-explained.T @ explained)
        found.flat[:: len(noise) + 1] += 1.0 / noise
        return found


class Draws(LinearModel):
    """Models that samples are drawn from."""

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> npt.NDArray[np.float64] | xr.DataArray:
        """Draw samples from the model: z ~ N(0, I), x = Wz + μ + ε.

        Returns
        -------
        array of shape (n_samples, n_features)
            In units of the features; a DataArray over the dimensions of the features where the fit had several of them.
        """
        return self._over_features(self._drawn(n_samples, random_state))
