"""What models of one table of samples share: the way from rows to results, and the fitted attributes."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.fitted.grid import feature_axis, over_features
from dlatent.fitting.outcome import Outcome
from dlatent.linear_gaussian import complete
from dlatent.linear_gaussian.expectation import pattern_projection
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.models.base import Given, LatentVariableModel
from dlatent.models.inputs import Data, Rows
from dlatent.models.map_rows import map_rows, open_input


class RowModel(LatentVariableModel):
    """A model of samples × features."""

    def _given(self, X: Data, dim: str | None = None, weights: xr.DataArray | None = None) -> Given:
        """The data of a fit, which the model can be fitted to."""
        self._check_hyperparameters()
        source, _ = open_input(X, dim=dim, weights=weights)
        self._check_shape(source)
        return Given(source)

    def _mapped(
        self, X: Data, function: Any, name: str, columns: str = "", names: Any = None, *, holes: bool | None = None,
        **options: Any,
    ) -> Rows | str:  # fmt: skip
        """A function of rows over data, in the kind of the data; `holes` says whether NaN is a missing entry."""
        known = self._known_features(holes=holes)
        return map_rows(X, function, known, columns=columns, names=names, name=name, **options)

    def _feature_axis(self) -> dict[str, Any]:
        """The dimension of results that have a column for each feature, and its labels."""
        return feature_axis(self._require_fitted().labels, self.n_features_in_)

    def _over_features(self, rows: Array, like: Any = None) -> Array | xr.DataArray:
        """Rows of features (n, D) as the data of the fit had them; see `over_features`."""
        return over_features(rows, self._require_fitted().labels, like)


class LinearModel(RowModel):
    """A model x = Wz + μ + ε; see PPCA.

    Attributes
    ----------
    n_components_effective_ : int
        How many components are not zero: with `prior="ard"` those that the data support.
    noise_variance_ : float
        σ², in squared units of the features.
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each component, noise included.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as parts of the total variance of the features.
    at_floor_ : tuple of bool
        Whether the noise variance is at its floor.
    """

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        self._publish_loadings(outcome)
        self._publish_course(outcome, passes)
        self.noise_variance_ = float(outcome.parameters.noise_variance[0])
        self.at_floor_ = outcome.at_floor
        loadings = outcome.parameters.loadings[outcome.specification.slices[0]]
        self.explained_variance_: Array = (loadings**2).sum(axis=0) + self.noise_variance_
        self.explained_variance_ratio_: Array = self.explained_variance_ / (
            outcome.total_variance[0] * self.n_features_in_
        )

    def _publish_loadings(self, outcome: Outcome) -> None:
        """What the fit says of the features."""
        own = outcome.specification.slices[0]
        self.components_ = outcome.parameters.loadings[own].T
        self.mean_ = outcome.parameters.mean[own]
        self.n_features_in_ = len(self.mean_)

    @property
    def n_components_effective_(self) -> int:
        """How many components are not zero."""
        self._require_fitted()
        return int(self._parameters.loadings[:, : self.n_components_].any(axis=0).sum())

    @property
    def _functions(self) -> ModuleType:
        """The functions of rows, without or with missing entries."""
        return complete if self._missing == "raise" else incomplete

    def _rows(self, function: Any) -> Any:
        """A function of rows at the fitted parameters."""
        self._require_fitted()
        return partial(function, parameters=self._parameters, specification=self._specification)

    def _rows_at(self, outcome: Outcome, function: Any) -> Any:
        """A function of rows at the parameters of an outcome that the model has not taken yet."""
        return partial(function, parameters=outcome.parameters, specification=outcome.specification)

    def _scores(self, X: Data, targets: Array | None, **options: Any) -> Rows | str:
        """Posterior means of the rows, with encoded targets (N, L') where there are any."""
        function, names = self._rows(self._functions.scores), self.component_names_
        return self._mapped(X, function, "scores", "component", names, targets=targets, **options)

    def _log_likelihoods(self, X: Data, targets: Array | None, client: Where) -> Rows:
        """Log-likelihoods of the rows, with encoded targets (N, L') where there are any."""
        function = self._likelihood_function()
        return cast(Rows, self._mapped(X, function, "log_likelihood", targets=targets, client=client))

    def _likelihood_function(self) -> Any:
        """The log-likelihood as a function of rows and their encoded targets."""
        return self._rows(self._functions.log_likelihoods)

    def _posterior(self, X: Data, targets: Array | None, client: Where, **options: Any) -> xr.Dataset:
        """Scores and posterior covariances, with encoded targets (N, L') where there are any."""
        options = {"targets": targets, "client": client, **options}
        scores = cast(Rows, self._scores(X, **options))
        if self._missing != "raise":
            names, function = np.arange(self._n_features_out**2), self._rows(incomplete.covariances)
            each = self._mapped(X, function, "covariance", "entry", names, **options)
            return own_posteriors(scores, np.asarray(each))
        patterns: tuple[tuple[int, ...], ...] = ((0,),) if targets is None else ((0, 1), (0,))
        covariances = [pattern_projection(self._parameters, self._specification, p).covariance for p in patterns]
        pattern = np.zeros(scores.shape[0], dtype=np.int64) if targets is None else np.isnan(targets[:, 0])
        return posterior_dataset(scores, np.stack(covariances), pattern.astype(np.int64))


def _labelled(scores: Any) -> Any:
    """Scores as a DataArray."""
    if isinstance(scores, xr.DataArray):
        return scores
    return xr.DataArray(scores, dims=("sample", "component"), coords={"component": np.arange(scores.shape[1])})


def own_posteriors(scores: Any, covariances: Array) -> xr.Dataset:
    """Scores (N, K) and the posterior covariance of each row, (N, K²), as a Dataset."""
    scores = _labelled(scores)
    rows, k = scores.shape
    own = (scores.dims[0], "component", "component_2")
    return xr.Dataset({"scores": scores, "covariance": (own, covariances.reshape(rows, k, k))})


def posterior_dataset(scores: Any, covariances: Array, pattern: npt.NDArray[np.int64]) -> xr.Dataset:
    """Scores and posterior covariances as a Dataset; samples of one pattern share a covariance."""
    scores, both = _labelled(scores), ("component", "component_2")
    if len(covariances) == 1:
        return xr.Dataset({"scores": scores, "covariance": (both, covariances[0])})
    return xr.Dataset(
        {"scores": scores, "covariance": (("pattern", *both), covariances), "pattern_of": (scores.dims[0], pattern)}
    )
