"""Small data sources and block functions for the tests of the engine."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.arrays import DataSource
from dlatent.engine import remote
from dlatent.engine.fold import Work
from dlatent.engine.group import Bundle, serialised
from dlatent.engine.task_graph import Ref, TaskNode
from dlatent.errors import DataError

COLUMNS = 12
CLUSTERS = ["two_processes", *(pytest.param(name, marks=pytest.mark.slow) for name in ("one_worker", "seven_workers"))]
"""Fixtures of clusters: that the number of workers changes no bit is a slow test."""


class Gram(NamedTuple):
    """A statistic of the kinds that models use: matrices, a number, nothing."""

    second: np.ndarray
    product: np.ndarray
    rows: float
    nothing: None = None


@dataclass(eq=False)
class DrawnRows:
    """Rows that are drawn anew whenever they are loaded, as a store would read them."""

    start: int
    stop: int
    seed: int = 0
    sparse: bool = False
    delayed: bool = False

    @property
    def nbytes(self) -> int:
        return (self.stop - self.start) * COLUMNS * 4

    @property
    def collection(self) -> tuple[Any, ...] | None:
        if not self.delayed:
            return None
        half = COLUMNS // 2
        draw = dask.delayed(draw_columns, pure=False)
        return (
            draw(self.start, self.stop, self.seed, self.sparse, 0, half),
            draw(self.start, self.stop, self.seed, self.sparse, half, COLUMNS),
        )

    def load(self):
        return draw_columns(self.start, self.stop, self.seed, self.sparse, 0, COLUMNS)

    def assemble(self, parts):
        return sp.hstack(parts, format="csr") if self.sparse else np.concatenate(parts, axis=1)

    def without_collection(self) -> DrawnRows:
        return DrawnRows(self.start, self.stop, self.seed, self.sparse)


class ShortRows(DrawnRows):
    """Rows of which the last is missing."""

    def load(self):
        return super().load()[:-1]

    def assemble(self, parts):
        return super().assemble(parts)[:-1]

    def without_collection(self) -> ShortRows:
        return ShortRows(self.start, self.stop)


def draw_columns(start, stop, seed, sparse, first, last):
    random = np.random.default_rng([seed, start])
    values = random.normal(size=(stop - start, COLUMNS)).astype(np.float32) * 1e3
    if sparse:
        values[random.random(values.shape) < 0.7] = 0
    part = np.ascontiguousarray(values[:, first:last])
    return sp.csr_array(part) if sparse else part


@dataclass(eq=False)
class HeldRows:
    """Rows that are in memory already."""

    start: int
    stop: int
    values: np.ndarray
    collection: None = None

    @property
    def nbytes(self) -> int:
        return self.values.data.nbytes if sp.issparse(self.values) else self.values.nbytes

    def load(self):
        return self.values

    def assemble(self, parts):
        raise NotImplementedError


@dataclass(eq=False)
class FailingRows(DrawnRows):
    """Rows whose chunk is damaged."""

    def load(self):
        raise DataError(f"chunk of rows {self.start} to {self.stop} is damaged")


def bounds(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).tolist()


def drawn(sizes, *, key="drawn", **kind) -> DataSource:
    ends = bounds(sizes)
    blocks = tuple(DrawnRows(a, b, **kind) for a, b in pairwise(ends))
    return DataSource((ends[-1], COLUMNS), np.dtype(np.float32), blocks, (key, tuple(sizes), str(kind)))


def held(values, sizes) -> DataSource:
    ends = bounds(sizes)
    blocks = tuple(HeldRows(a, b, values[a:b]) for a, b in pairwise(ends))
    return DataSource(values.shape, values.dtype, blocks, ("held", id(values)), in_memory=True)


def parameters(seed=5):
    return np.random.default_rng(seed).normal(size=(COLUMNS, 3)).astype(np.float32)


def held_by_columns(features):
    """A form of sparse rows."""
    return features.tocsc()


def formats(block, _parameters) -> tuple[str, ...]:
    """In which form a block arrived, and whether it may be written to."""
    arrays = (block.features.data, block.features.indices, block.features.indptr)
    return (block.features.format + ("!" if any(array.flags.writeable for array in arrays) else ""),)


def gram(block, weights) -> Gram:
    """Float32 sums, so that another order of adding shows in the bits."""
    features = block.features
    second = features.T @ features
    second = second.toarray() if sp.issparse(second) else second
    return Gram(second, features.T @ (features @ weights), float(block.rows))


def on_worker(call, work: Work, *given, groups=(), picks=None, updates=True):
    """What a task of a cluster makes of its `groups`, which are `given` in their order, and of the results of other
    tasks that are given after them."""
    needed = TaskNode(call, groups=groups).needed
    members, results = given[: len(needed)], given[len(needed) :]
    refs = [(at, None) for at in range(len(results))] if picks is None else picks
    task = TaskNode(call, groups=groups, inputs=tuple(Ref(*ref) for ref in refs), updates=updates)
    step = remote.Step(task, remote.Package(serialised(vars(work), Work), work.token), len(members))
    return step(*(Bundle({index: group}) for index, group in zip(needed, members, strict=True)), *results)


def same(left: Gram, right: Gram) -> bool:
    """Equal to the last bit."""
    pairs = zip(left[:2], right[:2], strict=True)
    return left.rows == right.rows and all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def label(block, _parameters) -> str:
    return f"{block.index}"


def nest(left: str, right: str) -> str:
    return f"({left} {right})"


def kill_once(block, at):
    """Kill the worker at one block, the first time it comes there."""
    index, flag, weights = at
    if block.index == index and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return gram(block, weights)


def kill_always(block, index):
    if block.index == index:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(block.rows)


def refuse_at(block, index):
    if block.index == index:
        raise DataError(f"row {block.start}, column 0 is NaN")
    return float(block.rows)


def rows_and_targets(block, _parameters):
    marks = block.start * block.targets[0], block.start * block.weights[0]
    return float(block.rows), block.targets.sum(axis=0), *marks


def until(met, seconds=60):
    """Wait for what comes beside a result, such as the last count of progress of a cluster."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)
