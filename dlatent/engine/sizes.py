"""Tell Dask how large our values are, for its memory accounting.

`dask.sizeof` answers 56 bytes for every `scipy.sparse.csr_array` (it knows only the older matrix classes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.sparse as sp
from dask import sizeof as dask_sizes

from dlatent.engine.cache import measured
from dlatent.engine.exchange import Packed
from dlatent.engine.part import Bundle

_BYTES: dict[Any, Callable[[Any], int]] = {
    sp.csr_array: measured,
    sp.csc_array: measured,
    sp.coo_array: lambda matrix: sum(array.nbytes for array in (matrix.data, *matrix.coords)),
    Bundle: lambda bundle: sum(1000 + part.nbytes for part in bundle.parts.values()),  # blocks that parts hold
    Packed: lambda packed: 1000 + packed.nbytes,  # rows that were sent here
}
_register: Any = dask_sizes.sizeof.register
for _kind, _size in _BYTES.items():
    _register(_kind, _size)
