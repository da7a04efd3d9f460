"""PPCA and supervised PPCA of features that a kernel makes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np

from dlatent.arrays import Array, DataSource
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.estimators.base import Fitted
from dlatent.estimators.inputs import PathLike, Seed
from dlatent.estimators.ppca import PPCA, likelihood_rows
from dlatent.estimators.saved_kernel import map_attributes, map_variables, restored_map
from dlatent.estimators.supervised import SupervisedPPCA
from dlatent.estimators.targets import EncodedTargets, TargetType
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import KernelFeatures, Task
from dlatent.linear_gaussian.gram import outside_log_likelihoods
from dlatent.linear_gaussian.kernel_map import KernelMap, KernelRows
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.kernels import NAMES, Kernel, KernelFunction
from dlatent.passes import Run
from dlatent.stores.atomic import require_writable
from dlatent.stores.kernel_tiles import TileSink, open_tiles
from dlatent.stores.memory import held

KernelName = Literal["linear", "rbf", "polynomial", "cosine", "laplacian", "precomputed"]
WITH_GAMMA = ("rbf", "polynomial", "laplacian")


class _Absent:
    """A method of the linear models that makes no sense of features that are never written down."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Any:
        raise AttributeError(f"a kernel model has no {self.name}: {self.why}")


NO_PREIMAGE = "a kernel does not lead back from its features to rows"


