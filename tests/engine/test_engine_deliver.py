"""The laws of `deliver`: every group comes to the caller, with the bits of the serial engine; none is joined."""

from __future__ import annotations

import time
from threading import Lock
from unittest.mock import patch

import numpy as np
import pytest
from dask.core import get_dependencies
from engine_cases import CLUSTERS, COLUMNS, drawn, held, parameters, refuse_at

from dlatent.engine.connect import connect
from dlatent.errors import DataError
from dlatent.order import group_count
from dlatent.passes import Pass

SIZES = [3, 1, 40, 7, 7, 7, 90, 2, *[5] * 30]
ROWS = sum(SIZES)


def placed(block, weights):
    return ((block.start, block.features @ weights),)


class Rows:
    """Takes the pieces, and counts how often each row came."""

    def __init__(self):
        self.values = np.full((ROWS, 3), np.nan, dtype=np.float32)
        self.count = np.zeros(ROWS, dtype=int)
        self.times = 0
        self.lock = Lock()

    def __call__(self, pieces):
        with self.lock:
            self.times += 1
            for start, piece in pieces:
                self.values[start : start + len(piece)] = piece
                self.count[start : start + len(piece)] += 1


def delivered(source, client, **options):
    rows = Rows()
    with connect(source, client=client, **options) as engine:
        engine.deliver(Pass(placed, parameters(), name="rows"), rows)
        record = engine.passes[-1]
    return rows, record


def joined(source):
    """The same by a pass that joins all of them."""
    with connect(source, client="serial") as engine:
        pieces = engine.run(Pass(placed, parameters(), combine=lambda left, right: left + right))
    return np.concatenate([piece for _, piece in pieces])


@pytest.fixture(params=["serial", "threads", *CLUSTERS])
def client(request):
    known = {"serial": "serial", "threads": None}
    return known[request.param] if request.param in known else request.getfixturevalue(request.param)


SOURCES = {
    "blocks of a store": lambda: drawn(SIZES),
    "Dask chunks": lambda: drawn(SIZES, delayed=True),
    "in memory": lambda: held(np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32), SIZES),
}


@pytest.mark.parametrize("cache_bytes", [0, None])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_row_comes_once_with_the_bits_of_a_joined_pass(kind, cache_bytes, client):
    source = SOURCES[kind]()
    told = []
    found, record = delivered(
        source, client, cache_bytes=cache_bytes, on_progress=lambda done, of: told.append((done, of))
    )
    groups = group_count([block.nbytes for block in source.blocks])
    assert found.values.tobytes() == joined(source).tobytes()
    assert (found.count == 1).all()
    assert found.times == groups
    assert told[-1] == (groups, groups)
    assert record.blocks == len(SIZES)


@pytest.mark.parametrize("cache_bytes", [0, None])
def test_no_task_of_a_cluster_has_the_results_of_two_groups(two_processes, cache_bytes):
    """A task that joined them would hold what is as long as the data."""
    graphs = []
    source, send = drawn(SIZES), two_processes.get
    with patch.object(
        two_processes,
        "get",
        side_effect=lambda task_graph, *a, **b: graphs.append(task_graph) or send(task_graph, *a, **b),
    ):
        rows, _ = delivered(source, two_processes, cache_bytes=cache_bytes)
    assert (rows.count == 1).all()
    tasks = {key: task for task_graph in graphs for key, task in dict(task_graph).items()}
    folds = {key for key in tasks if isinstance(key, tuple) and str(key[0]).startswith("rows-")}
    assert len(folds) == group_count([block.nbytes for block in source.blocks])
    assert not [key for key in tasks if folds & get_dependencies(tasks, key)]


def test_workers_give_results_up_when_the_caller_has_them(two_processes):
    rows, _ = delivered(drawn(SIZES), two_processes)
    assert (rows.count == 1).all()

    def held_there():
        names = two_processes.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])
        return [name for name in names if "rows-" in name]

    for _ in range(200):  # what the client gives up, the scheduler hears of a little later
        if not held_there():
            break
        time.sleep(0.05)
    assert not held_there()


def test_an_error_reaches_the_caller_and_leaves_the_engine_usable(client):
    source = drawn(SIZES)
    with connect(source, client=client) as engine:
        with pytest.raises(DataError, match="column 0 is NaN"):
            engine.deliver(Pass(refused, 20), lambda pieces: None)
        rows = Rows()
        engine.deliver(Pass(placed, parameters()), rows)
    assert rows.values.tobytes() == joined(source).tobytes()


def refused(block, index):
    return (refuse_at(block, index),)
