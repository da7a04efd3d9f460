"""No reader stores a number other than the one in the file: it is the same, or it is refused."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from ingest_checks import matrix

from dlatent import ingest, ingest_graph, open_data, open_graph, read_labels
from dlatent.errors import DataError
from dlatent.stores.numbers import inexact, numbers_of, real

ODD = 2**53 + 1
"""The first integer that float64 does not have."""

COORDINATE = "%%MatrixMarket matrix coordinate {field} general\n2 2 2\n1 1 3\n{line}\n"
ARRAY = "%%MatrixMarket matrix array {field} general\n2 1\n3\n{line}\n"


def refused(path, tmp_path, message, **options):
    with pytest.raises(DataError, match=message):
        ingest(path, tmp_path / "out.zarr", **options)
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n0 2:1_0\n", "a.svm line 2: the value of '2:1_0' is no number"),
        ("1 1:1\n0 1_0:1\n", "a.svm line 2: '1_0:1' is not of the form"),
        ("1 1:1\n1_0 2:1\n", "a.svm line 2: the label '1_0' is no number"),
        ("1 1:1\n0 2:１\n", "a.svm line 2: the value of '2:１' is no number"),
        (f"1 1:1\n0 2:{ODD}\n", f"a.svm line 2: the value '{ODD}' is an integer that float64 cannot hold exactly"),
        (f"1 1:1\n{ODD} 2:1\n", f"a.svm line 2: the label '{ODD}' is an integer that float64 cannot hold exactly"),
        ("1 1:1\n1e400 2:1\n", "a.svm line 2: the label '1e400' is beyond float64"),
        ("1 1:1\n0 2:1e400\n", "a.svm line 2: the value '1e400' is beyond float64"),
    ],
)
def test_svmlight(tmp_path, text, message):
    (tmp_path / "a.svm").write_text(text)
    refused(tmp_path / "a.svm", tmp_path, message)


def test_svmlight_comments_may_hold_anything(tmp_path):
    (tmp_path / "a.svm").write_text(f"1 1:2 # 1_0 １ {ODD}\n0 2:{2**60}\n2 1:{ODD}.0\n")
    ingest(tmp_path / "a.svm", tmp_path / "out.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "out.zarr"), [[2, 0], [0, 2.0**60], [float(ODD), 0]])


@pytest.mark.parametrize("field", ["integer", "real"])
@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("1_0", "line 4: .*1_0' is not [13] number"),
        ("１２", "line 4: .* is not [13] number"),
        ("1-2", "line 4: .*1-2' is not [13] number"),
        ("0x10", "line 4: .*0x10' is not [13] number"),
        (str(ODD), f"line 4: '{ODD}' is an integer that float64 cannot hold exactly"),
        (str(2**63 - 1), "line 4: .*cannot hold exactly"),
        ("9" * 30, "line 4: .*cannot hold exactly"),
        ("1e400", "line 4: '1e400' is beyond float64"),
        ("1" * 300_000, "line 4: .* is beyond float64"),
    ],
)
def test_matrix_market(tmp_path, field, number, message):
    (tmp_path / "a.mtx").write_text(COORDINATE.format(field=field, line=f"2 2 {number}").replace("2 2 2\n", "2 2 2\n"))
    refused(tmp_path / "a.mtx", tmp_path, message)
    (tmp_path / "a.mtx").write_text(ARRAY.format(field=field, line=number))
    refused(tmp_path / "a.mtx", tmp_path, message)


def test_matrix_market_integers_that_fit_no_64_bits(tmp_path):
    (tmp_path / "a.mtx").write_text(ARRAY.format(field="integer", line=str(2**70)))
    refused(tmp_path / "a.mtx", tmp_path, "line 4: .* does not fit 64 bits; write 'real' for 'integer'")
    (tmp_path / "a.mtx").write_text(ARRAY.format(field="real", line=str(2**70)))
    ingest(tmp_path / "a.mtx", tmp_path / "out.zarr")
    assert matrix(tmp_path / "out.zarr").tolist() == [[3], [2.0**70]]


def test_the_last_number_of_a_piece_is_read_to_its_end(tmp_path):
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix array real general\n1 1\n1e\n")
    refused(tmp_path / "a.mtx", tmp_path, "line 3: '1e' is not 1 number")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["1", "1_0"], "'1_0' is not a number"),
        (["1", "１２"], "'１２' is not a number"),
        (["1", str(ODD)], f"row 2, column 'x': the integer {ODD} is beyond 2⁵³"),
        (["1", str(2**63 + 1)], "row 2, column 'x': the integer 9223372036854775809 is beyond 2⁵³"),
        (["1", str(2**64 + 1)], "row 2, column 'x': '18446744073709551617' is an integer that float64 cannot"),
    ],
)
def test_csv(tmp_path, column, message):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{value},1\n" for value in column))
    refused(tmp_path / "a.csv", tmp_path, message)


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("dtype", ["Int64", "UInt64"])
def test_parquet(tmp_path, null, dtype):
    frame = pd.DataFrame({"x": pd.array([1, None if null else 2, ODD], dtype=dtype), "y": [1.0, 2.0, 3.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    message = f"row 3, column 'x': the integer {ODD} is beyond 2⁵³"
    refused(tmp_path / "a.parquet", tmp_path, message, missing="nan")


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_sparse_integers(tmp_path, dtype):
    large = sp.csr_array(np.array([[0, 1], [ODD, 2]], dtype=dtype))
    sp.save_npz(tmp_path / "a.npz", large)
    message = f"row 2, column 1.*the integer {ODD} is beyond 2⁵³"
    refused(tmp_path / "a.npz", tmp_path, message)
    anndata.AnnData(large).write_h5ad(tmp_path / "a.h5ad")
    refused(tmp_path / "a.h5ad", tmp_path, message)


def test_dense_integers_are_stored_as_they_are(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[ODD, 2**63 - 1]]))
    ingest(tmp_path / "a.npy", tmp_path / "out.zarr")
    import zarr

    assert zarr.open_group(tmp_path / "out.zarr", mode="r")["X"][:].tolist() == [[ODD, 2**63 - 1]]


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1_0", "2"], ["1_0", "2"]),
        (["１", "2"], ["１", "2"]),
        ([str(ODD), str(2**63 - 1)], [ODD, 2**63 - 1]),
        ([str(2**64), "1"], [str(2**64), "1"]),
        ([str(ODD), "1.5"], [str(ODD), "1.5"]),
        (["007", "-1"], [7, -1]),
    ],
)
def test_label_files(tmp_path, name, texts, expected):
    header = "label\n" if name.endswith("csv") else ""
    (tmp_path / name).write_text(header + "\n".join(texts), encoding="utf-8")
    assert read_labels(tmp_path / name).tolist() == expected


def test_labels_in_tables_stay_apart(tmp_path):
    (tmp_path / "a.csv").write_text(f"x,label\n1,{ODD}\n2,{ODD - 1}\n3,{2**70}\n")
    ingest(tmp_path / "a.csv", tmp_path / "out.zarr", labels="label")
    assert read_labels(tmp_path / "out.zarr").tolist() == [str(ODD), str(ODD - 1), str(2**70)]


def test_lines_of_labels_end_at_line_ends_only(tmp_path):
    (tmp_path / "a.txt").write_text("a\u2028b\nc\x0cd\n\n", encoding="utf-8")
    assert read_labels(tmp_path / "a.txt").tolist() == ["a\u2028b", "c\x0cd", None]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,1\n1,1_0\n", "row 2 names '1_0'"),
        ("0,1\n1,１\n", "row 2 names '１'"),
        (f"0,1\n1,{2**70}\n", "row 2 names"),
        ("0,1\n1,1e300\n", "names '1e\\+300', which is no position"),
        ("0,1,2\n1,2,1_0\n", "row 2 has weight '1_0'; weights are numbers"),
        (f"0,1,1\n1,2,{ODD}\n", f"row 2: the integer {ODD} is beyond 2⁵³"),
    ],
)
def test_lists_of_edges(tmp_path, rows, message):
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        open_graph(tmp_path / "a.csv", samples=20, direction="undirected")
    with pytest.raises(DataError, match=message):
        ingest_graph(tmp_path / "a.csv", tmp_path / "out.zarr", samples=20, direction="undirected")


@given(st.one_of(st.integers(-(2**70), 2**70), st.integers(2**53 - 9, 2**53 + 9)))
def test_integers_are_equal_or_refused(number):
    try:
        assert int(real(str(number))) == number
    except ValueError:
        assert int(float(number)) != number


@given(st.floats(allow_nan=False))
def test_floats_are_equal(number):
    assert real(repr(number)) == number


@given(st.lists(st.one_of(st.integers(-(2**65), 2**65), st.integers(2**53 - 3, 2**53 + 3)), min_size=1))
def test_labels_are_the_numbers_that_were_written(numbers):
    found = numbers_of(map(str, numbers))
    assert found is None or [int(value) for value in found] == numbers


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(2**53 - 3, 2**53 + 3) | st.just(2**64 - 1), min_size=1))
def test_inexact_integers_are_found(numbers):
    expected = [int(float(number)) != number for number in numbers]
    assert inexact(np.array(numbers, dtype=np.uint64)).tolist() == expected
    signed = [number - 2**63 for number in numbers]
    assert inexact(np.array(signed, dtype=np.int64)).tolist() == [int(float(n)) != n for n in signed]


def test_wide_values_are_read_by_the_door(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:9e99\n0 2:-1e-300\n")
    ingest(tmp_path / "a.svm", tmp_path / "out.zarr")
    assert open_data(tmp_path / "out.zarr").blocks[0].load().toarray().tolist() == [[9e99, 0], [0, -1e-300]]