class KernelPPCA(PPCA):
    """Probabilistic PCA of features φ(x) that a kernel makes: φ(x) = Wz + μ + ε, k(x, x') = φ(x)ᵀφ(x').

    Parameters
    ----------
    n_components : K, the number of latent variables.
    kernel : "linear" ⟨x, x'⟩, "rbf" exp(−γ‖x − x'‖²), "polynomial" (γ⟨x, x'⟩ + c)^d, "cosine", "laplacian"
        exp(−γ‖x − x'‖₁), "precomputed" (the data are k(x_i, x_j), new rows k(x, x_j)), or a function of two blocks of
        rows, (n, D) and (m, D) → (n, m).
    gamma : γ, or "median": 1/(2 m²) for the rbf kernel, m² the median of ‖x − x'‖² over some rows; 1/m for the
        laplacian kernel; 1 over the median of ‖x‖² for the polynomial one.
    degree : d of the polynomial kernel.
    coef0 : c of the polynomial kernel.
    feature_dimension : M, the number of features that share the noise, of SPPCA (25).  It changes the noise variance
        and, with targets, the weight of the features beside them.  None takes D for the linear and the cosine kernel,
        whose features are so many, and for the others N − 1, what N samples about their mean can span.
    landmarks : a number of random rows in whose span the loadings are looked for (Nyström); None takes all rows.
    kernel_store : where K may be kept while a fit runs, a path that all workers reach; it is removed afterwards.
    kernel_dtype : of values kept there, "float64" or "float32".
    tol : as in PPCA.
    max_iter : as in PPCA.
    random_state : seed of the first directions, of the landmarks and of the rows for the median.
    solver : where K is: in the "memory" of the driver, "recomputed" in every pass, "stored" (with `kernel_store`), or
        "auto", the cheapest of these; "em" is textbook EM on K in memory.
    noise_floor : as in PPCA.
    zero_rows : as in PPCA.

    Attributes
    ----------
    dual_components_ : Aᵀ (K, N), loadings as combinations of the centred features of the training rows, W = ΦᵀA;
        with landmarks (K, m), of theirs.
    noise_variance_ : σ², in units of the kernel.
    explained_variance_ : (K,), variance along each component, noise included.
    gamma_ : γ that was used.
    feature_dimension_ : M that was used.
    trace_error_ : with landmarks, the part of Σ k(x, x) that is outside their span; 0 without.

    The others are those of PPCA; there are no `components_` and no `mean_`, as features are never written down.

    Source: Yu, Yu, Tresp, Kriegel and Wu (2006), (21)–(28) without targets; Tipping and Bishop (1999).
    """

    _map: KernelMap
    _space = "coordinate_"
    _solvers = ("memory", "recomputed", "stored")
    missing: Literal["raise", "nan", "unstored"] = "raise"

    inverse_transform: Any = _Absent(NO_PREIMAGE)
    sample: Any = _Absent(NO_PREIMAGE)
    impute: Any = _Absent(NO_PREIMAGE)
    impute_variance: Any = _Absent(NO_PREIMAGE)
    get_covariance: Any = _Absent("its features are too many, or have no number")

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: KernelName | KernelFunction = "rbf",
        gamma: float | Literal["median"] = "median",
        degree: int = 3,
        coef0: float = 1.0,
        feature_dimension: int | None = None,
        landmarks: int | None = None,
        kernel_store: PathLike | None = None,
        kernel_dtype: Literal["float64", "float32"] = "float64",
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Seed = 0,
        solver: Literal["auto", "memory", "recomputed", "stored", "em"] = "auto",
        noise_floor: float = 1e-6,
        zero_rows: Literal["keep", "raise"] = "keep",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.feature_dimension = feature_dimension
        self.landmarks = landmarks
        self.kernel_store = kernel_store
        self.kernel_dtype = kernel_dtype
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.solver = solver
        self.noise_floor = noise_floor
        self.zero_rows = zero_rows

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's splitters that rows of a given kernel are cut with its columns."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if not callable(self.kernel) and self.kernel not in NAMES:
            raise DataError(
                f"kernel is {self.kernel!r}; expected a function of two blocks, or one of {', '.join(NAMES)}"
            )
        number = isinstance(self.gamma, (int, float, np.number)) and not isinstance(self.gamma, bool)
        if self.gamma != "median" and not (number and 0 < float(self.gamma) < np.inf):
            raise DataError(f"gamma is {self.gamma!r}; expected a positive number, or 'median'")
        if not isinstance(self.degree, (int, np.integer)) or self.degree < 1:
            raise DataError(f"degree is {self.degree!r}; expected an integer of at least 1")
        for name in ("feature_dimension", "landmarks"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, (int, np.integer)) or value <= self.n_components):
                raise DataError(f"{name} is {value!r}; expected an integer above n_components, or None")
        if self.landmarks is not None and self.kernel == "precomputed":
            raise DataError("landmarks are rows, of which a precomputed kernel has none; leave landmarks=None")
        if self.landmarks is not None and self.solver == "em":
            raise DataError("solver='em' is for the whole kernel; leave landmarks=None, or take solver='auto'")
        if self.kernel_dtype not in ("float64", "float32"):
            raise DataError(f"kernel_dtype is {self.kernel_dtype!r}; expected 'float64' or 'float32'")

    def _check_shape(self, source: DataSource) -> None:
        rows, columns = source.shape
        if self.kernel == "precomputed" and rows != columns:
            raise DataError(
                f"the precomputed kernel has {rows} × {columns} values; a fit needs those of the training rows with "
                "themselves, as many columns as rows"
            )
        if self.n_components >= rows - 1:
            raise DataError(
                f"n_components is {self.n_components}, but the features of {rows} samples allow at most {rows - 2}; "
                "ask for fewer components"
            )
        if self.landmarks is not None and self.landmarks > rows:
            raise DataError(f"landmarks is {self.landmarks}, but there are {rows} samples; ask for fewer, or None")

    def _make_specification(self, source: DataSource, encoded: EncodedTargets | None) -> Specification:
        """The model in the span of the loadings: as many coordinates as components stand for the features."""
        whole = super()._make_specification(source, encoded)
        return whole.resized((int(self.n_components), *whole.sizes[1:]))

    def _seen(self, specification: Specification) -> dict[str, Any]:
        return {
            "kernel": self._kernel().name,
            "kernel_itemsize": np.dtype(self.kernel_dtype).itemsize,
            "kernel_place": self.kernel_store is not None,
            "landmarks": int(self.landmarks or 0),
        }

    def _initial_mean(self, session: Session, *, observed: bool) -> Array:
        """Features that are never written down are summed about nothing."""
        return np.zeros(0)

    def _kernel_features(self, session: Session) -> KernelFeatures:
        kernel, blocks = self._kernel(), session.source.blocks
        rows = () if kernel.name == "precomputed" else blocks
        return KernelFeatures(kernel, self._features(kernel, session.source), rows, held, partial(self._kept, session))

    @contextmanager
    def _kept(self, session: Session) -> Iterator[tuple[TileSink, Run]]:
        """A store of the kernel, which is removed at the end."""
        path, source = os.fspath(self.kernel_store or ""), session.source
        require_writable(path, overwrite=False, how="remove it")
        bounds = (*(block.start for block in source.blocks), source.shape[0])
        sink = TileSink.create(path, bounds, dtype=self.kernel_dtype)
        try:
            with session.over(open_tiles(sink.location)) as stored:
                yield sink, stored.run
        finally:
            sink.abort()

    def _kernel(self) -> Kernel:
        """The kernel as far as it is known before the data are seen; γ = 0 stands for the median heuristic."""
        if self.kernel == "precomputed":
            return Kernel("precomputed")
        function = self.kernel if callable(self.kernel) else None
        name = "callable" if callable(self.kernel) else str(self.kernel)
        gamma = 0.0 if self.gamma == "median" and name in WITH_GAMMA else 1.0
        if self.gamma != "median":
            gamma = float(self.gamma)
        return Kernel(name, gamma, int(self.degree), float(self.coef0), function)

    def _features(self, kernel: Kernel, source: DataSource) -> int:
        """The number M of features: as asked for; D where they are the rows' own; else what N samples can span."""
        if self.feature_dimension is not None:
            return int(self.feature_dimension)
        rows, columns = source.shape
        known = kernel.dimension(columns)
        if kernel.name in ("linear", "cosine"):
            return max(columns, int(self.n_components) + 1)
        return rows - 1 if known is None else max(min(rows - 1, known), int(self.n_components) + 1)

    def _keep(self, fitted: Fitted, task: Task) -> None:
        assert fitted.outcome.features is not None
        self._map, self.n_features_in_ = fitted.outcome.features, task.problem.features
        super()._keep(fitted, task)

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        found = super()._variables(whole=whole) | {"dual_components": self.dual_components_.T}
        return found | map_variables(self._map, rows=whole)

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        more = {"features": map_attributes(self._map, self.n_features_in_)} if whole else {}
        return super()._attributes(whole=whole) | more

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        self._map = restored_map(values, attributes["features"])
        self.n_features_in_ = attributes["features"]["columns"]
        super()._restore(values, attributes)

    def _publish_loadings(self, outcome: Outcome) -> None:
        own = outcome.specification.slices[0]
        self.dual_components_ = (self._map.combinations @ outcome.parameters.loadings[own]).T
        self.gamma_ = self._map.kernel.gamma
        self.feature_dimension_ = self._map.dimension
        self.trace_error_ = self._map.trace_error

    @property
    def _dimension(self) -> int:
        return self._map.dimension

    def _rows(self, function: Any) -> Callable[..., Array]:
        inner = super()._rows(function)
        return KernelRows(self._map, inner)

    def _likelihood_function(self) -> Any:
        self._require_fitted()
        if self.kernel == "precomputed":
            raise DataError(
                "rows of a precomputed kernel do not tell k(x, x), which the likelihood needs; name the kernel"
            )
        inner = partial(
            feature_likelihood_rows,
            parameters=self._parameters,
            specification=self._specification,
            dimension=self._map.dimension,
        )
        return KernelRows(self._map, inner, distances=True)


