import bz2
import gzip
import io

import anndata
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_checks import counts, matrix, names, nothing_opens
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from dlatent import ingest, read_labels
from dlatent.errors import DataError
from dlatent.stores.ingest.svmlight import parse_fast, parse_strict
from tests.law_examples import examples

RCV1 = "1,5,7 3:0.2 5:0.5\n5 1:0.25\n 2:1e-3 4:7\n7,1 3:-2 # a remark\n\n# nothing but a remark\n1 5:1\n"


@pytest.mark.parametrize("zero_based", [True, False])
def test_same_matrix_and_labels_as_scikit_learn(tmp_path, zero_based):
    x, y = counts(300), np.arange(300) % 4
    dump_svmlight_file(x, y, str(tmp_path / "a.svm"), zero_based=zero_based)
    report = ingest(tmp_path / "a.svm", tmp_path / "a.zarr", block_bytes=4096)
    expected, labels = load_svmlight_file(str(tmp_path / "a.svm"), zero_based=zero_based)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), expected.toarray())
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr"), labels)
    assert read_labels(tmp_path / "a.zarr").dtype == np.int64
    assert report.shape == expected.shape
    assert report.nnz == expected.nnz
    assert report.bytes_read == (tmp_path / "a.svm").stat().st_size


def test_multi_label_rows_become_outputs_that_anndata_reads(write, tmp_path):
    report = ingest(write(RCV1), tmp_path / "a.zarr")
    y = read_labels(tmp_path / "a.zarr")
    np.testing.assert_array_equal(y, [[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1], [1, 0, 0]])
    read = anndata.read_zarr(tmp_path / "a.zarr")
    np.testing.assert_array_equal(read.obsm["Y"].toarray(), y)
    assert list(read.uns["Y_names"]) == ["1", "5", "7"]
    expected, _ = load_svmlight_file(io.BytesIO(RCV1.encode()), multilabel=True, zero_based=False)
    np.testing.assert_array_equal(read.X.toarray(), expected.toarray())
    assert report.labels == "3 outputs for 5 rows in obsm/Y"


@pytest.mark.parametrize(("opener", "suffix"), [(gzip.open, ".gz"), (bz2.open, ".bz2")])
def test_compressed_files_and_several_files(tmp_path, opener, suffix):
    x = counts(120)
    paths = []
    for number, part in enumerate((x[:50], x[50:])):
        paths.append(tmp_path / f"part{number}.dat{suffix}")
        with opener(paths[-1], "wb") as stream:
            dump_svmlight_file(part, np.full(part.shape[0], number), stream, zero_based=False)
    ingest(paths, tmp_path / "a.zarr", block_bytes=1024)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), x.toarray())
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr"), [0] * 50 + [1] * 70)


@pytest.mark.parametrize(
    "remark", ["# 0:3\n", "1 1:5 # 0:3\n", "1 1:5 #\t0:3 # 0:4\n", "1 1:5 #0:3\r\n", "1 qid:0 1:0\n"]
)
def test_what_is_no_index_does_not_turn_the_base(write, tmp_path, remark):
    path = write(f"1 1:5 2:3\n{remark}")
    ingest(path, tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr")[0], [5, 3])
    for number, row in enumerate(["1 0:5\n", "1\t0:5\n", "1 \v0:5\n", "0:5\n"]):
        ingest(write(f"1 1:3\n{remark}{row}", f"{number}.svm"), tmp_path / f"{number}.zarr")
        np.testing.assert_array_equal(matrix(tmp_path / f"{number}.zarr")[-1], [5, 0])


def test_index_base_is_found_by_index_zero_or_given(write, tmp_path):
    report = ingest(write("1 0:5 2:1\n2 1:1\n"), tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), [[5, 0, 1], [0, 1, 0]])
    assert any("start at 0" in note for note in report.notes)
    ingest(write("1 1:5\n"), tmp_path / "b.zarr", index_base=0, features=4)
    np.testing.assert_array_equal(matrix(tmp_path / "b.zarr"), [[0, 5, 0, 0]])
    with pytest.raises(DataError, match=r"a\.svm line 2: the index of '0:2' is out of the range 1"):
        ingest(write("1 1:5\n1 0:2\n"), tmp_path / "c.zarr", index_base=1)


def test_query_numbers_are_ignored(write, tmp_path):
    ingest(write("1 qid:3 1:2\n0 qid:4 2:7\n"), tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), [[2, 0], [0, 7]])


