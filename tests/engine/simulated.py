"""Fits on a simulated cluster where something goes wrong: each ends in the same bits, or in one error that says what.

    python -m tests.engine.simulated [--share 1.0]

runs all of them on all processors, and prints their number by kind of fit and outcome.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from zlib import crc32

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from dlatent import open_data
from dlatent.errors import EngineError, StoreError
from dlatent.testing import DriverDied, SimulatedCluster
from tests.fits import FITS, bits

BLOCKS = (4, 9)
FEW = 25
RUNS = {
    "weights": 36_000,
    "covariance": 30_000,
    "em": 24_000,
    "krylov, sparse": 4_000,
    "gram": 3_000,
    "relational, precision": 2_000,
    **dict.fromkeys(("krylov", "landmarks"), 1_000),
    **dict.fromkeys(("error bars", "relational", "kernel"), 300),
}
"""How many fits of a kind there are, the more the shorter they take; `FEW` of the others."""

QUICK = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where stores and checkpoints lie: each write of these waits for the disk, if there is one."""
FAULTS = ("workers", "cache", "driver", "scheduler", "damage")
"""What goes wrong: workers die in each, and where data come from a store what they keep of it is lost, too."""


def runs_of(name: str, share: float) -> int:
    """How many fits of a kind are a share of all."""
    return max(1, round(share * RUNS.get(name, FEW)))


def cut(rows: Any, blocks: int) -> Any:
    """The rows in about so many blocks."""
    return open_data(rows, block_bytes=max(64, rows.shape[0] * rows.shape[1] * 8 // blocks))


def stored(rows: Any, blocks: int, folder: Path) -> Path:
    """A store of the rows in about so many chunks, which is written once."""
    place = folder / f"{crc32(rows.tobytes())}-{blocks}.zarr"
    if not place.exists():
        shape = max(1, rows.shape[0] // blocks), rows.shape[1]
        zarr.create_array(place, data=rows, chunks=shape, compressors=Crc32cCodec())
    return place


@cache
def expected(name: str, blocks: int) -> dict[str, bytes]:
    """The bits of one task after the other."""
    return bits(FITS[name](partial(cut, blocks=blocks), client="serial"))


def roughly(rng: np.random.Generator) -> dict[str, Any]:
    """A cluster on which much goes wrong."""
    return {
        "seed": int(rng.integers(2**31)),
        "workers": int(rng.integers(1, 6)),
        "threads": int(rng.integers(1, 4)),
        "deaths": float(rng.choice([0.5, 2.0, 4.0])),
        "repeats": 0.2,
        "forgotten": 0.1,
        "late": float(rng.choice([0.0, 3.0])),
    }


class Trial:
    """A fit where something goes wrong."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.fault = str(self.rng.choice(FAULTS, p=[0.75, 0.1, 0.05, 0.05, 0.05]))
        if "sparse" in name and self.fault in ("cache", "damage"):  # it is in memory
            self.fault = "workers"
        self.name, self.folder, self.blocks = name, folder, int(self.rng.choice(BLOCKS))
        self.rough, self.told = roughly(self.rng), f"{name}, seed {seed}, {self.fault}"

    def fit(self, cut: Callable[..., Any] = cut, checkpoint: Path | None = None, **ends: int) -> Any:
        """The model, from rows that `cut` has brought into blocks."""
        cluster = SimulatedCluster(**self.rough, **ends)
        kept = {} if checkpoint is None else {"checkpoint": checkpoint, "resume": True}
        return FITS[self.name](partial(cut, blocks=self.blocks), client=cluster, **kept)

    def expect(self, words: str, error: Exception) -> None:
        """Words in the text of an error."""
        if words not in str(error):
            raise AssertionError(f"{self.told}: {error}") from error

    def outcome(self) -> str:
        """What came of it; AssertionError where that is wrong."""
        if self.fault == "damage":
            return self.damaged()
        lost = self.fault
        if lost == "cache":
            model = self.fit(lambda rows, blocks: cut(zarr.open_array(stored(rows, blocks, self.folder)), blocks))
        elif lost == "workers":
            model = self.fit()
        else:
            model, ends = self.resumed()
            lost = lost if ends else "nothing else"
        assert bits(model) == expected(self.name, self.blocks), self.told
        return f"same bits, {lost} lost"

    def resumed(self) -> tuple[Any, int]:
        """The model of a fit whose driver or scheduler ends until no more tasks are left; and how often it ended."""
        place = Path(mkdtemp(dir=self.folder)) / "c"
        for ends in count():
            tasks = int(self.rng.integers(2 ** int(self.rng.integers(1, 8)))) << ends
            try:
                return self.fit(checkpoint=place, **{f"{self.fault}_tasks": tasks}), ends
            except DriverDied:
                assert self.fault == "driver", self.told
            except EngineError as error:
                self.expect(f"the {self.fault} ended after {tasks} tasks", error)
            self.rough["seed"] += 1
        raise AssertionError

    def damaged(self) -> str:
        """A fit of stores of which one chunk is damaged or gone."""
        gone, at, folder = bool(self.rng.integers(2)), int(self.rng.integers(100)), Path(mkdtemp(dir=self.folder))

        def spoilt(rows: Any, blocks: int) -> Any:
            place = stored(rows, blocks, folder)
            chunks = sorted(path for path in (place / "c").rglob("*") if path.is_file())
            chunk = chunks[at % len(chunks)]
            content = bytearray(chunk.read_bytes())
            content[at % len(content)] ^= 0xFF
            chunk.unlink() if gone else chunk.write_bytes(content)
            return cut(zarr.open_array(place, mode="r"), blocks)

        try:
            self.fit(spoilt)
        except StoreError as error:
            self.expect(str(folder), error)
            self.expect("chunk", error)
            return "one error, chunk damaged"
        raise AssertionError(f"{self.told}: a chunk that is {'gone' if gone else 'damaged'} passed")


def trials(name: str, seeds: range) -> Counter[str]:
    """The outcomes of fits of a kind."""
    warnings.simplefilter("ignore")
    with TemporaryDirectory(dir=QUICK) as folder:
        return Counter(Trial(name, seed, Path(folder)).outcome() for seed in seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits on a simulated cluster.")
    parser.add_argument("--share", type=float, default=1.0, help="part of all fits")
    share, started = parser.parse_args().share, time.perf_counter()
    found = {name: Counter[str]() for name in FITS}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        parts = [
            (name, pool.submit(trials, name, range(start, min(start + 100, runs_of(name, share)))))
            for name in sorted(FITS, key=lambda name: name in RUNS)
            for start in range(0, runs_of(name, share), 100)
        ]
        for name, part in parts:
            found[name] += part.result()
    for name, outcomes in found.items():
        print(f"{name}: {', '.join(f'{number} {what}' for what, number in sorted(outcomes.items()))}")
    total = sum(outcomes.total() for outcomes in found.values())
    print(f"{total} fits in {time.perf_counter() - started:.0f} s on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
