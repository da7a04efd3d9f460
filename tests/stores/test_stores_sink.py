"""Rows written from many processes make one store, whatever the blocks are."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlatent import open_data
from dlatent.errors import DataError, StoreError
from dlatent.stores import sinks as sink_module
from dlatent.stores.sinks import RowSink, choose_row_chunk
from tests.law_examples import examples


def finished(sink: RowSink) -> None:
    """Make the store visible; whoever was interrupted joins again."""
    sink.join()
    sink.join()
    sink.finish()


def values_of(path: Path) -> np.ndarray[Any, Any]:
    return np.concatenate([block.load() for block in open_data(path).blocks])  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    columns=st.integers(1, 3),
    smallest=st.integers(1, 300),
    seed=st.integers(0, 99),
)
def test_ragged_blocks_in_any_order_and_twice(
    sizes: list[int], columns: int, smallest: int, seed: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    bounds = [0, *np.cumsum(sizes).tolist()]
    values = rng.normal(size=(bounds[-1], columns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_module, "SMALLEST_CHUNK", smallest)
        patch.setattr(sink_module, "CHUNK_BYTES", 2 * smallest)
        sink = RowSink.create(tmp_path / "s.zarr", values.shape, starts=bounds[:-1], overwrite=True)
    blocks = list(pairwise(bounds))
    for at in [*rng.permutation(len(blocks)), 0]:
        start, stop = blocks[at]
        assert pickle.loads(pickle.dumps(sink)).write(start, values[start:stop]) == stop - start
    finished(sink)
    np.testing.assert_array_equal(values_of(tmp_path / "s.zarr"), values)


def test_concurrent_writers(tmp_path: Path) -> None:
    bounds = np.unique([0, 1000, *np.random.default_rng(0).integers(1, 1000, 40)]).tolist()
    values = np.random.default_rng(1).normal(size=(1000, 4))
    sink = RowSink.create(tmp_path / "s.zarr", values.shape, starts=bounds[:-1])
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda span: sink.write(span[0], values[span[0] : span[1]]), pairwise(bounds)))
    assert sum(done) == 1000
    finished(sink)
    np.testing.assert_array_equal(values_of(tmp_path / "s.zarr"), values)


def test_names_and_coordinates_are_kept(tmp_path: Path) -> None:
    names = np.array(["á", "b", "c"])
    sink = RowSink.create(
        tmp_path / "s.zarr", (3, 2), starts=[0], dtype="f4", dims=("document", "topic"),
        coordinates={"document": names, "topic": np.array([10, 20])},
    )  # fmt: skip
    assert not (tmp_path / "s.zarr").exists()
    sink.write(0, np.ones((3, 2)))
    finished(sink)
    data = xr.open_zarr(tmp_path / "s.zarr", consolidated=False)
    assert data["scores"].dims == ("document", "topic")
    assert data["scores"].dtype == np.float32
    assert data["document"].values.tolist() == names.tolist()
    assert open_data(tmp_path / "s.zarr").labels.dims == ("document", "topic")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_rows_that_were_never_written_are_found(tmp_path: Path, missing: int) -> None:
    starts = [0, 40, 90]
    sink = RowSink.create(tmp_path / "s.zarr", (130, 4), starts=starts)
    for number, (start, stop) in enumerate(pairwise([*starts, 130])):
        if number != missing:
            sink.write(start, np.zeros((stop - start, 4)))
    with pytest.raises(StoreError, match="never written"):
        finished(sink)
    assert not (tmp_path / "s.zarr").exists()
    sink.abort()
    assert os.listdir(tmp_path) == []


def test_abort_leaves_nothing_and_a_taken_path_is_refused_at_once(tmp_path: Path) -> None:
    RowSink.create(tmp_path / "s.zarr", (3, 2), starts=[0]).abort()
    assert os.listdir(tmp_path) == []
    (tmp_path / "s.zarr").mkdir()
    with pytest.raises(StoreError, match="already exists"):
        RowSink.create(tmp_path / "s.zarr", (3, 2), starts=[0])
    assert os.listdir(tmp_path) == ["s.zarr"]


@pytest.mark.parametrize(("start", "shape"), [(2, (2, 2)), (-1, (1, 2)), (0, (1, 3)), (0, (2,))])
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, start: int, shape: tuple[int, ...]) -> None:
    sink = RowSink.create(tmp_path / "s.zarr", (3, 2), starts=[0])
    with pytest.raises(DataError, match="do not fit"):
        sink.write(start, np.zeros(shape))
    sink.abort()


def test_chunks_have_a_fair_size() -> None:
    even = list(range(0, 2_000_000, 8192))
    assert choose_row_chunk(even, 2_000_000, 80) == 8192  # no chunk is shared
    assert choose_row_chunk(even, 2_000_000, 8000) == 512  # a divisor of all starts, up to 4 MiB
    ragged = np.cumsum([0, *np.random.default_rng(0).integers(20_000, 40_000, 50)]).tolist()
    assert 10_000 <= choose_row_chunk(ragged[:-1], ragged[-1], 160) <= 20_000
    assert choose_row_chunk(list(range(1000)), 1000, 80) == 1000  # tiny blocks share chunks
