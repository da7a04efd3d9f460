"""From the names of samples to their positions among the rows of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Origin
from dlatent.containers import refuse_mask
from dlatent.errors import DataError
from dlatent.stores.labels import BEFORE
from dlatent.stores.numbers import EXACT

Name = Callable[[int], str]
"""Says where element i of an array stands, for messages."""


class Lookup:
    """Finds the position of a sample by its number from 0, or by its label where `ids` (N,) are given.

    `samples` is N, or None where neither labels nor a number say it; every number from 0 is then accepted.  With an
    `origin` numbers are the positions that the samples had before; those that were dropped on the way are unknown.
    Errors: DataError for labels that are missing or occur twice, or that are not as many as `samples`.
    """

    def __init__(
        self, samples: int | None = None, ids: npt.ArrayLike | None = None, origin: Origin | None = None
    ) -> None:
        self.samples = samples
        self.origin = origin
        self._labels: npt.NDArray[Any] | None = None
        self._ranks: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[Any]]] = {}
        if ids is None:
            return
        labels = _plain(refuse_mask(ids, "ids"), lambda at: f"ids[{at}]")
        if samples is not None and labels.shape != (samples,):
            raise DataError(f"ids have shape {labels.shape}, but the data have {samples:,} samples; give one for each")
        self.samples = len(labels)
        if _are_positions(labels):
            return
        self._labels = labels
        order, ranked = self._sorted(labels.dtype.kind)
        twice = np.flatnonzero(ranked[1:] == ranked[:-1])
        if len(twice):
            first, second = order[twice[0] : twice[0] + 2]
            raise DataError(
                f"ids[{first}] and ids[{second}] are both {ranked[twice[0]].item()!r}; edges need "
                "a label of its own for each sample, or positions"
            )

    def by_position(self, announced: int | None) -> Lookup:
        """A lookup of these samples by number; `announced` of them say that they are counted as they lie now."""
        here = self.origin is not None and announced == self.samples != self.before
        return Lookup(self.samples, origin=None if here else self.origin)

    def check_samples(self, size: int, place: str) -> None:
        """Refuse a graph of another number of samples than the data have, or had before rows of them were dropped."""
        if self.samples is None or size == self.samples:
            return
        why = ""
        if size == self.before:
            why = (
                f"; the data had {size:,} rows when they were ingested, of which rows of zeros were dropped: the "
                f"position of each of the others is in uns/{BEFORE} of the store, so take A[kept][:, kept] for these, "
                "or ingest with zero_rows='keep'"
            )
        raise DataError(
            f"{place} is a graph of {size:,} samples, but the data have {self.samples:,}; take the rows and columns of "
            "those in the data, in their order (A[rows][:, rows]), or give a list of edges with labels of "
            f"samples{why}"
        )

    @property
    def before(self) -> int | None:
        """How many samples there were before some were dropped on the way; None where none were."""
        return None if self.origin is None else self.origin.rows

    @property
    def textual(self) -> bool:
        """Whether the labels are text."""
        return self._labels is not None and self._labels.dtype.kind == "U"

    def knows(self, name: str) -> bool:
        """Whether a text is the label of a sample."""
        return self._labels is not None and name in self._labels.astype(str)

    def positions(self, names: npt.NDArray[Any], where: Name) -> npt.NDArray[np.int64]:
        """Positions (m,) of samples named by numbers or labels (m,).

        Errors: DataError naming the first name that belongs to no sample, and how many do.
        """
        plain = _plain(names, where)
        numbers = _numbers(plain, where) if self._labels is None and plain.dtype.kind == "U" else plain
        if self._labels is None and self.origin is None:
            last = np.inf if self.samples is None else self.samples
            positions = np.where((numbers >= 0) & (numbers < last), numbers, -1)
        else:
            compared = plain.astype(str) if self.textual else numbers
            order, ranked = self._sorted(compared.dtype.kind)
            at = np.minimum(np.searchsorted(ranked, compared), len(ranked) - 1)
            positions = np.where(ranked[at] == compared, order[at], -1)
        unknown = np.flatnonzero(positions < 0)
        if len(unknown):
            first = int(unknown[0])
            raise DataError(f"{where(first)} names {plain[first].item()!r}, {self._expected(len(unknown))}")
        return positions

    def _sorted(self, kind: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Positions of the samples in the order of their labels, or of where they lay before, and these in that order;
        as text for "U"."""
        if kind not in self._ranks:
            names = self._labels if self._labels is not None or self.origin is None else self.origin.load()
            assert names is not None
            names = names.astype(str) if kind == "U" else names
            order = np.argsort(names, kind="stable")
            self._ranks[kind] = order, names[order]
        return self._ranks[kind]

    def _expected(self, wrong: int) -> str:
        many = f"({wrong:,} such names)"
        if self._labels is not None:
            dropped = (self.before or len(self._labels)) - len(self._labels)
            why = f"; {dropped:,} rows of zeros were dropped when the data were ingested" if dropped else ""
            return f"which is the label of no sample {many}; the labels are like {self._labels[0].item()!r}{why}"
        if self.origin is not None:
            return (
                f"but the data have no such row {many}: of {self.origin.rows:,} rows that were ingested, "
                f"{self.origin.rows - (self.samples or 0):,} rows of zeros were dropped; leave out edges to them, or "
                "ingest with zero_rows='keep'"
            )
        if self.samples is None:
            return f"but positions count from 0 {many}"
        return f"but the positions of the {self.samples:,} samples are 0 to {self.samples - 1} {many}"


