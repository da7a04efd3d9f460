"""Joint samples: the rows that the table names, side by side, each loaded once a pass, from any kind of view."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import open_data
from dlatent.engine.connect import connect
from dlatent.errors import DataError
from dlatent.passes import Pass
from dlatent.stores.joint import joint
from tests.law_examples import examples
from tests.memory import taking_at_most
from tests.sparse_stores import write_csr

LENGTHS = {"a": 40, "b": 30, "c": 25}
WIDTHS = {"a": 5, "b": 7, "c": 3}


def matrices(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((LENGTHS[name], WIDTHS[name])) for name in LENGTHS}


def table_of(seed=0):
    """Some samples with three views, some with two, some with one, in no order."""
    rng = np.random.default_rng(seed)
    lines, order = np.full((sum(LENGTHS.values()), 3), -1), {n: rng.permutation(k).tolist() for n, k in LENGTHS.items()}
    for line in range(len(lines)):
        for view in np.flatnonzero(rng.random(3) < 0.6):
            rows = order["abc"[view]]
            if rows:
                lines[line, view] = rows.pop()
    return lines[(lines >= 0).any(axis=1)]


def assert_joined(source, views, table):
    dense = {name: x.toarray() if sp.issparse(x) else np.asarray(x) for name, x in views.items()}
    assert source.blocks[0].start == 0
    assert source.blocks[-1].stop == len(table)
    for block in source.blocks:
        pattern = source.patterns[np.searchsorted(source.bounds, block.start, side="right") - 1]
        rows = table[source.order[block.start : block.stop]]
        assert ((rows >= 0) == np.isin(range(3), pattern)).all()
        wanted = np.hstack([dense["abc"[view]][rows[:, view]] for view in pattern])
        for own in (block, pickle.loads(pickle.dumps(block))):
            found = own.load()
            np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, wanted)
    assert all(a.stop == b.start for a, b in pairwise(source.blocks))


@settings(max_examples=examples(25))
@given(st.integers(0, 1000), st.sampled_from([100, 500, 5000]), st.sets(st.sampled_from("abc")))
def test_blocks_are_the_rows_of_the_table(seed, block_bytes, sparse):
    views = {n: sp.csr_array(x) if n in sparse else x for n, x in matrices(seed).items()}
    opened = {name: open_data(x, block_bytes=200) for name, x in views.items()}
    source = joint(opened, table_of(seed), block_bytes=block_bytes)
    assert sorted(source.order.tolist()) == list(range(len(table_of(seed))))
    assert_joined(source, views, table_of(seed))


def stored(folder: Path, views):
    for name, x in views.items():
        if name == "b":
            write_csr(zarr.create_group(folder / name), [sp.csr_array(x)], columns=x.shape[1])
        else:
            zarr.create_array(folder / name, data=x, chunks=(6, 2))
    return {name: str(folder / name) for name in views}


def test_stores_and_dask_arrays_are_views_too(tmp_path):
    views = matrices()
    for opened in (
        stored(tmp_path, views),
        {n: da.from_array(x, chunks=(7, 2)) for n, x in views.items()},
        {"a": views["a"], "b": sp.csr_array(views["b"]), "c": da.from_array(views["c"], chunks=(9, 3))},
    ):
        sources = {name: open_data(x, block_bytes=150) for name, x in opened.items()}
        assert_joined(joint(sources, table_of(), block_bytes=400), views, table_of())


def test_chunks_that_a_cluster_computes_are_put_together():
    views = matrices()
    sources = {n: open_data(da.from_array(x, chunks=(7, 2))) for n, x in views.items()}
    for block in joint(sources, table_of(), block_bytes=400).blocks:
        parts = [part.compute() for part in block.collection]
        np.testing.assert_array_equal(block.assemble(parts), block.load())
        lighter = block.without_collection()
        assert not lighter.collection
        np.testing.assert_array_equal(lighter.assemble(parts), block.load())


def _nothing(block, request):
    return 0


def test_each_row_of_each_view_is_loaded_once_a_pass(tmp_path):
    """Counted by the bytes that the engine read: those of the rows that the table names, and no others."""
    views = matrices()
    sources = {
        n: open_data(path, block_bytes=150) for n, path in stored(tmp_path, {"a": views["a"], "c": views["c"]}).items()
    }
    table = table_of()[:, [0, 2]]
    table = table[(table >= 0).any(axis=1)]
    with connect(joint(sources, table, block_bytes=400), client="serial", cache_bytes=0) as engine:
        engine.run(Pass(_nothing, None))
    rows = (table >= 0).sum(axis=0)
    assert engine.passes[0].bytes_read == 8 * (rows[0] * WIDTHS["a"] + rows[1] * WIDTHS["c"])


def test_views_in_the_same_order_are_read_once():
    """Corresponding rows in the same order: no block of a view is loaded for two blocks of samples."""
    x = np.arange(4000.0).reshape(1000, 4)
    sources = {name: open_data(x + 1, block_bytes=3200) for name in "ab"}
    table = np.column_stack([np.arange(1000)] * 2)
    joined = joint(sources, table, block_bytes=6400)
    assert sum(len(view.pieces) for block in joined.blocks for view in block.views) == 2 * len(sources["a"].blocks)
    shuffled = np.column_stack([np.arange(1000), np.random.default_rng(0).permutation(1000)])
    scattered = joint(sources, shuffled, block_bytes=6400)
    assert "each block is read" in scattered.description
    assert "store the views in the same order" in scattered.description


def test_scattered_rows_are_read_in_bounded_memory(tmp_path):
    """Rows from all blocks of a view: one block at a time is in memory."""
    array = zarr.create_array(tmp_path / "x.zarr", shape=(40_000, 50), chunks=(1000, 50), dtype=np.float64)
    array[:] = 1.0
    source = open_data(str(tmp_path / "x.zarr"), block_bytes=400_000)
    table = np.column_stack([np.arange(0, 40_000, 100), np.arange(400)])
    block = joint({"x": source, "y": open_data(np.ones((400, 2)))}, table).blocks[0]
    with taking_at_most(source.nbytes // 4):
        assert block.load().shape == (400, 52)


@pytest.mark.parametrize("sparse", [False, True])
def test_bad_values_are_named_by_view_and_row(sparse):
    views = matrices()
    views["b"][17, 4] = np.nan
    opened = {n: open_data(sp.csr_array(x) if sparse else x) for n, x in views.items()}
    table = np.column_stack([np.arange(20), np.arange(10, 30), np.arange(20)])
    block = joint(opened, table).blocks[0]
    with pytest.raises(DataError, match="view 'b', row 17, column 4 is nan"):
        block.load()


def test_rows_of_zeros_are_named_where_they_are_refused():
    views = matrices()
    views["c"][6] = 0.0
    opened = {n: open_data(x) for n, x in views.items()}
    table = np.column_stack([np.arange(20)] * 3)
    with pytest.raises(DataError, match="view 'c', row 6 is all zeros"):
        joint(opened, table, refuse_zero_rows=("c",)).blocks[0].load()
    assert joint(opened, table).blocks[0].load().shape[1] == 15


def test_rows_in_memory_lie_beside_chunks_that_a_cluster_computes():
    """Every block has a collection, that of a pattern in memory is empty; rows in memory travel alone, by value."""
    views = matrices()
    sources = {n: open_data(x) if n == "b" else open_data(da.from_array(x, chunks=(7, 2))) for n, x in views.items()}
    for block in joint(sources, table_of(), block_bytes=400).blocks:
        parts = [part.compute() for part in block.collection]
        assert bool(parts) == any(view.name != "b" for view in block.views)
        lighter = pickle.loads(pickle.dumps(block.without_collection()))
        np.testing.assert_array_equal(lighter.assemble(parts), block.load())
        for view in lighter.views:
            if view.name == "b":
                (piece,) = view.pieces
                assert len(piece.source.values) == len(view.rows)
