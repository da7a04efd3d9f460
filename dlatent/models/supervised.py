"""Supervised and semi-supervised probabilistic PCA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import xarray as xr

from dlatent.errors import DataError
from dlatent.models import feature_methods, row_methods, target_methods
from dlatent.models.hyperparameters import SHARED, Head, LinearSolver, Missing, Prior, TargetType, model, parameter
from dlatent.models.inputs import Data, Mask, TargetsLike
from dlatent.models.model import LinearModel
from dlatent.models.table import table_task, with_targets
from dlatent.models.task import FitTask

SOLVER = replace(
    SHARED["solver"], text='As in PPCA; "em" is Algorithm 1 or, where samples have no targets, 2, corrected.'
)
MISSING = replace(
    SHARED["missing"],
    text='Whether entries of the features may be missing, as in PPCA; unless "raise", targets may be missing one by '
    "one, too.",
)
PRIOR = replace(
    SHARED["prior"],
    text="Prior of the loadings of features and targets, each in units of the standard deviation that these have on "
    'average, as in PPCA; the means have none.  "auto" is "ard" with missing entries, and "ml", maximum likelihood, '
    "for complete data, where scores and what the default head predicts hardly differ.",
)


@model
class SupervisedPPCA(LinearModel):
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

    solver: LinearSolver = parameter(SOLVER, default="auto")
    missing: Missing = parameter(MISSING, default="raise")
    prior: Prior | float = parameter(PRIOR, default="auto")
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")

    def _task(
        self,
        X: Data,
        *,
        y: TargetsLike = None,
        labelled: Mask = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        **data: Any,
    ) -> FitTask:
        task = table_task(self, X, dim, weights)
        if task.prior != "ml" and self.missing == "raise" and task.source.sparse:
            raise DataError(
                f"prior={self.prior!r} of supervised PPCA is for dense data or missing='unstored', and the "
                f"{task.source.description} is sparse; make it dense, or leave prior='ml'"
            )
        return with_targets(task, y, labelled, self)

    def __sklearn_tags__(self) -> Any:
        return target_methods.target_tags(self, super().__sklearn_tags__())

    fit, plan = target_methods.fit, target_methods.plan
    transform, posterior = row_methods.transform, row_methods.posterior
    score_samples, score = row_methods.score_samples, row_methods.score
    impute, impute_variance, sample = row_methods.impute, row_methods.impute_variance, target_methods.sample
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    components_, mean_ = feature_methods.components_, feature_methods.mean_
    inverse_transform, get_covariance = feature_methods.inverse_transform, feature_methods.get_covariance
    get_precision = feature_methods.get_precision
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
