"""The door for data: one function that turns every accepted input into a `DataSource`.

Law: opening reads metadata, coordinates and row pointers only; the matrix itself is read by the blocks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr
from fsspec import available_protocols
from fsspec.registry import registry
from zarr.storage import FsspecStore, LocalStore

from dlatent.arrays import AxisLabels, DataSource
from dlatent.containers import as_given
from dlatent.errors import DataError, StoreError, cause
from dlatent.stores.annotated import annotated_matrix, is_annotated, is_h5ad, read_lazily
from dlatent.stores.atomic import MARKER, RESULT, STORE_VERSION, check_marker
from dlatent.stores.beside import PARTIAL, put_back
from dlatent.stores.chunked import ZarrArray
from dlatent.stores.csr import open_csr
from dlatent.stores.dense import open_zarr_array
from dlatent.stores.guard import guarded
from dlatent.stores.labels import ancestors, array_labels, csr_labels
from dlatent.stores.lazy import is_dask_array, open_dask
from dlatent.stores.location import ABSENT, NETCDF, along, filesystem_at, local_path, zarr_location
from dlatent.stores.memory import open_numpy, open_scipy
from dlatent.stores.places import read_places
from dlatent.stores.strict import MissingChunks, StrictStore, check_missing_chunks, place_of, strict

Node: TypeAlias = "ZarrArray | zarr.Group"
"""What is at a place in a Zarr store."""
ACCEPTED = (
    "a numpy array or what numpy makes one of, a scipy.sparse matrix, a dask.array with numpy or scipy.sparse chunks, "
    "a zarr.Array, a Zarr group with a csr_matrix, an AnnData, the path of an h5ad file, or the path or URL of a Zarr "
    "store"
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
    source = _open(data, block_bytes, dims, missing_chunks)
    return replace(source, places=(*read_places(data), *source.places))


def _open(
    data: Any, block_bytes: int | None, dims: tuple[str, str] | None, missing_chunks: MissingChunks
) -> DataSource:
    if is_h5ad(data):
        data = read_lazily(data)
    if is_annotated(data):
        matrix, labels = annotated_matrix(data)
        return replace(open_data(matrix, block_bytes=block_bytes), labels=labels)
    if isinstance(data, (str, os.PathLike)):
        data = open_node(data, missing_chunks)
    elif isinstance(data, zarr.Array | zarr.Group) and not isinstance(data.store, StrictStore):
        check_missing_chunks(missing_chunks)
        data = strict(data, missing_chunks)
    if isinstance(data, (zarr.Array, zarr.Group)):
        with guarded(place_of(data), StoreError):
            check_complete(data)
            if isinstance(data, zarr.Group):
                return _open_group(data, block_bytes, dims)
            return open_zarr_array(data, block_bytes, array_labels(data, dims))
    labels = AxisLabels() if dims is None else AxisLabels(dims)
    if isinstance(data, np.ndarray):
        return open_numpy(data, block_bytes, labels)
    if sp.issparse(data):
        return open_scipy(data, block_bytes, labels)
    if is_dask_array(data):
        return open_dask(data, labels)
    if isinstance(data, (list, tuple)) or hasattr(data, "__array__"):
        return open_numpy(_as_array(data), block_bytes, labels)
    raise DataError(f"cannot read data of type {type(data).__module__}.{type(data).__qualname__}; give {ACCEPTED}")


def _as_array(data: Any) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = as_given(data)
        return found
    except ValueError as error:
        raise DataError(
            f"numpy makes no matrix of the {type(data).__name__}: {error}; give rows of one length"
        ) from error
    except TypeError as error:
        raise DataError(f"numpy makes no matrix of the {type(data).__name__} ({error}); give {ACCEPTED}") from error


def open_node(
    location: str | os.PathLike[str], missing_chunks: MissingChunks = "raise", *, unfinished: bool = False
) -> Node:
    """The Zarr array or group at a path or URL, read-only, without consolidated metadata (which goes stale silently).

    What is read of it later is read strictly: a chunk that is not there is an error, unless `missing_chunks` is "fill".
    `unfinished` is for the writer of a store, who may read what is not finished.

    Errors: StoreError where nothing is there, the place is no Zarr store, or its metadata are damaged.
    """
    check_missing_chunks(missing_chunks)
    place = zarr_location(location)
    if "://" in place and place.partition("://")[0].split("::")[0] not in {*available_protocols(), *registry}:
        raise StoreError(f"cannot open {place}: fsspec knows no such kind of URL; check the part before ://")
    if not unfinished and any(part.startswith(".") and PARTIAL in part for part in place.split("/")):
        raise StoreError(f"{place} is an unfinished store that a writer left behind; remove it and write it again")
    if (path := local_path(place)) is not None:
        put_back(path)
    try:
        remote = local_path(place) is None
        store = (
            FsspecStore.from_url(place, read_only=True, allowed_exceptions=(*ABSENT, IsADirectoryError))
            if remote
            else LocalStore(place, read_only=True)
        )
        # Strict from the first document on, as reads of it are tried again where a server is busy.
        return strict(zarr.open(StrictStore(store), mode="r", use_consolidated=False), missing_chunks)
    except StoreError:
        raise
    except FileNotFoundError as error:
        raise StoreError(_what_is_there(location, place)) from cause(error)
    except ImportError as error:
        raise StoreError(f"cannot open {place}: {error}; install the fsspec package for this kind of URL") from cause(
            error
        )
    except OSError as error:
        raise StoreError(f"cannot reach {place}: {error}; check the address and your right to read it") from cause(
            error
        )
    except Exception as error:
        raise StoreError(
            f"{place}: the metadata of this Zarr store cannot be read ({error}); they are damaged or of an unknown "
            "format, write the store again"
        ) from cause(error)


def check_complete(node: ZarrArray | zarr.Group) -> None:
    """Check the marker of the store that a node belongs to, which may be on the node or on a group above it."""
    for holder in (node, *ancestors(node)):
        if MARKER in holder.attrs:
            _check_data_marker(holder.attrs[MARKER], place_of(holder))
            return


def _check_data_marker(marker: Any, place: str) -> None:
    if isinstance(marker, Mapping) and marker.get("kind") == RESULT:
        raise StoreError(f"{place} is a saved result and no data; read it with dlatent.load({place!r})")
    check_marker(marker, place, supported=STORE_VERSION)


def _open_group(group: zarr.Group, block_bytes: int | None, dims: tuple[str, str] | None) -> DataSource:
    encoding = group.attrs.get("encoding-type")
    if encoding == "csr_matrix":
        source = open_csr(group, block_bytes)
        return replace(source, labels=csr_labels(group, source.shape, dims))
    if encoding == "csc_matrix":
        raise StoreError(
            f"{place_of(group)} is a sparse matrix by columns (csc_matrix), which cannot be read by rows; write it as "
            "csr_matrix, for example with adata.X = adata.X.tocsr()"
        )
    if encoding == "anndata":
        return _open_anndata(group, block_bytes, dims)
    return _open_only_matrix(group, block_bytes, dims)


def _open_anndata(root: zarr.Group, block_bytes: int | None, dims: tuple[str, str] | None) -> DataSource:
    """The matrix `X` of an AnnData store; an AnnData without X stores a scalar or nothing there."""
    member = root.get("X")
    if isinstance(member, zarr.Group) or (isinstance(member, zarr.Array) and member.ndim == 2):
        return open_data(member, block_bytes=block_bytes, dims=dims)
    raise StoreError(f"the AnnData store {place_of(root)} has no matrix X; {_candidates(root, deep=True)}")


def _open_only_matrix(group: zarr.Group, block_bytes: int | None, dims: tuple[str, str] | None) -> DataSource:
    """The one matrix of a group, as xarray writes a dataset with one variable."""
    names = _matrices(group)
    if len(names) == 1:
        return open_data(group[names[0]], block_bytes=block_bytes, dims=dims)
    count = "no matrix" if not names else f"{len(names)} matrices"
    raise StoreError(f"{place_of(group)} is a Zarr group with {count}; {_candidates(group, deep=not names)}")


def _matrices(group: zarr.Group) -> list[str]:
    """Names of the members that are two-dimensional arrays of numbers or sparse matrices."""
    return sorted(name for name, member in group.members() if _is_matrix(member))


def _is_matrix(member: ZarrArray | zarr.Group) -> bool:
    if isinstance(member, zarr.Array):
        return member.ndim == 2 and member.dtype.kind in "biuf"
    return member.attrs.get("encoding-type") == "csr_matrix"


def _candidates(group: zarr.Group, *, deep: bool) -> str:
    """The way out: which matrices there are to open instead, in the group and (deep) in its members."""
    names = _matrices(group)
    if deep:
        names += [f"{outer}/{name}" for outer, member in sorted(group.groups()) for name in _matrices(member)]
    if not names:
        members = f"its members are {sorted(name for name, _ in group.members())}"
        grids = any(member.ndim > 2 for _, member in group.arrays())
        return f"{members}; {along(place_of(group))}" if grids else members
    return "open one of " + ", ".join(f"{place_of(group)}/{name}" for name in names)


def _what_is_there(location: str | os.PathLike[str], place: str) -> str:
    """Why a path does not open, and the way out."""
    path = local_path(location)
    if path.is_file() if path is not None else _is_remote_file(place):
        if place.endswith(NETCDF):
            return f"{place} is a netCDF file; {along(place)}"
        return f"{place} is a file and no Zarr store; bring it into one with: dlatent ingest {path or place} OUT.zarr"
    if path is None or path.is_dir():
        return f"{place} is no Zarr store: it has no zarr.json, .zgroup or .zarray; give the path of a store"
    if path.exists():
        return f"{place} is a pipe, a socket or a device and no Zarr store; give the path of one"
    above = next((str(parent) for parent in path.absolute().parents if parent.exists()), "")
    return f"{place} does not exist ({above} is there); check the path"


def _is_remote_file(place: str) -> bool:
    filesystem, inside = filesystem_at(place)
    with suppress(Exception):  # where it is said why a place does not open
        return bool(filesystem.isfile(inside))
    return False
