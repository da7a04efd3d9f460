"""Locally linear embedding, of one data set or of several with correspondences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.embedding import Embedding
from dlatent.fitted.features import KnownFeatures
from dlatent.models.callbacks import Callback
from dlatent.models.embedding import REFERENCE_BYTES, embedded, places_of, plan_of
from dlatent.models.hyperparameters import (
    COUNT,
    TRACE_FRACTION,
    Disconnected,
    EigenSolver,
    Neighbors,
    Parameter,
    Scale,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import CellWeights, Data, PathLike, Rows, SampleDims, TargetsLike, feature_names
from dlatent.models.labelled import open_input
from dlatent.models.map_rows import RowsRun, map_rows
from dlatent.models.model import Estimator
from dlatent.models.task import FitRun
from dlatent.solvers.lle.embedding import Reference, interpolated_rows
from dlatent.solvers.lle.fit import LocalPlan


@model
class LocalLinearModel(Estimator[Embedding]):
    """The common part of LocallyLinearEmbedding and CorrespondenceLLE."""

    n_neighbors: int = parameter(
        Parameter(COUNT, "int", "k, neighbours of each sample, found in each view by itself where there are several."),
        default=5,
    )
    n_components: int = parameter(Parameter(COUNT, "int", "K, dimensions of the embedding."), default=2)
    reg: float = parameter(
        Parameter(
            TRACE_FRACTION, "float", "Regularisation of the weights, as a fraction of the trace of each Gram matrix."
        ),
        default=1e-3,
    )
    eigen_solver: EigenSolver = parameter(
        choice(
            EigenSolver,
            'How the eigenvectors are found.  "direct" factorises M = (I − W)ᵀ(I − W), "iterative" does not; "auto" '
            "goes by what the factors will cost.",
        ),
        default="auto",
    )
    neighbors: Neighbors = parameter(
        choice(
            Neighbors,
            'How neighbours are found.  "approximate" is by pynndescent, for data in memory; the recall is measured.',
        ),
        default="exact",
    )
    scale: Scale | None = parameter(default="none")
    disconnected: Disconnected = parameter(
        choice(
            Disconnected,
            'What becomes of a graph that falls apart.  "raise" stops there, "keep" warns and embeds all the same.',
        ),
        default="raise",
    )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools that sparse data are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def embedding_(self) -> Array:
        """ndarray of shape (n_samples, n_components): Y, mean 0 and mean square 1 in each column; scikit-learn's is
        Y/√N."""
        return self._model.coordinates

    @property
    def eigenvalues_(self) -> Array:
        """ndarray of shape (n_components,): The smallest eigenvalues of M but that of the constant, increasing."""
        return self._model.eigenvalues

    @property
    def reconstruction_error_(self) -> float:
        """float: Their sum."""
        return float(self.eigenvalues_.sum())

    @property
    def eigen_solver_(self) -> str:
        """str: How they were found."""
        return self._model.eigen_solver

    @property
    def eigen_residual_(self) -> float:
        """float: The largest ‖Mv − λv‖/λ; below a thousandth `converged_` is True."""
        return self._model.eigen_residual

    @property
    def predicted_fill_(self) -> float:
        """float: Entries that the factors of M were predicted to have."""
        return self._model.predicted_fill

    @property
    def separate_sets_(self) -> tuple[npt.NDArray[np.int64], ...]:
        """tuple of ndarray: Samples by set, where the graph falls apart; one set where it does not."""
        label = self._model.separate
        return tuple(np.flatnonzero(label == number) for number in range(int(label.max()) + 1))

    @property
    def neighbor_recall_(self) -> tuple[float, ...]:
        """tuple of float: For each view 1.0 for exact neighbours, else the fraction that was found, on a sample."""
        return self._model.recall

    @property
    def n_features_in_(self) -> int:
        """int: Number of features, of all views together."""
        return sum(view.shape[1] for view in self._model.training.views)

    @property
    def _n_features_out(self) -> int:
        return len(self._model.component)

    def _reference(self, view: int, values: Any) -> Reference:
        """The training rows of a view, with values for each."""
        training = self._model.training.views[view]
        if training.rows is None:
            raise DataError(
                f"the training rows of {training.name!r} are more than {REFERENCE_BYTES >> 30} GiB and were not kept, "
                "so that new samples have no neighbours among them; embed all samples together"
            )
        return Reference(training.rows, values, int(self.n_neighbors), float(self.reg), training.units)

    def _interpolated(self, X: Data, view: int, run: RowsRun) -> Rows | str:
        """The coordinates of new samples of a view."""
        function = partial(interpolated_rows, reference=self._reference(view, self._coordinates(view)))
        names, known = self._model.component, self._known_features(view)
        return map_rows(X, function, known, run, columns="component", names=names, name="scores")

    def _known_features(self, view: int) -> KnownFeatures:
        """The requirements on new data of a view."""
        known = self._model.training.views[view]
        name = known.name if len(self._model.views) > 1 else None
        return KnownFeatures(
            type(self).__name__,
            known.shape[1],
            known.features,
            name,
            grid=known.grid,
            place=self._fitted().place,
            layer=known.layer,
        )

    def _coordinates(self, view: int) -> Array:
        """The embedding of the rows of a view, in their order."""
        rows = [each.shape[0] for each in self._model.training.views]
        return np.asarray(self.embedding_[places_of(self._model.table, rows)[view]])


@model
class LocallyLinearEmbedding(LocalLinearModel):
    r"""Locally linear embedding: coordinates in which each sample is still the same mixture of its neighbours.

    .. math:: \min_Y \sum_i \left\| y_i - \sum_j W_{ij} y_j \right\|^2 \quad \text{with} \quad Y^\top Y = N I, \quad
        \sum_i y_i = 0

    W_ij are the barycentric weights of the data.

    References
    ----------
    Roweis and Saul (2000); Saul and Roweis (2003).  Read more in :doc:`/models/lle`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import LocallyLinearEmbedding
    >>> turn = np.random.default_rng(0).uniform(0, 3, size=200)
    >>> X = np.column_stack([np.cos(turn), np.sin(turn)])
    >>> model = LocallyLinearEmbedding(n_neighbors=8, n_components=1).fit(X)
    >>> bool(abs(np.corrcoef(model.embedding_[:, 0], turn)[0, 1]) > 0.9)
    True
    """

    def plan(self, X: Data, y: TargetsLike = None, *, dim: SampleDims = None, weights: CellWeights = None) -> LocalPlan:
        """Plan the passes of `fit` and their cost, from metadata alone.

        Returns
        -------
        LocalPlan
            `str(plan)` is a page to read.

        Raises
        ------
        DataError
            For data that cannot be embedded.
        """
        self._check()
        return plan_of(self, open_input(X, dim=dim, weights=weights))

    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: SampleDims = None,
        weights: CellWeights = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Embed samples × features.

        Raises
        ------
        DataError
            For data that cannot be embedded, naming row, column and block, or the sets into which the graph falls
            apart.
        PlanError
            Where neighbours or the embedding do not fit in memory; before data move.

        Warns
        -----
        ConvergenceWarning, DataWarning
            Where the eigenvectors are not known well, or the graph falls apart.
        """
        self._check()
        source = open_input(X, dim=dim, weights=weights)
        table = np.arange(source.shape[0])[:, None]
        return self._become(embedded(self, {"X": source}, table, FitRun(client, callbacks, checkpoint, resume)))

    def fit_transform(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: SampleDims = None,
        weights: CellWeights = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
    ) -> Array:
        """Embed, and return the embedding of the samples themselves.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            `embedding_`.
        """
        return self.fit(X, y, dim=dim, weights=weights, client=client, callbacks=callbacks).embedding_

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """ndarray of shape (n_features,): Names of the features, where the data of the fit had names, all of them
        texts."""
        return feature_names(self, self._model.training.views[0].features)

    def transform(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Coordinates of new samples: Σ_a w_a y_a, with the barycentric weights of the nearest training samples.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input (numpy, lazy Dask, xarray), or the path `out`.
        """
        return self._interpolated(X, 0, RowsRun(out, overwrite, resume, client))
