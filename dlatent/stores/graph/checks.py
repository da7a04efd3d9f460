"""What no graph between samples may be, refused with its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Origin
from dlatent.errors import DataError
from dlatent.stores.labels import BEFORE


def check_adjacency(shape: tuple[int, ...], dtype: np.dtype[Any], samples: int | None, place: str) -> None:
    """Refuse a matrix that has not one row and one column for each of the samples, or holds no real numbers."""
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        cut = len(shape) == 2 and shape[0] == samples
        way_out = "; where a search of scikit-learn cut the rows alone, give it open_graph(A), which is cut whole"
        raise DataError(
            f"{place} has shape {tuple(shape)}; what is between samples is a matrix of samples × samples, N × N"
            f"{way_out if cut else ''}"
        )
    if dtype.kind not in "biuf":
        raise DataError(f"{place} has dtype {dtype}; its entries are real numbers, convert it with astype(float)")
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
            f"({int(wrong.sum()):,} are not); a precision matrix is given as precision=…"
        )


NO_MEAN = 1e-12
"""Where all entries of Δ together are below this part of its trace, they are rounding."""


class PrecisionCheck:
    """What no precision Δ between samples may be, refused block by block as far as its entries tell; its symmetry and
    its eigenvalues are checked elsewhere."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._total = self._trace = 0.0

    def rows(self, rows: sp.csr_array, start: int) -> None:
        """Refuse rows `[start, …)` of Δ.

        Errors: DataError for an entry that is not finite, or a row that has entries but no positive one of its own.
        """
        wrong = np.flatnonzero(~np.isfinite(rows.data))
        if len(wrong):
            at = int(wrong[0])
            row = start + int(np.searchsorted(rows.indptr, at, side="right")) - 1
            raise DataError(
                f"{self._place}: the entry of Δ at ({row}, {rows.indices[at]}) is {rows.data[at].item()!r}; all are "
                "finite in a precision"
            )
        own = rows.diagonal(start)
        wrong = np.flatnonzero((abs(rows).sum(axis=1) > 0) & (own <= 0))
        if len(wrong):
            at = int(wrong[0])
            raise DataError(
                f"{self._place}: the entry of Δ at ({start + at}, {start + at}), on its diagonal, is "
                f"{own[at].item()!r}, and its row is not zero ({len(wrong):,} such rows), so that Δ is not positive "
                "semi-definite; the adjacency matrix of a graph is given as graph=…"
            )
        self._total += float(rows.data.sum())
        self._trace += float(own.sum())

    def finish(self) -> None:
        """Refuse a Δ that tells no mean.

        Errors: DataError where 1ᵀΔ1 is zero, or negative.
        """
        if self._total < -NO_MEAN * self._trace:
            raise DataError(
                f"{self._place}: all entries of Δ together, 1ᵀΔ1, are {self._total:.3g}, so that it is not positive "
                "semi-definite"
            )
        if not self._total > NO_MEAN * self._trace:
            raise DataError(
                f"{self._place}: all entries of Δ together, 1ᵀΔ1, are {self._total:.3g}, as those of the Laplacian of "
                "a graph, so that it tells no mean; add a little to its diagonal, such as Δ + 1e-6 I"
            )
