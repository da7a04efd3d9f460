"""Good inputs of every format, which the fuzz then damages."""

from __future__ import annotations

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import zarr
from sklearn.datasets import dump_svmlight_file

import dlatent
from dlatent import ingest, ingest_graph

ROWS, COLUMNS = 12, 7


def _counts() -> sp.csr_array:
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.5)
    dense[np.arange(ROWS), rng.integers(0, COLUMNS, ROWS)] += 1
    return sp.csr_array(dense.astype(np.float64))


def _graph() -> sp.csr_array:
    ring = sp.diags_array([np.ones(ROWS - 1), np.ones(ROWS - 1)], offsets=[-1, 1])
    return sp.csr_array(ring)


def write_seeds(folder: Path) -> dict[str, list[Path]]:
    """Write some good inputs of each format; returns their paths by format."""
    made: dict[str, list[Path]] = {}
    for write in (_texts, _arrays, _tables, _stores, _labels, _graphs, _models):
        for format, paths in write(folder).items():
            made.setdefault(format, []).extend(paths)
    return made


def _texts(folder: Path) -> dict[str, list[Path]]:
    counts = _counts()
    one, many = folder / "one.svm", folder / "many.svm"
    dump_svmlight_file(counts, np.arange(ROWS) % 3, str(one), zero_based=False)
    lines = one.read_text().splitlines()
    many.write_text("".join(f"{i % 3},{3 + i % 2} {line.partition(' ')[2]}\n" for i, line in enumerate(lines)))
    matrices = [folder / name for name in ("real.mtx", "integer.mtx", "array.mtx", "symmetric.mtx")]
    scipy.io.mmwrite(matrices[0], counts.tocoo() * 1.5)
    scipy.io.mmwrite(matrices[1], counts.astype(int).tocoo())
    scipy.io.mmwrite(matrices[2], counts.toarray())
    scipy.io.mmwrite(matrices[3], _graph().tocoo(), symmetry="symmetric")
    return {"svmlight": [one, many], "matrixmarket": matrices}


def _arrays(folder: Path) -> dict[str, list[Path]]:
    counts = _counts()
    dense, packed, fortran = folder / "dense.npz", folder / "packed.npz", folder / "fortran.npz"
    names = {"y": np.arange(ROWS) % 3, "class_names": np.array(["a", "b", "c"]), "terms": np.array(list("abcdefg"))}
    np.savez(dense, X=counts.toarray(), **names)
    np.savez_compressed(packed, X=counts.toarray().astype(np.float32), Y=np.ones((ROWS, 2)))
    np.savez(fortran, X=np.asfortranarray(counts.toarray()))
    csr, csc, coo, parts = (folder / f"{name}.npz" for name in ("csr", "csc", "coo", "parts"))
    for path, matrix in ((csr, counts), (csc, counts.tocsc()), (coo, counts.tocoo())):
        sp.save_npz(path, matrix)
    arrays = {f"X_{part}": getattr(counts, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(parts, **arrays, ids=np.array([f"row{i}" for i in range(ROWS)]), **names)
    plain, columns, whole = folder / "plain.npy", folder / "columns.npy", folder / "whole.npy"
    np.save(plain, counts.toarray())
    np.save(columns, np.asfortranarray(counts.toarray().astype(np.float32)))
    np.save(whole, counts.toarray().astype(np.int64))
    return {"npz dense": [dense, packed, fortran], "npz sparse": [csr, csc, coo, parts], "npy": [plain, columns, whole]}


def _frame() -> pd.DataFrame:
    frame = pd.DataFrame(_counts().toarray() * 1.5, columns=[f"f{j}" for j in range(COLUMNS)])
    frame["whole"] = np.arange(ROWS)
    frame["label"] = np.array(["oak", "fir", "elm"])[np.arange(ROWS) % 3]
    return frame


def _tables(folder: Path) -> dict[str, list[Path]]:
    frame = _frame()
    csv, tsv, parquet, nulls = (folder / name for name in ("table.csv", "table.tsv", "table.parquet", "nulls.parquet"))
    frame.to_csv(csv, index=False)
    frame.to_csv(tsv, index=False, sep="\t")
    frame.to_parquet(parquet)
    frame.assign(whole=frame["whole"].astype("Int64").where(frame.index > 2)).to_parquet(nulls, compression="zstd")
    return {"csv": [csv, tsv], "parquet": [parquet, nulls]}


def _annotated(matrix: object) -> anndata.AnnData:
    obs = pd.DataFrame(
        {"topic": pd.Categorical(_frame()["label"]), "size": np.arange(ROWS)}, index=[f"row{i}" for i in range(ROWS)]
    )
    return anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=[f"f{j}" for j in range(COLUMNS)]))


def _stores(folder: Path) -> dict[str, list[Path]]:
    counts = _counts()
    csr, csc, dense = folder / "csr.h5ad", folder / "csc.h5ad", folder / "dense.h5ad"
    for path, matrix in ((csr, counts), (csc, counts.tocsc()), (dense, counts.toarray())):
        _annotated(matrix).write_h5ad(path)
    two, three = folder / "two.zarr", folder / "three.zarr"
    old = anndata.settings.zarr_write_format
    for version, path in ((2, two), (3, three)):
        anndata.settings.zarr_write_format = version
        _annotated(counts).write_zarr(path)
    anndata.settings.zarr_write_format = old
    ours = folder / "ours.zarr"
    ingest(folder / "one.svm", ours)
    arrays = []
    for version in (2, 3):
        arrays.append(folder / f"array{version}.zarr")
        zarr.create_array(arrays[-1], data=counts.toarray(), chunks=(5, COLUMNS), zarr_format=version)
    plain = folder / "dense_ours.zarr"
    ingest(folder / "plain.npy", plain)
    return {"h5ad": [csr, csc, dense], "zarr dense": [*arrays, plain], "zarr csr": [ours], "zarr anndata": [two, three]}


def _labels(folder: Path) -> dict[str, list[Path]]:
    paths = [folder / f"labels.{kind}" for kind in ("txt", "csv", "npy", "npz")]
    values = _frame()["label"].to_numpy().astype(str)
    paths[0].write_text("".join(f"{i % 3}\n" if i != 4 else "\n" for i in range(ROWS)))
    _frame()[["label", "whole"]].to_csv(paths[1], index=False)
    np.save(paths[2], np.arange(ROWS) % 3)
    np.savez(paths[3], y=values)
    return {"labels": paths}


def _graphs(folder: Path) -> dict[str, list[Path]]:
    upper = sp.triu(_graph()).tocoo()
    pairs = np.column_stack([upper.row, upper.col])
    csv, parquet, bounds, matrix, store = (
        folder / name for name in ("edges.csv", "edges.parquet", "edges.npz", "matrix.npz", "edges.zarr")
    )
    table = pd.DataFrame(pairs, columns=["from", "to"]).assign(weight=1.5)
    table.to_csv(csv, index=False)
    table.to_parquet(parquet)
    np.savez(bounds, edges=pairs, directed=np.array(False))
    sp.save_npz(matrix, _graph())
    ingest_graph(_graph(), store)
    return {"edges csv": [csv], "edges parquet": [parquet], "edges npz": [bounds, matrix], "edges zarr": [store]}


def _models(folder: Path) -> dict[str, list[Path]]:
    paths = [folder / "ppca.zarr", folder / "supervised.zarr"]
    dense = _counts().toarray()
    dlatent.PPCA(2).fit(dense, client="serial").save(paths[0])
    dlatent.SupervisedPPCA(2).fit(dense, np.arange(ROWS) % 3, client="serial").save(paths[1])
    return {"model": paths}
