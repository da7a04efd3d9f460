"""Locally linear embedding, of one data set or of several with correspondences."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, DataSource, Features
from dlatent.blas import pinned
from dlatent.engine.connect import Where, connect
from dlatent.engine.records import PassRecord
from dlatent.engine.session import Session
from dlatent.errors import ConvergenceWarning, DataError, DataWarning
from dlatent.fitted.grid import cells_named
from dlatent.fitted.history import history_dataset, history_variables, restored_passes
from dlatent.fitted.summary import INITIAL_MEAN
from dlatent.fitting.local_linear import Embedded, Graph, LocalPlan, embed, make_graph, make_local_plan, require_room
from dlatent.linear_gaussian.kernel_passes import stacked
from dlatent.local_linear.embedding import Reference, interpolated
from dlatent.local_linear.neighbours import Neighbours, approximate_neighbours
from dlatent.local_linear.smallest import Eigenpairs
from dlatent.models.callbacks import Callback, Listeners, require_callbacks
from dlatent.models.checkpoints import checkpointed
from dlatent.models.features import KnownFeatures, feature_names, outside
from dlatent.models.fitted_views import FittedView, check_table, restored_views, view_variables
from dlatent.models.hyperparameters import LocalLinearHyperparameters
from dlatent.models.inputs import Data, PathLike, Rows, TargetsLike
from dlatent.models.map_rows import map_rows, open_input
from dlatent.models.saved import Estimator
from dlatent.models.task import initial_mean, sound_algebra
from dlatent.order import groups
from dlatent.stores.joint_rows import Table
from dlatent.stores.places import read_places, require_apart

REFERENCE_BYTES = 2**30
"""Training rows are kept for new samples up to this size."""
FACTOR_SHARE = 0.4
"""Part of the driver's memory that the factors of the eigenvectors may have."""
SHOWN = 5


