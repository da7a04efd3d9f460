"""The door for graphs: what turns every accepted input into a `Graph`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, cast

import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.arrays import AxisLabels, Graph, Origin
from dlatent.containers import check_parts
from dlatent.errors import DataError
from dlatent.stores.checked import CheckedStore, MissingChunks, checked
from dlatent.stores.files import Archive, file_name, path_or_stream, plain_suffix
from dlatent.stores.graph.adjacency import refuse_kind
from dlatent.stores.graph.direction import Direction, check_direction
from dlatent.stores.graph.edges import (
    FILES,
    Edges,
    edges_of_array,
    edges_of_file,
    edges_of_networkx,
    is_networkx,
    is_table,
)
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.graph.matrices import adjacency_group, of_group, of_list, of_matrix, of_source
from dlatent.stores.lazy import is_dask_array, open_dask
from dlatent.stores.location import guarded, local_path
from dlatent.stores.nodes import open_node
from dlatent.stores.places import read_places

ACCEPTED = (
    "a scipy.sparse or Dask matrix (N × N), an array or table of edges, (m, 2) or (m, 3) with weights, a networkx "
    "graph, the path or URL of a Zarr store with a csr_matrix, or a .npz, .csv, .tsv or .parquet file"
)


def open_graph(
    graph: object,
    *,
    samples: int | None = None,
    direction: Direction | None = None,
    weights: npt.ArrayLike | None = None,
    ids: npt.ArrayLike | None = None,
    missing_chunks: MissingChunks = "raise",
    origin: Origin | None = None,
) -> Graph:
    """Open an undirected graph between samples, whose adjacency matrix A (N, N) any process can load by rows.

    With D_ij the given weight of the edge from i to j, self-loops left out:
    None: A = D = Dᵀ;  "symmetrise": A = D + Dᵀ;  "undirected": A = max(D, Dᵀ);
    "common_neighbours": A = [D Dᵀ + Dᵀ D ≠ 0].

    Parameters
    ----------
    graph : sparse matrix, array or table of edges, networkx graph, Zarr group, path or URL
        scipy.sparse matrix of any format or Dask array (N, N); array or pandas table of edges, (m, 2) or (m, 3) with
        weights in the third column; networkx graph; Zarr group with a csr_matrix, or the path or URL of one (of an
        AnnData store, the matrix in `obsp`); path of a .npz file (scipy.sparse, or an array `edges` of positions, and
        `directed`), or of a .csv, .tsv or .parquet file (columns: from, to, weight); `Graph`, which passes through.
    samples : int, optional
        N, the number of rows of the data.
    direction : {"symmetrise", "undirected", "common_neighbours"}, optional
        What becomes of the direction of edges.  By default each edge must be there both ways, with one weight;
        undirected networkx graphs and npz files with `directed` false are taken as such.  "symmetrise": an edge either
        way joins both, weights of both ways are added (1 for unweighted edges).  "common_neighbours": two samples that
        point to a common third one, or to which one points, are joined with weight 1, and the edges themselves are left
        out.  "undirected": each edge is there in one of its orders, or in both with one weight.
    weights : array of shape (m,), optional
        Weights of an array or table of edges.  A list without weights is unweighted: repeated edges count once; weights
        of repeated edges are added.  A matrix is unweighted where all of its entries are 1.
    ids : array of shape (n_samples,), optional
        Labels of the samples, by which lists and networkx graphs name them; without, they are named by position from 0.
        Rows of matrices and positions in npz files are taken as they are.
    missing_chunks : {"raise", "fill"}, default "raise"
        Of a Zarr store, as for `dlatent.open_data`.
    origin : optional
        Where the samples lay before rows of the data were dropped or reordered (`source.labels.origin`); positions in
        lists are then those before.

    Returns
    -------
    Graph
        A, symmetric, finite and not negative, its diagonal zero; `notes` says what was dropped or merged.

    Raises
    ------
    DataError
        Naming the row and value of an unknown sample, a weight that is no weight, an edge without its counterpart, or N
        of the graph where it is not that of the data.
    StoreError
        For what is no readable store.

    Examples
    --------
    >>> from dlatent import open_graph
    >>> open_graph([[0, 1], [1, 2]], samples=3, direction="undirected").entries
    4
    """
    return _opened(graph, samples, ids, origin, direction, weights, missing_chunks)


def open_precision(
    precision: object,
    *,
    samples: int | None = None,
    missing_chunks: MissingChunks = "raise",
    origin: Origin | None = None,
) -> Graph:
    """Open a precision Δ (N, N) between samples, which any process can load by rows.

    Parameters
    ----------
    precision : sparse matrix, Dask array, Zarr group, path or URL
        scipy.sparse matrix of any format or Dask array (N, N); Zarr group with a csr_matrix, or the path or URL of one;
        path of a .npz file of scipy.sparse; what this function returned.
    samples : int, optional
        N, the number of rows of the data.
    missing_chunks : {"raise", "fill"}, default "raise"
        Of a Zarr store, as for `dlatent.open_data`.
    origin : optional
        As for `open_graph`.

    Returns
    -------
    Graph
        Δ in the place of A: its diagonal is there, and entries of either sign.

    Raises
    ------
    DataError
        Naming an entry that is not finite, or is not that on the other side of the diagonal, or a row that no positive
        semi-definite matrix has; where 1ᵀΔ1 = 0, so that there is no mean; for N that is not that of the data.
    StoreError
        For what is no readable store.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from dlatent import open_precision
    >>> open_precision(sp.diags_array([-0.5, 1.25, -0.5], offsets=[-1, 0, 1], shape=(4, 4))).shape
    (4, 4)
    """
    return _opened(precision, samples, None, origin, None, None, missing_chunks, precision=True)


def _opened(
    graph: Any,
    samples: int | None,
    ids: npt.ArrayLike | None,
    origin: Origin | None,
    direction: Direction | None,
    weights: npt.ArrayLike | None,
    missing_chunks: MissingChunks,
    *,
    precision: bool = False,
) -> Graph:
    """The graph, or the precision, that an input is."""
    check_direction(direction)
    if isinstance(graph, Graph):
        if direction is not None:
            raise DataError(
                f"{graph.description} is open already and has lost its direction; pass direction={direction!r} where "
                "it is opened first"
            )
        Lookup(samples, origin=origin).check_samples(graph.samples, graph.description)
        if graph.precision != precision:
            refuse_kind(f"{graph.description} is", precision=graph.precision)
        return graph
    with guarded(named(graph)):
        node, lookup = located(graph, weights, missing_chunks), Lookup(samples, ids, origin)
        if isinstance(node, zarr.Group | zarr.Array):
            opened = of_group(adjacency_group(node), lookup, direction, precision=precision)
        elif sp.issparse(node):
            place = f"scipy.sparse {cast(Any, node).format} matrix"
            opened = of_matrix(node, lookup, direction, place, precision=precision)
        elif is_dask_array(node):
            opened = of_source(open_dask(node, AxisLabels()), lookup, direction, precision=precision)
        elif precision:
            raise DataError(f"{named(graph)} cannot be read as a precision, {NO_LIST}")
        else:
            opened = of_list(edges_of(node, lookup, weights), direction)
    return replace(opened, places=read_places(graph))


NO_LIST = "which is a matrix: scipy.sparse, Dask, a Zarr store with a csr_matrix, or a .npz file of scipy.sparse"


def named(graph: Any) -> str:
    """Return the name of edges in messages before they are open."""
    return os.fspath(graph) if isinstance(graph, str | os.PathLike) else f"edges of type {type(graph).__qualname__}"


def located(graph: Any, weights: npt.ArrayLike | None, missing_chunks: MissingChunks = "raise") -> Any:
    """Open the matrix at a path or URL, a node of a Zarr store or a scipy.sparse matrix; return any other input.

    Nodes are read strictly, as those of `open_node`.

    Errors: DataError where weights are given beside anything but an array or a table.
    """
    if weights is not None and not is_table(graph):
        raise DataError("weights= belongs to an array or table of edges; other kinds of edges carry their own weights")
    if isinstance(graph, zarr.Group | zarr.Array):
        return graph if isinstance(graph.store, CheckedStore) else checked(graph, missing_chunks)
    if not isinstance(graph, str | os.PathLike):
        return graph
    location = os.fspath(graph)
    if plain_suffix(location) in FILES:
        matrix = _matrix_of_archive(location) if plain_suffix(location) == ".npz" else None
        return location if matrix is None else matrix
    path = local_path(location)
    if path is not None and path.is_file():
        raise DataError(f"{location}: edges are read from {', '.join(FILES)} files and from Zarr stores")
    return open_node(location, missing_chunks)


def _matrix_of_archive(location: str) -> Any:
    """The matrix of `scipy.sparse.save_npz`, whose members are checked before and whose indices after reading; None of
    an archive with a list of edges."""
    with Archive(location) as archive:
        if "edges" in archive.keys:
            return None
        for key in archive.keys:
            with archive.stream(key):
                pass
    matrix: Any = sp.load_npz(path_or_stream(location))
    check_parts(matrix, file_name(location))
    return matrix


def edges_of(graph: Any, lookup: Lookup, weights: npt.ArrayLike | None = None) -> Edges:
    """The list of edges that an array, a table, a networkx graph or the path of a file holds."""
    if is_table(graph):
        return edges_of_array(graph, weights).resolved(lookup)
    if is_networkx(graph):
        return edges_of_networkx(graph).resolved(lookup)
    if isinstance(graph, str):
        return edges_of_file(graph, lookup).resolved(lookup)
    raise DataError(f"cannot read edges of type {type(graph).__module__}.{type(graph).__qualname__}; give {ACCEPTED}")
