"""What is done with a damaged input of each format, and what an independent reader makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import zarr
from sklearn.datasets import load_svmlight_file

import dlatent
from dlatent import ingest, ingest_graph, open_data, open_graph, read_labels

Rng = np.random.Generator


def run(format: str, path: Path, seeds: Path, folder: Path, rng: Rng) -> Any:
    """Read the input through a door of the library; returns the matrix that was stored, where there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TARGETS[format](path, seeds, folder, rng)


def expected(format: str, path: Path) -> Any:
    """What an independent reader makes of the same input (None: it does not accept it, or there is none)."""
    reader = INDEPENDENT.get(format)
    if reader is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return reader(path)
    except Exception:
        return None


def _ingest(path: Path, seeds: Path, folder: Path, rng: Rng, **options: Any) -> Any:
    if rng.random() < 0.2:
        options["weighting"] = "tfidf"
        ingest(path, folder / "out.zarr", zero_rows="drop", unit_norm=True, **options)
        return None
    ingest(path, folder / "out.zarr", **options)
    return _stored(folder / "out.zarr")


def _stored(place: Path) -> Any:
    stored = zarr.open_group(place, mode="r")["X"]
    if isinstance(stored, zarr.Array):
        return np.asarray(stored[:], dtype=np.float64)
    parts = [stored[name][:] for name in ("data", "indices", "indptr")]
    return sp.csr_array(tuple(parts), shape=stored.attrs["shape"])


def _table(path: Path, seeds: Path, folder: Path, rng: Rng) -> Any:
    labels = "label" if rng.random() < 0.7 else None
    missing = "nan" if rng.random() < 0.3 else "raise"
    ids = "whole" if rng.random() < 0.2 else None
    features = [f"f{j}" for j in range(7)] if labels is None else None
    ingest(path, folder / "out.zarr", labels=labels, missing=missing, ids=ids, features=features)
    return _stored(folder / "out.zarr") if labels and not ids else None


def _h5ad(path: Path, seeds: Path, folder: Path, rng: Rng) -> Any:
    return _ingest(path, seeds, folder, rng, labels="topic" if rng.random() < 0.5 else None)


def _store(path: Path, seeds: Path, folder: Path, rng: Rng) -> None:
    if rng.random() < 0.3:
        ingest(path, folder / "out.zarr", format="zarr")
        return
    source = open_data(path)
    for block in source.blocks[:50]:
        block.load()


def _annotated(path: Path, seeds: Path, folder: Path, rng: Rng) -> Any:
    match rng.integers(4):
        case 0:
            return _store(path, seeds, folder, rng)
        case 1:
            return read_labels(path, "topic") is None
        case 2:
            return read_labels(path, "size") is None
        case _:
            ingest(path, folder / "out.zarr", labels="topic" if rng.random() < 0.5 else None)
            return _stored(folder / "out.zarr")


def _labels(path: Path, seeds: Path, folder: Path, rng: Rng) -> None:
    if rng.random() < 0.7:
        read_labels(path, "label" if path.suffix == ".csv" else None)
    else:
        ingest(seeds / "plain.npy", folder / "out.zarr", labels=path)


def _graph(path: Path, seeds: Path, folder: Path, rng: Rng) -> None:
    options: dict[str, Any] = {} if rng.random() < 0.4 else {"samples": 12}
    options["direction"] = [None, "undirected", "symmetrise", "common_neighbours"][int(rng.integers(4))]
    if rng.random() < 0.3:
        options["ids"], options["samples"] = [f"row{i}" for i in range(12)], 12
    if rng.random() < 0.5:
        ingest_graph(path, folder / "out.zarr", **options)
    else:
        graph = open_graph(path, **options)
        graph.rows.load(0, min(graph.samples, 1000))


def _model(path: Path, seeds: Path, folder: Path, rng: Rng) -> None:
    model = dlatent.load(path)
    if type(model).__name__ == "PPCA":
        model.transform(np.ones((2, 7)))


TARGETS: dict[str, Callable[[Path, Path, Path, Rng], Any]] = {
    "svmlight": _ingest,
    "matrixmarket": _ingest,
    "npz dense": _ingest,
    "npz sparse": _ingest,
    "npy": _ingest,
    "csv": _table,
    "parquet": _table,
    "h5ad": _h5ad,
    "zarr dense": _store,
    "zarr csr": _store,
    "zarr anndata": _annotated,
    "labels": _labels,
    "edges csv": _graph,
    "edges parquet": _graph,
    "edges npz": _graph,
    "edges zarr": _graph,
    "model": _model,
}


def _svmlight(path: Path) -> Any:
    content = path.read_bytes() if path.suffix != ".gz" else __import__("gzip").decompress(path.read_bytes())
    if b"_" in content or len(content) > 10**5:
        return None
    import io

    matrix, _ = load_svmlight_file(io.BytesIO(content), multilabel=True, zero_based="auto")
    return sp.csr_array(matrix)


def _mtx(path: Path) -> Any:
    matrix = scipy.io.mmread(path)
    return sp.csr_array(matrix) if sp.issparse(matrix) else matrix


def _npz(path: Path) -> Any:
    with np.load(path) as archive:
        return archive["X"]


def _csv(path: Path) -> Any:
    options = {"float_precision": "round_trip", "index_col": False, "skip_blank_lines": False}
    frame = pd.read_csv(path, sep="\t" if ".tsv" in path.name else ",", **options)
    return frame.drop(columns="label").to_numpy(dtype=np.float64)


INDEPENDENT: dict[str, Callable[[Path], Any]] = {
    "svmlight": _svmlight,
    "matrixmarket": _mtx,
    "npz dense": _npz,
    "npz sparse": lambda path: sp.csr_array(sp.load_npz(path)),
    "npy": lambda path: np.load(path),
    "csv": _csv,
    "parquet": lambda path: pd.read_parquet(path).drop(columns="label").to_numpy(dtype=np.float64, na_value=np.nan),
}


def differ(stored: Any, independent: Any) -> str | None:
    """In what two readings of a matrix differ, or None."""
    if stored.shape != independent.shape:
        return f"shape {stored.shape} and {independent.shape}"
    if np.prod(stored.shape, dtype=float) > 1e7:
        return None
    first, second = (value.toarray() if sp.issparse(value) else value for value in (stored, independent))
    if not np.array_equal(first, np.asarray(second, dtype=np.float64), equal_nan=True):
        return "values"
    return None
