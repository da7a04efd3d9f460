"""A hard limit on memory, far below the size of the data: every route ends well, and no process is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import dlatent
from dlatent import ingest, ingest_graph, open_data, rechunk
from tests.sparse_stores import write_csr

pytestmark = pytest.mark.slow

CAP = 800 * 2**20
"""Bytes that the control group of a command may have."""
TIMES = float(os.environ.get("DLATENT_TEST_CAPS", "0"))
"""How many times as large data are, unpacked; 10 for all cases take about an hour, and 80 GB of disk."""
SIZE = int((TIMES or 1.5) * CAP)
COLUMNS = 1024
ROWS = SIZE // (4 * COLUMNS)
WIDE_ROWS = 400
SPARSE_COLUMNS, IN_ROW = 20_000, 64
GROUPS = Path("/sys/fs/cgroup")
ROOT = Path(__file__).parents[2]


def pieces(rows: int, columns: int, height: int) -> Iterator[Any]:
    """Rows of few digits, which pack well: of low rank, with noise."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(4, columns)).astype("f4")
    for start in range(0, rows, height):
        count = min(height, rows - start)
        values = rng.standard_normal((count, 4), dtype="f4") @ loadings
        yield np.round(2 * values + rng.standard_normal(values.shape, dtype="f4")) / 2


def dense(place: Path, rows: int, columns: int, height: int, *, missing: float = 0.0) -> None:
    rng = np.random.default_rng(1)
    array = zarr.create_array(place, shape=(rows, columns), dtype="f4", chunks=(height, columns), fill_value=np.nan)
    for number, values in enumerate(pieces(rows, columns, height)):
        values[rng.random(values.shape, dtype="f4") < missing] = np.nan
        array[number * height : number * height + len(values)] = values


def sparse(place: Path) -> None:
    rng = np.random.default_rng(0)
    rows, height = SIZE // (8 * IN_ROW), 20_000

    def blocks() -> Iterator[Any]:
        for start in range(0, rows, height):
            count = min(height, rows - start)
            columns = np.sort(rng.integers(0, SPARSE_COLUMNS, (count, IN_ROW), dtype="i4"), axis=1).ravel()
            values, pointers = rng.integers(1, 5, len(columns)).astype("f4"), np.arange(0, len(columns) + 1, IN_ROW)
            yield sp.csr_array((values, columns, pointers), shape=(count, SPARSE_COLUMNS))

    write_csr(zarr.open_group(place, mode="w"), blocks(), columns=SPARSE_COLUMNS)


def ring(place: Path) -> None:
    at = np.arange(ROWS)
    matrix = sp.coo_array((np.ones(ROWS), (at, (at + 1) % ROWS)), shape=(ROWS, ROWS)).tocsr()
    ingest_graph(sp.csr_array(matrix + matrix.T), place)


def table(place: Path) -> None:
    array = np.lib.format.open_memmap(place, "w+", "f4", (ROWS, COLUMNS))
    for number, values in enumerate(pieces(ROWS, COLUMNS, 2048)):
        array[number * 2048 : number * 2048 + len(values)] = values


