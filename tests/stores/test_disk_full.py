"""A disk that is full: one clear error, what was there is whole, and what was begun is gone or goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster

from dlatent import PPCA, ingest, ingest_graph
from dlatent.cli.main import main
from dlatent.errors import EngineError, StoreError
from dlatent.stores import temporary as beside

SIZE = 3 * 2**20
SPILLED = {"target": 0.6, "spill": 0.7, "pause": 0.8}
X = np.random.default_rng(0).normal(size=(60_000, 12))
MODEL = PPCA(10).fit(X[:1000])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", place], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no small disk can be made here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def write_table(path: Path) -> Path:
    np.save(path / "x.npy", X)
    return path / "x.npy"


def write_edges(path: Path) -> Path:
    rows = np.arange(400_000) % 60_000
    ends = (rows * 7 + np.arange(400_000) // 60_000 + 1) % 60_000
    matrix = sp.coo_array((np.ones(400_000), (rows, ends)), shape=(60_000, 60_000)).tocsr()
    sp.save_npz(path / "edges.npz", sp.csr_array(matrix + matrix.T))
    return path / "edges.npz"


WRITERS: dict[str, Callable[[Path, Path], Any]] = {
    "ingest": lambda inputs, out: ingest(write_table(inputs), out),
    "edges": lambda inputs, out: ingest_graph(write_edges(inputs), out, samples=60_000),
    "transform": lambda inputs, out: MODEL.transform(X, out=out),
    "save": lambda inputs, out: PPCA(100).fit(np.random.default_rng(0).normal(size=(300, 5000))).save(out),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_named_and_nothing_is_left(name: str, disk: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"disk/out.zarr.*o space left"):
        WRITERS[name](tmp_path, disk / "out.zarr")
    beside._clear()  # at the end of the process: a thread of Zarr may still have been writing
    assert os.listdir(disk) == []
    (disk / "more").write_bytes(bytes(SIZE // 2))


def test_a_checkpoint_that_finds_no_room_goes_on_elsewhere(disk: Path, tmp_path: Path) -> None:
    wide = np.random.default_rng(0).normal(size=(200, 20_000))
    fit = lambda **more: PPCA(3, solver="krylov").fit(wide, client="serial", **more)  # noqa: E731
    with pytest.raises(StoreError, match=r"cannot write the checkpoint .*disk/c.*o space left.*make room"):
        fit(checkpoint=disk / "c")
    assert not list((disk / "c").glob("*.part"))
    subprocess.run(["cp", "-r", disk / "c", tmp_path / "c"], check=True)
    again = fit(checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(again.components_, fit().components_)


def test_the_command_says_it_in_one_line(disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(write_table(tmp_path)), str(disk / "out.zarr"), "--quiet"]) == 3
    (said,) = capsys.readouterr().err.splitlines()
    assert "o space left" in said
    assert os.listdir(disk) == []


@pytest.mark.slow
def test_workers_that_find_no_room_to_spill_are_named_and_go_on_when_there_is_less(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlatent.engine.failures.PATIENCE", "2 s")
    options = {"memory_limit": "400MiB", "local_directory": str(disk), "dashboard_address": None, "silence_logs": 50}
    with (
        dask.config.set({f"distributed.worker.memory.{kind}": part for kind, part in SPILLED.items()}),
        LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
    ):
        rows = da.random.default_rng(0).normal(size=(80_000, 500), chunks=(2000, 500)).persist()
        with pytest.raises(EngineError, match=r"stood still for 2 s, as workers are paused for want of memory: 1 of 1"):
            PPCA(3).fit(rows, client=client)
        del rows
        again = PPCA(3).fit(da.from_array(X, chunks=(5000, 12)), client=client)
        assert (
            again.log_likelihood_ == PPCA(3).fit(da.from_array(X, chunks=(5000, 12)), client="serial").log_likelihood_
        )
