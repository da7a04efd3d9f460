"""A store that goes away, or that a worker does not see, is an error of the fit: real processes, a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster

from dlatent import PPCA, Callback, CorrespondencePPCA, KernelPPCA, RelationalPPCA, ingest, ingest_graph, open_data
from dlatent.arrays import DataSource
from dlatent.errors import StoreError
from dlatent.stores.atomic import new_store
from tests.sparse_stores import write_csr

RNG = np.random.default_rng(3)
X = RNG.normal(size=(400, 3)) @ RNG.normal(size=(3, 60)) + 0.3 * RNG.normal(size=(400, 60))


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_cached")]


def dense(path: Path, values: np.ndarray[Any, Any] = X, chunks: tuple[int, int] = (25, 15)) -> Path:
    """As other programs write it, with chunks along the columns."""
    zarr.create_array(path, shape=values.shape, dtype=values.dtype, chunks=chunks)[...] = values
    return path


def sparse(path: Path) -> Path:
    with new_store(path) as group:
        write_csr(group, [sp.csr_array(np.where(np.abs(X) > 0.3, X, 0))])
    return path


def away_after(passes: int, path: Path) -> Callback:
    """What renames the store after so many passes; a later pass then finds nothing."""
    done = []

    def count(record: object) -> None:
        done.append(record)
        if len(done) == passes:
            # The store of a kernel gets its name only when it is finished.
            (found,) = path.parent.glob(f"*{path.name}*")
            found.rename(path.with_name("away"))

    return Callback(on_pass=count)


def fit_dense(folder: Path) -> tuple[Path, Callable[..., Any]]:
    path = dense(folder / "x.zarr")
    return path, partial(PPCA(3, solver="krylov").fit, path)


def fit_sparse(folder: Path) -> tuple[Path, Callable[..., Any]]:
    path = sparse(folder / "x.zarr")
    return path, partial(PPCA(3, solver="krylov").fit, path)


def fit_rows(folder: Path) -> tuple[Path, Callable[..., Any]]:
    path = dense(folder / "x.zarr", np.where(RNG.random(X.shape) < 0.1, np.nan, X))
    return path, partial(PPCA(3, missing="nan").fit, path)


def fit_views(folder: Path) -> tuple[Path, Callable[..., Any]]:
    path, other = dense(folder / "x.zarr"), dense(folder / "b.zarr", X[:, :20], (40, 20))
    pairs = np.stack([np.arange(400)] * 2, axis=1)
    return path, partial(CorrespondencePPCA(3, solver="krylov").fit, {"a": path, "b": other}, correspondence=pairs)


def fit_graph(folder: Path) -> tuple[Path, Callable[..., Any]]:
    """The edges go away, the data stay."""
    path, data = folder / "edges.zarr", dense(folder / "x.zarr")
    ingest_graph(np.stack([np.arange(399), np.arange(1, 400)], axis=1), path, samples=400, direction="undirected")
    return path, partial(RelationalPPCA(3, solver="krylov").fit, data, graph=path)


def fit_kernel(folder: Path) -> tuple[Path, Callable[..., Any]]:
    path = folder / "k.zarr"
    return path, partial(KernelPPCA(3, solver="stored", kernel_store=str(path)).fit, dense(folder / "x.zarr"))


FITS = {"dense": fit_dense, "sparse": fit_sparse, "rows": fit_rows, "views": fit_views, "graph": fit_graph}
FITS |= {"kernel": fit_kernel}


@pytest.mark.parametrize("kind", FITS)
def test_a_store_that_goes_away_between_passes(kind: str, client: Any, tmp_path: Path) -> None:
    path, fit = FITS[kind](tmp_path)
    with pytest.raises(StoreError, match=rf"{path.name}.* is not there any more"):
        fit(client=client, callbacks=[away_after(4 if kind == "kernel" else 2, path)])


def _flipped(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 4]) + whole[len(whole) // 2 + 1 :])


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES = {"flipped": _flipped, "cut": _cut, "empty": lambda path: path.write_bytes(b""), "removed": Path.unlink}


def own_dense(folder: Path) -> tuple[Path, Callable[..., Any]]:
    """As this library writes it."""
    np.save(folder / "x.npy", X)
    ingest([folder / "x.npy"], folder / "x.zarr", block_bytes=25 * 60 * 8)
    data = open_data(folder / "x.zarr", block_bytes=25 * 60 * 8)
    return folder / "x.zarr", partial(PPCA(3, solver="krylov").fit, data)


def own_scores(folder: Path) -> tuple[Path, Callable[..., Any]]:
    PPCA(40).fit(X).transform(open_data(dense(folder / "d.zarr"), block_bytes=1), out=folder / "x.zarr")
    return folder / "x.zarr", partial(PPCA(3, solver="krylov").fit, folder / "x.zarr")


OWN = {"dense": (own_dense, "X/c/3/0"), "sparse": (fit_sparse, "data/c/0"), "scores": (own_scores, "scores/c/0/0")}
OWN |= {"graph": (fit_graph, "data/c/0"), "kernel": (fit_kernel, "rows-0/c/1/0")}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", OWN)
def test_a_chunk_that_is_damaged_between_passes(kind: str, damage: str, two_processes: Client, tmp_path: Path) -> None:
    """The fit ends with the error of the first worker that reads it, and no worker with the fit."""
    make, chunk = OWN[kind]
    path, fit = make(tmp_path)
    passes, workers = list[object](), two_processes.run(os.getpid)

    def count(record: object) -> None:
        passes.append(record)
        if len(passes) == (4 if kind == "kernel" else 2):
            # The store of a kernel gets its name only when it is finished.
            (found,) = path.parent.glob(f"*{path.name}*")
            DAMAGES[damage](found / chunk)

    name, at = chunk.split("/c/")
    named = rf"{path.name}\S*/{name}: cannot read rows (\d+):(\d+)(:| \()( the)? ?chunk ({name}/)?c/{at}\b"
    with pytest.raises(StoreError, match=named) as raised:
        fit(client=two_processes, callbacks=[Callback(on_pass=count)])
    found = re.search(named, str(raised.value))
    assert found is not None
    assert 0 <= int(found[1]) < int(found[2]) <= 400  # rows of the data, and not entries or edges
    assert ("checksum" in str(raised.value)) == (damage != "removed")
    assert two_processes.run(os.getpid) == workers


def written_over(kind: str, path: Path) -> None:
    """Another store of the same shape and kind at the same path."""
    if kind == "graph":
        pairs = np.stack([np.arange(399), np.arange(1, 400)], axis=1)
        ingest_graph(pairs, path, samples=400, direction="undirected", overwrite=True)
    elif kind == "sparse":
        with new_store(path, overwrite=True) as group:
            write_csr(group, [sp.csr_array(np.where(np.abs(X) > 0.3, X + 1, 0))])
    else:
        np.save(path.with_name("y.npy"), X + 1)
        ingest(path.with_name("y.npy"), path, block_bytes=25 * 60 * 8, overwrite=True)


@pytest.mark.parametrize("kind", ["dense", "sparse", "graph"])
def test_a_store_that_is_written_over_between_passes(kind: str, client: Any, tmp_path: Path) -> None:
    path, fit = (OWN[kind][0] if kind == "dense" else FITS[kind])(tmp_path)
    passes = list[object]()

    def count(record: object) -> None:
        passes.append(record)
        if len(passes) == 2:
            written_over(kind, path)

    with pytest.raises(StoreError, match=rf"{path.name}.*(is not what was opened any more|digest)"):
        fit(client=client, callbacks=[Callback(on_pass=count)])
    assert len(passes) == 2


def test_foreign_stores_with_chunks_along_columns(client: Any, tmp_path: Path) -> None:
    path = dense(tmp_path / "x.zarr")
    (path / "c" / "7" / "2").unlink()
    with pytest.raises(StoreError, match=r"rows \d+:\d+: the chunk c/7/2 of .*x\.zarr is not there; .*missing_chunks"):
        PPCA(3, solver="covariance").fit(path, client=client)


@pytest.fixture
def scattered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Two worker processes; `/proc/self/cwd` is the folder `here` for the one and this process, `there` for the
    other."""
    if not os.path.exists("/proc/self/cwd"):
        pytest.skip("needs /proc, by which one path is another folder for each process")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    workers: list[subprocess.Popen[bytes]] = []
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster, set_as_default=False) as client:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--no-nanny"]
        command += ["--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]
        try:
            for name in ("here", "there"):
                quiet = subprocess.Popen(command, cwd=tmp_path / name, stderr=subprocess.DEVNULL)
                workers.append(quiet)
            client.wait_for_workers(2, timeout=60)
            yield client
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait(30)


def seen() -> DataSource:
    return open_data("/proc/self/cwd/x.zarr", block_bytes=10 * 60 * 8)


def test_a_worker_that_does_not_see_the_store(scattered: Client, tmp_path: Path) -> None:
    dense(tmp_path / "here" / "x.zarr", chunks=(10, 60))
    model = PPCA(3).fit(X)
    with pytest.raises(StoreError, match=r"process \d+ on .* does not see it: .*opened by process \d+ on .*; mount"):
        model.transform(seen(), out=tmp_path / "scores.zarr", client=scattered)
    assert not (tmp_path / "scores.zarr").exists()


def test_a_worker_that_sees_another_store(scattered: Client, tmp_path: Path) -> None:
    """An older copy on one machine: the same shape and chunks, other numbers."""
    sparse(tmp_path / "here" / "x.zarr")
    sparse(tmp_path / "there" / "x.zarr")
    with pytest.raises(StoreError, match=r"has the digest \w{16} for process .*but had \w{16} when .*mount the same"):
        PPCA(3, solver="krylov").fit(seen(), client=scattered)
