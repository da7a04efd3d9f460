"""Where the planner puts a kernel, and when it takes the dual of a linear model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_fitting_planner import GIB, MIB, Host, problem

from dlatent import PPCA, KernelPPCA, PlanError, SupervisedPPCA
from dlatent.fitting.costs import EXPECTED_PASSES
from dlatent.fitting.kernel_plan import plan_kernel, plan_landmarks
from dlatent.fitting.planner import make_plan

DUAL = {
    "faces": (problem(400, 1024, in_memory=True), "gram"),
    "expression": (problem(200, 20_000, itemsize=4), "gram"),
    "images": (problem(800, 50_000, itemsize=4), "krylov"),
    "many wide rows": (problem(20_000, 50_000), "krylov"),
    "text": (problem(18_000, 26_000, nnz=2_000_000), "krylov"),
    "nearly square": (problem(290, 300, k=2), "covariance"),
}


@pytest.mark.parametrize("name", DUAL)
def test_the_dual_is_taken_where_it_is_cheaper(name):
    given, solver = DUAL[name]
    plan = make_plan(given, Host())
    assert plan.solver == solver
    assert ("estimated cost" in plan.reason) or plan.reason.count("does not fit") == 2
    assert plan.passes == {"gram": 2, "covariance": 1, "krylov": EXPECTED_PASSES}[solver]


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
    assert "about 2, " in text


KERNELS = {
    "small": (problem(2_000, 50), {}, "memory"),
    "larger than the driver": (problem(20_000, 50), {}, "recomputed"),
    "with a place": (problem(20_000, 500), {"stored": True}, "stored"),
    "quick to compute": (replace(problem(20_000, 2), tasks=4), {"stored": True}, "recomputed"),
    "given": (problem(20_000, 20_000), {"given": True}, "recomputed"),
    "asked for": (problem(2_000, 50), {"route": "recomputed"}, "recomputed"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_where_a_kernel_is(name):
    given, options, solver = KERNELS[name]
    plan = plan_kernel(given, Host(), **{"kernel": "rbf", **options})
    assert plan.solver == solver
    assert "kernel of" in plan.reason
    assert all(word in plan.reason for word in ("memory", "recomputed"))
    if "stored" not in plan.reason:
        assert solver == "memory" or "kernel_store=" in plan.reason


def test_the_driver_holds_no_square_of_a_large_kernel():
    """N = 20,000: K has 3.2 GB, the plan stays below 1 GiB."""
    for stored in (False, True):
        plan = plan_kernel(problem(20_000, 50, block=4 * MIB), Host(driver_memory=GIB), kernel="rbf", stored=stored)
        assert max(plan.driver_memory, plan.worker_memory) < GIB


def test_refusals_name_the_way_out():
    with pytest.raises(PlanError, match="landmarks=1000"):
        plan_kernel(problem(2_000_000, 50), Host(worker_memory=GIB), kernel="rbf")
    with pytest.raises(PlanError, match=r"memory needs .*landmarks"):
        plan_kernel(problem(100_000, 50), Host(), kernel="rbf", whole=True)


def test_a_plan_by_landmarks_counts_their_moments():
    plan = plan_landmarks(problem(1_000_000, 50), Host(), kernel="rbf", landmarks=500)
    assert plan.solver == "covariance"
    assert "500 landmarks" in str(plan)
    more = plan_landmarks(problem(1_000_000, 50), Host(), kernel="rbf", landmarks=1500)
    assert more.driver_memory > plan.driver_memory


def test_a_kernel_is_planned_before_the_rows_are_read():
    rows = np.full((50, 3), np.nan)
    text = str(KernelPPCA(2).plan(rows))
    assert "solver    memory: kernel of 19.5 KiB" in text
