"""PPCA and supervised PPCA of features that a kernel makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from dlatent.arrays import Array, DataSource
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.kernel import Compared, KernelGaussian
from dlatent.gaussian.specification import Specification, View
from dlatent.models import fit_methods, row_methods, target_methods
from dlatent.models.hyperparameters import (
    BANDWIDTH,
    COUNT,
    KERNEL,
    NUMBER,
    PLACE,
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
from dlatent.models.inputs import Mask, PathLike, Seed, TargetsLike
from dlatent.models.model import Model
from dlatent.models.table import table_fields, task_of, with_targets
from dlatent.models.task import FitTask
from dlatent.operators.kernels import NUMBERS, Kernel, KernelFunction
from dlatent.passes import Run
from dlatent.solvers.kernel.landmarks import KERNEL_SOLVERS
from dlatent.solvers.solver import Solution
from dlatent.solvers.task import KernelFeatures
from dlatent.stores.atomic import require_writable
from dlatent.stores.places import require_apart
from dlatent.stores.rows import lent, owned, rows_in_memory
from dlatent.stores.sinks import TileSink, open_tiles


def check_kernel(estimator: Any) -> None:
    """Refuse hyperparameters of a kernel that make no sense together.  Errors: DataError."""
    for name in ("feature_dimension", "landmarks"):
        value = getattr(estimator, name)
        if value is not None and value <= estimator.n_components:
            raise DataError(f"{name} is {value!r}; expected an integer above n_components, or None")
    if estimator.kernel == "precomputed" and (estimator.landmarks is not None or estimator.scale == "spread"):
        raise DataError("a precomputed kernel has no rows: leave landmarks=None and scale='none'")
    if estimator.landmarks is not None and estimator.solver == "em":
        raise DataError("solver='em' is for the whole kernel; leave landmarks=None, or take solver='auto'")


def kernel_task(estimator: Any, source: DataSource) -> FitTask:
    """The task without targets, whose features are as many coordinates as there are components.

    Errors: DataError for data that the model cannot be fitted to.
    """
    check_rows(estimator, source)
    kernel, components = kernel_of(estimator), int(estimator.n_components)
    place, dtype = os.fspath(estimator.kernel_store or ""), np.dtype(estimator.kernel_dtype)
    rows = () if kernel.name == "precomputed" else source.blocks
    features = KernelFeatures(
        kernel,
        dimension_of(estimator, kernel, source),
        rows,
        rows_in_memory,
        partial(kept, place=place, dtype=dtype),
        dtype.itemsize,
        bool(place),
        int(estimator.landmarks or 0),
        0 if estimator.landmarks else sum(block.nbytes for block in rows if lent(block)),
    )
    specification = Specification((View("features", components),), ((0,),), components)
    return replace(
        task_of(estimator, source, specification, fitted_kernel),
        kernel=features,
        solvers=KERNEL_SOLVERS,
        # Features that are never written down are summed about nothing.
        shift=lambda session, observed: np.zeros(0),
    )


def check_rows(estimator: Any, source: DataSource) -> None:
    """Refuse data that the model cannot be fitted to.  Errors: DataError."""
    rows, columns = source.shape
    if estimator.kernel_store is not None:
        require_apart(estimator.kernel_store, source)
    if estimator.kernel == "precomputed" and rows != columns:
        raise DataError(
            f"the precomputed kernel has {rows} × {columns} values; a fit needs those of the training rows with "
            "themselves, as many columns as rows"
        )
    if estimator.n_components >= rows - 1:
        raise DataError(
            f"n_components is {estimator.n_components}, but the features of {rows} samples allow at most {rows - 2}; "
            "ask for fewer components"
        )
    if estimator.landmarks is not None and estimator.landmarks > rows:
        raise DataError(f"landmarks is {estimator.landmarks}, but there are {rows} samples; ask for fewer, or None")


def kernel_of(estimator: Any) -> Kernel:
    """The kernel as far as it is known before the data are seen; γ = 0 stands for the median heuristic."""
    if estimator.kernel == "precomputed":
        return Kernel("precomputed")
    function = estimator.kernel if callable(estimator.kernel) else None
    name = "callable" if function is not None else str(estimator.kernel)
    unknown = 0.0 if "gamma" in NUMBERS.get(name, ()) else 1.0
    gamma = unknown if estimator.gamma == "median" else float(estimator.gamma)
    return Kernel(name, gamma, int(estimator.degree), float(estimator.coef0), function)


def dimension_of(estimator: Any, kernel: Kernel, source: DataSource) -> int:
    """The number M of features: as asked for; D where they are the rows' own; else what N samples can span."""
    if estimator.feature_dimension is not None:
        return int(estimator.feature_dimension)
    (rows, columns), least = source.shape, int(estimator.n_components) + 1
    if kernel.name in ("linear", "cosine"):
        return max(columns, least)
    known = kernel.dimension(columns)
    return rows - 1 if known is None else max(min(rows - 1, known), least)


@contextmanager
def kept(session: Session, place: str, dtype: np.dtype[Any]) -> Iterator[tuple[TileSink, Run]]:
    """A store of the kernel, which is removed at the end."""
    source = session.source
    require_writable(place, overwrite=False, how="remove it")
    bounds = (*(block.start for block in source.blocks), source.shape[0])
    sink = TileSink.create(place, bounds, dtype=dtype)
    try:
        with session.over(open_tiles(sink.location)) as stored:
            yield sink, stored.run
    finally:
        sink.abort()


def fitted_kernel(task: FitTask, solution: Solution) -> KernelGaussian:
    """The fitted model, which owns the rows that it keeps."""
    fields, features = table_fields(task, solution), solution.features
    assert features is not None
    return KernelGaussian(
        **fields,
        dual_components=features.combinations @ fields["loadings"],
        combinations=features.combinations,
        offset=features.offset,
        middle=features.middle,
        length=features.length,
        feature_dimension=features.dimension,
        trace_error=features.trace_error,
        compared=Compared(features.kernel, tuple(map(owned, features.rows)), task.source.shape[1]),
    )


@model
class KernelModel(Model[KernelGaussian]):
    """PPCA of features that a kernel makes, with or without targets."""

    n_components: int = parameter(
        default=2, kw_only=False, text="K, the number of latent variables; less than the number of samples minus 1."
    )
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
    kernel: KernelName | KernelFunction = parameter(
        Parameter(
            KERNEL,
            "str or callable",
            '"linear" ⟨x, x\'⟩, "rbf" exp(−γ‖x − x\'‖²), "polynomial" (γ⟨x, x\'⟩ + c)^d, "cosine", '
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
