"""Two blocks that meet once give both what the whole kernel would."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest

from dlatent.arrays import Block
from dlatent.linear_gaussian import kernel_passes
from dlatent.linear_gaussian.kernel_passes import KernelRequest, meet_kernel, meet_product
from dlatent.operators.kernels import Kernel

X = np.random.default_rng(0).normal(size=(23, 4))
EDGES = (0, 9, 10, 23)
BLOCKS = [Block(i, a, X[a:b]) for i, (a, b) in enumerate(pairwise(EDGES))]
K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))


@pytest.fixture(autouse=True, params=[4, 512], ids=["several tiles", "one tile"])
def tile(monkeypatch, request):
    monkeypatch.setattr(kernel_passes, "TILE", request.param)


def test_products_of_both_blocks_add_up_to_those_of_the_kernel():
    thin = np.random.default_rng(1).normal(size=(23, 3))
    request, found = KernelRequest(Kernel("rbf", 0.3), thin, False), np.zeros((23, 3))
    for one, other in combinations_with_replacement(BLOCKS, 2):
        mine, yours = meet_product(one, other, request)
        found[one.start : one.start + one.rows] += mine
        if one.index != other.index:
            found[other.start : other.start + other.rows] += yours
    np.testing.assert_allclose(found, K @ thin, rtol=1e-10, atol=1e-12)


def test_kernels_of_both_blocks_are_parts_of_the_kernel():
    request = KernelRequest(Kernel("rbf", 0.3), None, False)
    for one, other in combinations_with_replacement(BLOCKS, 2):
        (mine,), (yours,) = meet_kernel(one, other, request)
        rows, columns = (slice(b.start, b.start + b.rows) for b in (one, other))
        np.testing.assert_allclose(mine, K[rows, columns], rtol=1e-10)
        np.testing.assert_array_equal(yours, mine.T)
