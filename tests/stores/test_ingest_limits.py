"""A few bytes make no endless ingest: limits hold before memory is taken, and can be raised."""

import gzip
import io
import json
import zipfile

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

from dlatent import ingest, ingest_graph, open_data, open_graph, read_labels
from dlatent.cli.main import main
from dlatent.errors import DataError, StoreError
from dlatent.stores.chunked import readable
from dlatent.stores.files import Limits
from tests.memory import taking_at_most

FEW = {
    "a.svm": "1 1:1\n2 2000000000:1\n",
    "a.mtx": "%%MatrixMarket matrix coordinate real general\n2 2000000000 1\n1 1 1\n",
}


def refused(path, tmp_path, message, **options):
    """Refused, without the memory that the file asks for."""
    with taking_at_most(200 << 20), pytest.raises(DataError, match=message):
        ingest(path, tmp_path / "out.zarr", **options)
    assert not (tmp_path / "out.zarr").exists()


def write_sparse(path, rows, columns):
    if path.suffix == ".npz":
        sp.save_npz(path, sp.csr_array(([1.0], ([0], [0])), shape=(rows, columns)))
    elif path.suffix == ".h5ad":
        anndata.AnnData(sp.csr_array((rows, 3))).write_h5ad(path)
        with h5py.File(path, "r+") as file:
            file["X"].attrs["shape"] = (rows, columns)
    else:
        path.write_text(FEW[path.name])


@pytest.mark.parametrize("name", ["a.svm", "a.mtx", "a.npz", "a.h5ad"])
def test_features_that_a_few_bytes_name(tmp_path, name):
    write_sparse(tmp_path / name, 2, 2_000_000_000)
    at = "line 2 " if name == "a.svm" else ""
    refused(tmp_path / name, tmp_path, f"{at}has a feature number 2,000,000,000, but at most .*max_features=2000000000")


def test_the_limit_of_features_can_be_moved(tmp_path, capsys):
    (tmp_path / "a.svm").write_text("1 1:1\n2 40:1\n")
    refused(tmp_path / "a.svm", tmp_path, "at most 39 features", max_features=39)
    assert ingest(tmp_path / "a.svm", tmp_path / "out.zarr", max_features=40).shape == (2, 40)
    assert ingest(tmp_path / "a.svm", tmp_path / "more.zarr", max_features=3, features=50).shape == (2, 50)
    command = ["ingest", str(tmp_path / "a.svm"), str(tmp_path / "cli.zarr"), "--quiet", "--max-features"]
    assert main([*command, "39"]) != 0
    assert "--max-features" in capsys.readouterr().err
    assert main([*command, "40"]) == 0


def test_rows_that_a_few_bytes_announce(tmp_path):
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n90000000000 3 1\n1 1 1\n")
    refused(tmp_path / "a.mtx", tmp_path, "unpacks to 720,000,000,000 bytes or more.*max_expansion")
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix array real symmetric\n1000000 1000000\n1\n")
    refused(tmp_path / "a.mtx", tmp_path, "unpacks to 8,000,000,000,000 bytes or more")
    coo = sp.coo_array(([1.0], ([0], [0])), shape=(10**10, 3))
    sp.save_npz(tmp_path / "a.npz", coo)
    refused(tmp_path / "a.npz", tmp_path, "unpacks to 80,000,000,000 bytes or more")


def test_more_entries_than_announced_end_the_reading(tmp_path):
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 1\n" + "1 1 1\n" * 50)
    refused(tmp_path / "a.mtx", tmp_path, "announces 1 entry in line 2 but has more")


@pytest.mark.parametrize(("name", "head"), [("a.svm.gz", b"1 1:1\n"), ("a.csv.gz", b"x,y\n1,2\n"), ("a.mtx.gz", b"")])
def test_lines_without_an_end(tmp_path, name, head, monkeypatch):
    for module in ("files", "table_files", "ingest.matrix_market"):
        monkeypatch.setattr(f"dlatent.stores.{module}.LONGEST_LINE", 1 << 22)
    with gzip.open(tmp_path / name, "wb") as stream:
        stream.write(head)
        for _ in range(300):
            stream.write(bytes(1 << 20))
    line = head.count(b"\n") + 1
    refused(tmp_path / name, tmp_path, rf"{name}.* (line {line} does not end|line 1: no MatrixMarket|field larger)")


