"""Tell Dask how large our values are, for its memory accounting.

`dask.sizeof` answers 56 bytes for every `scipy.sparse.csr_array` (it knows only the older matrix classes).
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
from dask import sizeof as dask_sizes

from dlatent.engine.cache import measured
from dlatent.engine.exchange import Packed
from dlatent.engine.part import Bundle


def sizeof_compressed(matrix: Any) -> int:
    """Bytes of the three arrays of a compressed sparse array."""
    return measured(matrix)


def sizeof_coordinates(matrix: Any) -> int:
    """Bytes of the values and coordinates of a sparse array in coordinate form."""
    return int(matrix.data.nbytes) + sum(int(axis.nbytes) for axis in matrix.coords)


def sizeof_bundle(bundle: Bundle) -> int:
    """Bytes of the blocks that parts themselves hold."""
    return sum(1000 + part.nbytes for part in bundle.parts.values())


def sizeof_packed(packed: Packed) -> int:
    """Bytes of the rows that were sent here."""
    return 1000 + packed.nbytes


_register: Any = dask_sizes.sizeof.register
for _kind, _size in (
    (sp.csr_array, sizeof_compressed),
    (sp.csc_array, sizeof_compressed),
    (sp.coo_array, sizeof_coordinates),
    (Bundle, sizeof_bundle),
    (Packed, sizeof_packed),
):
    _register(_kind, _size)
