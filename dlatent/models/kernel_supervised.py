"""Supervised PPCA of features that a kernel makes."""

from __future__ import annotations

from typing import Any, Literal

import xarray as xr

from dlatent.models import row_methods, target_methods
from dlatent.models.hyperparameters import (
    Float,
    Head,
    KernelName,
    KernelSolver,
    TargetType,
    model,
    parameter,
)
from dlatent.models.inputs import Data, Mask, PathLike, Seed, TargetsLike
from dlatent.models.kernel import (
    COEF0,
    COMPONENTS,
    DEGREE,
    DIMENSION,
    DTYPE,
    GAMMA,
    LANDMARKS,
    NAME,
    SEED,
    SOLVER,
    STORE,
    check_kernel,
    dual_components_,
    feature_dimension_,
    gamma_,
    kernel_task,
    pairwise_tags,
    trace_error_,
)
from dlatent.models.model import LinearModel
from dlatent.models.table import with_targets
from dlatent.models.task import FitTask
from dlatent.operators.kernels import KernelFunction


@model
class KernelSupervisedPPCA(LinearModel):
    r"""Supervised PPCA of features φ(x) that a kernel makes.

    .. math:: \varphi(x) = W_x z + \mu_x + \varepsilon_x, \qquad y = W_y z + \mu_y + \varepsilon_y

    With a target for every sample the best maximum is found from eigenvectors and a search over the two noises
    (Theorem 3); with samples that have none it is EM in a space that grows by products with the kernel.

    See Also
    --------
    KernelPPCA : The same without targets.
    SupervisedPPCA : The same of the features themselves.

    References
    ----------
    Yu, Yu, Tresp, Kriegel and Wu (2006), Theorem 3 and (21)–(28), with (26) and Theorem 3 (ii) corrected.  Read more in
    :doc:`/models/kernels`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import KernelSupervisedPPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> inside = (X**2).sum(axis=1) < 1.4
    >>> model = KernelSupervisedPPCA(4, gamma=0.5).fit(X, inside)
    >>> bool(np.mean(model.predict(X) == inside) > 0.9)
    True
    """

    n_components: int = parameter(COMPONENTS, default=2, kw_only=False)
    random_state: Seed = parameter(SEED, default=0)
    solver: KernelSolver = parameter(SOLVER, default="auto")
    kernel: KernelName | KernelFunction = parameter(NAME, default="rbf")
    gamma: float | Literal["median"] = parameter(GAMMA, default="median")
    degree: int = parameter(DEGREE, default=3)
    coef0: float = parameter(COEF0, default=1.0)
    feature_dimension: int | None = parameter(DIMENSION, default=None)
    landmarks: int | None = parameter(LANDMARKS, default=None)
    kernel_store: PathLike | None = parameter(STORE, default=None)
    kernel_dtype: Float = parameter(DTYPE, default="float64")
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")

    _rules = (check_kernel,)

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
        return with_targets(kernel_task(self, X, dim, weights), y, labelled, self)

    def __sklearn_tags__(self) -> Any:
        return target_methods.target_tags(self, pairwise_tags(self, super().__sklearn_tags__()))

    fit, plan = target_methods.fit, target_methods.plan
    transform, posterior = row_methods.transform, row_methods.posterior
    score_samples, score = row_methods.score_samples, row_methods.score
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
    dual_components_, gamma_ = dual_components_, gamma_
    feature_dimension_, trace_error_ = feature_dimension_, trace_error_
