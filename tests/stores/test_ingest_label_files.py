import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dlatent import read_labels
from dlatent.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")


@pytest.fixture
def store(tmp_path):
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(["b", None, "a"]),
            "grade": pd.Categorical([3, 1, None]),
            "count": pd.array([1, None, 3], dtype="Int64"),
            "ready": pd.array([True, None, False], dtype="boolean"),
            "text": ["x", "y", "z"],
            "number": [0.5, np.nan, 2],
        },
        index=["r0", "r1", "r2"],
    )
    topics = {"Y": sp.csr_array(np.eye(3)), "dense": np.arange(6.0).reshape(3, 2)}
    anndata.AnnData(np.ones((3, 2)), obs=obs, obsm=topics).write_zarr(tmp_path / "a.zarr")
    return tmp_path / "a.zarr"


def test_every_kind_of_obs_column(store):
    assert read_labels(store, "kind").tolist() == ["b", None, "a"]
    assert read_labels(store, "text").tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(read_labels(store, "grade"), [3, 1, np.nan])
    np.testing.assert_array_equal(read_labels(store, "count"), [1, np.nan, 3])
    np.testing.assert_array_equal(read_labels(store, "ready"), [1, np.nan, 0])
    np.testing.assert_array_equal(read_labels(store, "number"), [0.5, np.nan, 2])


def test_outputs_of_obsm(store):
    np.testing.assert_array_equal(read_labels(store, "Y"), np.eye(3))
    assert read_labels(store, "Y").dtype == np.uint8
    np.testing.assert_array_equal(read_labels(store, "dense"), np.arange(6.0).reshape(3, 2))


def test_a_store_with_several_columns_needs_a_name(store):
    with pytest.raises(DataError, match=r"a\.zarr needs the name of one column of labels; it has kind, grade"):
        read_labels(store)
    with pytest.raises(DataError, match=r"a\.zarr has no labels 'sort'; it has kind"):
        read_labels(store, "sort")


@pytest.mark.parametrize(
    ("name", "text", "column", "expected"),
    [
        ("a.txt", "3\n1\n-1\n", None, [3, 1, -1]),
        ("a.txt", "ham\n\nspam\n", None, ["ham", None, "spam"]),
        ("a.csv", "y\n1.5\n\n2\n", None, [1.5, np.nan, 2]),
        ("a.csv", "x,y\n1,ham\n2,spam\n", "y", ["ham", "spam"]),
        ("a.tsv", "x\ty\n1\t7\n2\t8\n", "x", [1, 2]),
    ],
)
def test_text_files(tmp_path, name, text, column, expected):
    (tmp_path / name).write_text(text)
    found = read_labels(tmp_path / name, column)
    assert [None if value != value else value for value in found.tolist()] == [
        None if value != value else value for value in expected
    ]


def test_numpy_files(tmp_path):
    np.save(tmp_path / "a.npy", np.array(["a", "b"]))
    np.savez(tmp_path / "a.npz", y=np.arange(3), Y=np.eye(3), z=np.array([object()]))
    assert read_labels(tmp_path / "a.npy").tolist() == ["a", "b"]
    np.testing.assert_array_equal(read_labels(tmp_path / "a.npz"), np.arange(3))
    np.testing.assert_array_equal(read_labels(tmp_path / "a.npz", "Y"), np.eye(3))
    with pytest.raises(DataError, match="has no key 'w'; it has y, Y, z"):
        read_labels(tmp_path / "a.npz", "w")
    with pytest.raises(DataError, match=r"a\.npz: 'z' holds pickled Python objects"):
        read_labels(tmp_path / "a.npz", "z")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x,y\n1,2\n", r"needs the name of one column; it has x, y"),
        ("a.csv", "y\n", r"shape \(0,\)"),
        ("a.npy", "nothing", "no readable npy file"),
        ("a.doc", "1\n", "no Zarr store and no"),
    ],
)
def test_files_without_labels(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_labels(tmp_path / name)
    with pytest.raises(DataError, match=r"absent\.npy does not exist"):
        read_labels(tmp_path / "absent.npy")
