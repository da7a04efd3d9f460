"""AnnData behind the door: its matrix in memory, or in pieces of its file, with the names of rows and columns."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import AxisLabels
from dlatent.containers import plain_numbers
from dlatent.errors import DataError, cause


def is_annotated(data: Any) -> bool:
    """Whether the value behaves as an AnnData: in memory, backed by a file, or lazy."""
    # Of its class: a view cuts its matrix where it is asked for it.
    return all(hasattr(type(data), name) for name in ("X", "layers", "obs_names", "var_names", "obsm"))


def is_h5ad(data: Any) -> bool:
    """Whether the value is the path of an h5ad file."""
    return isinstance(data, (str, os.PathLike)) and os.fspath(data).endswith(".h5ad") and os.path.isfile(data)


def read_lazily(path: str | os.PathLike[str]) -> Any:
    """An AnnData whose matrices are Dask arrays of pieces of the file. Errors: DataError."""
    try:
        from anndata.experimental import read_lazy

        return read_lazy(path)
    except ImportError as error:
        raise DataError(f"cannot open {path}: {error}; pip install anndata") from cause(error)
    except Exception as error:
        raise DataError(f"{path} is no h5ad file that anndata reads: {error}") from cause(error)


def annotated_matrix(
    data: Any, layer: str | None = None, mask: npt.NDArray[np.bool_] | None = None
) -> tuple[Any, AxisLabels]:
    """The matrix `X` or a layer, or the columns of it in a mask, with the names of rows and columns; of a file it is a
    Dask array.

    Errors: DataError where there is no such matrix.
    """
    rows, columns = _texts(data.obs_names), _texts(data.var_names)
    if getattr(data, "isbacked", False) and not data.is_view:
        data = read_lazily(data.filename)
    if layer is not None and layer not in data.layers:
        raise DataError(f"the AnnData has no layer {layer!r}; it has {sorted(data.layers) or 'none'}")
    whole = getattr(data, "_adata_ref", None)  # of a view, whose matrix SciPy cuts when it is asked for
    for given in (whole, data) if whole is not None else (data,):
        matrix = given.X if layer is None else given.layers[layer]
        matrix = _plain(matrix) if sp.issparse(matrix) else matrix
    if matrix is None:
        raise DataError(f"the AnnData has no X; name one of its layers {sorted(data.layers)}, as adata.layers[name]")
    if mask is not None:
        matrix, columns = _plain(matrix)[:, np.flatnonzero(mask)], columns[mask]
    return matrix, AxisLabels(samples=rows, features=columns)


def _plain(matrix: Any) -> Any:
    """The matrix, or its chunks, fit to be cut."""
    place = "the matrix of the AnnData"
    if hasattr(matrix, "map_blocks"):
        return matrix.map_blocks(plain_numbers, place, dtype=matrix.dtype, meta=matrix._meta)
    return plain_numbers(matrix, place) if sp.issparse(matrix) else matrix


def _texts(names: Any) -> npt.NDArray[Any]:
    return np.array([str(name) for name in names])
