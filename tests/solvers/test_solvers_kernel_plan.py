"""Where the planner puts a kernel, and when it takes the dual of a linear model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_solvers_planner import GIB, MIB, Host, problem

from dlatent import PPCA, KernelPPCA, PlanError, SupervisedPPCA
from tests.tasks import make_plan


def test_the_dual_needs_fewer_samples_than_features():
    with pytest.raises(PlanError, match="solver 'gram' is none for this model and these data"):
        PPCA(2, solver="gram").plan(np.random.default_rng(0).standard_normal((30, 8)))


def test_inner_products_that_do_not_fit_leave_the_others():
    many = problem(60_000, 90_000, block=8 * MIB)
    with pytest.raises(PlanError, match="solver gram needs"):
        make_plan(many, Host(), solver="gram")
    assert make_plan(many, Host()).solver == "krylov"


def test_a_plan_of_the_dual_can_be_read():
    text = str(SupervisedPPCA(2).plan(np.random.default_rng(0).standard_normal((30, 400)), np.arange(30) % 2))
    assert "solver    gram: estimated cost" in text
    assert "about 3, " in text


def rows(samples, features, *, block=32 * MIB, **more):
    """The problem of a fit by a kernel of so many rows."""
    return replace(problem(samples, features, block=block), **{"kernel": "rbf", **more})


@pytest.mark.parametrize("solver", ["memory", "recomputed"])
def test_the_rows_that_a_kernel_is_settled_by_are_in_the_plan_and_few_where_they_are_wide(solver):
    few, many = (make_plan(rows(1000, width, block=MIB), Host(), solver=solver) for width in (10, 30_000))
    assert 200 * MIB < many.driver_memory - few.driver_memory < 300 * MIB
    wide = make_plan(rows(1000, 2_000_000, block=16 * MIB), Host(driver_memory=GIB), solver=solver)
    assert wide.driver_memory < GIB


def test_landmarks_are_in_the_plan():
    few, many = (make_plan(rows(20_000, 20_000, block=MIB, landmarks=count), Host()) for count in (10, 500))
    assert many.driver_memory - few.driver_memory > 2 * 490 * 20_000 * 8


KERNELS = {
    "small": (rows(2_000, 50), "auto", "memory"),
    "larger than the driver": (rows(20_000, 50), "auto", "recomputed"),
    "with a place": (rows(20_000, 500, kernel_place=True), "auto", "stored"),
    "quick to compute": (rows(20_000, 2, kernel_place=True, tasks=4), "auto", "recomputed"),
    "given": (rows(20_000, 20_000, kernel="precomputed"), "auto", "recomputed"),
    "asked for": (rows(2_000, 50), "recomputed", "recomputed"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_where_a_kernel_is(name):
    given, asked, solver = KERNELS[name]
    plan = make_plan(given, Host(), solver=asked)
    assert plan.solver == solver
    assert "kernel of" in plan.reason
    assert all(word in plan.reason for word in ("memory", "recomputed"))
    if "stored" not in plan.reason:
        assert solver == "memory" or "kernel_store=" in plan.reason


def test_the_driver_holds_no_square_of_a_large_kernel():
    """N = 20,000: K has 3.2 GB, the plan stays below 1 GiB."""
    for stored in (False, True):
        plan = make_plan(rows(20_000, 50, block=4 * MIB, kernel_place=stored), Host(driver_memory=GIB))
        assert max(plan.driver_memory, plan.worker_memory) < GIB


def test_refusals_name_the_way_out():
    with pytest.raises(PlanError, match="landmarks=1000"):
        make_plan(rows(2_000_000, 50), Host(worker_memory=GIB))
    with pytest.raises(PlanError, match=r"memory needs .*landmarks"):
        make_plan(rows(100_000, 50, em_passes=100), Host())


NONE = {
    "features of a kernel": (rows(100, 50), "covariance", "never written down"),
    "features of a kernel, few passes": (rows(100, 50), "krylov", "never written down"),
    "features of a kernel, few rows": (rows(40, 50), "gram", "never written down"),
    "no kernel": (problem(100, 50), "memory", "not made by a kernel"),
    "no kernel to recompute": (problem(100, 50), "recomputed", "not made by a kernel"),
    "no kernel to store": (problem(100, 50), "stored", "not made by a kernel"),
    "no landmarks": (rows(100, 50), "landmarks", "no landmarks"),
    "landmarks": (rows(100, 50, landmarks=10), "memory", "landmarks are asked for"),
    "textbook EM": (rows(100, 50, em_passes=10), "recomputed", "in memory"),
    "nothing to store": (rows(100, 100, kernel="precomputed", kernel_place=True), "stored", "at hand"),
    "no place": (rows(100, 50), "stored", "kernel_store="),
}


@pytest.mark.parametrize("name", NONE)
def test_a_route_says_why_it_is_none(name):
    given, solver, why = NONE[name]
    with pytest.raises(PlanError, match=f"solver '{solver}' is none for this model and these data: .*{why}"):
        make_plan(given, Host(), solver=solver)


def test_every_fit_has_a_route_that_is_not_named():
    """Kernel models choose among the solvers of kernels, all others among the others."""
    kernel = {cost.solver for cost in make_plan(rows(100, 50, kernel_place=True), Host()).alternatives}
    assert kernel == {"memory", "recomputed", "stored"}
    assert {cost.solver for cost in make_plan(rows(100, 50, landmarks=10), Host()).alternatives} == {"landmarks"}
    assert {cost.solver for cost in make_plan(problem(40, 50), Host()).alternatives} == {"covariance", "krylov", "gram"}


def test_a_plan_by_landmarks_counts_their_moments():
    plan = make_plan(rows(1_000_000, 50, landmarks=500), Host())
    assert plan.solver == "landmarks"
    assert "500 landmarks" in str(plan)
    more = make_plan(rows(1_000_000, 50, landmarks=1500), Host())
    assert more.driver_memory > plan.driver_memory


def test_a_kernel_is_planned_before_the_rows_are_read():
    unread = np.full((50, 3), np.nan)
    text = str(KernelPPCA(2).plan(unread))
    assert "solver    memory: kernel of 19.5 KiB" in text
