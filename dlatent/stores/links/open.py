"""The door for graphs: one function that turns every accepted input into `Links`."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.arrays import Links, Origin
from dlatent.errors import DataError
from dlatent.stores.guard import guarded
from dlatent.stores.ingest.source import plain_suffix
from dlatent.stores.lazy import is_dask_array
from dlatent.stores.links.checks import check_instances, explained
from dlatent.stores.links.direction import Direction, check_direction
from dlatent.stores.links.edges import EdgeList, edges_of_array, edges_of_networkx, is_networkx
from dlatent.stores.links.files import FILES, edges_of_file, is_matrix_archive, matrix_of_archive
from dlatent.stores.links.lookup import Lookup
from dlatent.stores.links.matrices import links_of_list, links_of_matrix
from dlatent.stores.links.stored import adjacency_group, links_of_dask, links_of_group
from dlatent.stores.location import local_path
from dlatent.stores.open import open_node
from dlatent.stores.strict import MissingChunks, StrictStore, strict

ACCEPTED = (
    "a scipy.sparse or Dask matrix (N × N), an array or table of links, (m, 2) or (m, 3) with weights, a networkx "
    "graph, the path or URL of a Zarr store with a csr_matrix, or a .npz, .csv, .tsv or .parquet file"
)


def open_links(
    links: Any,
    *,
    instances: int | None = None,
    direction: Direction | None = None,
    weights: npt.ArrayLike | None = None,
    ids: npt.ArrayLike | None = None,
    missing_chunks: MissingChunks = "raise",
    origin: Origin | None = None,
) -> Links:
    """Open an undirected graph between instances, whose adjacency matrix A (N, N) any process can load by rows.

    With D_ij the given weight of the link from i to j, self-links left out:
    None: A = D = Dᵀ;  "symmetrise": A = D + Dᵀ;  "co_links": A = [D Dᵀ + Dᵀ D ≠ 0];  "undirected": A = max(D, Dᵀ).

    Parameters
    ----------
    links : scipy.sparse matrix of any format or Dask array (N, N); array or pandas table of links, (m, 2) or (m, 3)
        with weights in the third column; networkx graph; Zarr group with a csr_matrix, or the path or URL of one (of an
        AnnData store, the matrix in `obsp`); path of a .npz file (scipy.sparse, or an array `edges` of positions, and
        `directed`), or of a .csv, .tsv or .parquet file (columns: from, to, weight); `Links`, which pass through.
    instances : N, the number of rows of the data.
    direction : what becomes of the direction of links.  None: each link must be there both ways, with one weight;
        undirected networkx graphs and npz files with `directed` false are taken as such.  "symmetrise": a link either
        way links both, weights of both ways are added (1 for unweighted links).  "co_links": two instances that link
        to, or are linked from, a common third one become linked, with weight 1, and the links themselves are left out.
        "undirected": each link is there in one of its orders, or in both with one weight.
    weights : (m,) weights of an array or table of links.  A list without weights is unweighted: repeated links count
        once; weights of repeated links are added.  A matrix is unweighted where all of its entries are 1.
    ids : (N,) labels of the instances, by which lists and networkx graphs name them; without, they are named by
        position from 0.  Rows of matrices and positions in npz files are taken as they are.
    missing_chunks : of a Zarr store, as for `dlatent.stores.open.open`.
    origin : where the instances lay before rows of the data were dropped or reordered (`source.labels.origin`);
        positions in lists are then those before.

    Returns: A, symmetric, finite and not negative, its diagonal zero; `notes` says what was dropped or merged.
    Errors: DataError naming the row and value of an unknown instance, a weight that is no weight, a link without its
    counterpart, or N of the graph where it is not that of the data; StoreError for what is no readable store.
    """
    check_direction(direction)
    if isinstance(links, Links):
        return _opened_before(links, instances, direction)
    with guarded(named(links)), explained(origin):
        return _open(located(links, weights, missing_chunks), Lookup(instances, ids, origin), direction, weights)


def named(links: Any) -> str:
    """What links are called in messages before they are open."""
    return os.fspath(links) if isinstance(links, str | os.PathLike) else f"links of type {type(links).__qualname__}"


def _open(links: Any, lookup: Lookup, direction: Direction | None, weights: npt.ArrayLike | None) -> Links:
    instances = lookup.instances
    if isinstance(links, zarr.Group | zarr.Array):
        return links_of_group(adjacency_group(links), instances, direction)
    if sp.issparse(links):
        return links_of_matrix(links, instances, direction, f"scipy.sparse {cast(Any, links).format} matrix")
    if is_dask_array(links):
        return links_of_dask(links, instances, direction)
    return links_of_list(list_of(links, lookup, weights), lookup, direction)


def _opened_before(links: Links, instances: int | None, direction: Direction | None) -> Links:
    check_instances(links.instances, instances, links.description)
    if direction is not None:
        raise DataError(
            f"{links.description} is open already and has lost its direction; pass direction={direction!r} where it is "
            "opened first"
        )
    return links


def located(links: Any, weights: npt.ArrayLike | None, missing_chunks: MissingChunks = "raise") -> Any:
    """What a path or URL names, if it is a matrix: a node of a Zarr store or a scipy.sparse matrix; else the input.

    Nodes are read strictly, as those of `open_node`.

    Errors: DataError where weights are given beside anything but an array or a table.
    """
    if weights is not None and not _is_table(links):
        raise DataError("weights= belongs to an array or table of links; other kinds of links carry their own weights")
    if isinstance(links, zarr.Group | zarr.Array):
        return links if isinstance(links.store, StrictStore) else strict(links, missing_chunks)
    if not isinstance(links, str | os.PathLike):
        return links
    location = os.fspath(links)
    if plain_suffix(location) in FILES:
        return matrix_of_archive(location) if is_matrix_archive(location) else location
    path = local_path(location)
    if path is not None and path.is_file():
        raise DataError(f"{location}: links are read from {', '.join(FILES)} files and from Zarr stores")
    return open_node(location, missing_chunks)


def _is_table(links: Any) -> bool:
    return isinstance(links, np.ndarray | list | tuple) or (hasattr(links, "columns") and hasattr(links, "iloc"))


def list_of(links: Any, lookup: Lookup, weights: npt.ArrayLike | None = None) -> EdgeList:
    """The list of links that an array, a table, a networkx graph or the path of a file holds."""
    if _is_table(links):
        return edges_of_array(links, weights)
    if is_networkx(links):
        return edges_of_networkx(links)
    if isinstance(links, str):
        return edges_of_file(links, lookup)
    raise DataError(f"cannot read links of type {type(links).__module__}.{type(links).__qualname__}; give {ACCEPTED}")
