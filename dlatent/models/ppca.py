"""Probabilistic principal component analysis, and supervised PPCA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from dlatent.arrays import Array, DataSource
from dlatent.errors import DataError
from dlatent.fitted.fit import Fit
from dlatent.models import (
    fill_methods,
    fit_methods,
    linear,
    rotation,
    row_methods,
    sampling_errors,
    table_fit,
    target_methods,
)
from dlatent.models.hyperparameters import (
    COUNT,
    COUNT_OR_RULE,
    Head,
    Likelihood,
    LinearSolver,
    Missing,
    Parameter,
    Prior,
    Rule,
    Scale,
    TargetType,
    model,
    parameter,
)
from dlatent.models.inputs import Mask, SampleWeight, TargetsLike
from dlatent.models.linear import COUNTED, MANY, NUMBER
from dlatent.models.observations import check_likelihood, has_levels, with_likelihood
from dlatent.models.residuals import residuals
from dlatent.models.table import table_task, warmed, weighted, with_targets
from dlatent.models.task import FitTask
from dlatent.solvers.costs import FULL_EIGEN
from dlatent.solvers.evidence import ENOUGH


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
    chosen = not COUNT.test(model.n_components) and model.n_components not in ("auto", None)
    if model.row_effects is True and model.missing == "raise" and model.likelihood == "normal":
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
class PPCA(linear.LinearModel):
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
    choice of dimensionality for PCA", for "mle", and "auto" of many samples; Nakajima, Sugiyama, Babacan and Tomioka
    (2013) for "auto" of few.  Read more in :doc:`/models/ppca`.

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
    >>> PPCA().fit(X).n_components_
    1

    Missing entries are NaN:

    >>> X[0, 2] = np.nan
    >>> filled = PPCA(1, missing="nan").fit(X).impute(X)
    >>> bool(np.isnan(filled).any())
    False
    """

    n_components: int | float | Rule | None = parameter(
        Parameter(
            COUNT_OR_RULE.or_none(),
            'int, float, {"auto", "mle", "bic"} or None',
            "K, the number of latent variables, or how to choose it; less than the number of samples, and at most that "
            'of features.  "auto" keeps those that the data support.  Of complete data with at most '
            f"{FULL_EIGEN:,} features, more than {ENOUGH} times as many samples and no direction without variance it "
            'is the same as "mle", which may keep nearly all; else, of at most 50, or 20 with missing entries, it '
            'keeps those that automatic relevance determination leaves on, as with `prior="ard"`.  Of complete data '
            "it can be chosen from all eigenvalues of their covariance, too: a fraction of the variance above 0 and "
            'below 1 takes the fewest components that explain more; with more samples than features "mle" takes the '
            'largest evidence (Minka), "bic" the smallest `bic`.  None takes as many as there can be.  Of another '
            '`likelihood`, and with error bars, offsets or covariates, "auto" keeps what stands out from the same '
            "entries with random signs (:doc:`/models/likelihoods`).",
            option="components",
            letter="k",
            short="K",
        ),
        default="auto",
        kw_only=False,
    )  # type: ignore[assignment]
    solver: LinearSolver = parameter(default="auto")
    missing: Missing = parameter(default="raise")
    prior: Prior | float = parameter(default="auto")
    row_effects: bool | Literal["auto"] = parameter(default="auto")
    likelihood: Likelihood = parameter(default="normal")
    warm_start: bool = parameter(default=False)
    scale: Scale | None = parameter(default="auto")
    whiten: bool = parameter(default=False)

    _rules = (check_warm_start, check_rule, check_likelihood)

    def _task(
        self, X: DataSource, *, sample_weight: SampleWeight = None, before: Fit | None = None, **data: Any
    ) -> FitTask:
        task = with_likelihood(table_task(self, X, before=before, row_effects=has_levels(self)), self)
        # All eigenvalues then cost no pass; a prior switches off itself what the data do not support.
        known = task.data.features <= FULL_EIGEN and task.solver != "krylov" and task.prior == "ml"
        return weighted(warmed(replace(task, from_all=known), self), sample_weight)

    @property
    def row_effect_variance_(self) -> float:
        """float: τ², the variance of the levels of rows that have one (`row_effects`), else 0; the level of a row is
        its last score, times τ with `whiten=True`."""
        return float((self._model.fitted_loadings[:, self.n_components_ :] ** 2).max(initial=0.0))

    @property
    def singular_values_(self) -> Array:
        """ndarray of shape (n_components,): √(N λ), with λ the `explained_variance_`: of complete data without a prior
        the singular values of the centred rows."""
        return np.sqrt(self.n_samples_ * self.explained_variance_)

    fit, plan, fit_transform = table_fit.fit, table_fit.plan, table_fit.fit_transform
    partial_fit = fit_methods.partial_fit
    transform, posterior = row_methods.transform, row_methods.posterior
    bic, aic, n_parameters_ = row_methods.bic, row_methods.aic, row_methods.n_parameters_
    impute, sample, rotated = fill_methods.impute, linear.sample, rotation.rotated
    effects_, residuals = linear.effects_, residuals
    north_rule, bootstrap = sampling_errors.north_rule, sampling_errors.bootstrap


