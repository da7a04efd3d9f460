"""Passes over pairs: equal to dense algebra, and to the last bit on every engine, whatever befalls the workers."""

from __future__ import annotations

import os
import pickle
import signal
from collections import Counter, defaultdict
from functools import reduce
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import CLUSTERS, COLUMNS, FailingRows, drawn, held, on_worker, until

from dlatent.arrays import DataSource, add
from dlatent.engine.connect import connect
from dlatent.engine.fold import Tally, Work
from dlatent.engine.group import groups_of
from dlatent.engine.pairs import finish as finish_group
from dlatent.engine.pairs import gain, pair_places, strips
from dlatent.errors import DataError
from dlatent.order import groups
from dlatent.passes import pair_pass, tile_pass
from dlatent.stores.sinks import RowSink

SIZES = [3, 1, 40, 7, 7, 7, 90, 2, *[5] * 15]
GROUPS = 6
ROWS = sum(SIZES)
THIN = np.random.default_rng(5).normal(size=(ROWS, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def fewer_groups(groups_as_of_large_data, monkeypatch):
    """A tree of two levels, and not a task for each of 16 × 16 pairs of groups."""
    monkeypatch.setattr("dlatent.order.FEWEST_GROUPS", GROUPS)


class Request(NamedTuple):
    """Thin rows of all samples, and where to write."""

    thin: np.ndarray
    sink: RowSink | None = None
    flag: str = ""


def multiply(own, other, request):
    """(X Xᵀ R) of the own rows, in float32, so that another order of adding shows in the bits."""
    kernel = own.features @ other.features.T
    return kernel @ request.thin[other.start : other.start + other.rows]


def multiply_both(own, other, request):
    """The same for both, from one kernel; a block that meets itself takes the first only."""
    kernel = own.features @ other.features.T
    back = kernel.T @ request.thin[own.start : own.start + own.rows]
    return kernel @ request.thin[other.start : other.start + other.rows], back if own.index < other.index else None


def spell_both(own, other, _request):
    return f"{own.index}·{other.index}", f"{other.index}·{own.index}"


def spell_groups(own, other, _request):
    """The numbers of the blocks of two groups, and whether both are one list."""
    return [block.index for block in own], [block.index for block in other], own is other


def tile(own, other, _request):
    """X Xᵀ of two groups, in float32, the products of their blocks side by side."""
    return np.block([[a.features @ b.features.T for b in other] for a in own])


def spell(own, other, _request):
    return f"{own.index}·{other.index}"


def nest(left, right):
    return f"({left} {right})"


def energy(own, value, request):
    return float((value * request.thin[own.start : own.start + own.rows]).sum())


def write(own, value, request):
    return request.sink.write(own.start, value)


def products(engine, mutual=False, **options):
    meet = multiply_both if mutual else multiply
    return np.concatenate(engine.run(pair_pass(meet, Request(THIN), mutual=mutual, **options)))


def serial(source, mutual=False):
    with connect(source, client="serial") as engine:
        return products(engine, mutual)


@pytest.fixture(params=[False, True], ids=["both orders", "mutual"])
def mutual(request):
    return request.param


def all_rows(source):
    rows = [block.load() for block in source.blocks]
    return np.vstack([part.toarray() if sp.issparse(part) else part for part in rows]).astype(np.float64)


@pytest.fixture(params=["threads", *CLUSTERS])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_every_block_meets_every_block(sparse, mutual):
    source = drawn(SIZES, sparse=sparse)
    x = all_rows(source)
    expected = x @ (x.T @ THIN)
    np.testing.assert_allclose(serial(source, mutual), expected, rtol=1e-4, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("blocks", [1, 5, 6, 7, 17])
def test_values_join_in_the_order_of_the_blocks(client, blocks):
    expected = []
    for own in range(blocks):
        text = f"{own}·0"
        for other in range(1, blocks):
            text = f"({text} {own}·{other})"
        expected.append(text)
    with connect(drawn([1] * blocks), client=client) as engine:
        assert engine.run(pair_pass(spell, None, along=nest)) == tuple(expected)


@pytest.mark.parametrize("blocks", [1, 5, 6, 7, 17])
def test_values_of_a_mutual_pass_join_in_the_order_of_the_blocks_group_by_group(client, blocks):
    cut = groups([1] * blocks)
    expected = []
    for own in range(blocks):
        parts = [reduce(nest, (f"{own}·{other}" for other in group)) for group in cut]
        expected.append(reduce(nest, parts))
    with connect(drawn([1] * blocks), client=client) as engine:
        assert engine.run(pair_pass(spell_both, None, along=nest, mutual=True)) == tuple(expected)


@pytest.fixture
def many_groups(monkeypatch):
    """Six groups meet two by two, as 1,024 do eight by eight."""
    monkeypatch.setattr("dlatent.order.MOST_STRETCHES", 3)


@pytest.mark.parametrize("blocks", [1, 5, 6, 7, 17])
def test_values_of_many_groups_join_first_among_those_that_meet_together(client, blocks, many_groups):
    cut = groups([1] * blocks)
    pairs = [[block for group in cut[at : at + 2] for block in group] for at in range(0, len(cut), 2)]
    if len(cut) <= 3:
        pairs = [list(group) for group in cut]
    expected = []
    for own in range(blocks):
        parts = [reduce(nest, (f"{own}·{other}" for other in some)) for some in pairs]
        expected.append(reduce(nest, parts))
    with connect(drawn([1] * blocks), client=client) as engine:
        assert engine.run(pair_pass(spell_both, None, along=nest, mutual=True)) == tuple(expected)


@pytest.mark.parametrize("kind", ["store", "dask", "memory"])
@pytest.mark.parametrize("cache_bytes", [0, None])
def test_many_groups_have_the_bits_of_the_serial_engine(client, kind, cache_bytes, mutual, many_groups):
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    source = held(values, SIZES) if kind == "memory" else drawn(SIZES, delayed=kind == "dask")
    plain = source if kind == "memory" else drawn(SIZES)
    seen = []
    with connect(
        source, client=client, cache_bytes=cache_bytes, on_progress=lambda *counts: seen.append(counts)
    ) as engine:
        for _ in range(2):
            assert products(engine, mutual).tobytes() == serial(plain, mutual).tobytes()
        meet = multiply_both if mutual else multiply
        whole = engine.run(pair_pass(meet, Request(THIN), finish=energy, combine=add, mutual=mutual))
        np.testing.assert_allclose(whole, np.square(all_rows(plain).T @ THIN).sum(), rtol=1e-4)
        wanted = (21, 21) if mutual else (36, 36)
        until(lambda: seen and max(seen) == wanted)
    assert max(seen) == wanted


def test_every_block_sees_the_others_in_one_order_however_many_meet_at_a_time(monkeypatch):
    expected = serial(drawn(SIZES)).tobytes()
    monkeypatch.setattr("dlatent.order.MOST_STRETCHES", 3)
    assert serial(drawn(SIZES)).tobytes() == expected


def test_results_may_be_added_up(client):
    source = drawn(SIZES)
    x = all_rows(source)
    with connect(source, client="serial") as engine:
        expected = engine.run(pair_pass(multiply, Request(THIN), finish=energy, combine=lambda a, b: a + b))
    np.testing.assert_allclose(expected, ((x.T @ THIN) ** 2).sum(), rtol=1e-4)
    with connect(source, client=client) as engine:
        assert engine.run(pair_pass(multiply, Request(THIN), finish=energy, combine=lambda a, b: a + b)) == expected


def test_a_task_may_write_its_rows(client, tmp_path, mutual):
    import zarr

    source = drawn(SIZES)
    starts = [block.start for block in source.blocks]
    sink = RowSink.create(tmp_path / "rows.zarr", (ROWS, 3), starts=starts, dtype=np.float32)
    with connect(source, client=client) as engine:
        meet = multiply_both if mutual else multiply
        assert sum(engine.run(pair_pass(meet, Request(THIN, sink), finish=write, mutual=mutual))) == ROWS
    sink.join()
    sink.finish()
    stored = np.asarray(zarr.open_array(f"{tmp_path}/rows.zarr/scores", mode="r")[...])
    assert stored.tobytes() == serial(source, mutual).tobytes()


def test_a_killed_worker_does_not_change_a_bit(two_processes, tmp_path, mutual):
    source = drawn(SIZES, key="killed among pairs")
    expected = serial(source, mutual).tobytes()
    with connect(source, client=two_processes) as engine:
        workers = set(two_processes.run(os.getpid).values())
        request = Request(THIN, flag=str(tmp_path / "flag"))
        meet = kill_once_both if mutual else kill_once
        found = np.concatenate(engine.run(pair_pass(meet, request, mutual=mutual)))
        assert found.tobytes() == expected
    two_processes.wait_for_workers(2)
    assert set(two_processes.run(os.getpid).values()) != workers


def kill_once(own, other, request):
    kill_where((18, 12), own, other, request)
    return multiply(own, other, request)


def kill_once_both(own, other, request):
    kill_where((12, 18), own, other, request)
    return multiply_both(own, other, request)


def kill_where(place, own, other, request):
    if (own.index, other.index) == place and not Path(request.flag).exists():
        Path(request.flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_values_that_alias_the_data_are_not_changed(client, mutual):
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    before = values.copy()
    with connect(held(values, SIZES), client=client) as engine:

        def meet(own, other, _parameters):
            return (own.features, other.features) if mutual else own.features

        sums = engine.run(pair_pass(meet, None, mutual=mutual))
    np.testing.assert_array_equal(values, before)
    np.testing.assert_allclose(np.concatenate(sums), len(SIZES) * values, rtol=1e-12)


def test_errors_reach_the_caller_and_leave_the_engine_usable(client, mutual):
    def refuse(*_values):
        raise DataError("this pair fails")

    with connect(drawn(SIZES), client=client) as engine:
        for stage in ({"meet": refuse}, {"meet": multiply_both if mutual else multiply, "finish": refuse}):
            with pytest.raises(DataError, match="this pair fails"):
                engine.run(pair_pass(parameters=Request(THIN), mutual=mutual, **stage))
        assert products(engine, mutual).tobytes() == serial(drawn(SIZES), mutual).tobytes()


def test_a_damaged_block_is_named(client, mutual):
    whole = drawn(SIZES, key="damaged pairs")
    blocks = (*whole.blocks[:5], FailingRows(whole.blocks[5].start, whole.blocks[5].stop), *whole.blocks[6:])
    source = DataSource(whole.shape, whole.dtype, blocks, "damaged pairs")
    with connect(source, client=client) as engine, pytest.raises(DataError, match="rows 58 to 65 is damaged"):
        products(engine, mutual)


@pytest.mark.parametrize(("sizes", "groups"), [(SIZES, GROUPS), ([5], 1)])
def test_progress_counts_pairs_and_the_record_counts_visits(client, sizes, groups):
    seen = []
    with connect(drawn(sizes), client=client, on_progress=lambda *counts: seen.append(counts)) as engine:
        engine.run(pair_pass(spell, None, along=nest))
        (record,) = engine.passes
        until(lambda: seen and max(seen) == (groups**2, groups**2))
    assert max(seen) == (groups**2, groups**2)
    assert record.blocks == groups * len(sizes), "those of the own group once, those of each other group once"


@pytest.mark.parametrize(("sizes", "groups"), [(SIZES, GROUPS), ([5], 1)])
@pytest.mark.parametrize("finish", [None, lambda _own, value, _parameters: value])
def test_a_mutual_pass_visits_each_pair_of_groups_once(client, sizes, groups, finish):
    seen = []
    with connect(drawn(sizes), client=client, on_progress=lambda *counts: seen.append(counts)) as engine:
        engine.run(pair_pass(spell_both, None, along=nest, finish=finish, mutual=True))
        (record,) = engine.passes
        pairs = groups * (groups + 1) // 2
        until(lambda: seen and max(seen) == (pairs, pairs))
    assert max(seen) == (pairs, pairs)
    assert record.blocks == (groups + (finish is not None)) * len(sizes)


def test_meetings_are_taken_in_by_fours():
    with connect(drawn(SIZES), client=None) as engine:
        assert products(engine, mutual=True).tobytes() == serial(drawn(SIZES), mutual=True).tobytes()
        (record,) = engine.passes
    meetings, gains, joins = GROUPS * (GROUPS + 1) // 2, GROUPS * 2, 3
    assert record.tasks == meetings + gains + GROUPS + joins, "every group has six meetings: four and two"


@pytest.mark.parametrize("finish", [None, energy])
def test_a_mutual_pass_leaves_the_shares_of_the_scheduler_as_they_are(finish):
    work = Work(pair_pass(multiply_both, Request(THIN), finish=finish, combine=add, mutual=True), first=True, groups=1)
    meetings = [
        tuple((tuple(np.full((size, 3), 10.0 * side + at) for size in (3, 1)), Tally()) for side in (0, 1))
        for at in (1, 2, 3)
    ]
    share = ((np.ones((3, 3)), np.ones((1, 3))), Tally())
    before = pickle.dumps((meetings, share))
    (larger, smaller), _ = on_worker(gain, work, share, *meetings, picks=((0, None), (1, 0), (2, 1), (3, 0)))
    assert (larger == 1.0 + 1.0 + 12.0 + 3.0).all()
    assert (smaller == 17.0).all()
    (group, *_) = groups_of(drawn([3, 1]))
    on_worker(finish_group, work, group, share, groups=((0,),))
    assert pickle.dumps((meetings, share)) == before


@pytest.mark.parametrize("blocks", [1, 5, 6, 7, 17])
def test_every_two_groups_meet_once_in_a_pass_over_tiles(client, blocks):
    cut = [list(group) for group in groups([1] * blocks)]
    expected = tuple((own, other, own is other) for own, other in combinations_with_replacement(cut, 2))
    with connect(drawn([1] * blocks), client=client) as engine:
        assert engine.run(tile_pass(spell_groups, None)) == expected


def tiles(engine):
    return [found.tobytes() for found in engine.run(tile_pass(tile, None))]


def serial_tiles(source):
    with connect(source, client="serial") as engine:
        return tiles(engine)


@pytest.mark.parametrize("cache_bytes", [0, 4000, None])
@pytest.mark.parametrize("delayed", [False, True], ids=["store", "dask"])
def test_tiles_have_the_same_bits_as_serial_ones(client, cache_bytes, delayed):
    expected = serial_tiles(drawn(SIZES))
    with connect(drawn(SIZES, delayed=delayed), client=client, cache_bytes=cache_bytes) as engine:
        for _ in range(2):
            assert tiles(engine) == expected


@pytest.mark.parametrize(("sizes", "groups"), [(SIZES, GROUPS), ([5], 1)])
def test_a_pass_over_tiles_counts_meetings_visits_and_bytes(client, sizes, groups):
    values = np.random.default_rng(0).normal(size=(sum(sizes), COLUMNS))
    pairs = groups * (groups + 1) // 2
    for source in (drawn(sizes), held(values, sizes)):
        seen = []
        with connect(source, client=client, on_progress=lambda *counts, seen=seen: seen.append(counts)) as engine:
            engine.run(tile_pass(spell_groups, None))
            (record,) = engine.passes
            until(lambda seen=seen: max(seen) == (pairs, pairs))
        assert max(seen) == (pairs, pairs)
        assert record.blocks == groups * len(sizes)
        if source.in_memory:
            assert record.bytes_read == values.nbytes


def test_tiles_that_alias_the_data_are_not_the_data(client):
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    with connect(held(values, SIZES), client=client) as engine:
        found = engine.run(tile_pass(lambda own, _other, _request: own[0].features, None))
        assert not any(np.shares_memory(part, values) for part in found)


def test_errors_of_tiles_reach_the_caller_and_leave_the_engine_usable(client):
    def refuse(*_values):
        raise DataError("these groups fail")

    with connect(drawn(SIZES), client=client) as engine:
        with pytest.raises(DataError, match="these groups fail"):
            engine.run(tile_pass(refuse, None))
        assert tiles(engine) == serial_tiles(drawn(SIZES))


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("each", [2, 3])
def test_groups_meet_at_the_home_of_one_of_them_and_no_worker_needs_all(workers, each):
    homes = [f"worker {number}" for number in range(workers) for _ in range(each)]
    place = pair_places(homes)
    meetings, needed = Counter(), defaultdict(set)
    for one, other in combinations_with_replacement(range(len(homes)), 2):
        home = place(one, other)
        assert home in (homes[one], homes[other])
        meetings[home] += 1
        needed[home] |= {one, other}
    assert max(meetings.values()) - min(meetings.values()) <= each * (each % 2)
    assert max(map(len, needed.values())) <= each * (workers // 2 + 1)


def test_two_processes_read_no_block_more_often_than_each_needs_it(two_processes):
    source = drawn(SIZES, key="read among tiles")
    everything = sum(block.nbytes for block in source.blocks)
    with connect(source, client=two_processes) as engine:
        engine.run(tile_pass(spell_groups, None))
        engine.run(tile_pass(spell_groups, None))
        first, second = engine.passes
    assert everything < first.bytes_read <= 2 * everything
    assert second.bytes_read == first.bytes_read - everything, "own groups stay, those of others do not"


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("each", [1, 3, 8])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("widest", "enough"), [(None, 4096), (None, 20), (3, 20)])
def test_strips_are_all_meetings_once_at_the_home_of_the_hosts(workers, each, threads, widest, enough, monkeypatch):
    homes = [f"worker {number}" for number in range(workers) for _ in range(each)]
    place, met, at = pair_places(homes), Counter(), Counter()
    monkeypatch.setattr("dlatent.engine.pairs.ENOUGH_STRIPS", enough)
    found = strips(homes, dict.fromkeys(homes, threads), widest and 2, widest)
    for strip in found:
        assert {homes[host] for host in strip.hosts} == {strip.home}
        assert len({homes[guest] == strip.home for guest in strip.guests}) == 1
        for pair in (tuple(sorted(pair)) for pair in product(strip.guests, strip.hosts)):
            assert place(*pair) == strip.home
            met[pair] += 1
        at[strip.home] += strip.meetings
    assert met == Counter(combinations_with_replacement(range(len(homes)), 2))
    for home in at:
        lengths = [strip.meetings for strip in found if strip.home == home]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] <= -(-at[home] // (4 * threads))
    assert max(len(strip.hosts) for strip in found) <= (widest or len(homes))
    assert max(len(strip.guests) for strip in found) <= (2 if widest else len(homes))
    if enough > len(met):
        assert {len(strip.guests) for strip in found} == {1}
    if threads == 1 and workers == 2 and widest is None:
        visits = Counter((strip.home, guest) for strip in found for guest in strip.guests if homes[guest] != strip.home)
        assert max(visits.values()) == 1, "who comes from elsewhere is read once"
