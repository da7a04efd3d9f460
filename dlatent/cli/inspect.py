"""`dlatent inspect`: what a store holds, a model, data or edges, or a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from dlatent import load
from dlatent.cli import OK, show
from dlatent.cli.arguments import Parser, add
from dlatent.stores.atomic import GRAPH, MARKER, PRECISION, RESULT, kind_of
from dlatent.stores.checked import MissingChunks
from dlatent.stores.checkpoint import read_header, recorded
from dlatent.stores.chunked import read_all
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.label_files import MULTI, column_names, read_labels
from dlatent.stores.nodes import open_node
from dlatent.stores.open import open_data


def fill(parser: Parser, _: str) -> None:
    """Add the options of the command."""
    parser.description = (
        "Of a model: components, noise, passes and warnings. Of data: shape, chunks, labels, weighting. Of edges: "
        "samples, edges, degrees. Of a checkpoint: what is fitted, and how far."
    )
    parser.add_argument("path", metavar="PATH", help="path or URL of a Zarr store or a checkpoint")
    add(parser, "missing-chunks", "max-model-size", "json")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look into the store, and show what is there."""
    path, header = arguments.path, read_header(arguments.path)
    kind = None if header is not None else kind_of(open_node(path))
    if kind == RESULT:
        model = load(path, max_bytes=arguments.max_model_size)
        report = {"model": path, **model._summary()}
        show.result(f"{path}: a fitted {report['kind']}", report, model._summary_lines(), json=arguments.json)
        return OK
    look = {GRAPH: _graph, PRECISION: _precision}.get(str(kind), _data)
    title, report = _checkpoint(path, header) if header is not None else look(path, arguments.missing_chunks)
    show.result(f"{path}: {title}", report, json=arguments.json)
    return OK


Inspected = tuple[str, dict[str, Any]]
"""Title and report."""


def _checkpoint(path: str, header: dict[str, Any]) -> Inspected:
    """Describe a checkpoint."""
    count, size = recorded(path)
    about = {"checkpoint": path, **header["about"], "choices": header["choices"], "results": count, "bytes": size}
    if "ingest" in about:
        what = f"an ingest of {', '.join(about['ingest'])}"
    else:
        what = (
            f"rows on their way to a store ({about['result']})" if "result" in about else f"a fit of {about['model']}"
        )
    return f"the checkpoint of {what}", about


def _graph(path: str, missing_chunks: MissingChunks) -> Inspected:
    """Describe a graph between samples, without reading its edges."""
    graph = open_graph(path, missing_chunks=missing_chunks)
    node: Any = open_node(path, missing_chunks)
    degrees = np.diff(read_all(node["indptr"]))
    return "a graph", {
        "graph": path,
        "samples": graph.samples,
        "edges": graph.entries // 2,
        "weighted": node["data"].dtype == np.float64,
        "median_degree": np.median(degrees),
        "largest_degree": degrees.max(),
        "isolated": np.count_nonzero(degrees == 0),
        "chunks": node["data"].chunks,
        "reordered": "original_position" in node,
    }


def _precision(path: str, missing_chunks: MissingChunks) -> Inspected:
    """Describe a precision between samples, without reading its entries."""
    precision = open_precision(path, missing_chunks=missing_chunks)
    node: Any = open_node(path, missing_chunks)
    sizes = {"samples": precision.samples, "entries": precision.entries, "chunks": node["data"].chunks}
    return "a precision", {"precision": path, **sizes}


def _data(path: str, missing_chunks: MissingChunks) -> Inspected:
    """Describe a data store, without reading its matrix."""
    node = open_node(path, missing_chunks)
    source = open_data(node)
    marker: Any = node.attrs.get(MARKER)
    marker = marker if isinstance(marker, dict) else {}
    return f"{source.description.partition(' ')[0]} data", {
        "data": path,
        "description": source.description,
        "shape": source.shape,
        "dtype": source.dtype.name,
        "sparse": source.sparse,
        "stored_values": source.nnz,
        "bytes": source.nbytes,
        "blocks": len(source.blocks),
        "largest_block": max(block.nbytes for block in source.blocks),
        "chunks": _chunks(node),
        "dims": source.labels.dims,
        "labels": _labels(path, node, missing_chunks),
        "weighting": marker.get("weighting"),
        "unit_norm": marker.get("unit_norm"),
        "sources": marker.get("sources"),
    }


def _chunks(node: Any) -> Any:
    """Shape of the chunks of the matrix, or of the values of a sparse one."""
    chunks = getattr(node, "chunks", None)
    if chunks is not None:
        return chunks
    inside = next((node[name] for name in ("X", "data", "scores") if name in node), None)
    return None if inside is None else _chunks(inside)


def _labels(path: str, node: Any, missing_chunks: MissingChunks) -> list[dict[str, Any]]:
    """The columns of labels that the store has, with what `dlatent fit supervised` would see in them."""
    if not hasattr(node, "members"):
        return []
    columns = column_names(node["obs"]) if "obs" in node else []
    labels = [_column(name, read_labels(path, name, missing_chunks=missing_chunks)) for name in columns]
    if f"obsm/{MULTI}" in node:
        outputs = read_labels(path, MULTI, missing_chunks=missing_chunks).shape[1]
        labels.append({"column": MULTI, "outputs": outputs})
    return labels


def _column(name: str, values: Any) -> dict[str, Any]:
    missing = [value is None or value != value or value == -1 for value in values.tolist()]
    distinct = {value for value, absent in zip(values.tolist(), missing, strict=True) if not absent}
    return {"column": name, "distinct": len(distinct), "unlabelled": int(np.sum(missing))}
