"""PPCA, factor analysis and supervised PPCA of several views of which some rows correspond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.fitted.targets import check_dropped_rows, encode_targets
from dlatent.models import target_methods, view_methods, view_target_methods
from dlatent.models.factor_analysis import MAX_ITER, NOISE_FLOOR
from dlatent.models.hyperparameters import FactorSolver, Head, TargetType, ViewNoise, choice, model, parameter
from dlatent.models.inputs import Mask, Names, Pairing, Views
from dlatent.models.labelled import plain_rows
from dlatent.models.task import FitTask
from dlatent.models.view_rows import Targets
from dlatent.models.views import (
    TARGETS,
    JointModel,
    samples_to_fit,
    targets_of_samples,
    view_task,
    with_target_view,
)
from dlatent.stores.places import read_places

NOISE = choice(
    ViewNoise,
    '"ml" finds the noise variances; "zero" is the limit without noise, in which each sample lies where its views are '
    "reconstructed best (the PCA of the paper): it starts from the maximum with noise, and says nothing of variance.",
)
SOLVER = choice(
    FactorSolver,
    'How the maximum is found.  "auto" takes the cheaper of "covariance" (one pass, numbers of the order of D²) and '
    '"accelerated_em" (a pass for each iteration, D·K numbers); "em" is textbook EM.',
)


def check_noise(model: Any) -> None:
    """Refuse EM without noise.  Errors: DataError."""
    if model.noise == "zero" and model.solver == "em":
        raise DataError(
            "noise='zero' starts from the maximum with noise, as EM without noise ends where it begins; leave "
            "solver='auto'"
        )


@model
class CorrespondencePPCA(JointModel):
    r"""PPCA of two or more views of the same samples, of which each sample may lack some.

    .. math:: x_v = W_v z + \mu_v + \varepsilon_v, \qquad z \sim N(0, I_K), \quad
        \varepsilon_v \sim N(0, \sigma_v^2 I)

    All views of a sample have one z, and each view a noise variance of its own.  Samples in correspondence have several
    views, all others one; all are fitted together, so that views are described in shared coordinates and one is
    reconstructed from another.

    References
    ----------
    Ham, Lee and Saul (2003), section 3.1, with the noise of errata 22.  Read more in :doc:`/models/correspondences`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondencePPCA
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(80, 2))
    >>> sight, sound = (z @ rng.normal(size=(2, d)) + 0.1 * rng.normal(size=(80, d)) for d in (5, 4))
    >>> pairs = np.column_stack([np.arange(40), np.arange(40)])
    >>> model = CorrespondencePPCA(2).fit({"sight": sight, "sound": sound}, correspondence=pairs)
    >>> model.reconstruct(sight, "sight", "sound").shape
    (80, 4)
    """

    noise: ViewNoise = parameter(NOISE, default="ml")

    _rules = (check_noise,)

    def _task(self, X: Views, *, correspondence: Pairing = None, on: Names = None, **data: Any) -> FitTask:
        return view_task(self, samples_to_fit(self, X, correspondence, on), fixed=self.noise == "zero")

    fit, plan, fit_transform = view_methods.fit, view_methods.plan, view_methods.fit_transform
    transform, posterior = view_methods.transform, view_methods.posterior
    score_samples, score, sample = view_methods.score_samples, view_methods.score, view_methods.sample
    reconstruct, predictive_variance = view_methods.reconstruct, view_methods.predictive_variance
    inverse_transform, get_covariance = view_methods.inverse_transform, view_methods.get_covariance


@model
class CorrespondenceFactorAnalysis(JointModel):
    r"""Factor analysis of two or more views: as CorrespondencePPCA, with a noise variance for each feature.

    .. math:: x_v = W_v z + \mu_v + \varepsilon_v, \qquad z \sim N(0, I_K), \quad \varepsilon_v \sim N(0, \Psi_v)

    References
    ----------
    Ham, Lee and Saul (2003), section 3.2 and appendix A, corrected (errata 21).  Read more in
    :doc:`/models/correspondences`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondenceFactorAnalysis
    >>> X = np.random.default_rng(0).normal(size=(60, 7))
    >>> pairs = np.column_stack([np.arange(60), np.arange(60)])
    >>> model = CorrespondenceFactorAnalysis(1).fit([X[:, :4], X[:, 4:]], correspondence=pairs)
    >>> [len(noise) for noise in model.noise_variance_.values()]
    [4, 3]
    """

    max_iter: int | None = parameter(MAX_ITER, default=None)
    solver: FactorSolver = parameter(SOLVER, default="auto")
    noise_floor: float = parameter(NOISE_FLOOR, default=0.0)

    def _task(self, X: Views, *, correspondence: Pairing = None, on: Names = None, **data: Any) -> FitTask:
        return view_task(self, samples_to_fit(self, X, correspondence, on), shared=False)

    @property
    def noise_variance_(self) -> dict[str, Array]:  # type: ignore[override]
        """dict of ndarray of shape (n_features of the view,): For each view ψ, in squared units of its features."""
        return self._by_view(self._model.noise.variance)

    @property
    def at_floor_(self) -> dict[str, npt.NDArray[np.bool_]]:  # type: ignore[override]
        """dict of ndarray of bool of shape (n_features of the view,): For each view its Heywood cases."""
        return self._by_view(self._model.noise.at_floor)

    fit, plan, fit_transform = view_methods.fit, view_methods.plan, view_methods.fit_transform
    transform, posterior = view_methods.transform, view_methods.posterior
    score_samples, score, sample = view_methods.score_samples, view_methods.score, view_methods.sample
    reconstruct, predictive_variance = view_methods.reconstruct, view_methods.predictive_variance
    inverse_transform, get_covariance = view_methods.inverse_transform, view_methods.get_covariance


@model
class CorrespondenceSupervisedPPCA(JointModel):
    r"""Supervised PPCA of two or more views, of which each sample may lack some, or its targets.

    .. math:: x_v = W_v z + \mu_v + \varepsilon_v, \qquad y = W_y z + \mu_y + \varepsilon_y, \qquad z \sim N(0, I_K)

    The targets are one more view, with a noise variance of its own.  All samples are fitted together by maximum
    likelihood: targets of one view tell of the others, too.  Attributes that go by view tell of the views, not of the
    targets.

    References
    ----------
    Ham, Lee and Saul (2003), section 3.1, and Yu et al. (2006), joined.  Read more in :doc:`/models/correspondences`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondenceSupervisedPPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 7))
    >>> pairs = np.column_stack([np.arange(60), np.arange(60)])
    >>> views = {"a": X[:, :4], "b": X[:, 4:]}
    >>> model = CorrespondenceSupervisedPPCA(2).fit(views, X[:, 0] > 0, correspondence=pairs)
    >>> model.predict({"a": X[:3, :4]}).shape
    (3,)
    """

    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")

    def _task(
        self,
        X: Views,
        *,
        y: Targets = None,
        labelled: Mask = None,
        correspondence: Pairing = None,
        on: Names = None,
        **data: Any,
    ) -> FitTask:
        samples = samples_to_fit(self, X, correspondence, on)
        if TARGETS in samples.sources:
            raise DataError(f"a view is named {TARGETS!r}, as the targets are in the model; give it another name")
        places = read_places(y, labelled, correspondence)
        y, labels, count, rows = targets_of_samples(y, samples)
        values, mask = plain_rows(y, labels), plain_rows(labelled, labels, "truth values")
        check_dropped_rows(values, count, labels)
        encoded = encode_targets(values, count, self.target_type, mask=mask)
        samples = with_target_view(samples, encoded.rows, encoded.encoding.rank, encoded.labelled, rows)
        task = view_task(self, samples, replace(encoded, rows=None))
        floors = (*task.floor_parts[:-1], float(self.target_noise_floor))
        return replace(task, floor_parts=floors, head=self.head, beside=places)

    def __sklearn_tags__(self) -> Any:
        return target_methods.target_tags(self, super().__sklearn_tags__())

    fit, plan, fit_transform = view_target_methods.fit, view_target_methods.plan, view_methods.fit_transform
    transform, posterior = view_methods.transform, view_methods.posterior
    score_samples, score, sample = view_methods.score_samples, view_methods.score, view_target_methods.sample
    reconstruct, predictive_variance = view_methods.reconstruct, view_target_methods.predictive_variance
    inverse_transform, get_covariance = view_methods.inverse_transform, view_methods.get_covariance
    predict, predict_proba = view_target_methods.predict, view_target_methods.predict_proba
    decision_function = view_target_methods.decision_function
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
