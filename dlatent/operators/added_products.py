"""Products of a sparse matrix that are added to an array in place.

SciPy's public products make an array of their own, and to add it costs more than the product where rows have few
entries.  The kernels below them add in place, but are private: where a version has none, the public product takes their
place, with other last bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array


def _kernel(name: str) -> Any:
    """A kernel of SciPy's, or None."""
    try:
        from scipy.sparse import _sparsetools
    except ImportError:
        return None
    return getattr(_sparsetools, name, None)


def add_coordinates(total: Array, matrix: sp.coo_array, rows: Array) -> None:
    """`total` (n, b) += matrix (n, m) @ rows (m, b), entry by entry."""
    kernel, places = _kernel("coo_matmat_dense"), (matrix.row, matrix.col)
    if kernel is None:
        total += matrix @ rows
        return
    vectors = np.ascontiguousarray(rows).ravel()
    kernel(matrix.nnz, total.shape[1], *places, matrix.data, vectors, total.ravel())


def add_transposed(total: Array, matrix: sp.csc_array, rows: Array) -> None:
    """`total` (m, b) or (m,) += matrixᵀ (m, n) @ rows (n, b) or (n,), entry by entry."""
    single = rows.ndim == 1
    kernel, shape = _kernel("csr_matvec" if single else "csr_matvecs"), (matrix.shape[1], matrix.shape[0])
    if kernel is None:
        total += sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape) @ rows
        return
    width = () if single else (rows.shape[1],)
    own = np.ascontiguousarray(rows)
    kernel(*shape, *width, matrix.indptr, matrix.indices, matrix.data, own.ravel(), total.ravel())
