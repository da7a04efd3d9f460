"""Factor analysis: a noise variance for each feature."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, DataSource
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.fit import Fit
from dlatent.fitted.linear import LinearGaussian
from dlatent.gaussian.canonical import Rotated
from dlatent.gaussian.specification import Parameters
from dlatent.models import fill_methods, fit_methods, linear, row_methods, table_fit
from dlatent.models.beside import Beside
from dlatent.models.hyperparameters import (
    PRIOR,
    SHARED,
    Likelihood,
    LinearSolver,
    Missing,
    Parameter,
    Prior,
    Rotation,
    Scale,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Data, PathLike, Rows, SampleWeight, ScoresLike
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import attribute
from dlatent.models.observations import check_likelihood, has_levels, with_likelihood
from dlatent.models.ppca import check_warm_start
from dlatent.models.residuals import residuals
from dlatent.models.rotation import OBLIQUE, over_components, simple_structure, with_scores
from dlatent.models.table import table_fields, table_task, warmed, weighted
from dlatent.models.task import FitTask
from dlatent.solvers.solver import Solution

MAX_ITER = 'Most passes of "accelerated_em" (by default 300), or EM iterations with `solver="em"` (by default 2,000).'
NOISE_FLOOR = (
    "Smallest noise variance of a feature, as a fraction of its variance; what is less than rounding counts as that."
)


def check_prior(model: Any) -> None:
    """Refuse a prior of the loadings for complete data.  Errors: DataError."""
    if model.prior not in ("auto", "ml") and model.missing == "raise":
        raise DataError(
            f"prior={model.prior!r} of factor analysis is for data with missing entries: say missing='nan', which "
            "takes complete data, too, or leave prior='ml'"
        )


def check_levels(model: Any) -> None:
    """Refuse levels of rows of normal entries.  Errors: DataError."""
    if model.row_effects is True and model.likelihood == "normal":
        raise DataError("row_effects=True is for another likelihood, or for PPCA; leave row_effects='auto'")


@model
class FactorAnalysis(linear.LinearModel):
    r"""Factor analysis, fitted by maximum likelihood.

    .. math:: x = W z + \mu + \varepsilon, \qquad z \sim N(0, I_K), \quad \varepsilon \sim N(0, \Psi),
        \quad \Psi = \operatorname{diag}(\psi_1, \ldots, \psi_D)

    Unlike PPCA it does not depend on the units of the features.  The loadings are found up to a rotation; the model
    keeps the canonical one, with WᵀΨ⁻¹W diagonal and decreasing, unless `rotation` asks for another.  Complete data
    with few features are fitted to rounding.

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

    n_components: int | Literal["auto"] = parameter(
        linear.NUMBER,
        default="auto",
        kw_only=False,
        text=(
            "K, the number of factors; less than the number of samples, and at most that of features.  "
            '"auto" keeps those that the data support: of complete data the components, at most 50, that automatic '
            "relevance determination leaves on of the correlations in units of what the other features leave of each; "
            "with missing entries the factors that the prior leaves on of 20."
        ),
    )
    max_iter: int | None = parameter(default=None, text=MAX_ITER)
    # The planner refuses the other solvers of PPCA, with the reason.
    solver: LinearSolver = parameter(
        replace(
            SHARED["solver"],
            kind='{"auto", "covariance", "accelerated_em", "em"}',
            text='How the maximum is found.  "auto" takes the cheaper of "covariance" (one pass, D² numbers; the best '
            'maximum of several starts) and "accelerated_em" (about twenty passes, D·K² numbers; the way of data with '
            'missing entries); "em" is textbook EM.',
        ),
        default="auto",
    )
    noise_floor: float = parameter(default=0.0, text=NOISE_FLOOR)
    missing: Missing = parameter(default="raise")
    prior: Prior | float = parameter(
        Parameter(
            PRIOR,
            '{"auto", "ml", "ard"} or float',
            "With missing entries: prior of the loadings in units of the features' standard deviations, as in PPCA; "
            'the means have none.  "auto" is "ard" there, and "ml", maximum likelihood, for complete data.',
        ),
        default="auto",
    )
    scale: Scale | None = parameter(default="auto")
    rotation: Rotation | None = parameter(
        choice(
            Rotation,
            "Turns the fitted loadings Λ to simple structure, and the scores with them; the first two are orthogonal, "
            "the others oblique: factors correlate.  With f ~ N(0, Φ) the distribution of the features, N(μ, ΛΦΛᵀ + "
            "Ψ), is the same.  By default loadings are the canonical ones.",
            none=True,
        ),
        default=None,
    )
    warm_start: bool = parameter(
        default=False,
        text=(
            "With missing entries: go on from the parameters of the last fit, or of the saved model.  With "
            '`prior="ml"` the maximum is then the one near these, and not the best of several.'
        ),
    )

    likelihood: Likelihood = parameter(default="normal")
    row_effects: bool | Literal["auto"] = parameter(default="auto")

    _rules = (check_warm_start, check_prior, check_levels, check_likelihood)

    def _task(
        self, X: DataSource, *, sample_weight: SampleWeight = None, before: Fit | None = None, **data: Any
    ) -> FitTask:
        task = table_task(self, X, before=before, diagonal=True, row_effects=has_levels(self))
        task = with_likelihood(replace(task, fitted=partial(fitted_factors, rotation=self.rotation)), self)
        return weighted(warmed(task, self), sample_weight)

    fit, plan, fit_transform = table_fit.fit, table_fit.plan, table_fit.fit_transform
    partial_fit, posterior = fit_methods.partial_fit, row_methods.posterior
    effects_ = linear.effects_
    bic, aic, n_parameters_ = row_methods.bic, row_methods.aic, row_methods.n_parameters_
    impute, sample, residuals = fill_methods.impute, linear.sample, residuals

    def transform(
        self,
        X: Data,
        *,
        scores: Literal["regression", "bartlett"] = "regression",
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
        **beside: Unpack[Beside],
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
        """
        if scores not in ("regression", "bartlett"):
            raise DataError(f"scores is {scores!r}; expected 'regression' or 'bartlett'")
        rows = self._rows.scores if scores == "regression" else self._rows.bartlett
        return row_methods.scored(self, X, None, RowsRun(out, overwrite, resume, client), rows, beside=beside)

    @attribute
    def noise_variance_(self) -> Array:  # type: ignore[override]
        """ndarray of shape (n_features,): ψ, in squared units of the features."""
        return self._model.noise.variance

    @attribute
    def at_floor_(self) -> npt.NDArray[np.bool_]:  # type: ignore[override]
        """ndarray of bool of shape (n_features,): Heywood cases: features whose noise variance is at its floor."""
        return np.asarray(self._model.noise.at_floor, dtype=bool)

    @property
    def factor_correlation_(self) -> Array:
        """ndarray of shape (n_components, n_components): Φ, correlations of the factors; the identity but for oblique
        rotations."""
        fitted = self._model
        return np.eye(len(fitted.component)) if fitted.factor_correlation is None else fitted.factor_correlation

    @property
    def _shares(self) -> Array:
        """Λ ∘ ΛΦ (K, D), of which a feature's sum is what all factors explain."""
        return np.asarray(self.components_ * (self.factor_correlation_ @ self.components_))

    @property
    def communalities_(self) -> Array:
        """ndarray of shape (n_features,): The fraction of each feature's variance that the factors explain,
        Σ_k w_jk²/(Σ_k w_jk² + ψ_j)."""
        explained = self._shares.sum(axis=0)
        return np.asarray(explained / (explained + self.noise_variance_))

    @property
    def uniquenesses_(self) -> Array:
        """ndarray of shape (n_features,): The rest, 1 − `communalities_`."""
        return 1.0 - self.communalities_

    @attribute
    def explained_variance_(self) -> Array:
        """ndarray of shape (n_components,): Σ_j w_jk²/(variance of x_j): in how many features' worth of variance a
        factor is seen; of factors that correlate Σ_j λ_jk (ΛΦ)_jk/(variance of x_j)."""
        return np.asarray((self._shares / (self._shares.sum(axis=0) + self.noise_variance_)).sum(axis=1))

    @attribute
    def explained_variance_ratio_(self) -> Array:
        """ndarray of shape (n_components,): The same as fractions of D."""
        return np.asarray(self.explained_variance_ / self.n_features_in_)

    def rotated(self, method: Rotation = "varimax", Z: ScoresLike | None = None, *, power: float = 4.0) -> xr.Dataset:
        r"""Return the model rotated to loadings of simple structure.

        .. math:: \Lambda = W T, \qquad f = T^{-1} z, \qquad W W^\top = \Lambda \Phi \Lambda^\top

        with the correlations Φ of the rotated factors f.  Their scores are `transform(X) @ inv(T).T`; loadings times
        scores, and the mean, are what `inverse_transform` gives.

        Parameters
        ----------
        method : {"varimax", "quartimax", "promax", "oblimin"}, default "varimax"
            The first two are orthogonal, the others oblique; "oblimin" is the direct one with γ = 0.
        Z : array or xarray.DataArray of shape (n_samples, n_components), optional
            Scores, as `transform` gives them, to be turned with the factors.
        power : float, default 4.0
            Of promax.

        Returns
        -------
        xarray.Dataset
            `loadings` Λ (feature, component), `correlations` Φ and `transformation` T (component, component_2); with
            `Z` `scores` (sample, component), with the samples' dimensions and coordinates.

        Raises
        ------
        DataError
            For another method, or scores of other factors.
        """
        fitted = self._model
        turn = rotation(fitted.parameters, method, power)
        axes = np.eye(len(fitted.component)) if fitted.axes is None else fitted.axes
        transformation, square = axes @ turn.transformation, ("component", "component_2")
        variables = {
            "loadings": (("feature", "component"), self.components_.T @ transformation),
            "correlations": (square, turn.correlations),
            "transformation": (square, transformation),
        }
        return with_scores(over_components(fitted, variables, method=method), self, Z)


def fitted_factors(task: FitTask, solution: Solution, rotation: Rotation | None) -> LinearGaussian:
    """The fitted model, its loadings turned to simple structure where a rotation is asked for."""
    parameters, correlation = solution.parameters, None
    if rotation is not None:
        parameters, correlation = rotated(parameters, rotation)
    fields = table_fields(task, replace(solution, parameters=parameters))
    return LinearGaussian(**fields, factor_correlation=correlation)


def rotated(parameters: Parameters, method: str) -> tuple[Parameters, Array | None]:
    """The loadings Λ of factors of simple structure, and their correlations where these are not the identity."""
    turn = rotation(parameters, method)
    loadings = parameters.loadings @ turn.transformation
    between = turn.correlations if method in OBLIQUE else np.eye(loadings.shape[1])
    if parameters.loadings_covariance is not None:
        both = turn.transformation @ np.linalg.cholesky(between)
        parameters = parameters.turned(np.asarray(both, dtype=np.float64))
    correlated = not np.array_equal(between, np.eye(len(between)))
    return parameters._replace(loadings=loadings), between if correlated else None


def rotation(parameters: Parameters, method: str, power: float = 4.0) -> Rotated:
    """A rotation of the loadings of standardised features, which weigh alike, whatever their units."""
    spread = np.sqrt((parameters.loadings**2).sum(axis=1) + parameters.noise_variance)
    return simple_structure(parameters.loadings / spread[:, None], method, power)
