"""Arrays and groups of Zarr at a path or URL, and the matrices in them as row blocks.

Law: opening reads metadata, coordinates and row pointers only; the matrix itself is read by the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias
from uuid import uuid4

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from dlatent.arrays import DataSource, Features
from dlatent.errors import DataError, StoreError, cause
from dlatent.stores.atomic import MARKER, RESULT, STORE_VERSION, check_marker
from dlatent.stores.checked import CheckedStore, MissingChunks, checked, place_of, unchanged
from dlatent.stores.chunked import ZarrArray, decoding_bytes, process_local, read_rows, readable, small_chunks
from dlatent.stores.documents import DOCUMENT, store_at
from dlatent.stores.labels import ancestors, labels_of, require_decoded
from dlatent.stores.location import (
    NETCDF,
    Place,
    along,
    filesystem_at,
    guarded,
    is_place,
    local_path,
    unreachable,
    zarr_location,
)
from dlatent.stores.partition import dense_bounds, loaded_dtype, wanted_bytes
from dlatent.stores.rows import ArrayRows, Rows, check_matrix
from dlatent.stores.sparse import open_csr
from dlatent.stores.temporary import put_back

Node: TypeAlias = "ZarrArray | zarr.Group"
"""An array or a group of a Zarr store."""

MOST_BYTES = 1 << 50
"""No matrix is larger; the list of its blocks alone would fill the memory."""


@dataclass(eq=False)
class ZarrRows(Rows):
    """Rows of a Zarr array that begins at row `first`; the handle is metadata and a path, so another process opens the
    files by itself."""

    array: ZarrArray
    first: int = 0

    def load(self) -> Features:
        """Read the rows; types other than float32 and float64 become float64."""
        rows = f"rows {self.start}:{self.stop}"
        values = read_rows(self.array, self.start - self.first, self.stop - self.first, rows)
        return values.astype(loaded_dtype(values.dtype), copy=False)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows of a store in this process's memory travel by value, as no other process could read them."""
        if process_local(self.array):
            return ArrayRows, (self.start, self.stop, self.nbytes, self.load())
        return ZarrRows, (self.start, self.stop, self.nbytes, self.array, self.first)


def open_stored(
    data: Any,
    block_bytes: int | None = None,
    dims: tuple[str, str] | None = None,
    missing_chunks: MissingChunks = "raise",
) -> DataSource:
    """The matrix at a path or URL, or in an array or a group that Zarr has opened. Errors: as `open_data`."""
    if is_place(data):
        data = open_node(data, missing_chunks)
    elif not isinstance(data.store, CheckedStore):
        data = checked(data, missing_chunks)
    with guarded(place_of(data), StoreError):
        check_complete(data)
        return (_open_group if isinstance(data, zarr.Group) else _open_array)(data, block_bytes, dims)


def open_node(location: Place, missing_chunks: MissingChunks = "raise") -> Node:
    """The Zarr array or group at a path or URL, read-only, without consolidated metadata (which goes stale silently).

    What is read of it later is read strictly: a chunk that is not there is an error, unless `missing_chunks` is "fill".

    Errors: StoreError where nothing is there, the place is no Zarr store, or its metadata are damaged.
    """
    place = zarr_location(location)
    try:
        if (path := local_path(place)) is not None:
            put_back(path)
            if not path.exists():  # of which a read would say that somebody else may come
                raise FileNotFoundError(place)
        else:
            filesystem_at(place)  # which says what is no such place
        # Checked from the first document on, as reads of it are tried again where a server is busy.
        reading = CheckedStore(store_at(place, read_only=True))
        sync(reading.get(DOCUMENT, default_buffer_prototype()))  # if it is there, Zarr need not ask for others
        return checked(zarr.open(reading, mode="r", use_consolidated=False), missing_chunks)
    except DataError:
        raise
    except FileNotFoundError as error:
        raise StoreError(_what_is_there(location, place)) from cause(error)
    except (ImportError, OSError) as error:
        raise unreachable(place, error) from cause(error)
    except Exception as error:
        raise StoreError(
            f"{place}: the metadata of this Zarr store cannot be read ({error}); they are damaged or of an unknown "
            "format, write the store again"
        ) from cause(error)


def check_complete(node: Node) -> None:
    """Check the marker of the store that a node belongs to, which may be on the node or on a group above it."""
    holder = next((holder for holder in chain([node], ancestors(node)) if MARKER in holder.attrs), None)
    if holder is None:
        return
    marker, place = holder.attrs[MARKER], place_of(holder)
    if isinstance(marker, Mapping) and marker.get("kind") == RESULT:
        raise StoreError(f"{place} is a saved result and no data; read it with dlatent.load({place!r})")
    check_marker(marker, place, supported=STORE_VERSION)