def _numbers(texts: npt.NDArray[Any], where: Name) -> npt.NDArray[np.int64]:
    at = next((at for at, text in enumerate(texts.tolist()) if not (text.isascii() and text.isdigit())), None)
    if at is not None:
        raise DataError(
            f"{where(at)} names {texts[at].item()!r}, which is no position; give ids=, the label of each row of "
            "the data in their order, or name the samples by their positions"
        )
    # What does not fit is the position of no sample either.
    return np.array([int(text) if len(text) < 19 else -1 for text in texts.tolist()], dtype=np.int64)


def _are_positions(labels: npt.NDArray[Any]) -> bool:
    """Whether labels say nothing but 0, 1, …, as those of data without labels do."""
    if not len(labels) or str(labels[-1]) != str(len(labels) - 1):
        return False
    numbers = np.arange(len(labels))
    return bool(np.all(labels == (numbers if labels.dtype.kind != "U" else numbers.astype(str))))


def _plain(names: npt.NDArray[Any], where: Name) -> npt.NDArray[Any]:
    """Names as int64 where all are whole numbers, else as text; none may be missing."""
    if names.dtype.kind == "O":
        missing = np.array([not isinstance(name, str) and str(name) in _MISSING for name in names], dtype=bool)
        integers = all(isinstance(name, int | np.integer) for name in names)
    else:
        missing = ~np.isfinite(names) if names.dtype.kind == "f" else np.zeros(len(names), dtype=bool)
        integers = names.dtype.kind in "biu" or (names.dtype.kind == "f" and bool(np.all(names == np.floor(names))))
    integers = integers and not missing.any()
    if integers and _fit(names):
        return names.astype(np.int64)
    if integers:
        return np.array([str(int(name)) if abs(name) <= EXACT else str(name) for name in names.tolist()])
    texts = names.astype(str)
    missing |= texts == ""
    if missing.any():
        raise DataError(f"{where(int(np.flatnonzero(missing)[0]))} names no sample ({int(missing.sum()):,} do not)")
    return texts


def _fit(names: npt.NDArray[Any]) -> bool:
    """Whether whole numbers keep their values as int64."""
    if not len(names) or names.dtype.kind == "b":
        return True
    limit = EXACT if names.dtype.kind == "f" else 2**63 - 1
    return -limit <= int(names.min()) and int(names.max()) <= limit


_MISSING = ("None", "nan", "<NA>", "NaT")
