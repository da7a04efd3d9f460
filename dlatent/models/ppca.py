"""Probabilistic principal component analysis."""

from __future__ import annotations

from typing import Any

import xarray as xr

from dlatent.errors import DataError
from dlatent.fitted.fit import Fit
from dlatent.models import feature_methods, fit_methods, row_methods, weighted_fit_methods
from dlatent.models.hyperparameters import (
    COUNT,
    COUNT_OR_RULE,
    TRUTH,
    LinearSolver,
    Missing,
    Parameter,
    Prior,
    Rule,
    model,
    parameter,
)
from dlatent.models.inputs import Data, SampleWeight
from dlatent.models.model import LinearModel
from dlatent.models.table import table_task, warmed, weighted
from dlatent.models.task import FitTask

COMPONENTS = Parameter(
    COUNT_OR_RULE,
    'int, float or {"mle", "bic"}',
    "K, the number of latent variables, or how to choose it; less than the number of samples, and at most that of "
    "features.  Of complete data it can be chosen from the eigenvalues of their covariance: a fraction of the variance "
    'above 0 and below 1 takes the fewest components that explain more; with more samples than features "mle" takes '
    'the largest evidence (Minka), "bic" the smallest criterion (as `bic`).',
    option="components",
    letter="k",
    short="K",
)
ROW_EFFECTS = Parameter(
    TRUTH,
    "bool",
    "With missing entries: give each row a level, a_i ~ N(0, τ²), that all its entries share, as raters are strict or "
    "mild.  It is a further component, the last, of which the loadings of all features are τ.",
    option=None,
)


def check_warm_start(model: Any) -> None:
    """Refuse a start where none is looked for.  Errors: DataError."""
    if model.warm_start and model.missing == "raise":
        raise DataError(
            "warm_start=True is for iterations over the data; of complete data the best maximum is found without a "
            "start: leave warm_start=False, or say missing='nan'"
        )


def check_rule(model: Any) -> None:
    """Refuse row effects of complete data, and a rule for the number of components beside what it does not go with.

    Errors: DataError.
    """
    chosen = not COUNT.test(model.n_components)
    if model.row_effects and model.missing == "raise":
        raise DataError("row_effects=True is for data with missing entries: say missing='nan', or leave it False")
    if model.prior not in ("auto", "ml") and chosen:
        raise DataError(
            f"n_components={model.n_components!r} and prior={model.prior!r} both choose how many components there "
            "are; give the most that there may be, or leave prior='ml'"
        )
    if chosen and model.missing != "raise":
        raise DataError(
            f"n_components={model.n_components!r} is chosen from the covariance of complete data; with missing "
            "entries compare numbers by select_n_components"
        )


@model
class PPCA(LinearModel):
    r"""Probabilistic principal component analysis, fitted by maximum likelihood.

    .. math:: x = W z + \mu + \varepsilon, \qquad z \sim N(0, I_K), \quad \varepsilon \sim N(0, \sigma^2 I)

    Fitted to complete data it finds the subspace of PCA, and the noise beside it: so it also says how likely data are,
    how sure its scores are, and what missing entries were.

    See Also
    --------
    FactorAnalysis : A noise variance for each feature.
    PPCAMixture : Several such models, of which each sample comes from one.

    References
    ----------
    Tipping and Bishop (1999), "Probabilistic principal component analysis", equations (7)–(8); Minka (2000), "Automatic
    choice of dimensionality for PCA", for "mle".  Read more in :doc:`/models/ppca`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) @ [[1.0, 2.0, 2.0]] + 0.5 * rng.normal(size=(200, 3))
    >>> model = PPCA(1).fit(X)
    >>> model.transform(X).shape
    (200, 1)
    >>> round(float(np.sqrt(model.noise_variance_)), 1)
    0.5
    >>> PPCA("mle").fit(X).n_components_
    1

    Missing entries are NaN:

    >>> X[0, 2] = np.nan
    >>> filled = PPCA(1, missing="nan").fit(X).impute(X)
    >>> bool(np.isnan(filled).any())
    False
    """

    n_components: int | float | Rule = parameter(COMPONENTS, default=2, kw_only=False)  # type: ignore[assignment]
    solver: LinearSolver = parameter(default="auto")
    missing: Missing = parameter(default="raise")
    prior: Prior | float = parameter(default="auto")
    row_effects: bool = parameter(ROW_EFFECTS, default=False)
    warm_start: bool = parameter(default=False)

    _rules = (check_warm_start, check_rule)

    def _task(
        self,
        X: Data,
        *,
        sample_weight: SampleWeight = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        before: Fit | None = None,
        **data: Any,
    ) -> FitTask:
        task = table_task(self, X, dim, weights, before=before, row_effects=self.row_effects)
        return weighted(warmed(task, self), sample_weight)

    @property
    def row_effect_variance_(self) -> float:
        """float: τ², the variance of the levels of the rows with `row_effects=True`, else 0; the level of a row is its
        last score times τ."""
        return float((self.components_[self.n_components_ :] ** 2).max(initial=0.0))

    fit, plan = weighted_fit_methods.fit, weighted_fit_methods.plan
    partial_fit = fit_methods.partial_fit
    transform, posterior = row_methods.transform, row_methods.posterior
    score_samples, score = row_methods.score_samples, row_methods.score
    bic, aic, n_parameters_ = row_methods.bic, row_methods.aic, row_methods.n_parameters_
    impute, impute_variance, sample = row_methods.impute, row_methods.impute_variance, feature_methods.sample
    components_, mean_ = feature_methods.components_, feature_methods.mean_
    inverse_transform, get_covariance = feature_methods.inverse_transform, feature_methods.get_covariance
    get_precision = feature_methods.get_precision
