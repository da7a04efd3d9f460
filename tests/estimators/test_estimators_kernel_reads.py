"""How often a kernel model reads its training blocks for new ones, and what it keeps of them."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client

from dlatent import KernelPPCA, KernelSupervisedPPCA
from dlatent.arrays import DataSource
from dlatent.engine.cache import ReferenceCache, measured
from tests.fitted import map_of

COLUMNS, TRAINING, NEW = 5, (0, 30, 47, 80, 120), (0, 1, 9, 20, 40, 43, 60, 61, 75, 90, 104, 118, 130)
BLOCKS = len(TRAINING) - 1
RNG = np.random.default_rng(3)
ROWS, OTHERS = RNG.normal(size=(120, COLUMNS)), RNG.normal(size=(130, COLUMNS))
TARGETS = ROWS[:, :2] ** 2


@dataclass(eq=False)
class ReadRows:
    """Rows of which every read leaves a line in a file."""

    start: int
    stop: int
    values: Any
    reads: Path | None = None
    collection: Any = None

    @property
    def nbytes(self):
        return measured(self.values)

    def load(self):
        if self.reads is not None:
            with open(self.reads, "a") as file:
                file.write(f"{os.getpid()} {self.start}\n")
        return self.values.copy()

    def assemble(self, parts):
        raise NotImplementedError


def source(values, bounds, reads=None):
    blocks = tuple(ReadRows(start, stop, values[start:stop], reads) for start, stop in pairwise(bounds))
    sparse = sp.issparse(values)
    return DataSource(values.shape, values.dtype, blocks, os.urandom(8), sparse, values.nnz if sparse else None)


def lines(reads):
    """Process and first row of every read since the last look."""
    found = [tuple(map(int, line.split())) for line in reads.read_text().splitlines()] if reads.exists() else []
    reads.unlink(missing_ok=True)
    return found


def kept():
    """Blocks on shelves in this process."""
    gc.collect()
    return sum(len(value._kept) for value in gc.get_objects() if type(value) is ReferenceCache)


def left(client):
    """What is kept in the processes that have worked."""
    return set(client.run(kept).values()) if isinstance(client, Client) else {kept()}


@pytest.fixture(params=["dense", "sparse"])
def fitted(request, tmp_path):
    rows = sp.csr_array(np.where(np.abs(ROWS) > 0.7, ROWS, 0.0)) if request.param == "sparse" else ROWS
    model = KernelSupervisedPPCA(2, gamma=0.1, zero_rows="keep")
    model.fit(source(rows, TRAINING, tmp_path / "reads"), TARGETS, client="serial")
    assert lines(tmp_path / "reads")
    return model


def one_by_one(method):
    """The bits of new blocks that know nothing of each other."""
    return np.concatenate([method(OTHERS[start:stop], client="serial") for start, stop in pairwise(NEW)])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["transform", "score_samples", "predict", "out"])
def test_a_process_reads_each_training_block_once(fitted, method, client, tmp_path):
    new, reads = source(OTHERS, NEW), tmp_path / "reads"
    expected = one_by_one(getattr(fitted, "transform" if method == "out" else method))
    assert len(lines(reads)) == BLOCKS * (len(NEW) - 1), "apart, every new block reads all"
    if method == "out":
        fitted.transform(new, out=tmp_path / "scores.zarr", client=client)
        found = zarr.open(tmp_path / "scores.zarr", mode="r")["scores"][:]
    else:
        found = getattr(fitted, method)(new, client=client)
    assert np.array_equal(found, expected)
    read = lines(reads)
    assert len(read) == BLOCKS * len({process for process, _ in read})
    assert len(set(read)) == len(read), "none twice in a process"
    assert left(client) == {0}


@pytest.mark.slow
def test_what_is_kept_is_bounded(fitted, client, tmp_path, monkeypatch):
    """There is room for two of four blocks; the others are read for every new block."""
    reads = tmp_path / "reads"
    expected = one_by_one(fitted.transform)
    lines(reads)
    cap = sum(block.nbytes for block in map_of(fitted).rows[:2])
    monkeypatch.setattr("dlatent.fitted.row_work.cache_share", lambda memory: cap)
    assert np.array_equal(fitted.transform(source(OTHERS, NEW), client=client), expected)
    read = lines(reads)
    assert len(read) == 2 * len({process for process, _ in read}) + 2 * (len(NEW) - 1)
    assert left(client) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_lazy_results_read_once_and_keep_nothing(fitted, where, two_processes, tmp_path):
    lazy = fitted.transform(da.from_array(OTHERS, chunks=(tuple(np.diff(NEW)), COLUMNS)))
    assert lines(tmp_path / "reads") == []
    expected = one_by_one(fitted.transform)
    for _ in range(2):
        lines(tmp_path / "reads")
        found = lazy.compute(scheduler="threads") if where == "threads" else two_processes.compute(lazy).result()
        assert np.array_equal(found, expected)
        read = lines(tmp_path / "reads")
        assert len(read) == len(set(read)) == BLOCKS * len({process for process, _ in read}), "once in a process"
        del found
    assert kept() == 0
    until = time.monotonic() + 30
    while left(two_processes) != {0}:  # workers hear a little later that nobody needs the function
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("client", ["serial", None])
def test_training_rows_that_a_kernel_model_makes(client):
    """To read a block of the second model runs the first one."""
    first = KernelPPCA(4, gamma=0.1).fit(source(ROWS, TRAINING), client="serial")
    made = da.from_array(ROWS, chunks=(20, COLUMNS)).map_blocks(
        lambda rows: first.transform(source(rows, (0, 10, 20)), client=client), dtype=float, chunks=(20, 4)
    )
    second = KernelPPCA(2, gamma=0.1).fit(made, client=client)
    found = second.transform(source(np.ascontiguousarray(OTHERS[:, :4]), NEW), client=client)
    np.testing.assert_allclose(found, second.transform(OTHERS[:, :4]), atol=1e-12)
