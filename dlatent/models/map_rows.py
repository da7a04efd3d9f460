"""A function of rows over any input: numpy in, numpy out; dask in, lazy dask out; xarray in, xarray out; or into a
store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, AxisLabels, DataSource, Graph, Grid
from dlatent.containers import in_precision, precision_of
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.features import KnownFeatures, cells_named
from dlatent.fitted.grid import units
from dlatent.fitted.row_work import GraphFilter, RowWork, cached_function, check_chunk, in_data_units, without_targets
from dlatent.fitted.rows import RowFunction, compares
from dlatent.models.beside import NOTHING, opened_beside, require_beside
from dlatent.models.callbacks import shown
from dlatent.models.checkpoints import rows_checkpoint
from dlatent.models.inputs import Data, GraphLike, PathLike, Rows
from dlatent.models.labelled import source_of, stored_coordinates, unwrap, wrap_rows
from dlatent.stores.lazy import has_sparse_chunks, is_dask_array, refuse_encoded
from dlatent.stores.location import local_path, place_text
from dlatent.stores.places import require_apart
from dlatent.stores.schema import Variable

LIKE_DATA = ("scores", "imputed", "imputed_variance", "reconstructed", "reconstruction")
"""Results that have the precision of the data, where that is single; all is computed in double precision."""


def open_edges(graph: GraphLike, source: DataSource) -> Graph:
    """The graph between the samples of a source. Errors: DataError where there is none, or one of other samples."""
    if graph is None:
        raise DataError("edges are missing; give the graph between the samples as graph=…, or use PPCA without")
    from dlatent.stores.graph.open import open_graph  # readers of edges, which few fits need

    edges = between_samples(graph, source)
    return open_graph(edges, samples=source.shape[0], ids=source.labels.samples, origin=source.labels.origin)


def between_samples(matrix: GraphLike, source: DataSource) -> Any:
    """The entry of `obsp` that a text names, where the samples are those of an AnnData; all else as it is.

    Errors: DataError for a text that is neither a name there nor a place.
    """
    if not isinstance(matrix, str) or source.graphs is None:
        return matrix
    if matrix in source.graphs:
        entry = source.graphs[matrix]
        return sp.csr_array(entry) if isinstance(entry, np.ndarray) else entry  # an array would be a list of edges
    path = local_path(matrix)
    if path is not None and not path.exists():
        names = ", ".join(map(repr, source.graphs)) or "none"
        raise DataError(f"obsp has no entry {matrix!r}, and no file has this name; obsp has {names}")
    return matrix


class RowsRun(NamedTuple):
    """How a method that has a result for each row is run: into memory, or into the store `out`, which takes the place
    of another with `overwrite`; with `resume` an interrupted call leaves what it has written to the next, which goes on
    from there."""

    out: PathLike | None = None
    overwrite: bool = False
    resume: bool = False
    client: Where = None


def map_rows(
    data: Data,
    function: RowFunction,
    features: KnownFeatures,
    run: RowsRun,
    *,
    columns: str,
    names: npt.NDArray[Any] | None,
    name: str,
    grid: Grid | None = None,
    power: int = 1,
    targets: Array | None = None,
    graph: GraphLike = None,
    graph_filter: GraphFilter | None = None,
    attrs: Mapping[str, Any] | None = None,
    beside: Mapping[str, Any] = NOTHING,
) -> Rows | str:
    """Apply `function` to the rows of any input.

    Parameters: `features`, what the model asks of the data; `columns` and `names`, dimension and labels of the result's
    second axis (names None: one number per row), and where this is that of features their `grid` and the `power` of
    their units; `targets` (N, L') encoded; `graph` and `graph_filter`, where something goes over edges; `attrs` of the
    array in a store, where they are not those of the grid; `beside`, what stands beside the entries, with which a Dask
    array is worked on at once.
    Returns: an array of the input's kind, or the path of the written store.
    """
    out = run.out
    if out is not None:
        from dlatent.stores.atomic import require_writable
        from dlatent.stores.checkpoint import checkpoint_location

        require_writable(out, overwrite=run.overwrite, resume=checkpoint_location(out) if run.resume else None)
    elif run.resume:
        raise DataError("resume=True needs a store that is written, as in transform(X, out='scores.zarr', resume=True)")
    known = AxisLabels(
        features=features.labels, grid=features.grid, layer=features.layer, covariates=features.covariates
    )
    like = unwrap(data, known=known)
    if grid is not None and grid.scale is not None:
        function = partial(in_data_units, function=function, scale=grid.scale**power)
    wrapped = partial(wrap_rows, like=like, columns=columns, names=_numbered(names), name=name, grid=grid, power=power)
    alone = targets is None and graph is None and not (beside or features.beside)
    if is_dask_array(like.data) and out is None and alone:
        features.check(like.data.shape, None if like.labels is None else like.labels.features)
        refuse_encoded(like.data)
        features.check_kind(has_sparse_chunks(like.data), "Dask array with scipy.sparse chunks")
        from dlatent.engine.lazy import map_chunks  # which only Dask arrays need

        shared = compares(function)
        rows = partial(cached_function if shared else without_targets, function=function, single=names is None)
        dtype = precision_of(like.data) if name in LIKE_DATA else np.float64
        width, check = 1 if names is None else len(names), partial(check_chunk, features=replace(features, labels=None))
        lazy = map_chunks(like.data, rows, width, dtype, check=check, shared=shared)
        return wrapped(lazy[:, 0] if names is None else lazy)
    source = source_of(like)
    features.check(source.shape, source.labels.features)
    features.check_kind(source.sparse, source.description)
    source = opened_beside(source, beside, known=known)
    require_beside(features, source)
    if targets is not None and len(targets) != source.shape[0]:
        raise DataError(f"y has {len(targets)} rows; the data have {source.shape[0]} samples")
    edges = None if graph is None else open_edges(graph, source)
    if out is not None:
        require_apart(out, source, edges, features.place)
    work = RowWork(function, features.without_labels(), graph_filter=graph_filter if edges else None)
    if out is not None:
        coordinates = stored_coordinates(like, (name, columns))
        attrs = units(grid, power) if attrs is None and grid is not None else attrs
        with cells_named({None: features.grid}):
            return _into_store(source, work, targets, edges, out, columns, names, name, run, coordinates, attrs)
    local = "serial" if source.in_memory else run.client
    dtype = precision_of(source) if name in LIKE_DATA else np.float64
    values: Array = np.empty(source.shape[0] if names is None else (source.shape[0], len(names)), dtype)
    with (
        connect(source, targets=targets, client=local, graph=edges, cache_bytes=0) as session,
        shown(session, name),
        cells_named({None: features.grid}),
    ):
        pass_ = work.over(session, name)
        if edges is None:
            session.deliver(pass_, partial(fill, values))
        else:
            fill(values, session.run(pass_))
    return wrapped(values)


def fill(values: Array, pieces: tuple[tuple[int, Array], ...]) -> None:
    """Put the results of some blocks, each with its first row, in their place among all."""
    for start, piece in pieces:
        values[start : start + len(piece)] = in_precision(piece, values.dtype, start)


def _numbered(names: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    return np.zeros(0) if names is None else names


def _into_store(
    source: DataSource,
    work: RowWork,
    targets: Array | None,
    graph: Graph | None,
    out: PathLike,
    columns: str,
    names: npt.NDArray[Any] | None,
    name: str,
    run: RowsRun,
    along_samples: Mapping[str, Variable],
    attrs: Mapping[str, Any] | None,
) -> str:
    from dlatent.stores.sinks import RowSink  # Zarr, which arrays do not need

    labels = source.labels
    dims = (labels.dims[0], columns)
    coordinates: dict[str, Any] = {columns: np.zeros(1, dtype=np.int64) if names is None else names}
    if labels.samples is not None:
        coordinates[dims[0]] = labels.samples
    coordinates |= along_samples
    shape = (source.shape[0], 1 if names is None else len(names))
    starts = [block.start for block in source.blocks]
    create = partial(
        RowSink.create,
        out,
        shape,
        starts=starts,
        dtype=precision_of(source) if name in LIKE_DATA else np.float64,
        dims=dims,
        coordinates=coordinates,
        name=name,
        attributes=attrs,
        overwrite=run.overwrite,
    )
    data = {"data": source, "targets": targets, "graph": graph}
    identity = work.function if graph is None else (work.function, work.graph_filter)
    with (
        connect(source, targets=targets, client=run.client, graph=graph, cache_bytes=0) as session,
        rows_checkpoint(out if run.resume else None, name, identity, data, session) as session.journal,
        shown(session, name),
    ):
        journal = session.journal
        if journal is not None and journal.finished():
            return place_text(out)
        sink = create() if journal is None else journal.sink(create)
        try:
            session.run(work._replace(sink=sink).over(session, name))
            if journal is None:
                sink.join()
            else:
                journal.once("joined", sink.join)
            sink.finish()
        except BaseException:
            (sink.abort if journal is None else sink.leave)()
            raise
    return place_text(out)
