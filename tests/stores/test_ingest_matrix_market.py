import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_checks import counts, matrix

from dlatent import ingest
from dlatent.errors import DataError
from dlatent.stores.ingest.batches import START
from dlatent.stores.ingest.matrices import TripleSpill
from dlatent.stores.ingest.matrix_market import open_matrix_market
from tests.law_examples import examples


@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("block_bytes", [64, 4096, 1 << 25])
def test_coordinates_by_columns_as_scipy_reads_them(tmp_path, field, block_bytes):
    x = counts(200).tocsc()
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.coo_array(x), field=field)
    report = ingest(tmp_path / "a.mtx", tmp_path / "a.zarr", block_bytes=block_bytes)
    expected = scipy.io.mmread(tmp_path / "a.mtx").toarray()
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), expected)
    assert report.nnz == x.nnz
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("layout", ["coordinate", "array"])
def test_symmetric_matrices_are_completed(tmp_path, symmetry, layout):
    half = np.tril(counts(17, 17).toarray(), -1 if symmetry == "skew-symmetric" else 0)
    half[3] = 0
    full = half + (np.tril(half, -1).T if symmetry == "symmetric" else -half.T)
    value = sp.coo_array(full) if layout == "coordinate" else full
    scipy.io.mmwrite(tmp_path / "a.mtx", value, symmetry=symmetry)
    ingest(tmp_path / "a.mtx", tmp_path / "a.zarr", block_bytes=256)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), full)


def test_dense_arrays_and_compression(tmp_path):
    x = np.random.default_rng(0).normal(size=(31, 7))
    scipy.io.mmwrite(tmp_path / "a.mtx", x, precision=17)
    with gzip.open(tmp_path / "b.mtx.gz", "wb") as stream:
        stream.write((tmp_path / "a.mtx").read_bytes())
    report = ingest(tmp_path / "b.mtx.gz", tmp_path / "a.zarr", block_bytes=200)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), x)
    assert not report.sparse


def test_repeated_entries_are_added_and_empty_rows_kept(write, tmp_path):
    text = "%%MatrixMarket matrix coordinate real general\n% remark\n4 3 4\n3 2 1.5\n1 1 2\n3 2 1\n3 1 -1\n"
    report = ingest(write(text, "a.mtx"), tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), [[2, 0, 0], [0, 0, 0], [-1, 2.5, 0], [0, 0, 0]])
    assert report.duplicates_summed == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 1 1\n9 1 1\n", r"line 4: row 9 is not in 1 to 4"),
        ("1 1 1\n1 0 1\n", r"line 4: column 0 is not in 1 to 3"),
        ("1 1 1\n1 x 1\n", r"line 4: '1 x 1' is not 3 number"),
        ("1 1\n1 2 1 1\n", r"line 3: '1 1' is not 3 number"),
        ("1 1 1\n", r"announces 2 entries in line 2 but has 1"),
        ("1 1 1\n1 2 nan\n", r"row 1, column 2: the value is nan"),
    ],
)
def test_what_is_wrong_is_named(write, tmp_path, body, message):
    path = write("%%MatrixMarket matrix coordinate real general\n4 3 2\n" + body, "a.mtx")
    with pytest.raises(DataError, match=r"a\.mtx " + message):
        ingest(path, tmp_path / "a.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mtx"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", "line 1: no MatrixMarket header"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n", "is no real matrix"),
        (
            "%%MatrixMarket matrix coordinate real symmetric\n1 2 1\n1 1 1\n",
            "line 2: a symmetric matrix must be square",
        ),
        ("%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1.5\n", "line 3: 1.5 is no integer"),
        ("%%MatrixMarket matrix coordinate real general\n1 x 1\n", "line 2: '1 x 1' is no matrix size"),
        ("%%MatrixMarket matrix coordinate real general\n", "before the size"),
    ],
)
def test_headers_that_cannot_be_used(write, tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        ingest(write(text, "a.mtx"), tmp_path / "a.zarr")


NUMBER = st.from_regex(r"[+-]?([0-9]{1,25}\.[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?", fullmatch=True)


@settings(max_examples=examples(60))
@given(
    st.lists(NUMBER, min_size=1, max_size=20),
    st.sampled_from(["\n", "\r\n", " \n", "\n\n"]),
    st.sampled_from([" ", "\t"]),
)
def test_numbers_of_every_form_are_read_to_the_last_bit(tmp_path_factory, numbers, end, blank):
    directory = tmp_path_factory.mktemp("numbers")
    count, expected = len(numbers), np.array([[float(number)] for number in numbers])
    heads = (("array", f"{count} 1"), ("coordinate", f"{count} 1 {count}"))
    for layout, size in heads:
        places = [f"{row}{blank}1{blank}" if layout == "coordinate" else "" for row in range(1, count + 1)]
        body = "".join(place + number + end for place, number in zip(places, numbers, strict=True))
        path = directory / f"{layout}.mtx"
        path.write_bytes(f"%%MatrixMarket matrix {layout} real general\n{size}\n{body}".encode())
        (directory / layout).mkdir()
        reader = open_matrix_market([str(path)], None, directory / layout)
        found = [batch.features for batch in reader.batches(1 << 20, START)]
        np.testing.assert_array_equal(np.concatenate([x.toarray() if sp.issparse(x) else x for x in found]), expected)


@settings(max_examples=examples(40))
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 4), st.integers(-3, 3)), max_size=60),
    st.integers(1, 3000),
)
def test_sorting_on_disk_equals_sorting_in_memory(tmp_path_factory, rows, triples, batch_bytes):
    triples = [(row % rows, column, value) for row, column, value in triples]
    spill = TripleSpill(tmp_path_factory.mktemp("spill"), rows, 5, np.float64)
    for part in (triples[::2], triples[1::2]):
        table = np.array(part, dtype=np.int64).reshape(-1, 3)
        spill.add(table[:, 0], table[:, 1], table[:, 2].astype(np.float64))
    expected = np.zeros((rows, 5))
    for row, column, value in triples:
        expected[row, column] += value
    blocks = list(spill.batches(batch_bytes))
    assert [start for start, _ in blocks] == list(np.cumsum([0, *(block.shape[0] for _, block in blocks)]))[:-1]
    np.testing.assert_array_equal(np.concatenate([block.toarray() for _, block in blocks]), expected)
