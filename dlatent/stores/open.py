"""The front door for data: one function that turns every accepted input into a `DataSource`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import AxisLabels, DataSource
from dlatent.containers import as_numpy, plain_numbers
from dlatent.errors import DataError, cause
from dlatent.stores.lazy import is_dask_array, is_zarr, open_dask
from dlatent.stores.location import is_place
from dlatent.stores.places import is_annotated, read_places
from dlatent.stores.rows import open_numpy, open_scipy

if TYPE_CHECKING:
    from dlatent.stores.checked import MissingChunks

ACCEPTED = (
    "a numpy array or what numpy makes one of, a scipy.sparse matrix, a dask.array with numpy or scipy.sparse chunks, "
    "a zarr.Array, a Zarr group with a csr_matrix, an AnnData, the path of an h5ad file, or the path or URL of a Zarr "
    "store, or a store that Zarr has opened"
)


def open_data(
    data: object,
    *,
    block_bytes: int | None = None,
    dims: tuple[str, str] | None = None,
    missing_chunks: MissingChunks = "raise",
) -> DataSource:
    """Open a matrix of samples × features as row blocks that any process can load.

    Parameters
    ----------
    data : array, sparse matrix, Zarr array or group, AnnData, path or URL
        numpy array, a list of rows or another object of which numpy makes an array; scipy.sparse matrix of any format;
        dask.array; zarr.Array; Zarr group with a csr_matrix; AnnData (its X); path of an h5ad file; path or fsspec URL
        of a Zarr store (v2 or v3; of an AnnData store `X` is opened, other matrices by their path inside the store).
    block_bytes : int, optional
        Wanted size of a loaded block in bytes; by default a sixteenth of the data, at least 1 MiB and less than 32 MiB.
    dims : tuple of two str, optional
        Names of the two dimensions; by default those of the store, or "sample" and "feature".
    missing_chunks : {"raise", "fill"}, default "raise"
        Of a Zarr store: "raise" where a chunk is not there, "fill" where its writer leaves out chunks that hold nothing
        but the fill value.

    Returns
    -------
    DataSource
        The source, or the one that was given.  float32 and float64 values are kept, other numbers become float64 when a
        block is loaded.

    Raises
    ------
    DataError
        Where the values cannot be used.
    StoreError
        Where the path is no complete store that this version can read.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import open_data
    >>> open_data(np.ones((100, 3))).shape
    (100, 3)
    """
    if block_bytes is not None and block_bytes < 1:
        raise DataError(f"block_bytes is {block_bytes}; expected at least 1")
    if isinstance(data, DataSource):
        return data
    values = _table(data)
    labels = AxisLabels() if dims is None else AxisLabels(dims)
    if isinstance(values, np.ndarray):
        source = open_numpy(values, block_bytes, labels)
    elif is_annotated(values):
        source = open_annotated(values, block_bytes=block_bytes)
    elif is_place(values) or is_zarr(values):
        from dlatent.stores.nodes import open_stored  # Zarr, which arrays do not need

        source = open_stored(values, block_bytes, dims, missing_chunks)
    elif sp.issparse(values):
        source = open_scipy(values, block_bytes, labels)
    elif is_dask_array(values):
        source = open_dask(values, labels)
    elif isinstance(values, (list, tuple)) or hasattr(values, "__array__"):
        source = open_numpy(_as_array(values), block_bytes, labels)
    else:
        raise DataError(f"cannot read data of type {type(data).__module__}.{type(data).__qualname__}; give {ACCEPTED}")
    return replace(source, places=(*read_places(data), *source.places))


def _table(data: object) -> Any:
    """The data, of the path of an h5ad file the AnnData."""
    is_file = isinstance(data, (str, os.PathLike)) and os.fspath(data).endswith(".h5ad") and os.path.isfile(data)
    return read_lazily(cast(Any, data)) if is_file else data


def open_columns(data: object, names: npt.NDArray[Any], layer: str | None = None) -> Any:
    """The columns of an AnnData, of an h5ad file, or of its Zarr store where a layer is asked for, with these names,
    in their order, of X or the layer; all columns where some lack or names repeat; all else as it is.

    Errors: DataError where there is no such layer.
    """
    table = _table(data)
    if layer is not None and _stores_annotated(table):
        table = read_lazily(table)
    if not is_annotated(table):
        return data
    own = [str(name) for name in table.var_names]
    places = {name: place for place, name in enumerate(own)}
    if len(places) < len(own) or any(name not in places for name in names):
        return open_annotated(table, layer)
    at = None if own == list(names) else np.array([places[name] for name in names])
    return open_annotated(table, layer, at)


def _stores_annotated(data: Any) -> bool:
    """Whether a path, URL or group is that of a Zarr store of an AnnData."""
    if not (is_place(data) or is_zarr(data)):
        return False
    from dlatent.stores.nodes import open_node  # Zarr, which arrays do not need

    node = open_node(data) if is_place(data) else data
    return bool(node.attrs.get("encoding-type") == "anndata")


def _as_array(data: Any) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = as_numpy(data)
        return array
    except (TypeError, ValueError) as error:
        raise DataError(
            f"numpy makes no matrix of the {type(data).__name__} ({error}); give rows of one length, or {ACCEPTED}"
        ) from error


def read_lazily(path: str | os.PathLike[str]) -> Any:
    """An AnnData whose matrices are Dask arrays of pieces of the file. Errors: DataError."""
    try:
        from anndata.experimental import read_lazy

        return read_lazy(path)
    except ImportError as error:
        raise DataError(f"cannot open {path}: {error}; pip install anndata") from cause(error)
    except Exception as error:
        raise DataError(f"{path} is no h5ad file or Zarr store that anndata reads: {error}") from cause(error)


def open_annotated(
    data: Any,
    layer: str | None = None,
    columns: npt.NDArray[np.intp] | None = None,
    *,
    block_bytes: int | None = None,
) -> DataSource:
    """The matrix `X` or a layer, or some columns of it by position, with the names of rows and columns and the matrices
    of `obsp`; of a file it is read piece by piece.

    Errors: DataError where there is no such matrix.
    """
    rows, names = (np.array([str(name) for name in names]) for names in (data.obs_names, data.var_names))
    graphs = getattr(data, "obsp", None)
    if getattr(data, "isbacked", False) and not data.is_view:
        data = read_lazily(data.filename)
    if layer is not None and layer not in data.layers:
        raise DataError(f"the AnnData has no layer {layer!r}; it has {sorted(data.layers) or 'none'}")
    complete = getattr(data, "_adata_ref", None)  # of a view, whose matrix SciPy cuts when it is asked for
    for annotated in (complete, data) if complete is not None else (data,):
        matrix = annotated.X if layer is None else annotated.layers[layer]
        matrix = _plain(matrix) if sp.issparse(matrix) else matrix
    if matrix is None:
        raise DataError(f"the AnnData has no X; name one of its layers {sorted(data.layers)}, as adata.layers[name]")
    if columns is not None:
        matrix, names = _plain(matrix)[:, columns], names[columns]
    source = open_data(matrix, block_bytes=block_bytes)
    return replace(source, labels=AxisLabels(samples=rows, features=names, layer=layer), graphs=graphs)


def _plain(matrix: Any) -> Any:
    """The matrix, or its chunks, fit to be cut."""
    place = "the matrix of the AnnData"
    if hasattr(matrix, "map_blocks"):
        return matrix.map_blocks(plain_numbers, place, dtype=matrix.dtype, meta=matrix._meta)
    return plain_numbers(matrix, place) if sp.issparse(matrix) else matrix
