import zipfile

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
from ingest_checks import counts, matrix, names

from dlatent import ingest, read_labels
from dlatent.errors import DataError


def save_parts(path, x, **more):
    parts = {"X_data": x.data, "X_indices": x.indices, "X_indptr": x.indptr, "X_shape": np.array(x.shape)}
    np.savez_compressed(path, **{**parts, **more})


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("block_bytes", [200, 1 << 25])
def test_what_scipy_saves(tmp_path, format, compressed, block_bytes):
    x = counts(150)
    sp.save_npz(tmp_path / "a.npz", x.asformat(format), compressed=compressed)
    report = ingest(tmp_path / "a.npz", tmp_path / "a.zarr", block_bytes=block_bytes)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), x.toarray())
    assert report.labels == "none"


def test_csr_parts_with_labels_classes_and_terms(tmp_path):
    x = counts(5, 3).astype(np.uint16)
    more = {
        "y": np.array([0, 1, -1, 1, 0]),
        "class_names": np.array(["ham", "spam"]),
        "terms": np.array(["a", "b", "ü"]),
    }
    save_parts(tmp_path / "a.npz", x, **more)
    report = ingest(tmp_path / "a.npz", tmp_path / "a.zarr", dtype="float32")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), x.toarray())
    assert list(read_labels(tmp_path / "a.zarr")) == ["ham", "spam", None, "spam", "ham"]
    assert names(tmp_path / "a.zarr", "var") == ["a", "b", "ü"]
    read = anndata.read_zarr(tmp_path / "a.zarr")
    assert list(read.obs["label"].cat.categories) == ["ham", "spam"]
    assert read.obs["label"].isna().tolist() == [False, False, True, False, False]
    assert report.labels == "2 classes in obs column 'label', 1 row unlabelled"
    assert report.dtype == "float32"


def test_other_keys_and_outputs(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.eye(6, 3, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", X=x, Y=y, class_names=["a", "b", "c"], topic=np.arange(6), ids=list("uvwxyz"))
    ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr"), y)
    assert names(tmp_path / "a.zarr", "obs") == list("uvwxyz")
    ingest(tmp_path / "a.npz", tmp_path / "b.zarr", labels="topic", features=["p", "q", "r", "s"])
    np.testing.assert_array_equal(read_labels(tmp_path / "b.zarr"), np.arange(6))
    assert names(tmp_path / "b.zarr", "var") == ["p", "q", "r", "s"]
    with pytest.raises(DataError, match=r"a\.npz has no key 'subject'; it has X, Y, class_names, topic, ids"):
        ingest(tmp_path / "a.npz", tmp_path / "c.zarr", labels="subject")
    with pytest.raises(DataError, match="2 feature names for 4 features"):
        ingest(tmp_path / "a.npz", tmp_path / "c.zarr", features=["p", "q"])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "kind"), [("<f4", "npy"), (">f8", "npy"), ("?", "npy"), ("<f2", "npz"), ("u1", "npz"), ("i4", "npz")]
)
def test_dense_matrices_in_either_order(tmp_path, order, dtype, kind):
    x = np.asarray(np.random.default_rng(0).integers(0, 2, (37, 5)), dtype=dtype, order=order)
    path = tmp_path / f"a.{kind}"
    np.save(path, x) if kind == "npy" else np.savez_compressed(path, X=x)
    report = ingest(path, tmp_path / "a.zarr", block_bytes=128)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), x.astype(np.float64))
    expected = {"?": "uint8", "<f2": "float32", ">f8": "float64"}.get(dtype, np.dtype(dtype).name)
    assert report.dtype == expected
    assert report.shape == x.shape


def test_unsorted_and_duplicate_indices(tmp_path):
    x = sp.csr_array((np.array([1, 2, 3, 250, 250], dtype=np.uint8), [2, 0, 1, 1, 1], [0, 2, 2, 5]), shape=(3, 3))
    save_parts(tmp_path / "a.npz", x)
    report = ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), [[2, 0, 1], [0, 0, 0], [0, 503, 0]])
    assert report.duplicates_summed == 2