INPUTS: dict[str, Callable[[Path], Any]] = {
    "dense.zarr": lambda place: dense(place, ROWS, COLUMNS, 1024),
    "holes.zarr": lambda place: dense(place, ROWS, COLUMNS, 1024, missing=0.1),
    "wide.zarr": lambda place: dense(place, WIDE_ROWS, SIZE // (4 * WIDE_ROWS), 2),
    "sparse.zarr": sparse,
    "ring.zarr": ring,
    "rows.npy": table,
    "labels.npy": lambda place: np.save(place, np.arange(ROWS) % 3),
    "model.zarr": lambda place: dlatent.PPCA(3).fit(np.random.default_rng(0).normal(size=(50, COLUMNS))).save(place),
}


def data(folder: Path, name: str) -> Any:
    """A store in blocks that two threads can work on within the cap, as the refusal of a plan advises."""
    return open_data(folder / f"{name}.zarr", block_bytes=2**22)


def views(folder: Path) -> Any:
    pairs = np.column_stack([np.arange(ROWS)] * 2)
    both = {"a": data(folder, "dense"), "b": data(folder, "dense")}
    return dlatent.CorrespondencePPCA(3, **FEW).fit(both, correspondence=pairs)


def kernel(folder: Path, name: str, **options: Any) -> Any:
    return dlatent.KernelPPCA(3, kernel="rbf", gamma=1e-7, **FEW, **options).fit(data(folder, name))


FEW: dict[str, Any] = {"max_iter": 3}
"""Enough iterations, as no memory is taken by more of them."""

CASES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "ingest": ("rows.npy", lambda f: ingest(f / "rows.npy", f / "out.zarr")),
    "rechunk": ("dense.zarr", lambda f: rechunk(f / "dense.zarr", f / "out.zarr", memory_bytes=2**27)),
    "covariance": ("dense.zarr", lambda f: dlatent.PPCA(5, solver="covariance").fit(data(f, "dense"))),
    "transform": (
        "dense.zarr model.zarr",
        lambda f: dlatent.load(f / "model.zarr").transform(data(f, "dense"), out=f / "out.zarr"),
    ),
    "krylov": ("dense.zarr", lambda f: dlatent.PPCA(5, solver="krylov", **FEW).fit(data(f, "dense"))),
    "krylov, sparse": ("sparse.zarr", lambda f: dlatent.PPCA(5, solver="krylov", **FEW).fit(data(f, "sparse"))),
    "gram": ("wide.zarr", lambda f: dlatent.PPCA(5, solver="gram").fit(data(f, "wide"))),
    "accelerated_em": ("holes.zarr", lambda f: dlatent.PPCA(3, missing="nan", **FEW).fit(data(f, "holes"))),
    "impute": (
        "holes.zarr model.zarr",
        lambda f: dlatent.load(f / "model.zarr").set_params(missing="nan").impute(data(f, "holes"), out=f / "out.zarr"),
    ),
    "factor analysis": ("dense.zarr", lambda f: dlatent.FactorAnalysis(4).fit(data(f, "dense"))),
    "supervised": (
        "dense.zarr labels.npy",
        lambda f: dlatent.SupervisedPPCA(5).fit(data(f, "dense"), np.load(f / "labels.npy", mmap_mode="r")),
    ),
    "mixture": ("dense.zarr", lambda f: dlatent.PPCAMixture(3, n_mixtures=2, n_init=1, **FEW).fit(data(f, "dense"))),
    "correspondence": ("dense.zarr", views),
    "relational": (
        "dense.zarr ring.zarr",
        lambda f: dlatent.RelationalPPCA(3, **FEW).fit(data(f, "dense"), graph=f / "ring.zarr"),
    ),
    "landmarks": ("dense.zarr", lambda f: kernel(f, "dense", landmarks=500)),
    "recomputed": ("wide.zarr", lambda f: kernel(f, "wide", solver="recomputed")),
    "locally linear embedding": (
        "wide.zarr",
        lambda f: dlatent.LocallyLinearEmbedding(n_neighbors=10, n_components=2).fit(data(f, "wide")),
    ),
}
REFUSED = ("gram", "recomputed", "locally linear embedding")
"""What cannot be done within the cap on such wide rows: its plan says so."""
RUN = [*CASES] if TIMES else ["ingest", "rechunk", "covariance", "transform"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("caps")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit on memory."""
    old = (GROUPS / "memory").is_dir()
    place = (GROUPS / "memory" if old else GROUPS) / f"dlatent-caps-{os.getpid()}"
    try:
        place.mkdir()
        limits = {"memory.limit_in_bytes": CAP} if old else {"memory.max": CAP, "memory.swap.max": 0}
        for name, value in limits.items():
            (place / name).write_text(str(value))
    except OSError as error:
        if place.is_dir():
            place.rmdir()
        pytest.skip(f"no control group with a limit on memory can be made here: {error}")
    yield place
    place.rmdir()


@pytest.mark.parametrize("name", RUN)
def test_what_is_larger_than_the_memory_ends_well(inputs: Path, group: Path, name: str) -> None:
    for needed in CASES[name][0].split():
        if not (inputs / needed).exists():
            INPUTS[needed](inputs / needed)
    words = [sys.executable, "-m", "tests.scale.test_scale_caps", name, str(inputs), str(group)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    shutil.rmtree(inputs / "out.zarr", ignore_errors=True)
    print(ended.stdout)
    if name in REFUSED:
        assert "does not fit: " in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr[-2000:]


if __name__ == "__main__":
    import time
    import warnings

    case, folder, own = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    (own / "cgroup.procs").write_text(str(os.getpid()))
    warnings.simplefilter("ignore")
    dlatent.show_progress(False)
    started = time.perf_counter()
    CASES[case][1](folder)
    status = Path("/proc/self/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10
    print(f"{case}: {SIZE >> 20:,} MiB of data, {time.perf_counter() - started:.0f} s, {peak} MiB at most")
