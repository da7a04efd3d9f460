"""Factor analysis: a noise variance for each feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Features
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.errors import DataError
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import Task
from dlatent.linear_gaussian import expectation
from dlatent.linear_gaussian.complete import ModelFunction
from dlatent.linear_gaussian.factor_analysis import bartlett_coefficients
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.missing_entries.prior import turned
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.rotation import Rotated, oblimin, promax, quartimax, varimax
from dlatent.linear_gaussian.specification import Specification
from dlatent.models.base import Fitted, Given
from dlatent.models.hyperparameters import FactorAnalysisHyperparameters, Rotation
from dlatent.models.inputs import Data, PathLike, Rows
from dlatent.models.ppca import PPCA

METHODS: dict[str, Callable[..., Rotated]] = {
    "varimax": varimax,
    "quartimax": quartimax,
    "promax": promax,
    "oblimin": oblimin,
}
OBLIQUE = ("promax", "oblimin")


def bartlett_rows(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Bartlett's scores (n, K) of complete rows (n, D)."""
    noise = specification.per_feature(parameters.noise_variance)
    coefficients = bartlett_coefficients(parameters.loadings, noise)
    about = expectation.Projection(coefficients, np.eye(len(coefficients)), 0.0)
    return expectation.scores(x, about, parameters.mean)


def factor_rows(
    x: Features,
    y: Array | None,
    parameters: Parameters,
    specification: Specification,
    scores: ModelFunction,
    axes: Array,
) -> Array:
    """Scores (n, K) of factors f = Lz that correlate, from those of z, with the axes L (K, K)."""
    return np.asarray(scores(x, y, parameters, specification) @ axes.T)


