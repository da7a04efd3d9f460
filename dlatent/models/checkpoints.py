"""Checkpoints of fits and of stores of rows: what must be the same for one to go on, and what else it keeps."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dlatent.arrays import DataSource, Graph
from dlatent.blas import kernels
from dlatent.engine.machine import versions
from dlatent.engine.session import Session
from dlatent.errors import DataError, masked, outside
from dlatent.models.inputs import PathLike
from dlatent.stores.checkpoint_codec import fingerprint
from dlatent.stores.location import local_path, zarr_location
from dlatent.stores.temporary import sweep

if TYPE_CHECKING:
    from dlatent.stores.checkpoint import Checkpoint
    from dlatent.stores.joint import JointRows
    from dlatent.stores.sinks import RowSink

PROCESSOR = "processor"
"""The kind of processor on which a fit began, among the choices of its checkpoint."""
GRAPH_ROWS = 1000
"""First and last rows of a graph that are compared."""


@contextmanager
def checkpointed(
    place: PathLike | None,
    resume: bool,
    model: Any,
    data: Mapping[str, Any],
    choices: Mapping[str, Any],
    session: Session,
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a fit while that runs; None without a place.

    Parameters: `data`, what is fitted, by name: sources, targets, a graph, tables of rows; `choices`, JSON values that
    a checkpoint keeps, so that a fit that goes on makes the same passes.
    Errors: StoreError as `Checkpoint`; DataError where the fit could not be made again.
    """
    if place is None:
        if resume:
            raise DataError("resume=True needs the place of the checkpoint, as in fit(…, checkpoint='fit.checkpoint')")
        yield None
        return
    parameters = model.get_params(deep=False)
    if not isinstance(parameters.get("random_state", 0), int):
        raise DataError(
            f"random_state is {parameters['random_state']!r}: a fit with a checkpoint must be made again with the same "
            "random numbers; give a whole number"
        )
    about = {
        "model": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        **_about(data),
    }
    from dlatent.stores.checkpoint import Checkpoint

    threads, kept = session.resources.total_threads, {**choices, PROCESSOR: kernels()}
    with closing(Checkpoint(place, about, kept, threads=threads, resume=resume)) as checkpoint:
        began = checkpoint.choices.pop(PROCESSOR, kernels())
        if began != kernels():
            warnings.warn(
                f"the fit of {masked(checkpoint.place)} began on a processor of the kind {began}, and goes on on one "
                f"of the kind {kernels()}: the last bits of its result may be others than without the interruption; go "
                "on on a machine of that kind, or with OPENBLAS_CORETYPE set to it",
                RuntimeWarning,
                stacklevel=outside(),
            )
        yield checkpoint


class RowsJournal:
    """Which rows of a result are written: the store at `out` that they are written to, then the stages of its one
    pass."""

    def __init__(self, checkpoint: Checkpoint, out: PathLike) -> None:
        self._checkpoint, self._out, self.threads = checkpoint, zarr_location(out), checkpoint.threads

    def sink(self, create: Callable[[], RowSink]) -> RowSink:
        """The store of an interrupted call; a new one where there is none."""
        recalled = self._checkpoint.recall("sink")
        if recalled is not None:
            (sink,) = recalled
            # A URL was recorded without its credentials; and a checkpoint must not say what is written or removed.
            place = os.path.join(os.path.dirname(self._out), os.path.basename(sink.location))
            sink = replace(sink, target=self._out, location=self._out if local_path(self._out) is None else place)
            if sink.take_over():
                return cast("RowSink", sink)
        self._checkpoint.restart()
        sink = create()
        sink.sign(self._checkpoint.identity)
        self._checkpoint.record("sink", replace(sink, target=masked(sink.target), location=masked(sink.location)))
        return sink

    def finished(self) -> bool:
        """Whether an interrupted call has left the whole store; what else it has left is then removed."""
        from dlatent.stores.atomic import written_with

        if not written_with(self._out, self._checkpoint.identity):
            return False
        if (path := local_path(self._out)) is not None:
            sweep(path)
        return True

    def recall(self, work: Any) -> Any:
        """Return the recorded result of a stage of the pass."""
        _, stage = work
        return self._checkpoint.recall(stage)

    def record(self, work: Any, result: Any) -> None:
        """Record a stage of the pass, of which the checkpoint says by itself what it does."""
        _, stage = work
        self._checkpoint.record(stage, result)

    def once(self, name: str, work: Callable[[], None]) -> None:
        """Do something that an interrupted call has not done."""
        if self._checkpoint.recall(name) is None:
            work()
            self._checkpoint.record(name, None)


@contextmanager
def rows_checkpoint(
    out: PathLike | None, result: str, function: Any, data: Mapping[str, Any], session: Session
) -> Iterator[RowsJournal | None]:
    """The checkpoint of a store of rows while that is written, which lies beside it and goes when it is whole; None
    without a store.

    Parameters: `result` and `function`, what is made of the rows; `data` as above.
    Errors: StoreError as `Checkpoint`.
    """
    if out is None:
        yield None
        return
    from dlatent.stores.checkpoint import checkpoint_of_store

    about = {"result": result, "model": fingerprint(function), **_about(data)}
    with checkpoint_of_store(out, about, threads=session.resources.total_threads) as checkpoint:
        yield RowsJournal(checkpoint, out)


def _about(data: Mapping[str, Any]) -> dict[str, Any]:
    """The versions and the data, which must not change between a call and its resumption."""
    return {"versions": versions(), **{name: _described(value) for name, value in data.items() if value is not None}}


def _plain(value: Any) -> Any:
    """A hyperparameter as JSON keeps it: URLs without credentials, a digest of what is no plain value."""
    if isinstance(value, str):
        return masked(value)
    return value if value is None or isinstance(value, (bool, int, float)) else fingerprint(value)


def _described(value: Any) -> Any:
    """The identity of data: of a source its shape and kind, and digests of some blocks (in memory: of all) and
    of where all end; of a graph its size, and digests of some rows; of all else a digest."""
    if isinstance(value, Graph):
        return _graph(value)
    if not isinstance(value, DataSource):
        return fingerprint(value)
    source, blocks = value, value.blocks
    at = range(len(blocks)) if source.in_memory else sorted({0, len(blocks) // 2, len(blocks) - 1})
    values = fingerprint(tuple(fingerprint(blocks[number].load()) for number in at))
    return {
        "shape": list(source.shape),
        "dtype": source.dtype.str,
        "entries": source.nnz,
        "blocks": fingerprint(tuple(block.stop for block in blocks)),
        "values": values,
        **_of_views(source),
        **({} if source.weights is None else {"weights": fingerprint(source.weights)}),
    }


def _of_views(source: DataSource) -> dict[str, Any]:
    """The views of joint samples, and which of their rows are one sample."""
    from dlatent.stores.joint import JointSource

    if not isinstance(source, JointSource):
        return {}
    pieces = (piece for block in source.blocks for view in cast("JointRows", block).views for piece in view.pieces)
    rows = fingerprint(tuple((piece.source.start, piece.rows) for piece in pieces))
    return {"rows": rows, "views": {name: _described(view) for name, view in source.views.items()}}


def _graph(graph: Graph) -> dict[str, Any]:
    ends = (range(min(GRAPH_ROWS, graph.samples)), range(max(0, graph.samples - GRAPH_ROWS), graph.samples))
    rows = tuple(graph.rows.load(end.start, end.stop) for end in ends)
    return {"samples": graph.samples, "entries": graph.entries, "rows": fingerprint(rows)}
