"""Readings that the tests of ingest share."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import zarr

from dlatent import open_data
from dlatent.errors import StoreError


def matrix(store):
    """`X` of a store, dense, in float64, read without dlatent."""
    stored = zarr.open_group(str(store), mode="r")["X"]
    if isinstance(stored, zarr.Array):
        return np.asarray(stored[:], dtype=np.float64)
    parts = [stored[name][:] for name in ("data", "indices", "indptr")]
    return sp.csr_array(tuple(parts), shape=stored.attrs["shape"]).toarray().astype(np.float64)


def names(store, frame):
    """The index of `obs` or `var`."""
    return [str(name) for name in zarr.open_group(str(store), mode="r")[frame]["_index"][:]]


def nothing_opens(folder):
    """Whether no directory in a folder opens as a store."""
    for path in Path(folder).iterdir():
        try:
            open_data(path)
        except StoreError:
            continue
        return False
    return True


def counts(rows=40, columns=23, density=0.3, seed=0):
    """Counts without empty rows."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 9, (rows, columns)) * (rng.random((rows, columns)) < density)
    dense[np.arange(rows), rng.integers(0, columns, rows)] += 1
    return sp.csr_array(dense.astype(np.float64))
