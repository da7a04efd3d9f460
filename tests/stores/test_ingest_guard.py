"""Only errors of dlatent leave the doors, with what was raised as their cause."""

import anndata
import fsspec
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from ingest_checks import counts, matrix, names

from dlatent import ingest, open_data, open_graph, read_labels
from dlatent.errors import DataError, StoreError
from dlatent.stores.location import guarded, guarded_each


@pytest.fixture
def cells(tmp_path):
    made = anndata.AnnData(
        counts(400), obs=pd.DataFrame({"topic": ["a", "b"] * 200}, index=[f"c{i}" for i in range(400)])
    )
    made.write_h5ad(tmp_path / "cells.h5ad")
    return tmp_path / "cells.h5ad"


def test_h5ad_comes_from_a_path_or_a_url(cells, tmp_path):
    fsspec.filesystem("memory").pipe("/guard/cells.h5ad", cells.read_bytes())
    for location in (cells, "memory://guard/cells.h5ad"):
        report = ingest(location, tmp_path / "out.zarr", labels="topic", block_bytes=1 << 12, overwrite=True)
        np.testing.assert_array_equal(matrix(tmp_path / "out.zarr"), counts(400).toarray())
        assert read_labels(tmp_path / "out.zarr").tolist() == ["a", "b"] * 200
        assert names(tmp_path / "out.zarr", "obs") == [f"c{i}" for i in range(400)]
        assert report.bytes_read == cells.stat().st_size


def test_the_cause_of_a_foreign_error_stays_visible(tmp_path):
    with pytest.raises(DataError, match=r"x\.csv cannot be read \(KeyError: 'what'\)") as caught, guarded("x.csv"):
        raise KeyError("what")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(StoreError), guarded("x.zarr", StoreError):
        raise RecursionError
    with pytest.raises(DataError, match="more memory"), guarded("x.zarr"):
        raise MemoryError
    with pytest.raises(DataError, match=r"x\.zarr: .*No space left") as caught, guarded("x.zarr"):
        raise OSError(28, "No space left on device")
    assert "damaged" not in str(caught.value)
    for own in (DataError("own"), KeyboardInterrupt(), DeprecationWarning("old")):
        with pytest.raises(type(own)), guarded("x"):
            raise own


def test_only_getting_an_item_is_guarded():
    def items():
        yield 1
        raise ValueError("odd")

    found = guarded_each(items(), "the list")
    assert next(found) == 1
    with pytest.raises(DataError, match="the list cannot be read"):
        next(found)
    with pytest.raises(ZeroDivisionError):
        [item / 0 for item in guarded_each([1], "the list")]


def damaged_root(path, key, value):
    root = zarr.open_group(path, mode="r+", use_consolidated=False)
    root.attrs[key] = value


DAMAGE = {
    "header without end": ("a.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((((\n" + bytes(80)),
    "header of no array": ("a.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': 'zz'} \n" + bytes(80)),
    "text of no encoding": ("a.csv", b"x,y\n1,2\n\xff\xfe,4\n"),
    "null in a table": ("a.csv", b'x,y\n1,2\n"3,4\n'),
    "no archive": ("a.npz", b"PK\x03\x04" + bytes(200)),
    "size of many digits": (
        "a.mtx",
        b"%%MatrixMarket matrix coordinate real general\n" + b"9" * 5000 + b" 2 2\n1 1 1\n",
    ),
    "index of many digits": ("a.svm", b"1 " + b"9" * 5000 + b":1\n"),
    "no parquet": ("a.parquet", b"PAR1" + bytes(100) + b"\x08\x00\x00\x00PAR1"),
    "no hdf5": ("a.h5ad", b"\x89HDF\r\n\x1a\n" + bytes(2000)),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_files(tmp_path, how):
    name, content = DAMAGE[how]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        ingest(tmp_path / name, tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"label\n\xff\n"),
        ("a.txt", b"\xff\n"),
        ("a.csv", b"label\n" + b"x" * 200_000 + b"\n"),
        ("a.npz", b"PK\x03\x04" + bytes(200)),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((((\n"),
    ],
)
def test_damaged_label_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        read_labels(tmp_path / name)


@pytest.mark.parametrize("key", ["ids", "terms", "y"])
@pytest.mark.parametrize("wrong", ["text of no code points", "no list"])
def test_names_that_are_none(tmp_path, key, wrong):
    rows = {"X": np.ones((3, 3)), key: np.array(["a", "b", "c"])}
    if wrong == "no list":
        rows[key] = np.array("a")
    else:
        rows[key] = np.frombuffer(b"\xff" * 12, dtype="<U1")
    np.savez(tmp_path / "a.npz", **rows)
    with pytest.raises(DataError, match=r"a\.npz"):
        ingest(tmp_path / "a.npz", tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", b"\xff,1\n"), ("a.npz", b"PK\x03\x04" + bytes(200)), ("a.parquet", b"PAR1PAR1")]
)
def test_damaged_edge_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        open_graph(tmp_path / name)


def test_a_matrix_of_edges_with_indices_outside_is_refused(tmp_path):
    matrix = sp.csr_array(np.eye(5, k=1) + np.eye(5, k=-1))
    matrix.indices[3] = 10**6
    sp.save_npz(tmp_path / "a.npz", matrix)
    with pytest.raises(DataError, match=r"a\.npz"):
        open_graph(tmp_path / "a.npz")


def test_codes_of_no_class_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n1,a\n2,b\n3,a\n")
    ingest(tmp_path / "a.csv", tmp_path / "a.zarr", labels="label")
    zarr.open_array(tmp_path / "a.zarr/obs/label/codes", mode="r+")[1] = -2
    with pytest.raises(StoreError, match="codes of classes that are not there"):
        read_labels(tmp_path / "a.zarr")


@pytest.mark.parametrize("value", [3, [1], {"complete": 1}, "x"])
def test_damaged_attributes_of_stores(tmp_path, value):
    (tmp_path / "a.svm").write_text("1 1:1\n2 2:1\n")
    ingest(tmp_path / "a.svm", tmp_path / "a.zarr")
    damaged_root(tmp_path / "a.zarr/X", "shape", value)
    with pytest.raises(StoreError):
        open_data(tmp_path / "a.zarr")
    with pytest.raises(DataError):
        ingest(tmp_path / "a.zarr", tmp_path / "b.zarr")
