"""Supervised PPCA of several views that few samples share, with targets for some of the samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlatent.errors import DataError
from dlatent.fitted.targets import check_dropped_rows, encode_targets
from dlatent.models import target_methods, view_methods, view_target_methods
from dlatent.models.declared import model, parameter
from dlatent.models.hyperparameters import Head, TargetType
from dlatent.models.inputs import Mask, Names, Pairing, Views
from dlatent.models.labelled import plain_rows
from dlatent.models.task import Task
from dlatent.models.view_methods import Targets
from dlatent.models.views import (
    TARGETS,
    JointModel,
    samples_to_fit,
    targets_of_samples,
    view_task,
    with_target_view,
)
from dlatent.stores.places import read_places


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
        **given: Any,
    ) -> Task:
        samples = samples_to_fit(self, X, correspondence, on)
        if TARGETS in samples.sources:
            raise DataError(f"a view is named {TARGETS!r}, as the targets are in the model; give it another name")
        places = read_places(y, labelled, correspondence)
        y, labels, count, own = targets_of_samples(y, samples)
        values, mask = plain_rows(y, labels), plain_rows(labelled, labels, "truth values")
        check_dropped_rows(values, count, labels)
        encoded = encode_targets(values, count, self.target_type, mask=mask)
        samples = with_target_view(samples, encoded.rows, encoded.encoding.rank, encoded.labelled, own)
        task = view_task(self, samples, replace(encoded, rows=None))
        return replace(task, target_noise_floor=self.target_noise_floor, head=self.head, beside=places)

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
