"""PPCA and supervised PPCA of features that a kernel makes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from dlatent.arrays import Array, DataSource
from dlatent.engine.session import Session
from dlatent.errors import DataError, masked
from dlatent.fitted.facts import Facts, component_facts
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import KernelFeatures, Task
from dlatent.linear_gaussian.complete import log_likelihoods
from dlatent.linear_gaussian.gram import outside_log_likelihoods
from dlatent.linear_gaussian.kernel_map import KernelMap, KernelRows
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.models.base import Fitted, Given
from dlatent.models.heads import Fits, Scores, Transforms
from dlatent.models.hyperparameters import KernelHyperparameters, KernelSupervisedHyperparameters
from dlatent.models.linear import LinearModel
from dlatent.models.saved_kernel import map_attributes, map_variables, restored_map
from dlatent.models.target_heads import FitsTargets, Predicts, ScoresWithTargets, TransformsWithTargets
from dlatent.operators.kernels import Kernel
from dlatent.passes import Run
from dlatent.stores.atomic import require_writable
from dlatent.stores.kernel_tiles import TileSink, open_tiles
from dlatent.stores.memory import held, lent, owned
from dlatent.stores.places import require_apart

NUMBERS = {"rbf": ("gamma",), "laplacian": ("gamma",), "polynomial": ("gamma", "degree", "coef0")}
"""What named kernels depend on."""


class KernelModel(KernelHyperparameters, LinearModel):
    """The common part of the models of features that a kernel makes; see KernelPPCA.

    Attributes
    ----------
    dual_components_ : ndarray of shape (n_components, n_samples)
        Aᵀ, loadings as combinations of the centred features of the training rows, W = ΦᵀA; with landmarks of theirs,
        (n_components, landmarks).
    noise_variance_ : float
        σ², in units of the kernel.
    gamma_ : float
        γ that was used.
    feature_dimension_ : int
        M that was used.
    trace_error_ : float
        With landmarks, the part of Σ k(x, x) that is outside their span; 0 without.
    """

    _map: KernelMap
    _space = "coordinate_"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's splitters that rows of a given kernel are cut with its columns."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _check_shape(self, source: DataSource) -> None:
        rows, columns = source.shape
        if self.kernel_store is not None:
            require_apart(self.kernel_store, source)
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

    def _make_specification(self, given: Given) -> Specification:
        """The model in the span of the loadings: as many coordinates as components stand for the features."""
        whole = super()._make_specification(given)
        return whole.resized((int(self.n_components), *whole.sizes[1:]))

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        kept = () if self.landmarks or self.kernel == "precomputed" else given.source.blocks
        return {
            "kernel": self._kernel().name,
            "kernel_itemsize": np.dtype(self.kernel_dtype).itemsize,
            "kernel_place": self.kernel_store is not None,
            "landmarks": int(self.landmarks or 0),
            "kept_bytes": sum(block.nbytes for block in kept if lent(block)),
        }

    def _initial_mean(self, session: Session, *, observed: bool) -> Array:
        """Features that are never written down are summed about nothing."""
        return np.zeros(0)

    def _more_of_task(self, session: Session, given: Given, specification: Specification) -> dict[str, Any]:
        kernel, source = self._kernel(), given.source
        rows = () if kernel.name == "precomputed" else source.blocks
        made = KernelFeatures(kernel, self._features(kernel, source), rows, held, partial(self._kept, session))
        return {"kernel": made}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # as scikit-learn calls it
        return str(BaseEstimator.__repr__(self._shown(), N_CHAR_MAX))

    def _shown(self) -> Self:
        """The same for the eyes: without credentials in the URL of `kernel_store`."""
        shown = copy(self)
        if self.kernel_store is not None:
            shown.kernel_store = masked(os.fspath(self.kernel_store))
        return shown

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
        gamma = 0.0 if self.gamma == "median" and "gamma" in NUMBERS.get(name, ()) else 1.0
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

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        assert fitted.outcome.features is not None
        found = fitted.outcome.features
        self._map = replace(found, rows=tuple(map(owned, found.rows)))
        self.n_features_in_ = task.problem.features
        super()._keep(fitted, task, given)

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        found = super()._variables(whole=whole) | {"dual_components": self.dual_components_.T}
        return found | map_variables(self._map, rows=whole)

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        more = {"features": map_attributes(self._map, self.n_features_in_)} if whole else {}
        return super()._attributes(whole=whole) | more

    def _facts(self) -> dict[str, Any]:
        kernel, made = self._map.kernel, self._map
        numbers = {"name": kernel.name, "gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}
        return super()._facts() | {"kernel": {**numbers, "dimension": made.dimension, "trace_error": made.trace_error}}

    def _words(self) -> dict[str, str]:
        found = super()._words()
        kernel, made = self._map.kernel, self._map
        said = [f"{name} {getattr(kernel, name):g}" for name in NUMBERS.get(kernel.name, ())]
        error = f"; trace error of the landmarks {made.trace_error:.2g}" if made.trace_error else ""
        return found | {"kernel": ", ".join([kernel.name, *said, f"{made.dimension:,} features"]) + error}

    def _component_facts(self) -> list[Facts]:
        total = float(self._fitted.outcome.total_variance[0]) * self._map.dimension
        return component_facts(self._parameters.loadings[self._specification.slices[0]], (), total)

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

    def _rows_at(self, outcome: Outcome, function: Any) -> Callable[..., Array]:
        assert outcome.features is not None
        return KernelRows(outcome.features, super()._rows_at(outcome, function))

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


class KernelPPCA(KernelModel, Fits, Transforms, Scores):
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


class KernelSupervisedPPCA(
    KernelSupervisedHyperparameters,
    KernelModel,
    FitsTargets,
    TransformsWithTargets,
    ScoresWithTargets,
    Predicts,
):
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


def feature_likelihood_rows(
    found: Array, y: Array | None, parameters: Parameters, specification: Specification, dimension: int
) -> Array:
    """Log-likelihood of the M features of each row (n,), from coordinates and squared distances (n, K+1)."""
    coordinates, distances = np.ascontiguousarray(found[:, :-1]), found[:, -1]
    outside = np.maximum(distances - (coordinates**2).sum(axis=1), 0.0)
    rest = outside_log_likelihoods(outside, float(parameters.noise_variance[0]), dimension - coordinates.shape[1])
    return log_likelihoods(coordinates, y, parameters, specification) + rest
