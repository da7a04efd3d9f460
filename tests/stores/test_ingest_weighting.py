import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_checks import counts, matrix, names
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from dlatent import ingest, read_labels
from dlatent.errors import DataError
from dlatent.stores.ingest.treatment import DocumentFrequencies, weigh
from tests.law_examples import examples


def save(x, folder, kind):
    path = folder / f"a.{kind}"
    if kind == "svm":
        dump_svmlight_file(x, np.arange(x.shape[0]), str(path), zero_based=False)
    elif kind == "npy":
        np.save(path, x.toarray())
    elif kind == "csv":
        header = ",".join(f"c{i}" for i in range(x.shape[1]))
        np.savetxt(path, x.toarray(), delimiter=",", header=header, comments="")
    else:
        sp.save_npz(path, x)
    return path


@pytest.mark.parametrize("kind", ["svm", "npz", "npy", "csv"])
@pytest.mark.parametrize(("norm", "block_bytes"), [("l2", 400), (None, 1 << 25)])
def test_tfidf_is_that_of_scikit_learn(tmp_path, kind, norm, block_bytes):
    x = counts(200)
    path = save(x, tmp_path, kind)
    options = {"weighting": "tfidf", "unit_norm": norm == "l2", "block_bytes": block_bytes}
    report = ingest(path, tmp_path / "a.zarr", **options)
    expected = TfidfTransformer(norm=norm).fit_transform(x).toarray()
    np.testing.assert_allclose(matrix(tmp_path / "a.zarr"), expected, rtol=0, atol=1e-12)
    assert report.dtype == "float64"
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, "a.zarr"}


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_unit_norm_alone_and_float32(tmp_path, kind):
    x = counts(50)
    x.data[::2] *= -1e30
    path = save(x, tmp_path, kind)
    ingest(path, tmp_path / "a.zarr", unit_norm=True)
    np.testing.assert_allclose(matrix(tmp_path / "a.zarr"), normalize(x).toarray(), rtol=0, atol=1e-14)
    report = ingest(path, tmp_path / "b.zarr", unit_norm=True, dtype="float32")
    np.testing.assert_allclose(matrix(tmp_path / "b.zarr"), normalize(x).toarray(), rtol=0, atol=1e-7)
    assert report.dtype == "float32"


def test_integers_stay_integers_unless_they_are_weighted(tmp_path):
    np.save(tmp_path / "a.npy", counts(20).toarray().astype(np.uint16))
    assert ingest(tmp_path / "a.npy", tmp_path / "a.zarr").dtype == "uint16"
    assert ingest(tmp_path / "a.npy", tmp_path / "b.zarr", unit_norm=True).dtype == "float64"


@pytest.mark.parametrize("kind", ["npz", "npy", "svm"])
@pytest.mark.parametrize("options", [{"unit_norm": True}, {"weighting": "tfidf", "unit_norm": True}])
def test_rows_of_zeros(tmp_path, kind, options):
    x = counts(30).tolil()
    x[11] = 0
    x[29] = 0
    x = sp.csr_array(x)
    path = save(x, tmp_path, kind)
    np.save(tmp_path / "y.npy", np.arange(30))
    options = {**options, "labels": tmp_path / "y.npy", "block_bytes": 500}
    place = r"a\.svm line 1[0-9]" if kind == "svm" else rf"a\.{kind} row 12"
    with pytest.raises(DataError, match=place + r': all values are zero.*zero_rows="drop".*"keep"'):
        ingest(path, tmp_path / "a.zarr", **options)
    report = ingest(path, tmp_path / "b.zarr", zero_rows="drop", **options)
    full = [i for i in range(30) if i not in (11, 29)]
    assert report.rows_dropped == 2
    assert report.shape == (28, 23)
    np.testing.assert_array_equal(read_labels(tmp_path / "b.zarr"), full)
    expected = TfidfTransformer().fit_transform(x[full]) if "weighting" in options else normalize(x[full])
    np.testing.assert_allclose(matrix(tmp_path / "b.zarr"), expected.toarray(), rtol=0, atol=1e-12)
    ingest(path, tmp_path / "c.zarr", zero_rows="keep", **options)
    expected = TfidfTransformer().fit_transform(x) if "weighting" in options else normalize(x)
    np.testing.assert_allclose(matrix(tmp_path / "c.zarr"), expected.toarray(), rtol=0, atol=1e-12)


def test_rows_of_zeros_stay_where_nothing_is_weighted(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert ingest(tmp_path / "a.npy", tmp_path / "a.zarr").shape == (2, 2)
    np.save(tmp_path / "b.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"no rows to ingest \(3 rows of zeros were dropped\)"):
        ingest(tmp_path / "b.npy", tmp_path / "b.zarr", unit_norm=True, zero_rows="drop")


def test_names_of_dropped_rows_go_with_them(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([[0.0, 0.0], [1.0, 0.0]]), ids=["none", "one"], Y=np.eye(2))
    ingest(tmp_path / "a.npz", tmp_path / "a.zarr", unit_norm=True, zero_rows="drop")
    assert names(tmp_path / "a.zarr", "obs") == ["one"]
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr"), [[0, 1]])


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_negative_counts_are_refused_with_their_place(tmp_path, kind):
    x = counts(30).tolil()
    x[7, 3] = -2
    with pytest.raises(DataError, match=rf"a\.{kind} row 8, column 4: the value -2.0 is negative"):
        ingest(save(sp.csr_array(x), tmp_path, kind), tmp_path / "a.zarr", weighting="tfidf")


@pytest.mark.parametrize(
    "wrong", [{"weighting": "bm25"}, {"zero_rows": "skip"}, {"dtype": "int8"}, {"block_bytes": 0}, {"format": "arff"}]
)
def test_options_that_do_not_exist(tmp_path, wrong):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with pytest.raises(DataError, match=next(iter(wrong))):
        ingest(tmp_path / "a.npy", tmp_path / "a.zarr", **wrong)


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 30), max_size=4))
def test_document_frequencies_are_additive_over_rows(seed, cuts):
    x = counts(30, 9, seed=seed)
    whole, parts = DocumentFrequencies(), DocumentFrequencies()
    whole.add(x)
    for start, stop in zip(sorted([0, *cuts]), sorted([*cuts, 30]), strict=True):
        parts.add(x[start:stop])
    np.testing.assert_array_equal(whole.inverse(), parts.inverse())


@settings(max_examples=examples(40))
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=6))
def test_rows_have_unit_length_whatever_their_scale(values):
    row = np.array([values])
    dense, sparse = weigh(row, None, unit_norm=True), weigh(sp.csr_array(row), None, unit_norm=True)
    expected = 1.0 if row.any() else 0.0
    np.testing.assert_allclose(np.linalg.norm(dense), expected, rtol=1e-14)
    np.testing.assert_allclose(sparse.toarray(), dense, rtol=1e-14)
