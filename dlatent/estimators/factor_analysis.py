"""Factor analysis: a noise variance for each feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Features
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.errors import DataError
from dlatent.estimators.base import Fitted, Given
from dlatent.estimators.hyperparameters import FactorAnalysisHyperparameters
from dlatent.estimators.inputs import Data, PathLike, Rows
from dlatent.estimators.ppca import PPCA
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import Task
from dlatent.linear_gaussian import expectation
from dlatent.linear_gaussian.factor_analysis import bartlett_coefficients
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.rotation import Rotated, oblimin, promax, quartimax, varimax
from dlatent.linear_gaussian.specification import Specification

Method = Literal["varimax", "quartimax", "promax", "oblimin"]
METHODS: dict[str, Callable[..., Rotated]] = {
    "varimax": varimax,
    "quartimax": quartimax,
    "promax": promax,
    "oblimin": oblimin,
}


def bartlett_rows(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Bartlett's scores (n, K) of complete rows (n, D)."""
    noise = specification.per_feature(parameters.noise_variance)
    coefficients = bartlett_coefficients(parameters.loadings, noise)
    about = expectation.Projection(coefficients, np.eye(len(coefficients)), 0.0)
    return expectation.scores(x, about, parameters.mean)


class FactorAnalysis(FactorAnalysisHyperparameters, PPCA):
    r"""Factor analysis, fitted by maximum likelihood.

    .. math:: x = W z + \mu + \varepsilon, \qquad z \sim N(0, I_K), \quad \varepsilon \sim N(0, \Psi),
        \quad \Psi = \operatorname{diag}(\psi_1, \ldots, \psi_D)

    Unlike PPCA it does not depend on the units of the features.  The loadings are found up to a rotation; the model
    keeps the canonical one, with WᵀΨ⁻¹W diagonal and decreasing, unless `rotation` asks for another.  Complete data
    with few features are fitted to rounding.

    Attributes
    ----------
    noise_variance_ : ndarray of shape (n_features,)
        ψ, in squared units of the features.
    communalities_ : ndarray of shape (n_features,)
        The part of each feature's variance that the factors explain, Σ_k w_jk²/(Σ_k w_jk² + ψ_j).
    uniquenesses_ : ndarray of shape (n_features,)
        The rest, 1 − `communalities_`.
    explained_variance_ : ndarray of shape (n_components,)
        Σ_j w_jk²/(variance of x_j): in how many features' worth of variance a factor is seen.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as parts of D.
    at_floor_ : ndarray of bool of shape (n_features,)
        Heywood cases: features whose noise variance is at its floor.

    References
    ----------
    Jöreskog (1967); with missing entries Ham, Lee and Saul (2003), appendix A, corrected.  Read more in
    :doc:`/models/factor_analysis`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dlatent import FactorAnalysis
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = FactorAnalysis(1).fit(X)
    >>> model.communalities_.round(1)
    array([0.8, 0.2, 1. , 0.9])
    """

    noise_variance_: Array  # type: ignore[assignment]
    at_floor_: npt.NDArray[np.bool_]  # type: ignore[assignment]
    _shared = False

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        if self.rotation is not None:
            parameters = fitted.outcome.parameters
            turned = parameters.loadings @ self._rotation(parameters, self.rotation).transformation
            outcome = replace(fitted.outcome, parameters=parameters._replace(loadings=turned))
            fitted = replace(fitted, outcome=outcome)
        super()._keep(fitted, task, given)

    def _rotation(self, parameters: Parameters, method: str, **options: float) -> Rotated:
        """A rotation of the loadings of standardised features: features weigh alike, whatever their units."""
        spread = np.sqrt((parameters.loadings**2).sum(axis=1) + parameters.noise_variance)
        return METHODS[method](parameters.loadings / spread[:, None], **options)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        super()._publish(outcome, passes)
        self.noise_variance_ = outcome.parameters.noise_variance
        explained = (self.components_**2).sum(axis=0)
        self.communalities_: Array = explained / (explained + self.noise_variance_)
        self.uniquenesses_: Array = 1.0 - self.communalities_
        self.explained_variance_ = (self.components_**2 / (explained + self.noise_variance_)).sum(axis=1)
        self.explained_variance_ratio_ = self.explained_variance_ / self.n_features_in_
        self.at_floor_ = np.array(outcome.at_floor)

    def transform(
        self,
        X: Data,
        *,
        scores: Literal["regression", "bartlett"] = "regression",
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        r"""Factor scores, by regression or Bartlett's.

        .. math:: E[z \mid x] = (I + W^\top \Psi^{-1} W)^{-1} W^\top \Psi^{-1} (x - \mu), \qquad
            \hat z = (W^\top \Psi^{-1} W)^{-1} W^\top \Psi^{-1} (x - \mu)

        Regression scores have the smallest error.  Bartlett's are unbiased given z, and need as many observed entries
        in a row as there are factors.

        Parameters
        ----------
        scores : {"regression", "bartlett"}, default "regression"
            Which of the two.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input, or the path `out`.  Bartlett's are NaN where too few entries of a row are
            observed.

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        """
        if scores not in ("regression", "bartlett"):
            raise DataError(f"scores is {scores!r}; expected 'regression' or 'bartlett'")
        if scores == "regression":
            return super().transform(X, out=out, overwrite=overwrite, resume=resume, client=client)
        function = self._rows(bartlett_rows if self._missing == "raise" else incomplete.bartlett)
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._mapped(X, function, "scores", "component", self.component_names_, **options)

    def rotated(self, method: Method = "varimax", *, power: float = 4.0) -> xr.Dataset:
        r"""The same model with loadings of simple structure.

        .. math:: \Lambda = W T, \qquad f = T^{-1} z, \qquad W W^\top = \Lambda \Phi \Lambda^\top

        with the correlations Φ of the rotated factors f.  Their scores are `transform(X) @ inv(T).T`.

        Parameters
        ----------
        method : {"varimax", "quartimax", "promax", "oblimin"}, default "varimax"
            The first two are orthogonal, the others oblique; "oblimin" is the direct one with γ = 0.
        power : float, default 4.0
            Of promax.

        Returns
        -------
        xarray.Dataset
            `loadings` Λ (feature, component), `correlations` Φ and `transformation` T (component, component_2).

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For another method.
        """
        fitted = self._require_fitted()
        if method not in METHODS:
            *first, last = map(repr, get_args(Method))
            raise DataError(f"method is {method!r}; expected {', '.join(first)} or {last}")
        found = self._rotation(self._parameters, method, **({"power": power} if method == "promax" else {}))
        feature, square = fitted.labels.dims[1], ("component", "component_2")
        coordinates = {} if fitted.labels.features is None else {feature: np.asarray(fitted.labels.features)}
        dataset = xr.Dataset(
            {
                "loadings": ((feature, "component"), self.components_.T @ found.transformation),
                "correlations": (square, found.correlations),
                "transformation": (square, found.transformation),
            },
            coords={**coordinates, "component": self.component_names_},
            attrs={"method": method},
        )
        return self._over_dimensions(dataset)
