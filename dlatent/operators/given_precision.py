"""A precision Δ between samples that is given as a matrix (N, N): its rows take the place of those of A.

Δ is symmetric and positive semi-definite.  Elimination with diagonal pivots tells whether it is definite: all pivots of
a definite matrix are positive, and their product is |Δ|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from dlatent.arrays import Array, Rows
from dlatent.errors import DataError
from dlatent.operators.graph_precision import EXACT_COMPONENT, NULL, component_eigenvalues, inverse_entries

WAY_OUT = "add a little to its diagonal, such as Δ + 1e-6 I"


@dataclass(frozen=True)
class GivenPrecision:
    """Δ, whose rows are what rows meet: one hop gives ΔR₀."""

    @property
    def gamma(self) -> float:
        """0: all of Δ is in its rows."""
        return 0.0

    @property
    def hops(self) -> int:
        """1."""
        return 1

    @property
    def squared(self) -> bool:
        """False: no F is known."""
        return False

    @property
    def normalised(self) -> bool:
        """False."""
        return False

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        """Zero: what Δ has of a row itself is on its diagonal."""
        return sp.csr_array(last.shape) if isinstance(last, sp.csr_array) else np.zeros_like(last)

    def factor(self, hops: int) -> float:
        """1."""
        return 1.0

    def spectrum(self, values: Array) -> Array:
        """The eigenvalues themselves."""
        return values


def _factors(matrix: sp.csr_array) -> Any:
    """LU of Δ with pivots on its diagonal, or None where Δ is not definite."""
    try:
        found = splu(
            sp.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # a pivot of zero
        return None
    definite = found.U.diagonal().min() > NULL * matrix.diagonal().max()
    return found if definite and np.array_equal(found.perm_r, found.perm_c) else None


def _eigenvalues(matrix: sp.csr_array) -> Array:
    """Eigenvalues of Δ that are not zero.

    Errors: DataError where one is negative.
    """
    values = component_eigenvalues(matrix, 0.0)
    least, most = float(values.min()), float(np.abs(values).max())
    if least < -NULL * most:
        raise DataError(
            f"the precision is not positive semi-definite: its smallest eigenvalue is {least:.3g}, its largest "
            f"{values.max():.3g}"
        )
    return np.asarray(values[values > NULL * most])


def rank(matrix: sp.csr_array) -> int:
    """Rank of Δ, for up to EXACT_COMPONENT samples: N where it is definite, else the number of non-zero eigenvalues.

    Errors: DataError where Δ is not positive semi-definite.
    """
    return int(matrix.shape[0]) if _factors(matrix) is not None else len(_eigenvalues(matrix))


def log_determinant(matrix: sp.csr_array) -> float:
    """log|Δ|, of a singular Δ over the non-zero eigenvalues.

    Errors: DataError where Δ is not positive semi-definite, or too large for its eigenvalues and singular.
    """
    factors = _factors(matrix)
    if factors is not None:
        return float(np.log(factors.U.diagonal()).sum())
    if matrix.shape[0] > EXACT_COMPONENT:
        raise DataError(f"the precision is not positive definite, so that log|Δ| is not finite; {WAY_OUT}")
    return float(np.log(_eigenvalues(matrix)).sum())


def inverse_diagonal(matrix: sp.csr_array, rows: npt.NDArray[Any]) -> Array:
    """(Δ⁻¹)_ii for the given samples (n,).

    Errors: DataError where Δ is not definite.
    """
    factors = _factors(matrix)
    if factors is None:
        raise DataError(f"the variance of samples needs a positive definite precision, and this one is not; {WAY_OUT}")
    return np.asarray(inverse_entries(factors, rows, np.float64))
