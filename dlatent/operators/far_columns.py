"""Columns of sparse rows that lie far from zero: they are full in practice, and taken about a shift as dense ones are.

Sums about zero lose as many digits of such a column as the square of its mean is larger than its variance.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Features

FAR = 100.0
"""The square of a mean is so many variances where a column is far from zero: two digits of its variance are lost there,
and fewer than one row in a hundred can lack the entry."""

X = TypeVar("X", sp.csr_array, sp.csc_array)


def far_part(mean: Array, variance: Array) -> Array:
    """The mean (D,) of the columns that are far from zero, 0 for the others."""
    with np.errstate(over="ignore"):
        return np.where(mean**2 > FAR * variance, mean, 0.0)


def far_columns(x: Features) -> Array:
    """The mean (D,) of the columns of rows that are far from zero, 0 for the others."""
    wide = x.astype(np.float64, copy=False)
    squares = wide.multiply(wide) if isinstance(wide, sp.csr_array) else wide**2
    mean = np.asarray(wide.mean(axis=0)).ravel()
    return far_part(mean, np.maximum(np.asarray(squares.mean(axis=0)).ravel() - mean**2, 0.0))


def less(x: X, shift: Array) -> X:
    """Sparse rows less a shift (D,), in float64; where it is not zero every row stores the entry then."""
    own = shift[x.indices] if x.format == "csr" else np.repeat(shift, np.diff(x.indptr))
    columns = np.flatnonzero(shift)
    full = np.count_nonzero(own) == x.shape[0] * len(columns)
    made = type(x)((x.data.astype(np.float64) - (own if full else 0.0), x.indices, x.indptr), shape=x.shape)
    if full:
        made.has_canonical_format = True
        return made
    pointers = np.arange(x.shape[0] + 1) * len(columns)
    whole = np.tile(shift[columns], x.shape[0]), np.tile(columns, x.shape[0]), pointers
    return type(x)(made - sp.csr_array(whole, shape=x.shape).asformat(x.format))
