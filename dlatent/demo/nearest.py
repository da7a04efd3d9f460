"""How well labels spread to their neighbours: the 1-nearest-neighbour error, exact, and block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, DataSource, Features

ROWS = 1024

Blocks = Callable[[], Iterable[tuple[int, Features]]]
"""Gives the rows of a matrix from the first on, as (number of the first row, rows); may be called again."""


def of_array(rows: Array) -> Blocks:
    """Blocks of a matrix in memory."""
    return lambda: ((start, rows[start : start + ROWS]) for start in range(0, len(rows), ROWS))


def directions(rows: Array) -> Array:
    """Rows scaled to length 1, so that distances between them order as the angles do; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def of_source(source: DataSource) -> Blocks:
    """Blocks of stored data, read when they are needed."""

    def read() -> Iterator[tuple[int, Features]]:
        for block in source.blocks:
            yield block.start, block.load()

    return read


def asked(classes: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which rows are asked about: those of a class (not -1) that may not be seen."""
    found = classes >= 0
    found[known] = False
    return found


def mistakes(blocks: Blocks, classes: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """For each row that is asked about, whether its nearest neighbour among the rows `known` is of another class.

    Parameters: `classes` (N,), -1 for rows that are not asked about; `known`, the rows whose class may be seen, which
    are not asked about either.  Distances are Euclidean; of neighbours at one distance the first counts.
    Returns: one truth value for each row asked about, in order; their mean is the 1-NN error.
    """
    neighbours = _rows(blocks, known)
    rows_asked = asked(classes, known)
    given = np.empty(len(classes), dtype=np.int64)
    for start, rows in blocks():
        given[start : start + rows.shape[0]] = classes[known][_nearest(rows, neighbours)]
    return np.asarray(given[rows_asked] != classes[rows_asked])


def _rows(blocks: Blocks, wanted: npt.NDArray[np.int64]) -> Array:
    """Some rows, dense, in the order asked for."""
    found: list[Array | None] = [None] * len(wanted)
    for start, rows in blocks():
        for place in np.flatnonzero((wanted >= start) & (wanted < start + rows.shape[0])).tolist():
            row = rows[[int(wanted[place]) - start]]
            found[place] = np.asarray(row.toarray() if hasattr(row, "toarray") else row, dtype=np.float64)[0]
    return np.stack([row for row in found if row is not None])


def _nearest(rows: Features, neighbours: Array) -> npt.NDArray[np.intp]:
    # |row|² is the same for all neighbours of a row, so that the nearest is found without it.
    apart: Array = (neighbours**2).sum(axis=1) - 2 * (rows @ neighbours.T)
    return np.asarray(np.argmin(apart, axis=1))
