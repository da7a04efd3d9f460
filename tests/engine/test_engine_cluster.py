"""The laws of passes on clusters: the bits of the serial engine, whatever the workers and whatever befalls them."""

from __future__ import annotations

import gc
import operator
import os
import re
import signal
import threading
import time
import warnings
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.client import ClosedClientError
from distributed.core import Status
from engine_cases import (
    CLUSTERS,
    COLUMNS,
    DrawnRows,
    ShortRows,
    drawn,
    formats,
    gram,
    held,
    held_by_columns,
    kill_always,
    kill_once,
    parameters,
    refuse_at,
    same,
    until,
)

from dlatent.arrays import DataSource
from dlatent.engine.cache import weight
from dlatent.engine.connect import connect
from dlatent.engine.failures import Stillness, paused_of, threads_of, translated
from dlatent.errors import DataError, EngineError
from dlatent.passes import Pass

SIZES = [3, 1, 40, 7, 7, 7, 90, 2, *[5] * 30]
ROWS = sum(SIZES)


def serial(source, **options):
    with connect(source, **options, client="serial") as engine:
        return engine.run(Pass(gram, parameters()))


@pytest.fixture(params=CLUSTERS)
def client(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("cache_bytes", [0, 2000, None])
def test_same_bits_as_serial_for_blocks_from_a_store(client, sparse, cache_bytes):
    source = drawn(SIZES, sparse=sparse)
    expected = serial(source)
    with connect(source, client=client, cache_bytes=cache_bytes) as engine:
        for _ in range(3):
            assert same(engine.run(Pass(gram, parameters())), expected)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("cache_bytes", [0, None], ids=["computed every pass", "held"])
def test_same_bits_as_serial_for_dask_chunks(client, sparse, cache_bytes):
    expected = serial(drawn(SIZES, sparse=sparse))
    source = drawn(SIZES, sparse=sparse, delayed=True)
    with connect(source, client=client, cache_bytes=cache_bytes) as engine:
        for _ in range(2):
            assert same(engine.run(Pass(gram, parameters())), expected)
        first, second = engine.passes
    if not sparse:
        assert first.bytes_read == ROWS * COLUMNS * 4
        assert second.bytes_read == (0 if cache_bytes is None else first.bytes_read)


def test_the_second_pass_reads_nothing(two_processes):
    with connect(drawn(SIZES, key="homes"), client=two_processes) as engine:
        for _ in range(4):
            engine.run(Pass(gram, parameters()))
        records = engine.passes
    assert records[0].bytes_read == ROWS * COLUMNS * 4
    # Homes are preferences: a stolen group is read once more by the thief, then it is cached there, too.
    assert records[-1].bytes_read < records[0].bytes_read / 2
    assert records[-1].blocks == len(SIZES)
    assert records[-1].tasks < 30


@pytest.mark.parametrize("width", [1, 20_000], ids=["light", "heavy"])
def test_light_parameters_travel_with_the_tasks_and_heavy_ones_once(two_processes, width):
    wide = np.random.default_rng(2).normal(size=(COLUMNS, width))
    expected = serial_product(wide)
    with connect(drawn(SIZES), client=two_processes) as engine:
        for _ in range(2):
            assert all(np.array_equal(a, b) for a, b in zip(engine.run(Pass(product, wide)), expected, strict=True))
        first, second = (record.tasks for record in engine.passes)
    assert first == 1 + 2 + 1 + (width > 1), "descriptions, one for each thread, a join, parameters"
    assert second == (2 if width == 1 else 2 + 1 + 1), "one for each thread, and for what is heavy a join"


def product(block, weights):
    return block.features.T @ (block.features @ weights), float(block.rows)


def serial_product(weights):
    with connect(drawn(SIZES), client="serial") as engine:
        return engine.run(Pass(product, weights))


def test_close_frees_the_workers(two_processes):
    source = drawn(SIZES, key="freed")
    engine = connect(source, client=two_processes)
    engine.run(Pass(gram, parameters()))
    assert sum(two_processes.run(cached_blocks, source.key).values()) >= len(SIZES)
    engine.close()
    assert sum(two_processes.run(cached_blocks, source.key).values()) == 0
    deadline = time.monotonic() + 5
    while (
        two_processes.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert two_processes.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0


@pytest.mark.parametrize("failed", [False, True])
def test_nothing_of_a_fit_lies_on_the_workers_after_it(two_processes, failed):
    """Heavy parameters, whose package is a task's result, and groups: also after a pass that failed."""
    wide = np.random.default_rng(2).normal(size=(COLUMNS, 20_000))
    with connect(drawn(SIZES, key="left"), client=two_processes) as engine:
        for _ in range(2):
            engine.run(Pass(product, wide))
        assert sum(two_processes.run(left_of_fits).values()) > 0
        if failed:
            with pytest.raises(DataError):
                engine.run(Pass(refuse_at, 4))
    until(lambda: sum(two_processes.run(left_of_fits).values()) == 0)


def left_of_fits():
    """Objects of fits in this process, and bytes of its cache."""
    import gc

    from dlatent.engine.cache import CACHE
    from dlatent.engine.fold import Work
    from dlatent.engine.group import Group
    from dlatent.engine.remote import Package

    gc.collect()
    return CACHE.nbytes + sum(isinstance(one, Group | Work | Package) for one in gc.get_objects())


def cached_blocks(key):
    from dlatent.engine.cache import CACHE

    return sum(CACHE.get(key, index) is not None for index in range(1000))


def test_workers_keep_blocks_in_the_form_that_a_pass_asks_for(two_processes):
    source = drawn(SIZES, key="formed on workers", sparse=True)
    with connect(source, client=two_processes) as engine:
        for _ in range(2):
            found = engine.run(Pass(formats, None, form=held_by_columns, combine=operator.add))
            assert found == ("csc",) * len(SIZES)
        assert engine.passes[1].bytes_read == 0
    assert sum(two_processes.run(cached_sources).values()) == 0


def cached_sources():
    from dlatent.engine.cache import CACHE

    return CACHE.nbytes


def test_a_slow_worker_takes_fewer_groups_where_none_is_kept(two_processes):
    slow = next(iter(two_processes.run(os.getpid).values()))
    with connect(drawn([2] * 64), client=two_processes, cache_bytes=0) as engine:
        assert engine.run(Pass(done_by, slow)) < 24
        assert engine.passes[0].tasks == 1 + 16 + 5, "descriptions, one for each group, joins"


def done_by(_block, slow):
    """1 on the slow worker, 0 on others."""
    time.sleep(0.03 if os.getpid() == slow else 0.003)
    return int(os.getpid() == slow)


def test_groups_stay_at_home_where_their_descriptions_are_heavy(two_processes):
    targets = np.zeros((ROWS, 2_000))
    with connect(drawn(SIZES), client=two_processes, targets=targets, cache_bytes=0) as engine:
        for _ in range(2):
            assert engine.run(Pass(refuse_at, -1)) == ROWS
        assert [record.tasks for record in engine.passes] == [16 + 2 + 1, 2]


def test_block_functions_run_with_one_blas_thread(client):
    with connect(drawn([2] * 20), client=client) as engine:
        assert engine.run(Pass(blas_threads, None, combine=max)) == 1


def blas_threads(_block, _parameters):
    from threadpoolctl import threadpool_info

    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def test_parameters_larger_than_a_message_and_data_larger_than_the_warning_travel_quietly(two_processes):
    values = np.random.default_rng(0).normal(size=(20_000, 100))
    source = held(values, [1000] * 20)
    weights = np.random.default_rng(1).normal(size=(100, 20_000))
    with warnings.catch_warnings(), connect(source, client=two_processes) as engine:
        warnings.simplefilter("error")
        total = engine.run(Pass(lambda block, w: (block.features[:5] @ w).sum(axis=1), weights))
    with connect(source, client="serial") as reference:
        expected = reference.run(Pass(lambda block, w: (block.features[:5] @ w).sum(axis=1), weights))
    assert total.tobytes() == expected.tobytes()


def test_exceptions_reach_the_caller_soon_and_the_engine_goes_on(client):
    with connect(drawn(SIZES), client=client) as engine:
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(DataError, match="row 51, column 0 is NaN"):
                engine.run(Pass(refuse_at, 4))
            assert time.monotonic() - started < 5
            assert engine.run(Pass(refuse_at, -1)) == ROWS


def test_a_failed_pass_stops_on_the_workers(two_processes):
    def slow(block, _):
        if block.index < 800:  # the groups of the first worker
            raise DataError("first half")
        time.sleep(0.05)
        return 0.0

    with connect(drawn([1] * 1600), client=two_processes) as engine:  # 100 blocks in a group: 5 s
        engine.run(Pass(refuse_at, -1))
        with pytest.raises(DataError, match="first half"):
            engine.run(Pass(slow, None))
        started = time.monotonic()
        assert engine.run(Pass(refuse_at, -1)) == 1600
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("at", [0, 10, 20, 30])
def test_a_failed_pass_whose_progress_is_shown_leaves_the_client_connected(two_processes, at):
    """Other groups are done then, and forgotten; joins that nobody asks for wait for them."""
    connection = two_processes.scheduler_comm
    with connect(drawn(SIZES), client=two_processes, on_progress=lambda *_: None) as engine:
        with pytest.raises(DataError, match="column 0 is NaN"):
            engine.run(Pass(refuse_at, at))
        assert engine.run(Pass(refuse_at, -1)) == ROWS
    until(lambda: two_processes.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0)
    assert two_processes.scheduler_comm is connection, "the client had to connect again"


@pytest.fixture
def interruptible():
    """SIGINT interrupts, also where the tests were started in the background by a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_pass_leaves_no_running_tasks(two_processes):
    source, main, told = drawn([1] * 400), threading.main_thread().ident, []

    def interrupt(done, total):  # once; two groups may end at the same moment
        if done and not told:
            told.append(done)
            signal.pthread_kill(main, signal.SIGINT)

    with connect(source, client=two_processes) as engine:
        engine.on_progress = interrupt
        with pytest.raises(KeyboardInterrupt):
            engine.run(Pass(paused_gram, (parameters(), 0.01)))
        engine.on_progress = None
        until(lambda: two_processes.run_on_scheduler(running_tasks) == 0)
        assert same(engine.run(Pass(gram, parameters())), serial(source))


def running_tasks(dask_scheduler):
    return sum(len(worker.processing) for worker in dask_scheduler.workers.values())


def test_engines_in_several_threads_share_a_client(two_processes):
    found = {}

    def fitted(key):
        with connect(drawn(SIZES, key=key), client=two_processes) as engine:
            found[key] = [engine.run(Pass(gram, parameters())) for _ in range(4)]

    threads = [threading.Thread(target=fitted, args=(key,), daemon=True) for key in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    expected = serial(drawn(SIZES))
    assert all(same(one, expected) for key in range(4) for one in found[key])


def test_damaged_chunks_fail_alike_and_are_tried_again(two_processes):
    blocks = (DrawnRows(0, 4, delayed=True), ShortRows(4, 8, delayed=True))
    source = DataSource((8, COLUMNS), np.dtype(np.float32), blocks, "damaged")
    with connect(source, client=two_processes) as engine:
        for _ in range(2):
            with pytest.raises(DataError, match=r"3 rows where 4 were announced \(rows 4 to 8\)"):
                engine.run(Pass(gram, parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", ["store", "store every pass", "memory", "dask held", "dask every pass"])
def test_a_killed_worker_does_not_change_a_bit(two_processes, tmp_path, kind, again):
    """In its first pass, whose shares meet on a worker, or in a later one, whose shares meet on the driver."""
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    source = held(values, SIZES) if kind == "memory" else drawn(SIZES, delayed=kind.startswith("dask"), key=kind)
    options = {"cache_bytes": 0} if kind.endswith("every pass") else {}
    expected = serial(held(values, SIZES) if kind == "memory" else drawn(SIZES))
    with connect(source, client=two_processes, **options) as engine:
        assert same(engine.run(Pass(gram, parameters())), expected)
        workers = set(two_processes.run(os.getpid).values())
        if again:
            assert same(engine.run(Pass(kill_once, (-1, "", parameters()))), expected)
        found = engine.run(Pass(kill_once, (20, str(tmp_path / "killed"), parameters())))
        assert same(found, expected)
        assert (tmp_path / "killed").exists()
        assert same(engine.run(Pass(gram, parameters())), expected)
        two_processes.wait_for_workers(2, timeout=60)
        assert set(two_processes.run(os.getpid).values()) != workers


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [0, None])
def test_a_block_that_kills_every_worker_is_an_engine_error(two_processes, cache_bytes):
    """Which names its rows, and of others none but those that were on the same workers each time."""
    with connect(drawn(SIZES), client=two_processes, cache_bytes=cache_bytes) as engine:
        with pytest.raises(EngineError, match="ran out of memory") as raised:
            engine.run(Pass(kill_always, 4))
        named = re.search(r"(?:died again and again|each with work) on rows (.*?) of the array;", str(raised.value))
        spans = [tuple(map(int, span.split(":"))) for span in named[1].split(", ")]
        start = sum(SIZES[:4])
        assert any(first <= start < start + SIZES[4] <= last for first, last in spans)
        assert sum(last - first for first, last in spans) < ROWS
        assert engine.run(Pass(kill_always, -1)) == ROWS
    two_processes.wait_for_workers(2, timeout=60)


def test_a_lost_scheduler_is_an_engine_error():
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    client = Client(cluster, set_as_default=False)
    engine = connect(drawn(SIZES), client=client)
    engine.run(Pass(gram, parameters()))
    cluster.close()
    with pytest.raises(EngineError, match="Start a cluster"):
        engine.run(Pass(gram, parameters()))
    engine.close()
    client.close()


def test_restarted_workers_get_their_parts_again(one_worker):
    source = drawn(SIZES)
    with connect(source, client=one_worker) as engine:
        engine.run(Pass(gram, parameters()))
        engine._executor._release()  # as every pass does; Dask stumbles over the next line where a result is kept
        one_worker.cancel(engine._executor._staged, force=True)
        assert same(engine.run(Pass(gram, parameters())), serial(source))


@pytest.mark.parametrize("light", [True, False])
def test_short_passes_send_one_message_each(two_processes, monkeypatch, light):
    """Nothing is asked before a pass; a heavy result is given up after the next graph is sent, light ones together.

    The client is that of other tests, whose futures may be given up in the meantime: `stray` stands for them.
    """
    said, own, send = [], set(), two_processes._send_to_scheduler
    monkeypatch.setattr("dlatent.engine.cluster.KNOWN_SECONDS", 60.0)
    monkeypatch.setattr("dlatent.engine.cluster.MOST_SPENT", 5)
    for module in ("cluster", "remote"):
        monkeypatch.setattr(f"dlatent.engine.{module}.LIGHT", 2**20 if light else 0)

    def sent(message):
        if message["op"] == "update-graph":
            own.update(message["keys"])
        if own & set(message.get("keys", ())):
            said.append(message["op"])
        return send(message)

    stray = two_processes.submit(int)
    with connect(drawn(SIZES), client=two_processes) as engine:
        monkeypatch.setattr(two_processes, "_send_to_scheduler", sent)
        engine.run(Pass(gram, parameters()))
        said.clear()
        monkeypatch.setattr(two_processes, "nthreads", lambda: said.append("asked") or {})
        for _ in range(4):
            stray.release()
            assert same(engine.run(Pass(gram, parameters())), serial(drawn(SIZES)))
        passed = list(said)
    once, released = ["update-graph"], ["client-releases-keys"]
    assert passed == (3 * once + 5 * released + once if light else 4 * (once + released))


@pytest.mark.parametrize("light", [True, False])
def test_progress_of_a_short_pass_comes_at_its_end(two_processes, monkeypatch, light):
    seen = []
    for module in ("cluster", "remote"):
        monkeypatch.setattr(f"dlatent.engine.{module}.LIGHT", 2**20 if light else 0)
    with connect(drawn([2] * 50), client=two_processes) as engine:
        engine.run(Pass(gram, parameters()))
        engine.on_progress = lambda *done: seen.append(done)
        engine.run(Pass(gram, parameters()))
        limit = time.monotonic() + 30  # they come from another thread, perhaps after the result
        while len(seen) < 16 and time.monotonic() < limit:
            time.sleep(0.01)
        assert seen == [(done, 16) for done in range(1, 17)]
        assert engine.passes[-1].tasks == (2 if light else 2 + 1 + 1), "a join, and parameters, where all is heavy"


def paused_gram(block, at):
    weights, pause = at
    time.sleep(pause)
    return gram(block, weights)


def test_all_shares_that_wait_to_be_given_up_are_counted(two_processes):
    with connect(drawn(SIZES), client=two_processes) as engine:
        for shares in (1, 1 + 4, 1 + 4 + 4):
            statistic = engine.run(Pass(gram, parameters()))
            assert engine._executor._spent_bytes == shares * weight(statistic)
        assert engine.passes[-1].tasks == 2, "of two shares each; the first pass had one, as nothing was known of it"


def test_connect_takes_the_active_client_and_knows_its_memory():
    source = drawn(SIZES)
    options = {"n_workers": 2, "threads_per_worker": 3, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(memory_limit="1GiB", **options) as cluster, Client(cluster), connect(source) as engine:
        resources = engine.resources
        assert (resources.kind, resources.workers, resources.threads) == ("cluster", 2, 3)
        assert resources.worker_memory == 2**30
        assert resources.cache_bytes == int(0.4 * 2**30)
        for _ in range(2):
            assert same(engine.run(Pass(gram, parameters())), serial(source))
        assert engine.passes[-1].tasks == 2 * 3, "one for each thread"
        assert connect(source, client="serial").resources.kind == "serial"
    assert connect(source).resources.kind == "threads"


def test_a_lone_group_is_told_and_kept(two_processes):
    told = []
    with connect(drawn([5]), client=two_processes) as engine:
        engine.on_progress = lambda done, total: told.append((done, total))
        for _ in range(20):
            assert engine.run(Pass(refuse_at, -1)) == 5
    assert told == [(1, 1)] * 20


def kill_both(block, at):
    """Kill both workers, this one last, the first time one comes to block 10; to wait until each comes somewhere could
    last for ever, as an idle worker takes groups of the other."""
    folder, workers, weights = at
    if block.index == 10 and not (folder / "killed").exists():
        (folder / "killed").touch()
        for worker in sorted(workers, key=lambda worker: worker == os.getpid()):
            os.kill(worker, signal.SIGKILL)
    return gram(block, weights)


@pytest.mark.slow
@pytest.mark.parametrize("shown", [False, True], ids=["quiet", "progress shown"])
def test_a_pass_survives_the_loss_of_all_workers(tmp_path, monkeypatch, caplog, shown):
    monkeypatch.setattr("dlatent.engine.failures.POLL_SECONDS", 0.5)
    source = drawn(SIZES, key="all lost")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="1GiB") as cluster,
        Client(cluster, set_as_default=False) as client,
        connect(source, client=client) as engine,
    ):
        workers, connection = list(client.run(os.getpid).values()), client.scheduler_comm
        engine.on_progress = (lambda *_: None) if shown else None
        for _ in range(2):
            assert same(engine.run(Pass(kill_both, (tmp_path, workers, parameters()))), serial(source))
        assert not set(workers) & set(client.run(os.getpid).values())
        assert client.scheduler_comm is connection
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.fixture
def no_workers():
    """A cluster without a worker, and its client."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "1GiB"}
    with LocalCluster(n_workers=0, **options) as cluster, Client(cluster, set_as_default=False) as client:
        yield cluster, client


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [0, None], ids=["nothing kept", "kept"])
def test_a_cluster_that_grows_with_its_work_grows_for_a_fit(no_workers, cache_bytes):
    """Also where it has shrunk to nothing after a pass: the blocks and descriptions on its workers are gone then."""
    cluster, client = no_workers
    source = drawn(SIZES)
    for passes in range(3):
        adaptive = cluster.adapt(minimum=0, maximum=2, interval="200ms")
        if not passes:
            engine = connect(source, client=client, cache_bytes=cache_bytes)
        assert same(engine.run(Pass(gram, parameters())), serial(source))
        adaptive.stop()
        cluster.scale(0)
        until(lambda: not client.nthreads(), 60)
    engine.close()


@pytest.mark.slow
def test_a_pass_waits_for_a_worker_that_comes_late_and_says_so(no_workers, caplog):
    cluster, client = no_workers
    later = threading.Timer(3.0, cluster.scale, [1])
    later.start()
    with connect(drawn(SIZES), client=client) as engine:
        assert same(engine.run(Pass(gram, parameters())), serial(drawn(SIZES)))
    later.join()
    (said,) = [record.getMessage() for record in caplog.records if record.name == "dlatent.engine"]
    assert said.startswith(f"The cluster {cluster.scheduler_address} has no worker: waiting for at most 600 s")


def test_a_pass_waits_for_workers_as_long_as_it_is_told(no_workers):
    _, client = no_workers
    with (
        dask.config.set({"dlatent.wait-for-workers": "500ms"}),
        pytest.raises(EngineError, match=r"no worker for 0\.5 s.*dlatent.wait-for-workers"),
    ):
        connect(drawn(SIZES), client=client)
    with (
        dask.config.set({"dlatent.wait-for-workers": "a while"}),
        pytest.raises(EngineError, match="'a while'; give a time such as '2 hours'"),
    ):
        connect(drawn(SIZES), client=client)


def test_waiting_for_workers_ends_with_the_scheduler(no_workers):
    cluster, client = no_workers
    ending = threading.Timer(1.0, cluster.close)
    ending.start()
    with dask.config.set({"dlatent.wait-for-workers": None}), pytest.raises(EngineError, match="Start a cluster"):
        connect(drawn(SIZES), client=client)
    ending.join()


def test_a_scheduler_that_ends_while_work_is_sent_is_an_engine_error():
    """Between the look for workers and the task that waits for one."""

    def submit(*_values, **_options):
        raise ClosedClientError("Client is closed. Can't send update-graph message.")

    client = SimpleNamespace(status="running", nthreads=dict, submit=submit, scheduler=None)
    with pytest.raises(EngineError, match="Start a cluster"), translated(client):
        threads_of(client)


@pytest.fixture
def paused(monkeypatch):
    """The client of two workers in this process, paused, as it is larger than they may be; and what resumes them."""
    monkeypatch.setattr("dlatent.engine.failures.POLL_SECONDS", 0.2)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.worker.memory.pause": 0.8, "distributed.worker.memory.spill": False}),
        LocalCluster(memory_limit="50MiB", **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def resume():
            for worker in cluster.workers.values():
                worker.memory_manager.memory_limit = 2**50

        until(lambda: all(worker.status is Status.paused for worker in cluster.workers.values()))
        yield client, resume


@pytest.mark.slow
def test_a_pass_does_not_wait_for_ever_for_workers_that_are_paused(paused, monkeypatch, caplog):
    client, resume = paused
    monkeypatch.setattr("dlatent.engine.failures.PATIENCE", "1 s")
    with connect(drawn(SIZES), client=client) as engine:
        with pytest.raises(EngineError, match=r"for 1 s.*paused .*: 2 of 2 workers, such as inproc.*of 0\.05 GiB"):
            engine.run(Pass(gram, parameters()))
        (said,) = [record.getMessage() for record in caplog.records if record.name == "dlatent.engine"]
        assert re.search(r"stands still, .*2 of 2 workers.*: waiting for at most 1 s \(see dlatent.wait-for", said)
        patient = dask.config.set({"dlatent.wait-for-workers": "2 s"})
        with patient, pytest.raises(EngineError, match="stood still for 2 s"):
            engine.run(Pass(gram, parameters()))
        resume()
        assert same(engine.run(Pass(gram, parameters())), serial(drawn(SIZES)))


def test_a_pass_goes_on_when_paused_workers_do(paused):
    client, resume = paused
    later = threading.Timer(1.5, resume)
    later.start()
    with connect(drawn(SIZES), client=client) as engine:
        assert same(engine.run(Pass(gram, parameters())), serial(drawn(SIZES)))
    later.join()


@pytest.fixture
def watched(monkeypatch):
    """What a client says of two workers, a and b, of which b is paused; and the seconds that two results have waited
    for, two more each time."""
    now = [0.0]
    monkeypatch.setattr("dlatent.engine.failures.monotonic", lambda: now[0])
    workers = {
        address: {"status": status, "memory_limit": 2**30, "metrics": {"task_counts": {}, "memory": 2**30}}
        for address, status in {"a": "running", "b": "paused"}.items()
    }
    says = SimpleNamespace(workers=workers, states={1: "memory", 2: "no-worker"}, assigned={"a": [], "b": [2]})
    client = SimpleNamespace(
        processing=lambda: dict(says.assigned),
        scheduler=SimpleNamespace(get_task_status=lambda keys: dict(says.states)),
        sync=lambda call, **given: call(**given),
    )
    stillness = Stillness()

    def seconds(heard=("a", "b")):
        now[0] += 2.0
        for address in heard:
            workers[address]["last_seen"] = now[0]
        return stillness.seconds(client, [1, 2], workers)

    return says, seconds


@pytest.mark.parametrize("reported", [True, False])
def test_work_beside_paused_workers_is_no_standstill(watched, reported):
    """A long task of somebody else: what it holds may be what the paused workers wait for."""
    says, seconds = watched
    if not reported:
        for info in says.workers.values():
            del info["metrics"]["task_counts"]
    says.assigned = {"a": ["theirs"], "b": [2]}
    for kind in ("executing", "flight") if reported else ("any",):
        if reported:
            says.workers["a"]["metrics"]["task_counts"] = {kind: 1, "memory": 5}
        assert [seconds() for _ in range(3)] == [0.0, 0.0, 0.0]
    if reported:
        says.workers["a"]["metrics"]["task_counts"] = {"memory": 5}
    says.assigned = {"a": [], "b": [2]}
    assert [seconds() for _ in range(3)] == [0.0, 2.0, 4.0]


def test_what_moves_is_no_standstill(watched):
    """Short tasks between two looks, tasks on their way to the scheduler, results on their way here, and a worker that
    is too busy to say what it does."""
    says, seconds = watched
    for number in range(3):
        says.assigned = {"a": [number], "b": [2]}
        assert seconds() == 0.0
    assert [seconds() for _ in range(2)] == [2.0, 4.0]
    says.states = {1: "memory", 2: None}
    assert [seconds() for _ in range(3)] == [0.0, 0.0, 0.0]
    says.states = {1: "memory", 2: "memory"}
    assert [seconds() for _ in range(3)] == [0.0, 0.0, 0.0]
    says.states = {1: "memory", 2: "processing"}
    assert [seconds(heard=("b",)) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert seconds() == 6.0


def test_paused_workers_are_told_of(watched):
    says, _ = watched
    assert paused_of(says.workers) == "1 of 2 workers, such as b, which holds 1.00 of 1.00 GiB"
    says.workers["b"]["memory_limit"] = 0
    assert paused_of(says.workers) == "1 of 2 workers, such as b, which holds 1.00 GiB"
    says.workers["b"]["status"] = "running"
    assert paused_of(says.workers) == ""