class LocalLinearModel(LocalLinearHyperparameters, Estimator):
    """The common part of LocallyLinearEmbedding and CorrespondenceLLE.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Y, mean 0 and mean square 1 in each column; scikit-learn's is Y/√N.
    eigenvalues_ : ndarray of shape (n_components,)
        The smallest eigenvalues of M but that of the constant, increasing.
    reconstruction_error_ : float
        Their sum.
    eigen_solver_ : str
        How they were found.
    eigen_residual_ : float
        The largest ‖Mv − λv‖/λ.
    predicted_fill_ : float
        Entries that the factors of M were predicted to have.
    converged_ : bool
        Whether `eigen_residual_` is below a thousandth.
    separate_sets_ : tuple of ndarray
        Samples by set, where the graph falls apart; one set where it does not.
    neighbor_recall_ : tuple of float
        For each view 1.0 for exact neighbours, else the part that was found, on a sample.
    n_samples_ : int
        Number of samples.
    n_features_in_ : int
        Number of features, of all views together.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data of the fit had names, all of them texts.
    n_passes_ : int
        Passes over the data.
    history_ : xarray.Dataset
        A line for each pass.
    """

    _views: tuple[FittedView, ...]
    _table: Table

    def _plan(self, source: DataSource) -> LocalPlan:
        rows = source.shape[0]
        if self.n_neighbors >= rows:
            raise DataError(
                f"n_neighbors is {self.n_neighbors}, but the {source.description} has {rows} samples, which allow at "
                f"most {rows - 1}; ask for fewer"
            )
        sizes = [block.nbytes for block in source.blocks]
        cut = [sum(sizes[group.start : group.stop]) for group in groups(sizes)]
        per_row = source.shape[1] if not source.sparse else (source.nnz or source.nbytes / 12) / rows
        kept = source.nbytes if source.nbytes <= REFERENCE_BYTES else 0
        return make_local_plan(source.shape, cut, int(self.n_neighbors), per_row, source.description, kept)

    def _fit(
        self,
        names: Sequence[str],
        sources: Sequence[DataSource],
        table: Table,
        client: Where,
        callbacks: Sequence[Callback],
        checkpoint: PathLike | None,
        resume: bool,
    ) -> None:
        callbacks = require_callbacks(callbacks)
        if self.n_components >= len(table) - 1:
            raise DataError(
                f"n_components is {self.n_components}, but {len(table)} samples allow at most {len(table) - 2}"
            )
        plans = [self._plan(source) for source in sources]
        data = {**dict(zip(names, sources, strict=True)), "table": table}
        if checkpoint is not None:
            require_apart(checkpoint, *sources)
        with (
            connect(sources[0], client=client) as session,
            checkpointed(checkpoint, resume, self, data, {}, session) as session.journal,
            pinned(),
            sound_algebra(),
        ):
            for plan in plans:
                require_room(plan, session.available)
            views = tuple(
                FittedView(name, source.shape, rows_of(source), source.labels.features, source.labels.grid)
                for name, source in zip(names, sources, strict=True)
            )
            self._checkpoint = None if session.journal is None else session.journal.identity
            found = [self._graph(*own, session, callbacks) for own in zip(views, sources, plans, strict=True)]
        graphs, recalls = zip(*found, strict=True)
        self._views, self._table = views, table
        with pinned(), sound_algebra():
            embedded = embed(
                graphs,
                places_of(table, [source.shape[0] for source in sources]),
                len(table),
                int(self.n_components),
                memory=FACTOR_SHARE * session.resources.driver_memory,
                solver=self.eigen_solver,
                check=self._check_joined,
            )
        self._publish(embedded, tuple(session.passes), recalls)
        self._read, self._place = read_places(*sources), None
        if not self.converged_:
            warnings.warn(
                f"the eigenvectors are known to {self.eigen_residual_:.1e} of their eigenvalues only "
                f"({self.eigen_solver_}); install pyamg (pip install pyamg), or use eigen_solver='direct' where "
                f"memory allows",
                ConvergenceWarning,
                stacklevel=outside(),
            )

    def _graph(
        self, view: FittedView, source: DataSource, plan: LocalPlan, session: Session, callbacks: Sequence[Callback]
    ) -> tuple[Graph, float]:
        recalls = [1.0]

        def approximate() -> Neighbours:
            if view.rows is None:
                raise DataError(
                    f"the {source.description} is larger than {REFERENCE_BYTES >> 30} GiB, and approximate neighbours "
                    "are found in memory; use neighbors='exact'"
                )
            found, recalls[0] = approximate_neighbours(view.rows, plan.n_neighbors, shift)
            return found

        others = approximate if self.neighbors == "approximate" else None
        listeners = Listeners(callbacks, plan)
        with session.over(source) as own, listeners.told(), cells_named({None: source.labels.grid}):
            shift = initial_mean(own)
            own.on_pass, own.on_progress = listeners.on_pass, listeners.on_task
            return make_graph(own.run, shift, plan, float(self.reg), others), recalls[0]

    def _check_joined(self, separate: tuple[npt.NDArray[np.int64], ...]) -> None:
        if len(separate) == 1:
            return
        sizes = ", ".join(str(len(members)) for members in separate[:SHOWN])
        more = ", …" if len(separate) > SHOWN else ""
        examples = ", ".join(self._described(int(row)) for row in separate[-1][:SHOWN])
        bridges = ", or give correspondences between them" if self._table.shape[1] > 1 else ""
        text = (
            f"the graph of {self.n_neighbors} neighbours has {len(separate)} sets of samples without neighbours "
            f"outside (of {sizes}{more}; the last holds {examples}), and the smallest eigenvectors would do no more "
            f"than tell them apart; raise n_neighbors, embed the sets one by one{bridges}"
        )
        if self.disconnected == "raise":
            raise DataError(f"{text}; or see them all the same with disconnected='keep'")
        warnings.warn(text, DataWarning, stacklevel=outside())

    def _described(self, sample: int) -> str:
        if len(self._views) == 1:
            return f"row {sample}"
        view = int(np.flatnonzero(self._table[sample] >= 0)[0])
        return f"row {self._table[sample, view]} of {self._views[view].name!r}"

    def _publish(self, embedded: Embedded, passes: tuple[PassRecord, ...], recalls: Sequence[float]) -> None:
        """The fitted attributes in scikit-learn's manner."""
        self.embedding_ = embedded.coordinates
        self.eigenvalues_ = embedded.eigen.values
        self.reconstruction_error_ = float(embedded.eigen.values.sum())
        self.eigen_solver_, self.eigen_residual_ = embedded.eigen.solver, embedded.eigen.residual
        self.predicted_fill_ = embedded.eigen.fill
        self.converged_ = embedded.converged
        self.separate_sets_ = embedded.separate
        self.neighbor_recall_ = tuple(recalls)
        self.n_samples_ = len(self._table)
        self.n_passes_ = sum(record.name != INITIAL_MEAN for record in passes)
        self.history_ = history_dataset((), passes)

    @property
    def n_features_in_(self) -> int:
        """Number of features D, of all views together."""
        self._require_fitted()
        return sum(view.shape[1] for view in self._views)

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _reference(self, view: int, values: Any) -> Reference:
        """The training rows of a view, with values for each."""
        own = self._views[view]
        if own.rows is None:
            raise DataError(
                f"the training rows of {own.name!r} are more than {REFERENCE_BYTES >> 30} GiB and were not kept, so "
                "that new samples have no neighbours among them; embed all samples together"
            )
        return Reference(own.rows, values, int(self.n_neighbors), float(self.reg))

    def _transform(
        self, X: Data, view: int, out: PathLike | None, overwrite: bool, resume: bool, client: Where
    ) -> Rows | str:
        self._require_fitted()
        function = partial(_interpolated_rows, reference=self._reference(view, self._coordinates(view)))
        names = np.arange(self.embedding_.shape[1])
        known = self._known_features(view)
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return map_rows(X, function, known, columns="component", names=names, name="scores", **options)

    def _known_features(self, view: int) -> KnownFeatures:
        """What the model asks of new data of a view."""
        own = self._views[view]
        name = own.name if len(self._views) > 1 else None
        return KnownFeatures(type(self).__name__, own.shape[1], own.features, name, grid=own.grid, place=self._place)

    def _coordinates(self, view: int) -> Array:
        """The embedding of the rows of a view, in their order."""
        return np.asarray(self.embedding_[places_of(self._table, [v.shape[0] for v in self._views])[view]])

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        label = np.full(self.n_samples_, -1, dtype=np.int64)
        for number, members in enumerate(self.separate_sets_):
            label[members] = number
        found = {
            "embedding": self.embedding_,
            "smallest_eigenvalues": self.eigenvalues_,
            "view_row": self._table,
            "separate_set": label,
            "view": np.array([view.name for view in self._views]),
            "component": np.arange(self.embedding_.shape[1]),
            **history_variables(self.history_),
        }
        return found | view_variables(self._views) if whole else found

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        found = {
            "eigen_solver": self.eigen_solver_,
            "eigen_residual": self.eigen_residual_,
            "converged": self.converged_,
            "neighbor_recall": list(self.neighbor_recall_),
        }
        more = {"predicted_fill": self.predicted_fill_, "views": [view.description for view in self._views]}
        return found | more if whole else found

    def _facts(self) -> dict[str, Any]:
        self._require_fitted()
        rows = (self._table >= 0).sum(axis=0).tolist()
        return {
            "kind": type(self).__name__,
            "parameters": self.get_params(),
            "samples": self.n_samples_,
            "eigenvalues": self.eigenvalues_,
            "eigen_solver": self.eigen_solver_,
            "eigen_residual": self.eigen_residual_,
            "converged": self.converged_,
            "separate_sets": len(self.separate_sets_),
            "neighbor_recall": self.neighbor_recall_,
            "passes": self.n_passes_,
            "seconds": float(self.history_["pass_seconds"].sum()),
            "views": [
                {"view": own.name, "samples": count, "features": own.shape[1], "kept": own.rows is not None}
                for own, count in zip(self._views, rows, strict=True)
            ],
        }

    def _words(self) -> dict[str, str]:
        sets = len(self.separate_sets_)
        return {
            "embedding": f"{self.n_samples_:,} samples in {self.embedding_.shape[1]} dimensions",
            "neighbours": f"{self.n_neighbors} of each sample",
            "eigenvalues": ", ".join(f"{value:.3g}" for value in self.eigenvalues_),
            "eigenvectors": f"{self.eigen_solver_}, known to {self.eigen_residual_:.1e} of the eigenvalues",
            "converged": "yes" if self.converged_ else "NO",
            "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
        }

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        self._table, self._views = values["view_row"], restored_views(values, attributes["views"])
        check_table(self._table, self._views)
        label = values["separate_set"]
        separate = tuple(np.flatnonzero(label == number) for number in range(int(label.max()) + 1))
        eigen = Eigenpairs(
            values["smallest_eigenvalues"],
            values["embedding"] / np.sqrt(len(label)),
            attributes["eigen_solver"],
            attributes["predicted_fill"],
            attributes["eigen_residual"],
        )
        embedded = Embedded(values["embedding"], eigen, separate)
        self._publish(embedded, restored_passes(values), attributes["neighbor_recall"])


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

    def plan(
        self, X: Data, y: TargetsLike = None, *, dim: str | None = None, weights: xr.DataArray | None = None
    ) -> LocalPlan:
        """What the passes of `fit` will cost, from metadata alone.

        Returns
        -------
        LocalPlan
            `str(plan)` is a page to read.

        Raises
        ------
        DataError
            For data that cannot be embedded.
        """
        self._check_hyperparameters()
        return self._plan(open_input(X, dim=dim, weights=weights)[0])

    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
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
        StoreError
            For a checkpoint of another fit, with what differs.

        Warns
        -----
        ConvergenceWarning, DataWarning
            Where the eigenvectors are not known well, or the graph falls apart.
        """
        self._check_hyperparameters()
        source, _ = open_input(X, dim=dim, weights=weights)
        table = np.arange(source.shape[0])[:, None]
        self._fit(["X"], [source], table, client, callbacks, checkpoint, resume)
        return self

    def fit_transform(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
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
        """Names of the features (D,), where the data of the fit had names, and all of them were texts."""
        self._require_fitted()
        return feature_names(self, self._views[0].features)

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

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        """
        return self._transform(X, 0, out, overwrite, resume, client)


def rows_of(source: DataSource) -> Features | None:
    """All rows of the data, for new samples, where they are not too many."""
    if source.nbytes > REFERENCE_BYTES:
        return None
    return stacked(tuple(block.load() for block in source.blocks))


def places_of(table: Table, rows: Sequence[int]) -> list[npt.NDArray[np.int64]]:
    """The sample of each row of each view."""
    places = []
    for view, count in enumerate(rows):
        place = np.empty(count, dtype=np.int64)
        present = np.flatnonzero(table[:, view] >= 0)
        place[table[present, view]] = present
        places.append(place)
    return places


def _interpolated_rows(features: Features, _targets: Any, reference: Reference) -> Array:
    return interpolated(features, reference)
