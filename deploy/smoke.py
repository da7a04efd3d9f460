"""The smoke command of every recipe: fit on a cluster, fit without it, and compare the bits.

    python smoke.py --data PLACE --scheduler tcp://host:8786

PLACE (a path or URL that all workers reach) gets a store of random rows of a known rank, unless it is there already.
With --checkpoint a command that is interrupted goes on when it is started again.  Exit status: 0 OK, 1 FAILED.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import time
from typing import Any

import fsspec
import numpy as np
import zarr
from dask.utils import parse_bytes
from distributed import Client

from dlatent import PPCA, Callback

COLUMNS, RANK, NOISE, CHUNK_ROWS = 256, 8, 0.1, 8192


def loadings() -> np.ndarray:
    """The directions that the rows vary in."""
    return np.random.default_rng(0).normal(size=(RANK, COLUMNS))


def make(place: str, rows: int) -> None:
    """Write rows of rank 8 and noise, one chunk after the other; a store that is whole stays as it is."""
    try:
        found = zarr.open_array(place, mode="r")
        if found.attrs.get("whole") and found.shape == (rows, COLUMNS):
            print(f"{place} is there: {rows:,} x {COLUMNS}, {found.nbytes / 1e6:,.0f} MB")
            return
    except FileNotFoundError:
        pass
    begun = time.perf_counter()
    store = zarr.create_array(
        place, shape=(rows, COLUMNS), chunks=(CHUNK_ROWS, COLUMNS), dtype="f4", compressors=None, overwrite=True
    )
    for start in range(0, rows, CHUNK_ROWS):
        rng = np.random.default_rng([1, start])
        count = min(CHUNK_ROWS, rows - start)
        noise = rng.standard_normal((count, COLUMNS), dtype="f4")
        store[start : start + count] = rng.normal(size=(count, RANK)) @ loadings() + NOISE * noise
    store.attrs["whole"] = True
    print(f"{place} written: {rows:,} x {COLUMNS}, {_rate(store.nbytes, time.perf_counter() - begun)}")


def fit(place: str, client: Client | str, *, done: int = 0, pause: float = 0.0, **options: Any) -> PPCA:
    """Fit by some passes over the data, of which some are `done`, and print a line for each."""
    data_bytes = zarr.open_array(place, mode="r").nbytes
    numbers = itertools.count(1)

    def told(record: Any) -> None:
        if next(numbers) <= done:
            print(f"  {record.name:<20} from the checkpoint")
            return
        source = "read" if record.bytes_read else "from memory"
        print(f"  {record.name:<20} {record.seconds:8.2f} s  {_rate(data_bytes, record.seconds)} {source}", flush=True)
        time.sleep(pause)

    return PPCA(RANK, solver="krylov").fit(place, client=client, callbacks=[Callback(on_pass=told)], **options)


def _rate(bytes_: float, seconds: float) -> str:
    return f"{bytes_ / 1e6 / max(seconds, 1e-9):,.0f} MB/s"


def bits(model: PPCA) -> bytes:
    """All that was fitted."""
    found = (model.components_, model.mean_, model.noise_variance_, model.log_likelihood_)
    return b"".join(np.asarray(value).tobytes() for value in found)


def misses(model: PPCA) -> float:
    """The largest sine of an angle between what was planted and what was found."""
    planted, _ = np.linalg.qr(loadings().T)
    found, _ = np.linalg.qr(model.components_.T)
    return float(np.linalg.norm(planted - found @ (found.T @ planted), 2))


def main() -> int:
    """Make data, fit twice, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, for example tcp://host:8786")
    where.add_argument("--scheduler-file", metavar="FILE", help="the file that the scheduler wrote")
    parser.add_argument("--data", metavar="PLACE", required=True, help="path or URL of the store")
    parser.add_argument("--size", type=parse_bytes, default="64MiB", help="bytes of the data (default 64MiB)")
    parser.add_argument("--checkpoint", metavar="PLACE", help="path or URL for the results of passes till the fit ends")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each pass, to break something in")
    asked = parser.parse_args()

    make(asked.data, max(asked.size // (4 * COLUMNS), 2 * CHUNK_ROWS))
    kept: dict[str, Any] = {}
    if asked.checkpoint:
        files, path = fsspec.url_to_fs(asked.checkpoint)
        done = len(files.glob(f"{path}/*.npz"))
        kept = {"checkpoint": asked.checkpoint, "resume": True, "done": done}
        if done:
            print(f"{asked.checkpoint} is there: goes on behind {done} passes")
    with Client(asked.scheduler, scheduler_file=asked.scheduler_file, set_as_default=False) as client:
        print("fit on the cluster", flush=True)
        there = fit(asked.data, client, pause=asked.pause, **kept)
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        print(f"  {len(workers)} workers, {sum(worker['nthreads'] for worker in workers)} threads at the end")
    print("fit without the cluster", flush=True)
    here = fit(asked.data, "serial")

    wrong = []
    if bits(there) != bits(here):
        wrong.append("the cluster gave other bits than this process")
    if (angle := misses(there)) > 0.01:
        wrong.append(f"the planted directions were missed by {angle:.3f}")
    if asked.checkpoint and not wrong:
        files.rm(path, recursive=True)
    print("FAILED: " + "; ".join(wrong) if wrong else "OK: the same bits with and without the cluster")
    return bool(wrong)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the first process of a container goes on
    raise SystemExit(main())