@model
class SupervisedPPCA(linear.LinearModel):
    r"""Supervised PPCA: features and targets share the latent variables; samples without targets are welcome.

    .. math:: x = W_x z + \mu_x + \varepsilon_x, \qquad y = W_y z + \mu_y + \varepsilon_y, \qquad z \sim N(0, I_K)

    With a target for every sample this is SPPCA, whose best maximum over loadings and noises is sought with
    eigenvectors and a scan of the two noise variances; with samples that have none it is S²PPCA, fitted by
    Rayleigh–Ritz EM.

    References
    ----------
    Yu, Yu, Tresp, Kriegel and Wu (2006): Theorem 2, Algorithms 1 and 2, with the factor of (12) and the means of the
    semi-supervised model corrected.  Read more in :doc:`/models/supervised`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from dlatent import SupervisedPPCA
    >>> X, grape = load_wine(return_X_y=True)
    >>> some = np.where(np.arange(178) % 5 == 0, grape, -1)
    >>> model = SupervisedPPCA(2).fit(scale(X), some)
    >>> bool(np.mean(model.predict(scale(X)) == grape) > 0.95)
    True
    """

    n_components: int | Literal["auto"] = parameter(NUMBER, default="auto", kw_only=False, text=f"{COUNTED}  {MANY}")
    solver: LinearSolver = parameter(
        default="auto", text='As in PPCA; "em" is Algorithm 1 or, where samples have no targets, 2, corrected.'
    )
    missing: Missing = parameter(
        default="raise",
        text=(
            'Whether entries of the features may be missing, as in PPCA; unless "raise", targets may be missing one by '
            "one, too."
        ),
    )
    prior: Prior | float = parameter(
        default="auto",
        text=(
            "Prior of the loadings of features and targets, each in units of the standard deviation that these have on "
            'average, as in PPCA; the means have none.  "auto" is "ard" with missing entries, and "ml", maximum '
            "likelihood, for complete data, where scores and what the default head predicts hardly differ."
        ),
    )
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")
    scale: Scale | None = parameter(default="auto")
    whiten: bool = parameter(default=False)

    def _task(self, X: DataSource, *, y: TargetsLike = None, labelled: Mask = None, **data: Any) -> FitTask:
        task = table_task(self, X)
        if task.prior != "ml" and self.missing == "raise" and task.source.sparse:
            raise DataError(
                f"prior={self.prior!r} of supervised PPCA is for dense data or missing='unstored', and the "
                f"{task.source.description} is sparse; make it dense, or leave prior='ml'"
            )
        return with_targets(task, y, labelled, self)

    fit, plan = fit_methods.fit_targets, fit_methods.plan_targets
    transform, posterior = row_methods.transform, row_methods.posterior
    impute, sample = fill_methods.impute, target_methods.sample
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