def bomb(key, shape, dtype="<f8", size=1 << 20):
    """An npz archive of which one member announces a shape and holds `size` zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{key}.npy", "w") as member:
        member.write(header.getvalue())
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return made.getvalue()


def test_members_that_announce_more_than_they_have(tmp_path):
    (tmp_path / "a.npz").write_bytes(bomb("X", (10**9, 1000)))
    refused(tmp_path / "a.npz", tmp_path, "'X' announces the shape .* more than it has bytes")
    (tmp_path / "a.npz").write_bytes(bomb("y", (10**12,)))
    with pytest.raises(DataError, match="announces the shape"):
        read_labels(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(bomb("edges", (10**12, 2), "<i8"))
    with pytest.raises(DataError, match="announces the shape"):
        open_graph(tmp_path / "a.npz")


def test_headers_of_label_files_take_no_memory(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    (tmp_path / "a.npy").write_bytes(np.lib.format.magic(1, 0)[:6] + header.getvalue()[6:] + bytes(80))
    with pytest.raises(DataError, match="no readable npy file"):
        read_labels(tmp_path / "a.npy")
    refused(tmp_path / "a.npy", tmp_path, "no readable npy file")


def test_stores_that_announce_more_than_they_have(tmp_path):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    root.create_array("X", shape=(10**9, 1000), chunks=(1000, 1000), dtype="f8")
    refused(tmp_path / "a.zarr", tmp_path, "unpacks to 8,000,000,000,000 bytes")
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file.create_dataset("X", (10**9, 1000), "f8", chunks=(1000, 1000))
    refused(tmp_path / "a.h5ad", tmp_path, "unpacks to 8,000,000,000,000 bytes")
    zarr.create_array(tmp_path / "b.zarr", shape=(2**62, 7), chunks=(5, 7), dtype="f8")
    with pytest.raises(DataError, match="over 1,024 TiB"):
        open_data(tmp_path / "b.zarr")


def test_positions_of_edges_beyond_belief(tmp_path):
    pd.DataFrame([[0, 1], [1, 2_000_000_000]]).to_csv(tmp_path / "a.csv", index=False, header=["from", "to"])
    np.savez(tmp_path / "a.npz", edges=np.array([[0, 1]]), X_shape=np.array([10**12, 3]))
    for name, message in (("a.csv", "names position 2,000,000,000.*samples=2000000001"), ("a.npz", "announces 1,000")):
        with pytest.raises(DataError, match=message):
            open_graph(tmp_path / name, direction="undirected")
        with pytest.raises(DataError, match=message):
            ingest_graph(tmp_path / name, tmp_path / "out.zarr", direction="undirected")


@pytest.mark.parametrize("name", ["features", "expansion"])
def test_limits_are_positive(name):
    with pytest.raises(DataError, match=f"max_{name} is 0; expected at least 1"):
        Limits(**{name: 0})


def test_absent_chunks_of_a_damaged_shape_are_found_at_once(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((12, 7)), chunks=(5, 7))
    metadata = tmp_path / "a.zarr/zarr.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"shape": [2**31, 7]}))
    with pytest.raises(StoreError, match=r"announces 429,496,730 chunks; it is damaged"):
        open_data(tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["y.npy", "y.npz"])
def test_values_of_no_length_of_which_there_are_many(tmp_path, name):
    """NumPy gives each of them a byte when it copies them."""
    few = io.BytesIO()
    np.save(few, np.zeros(3, "S1"))
    header, _, _ = few.getvalue().partition(b"\n")
    content = header.replace(b"|S1", b"|S0").replace(b"(3,)", b"(%d,)" % 10**12) + b"\n"
    content = content[:8] + (len(content) - 10).to_bytes(2, "little") + content[10:]
    if name == "y.npy":
        (tmp_path / name).write_bytes(content)
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("y.npy", content)
    with pytest.raises(DataError, match=r"values of no length|announces the shape"):
        read_labels(tmp_path / name)


@pytest.mark.parametrize("pointers", [[0, 2, 0], [0, 2, -5]])
def test_pointers_of_a_matrix_that_do_not_ascend(tmp_path, pointers):
    """scipy looks at them only where the last is positive."""
    parts = {"data": np.ones(0), "indices": np.zeros(0, np.int32), "indptr": np.array(pointers, np.int32)}
    np.savez(tmp_path / "edges.npz", format=np.array(b"csr"), shape=np.array([2, 2]), **parts)
    with pytest.raises(DataError, match=f"indptr falls at row 1, from 2 to {pointers[2]}"):
        open_graph(tmp_path / "edges.npz")


def test_more_chunks_than_a_store_has(tmp_path):
    """Zarr would list all their names to see which are there."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(20_000_000,), chunks=(1,), dtype="f8")
    with pytest.raises(StoreError, match=r"announces .* chunks; it is damaged"):
        readable(array)