def test_indices_out_of_order_are_sorted_and_repeated_ones_added(write, tmp_path):
    report = ingest(write("1 3:1 1:2\n0 2:4 2:0.5 1:1\n0 1:1\n"), tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), [[2, 0, 1], [1, 4.5, 0], [1, 0, 0]])
    assert report.duplicates_summed == 1
    assert any("2 rows had indices out of order" in note for note in report.notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2:0.5 x", r"line 3: 'x' is not of the form index:value"),
        ("1 2:abc", r"line 3: the value of '2:abc' is no number"),
        ("1 -2:1", r"line 3: '-2:1' is not of the form"),
        ("1 2.5:1", r"line 3: '2.5:1' is not of the form"),
        ("sport 2:1", r"line 3: the label 'sport' is no number"),
        ("1 1:1 2:nan", r"line 3, column 2: the value is nan"),
        ("1 3:inf", r"line 3, column 3: the value is inf"),
        ("1 99999999999:1", r"line 3: the index of '99999999999:1' is out of the range"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(write, tmp_path, line, message):
    path = write(f"1 1:1\n# remark\n{line}\n1 1:1\n")
    with pytest.raises(DataError, match=r"a\.svm " + message):
        ingest(path, tmp_path / "a.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.svm"]
    assert nothing_opens(tmp_path)


def test_lines_are_counted_across_pieces_and_files(write, tmp_path):
    first = write("1 1:1\n" * 50_000, "first.svm")
    second = write("1 1:1\n" * 30_000 + "1 7\n", "second.svm")
    with pytest.raises(DataError, match=r"^second\.svm line 30001: '7'"):
        ingest([first, second], tmp_path / "a.zarr", block_bytes=1)


def test_empty_files_and_damaged_files(write, tmp_path):
    with pytest.raises(DataError, match="is empty"):
        ingest(write(""), tmp_path / "a.zarr")
    with pytest.raises(DataError, match="no rows to ingest"):
        ingest(write("# only a remark\n"), tmp_path / "a.zarr")
    with pytest.raises(DataError, match="no features to ingest"):
        ingest(write("1\n2\n"), tmp_path / "a.zarr")
    whole = gzip.compress(b"1 1:1\n" * 1000)
    (tmp_path / "cut.svm.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="damaged, cut short"):
        ingest(tmp_path / "cut.svm.gz", tmp_path / "a.zarr")
    (tmp_path / "no.svm.gz").write_bytes(b"1 1:1\n")
    with pytest.raises(DataError, match=r"no\.svm\.gz"):
        ingest(tmp_path / "no.svm.gz", tmp_path / "a.zarr")
    with pytest.raises(DataError, match="does not exist"):
        ingest(tmp_path / "absent.svm", tmp_path / "a.zarr")


def test_number_and_names_of_features(write, tmp_path):
    path = write("1 1:1\n1 3:1\n")
    (tmp_path / "terms.txt").write_text("ape\nbee\ncat\n")
    ingest(path, tmp_path / "a.zarr", features=tmp_path / "terms.txt")
    assert names(tmp_path / "a.zarr", "var") == ["ape", "bee", "cat"]
    assert names(tmp_path / "a.zarr", "obs") == ["0", "1"]
    with pytest.raises(DataError, match=r"a\.svm line 2, column 3: the feature is beyond the 2"):
        ingest(path, tmp_path / "b.zarr", features=2)


def test_labels_from_a_file_replace_those_of_the_rows(write, tmp_path):
    (tmp_path / "y.txt").write_text("ham\n\nspam\n")
    ingest(write("1 1:1\n1 2:1\n1 1:1\n"), tmp_path / "a.zarr", labels=tmp_path / "y.txt")
    assert list(read_labels(tmp_path / "a.zarr")) == ["ham", None, "spam"]
    for wrong in ("ham\nspam\n", "a\nb\nc\nd\n"):
        (tmp_path / "y.txt").write_text(wrong)
        with pytest.raises(DataError, match=r"y\.txt has \d labels, but a\.svm has .*exactly one for each row"):
            ingest(write("1 1:1\n1 2:1\n1 1:1\n"), tmp_path / "b.zarr", labels=tmp_path / "y.txt")


numbers = st.floats(allow_nan=False, allow_infinity=False)
rows = st.tuples(
    st.lists(st.integers(-5, 5), max_size=3), st.dictionaries(st.integers(1, 300), numbers, min_size=1, max_size=6)
)


@settings(max_examples=examples(60))
@given(st.lists(rows, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_both_parsers_agree_on_every_well_formed_text(table, ending):
    lines = [
        ",".join(map(str, labels)) + " " + " ".join(f"{index}:{value!r}" for index, value in sorted(pairs.items()))
        for labels, pairs in table
    ]
    text = "".join(line + ending for line in lines).encode()
    (fast, fast_labels), (strict, strict_labels) = parse_fast(text, 1), parse_strict(text, 1, "a", 1)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(strict, name))
    np.testing.assert_array_equal(fast_labels.values, strict_labels.values)
    np.testing.assert_array_equal(fast_labels.counts, [len(labels) for labels, _ in table])
