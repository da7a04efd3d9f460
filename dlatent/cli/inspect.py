"""`dlatent inspect`: what a store holds, a model, data or edges, or a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from dlatent import load
from dlatent.cli import OK, show
from dlatent.cli.arguments import Parser, add
from dlatent.errors import number_of
from dlatent.stores.atomic import GRAPH, MARKER, PRECISION, RESULT, kind_of
from dlatent.stores.checkpoint import read_header, recorded
from dlatent.stores.chunked import read_all
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.label_files import MULTI, column_names, read_labels
from dlatent.stores.open import open_data, open_node
from dlatent.stores.strict import MissingChunks

Told = tuple[dict[str, Any], str, dict[str, object]]
"""What is found, as JSON has it; what it is; and the same in words."""


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
    path, chunks = arguments.path, arguments.missing_chunks
    header = read_header(path)
    kind = None if header is not None else kind_of(open_node(path))
    if kind == RESULT:
        model = load(path, max_bytes=arguments.max_model_size)
        found = {"model": path, **model._facts()}
        show.model(f"{path}: a fitted {found['kind']}", found, model._words(), json=arguments.json)
        return OK
    look = {GRAPH: _graph, PRECISION: _precision}.get(str(kind), _data)
    found, title, words = look(path, chunks) if header is None else _checkpoint(path, header)
    if arguments.json:
        show.as_json(found)
    else:
        show.facts(f"{path}: {title}", words)
    return OK


def _checkpoint(path: str, header: dict[str, Any]) -> Told:
    """What a checkpoint is of, and what it has."""
    count, size = recorded(path)
    about, choices = header["about"], header["choices"]
    found = {"checkpoint": path, **about, "choices": choices, "results": count, "bytes": size}
    data = {name: own for name, own in found.items() if isinstance(own, dict) and "shape" in own}
    shapes = (f"{name} {' × '.join(f'{n:,}' for n in own['shape'])} {own['dtype']}" for name, own in data.items())
    if "ingest" in found:
        what, results = f"an ingest of {', '.join(found['ingest'])}", "pieces of what is read"
    elif "result" in found:
        what, results = f"rows on their way to a store ({found['result']})", "stages"
    else:
        what, results = f"a fit of {found['model']}", "passes or their stages"
    options = {**found.get("parameters", {}), **found.get("options", {})}
    return (
        found,
        f"the checkpoint of {what}",
        {
            "parameters": ", ".join(f"{name}={value!r}" for name, value in options.items()) or None,
            "data": "; ".join(shapes) or None,
            "solver": choices.get("solver"),
            "results": f"{count} {results}, {size / 1e6:,.1f} MB",
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        },
    )


def _graph(path: str, missing_chunks: MissingChunks) -> Told:
    """What a graph between samples is, without reading its edges."""
    graph = open_graph(path, missing_chunks=missing_chunks)
    node: Any = open_node(path, missing_chunks)
    degrees = np.diff(read_all(node["indptr"]))
    found: dict[str, Any] = {
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
    return (
        found,
        "a graph",
        {
            "samples": f"{graph.samples:,}",
            "edges": f"{found['edges']:,}, {'weighted' if found['weighted'] else 'unweighted'}",
            "degree": f"median {found['median_degree']:g}, largest {found['largest_degree']:,}",
            "isolated": f"{found['isolated']:,}",
            "chunks": " × ".join(map(str, found["chunks"])),
            "rows": "reordered" if found["reordered"] else None,
        },
    )


def _precision(path: str, missing_chunks: MissingChunks) -> Told:
    """What a precision between samples is, without reading its entries."""
    precision = open_precision(path, missing_chunks=missing_chunks)
    node: Any = open_node(path, missing_chunks)
    samples, entries, chunks = precision.samples, precision.entries, node["data"].chunks
    words: dict[str, object] = {
        "samples": f"{samples:,}",
        "entries": f"{entries:,}",
        "chunks": " × ".join(map(str, chunks)),
    }
    return {"precision": path, "samples": samples, "entries": entries, "chunks": chunks}, "a precision", words


def _data(path: str, missing_chunks: MissingChunks) -> Told:
    """What a data store holds, without reading its matrix."""
    node = open_node(path, missing_chunks)
    source = open_data(node)
    marker: Any = node.attrs.get(MARKER)
    marker = marker if isinstance(marker, dict) else {}
    found: dict[str, Any] = {
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
    rows, columns = found["shape"]
    kind = "sparse" if found["sparse"] else "dense"
    values = "" if found["stored_values"] is None else f", {found['stored_values']:,} stored values"
    weights = [found["weighting"], "unit rows" if found["unit_norm"] else None]
    return (
        found,
        f"{source.description.partition(' ')[0]} data",
        {
            "rows × features": f"{rows:,} × {columns:,}, {kind} {found['dtype']}{values}",
            "in memory": f"{found['bytes'] / 1e6:,.1f} MB in {number_of(found['blocks'], 'block')} of at most "
            f"{found['largest_block'] / 1e6:,.1f} MB",
            "chunks": None if found["chunks"] is None else " × ".join(map(str, found["chunks"])),
            "dimensions": " × ".join(found["dims"]),
            "labels": "; ".join(map(_label_words, found["labels"])) or "none",
            "weighting": ", ".join(filter(None, weights)) or None,
            "sources": None if found["sources"] is None else ", ".join(found["sources"]),
        },
    )


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
    found = [_column(name, read_labels(path, name, missing_chunks=missing_chunks)) for name in columns]
    if f"obsm/{MULTI}" in node:
        outputs = read_labels(path, MULTI, missing_chunks=missing_chunks).shape[1]
        found.append({"column": MULTI, "outputs": outputs})
    return found


def _column(name: str, values: Any) -> dict[str, Any]:
    missing = [value is None or value != value or value == -1 for value in values.tolist()]
    distinct = {value for value, absent in zip(values.tolist(), missing, strict=True) if not absent}
    return {"column": name, "distinct": len(distinct), "unlabelled": int(np.sum(missing))}


def _label_words(label: dict[str, Any]) -> str:
    if "outputs" in label:
        return f"{label['column']} ({label['outputs']} outputs)"
    unlabelled = f", {number_of(label['unlabelled'], 'row')} unlabelled" if label["unlabelled"] else ""
    return f"{label['column']} ({label['distinct']} different{unlabelled})"
