"""Sparse matrices in stores, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt
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
