"""The laws of passes on the serial engine and on local threads."""

from __future__ import annotations

import gc
import operator
import pickle
import threading
import time
import weakref
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import (
    COLUMNS,
    DrawnRows,
    FailingRows,
    HeldRows,
    drawn,
    formats,
    gram,
    held,
    held_by_columns,
    label,
    nest,
    on_worker,
    parameters,
    refuse_at,
    rows_and_targets,
    same,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.arrays import Block, DataSource
from dlatent.engine.cache import CACHE, owned
from dlatent.engine.connect import connect
from dlatent.engine.fold import Tally, Work, halt, join, run_group, settled
from dlatent.engine.group import Bundle, CodedTargets, groups_of
from dlatent.errors import DataError, EngineError
from dlatent.order import groups, reduce_tree
from dlatent.passes import Pass
from tests.law_examples import examples

SIZES = [3, 1, 40, 7, 7, 7, 90, 2, *[5] * 30]
CLIENTS = ["serial", None]
block_sizes = st.lists(st.integers(1, 30), min_size=1, max_size=60)


@pytest.fixture(params=CLIENTS, ids=["serial", "threads"])
def engine_of(request):
    made = []

    def make(source, **options):
        made.append(connect(source, client=request.param, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def by_hand(source, weights):
    """The fold written out: groups from left to right, then the tree."""

    def fold(group):
        values = [gram(Block(i, source.blocks[i].start, source.blocks[i].load()), weights) for i in group]
        return reduce(add_grams, values)

    cut = groups([block.nbytes for block in source.blocks])
    return reduce_tree(lambda g: fold(cut[g]), lambda nodes: reduce(add_grams, nodes), len(cut))


def add_grams(left, right):
    return type(left)(left.second + right.second, left.product + right.product, left.rows + right.rows)


@settings(max_examples=examples(25))
@given(block_sizes, st.integers(0, 3000), st.booleans())
def test_serial_and_threads_equal_the_fold_by_hand(sizes, cache_bytes, sparse):
    source = drawn(sizes, sparse=sparse)
    expected = by_hand(source, parameters())
    for client in CLIENTS:
        with connect(source, client=client, cache_bytes=cache_bytes) as engine:
            for _ in range(2):  # the second pass finds some blocks in the cache
                assert same(engine.run(Pass(gram, parameters())), expected)


@given(st.integers(1, 70))
@settings(max_examples=examples(20))
def test_combine_meets_neighbours_only_and_in_order(blocks):
    source = drawn([1] * blocks)
    with connect(source, client="serial") as serial, connect(source) as threads:
        order = serial.run(Pass(label, None, combine=nest))
        assert order == threads.run(Pass(label, None, combine=nest))
        assert order.replace("(", "").replace(")", "").split() == [str(index) for index in range(blocks)]


def test_another_order_would_show_in_the_bits():
    source = drawn([8] * 60)
    blocks = [gram(Block(i, b.start, b.load()), parameters()) for i, b in enumerate(source.blocks)]
    assert not same(reduce(add_grams, blocks), by_hand(source, parameters()))


def test_a_second_pass_reads_nothing_when_everything_fits(engine_of):
    source = drawn(SIZES)
    engine = engine_of(source)
    engine.run(Pass(gram, parameters(), name="first"))
    engine.run(Pass(gram, parameters(), name="second"))
    first, second = engine.passes
    assert (first.name, first.bytes_read, first.cached) == ("first", sum(SIZES) * COLUMNS * 4, 0)
    assert (second.name, second.bytes_read, second.cached, second.blocks) == ("second", 0, len(SIZES), len(SIZES))
    assert second.tasks >= 16
    assert second.busy_seconds > 0
    assert second.seconds > 0


def test_blocks_are_kept_in_the_form_that_a_pass_asks_for(engine_of):
    source = drawn(SIZES, key="formed", sparse=True)
    engine = engine_of(source)
    for _ in range(2):
        found = engine.run(Pass(formats, None, form=held_by_columns, combine=operator.add))
        assert found == ("csc",) * len(SIZES)
    assert [record.cached for record in engine.passes] == [0, len(SIZES)]
    # By rows they are read again, and give what they would have given.
    assert engine.run(Pass(formats, None, combine=operator.add)) == ("csr",) * len(SIZES)
    assert engine.passes[2].bytes_read == engine.passes[0].bytes_read > engine.passes[1].bytes_read == 0
    engine.close()
    assert CACHE.get(source.key, (held_by_columns, 0)) is None


def test_blocks_in_memory_stay_in_their_form(engine_of):
    rows = sp.csr_array(np.ones((20, 4)))
    block = HeldRows(0, 20, rows)
    source = DataSource(rows.shape, rows.dtype, (block,), "sparse in memory", sparse=True, in_memory=True)
    assert engine_of(source).run(Pass(formats, None, form=held_by_columns)) == ("csr",)


def test_what_does_not_fit_is_read_in_every_pass(engine_of):
    block = 10 * COLUMNS * 4
    engine = engine_of(drawn([10] * 30), cache_bytes=12 * block)
    for _ in range(3):
        engine.run(Pass(gram, parameters()))
    assert [record.bytes_read for record in engine.passes] == [30 * block, 18 * block, 18 * block]
    assert [record.cached for record in engine.passes] == [0, 12, 12]


def test_blocks_in_memory_count_once_and_are_not_copied(engine_of):
    values = np.ones((100, COLUMNS))
    engine = engine_of(held(values, [30, 30, 40]))
    seen = []
    engine.run(Pass(lambda block, _: float(seen.append(np.shares_memory(block.features, values)) or 0), None))
    engine.run(Pass(gram, parameters()))
    assert seen == [True] * 3
    assert [record.bytes_read for record in engine.passes] == [values.nbytes, 0]


def test_block_functions_cannot_write_into_the_data(engine_of):
    values = np.ones((10, COLUMNS))

    def scribble(block, _):
        block.features[:] = 0

    with pytest.raises(ValueError, match="read-only"):
        engine_of(held(values, [10])).run(Pass(scribble, None))
    assert np.all(values == 1)


def test_a_statistic_that_aliases_block_or_parameters_is_copied(engine_of):
    values = np.ones((40, COLUMNS))
    shared = np.ones(3)
    engine = engine_of(held(values, [1] * 40))
    rows, alias = engine.run(Pass(lambda block, p: (block.features, p), shared))
    assert np.all(rows == 40)
    assert np.all(alias == 40)
    assert np.all(values == 1)
    assert np.all(shared == 1)
    one = engine_of(held(values, [40])).run(Pass(lambda block, p: p, shared))
    one += 1
    assert np.all(shared == 1)


def test_close_frees_the_cache_and_ends_the_engine(engine_of):
    source = drawn(SIZES, key="closing")
    engine = engine_of(source)
    engine.run(Pass(gram, parameters()))
    assert CACHE.get(source.key, 0) is not None
    engine.close()
    assert CACHE.get(source.key, 0) is None
    with pytest.raises(EngineError, match="closed"):
        engine.run(Pass(gram, parameters()))


def test_exceptions_of_block_functions_reach_the_caller(engine_of):
    engine = engine_of(drawn(SIZES))
    with pytest.raises(DataError, match="row 51, column 0 is NaN"):
        engine.run(Pass(refuse_at, 4))
    assert engine.passes == []
    assert engine.run(Pass(refuse_at, -1)) == sum(SIZES)


def test_exceptions_of_loading_reach_the_caller(engine_of):
    blocks = (DrawnRows(0, 5), DrawnRows(5, 9), FailingRows(9, 12))
    source = DataSource((12, COLUMNS), np.dtype(np.float32), blocks, "failing")
    with pytest.raises(DataError, match="rows 9 to 12 is damaged"):
        engine_of(source).run(Pass(gram, parameters()))


def test_a_failed_pass_stops_before_the_other_blocks():
    done = []

    def slow(block, _):
        done.append(block.index)
        if len(done) == 20:
            raise DataError("twentieth block")
        time.sleep(0.01)
        return 0.0

    with connect(drawn([1] * 400)) as engine:
        with pytest.raises(DataError, match="twentieth block"):
            engine.run(Pass(slow, None))
        time.sleep(0.1)
        assert len(done) < 40


def test_blocks_of_another_length_are_refused(engine_of):
    values = np.ones((10, COLUMNS))
    source = held(values, [10])
    source.blocks[0].values = values[:7]
    with pytest.raises(DataError, match=r"7 rows where 10 were announced \(rows 0 to 10\)"):
        engine_of(source).run(Pass(gram, parameters()))


def test_targets_and_weights_come_with_their_rows(engine_of):
    targets = np.random.default_rng(1).normal(size=(sum(SIZES), 2))
    source = replace(drawn(SIZES), weights=targets[:, 0] ** 2)
    rows, total, *marks = engine_of(source, targets=targets).run(Pass(rows_and_targets, None))
    starts = np.concatenate([[0], np.cumsum(SIZES)[:-1]])
    assert rows == sum(SIZES)
    np.testing.assert_allclose(total, targets.sum(axis=0))
    for found, every in zip(marks, (targets, source.weights[:, None]), strict=True):
        np.testing.assert_allclose(found, starts @ every[starts])


def test_coded_targets_equal_the_array_they_stand_for(engine_of):
    codes = np.arange(sum(SIZES)) % 4 - 1
    table = np.eye(3)
    dense = np.where(codes[:, None] < 0, np.nan, table[codes])

    def known(block, _):
        return np.nansum(block.targets, axis=0), int(np.isnan(block.targets).sum()), np.nan_to_num(block.targets)[:1]

    source = drawn(SIZES)
    coded = engine_of(source, targets=CodedTargets(codes, table)).run(Pass(known, None))
    array = engine_of(source, targets=dense).run(Pass(known, None))
    assert all(np.array_equal(a, b) for a, b in zip(coded, array, strict=True))


def test_targets_of_another_length_are_refused(engine_of):
    with pytest.raises(DataError, match=rf"\(3, 2\); {sum(SIZES)} rows"):
        engine_of(drawn(SIZES), targets=np.zeros((3, 2)))


def test_a_group_carries_only_its_own_targets():
    targets = CodedTargets(np.zeros(100_000, dtype=np.int32), np.eye(3))
    members = groups_of(drawn([1000] * 100), targets)
    assert max(len(pickle.dumps(group)) for group in members) < 10 * 4 * 1000


def test_arrays_of_a_travelled_group_are_aligned():
    values = np.arange(2000.0 * COLUMNS).reshape(2000, COLUMNS)
    (group,) = groups_of(held(values, [2000]))
    beside: list[pickle.PickleBuffer] = []
    message = pickle.dumps(Bundle({0: group}), protocol=5, buffer_callback=beside.append)
    assert len(message) < values.nbytes  # the values are beside the message, and arrive at any address
    arrived = pickle.loads(message, buffers=[memoryview(b"x" + bytes(buffer))[1:] for buffer in beside])
    (block,) = arrived.groups[0].blocks
    assert block.values.flags.aligned
    assert np.array_equal(block.values, values)


def test_features_are_brought_into_one_form():
    odd = np.frombuffer(bytes(8 * 6 + 1), np.uint8)[1:].view(np.float64).reshape(2, 3)
    assert not odd.flags.aligned
    for given_form in (odd, np.asfortranarray(np.zeros((2, 3)))):
        form = settled(DrawnRows(0, 2), given_form)
        assert form.flags.aligned
        assert form.flags.c_contiguous
        assert not form.flags.writeable
    matrix = sp.csr_array(np.eye(2))
    form = settled(DrawnRows(0, 2), matrix)
    assert np.shares_memory(form.data, matrix.data)
    assert not form.data.flags.writeable
    assert matrix.data.flags.writeable


def test_owned_copies_arrays_and_keeps_the_rest():
    shared = np.ones(2)
    copied = owned((shared, (shared, 3.0), None, "text"))
    copied[0][:] = 5
    assert np.all(shared == 1)
    assert np.all(copied[1][0] == 1)
    assert copied[1][1:] == (3.0,)
    assert copied[2:] == (None, "text")


def test_joining_leaves_the_shares_of_the_scheduler_as_they_are():
    work = Work(Pass(gram, None), first=True, groups=3)
    given = [(None, np.ones(2)), (np.ones(2), np.ones(2)), (np.full(2, 4.0), None)]
    shares = [(value, Tally()) for value in given]
    several = [(0, None), (1, 0), (1, 1)], [shares[0], tuple(shares[1:])]
    for places, results in [([(0, None), (1, None), (2, None)], shares), several]:
        (one, other), _ = on_worker(join, work, *results, picks=places)
        assert (one.tolist(), other.tolist()) == ([5.0, 5.0], [2.0, 2.0])
    assert [np.sum(part) for value in given for part in value if part is not None] == [2.0, 2.0, 2.0, 8.0]


def test_a_task_that_outlives_its_pass_leaves_no_block_behind():
    source = drawn([10], key="outlived")
    (group,) = groups_of(source)
    work = Work(Pass(gram, parameters()), first=True, groups=1, cache_bytes=10**6)

    class Late(DrawnRows):
        """Rows that come when another task has failed, and the session with the pass is closed."""

        def load(self):
            halt(work.token)
            CACHE.release([source.key])
            return super().load()

    with pytest.raises(EngineError, match="another part of it failed"):
        run_group(work, replace(group, blocks=(Late(0, 10),)))
    assert CACHE.get(source.key, 0) is None
    run_group(replace(work, token="of another pass"), group)
    assert CACHE.get(source.key, 0) is not None
    CACHE.release([source.key])


def test_at_most_two_blocks_are_in_memory():
    count, most = [], []

    class Tracked(np.ndarray):
        """An array of a class that can be watched until its memory is freed."""

    class Rows(DrawnRows):
        def load(self):
            values = Tracked((self.stop - self.start, COLUMNS), np.float32)
            values[:] = super().load()
            count.append(1)
            weakref.finalize(values, count.pop)
            most.append(len(count))
            return values

    ends = range(0, 660, 20)
    blocks = tuple(Rows(a, a + 20) for a in ends)
    source = DataSource((660, COLUMNS), np.dtype(np.float32), blocks, "tracked")
    gc.collect()
    with connect(source, cache_bytes=0, client="serial") as engine:
        engine.run(Pass(lambda block, _: time.sleep(0.01) or float(block.rows), None))
    assert len(most) == 33
    assert max(most) == 2  # one in use, one read ahead


def test_a_failed_pass_leaves_nothing_that_still_reads(monkeypatch):
    monkeypatch.setattr("dlatent.order.FEWEST_GROUPS", 1)
    reading = threading.Event()

    class Slow(DrawnRows):
        def load(self):
            if self.start == 0:
                return super().load()
            reading.set()
            time.sleep(0.2)
            reading.clear()
            return super().load()

    def refuse(block, _):
        reading.wait()
        raise DataError("enough")

    source = DataSource((10, COLUMNS), np.dtype(np.float32), (Slow(0, 5), Slow(5, 10)), "slow")
    with connect(source, client="serial") as engine:
        with pytest.raises(DataError, match="enough"):
            engine.run(Pass(refuse, None))
        assert not reading.is_set()


def test_progress_and_records_are_told(engine_of):
    progress, records = [], []
    engine = engine_of(drawn([2] * 50), on_progress=lambda *done: progress.append(done), on_pass=records.append)
    engine.run(Pass(gram, parameters()))
    assert progress == [(done, 16) for done in range(1, 17)]
    assert records == engine.passes


def test_connect_chooses_threads_without_a_client_and_serial_only_when_asked():
    source = drawn([5])
    assert connect(source).resources.kind == "threads"
    resources = connect(source, client="serial").resources
    assert (resources.kind, resources.total_threads) == ("serial", 1)
    assert 0 < resources.cache_bytes < resources.worker_memory
    assert connect(source, cache_bytes=77).resources.cache_bytes == 77
    with pytest.raises(ValueError, match="client must be"):
        connect(source, client="tcp://nowhere:1")


def test_a_source_without_rows_is_refused(engine_of):
    with pytest.raises(EngineError, match="no rows"):
        engine_of(DataSource((0, 3), np.dtype(float), (), "empty"))
