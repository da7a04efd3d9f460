"""What the planner chooses, refuses and projects, before a byte is read."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dlatent import PPCA, PlanError, RelationalPPCA, SupervisedPPCA
from dlatent.passes import Resources
from dlatent.solvers.costs import EXPECTED_PASSES, EXPECTED_ROW_PASSES, WORKER_BASE, subspace
from dlatent.solvers.graph.costs import SPARSE_EXCHANGE_RATE, features_seconds
from dlatent.solvers.mixture.solver import Mixtures
from dlatent.solvers.plan import size
from tests.simulators import documents
from tests.tasks import Paper, make_plan

MIB, GIB = 2**20, 2**30


def Host(kind="cluster", **more):
    """A cluster of workers, or one process (kind "threads")."""
    usual = {"workers": 2, "threads": 1, "worker_memory": 4 * GIB, "driver_memory": 8 * GIB, "cache_bytes": 1 * GIB}
    return Resources(kind, **usual | more)


def problem(n, d, *, k=10, targets=0, itemsize=8, nnz=None, patterns=1, block=32 * MIB, in_memory=False):
    nbytes = n * d * itemsize if nnz is None else nnz * (itemsize + 4) + 4 * n
    blocks, largest = max(1, -(-nbytes // block)), min(block, nbytes)
    groups = min(blocks, 64)
    return Paper(n, d, targets, k, patterns, nbytes, largest, blocks, groups, itemsize, nnz, "store", in_memory)


CHOICES = {
    "tall": (problem(2_000_000, 100), "covariance"),
    "tall, float32": (problem(5_000_000, 500, itemsize=4), "covariance"),
    "tall with labels": (problem(1_000_000, 200, targets=5, patterns=2), "covariance"),
    "wide": (problem(20_000, 50_000), "krylov"),
    "images": (problem(500, 10_000, itemsize=4), "gram"),
    "text": (problem(18_000, 26_000, nnz=2_000_000), "krylov"),
    "text with labels": (problem(18_000, 26_000, nnz=2_000_000, targets=19, patterns=2), "krylov"),
    "RCV1": (problem(800_000, 47_000, nnz=60_000_000, targets=50, patterns=2), "krylov"),
    "8 GB of 1,024 features": (problem(2_000_000, 1024, itemsize=4), "covariance"),
    "faces": (problem(400, 1024, in_memory=True), "gram"),
    "expression": (problem(200, 20_000, itemsize=4), "gram"),
    "wide images": (problem(800, 50_000, itemsize=4), "krylov"),
    "nearly square": (problem(290, 300, k=2), "covariance"),
    "a toy": (problem(150, 4, k=2), "covariance"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name):
    given, solver = CHOICES[name]
    plan = make_plan(given, Host())
    assert plan.solver == solver
    assert plan.passes == {"covariance": 1, "gram": 2, "krylov": EXPECTED_PASSES}[solver]
    assert "estimated cost" in plan.reason or "does not fit" in plan.reason
    assert plan.bytes_per_pass == given.nbytes
    assert plan.tasks_per_pass == given.tasks


@pytest.mark.parametrize("name", [name for name in CHOICES if name not in ("wide", "RCV1")])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_a_route_that_is_asked_for_is_taken(name, solver):
    plan = make_plan(CHOICES[name][0], Host(worker_memory=128 * GIB, driver_memory=128 * GIB), solver=solver)
    assert (plan.solver, plan.reason) == (solver, "asked for")


def test_a_gram_matrix_that_does_not_fit_leaves_the_other_route():
    wide = problem(10_000_000, 20_000, block=8 * MIB)
    plan = make_plan(wide, Host(worker_memory=2 * GIB))
    assert plan.solver == "krylov"
    with pytest.raises(PlanError, match=r"solver covariance needs .*GiB of a worker's 2\.0 GiB.*Ways out"):
        make_plan(wide, Host(worker_memory=2 * GIB), solver="covariance")


REFUSALS = {
    "huge chunks": (
        problem(100_000, 100_000, block=2 * GIB),
        Host(threads=4),
        [
            "work on smaller blocks, dlatent.open_data(data, block_bytes=536870912)",
            "use fewer threads per worker",
            "more memory",
        ],
    ),
    "too many features for the driver": (
        problem(100_000, 50_000_000, nnz=10_000_000),
        Host(worker_memory=None, driver_memory=4 * GIB),
        ["of the driver's 4.0 GiB", "ask for fewer components"],
    ),
    "a worker too small to import the library": (
        problem(1000, 100, k=1),
        Host(worker_memory=100 * MIB),
        ["of a worker's 100.0 MiB", "more memory"],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_numbers_and_the_ways_out(name):
    given, host, words = REFUSALS[name]
    with pytest.raises(PlanError) as caught:
        make_plan(given, host)
    text = str(caught.value)
    assert f"store of {given.samples:,} × {given.features:,} does not fit" in text
    assert "Ways out: " in text
    for part in words:
        assert part in text


def test_more_of_anything_needs_no_less_memory():
    base = problem(100_000, 2_000)
    for other in (
        problem(100_000, 4_000),
        problem(100_000, 2_000, k=20),
        problem(100_000, 2_000, targets=20, patterns=2),
    ):
        plan = make_plan(other, Host(cache_bytes=0), solver="krylov")
        smaller = make_plan(base, Host(cache_bytes=0), solver="krylov")
        assert plan.worker_memory > smaller.worker_memory
        assert plan.driver_memory >= smaller.driver_memory


def test_projections_stay_below_the_limits_cache_included():
    for given, _ in CHOICES.values():
        plan = make_plan(given, Host())
        assert WORKER_BASE < plan.worker_memory <= 4 * GIB
        assert plan.driver_memory <= 8 * GIB


def test_small_data_stay_in_the_workers_and_are_read_once():
    small = make_plan(problem(20_000, 5_000), Host(), solver="krylov")
    assert small.cached
    assert small.bytes_total == small.bytes_per_pass
    large = make_plan(problem(2_000_000, 5_000), Host(), solver="krylov")
    assert not large.cached
    assert large.bytes_total == large.bytes_per_pass * large.passes


def test_data_in_memory_are_not_read():
    plan = make_plan(problem(20_000, 5_000, in_memory=True), Host(kind="threads", workers=1), solver="krylov")
    assert plan.bytes_total == 0


def test_textbook_em_is_planned_with_its_iterations():
    plan = make_plan(replace(problem(20_000, 5_000), em_passes=2001), Host(), solver="krylov")
    assert plan.passes == 2001


def test_few_wide_rows_need_no_buffer_for_many():
    """A block of 32 MiB with a million features has four rows, and not the 2,048 that a buffer may hold."""
    plan = make_plan(problem(10_000, 1_000_000), Host(threads=1), solver="krylov")
    assert plan.worker_memory < 3 * GIB


def test_the_subspace_is_bounded_by_the_driver():
    given = problem(1000, 100_000, k=10).task
    assert subspace(given, Host(driver_memory=1 * GIB))[0] < subspace(given, Host(driver_memory=64 * GIB))[0]
    assert subspace(given, Host(driver_memory=1))[0] >= 4 * 10


def test_threads_of_one_process_share_their_memory():
    one = make_plan(problem(100_000, 1_000), Host(kind="threads", workers=1, threads=4))
    assert one.worker_memory == one.driver_memory


def test_the_page_of_a_plan():
    text = str(make_plan(problem(18_000, 26_000, nnz=2_000_000), Host()))
    for word in (
        "data ",
        "18,000 × 26,000 sparse",
        "solver    krylov",
        "passes    about 12",
        "worker ",
        "driver ",
        "of 4.0 GiB",
    ):
        assert word in text
    assert [size(n) for n in (5, 2048, 3 * GIB, 5000 * GIB)] == ["5 B", "2.0 KiB", "3.0 GiB", "4.9 TiB"]


def lazy(shape, chunks):
    """Data that exist on paper only."""
    return da.zeros(shape, chunks=chunks)


def test_a_plan_needs_no_data():
    plan = PPCA(10).plan(lazy((100_000_000, 200), (200_000, 200)))
    assert plan.solver == "covariance"
    assert plan.bytes_per_pass == 100_000_000 * 200 * 8
    with pytest.raises(PlanError, match=r"does not fit.*Ways out"):
        PPCA(10).plan(lazy((1000, 100_000_000), (10, 100_000_000)))


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_a_fit_does_what_its_plan_says(solver):
    data = documents(400, 600, classes=5, random_state=3)
    labels = np.where(np.arange(400) < 100, data.labels, -1)
    x = da.from_array(data.features.toarray(), chunks=(20, 600))
    for model in (PPCA(4, solver=solver), SupervisedPPCA(3, solver=solver)):
        plan = model.plan(x, labels)
        model.fit(x, labels)
        passes = model.history_
        assert plan.solver == solver
        real = passes["pass_name"].values != "initial mean"
        assert model.n_passes_ == real.sum()
        if solver == "covariance":
            assert model.n_passes_ == plan.passes == (2 if isinstance(model, SupervisedPPCA) else 1)
        else:
            assert model.n_passes_ <= 1.5 * plan.passes
        tasks = passes["pass_tasks"].values[real]
        assert (plan.tasks_per_pass <= tasks).all()
        assert (tasks <= 3 * plan.tasks_per_pass).all()
        assert passes["pass_bytes_read"].values[real].sum() <= plan.bytes_total * 1.01
        assert passes["pass_blocks"].values[real].tolist() == [plan.task.data.blocks] * int(real.sum())


def test_the_page_says_where_another_order_may_pay():
    def page(travelling):
        in_graph = replace(
            problem(200_000, 10_000, k=40, nnz=8_000_000), graph_entries=1_200_000, hops=1, travelling=travelling
        )
        return str(make_plan(in_graph, Host()))

    assert "`dlatent reorder` may put neighbours nearer; 1 more pass for the total variance" in page(200_000)
    assert "reorder" not in page(20_000)


@pytest.mark.parametrize("column_blocks", [1, 3])
@pytest.mark.parametrize("cached", [True, False])
def test_the_plan_counts_what_a_fit_in_a_graph_reads(column_blocks, cached, monkeypatch):
    monkeypatch.setattr("dlatent.solvers.moments.solver.column_block_count", lambda *_: (column_blocks, 0))
    if not cached:
        monkeypatch.setattr("dlatent.engine.executor.cache_share", lambda _: 0)
    data, graph = da.from_array(documents(120, 60).features.toarray(), chunks=(20, 60)), sp.eye_array(120, k=1)
    model = RelationalPPCA(3, solver="krylov")
    plan, found = model.plan(data, graph=graph + graph.T), model.fit(data, graph=graph + graph.T).history_
    names, read = found["pass_name"].values, found["pass_bytes_read"].values
    assert (names == "energy").sum() == column_blocks
    each = 2 * plan.bytes_per_pass + 3 * 16 * plan.task.edges  # and the edges, two hops and one at most
    planned = plan.bytes_total + (0 if cached else ((names == "products").sum() - plan.passes) * each)
    found = read[names != "initial mean"].sum()
    assert found <= planned
    np.testing.assert_allclose(found, planned, rtol=0.06)


def test_the_seconds_of_a_plan_count_how_sparse_rows_grow_over_the_edges():
    """30 of 1,000 entries a row and 10 neighbours: 30, 330 and, as rows are full then, 1,000 before the hops."""
    known = replace(problem(10_000_000, 1_000, nnz=300_000_000), graph_entries=100_000_000)
    one, two, three = (features_seconds(replace(known, hops=hops).task, Host()) for hops in (1, 2, 3))
    assert one == pytest.approx(2 * 100_000_000 * 30 / SPARSE_EXCHANGE_RATE / 2)
    assert (two / one, three / one) == pytest.approx((1 + 11, 1 + 11 + 1_000 / 30))
    fits = [make_plan(replace(known, hops=hops), Host(), solver="krylov").alternatives for hops in (1, 2)]
    seconds = [next(cost.seconds for cost in found if cost.solver == "krylov") for found in fits]
    assert seconds[1] - seconds[0] > two - one


def test_plans_of_sparse_data_know_their_entries():
    x = documents(60, 30).features
    plan = PPCA(2).plan(sp.csr_array(x))
    assert plan.task.data.nnz == x.nnz
    assert plan.task.data.in_memory


class TestRows:
    """Missing entries and factor analysis: the solvers that the problem allows, and no other."""

    def test_missing_entries_leave_one_route(self):
        plan = make_plan(replace(problem(200_000, 500), missing=True), Host())
        assert (plan.solver, plan.reason) == ("accelerated_em", "entries may be missing in any place")
        assert plan.passes == EXPECTED_ROW_PASSES
        assert "solver    accelerated_em" in str(plan)
        with pytest.raises(
            PlanError, match=r"'krylov' is none for .* these data: any entry may be missing; take accelerated_em"
        ):
            make_plan(replace(problem(200_000, 500), missing=True), Host(), solver="krylov")

    @pytest.mark.parametrize(("width", "expected"), [(200, "covariance"), (30_000, "accelerated_em")])
    def test_factor_analysis_goes_by_rows_where_the_gram_matrix_is_too_large(self, width, expected):
        plan = make_plan(replace(problem(20_000, width), shared=False), Host())
        assert plan.solver == expected

    def test_ratings_of_the_netflix_prize_fit_into_six_gibibytes(self):
        ratings = replace(problem(480_189, 17_770, itemsize=4, nnz=100_480_507), missing=True)
        plan = make_plan(ratings, Host(worker_memory=2 * GIB, driver_memory=2 * GIB))
        assert 2 * plan.worker_memory + plan.driver_memory < 6 * GIB

    def test_statistics_too_large_are_refused_with_the_way_out(self):
        with pytest.raises(PlanError, match="ask for fewer components"):
            make_plan(replace(problem(20_000, 200_000, k=300), missing=True), Host())

    def test_more_components_cost_more_memory_and_time(self):
        small, large = (
            make_plan(replace(problem(200_000, 2000, k=k), missing=True), Host()).alternatives[0] for k in (5, 50)
        )
        assert large.worker_memory > small.worker_memory + 8 * 2000 * 50 * 50 / 2
        assert large.seconds > 10 * small.seconds


def test_graph_samples_without_targets_need_their_rows_and_a_factorisation_on_the_driver():
    whole = replace(problem(20_000, 50, targets=2), graph_entries=200_000, travelling=20_000, reach=20_000)
    partly, small = replace(whole, patterns=2), Host(driver_memory=2 * GIB)
    assert make_plan(whole, small).driver_memory < 1 * GIB
    # 2.6 GB were measured for five edges of each sample that go everywhere.
    with pytest.raises(PlanError, match=r"of the driver's 2\.0 GiB"):
        make_plan(partly, small)
    assert make_plan(partly, Host()).driver_memory > 2.6e9
    assert make_plan(replace(partly, graph_entries=40_000), small).solver == "covariance"
    with pytest.raises(PlanError, match="some of the samples in the graph have no targets; take covariance"):
        make_plan(partly, Host(), solver="krylov")


@pytest.mark.parametrize("given", [problem(3_000, 20_000), problem(100_000, 3_000)], ids=["gram", "covariance"])
def test_a_chosen_number_of_components_needs_all_eigenvalues(given):
    """The driver computes them from the whole matrix; solvers that never hold it are no way."""
    rule = replace(given, rule=0.9, n_components=min(given.samples - 1, given.features))
    host = Host(worker_memory=64 * GIB, driver_memory=64 * GIB)
    plan = make_plan(rule, host)
    plain = make_plan(given, host, solver=plan.solver)
    assert {cost.solver for cost in plan.alternatives} <= {"covariance", "gram"}
    assert plan.seconds > plain.seconds
    assert plan.driver_memory > plain.driver_memory
    with pytest.raises(PlanError, match="from all eigenvalues"):
        make_plan(rule, host, solver="krylov")


def test_the_time_of_a_plan_counts_the_iterations_on_the_driver():
    """Seconds that were measured where plans said less than half of one."""
    host = Host(bandwidth=1e8)
    given = {
        "factor analysis, 0.03 s, took 0.07": (replace(problem(5_000, 100), shared=False), 0.07),
        "of wide data, 0.1 s, took 0.2": (replace(problem(5_000, 400), shared=False), 0.2),
        "missing entries, took 5": (replace(problem(3_000, 30, k=3), shared=False, missing=True), 5.0),
        "partly labelled, took 5": (problem(20_000, 200, targets=10, patterns=2), 5.0),
        "a mixture, took 3": (replace(problem(5_000, 50, k=5), family=Mixtures(8, 5)), 3.0),
    }
    for name, (shape, seconds) in given.items():
        plan = make_plan(shape, host)
        assert seconds < plan.seconds < 10 * seconds, name
        assert seconds < plan.duration.solving < plan.duration.seconds, name
        assert "solving" in str(plan)
    assert make_plan(problem(20_000, 200), host).duration.solving == 0, "a closed form"
