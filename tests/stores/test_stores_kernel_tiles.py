"""The upper triangle of a kernel at rest: what is written is read, each pair of blocks once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dlatent.arrays import Block
from dlatent.errors import StoreError
from dlatent.gaussian.kernel import TriangleRequest, block_triangle
from dlatent.stores.sinks import TileSink, chunk_columns, open_tiles

EDGES = (0, 5, 6, 13, 20)


def written(path, matrix, dtype="float64"):
    sink = pickle.loads(pickle.dumps(TileSink.create(path, EDGES, dtype=dtype)))
    for number, start in enumerate(EDGES[:-1]):
        for row in range(start, EDGES[number + 1], 3):
            stop = min(row + 3, EDGES[number + 1])
            for column in range(start, EDGES[-1], 4):
                sink.write(row, column, matrix[row:stop, column : column + 4])
    return sink


@pytest.fixture
def matrix():
    rows = np.random.default_rng(0).standard_normal((20, 6))
    return rows @ rows.T


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float32", 1e-6)])
@pytest.mark.parametrize("loaded", [16 * 2**20, 200])
def test_products_of_the_triangle_are_products_of_the_matrix(tmp_path, matrix, dtype, tolerance, loaded, monkeypatch):
    monkeypatch.setattr("dlatent.stores.sinks.LOADED_BYTES", loaded)
    sink = written(tmp_path / "k.zarr", matrix, dtype)
    sink.finish()
    source = open_tiles(tmp_path / "k.zarr")
    thin = np.random.default_rng(1).standard_normal((20, 3))
    request = TriangleRequest(thin, EDGES)
    blocks = [Block(i, b.start, pickle.loads(pickle.dumps(b)).load()) for i, b in enumerate(source.blocks)]
    assert len(blocks) == 4 if loaded > 200 else len(blocks) > 4
    assert sum(block.rows for block in blocks) == 20
    found = sum(block_triangle(block, request) for block in blocks)
    np.testing.assert_allclose(found, matrix @ thin, atol=tolerance * abs(matrix).max() * 20)
    assert source.nbytes < 20 * 20 * np.dtype(dtype).itemsize


def test_an_unfinished_store_can_be_read_and_is_removed(tmp_path, matrix):
    sink = written(tmp_path / "k.zarr", matrix)
    assert open_tiles(sink.location).shape == (20, 20)
    assert not (tmp_path / "k.zarr").exists()
    sink.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_taken_is_refused(tmp_path, matrix):
    written(tmp_path / "k.zarr", matrix).finish()
    with pytest.raises(StoreError, match="already exists"):
        TileSink.create(tmp_path / "k.zarr", EDGES, dtype="float64")


@pytest.mark.parametrize(
    ("bounds", "columns"),
    [((0, 1500, 3000, 3100), 500), ((0, 7, 9000), 512), ((0, 4096, 8192, 9000), 512), ((0, 90), 512)],
)
def test_chunks_end_where_blocks_do(bounds, columns):
    assert chunk_columns(bounds) == columns
