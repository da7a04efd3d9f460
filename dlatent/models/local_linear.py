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
from dlatent.engine.session import Session
from dlatent.errors import ConvergenceWarning, DataError, DataWarning
from dlatent.fitted.embedding import Embedding, FittedView, TrainingViews
from dlatent.fitted.fit import Fit, Report
from dlatent.fitted.grid import cells_named
from dlatent.gaussian.kernel_passes import stacked
from dlatent.models import fitted_methods
from dlatent.models.callbacks import Callback, Listeners, require_callbacks
from dlatent.models.checkpoints import checkpointed
from dlatent.models.docstrings import described
from dlatent.models.features import KnownFeatures, feature_names, outside
from dlatent.models.hyperparameters import (
    COUNT,
    PART_OF_TRACE,
    Disconnected,
    EigenSolver,
    Neighbors,
    Parameter,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Data, PathLike, Rows, TargetsLike
from dlatent.models.map_rows import map_rows, open_input
from dlatent.models.scikit import Estimator
from dlatent.models.task import initial_mean, sound_algebra
from dlatent.order import groups
from dlatent.solvers.lle.embedding import Reference, interpolated
from dlatent.solvers.lle.fit import Graph, LocalPlan, embed, make_graph, make_local_plan, require_room
from dlatent.solvers.lle.neighbours import Neighbours, approximate_neighbours
from dlatent.stores.joint_rows import Table
from dlatent.stores.places import read_places, require_apart

REFERENCE_BYTES = 2**30
"""Training rows are kept for new samples up to this size."""
FACTOR_SHARE = 0.4
"""Part of the driver's memory that the factors of the eigenvectors may have."""
SHOWN = 5


NEIGHBORS = Parameter(
    COUNT, "int", "k, neighbours of each sample, found in each view by itself where there are several."
)
COMPONENTS = Parameter(COUNT, "int", "K, dimensions of the embedding.")
REG = Parameter(
    PART_OF_TRACE, "float", "Regularisation of the weights, as a fraction of the trace of each Gram matrix."
)
EIGEN_SOLVER = choice(
    EigenSolver,
    'How the eigenvectors are found.  "direct" factorises M = (I − W)ᵀ(I − W), "iterative" does not; "auto" goes by '
    "what the factors will cost.",
)
HOW_NEIGHBORS = choice(
    Neighbors,
    'How neighbours are found.  "approximate" is by pynndescent, for data in memory; the recall is measured.',
)
DISCONNECTED = choice(
    Disconnected,
    'What becomes of a graph that falls apart.  "raise" stops there, "keep" warns and embeds all the same.',
)


@model
class LocalLinearModel(Estimator):
    """The common part of LocallyLinearEmbedding and CorrespondenceLLE."""

    n_neighbors: int = parameter(NEIGHBORS, default=5)
    n_components: int = parameter(COMPONENTS, default=2)
    reg: float = parameter(REG, default=1e-3)
    eigen_solver: EigenSolver = parameter(EIGEN_SOLVER, default="auto")
    neighbors: Neighbors = parameter(HOW_NEIGHBORS, default="exact")
    disconnected: Disconnected = parameter(DISCONNECTED, default="raise")

    _check, _become, _fitted = fitted_methods.check, fitted_methods.become, fitted_methods.fitted
    __sklearn_is_fitted__, save = fitted_methods.is_fitted, fitted_methods.save
    result_, history_, converged_ = fitted_methods.result_, fitted_methods.history_, fitted_methods.converged_
    n_samples_, n_passes_ = fitted_methods.n_samples_, fitted_methods.n_passes_
    _facts, _words, _html_repr = fitted_methods.facts, fitted_methods.in_words, fitted_methods.html_repr

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools that sparse data are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _embedding(self) -> Embedding:
        """The fitted value."""
        found = self._fitted().model
        assert isinstance(found, Embedding)
        return found

    @property
    def embedding_(self) -> Array:
        """ndarray of shape (n_samples, n_components): Y, mean 0 and mean square 1 in each column; scikit-learn's is
        Y/√N."""
        return self._embedding.coordinates

    @property
    def eigenvalues_(self) -> Array:
        """ndarray of shape (n_components,): The smallest eigenvalues of M but that of the constant, increasing."""
        return self._embedding.eigenvalues

    @property
    def reconstruction_error_(self) -> float:
        """float: Their sum."""
        return float(self.eigenvalues_.sum())

    @property
    def eigen_solver_(self) -> str:
        """str: How they were found."""
        return self._embedding.eigen_solver

    @property
    def eigen_residual_(self) -> float:
        """float: The largest ‖Mv − λv‖/λ; below a thousandth `converged_` is True."""
        return self._embedding.eigen_residual

    @property
    def predicted_fill_(self) -> float:
        """float: Entries that the factors of M were predicted to have."""
        return self._embedding.predicted_fill

    @property
    def separate_sets_(self) -> tuple[npt.NDArray[np.int64], ...]:
        """tuple of ndarray: Samples by set, where the graph falls apart; one set where it does not."""
        label = self._embedding.separate
        return tuple(np.flatnonzero(label == number) for number in range(int(label.max()) + 1))

    @property
    def neighbor_recall_(self) -> tuple[float, ...]:
        """tuple of float: For each view 1.0 for exact neighbours, else the fraction that was found, on a sample."""
        return self._embedding.recall

    @property
    def n_features_in_(self) -> int:
        """int: Number of features, of all views together."""
        return sum(view.shape[1] for view in self._embedding.training.views)

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

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

    def _embed(
        self,
        names: Sequence[str],
        sources: Sequence[DataSource],
        table: Table,
        client: Where,
        callbacks: Sequence[Callback],
        checkpoint: PathLike | None,
        resume: bool,
    ) -> Self:
        """Embed data sets together, and become what comes of it."""
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
            journal = None if session.journal is None else session.journal.identity
            found = [self._graph(*own, session, callbacks) for own in zip(views, sources, plans, strict=True)]
        graphs, recalls = zip(*found, strict=True)
        with pinned(), sound_algebra():
            embedded = embed(
                graphs,
                places_of(table, [source.shape[0] for source in sources]),
                len(table),
                int(self.n_components),
                memory=FACTOR_SHARE * session.resources.driver_memory,
                solver=self.eigen_solver,
                check=partial(self._check_joined, views=views, table=table),
            )
        eigen, separate = embedded.eigen, np.full(len(table), -1, dtype=np.int64)
        for number, members in enumerate(embedded.separate):
            separate[members] = number
        fitted = Embedding(
            coordinates=embedded.coordinates,
            eigenvalues=eigen.values,
            table=table,
            separate=separate,
            views=np.array(names),
            component=np.arange(embedded.coordinates.shape[1]),
            training=TrainingViews(views),
            n_neighbors=int(self.n_neighbors),
            eigen_solver=eigen.solver,
            eigen_residual=eigen.residual,
            predicted_fill=eigen.fill,
            recall=tuple(recalls),
        )
        report = Report(None, None, embedded.converged, 0, len(table), {}, (), (), tuple(session.passes))
        self._become(Fit(fitted, report, places=read_places(*sources), checkpoint=journal))
        if not embedded.converged:
            warnings.warn(
                f"the eigenvectors are known to {eigen.residual:.1e} of their eigenvalues only ({eigen.solver}); "
                f"install pyamg (pip install pyamg), or use eigen_solver='direct' where memory allows",
                ConvergenceWarning,
                stacklevel=outside(),
            )
        return self

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

    def _check_joined(
        self, separate: tuple[npt.NDArray[np.int64], ...], views: tuple[FittedView, ...], table: Table
    ) -> None:
        """Refuse a graph that falls apart, or warn of it."""
        if len(separate) == 1:
            return
        sizes = ", ".join(str(len(members)) for members in separate[:SHOWN])
        more = ", …" if len(separate) > SHOWN else ""
        examples = ", ".join(_row_of(int(row), views, table) for row in separate[-1][:SHOWN])
        bridges = ", or give correspondences between them" if len(views) > 1 else ""
        text = (
            f"the graph of {self.n_neighbors} neighbours has {len(separate)} sets of samples without neighbours "
            f"outside (of {sizes}{more}; the last holds {examples}), and the smallest eigenvectors would do no more "
            f"than tell them apart; raise n_neighbors, embed the sets one by one{bridges}"
        )
        if self.disconnected == "raise":
            raise DataError(f"{text}; or see them all the same with disconnected='keep'")
        warnings.warn(text, DataWarning, stacklevel=outside())

    def _reference(self, view: int, values: Any) -> Reference:
        """The training rows of a view, with values for each."""
        own = self._embedding.training.views[view]
        if own.rows is None:
            raise DataError(
                f"the training rows of {own.name!r} are more than {REFERENCE_BYTES >> 30} GiB and were not kept, so "
                "that new samples have no neighbours among them; embed all samples together"
            )
        return Reference(own.rows, values, int(self.n_neighbors), float(self.reg))

    def _transform(
        self, X: Data, view: int, out: PathLike | None, overwrite: bool, resume: bool, client: Where
    ) -> Rows | str:
        function = partial(_interpolated_rows, reference=self._reference(view, self._coordinates(view)))
        names = np.arange(self.embedding_.shape[1])
        known = self._known_features(view)
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return map_rows(X, function, known, columns="component", names=names, name="scores", **options)

    def _known_features(self, view: int) -> KnownFeatures:
        """What the model asks of new data of a view."""
        own = self._embedding.training.views[view]
        name = own.name if len(self._embedding.views) > 1 else None
        return KnownFeatures(
            type(self).__name__, own.shape[1], own.features, name, grid=own.grid, place=self._fitted().place
        )

    def _coordinates(self, view: int) -> Array:
        """The embedding of the rows of a view, in their order."""
        rows = [each.shape[0] for each in self._embedding.training.views]
        return np.asarray(self.embedding_[places_of(self._embedding.table, rows)[view]])


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

    @described
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
        self._check()
        return self._plan(open_input(X, dim=dim, weights=weights)[0])

    @described
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

        Warns
        -----
        ConvergenceWarning, DataWarning
            Where the eigenvectors are not known well, or the graph falls apart.
        """
        self._check()
        source, _ = open_input(X, dim=dim, weights=weights)
        table = np.arange(source.shape[0])[:, None]
        return self._embed(["X"], [source], table, client, callbacks, checkpoint, resume)

    @described
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
        """ndarray of shape (n_features,): Names of the features, where the data of the fit had names, all of them
        texts."""
        return feature_names(self, self._embedding.training.views[0].features)

    @described
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
        return self._transform(X, 0, out, overwrite, resume, client)


def rows_of(source: DataSource) -> Features | None:
    """All rows of the data, for new samples, where they are not too many."""
    if source.nbytes > REFERENCE_BYTES:
        return None
    return stacked(tuple(block.load() for block in source.blocks))


def _row_of(sample: int, views: tuple[FittedView, ...], table: Table) -> str:
    """A sample by its row."""
    if len(views) == 1:
        return f"row {sample}"
    view = int(np.flatnonzero(table[sample] >= 0)[0])
    return f"row {table[sample, view]} of {views[view].name!r}"


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
