from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from dask.sizeof import sizeof
from engine_cases import drawn, held

import dlatent.engine.remote  # noqa: F401
from dlatent.engine.cache import BlockCache, measured
from dlatent.engine.group import Bundle, groups_of


def test_sizes_are_measured():
    matrix = sp.random_array((50, 40), density=0.1, format="csr", dtype=np.float32)
    assert measured(matrix) == matrix.nnz * (4 + matrix.indices.itemsize) + 51 * matrix.indptr.itemsize
    assert measured(np.zeros((3, 5), np.float32)) == 60


def test_blocks_are_admitted_while_there_is_room_and_then_stay():
    cache = BlockCache()
    block = np.zeros((10, 10))
    admitted = [cache.admit("a", index, block, 2500) for index in range(5)]
    assert admitted == [True, True, True, False, False]
    assert cache.admit("a", 1, block, 2500)  # it is there already
    assert cache.nbytes == 2400
    assert [cache.get("a", index) is None for index in range(5)] == [False, False, False, True, True]


def test_release_forgets_one_source_only():
    cache = BlockCache()
    for key in "ab":
        cache.admit(key, 0, np.zeros(10), 10**6)
    cache.release(["a"])
    assert cache.get("a", 0) is None
    assert cache.get("b", 0) is not None
    assert cache.nbytes == 80


def test_the_cap_holds_under_threads():
    cache = BlockCache()
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda index: cache.admit("a", index, np.zeros(100), 80_000), range(1000)))
    assert sum(kept) == 100
    assert cache.nbytes == 80_000


def test_dask_weighs_sparse_arrays_and_groups():
    matrix = sp.random_array((500, 400), density=0.1, format="csr")
    assert sizeof(matrix) == measured(matrix)
    assert sizeof(matrix.tocsc()) > 12 * matrix.nnz
    assert sizeof(matrix.tocoo()) > 12 * matrix.nnz
    (group,) = groups_of(held(np.zeros((1000, 100)), [1000]))
    assert sizeof(Bundle({0: group})) > 800_000
    (group,) = groups_of(drawn([1000]))
    assert sizeof(Bundle({0: group})) < 10_000


def test_blocks_of_a_source_give_way_to_its_edges():
    cache = BlockCache()
    for index in range(4):
        assert cache.admit("data", index, np.zeros(10), 400)
    assert not cache.admit("other", 0, np.zeros(11), 400)
    assert cache.admit("graph", 0, "pieces", 400, size=250, over="data")
    assert cache.nbytes == 250 + 80
    assert [cache.get("data", index) is not None for index in range(4)] == [True, False, False, False]
    assert not cache.admit("graph", 1, "too large", 400, size=500, over="data")
    assert cache.get("data", 0) is not None
