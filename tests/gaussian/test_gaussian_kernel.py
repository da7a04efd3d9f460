"""Two blocks that meet once give both what the whole kernel would."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.arrays import Block
from dlatent.errors import DataError
from dlatent.gaussian import kernel
from dlatent.gaussian.kernel import KernelRequest, meet_kernel, meet_product
from dlatent.operators.kernels import Kernel
from dlatent.operators.tall import SymmetricTiles

X = np.random.default_rng(0).normal(size=(23, 4))
EDGES = (0, 9, 10, 23)
BLOCKS = [Block(i, a, X[a:b]) for i, (a, b) in enumerate(pairwise(EDGES))]
K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))


@pytest.fixture(autouse=True, params=[4, 512], ids=["several tiles", "one tile"])
def tile(monkeypatch, request):
    monkeypatch.setattr(kernel, "TILE", request.param)


def test_products_of_both_blocks_add_up_to_those_of_the_kernel():
    thin = np.random.default_rng(1).normal(size=(23, 3))
    request, found = KernelRequest(Kernel("rbf", 0.3), thin, False), np.zeros((23, 3))
    for one, other in combinations_with_replacement(BLOCKS, 2):
        mine, yours = meet_product(one, other, request)
        found[one.start : one.start + one.rows] += mine
        if one.index != other.index:
            found[other.start : other.start + other.rows] += yours
    np.testing.assert_allclose(found, K @ thin, rtol=1e-10, atol=1e-12)


ABOUT = X.mean(axis=0)
KERNELS = {
    "rbf": (Kernel("rbf", 0.3), K),
    "linear": (Kernel("linear"), X @ X.T),
    "about a shift": (Kernel("linear", shift=ABOUT), (X - ABOUT) @ (X - ABOUT).T),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("cut", [(0, 1, 2, 3), (0, 2, 3), (0, 3)])
def test_kernels_of_two_groups_are_parts_of_the_kernel(name, cut, sparse):
    kernel, expected = KERNELS[name]
    blocks = [replace(b, features=sp.csr_array(b.features)) for b in BLOCKS] if sparse else BLOCKS
    groups = [blocks[a:b] for a, b in pairwise(cut)]
    request, tiles, places = KernelRequest(kernel, None, False), [], []
    for own, other in combinations_with_replacement(groups, 2):
        rows, columns = (slice(g[0].start, g[-1].start + g[-1].rows) for g in (own, other))
        places.append((rows, columns))
        tiles.append(meet_kernel(own, other, request))
        np.testing.assert_allclose(tiles[-1], expected[rows, columns], rtol=1e-10, atol=1e-12)
    found = SymmetricTiles.of(tiles).matrix()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    for tile, (rows, columns) in zip(tiles, places, strict=True):
        np.testing.assert_array_equal(found[rows, columns], tile)
        if rows != columns:
            np.testing.assert_array_equal(found[columns, rows], tile.T)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_group_that_meets_itself_is_checked(bad):
    spoilt = [
        replace(b, features=np.where(b.start + np.arange(b.rows)[:, None] == 12, bad, b.features)) for b in BLOCKS
    ]
    with pytest.raises(DataError, match="row 12"):
        meet_kernel(spoilt, spoilt, KernelRequest(Kernel("linear", shift=ABOUT), None, False))
