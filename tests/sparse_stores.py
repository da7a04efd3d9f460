"""Sparse matrices in stores, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.stores.sparse import CsrWriter


def write_csr(
    group: zarr.Group, blocks: Iterable[Any], *, columns: int | None = None, dtype: npt.DTypeLike | None = None
) -> tuple[int, int]:
    """Write row blocks one after the other into an empty group as one sparse matrix, and return its shape."""
    rows = iter(blocks)
    first = next(rows)
    writer = CsrWriter(group, columns=columns, dtype=first.dtype if dtype is None else dtype)
    writer.append(first)
    for block in rows:
        writer.append(block)
    return writer.close()


def observed_entries(x: Any) -> sp.csr_array:
    """A matrix whose stored entries, zeros among them, are those that are not NaN."""
    places = np.nonzero(~np.isnan(x))
    return sp.csr_array((x[places], places), shape=x.shape)
