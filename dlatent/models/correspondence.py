"""PPCA, factor analysis and supervised PPCA of several views of which some rows correspond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.fitted.linear import JointGaussian, SharedNoise
from dlatent.models import target_methods, view_impute, view_methods, view_target_methods
from dlatent.models.factor_analysis import MAX_ITER, NOISE_FLOOR
from dlatent.models.hyperparameters import (
    FactorSolver,
    GraphSolver,
    Head,
    Likelihood,
    Scale,
    TargetType,
    ViewMissing,
    ViewNoise,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Mask, Names, Pairing, Views, view_feature_names
from dlatent.models.linear import NUMBER
from dlatent.models.model import Model
from dlatent.models.observations import VIEW_LEVELS, VIEW_LIKELIHOODS, VIEW_MISSING
from dlatent.models.table import encoded_targets
from dlatent.models.task import FitTask
from dlatent.models.view_task import samples_to_fit, view_task
from dlatent.models.views import TARGETS, Targets, targets_of_samples, view_names, with_target_view
from dlatent.stores.places import read_places


def check_noise(model: Any) -> None:
    """Refuse EM without noise.  Errors: DataError."""
    if model.noise == "zero" and model.solver == "em":
        raise DataError(
            "noise='zero' starts from the maximum with noise, as EM without noise ends where it begins; leave "
            "solver='auto'"
        )


@model
class JointModel(Model[JointGaussian]):
    """A model x_v = W_v z + μ_v + ε_v of several views v, of which samples may lack some."""

    n_components: int | Literal["auto"] = parameter(
        NUMBER,
        default="auto",
        kw_only=False,
        text="K, the number of latent variables; less than the numbers of samples and of features of all views.  "
        '"auto" takes those of at most 50 that samples of several views support: the ones that automatic relevance '
        "determination leaves on in the largest set of samples with the same views, up to a quarter of their number.",
    )  # type: ignore[assignment]
    solver: str = parameter(
        choice(
            GraphSolver,
            'How the maximum is found.  "auto" takes the cheaper of "covariance" (one pass, numbers of the order of D² '
            'for each set of views that occurs) and "krylov" (about ten passes, D·K); "em" is textbook EM from random '
            "loadings.",
        ),
        default="auto",
    )
    noise_floor: float = parameter(
        default=0.0,
        text="Smallest noise variance of a view, as a fraction of the mean variance of its features; what is less than "
        "rounding counts as that.",
    )

    head: Head = parameter(
        default="auto",
        text='What predicts a view from another.  "auto" is a ridge regression, estimated after the fit from the '
        'samples that have both, where samples that are left out say how; "likelihood" is what the model of the fit '
        "says.",
    )
    scale: Scale | None = parameter(default="none")

    fit_transform, transform, posterior = view_methods.fit_transform, view_methods.transform, view_methods.posterior
    score_samples, score = view_methods.score_samples, view_methods.score
    reconstruct, inverse_transform = view_methods.reconstruct, view_methods.inverse_transform
    get_covariance, impute = view_methods.get_covariance, view_impute.impute

    def _by_view(self, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Noise variances, or what is known of each, by view: one of all features, or an array."""
        cuts = zip(self.view_names_, self._model.fitted_specification.noise_slices, strict=False)
        shared = isinstance(self._model.noise, SharedNoise)
        return {name: values[at][0].item() if shared else values[at] for name, at in cuts}

    @property
    def n_components_(self) -> int:
        """int: K, without the level of samples."""
        return len(self._model.component) - int(self._model.row_effects)

    @property
    def view_names_(self) -> tuple[str, ...]:
        """tuple of str: Names of the views."""
        return view_names(self)

    @property
    def components_(self) -> dict[str, Array]:
        """dict of ndarray of shape (n_components, n_features of the view): For each view W_vᵀ, loadings in units of its
        features; where samples have a level its loadings are the last."""
        cuts = zip(view_names(self), self._model.specification.slices, strict=False)
        return {name: self._model.loadings[at].T for name, at in cuts}

    @property
    def mean_(self) -> dict[str, Array]:
        """dict of ndarray of shape (n_features of the view,): For each view μ_v."""
        cuts = zip(view_names(self), self._model.specification.slices, strict=False)
        return {name: self._model.mean[at] for name, at in cuts}

    @property
    def noise_variance_(self) -> dict[str, float]:
        """dict of float: For each view σ_v², in squared units of its features; 0 where its `likelihood` has none."""
        return self._by_view(self._model.noise.variance)

    @property
    def explained_variance_ratio_(self) -> dict[str, Array]:
        """dict of ndarray of shape (n_components,): For each view the share of its variance that each component
        explains: Σ_d W_dk² of the fitted loadings over the total variance of the samples that have the view.  What is
        left to 1 is noise.  Of entries without noise (`likelihood`) it is the variance of their predictors, and what is
        left to 1 their level."""
        return dict(zip(self.view_names_, self._model.explained[:, : self.n_components_], strict=False))

    @property
    def at_floor_(self) -> dict[str, bool]:
        """dict of bool: For each view, whether its noise variance is at its floor."""
        return self._by_view(self._model.noise.at_floor)

    @property
    def view_samples_(self) -> dict[str, int]:
        """dict of int: For each view the number of samples that have it."""
        return dict(zip(self.view_names_, self._model.view_samples.tolist(), strict=False))

    @property
    def n_features_in_(self) -> int:
        """int: Number of features of all views."""
        return len(self._model.mean)

    @property
    def feature_names_in_(self) -> dict[str, npt.NDArray[np.object_]]:
        """dict of ndarray: For each view whose data had names, those of its features."""
        views = self._model.labels.views.items()
        return view_feature_names(self, {name: labels.features for name, labels in views})


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

    noise: ViewNoise = parameter(
        choice(
            ViewNoise,
            '"ml" finds the noise variances; "zero" is the limit without noise, in which each sample lies where its '
            "views are reconstructed best (the PCA of the paper): it starts from the maximum with noise, and says "
            "nothing of variance.",
        ),
        default="ml",
    )
    missing: ViewMissing = parameter(VIEW_MISSING, default="raise")
    likelihood: Likelihood | Mapping[str, Likelihood] = parameter(VIEW_LIKELIHOODS, default="normal")
    row_effects: bool | Literal["auto"] = parameter(VIEW_LEVELS, default="auto")

    _rules = (check_noise,)

    def _task(self, X: Views, *, correspondence: Pairing = None, on: Names = None, **data: Any) -> FitTask:
        return view_task(self, samples_to_fit(self, X, correspondence, on), fixed=self.noise == "zero")

    fit, plan = view_methods.fit, view_methods.plan
    sample, predictive_variance = view_methods.sample, view_methods.predictive_variance


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

    max_iter: int | None = parameter(default=None, text=MAX_ITER)
    solver: FactorSolver = parameter(
        choice(
            FactorSolver,
            'How the maximum is found.  "auto" takes the cheaper of "covariance" (one pass, numbers of the order of '
            'D²) and "accelerated_em" (a pass for each iteration, D·K numbers); "em" is textbook EM.',
        ),
        default="auto",
    )
    noise_floor: float = parameter(default=0.0, text=NOISE_FLOOR)
    missing: ViewMissing = parameter(VIEW_MISSING, default="raise")
    likelihood: Likelihood | Mapping[str, Likelihood] = parameter(VIEW_LIKELIHOODS, default="normal")
    row_effects: bool | Literal["auto"] = parameter(VIEW_LEVELS, default="auto")

    def _task(self, X: Views, *, correspondence: Pairing = None, on: Names = None, **data: Any) -> FitTask:
        return view_task(self, samples_to_fit(self, X, correspondence, on), shared=False)

    @property
    def noise_variance_(self) -> dict[str, Array]:  # type: ignore[override]
        """dict of ndarray of shape (n_features of the view,): For each view ψ, in squared units of its features; 0
        where its `likelihood` has none."""
        return self._by_view(self._model.noise.variance)

    @property
    def at_floor_(self) -> dict[str, npt.NDArray[np.bool_]]:  # type: ignore[override]
        """dict of ndarray of bool of shape (n_features of the view,): For each view its Heywood cases."""
        return self._by_view(self._model.noise.at_floor)

    fit, plan = view_methods.fit, view_methods.plan
    sample, predictive_variance = view_methods.sample, view_methods.predictive_variance


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
    head: Head = parameter(
        default="auto",
        text='What predicts targets from E[z|x], and a view from another.  "auto" is estimated after the fit from the '
        'samples that have both; "likelihood" is what the model of the fit says.',
    )

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
        values, labels, count, rows = targets_of_samples(y, samples)
        encoded = encoded_targets(values, labelled, labels, count, self.target_type)
        samples = with_target_view(samples, encoded.rows, encoded.encoding.rank, encoded.labelled, rows)
        task = view_task(self, samples, replace(encoded, rows=None))
        floors = (*task.floor_parts[:-1], float(self.target_noise_floor))
        return replace(task, floor_parts=floors, head=self.head, extra_places=places)

    fit, plan = view_target_methods.fit, view_target_methods.plan
    sample, predictive_variance = view_target_methods.sample, view_target_methods.predictive_variance
    predict, predict_proba = view_target_methods.predict, view_target_methods.predict_proba
    decision_function = view_target_methods.decision_function
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
