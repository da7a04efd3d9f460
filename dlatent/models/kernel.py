"""PPCA and supervised PPCA of features that a kernel makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp
import xarray as xr

from dlatent.arrays import Array, DataSource
from dlatent.containers import precision_of
from dlatent.errors import DataError
from dlatent.fitted.fit import require_room
from dlatent.fitted.grid import over_features
from dlatent.fitted.kernel import KernelGaussian
from dlatent.fitted.rows import function
from dlatent.models import fit_methods, row_methods, target_methods
from dlatent.models.hyperparameters import (
    BANDWIDTH,
    COUNT,
    KERNEL,
    NUMBER,
    PLACE,
    POSITIVE,
    Float,
    Head,
    KernelName,
    KernelSolver,
    Parameter,
    Scale,
    TargetType,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Mask, PathLike, ScoresLike, Seed, TargetsLike
from dlatent.models.kernel_task import check_kernel, kernel_task
from dlatent.models.linear import NUMBER as COMPONENTS
from dlatent.models.linear import latent
from dlatent.models.model import Model
from dlatent.models.table import with_targets
from dlatent.models.task import FitTask
from dlatent.operators.kernels import KernelFunction, median_gamma
from dlatent.operators.sparse import stacked


@model
class KernelModel(Model[KernelGaussian]):
    """PPCA of features that a kernel makes, with or without targets."""

    n_components: int | Literal["auto"] = parameter(
        COMPONENTS,
        default="auto",
        kw_only=False,
        text="K, the number of latent variables; less than the number of samples minus 1.  "
        '"auto" keeps those of at most 50 that the data support: the ones that automatic relevance determination '
        "leaves on, of samples of M features.",
    )  # type: ignore[assignment]
    random_state: Seed = parameter(
        default=0, text="Seed of the first directions, of the landmarks and of the rows for the median."
    )
    solver: KernelSolver = parameter(
        choice(
            KernelSolver,
            'Where K is.  In the "memory" of the driver, "recomputed" in every pass, "stored" (with `kernel_store`), '
            'or the cheapest of these; "em" is textbook EM on K in memory.',
        ),
        default="auto",
    )
    kernel: KernelName | Literal["poly"] | KernelFunction = parameter(
        Parameter(
            KERNEL,
            "str or callable",
            '"linear" ⟨x, x\'⟩, "rbf" exp(−γ‖x − x\'‖²), "polynomial" or "poly" (γ⟨x, x\'⟩ + c)^d, "cosine", '
            '"laplacian" exp(−γ‖x − x\'‖₁), "precomputed" (the data are k(x_i, x_j), new rows k(x, x_j)), or a '
            "function of two blocks of rows, (n, D) and (m, D) → (n, m).",
        ),
        default="rbf",
    )
    gamma: float | Literal["median"] = parameter(
        Parameter(
            BANDWIDTH,
            'float or "median"',
            'γ of the rbf, the laplacian and the polynomial kernel.  "median" is 1/(2 m²) for the rbf kernel, m² the '
            "median of ‖x − x'‖² over some rows; 1/m for the laplacian kernel; 1 over the median of ‖x‖² for the "
            "polynomial one.",
            short="G",
        ),
        default="median",
    )
    degree: int = parameter(Parameter(COUNT, "int", "d of the polynomial kernel.", short="N"), default=3)
    coef0: float = parameter(Parameter(NUMBER, "float", "c of the polynomial kernel.", short="C"), default=1.0)
    feature_dimension: int | None = parameter(
        Parameter(
            COUNT.or_none(),
            "int",
            "M, the number of features that share the noise, of SPPCA (25).  It changes the noise variance and, with "
            "targets, the weight of the features beside them.  By default D for the linear and the cosine kernel, "
            "whose features are so many, and for the others N − 1, what N samples about their mean can span.",
            short="M",
        ),
        default=None,
    )
    landmarks: int | None = parameter(
        Parameter(
            COUNT.or_none(),
            "int",
            "A number of random rows in whose span the loadings are looked for (Nyström); by default all rows.",
            short="N",
        ),
        default=None,
    )
    kernel_store: PathLike | None = parameter(
        Parameter(
            PLACE.or_none(),
            "path or URL",
            "Where K may be kept while a fit runs, a place that all workers reach; it is removed afterwards.",
            short="K.zarr",
        ),
        default=None,
    )
    kernel_dtype: Float = parameter(choice(Float, "Of the values that are kept there."), default="float64")
    scale: Scale | None = parameter(default="none")
    whiten: bool = parameter(default=False)

    _rules = (check_kernel,)

    n_components_, n_components_effective_ = row_methods.n_components_, row_methods.n_components_effective_
    noise_variance_, at_floor_ = row_methods.noise_variance_, row_methods.at_floor_
    explained_variance_ = row_methods.explained_variance_
    explained_variance_ratio_ = row_methods.explained_variance_ratio_
    n_features_in_, feature_names_in_ = row_methods.n_features_in_, row_methods.feature_names_in_
    transform, posterior = row_methods.transform, row_methods.posterior
    score_samples, score = row_methods.score_samples, row_methods.score

    def inverse_transform(self, Z: ScoresLike, *, alpha: float = 1.0) -> npt.NDArray[Any] | xr.DataArray:
        r"""Return rows that have about these scores, by kernel ridge regression of the training rows on their scores.

        .. math:: x(z) = \bar x + k(z, Z) (k(Z, Z) + \alpha \bar k I)^{-1} (X - 1 \bar x^\top)

        with the kernel of the model between scores that are not whitened, its γ by their median, and k̄ the mean of
        k(z, z), 1 for "rbf"; as scikit-learn's KernelPCA, but about the mean x̄.  It is learned in each call, in O(N³),
        N the training rows or landmarks.

        Parameters
        ----------
        alpha : float, default 1.0
            Ridge, a positive number: the smaller, the nearer are the training rows to themselves.

        Returns
        -------
        array of shape (n_samples, n_features)
            In units of the features; over their dimensions as in PPCA.inverse_transform.

        Raises
        ------
        DataError
            For another number of components, and for a precomputed kernel, which has no rows.
        PlanError
            Where the kernel between the training rows does not fit in memory.
        """
        POSITIVE.require("alpha", alpha)
        fitted, scores = self._model, latent(self, Z, self._model.component)
        compared = fitted.compared
        if not compared.rows:
            raise DataError("a precomputed kernel has no rows that scores could be turned into; give a kernel by name")
        count = compared.rows[-1].stop
        require_room(count, max(count, compared.columns), "the kernel of the training rows", "fit with landmarks")
        kept = stacked(tuple(block.load() for block in compared.rows))
        rows = np.asarray(kept.toarray() if isinstance(kept, sp.csr_array) else kept, dtype=np.float64)
        if fitted.row_units is not None:
            rows = rows * fitted.row_units
        # In one unit, whichever `transform` has.
        lengths = fitted.lengths if self.whiten else 1.0
        known = np.asarray(function(self._rows.scores, row_methods.score_axes(self))(rows, None)) * lengths
        kernel, mean = compared.kernel, rows.mean(axis=0)
        kernel = replace(kernel, gamma=median_gamma(kernel.name, known), shift=None)
        between = kernel(known, known)
        between.flat[:: count + 1] += alpha * (np.trace(between) / count or 1.0)
        weights = la.solve(between, rows - mean, assume_a="pos")
        found = kernel(np.asarray(scores, dtype=np.float64) * lengths, known) @ weights + mean
        return over_features(found.astype(precision_of(scores), copy=False), fitted.labels.known, Z)

    @property
    def dual_components_(self) -> Array:
        """ndarray of shape (n_components, n_samples): Aᵀ, loadings as combinations of the centred features of the
        training rows, W = ΦᵀA; with landmarks of theirs, (n_components, landmarks)."""
        return self._model.dual_components.T

    @property
    def gamma_(self) -> float:
        """float: γ that was used."""
        return self._model.compared.kernel.gamma

    @property
    def feature_dimension_(self) -> int:
        """int: M that was used."""
        return self._model.feature_dimension

    @property
    def trace_error_(self) -> float:
        """float: With landmarks, the fraction of Σ k(x, x) that is outside their span; 0 without."""
        return self._model.trace_error

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's splitters that rows of a given kernel are cut with its columns."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


@model
class KernelPPCA(KernelModel):
    r"""Probabilistic PCA of features φ(x) that a kernel makes.

    .. math:: \varphi(x) = W z + \mu + \varepsilon, \qquad k(x, x') = \varphi(x)^\top \varphi(x')

    There are no `components_` and no `mean_`, as features are never written down.

    References
    ----------
    Yu, Yu, Tresp, Kriegel and Wu (2006), (21)–(28) without targets; Tipping and Bishop (1999).  Read more in
    :doc:`/models/kernels`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import KernelPPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = KernelPPCA(2, kernel="rbf", gamma=0.5).fit(X)
    >>> model.transform(X[:5]).shape
    (5, 2)
    """

    def _task(self, X: DataSource, **data: Any) -> FitTask:
        return kernel_task(self, X)

    fit, plan = fit_methods.fit, fit_methods.plan


@model
class KernelSupervisedPPCA(KernelModel):
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

    n_components: int | Literal["auto"] = parameter(
        COMPONENTS,
        default="auto",
        kw_only=False,
        text='K, the number of latent variables; less than the number of samples minus 1.  "auto" takes 50, or as many '
        "as there can be, as the prior of the default head keeps more of them from doing harm.",
    )
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")

    def _task(self, X: DataSource, *, y: TargetsLike = None, labelled: Mask = None, **data: Any) -> FitTask:
        return with_targets(kernel_task(self, X), y, labelled, self)

    fit, plan = fit_methods.fit_targets, fit_methods.plan_targets
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