def damaged(x, **changes):
    parts = {"X_data": x.data, "X_indices": x.indices, "X_indptr": x.indptr, "X_shape": np.array(x.shape), **changes}
    return {key: value for key, value in parts.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X_indices": None}, r"holds no matrix \(of the CSR parts, X_indices are missing\)"),
        ({"X_shape": np.array([41, 23])}, "indptr must be 42 numbers"),
        ({"X_shape": np.array([40, 3])}, "indices holds .*, outside 0 to 2"),
        ({"X_data": np.ones(3)}, r"data has shape \(3,\)"),
        ({"X_data": np.array([object()] * 3)}, "holds pickled Python objects"),
        ({"y": np.zeros(39)}, "39 labels for 40 rows"),
        ({"X_data": np.ones(277, dtype=complex)}, "values of type complex128"),
    ],
)
def test_archives_that_cannot_be_used(tmp_path, changes, message):
    x = counts()
    if "X_data" in changes and changes["X_data"].dtype.kind == "c":
        changes = {"X_data": np.ones(x.nnz, dtype=complex)}
    np.savez(tmp_path / "a.npz", **damaged(x, **changes))
    with pytest.raises(DataError, match=r"a\.npz.*" + message):
        ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def test_damaged_archives_and_other_sparse_formats(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.random.default_rng(0).normal(size=(500, 50)))
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="no npz archive, or is cut short"):
        ingest(tmp_path / "cut.npz", tmp_path / "a.zarr")
    whole[len(whole) // 2 : len(whole) // 2 + 64] = bytes(64)
    (tmp_path / "bad.npz").write_bytes(whole)
    with pytest.raises(DataError, match=r"bad\.npz: 'X' cannot be read .*; it is damaged"):
        ingest(tmp_path / "bad.npz", tmp_path / "a.zarr")
    sp.save_npz(tmp_path / "d.npz", sp.dia_array(np.eye(4)))
    with pytest.raises(DataError, match=r"holds a dia matrix; save X\.tocsr"):
        ingest(tmp_path / "d.npz", tmp_path / "a.zarr")


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf")])
def test_missing_and_infinite_values_are_named(tmp_path, value, shown):
    x = np.zeros((50, 4))
    x[33, 2] = value
    np.save(tmp_path / "a.npy", x)
    with pytest.raises(DataError, match=rf"a\.npy row 34, column 3: the value is {shown}"):
        ingest(tmp_path / "a.npy", tmp_path / "a.zarr", block_bytes=100)


def test_npy_files_that_cannot_be_used(tmp_path):
    np.save(tmp_path / "flat.npy", np.zeros(3))
    np.save(tmp_path / "objects.npy", np.array([[None]]), allow_pickle=True)
    (tmp_path / "no.npy").write_bytes(b"nothing of the kind")
    with zipfile.ZipFile(tmp_path / "zip.npy", "w") as archive:
        archive.writestr("a.npy", b"")
    for name, message in (("flat", "1 dimension"), ("objects", "readable npy"), ("no", "readable npy"), ("zip", "npz")):
        with pytest.raises(DataError, match=rf"{name}\.npy .*{message}"):
            ingest(tmp_path / f"{name}.npy", tmp_path / "a.zarr")
    np.save(tmp_path / "big.npy", np.array([[1.0, 1e300]]))
    with pytest.raises(DataError, match=r"big\.npy row 1, column 2: the value 1e\+300 is beyond float32"):
        ingest(tmp_path / "big.npy", tmp_path / "a.zarr", dtype="float32")


def test_row_labels_from_npy_beside_npy(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    np.save(tmp_path / "y.npy", np.array([[0.5, np.nan], [1, 2], [3, 4], [5, 6]]))
    ingest(tmp_path / "x.npy", tmp_path / "a.zarr", labels=tmp_path / "y.npy")
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr"), np.load(tmp_path / "y.npy"))
