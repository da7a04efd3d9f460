"""What no graph between samples may be, refused with its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Origin
from dlatent.errors import DataError
from dlatent.stores.labels import BEFORE


def check_adjacency(shape: tuple[int, ...], dtype: np.dtype[Any], samples: int | None, place: str) -> None:
    """Refuse a matrix that has not one row and one column for each of the samples, or holds no real numbers."""
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        cut = len(shape) == 2 and shape[0] == samples
        way_out = "; where a search of scikit-learn cut the rows alone, give it open_graph(A), which is cut whole"
        raise DataError(
            f"{place} has shape {tuple(shape)}; edges are a matrix of samples × samples, N × N{way_out if cut else ''}"
        )
    if dtype.kind not in "biuf":
        raise DataError(f"{place} has dtype {dtype}; weights of edges are real numbers, convert it with astype(float)")
    check_samples(shape[0], samples, place)


class WrongSizeError(DataError):
    """A graph has another number of samples than the data; `found` is its number."""

    def __init__(self, text: str, found: int) -> None:
        super().__init__(text)
        self.found = found


@contextlib.contextmanager
def explained(origin: Origin | None) -> Iterator[None]:
    """A context in which a graph of the size that the data had before rows were dropped is refused with that reason."""
    try:
        yield
    except WrongSizeError as error:
        if origin is None or error.found != origin.rows:
            raise
        raise DataError(
            f"{error}; the data had {origin.rows:,} rows when they were ingested, of which rows of zeros were dropped: "
            f"the position of each of the others is in uns/{BEFORE} of the store, so take A[kept][:, kept] for these, "
            "or ingest with zero_rows='keep'"
        ) from error


def check_samples(found: int, samples: int | None, place: str) -> None:
    """Refuse a graph of another number of samples than the data have."""
    if samples is not None and found != samples:
        raise WrongSizeError(
            f"{place} is a graph of {found:,} samples, but the data have {samples:,}; take the rows and columns of "
            "those in the data, in their order (A[rows][:, rows]), or give a list of edges with labels of samples",
            found,
        )


def check_weights(weights: npt.NDArray[Any], place: str, name: Callable[[int], str]) -> None:
    """Refuse weights that are negative or not finite; `name` says which edge entry `i` is."""
    wrong = ~((weights >= 0) & (weights < np.inf))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"{place}: {name(at)} has weight {weights[at].item()!r}; weights are finite and not negative "
            f"({int(wrong.sum()):,} are not)"
        )
