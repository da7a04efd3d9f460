"""The fit of locally linear embeddings: data sets, their graphs of neighbours, and coordinates of all samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import DataSource, Features
from dlatent.blas import pinned
from dlatent.engine.connect import connect
from dlatent.engine.session import Session
from dlatent.errors import ConvergenceWarning, DataError, DataWarning, outside
from dlatent.fitted.embedding import Embedding, FittedView, TrainingViews
from dlatent.fitted.features import cells_named
from dlatent.fitted.fit import Fit, Report
from dlatent.gaussian.spread import divided
from dlatent.models.callbacks import Callback, Listeners, require_callbacks
from dlatent.models.checkpoints import checkpointed
from dlatent.models.initial import initial_mean, measured
from dlatent.models.task import FitRun, sound_algebra
from dlatent.operators.sparse import stacked
from dlatent.order import groups
from dlatent.solvers.lle.fit import Graph, LocalPlan, embed, make_graph, make_local_plan, require_room
from dlatent.solvers.lle.near_pairs import Neighbours
from dlatent.solvers.lle.neighbours import approximate_neighbours
from dlatent.stores.joint import Table
from dlatent.stores.places import read_places, require_apart
from dlatent.stores.rows import in_units

REFERENCE_BYTES = 2**30
"""Training rows are kept for new samples up to this size."""
FACTOR_SHARE = 0.4
"""Fraction of the driver's memory that the factors of the eigenvectors may have."""
SHOWN = 5


def plan_of(model: Any, source: DataSource) -> LocalPlan:
    """Plan the passes over a data set.  Errors: DataError where there are too few samples."""
    rows = source.shape[0]
    if model.n_neighbors >= rows:
        raise DataError(
            f"n_neighbors is {model.n_neighbors}, but the {source.description} has {rows} samples, which allow at "
            f"most {rows - 1}; ask for fewer"
        )
    sizes = [block.nbytes for block in source.blocks]
    cut = [sum(sizes[group.start : group.stop]) for group in groups(sizes)]
    per_row = source.shape[1] if not source.sparse else (source.nnz or source.nbytes / 12) / rows
    kept = source.nbytes if source.nbytes <= REFERENCE_BYTES else 0
    return make_local_plan(source.shape, cut, int(model.n_neighbors), per_row, source.description, kept)


def embedded(model: Any, data: Mapping[str, DataSource], table: Table, run: FitRun) -> Fit:
    """Embed data sets together, whose rows are the samples that the table says."""
    callbacks, sources = require_callbacks(run.callbacks), list(data.values())
    if model.n_components >= len(table) - 1:
        raise DataError(
            f"n_components is {model.n_components}, but {len(table)} samples allow at most {len(table) - 2}"
        )
    plans = [plan_of(model, source) for source in sources]
    if run.checkpoint is not None:
        require_apart(run.checkpoint, *sources)
    with (
        connect(sources[0], client=run.client) as session,
        checkpointed(run.checkpoint, run.resume, model, {**data, "table": table}, {}, session) as session.journal,
        pinned(),
        sound_algebra(),
    ):
        for plan in plans:
            require_room(plan, session.available)
        scaled = model.scale in ("spread", "patterson")
        units = partial(measured, client=run.client, missing=False, genotypes=model.scale == "patterson")
        seen = [units(each) if scaled else (None, ()) for each in sources]
        views = tuple(
            FittedView(
                name,
                source.shape,
                rows_of(source),
                source.labels.features,
                source.labels.grid,
                own,
                source.labels.layer,
            )
            for (name, source), (own, _) in zip(data.items(), seen, strict=True)
        )
        journal = None if session.journal is None else session.journal.identity
        graphs, recalls = zip(
            *(_graph(model, *each, session, callbacks) for each in zip(views, sources, plans, strict=True)),
            strict=True,
        )
    with pinned(), sound_algebra():
        result = embed(
            graphs,
            places_of(table, [source.shape[0] for source in sources]),
            len(table),
            int(model.n_components),
            memory=FACTOR_SHARE * session.resources.driver_memory,
            solver=model.eigen_solver,
            check=partial(_check_joined, model, views=views, table=table),
        )
    eigen, separate = result.eigen, np.full(len(table), -1, dtype=np.int64)
    for number, members in enumerate(result.separate):
        separate[members] = number
    fitted = Embedding(
        coordinates=result.coordinates,
        eigenvalues=eigen.values,
        table=table,
        separate=separate,
        views=np.array(list(data)),
        component=np.arange(result.coordinates.shape[1]),
        training=TrainingViews(views),
        n_neighbors=int(model.n_neighbors),
        eigen_solver=eigen.solver,
        eigen_residual=eigen.residual,
        predicted_fill=eigen.fill,
        recall=tuple(recalls),
    )
    if not result.converged:
        warnings.warn(
            f"the eigenvectors are known to {eigen.residual:.1e} of their eigenvalues only ({eigen.solver}); "
            f"install pyamg (pip install pyamg), or use eigen_solver='direct' where memory allows",
            ConvergenceWarning,
            stacklevel=outside(),
        )
    passes = (*(record for _, records in seen for record in records), *session.passes)
    report = Report(None, None, result.converged, 0, len(table), {}, (), (), passes)
    return Fit(fitted, report, places=read_places(*sources), checkpoint=journal)


def _graph(
    model: Any, view: FittedView, source: DataSource, plan: LocalPlan, session: Session, callbacks: Sequence[Callback]
) -> tuple[Graph, float]:
    """The graph of neighbours of a data set, and how many of the true ones it has."""
    recalls = [1.0]

    def approximate() -> Neighbours:
        if view.rows is None:
            raise DataError(
                f"the {source.description} is larger than {REFERENCE_BYTES >> 30} GiB, and approximate neighbours "
                "are found in memory; use neighbors='exact'"
            )
        rows = view.rows if view.units is None else divided(view.rows, view.units)
        neighbours, recalls[0] = approximate_neighbours(rows, plan.n_neighbors, shift)
        return neighbours

    source = source if view.units is None else in_units(source, view.units)
    others = approximate if model.neighbors == "approximate" else None
    listeners = Listeners(callbacks, plan)
    with session.over(source) as over, listeners.told(), cells_named({None: source.labels.grid}):
        shift = initial_mean(over)
        over.on_pass, over.on_progress = listeners.on_pass, listeners.on_task
        return make_graph(over.run, shift, plan, float(model.reg), others), recalls[0]


def _check_joined(
    model: Any, separate: tuple[npt.NDArray[np.int64], ...], views: tuple[FittedView, ...], table: Table
) -> None:
    """Refuse a graph that falls apart, or warn of it."""
    if len(separate) == 1:
        return
    sizes = ", ".join(str(len(members)) for members in separate[:SHOWN])
    more = ", …" if len(separate) > SHOWN else ""
    examples = ", ".join(_row_of(int(row), views, table) for row in separate[-1][:SHOWN])
    bridges = ", or give correspondences between them" if len(views) > 1 else ""
    text = (
        f"the graph of {model.n_neighbors} neighbours has {len(separate)} sets of samples without neighbours "
        f"outside (of {sizes}{more}; the last holds {examples}), and the smallest eigenvectors would do no more "
        f"than tell them apart; raise n_neighbors, embed the sets one by one{bridges}"
    )
    if model.disconnected == "raise":
        raise DataError(f"{text}; or see them all the same with disconnected='keep'")
    warnings.warn(text, DataWarning, stacklevel=outside())


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
