"""What a fitted model of one table of samples can do; a model is put together from these.

Each head is defined once, over rows, parameters and specification.  A model without a head does not have its methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import xarray as xr

from dlatent.engine.connect import Where
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.dimension import free_numbers
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.models.callbacks import Callback
from dlatent.models.inputs import Data, PathLike, Rows, TargetsLike
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