class KernelSupervisedPPCA(KernelPPCA, SupervisedPPCA):
    """Supervised PPCA of features that a kernel makes: φ(x) = W_x z + μ_x + ε_x and y = W_y z + μ_y + ε_y.

    With every row labelled the best maximum is found from eigenvectors and a search over the two noises (Theorem 3);
    with unlabelled rows it is EM in a space that grows by products with the kernel.

    Parameters: those of KernelPPCA, and `target_type` and `target_noise_floor` of SupervisedPPCA.
    Attributes: those of KernelPPCA, and `target_components_`, `target_mean_`, `target_noise_variance_` and `classes_`
    of SupervisedPPCA.

    Source: Yu, Yu, Tresp, Kriegel and Wu (2006), Theorem 3 and (21)–(28), with (26) and Theorem 3 (ii) corrected.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: KernelName | KernelFunction = "rbf",
        gamma: float | Literal["median"] = "median",
        degree: int = 3,
        coef0: float = 1.0,
        feature_dimension: int | None = None,
        landmarks: int | None = None,
        kernel_store: PathLike | None = None,
        kernel_dtype: Literal["float64", "float32"] = "float64",
        target_type: TargetType = "auto",
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Seed = 0,
        solver: Literal["auto", "memory", "recomputed", "stored", "em"] = "auto",
        noise_floor: float = 1e-6,
        target_noise_floor: float = 1e-3,
        zero_rows: Literal["keep", "raise"] = "keep",
    ) -> None:
        KernelPPCA.__init__(
            self,
            n_components,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            feature_dimension=feature_dimension,
            landmarks=landmarks,
            kernel_store=kernel_store,
            kernel_dtype=kernel_dtype,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            solver=solver,
            noise_floor=noise_floor,
            zero_rows=zero_rows,
        )
        self.target_type = target_type
        self.target_noise_floor = target_noise_floor


def feature_likelihood_rows(
    found: Array, y: Array | None, parameters: Parameters, specification: Specification, dimension: int
) -> Array:
    """Log-likelihood of the M features of each row (n,), from coordinates and squared distances (n, K+1)."""
    coordinates, distances = np.ascontiguousarray(found[:, :-1]), found[:, -1]
    outside = np.maximum(distances - (coordinates**2).sum(axis=1), 0.0)
    rest = outside_log_likelihoods(outside, float(parameters.noise_variance[0]), dimension - coordinates.shape[1])
    return likelihood_rows(coordinates, y, parameters, specification) + rest
