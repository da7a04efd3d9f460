from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.engine.lazy import map_chunks
from dlatent.errors import DataError

VALUES = np.where(np.random.default_rng(0).random((50, 12)) < 0.3, np.random.default_rng(1).normal(size=(50, 12)), 0)
WEIGHTS = np.random.default_rng(2).normal(size=(12, 3))
CHUNKS = ((20, 7, 23), (5, 7))


def project(features):
    return features @ WEIGHTS


@pytest.mark.parametrize(
    "kind", [np.asarray, sp.csr_array, sp.csr_matrix, sp.coo_array], ids=lambda kind: kind.__name__
)
def test_rows_are_mapped_lazily(kind):
    array = da.from_array(VALUES, chunks=CHUNKS).map_blocks(kind)
    lazy = map_chunks(array, project, 3)
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (50, 3)
    assert lazy.chunks == ((20, 7, 23), (3,))
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), VALUES @ WEIGHTS)


def test_row_chunks_of_unknown_length_are_mapped():
    array = da.from_array(VALUES, chunks=CHUNKS)
    array = array[da.from_array(np.arange(50) % 2 == 0, chunks=(CHUNKS[0],))]
    lazy = map_chunks(array, project, 3)
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), VALUES[::2] @ WEIGHTS)


@pytest.mark.parametrize(("dtype", "seen"), [(np.int16, np.float64), (np.float32, np.float32)])
def test_integers_become_float64_and_float32_stays(dtype, seen):
    def features_of(features):
        assert features.dtype == seen or not features.size
        return np.zeros((features.shape[0], 1))

    result = map_chunks(da.from_array(VALUES.astype(dtype), chunks=CHUNKS), features_of, 1, np.float32)
    assert result.compute(scheduler="synchronous").dtype == np.float32


def test_sparse_chunks_arrive_canonical_and_the_input_stays():
    twice = sp.csr_array((np.ones(4), np.array([3, 1, 3, 0]), np.array([0, 3, 4])), shape=(2, 4))
    array = da.map_blocks(lambda _: twice, da.zeros((2, 4), chunks=(2, 4)), dtype=float, meta=sp.csr_array((0, 0)))

    def canonical(features):
        assert features.has_canonical_format
        return features.toarray()

    result = map_chunks(array, canonical, 4).compute(scheduler="synchronous")
    np.testing.assert_array_equal(result, [[0, 1, 0, 2], [1, 0, 0, 0]])
    assert twice.nnz == 4


def test_wrong_shapes_are_refused():
    with pytest.raises(DataError, match="1 dimensions"):
        map_chunks(da.zeros(5), project, 3)
    with pytest.raises(DataError, match=r", 3\) where \(\d+, 4\)"):
        map_chunks(da.from_array(VALUES, chunks=CHUNKS), project, 4).compute(scheduler="synchronous")