def _open_array(array: ZarrArray, block_bytes: int | None, dims: tuple[str, str] | None) -> DataSource:
    """Row blocks of a Zarr array: multiples of its chunk rows (shards, where they are small enough).

    Errors: DataError for other than two dimensions, an empty axis, encoded values, and values that are no real numbers.
    """
    labels, place = labels_of(array, array.shape, dims), f"Zarr array {place_of(array)}"
    rows, columns = check_matrix(array.shape, array.dtype, place)
    require_decoded(array)
    dtype = loaded_dtype(array.dtype)
    row_bytes = columns * dtype.itemsize
    if rows * row_bytes > MOST_BYTES or row_bytes > MOST_BYTES >> 14:
        raise StoreError(
            f"{place} announces {rows:,} rows of {row_bytes:,} bytes, over 1,024 TiB, or 64 GiB a row; it is damaged"
        )
    array = readable(array)
    wanted, chunk_rows = wanted_bytes(block_bytes, rows * row_bytes), array.chunks[0]
    # Of a shard where that fits into a block; else of a chunk, the unit that is decoded.
    step = array.shards[0] if array.shards is not None and array.shards[0] * row_bytes <= wanted else chunk_rows
    bounds = dense_bounds(rows, row_bytes, step, wanted)
    blocks = tuple(ZarrRows(start, stop, (stop - start) * row_bytes, array) for start, stop in bounds)
    rereads = sum(start < chunk_rows for start, _ in bounds)
    note = small_chunks(array)
    if rereads > 1:
        note = (
            f" (its chunks of {chunk_rows} rows are split over {rereads} blocks, so that each is decoded "
            f"{rereads} times a pass; dlatent rechunk writes chunks of fewer rows)"
        )
    return DataSource(
        (rows, columns),
        dtype,
        blocks,
        uuid4().hex,
        labels=labels,
        description=place + note,
        decoding=max(decoding_bytes([array], block.start, block.stop, block.nbytes) for block in blocks),
        check=partial(unchanged, array),
    )


def _open_group(group: zarr.Group, block_bytes: int | None, dims: tuple[str, str] | None) -> DataSource:
    encoding = group.attrs.get("encoding-type")
    if encoding == "csr_matrix":
        source = open_csr(group, block_bytes)
        return replace(source, labels=labels_of(group, source.shape, dims))
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
        return open_stored(member, block_bytes, dims)
    raise StoreError(f"the AnnData store {place_of(root)} has no matrix X; {_candidates(root, deep=True)}")


def _open_only_matrix(group: zarr.Group, block_bytes: int | None, dims: tuple[str, str] | None) -> DataSource:
    """The one matrix of a group, as xarray writes a dataset with one variable."""
    names = _matrices(group)
    if len(names) == 1:
        return open_stored(group[names[0]], block_bytes, dims)
    count = "no matrix" if not names else f"{len(names)} matrices"
    raise StoreError(f"{place_of(group)} is a Zarr group with {count}; {_candidates(group, deep=not names)}")


def _matrices(group: zarr.Group) -> list[str]:
    """Names of the members that are two-dimensional arrays of numbers or sparse matrices."""
    dense = (name for name, array in group.arrays() if array.ndim == 2 and array.dtype.kind in "biuf")
    sparse = (name for name, member in group.groups() if member.attrs.get("encoding-type") == "csr_matrix")
    return sorted((*dense, *sparse))


def _candidates(group: zarr.Group, *, deep: bool) -> str:
    """Which matrices there are to open instead, in the group and (deep) in its members."""
    names = _matrices(group)
    if deep:
        names += [f"{outer}/{name}" for outer, member in sorted(group.groups()) for name in _matrices(member)]
    if not names:
        members = f"its members are {sorted(name for name, _ in group.members())}"
        grids = any(member.ndim > 2 for _, member in group.arrays())
        return f"{members}; {along(place_of(group))}" if grids else members
    return "open one of " + ", ".join(f"{place_of(group)}/{name}" for name in names)


def _what_is_there(location: Place, place: str) -> str:
    """Why a path does not open, and what to do."""
    (filesystem, inside), path, kind = filesystem_at(place), local_path(location), None
    with suppress(Exception):  # where it is said why a place does not open
        kind = filesystem.info(inside)["type"]
    if kind == "file":
        if place.endswith(NETCDF):
            return f"{place} is a netCDF file; {along(place)}"
        return f"{place} is a file and no Zarr store; bring it into one with: dlatent ingest {path or place} OUT.zarr"
    if path is None or kind == "directory":
        return f"{place} is no Zarr store: it has no zarr.json, .zgroup or .zarray; give the path of a store"
    if kind is not None:
        return f"{place} is a pipe, a socket or a device and no Zarr store; give the path of one"
    above = next((str(parent) for parent in path.absolute().parents if parent.exists()), "")
    return f"{place} does not exist ({above} is there); check the path"
