"""Fits by products with a kernel: how few products there are, restarts, and starts from scratch or from all of K."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.gaussian.gram import dual_data
from dlatent.gaussian.specification import Specification, View
from dlatent.operators.kernels import Kernel
from dlatent.solvers.gram import KernelProducts, fit_dual
from tests.tasks import loop_task

N, K = 150, 3
RNG = np.random.default_rng(0)
Z = RNG.standard_normal((N, K))
ROWS = Z @ RNG.standard_normal((K, 8)) + 0.5 * RNG.standard_normal((N, 8))
TARGETS = np.where(np.arange(N)[:, None] % 3 == 0, Z[:, :2] + 0.3 * RNG.standard_normal((N, 2)), np.nan)
MATRIX = Kernel("rbf", gamma=0.02)(ROWS, ROWS)
SEMI = Specification((View("features", K), View("targets", 2)), ((0, 1), (0,)), K)


class Counted:
    """Products with K that are counted, like passes."""

    def __init__(self):
        self.passes, self.columns = 0, 0

    def __call__(self, thin):
        self.passes, self.columns = self.passes + 1, self.columns + thin.shape[1]
        return MATRIX @ thin


def fit(*, matrix=False, tolerance=1e-10, max_rank=600):
    times = Counted()
    products = KernelProducts.of_matrix(MATRIX) if matrix else KernelProducts(times, np.diag(MATRIX))
    task = loop_task(SEMI, tol=tolerance, max_iter=60, floor_parts=(1e-6, 1e-3), max_rank=max_rank)
    return fit_dual(products, dual_data(TARGETS, SEMI, N, N - 1), task), times


def test_products_lead_where_the_matrix_leads():
    whole, _ = fit(matrix=True)
    found, times = fit()
    assert found.solution.converged
    assert found.solution.log_likelihood == pytest.approx(whole.solution.log_likelihood, rel=1e-9)
    np.testing.assert_allclose(found.means, MATRIX.mean(axis=0), rtol=1e-10)
    # The first pass also brings the means; every line of the history is one pass.
    assert times.passes == len(found.solution.history) < 15
    assert times.columns < N


def test_a_space_that_is_cut_ends_at_the_same_maximum():
    whole, _ = fit()
    widest = max(line.rank for line in whole.solution.history)
    cut, times = fit(max_rank=24)
    ranks = [line.rank for line in cut.solution.history]
    assert max(ranks) <= 24 < widest
    assert ranks[-1] < times.columns - 8, "some of the directions that were asked for are gone"
    assert cut.solution.log_likelihood == pytest.approx(whole.solution.log_likelihood, rel=1e-8)
    assert times.passes >= len(whole.solution.history)


def test_the_likelihood_never_falls():
    found, _ = fit()
    lines = np.array([line.log_likelihood for line in found.solution.history])
    assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()