class FactorAnalysis(FactorAnalysisHyperparameters, PPCA):
    r"""Factor analysis, fitted by maximum likelihood.

    .. math:: x = W z + \mu + \varepsilon, \qquad z \sim N(0, I_K), \quad \varepsilon \sim N(0, \Psi),
        \quad \Psi = \operatorname{diag}(\psi_1, \ldots, \psi_D)

    Unlike PPCA it does not depend on the units of the features.  The loadings are found up to a rotation; the model
    keeps the canonical one, with WᵀΨ⁻¹W diagonal and decreasing, unless `rotation` asks for another.  Complete data
    with few features are fitted to rounding.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Wᵀ, or Λᵀ after a rotation, loadings in units of the features.
    factor_correlation_ : ndarray of shape (n_components, n_components)
        Φ, correlations of the factors; the identity but for oblique rotations.
    noise_variance_ : ndarray of shape (n_features,)
        ψ, in squared units of the features.
    communalities_ : ndarray of shape (n_features,)
        The part of each feature's variance that the factors explain, Σ_k w_jk²/(Σ_k w_jk² + ψ_j).
    uniquenesses_ : ndarray of shape (n_features,)
        The rest, 1 − `communalities_`.
    explained_variance_ : ndarray of shape (n_components,)
        Σ_j w_jk²/(variance of x_j): in how many features' worth of variance a factor is seen; of factors that correlate
        Σ_j λ_jk (ΛΦ)_jk/(variance of x_j).
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
    factor_correlation_: Array
    _pattern: Array
    """The loadings Λ (D, K) of the factors; the model works with ΛL on factors of the prior covariance I."""
    _shared = False

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        parameters = fitted.outcome.parameters
        pattern, between = parameters.loadings, np.eye(parameters.loadings.shape[1])
        if self.rotation is not None:
            found = self._rotation(parameters, self.rotation)
            pattern = pattern @ found.transformation
            between = found.correlations if self.rotation in OBLIQUE else between
            if parameters.loadings_covariance is not None:
                turn = found.transformation @ np.linalg.cholesky(between)
                parameters = turned(parameters, np.asarray(turn, dtype=np.float64))
        outcome = replace(fitted.outcome, parameters=self._with_factors(parameters, pattern, between))
        super()._keep(replace(fitted, outcome=outcome), task, given)

    def _with_factors(self, parameters: Parameters, pattern: Array, between: Array) -> Parameters:
        """The parameters on factors of the prior covariance I, W = ΛL, for loadings Λ on factors f = Lz with
        correlations Φ = LLᵀ."""
        self._pattern, self.factor_correlation_ = pattern, between
        return parameters._replace(loadings=pattern @ self._axes if self._oblique else pattern)

    @property
    def _oblique(self) -> bool:
        """Whether factors correlate."""
        return not np.array_equal(self.factor_correlation_, np.eye(len(self.factor_correlation_)))

    @property
    def _axes(self) -> Array:
        """L (K, K), the factors as combinations f = Lz of independent ones."""
        return np.asarray(np.linalg.cholesky(self.factor_correlation_))

    @property
    def _own_loadings(self) -> Array:
        return self._pattern

    def _publish_loadings(self, outcome: Outcome) -> None:
        super()._publish_loadings(outcome)
        self.components_ = self._pattern.T

    def _parameter_variables(self) -> dict[str, Any]:
        more = {"factor_correlation": self.factor_correlation_} if self._oblique else {}
        return super()._parameter_variables() | more

    def _restored_parameters(self, values: dict[str, Any]) -> Parameters:
        parameters = super()._restored_parameters(values)
        pattern = parameters.loadings
        return self._with_factors(parameters, pattern, values.get("factor_correlation", np.eye(pattern.shape[1])))

    def _of_factors(self, scores: ModelFunction) -> ModelFunction:
        """Scores of the factors from those of independent ones."""
        return partial(factor_rows, scores=scores, axes=self._axes) if self._oblique else scores

    def _scores(self, X: Data, targets: Array | None, **options: Any) -> Rows | str:
        self._require_fitted()
        return self._factor_scores(X, self._functions.scores, targets=targets, **options)

    def _factor_scores(self, X: Data, scores: ModelFunction, **options: Any) -> Rows | str:
        function = self._rows(self._of_factors(scores))
        return self._mapped(X, function, "scores", "component", self.component_names_, **options)

    def _posterior(self, X: Data, targets: Array | None, client: Where, **options: Any) -> xr.Dataset:
        found = super()._posterior(X, targets, client, **options)
        if not self._oblique:
            return found
        axes, covariance = self._axes, found["covariance"]
        return found.assign(covariance=covariance.copy(data=axes @ covariance.values @ axes.T))

    def _rotation(self, parameters: Parameters, method: str, **options: float) -> Rotated:
        """A rotation of the loadings of standardised features, which weigh alike, whatever their units; factors that
        are switched off stay where they are."""
        spread = np.sqrt((parameters.loadings**2).sum(axis=1) + parameters.noise_variance)
        standardised = parameters.loadings / spread[:, None]
        on = standardised.any(axis=0)
        turn, correlations = np.eye(len(on)), np.eye(len(on))
        if on.any():
            found = METHODS[method](standardised[:, on], **options)
            turn[np.ix_(on, on)], correlations[np.ix_(on, on)] = found.transformation, found.correlations
        return Rotated(standardised @ turn, correlations, turn)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        super()._publish(outcome, passes)
        self.noise_variance_ = outcome.parameters.noise_variance
        # Λ ∘ ΛΦ, of which a feature's sum is what all factors explain.
        shares = self.components_ * (self.factor_correlation_ @ self.components_)
        explained = shares.sum(axis=0)
        self.communalities_: Array = explained / (explained + self.noise_variance_)
        self.uniquenesses_: Array = 1.0 - self.communalities_
        self.explained_variance_ = (shares / (explained + self.noise_variance_)).sum(axis=1)
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
        in a row as there are factors.  After an oblique rotation both are scores of the factors f that correlate, f of
        the prior N(0, Φ).

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
        self._require_fitted()
        function = bartlett_rows if self._missing == "raise" else incomplete.bartlett
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._factor_scores(X, function, **options)

    def rotated(self, method: Rotation = "varimax", *, power: float = 4.0) -> xr.Dataset:
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
            *first, last = map(repr, get_args(Rotation))
            raise DataError(f"method is {method!r}; expected {', '.join(first)} or {last}")
        found = self._rotation(self._parameters, method, **({"power": power} if method == "promax" else {}))
        turn = self._axes @ found.transformation
        feature, square = fitted.labels.dims[1], ("component", "component_2")
        coordinates = {} if fitted.labels.features is None else {feature: np.asarray(fitted.labels.features)}
        dataset = xr.Dataset(
            {
                "loadings": ((feature, "component"), self.components_.T @ turn),
                "correlations": (square, found.correlations),
                "transformation": (square, turn),
            },
            coords={**coordinates, "component": self.component_names_},
            attrs={"method": method},
        )
        return self._over_dimensions(dataset)
