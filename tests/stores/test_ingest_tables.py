import gzip
import importlib

import anndata
import numpy as np
import pandas as pd
import pytest
from ingest_checks import matrix, names

from dlatent import ingest, read_labels
from dlatent.errors import DataError


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    rows = 57
    numbers = {"height": rng.normal(size=rows), "age": rng.integers(0, 90, rows), "member": rng.random(rows) < 0.5}
    groups = rng.choice(["b", "a"], rows)
    return pd.DataFrame(
        {"id": [f"p{i}" for i in range(rows)], **numbers, "group": groups, "score": rng.normal(size=rows)}
    )


WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.to_parquet(path, row_group_size=20),
}


@pytest.mark.parametrize("kind", list(WRITERS))
@pytest.mark.parametrize("block_bytes", [1000, 1 << 25])
def test_columns_by_name(tmp_path, frame, kind, block_bytes):
    WRITERS[kind](frame, tmp_path / f"a.{kind}")
    report = ingest(tmp_path / f"a.{kind}", tmp_path / "a.zarr", labels="group", ids="id", block_bytes=block_bytes)
    expected = frame[["height", "age", "member", "score"]].to_numpy(dtype=np.float64)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), expected)
    assert names(tmp_path / "a.zarr", "var") == ["height", "age", "member", "score"]
    assert names(tmp_path / "a.zarr", "obs") == frame["id"].tolist()
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr", "group"), frame["group"])
    assert report.label_column == "group"
    assert anndata.read_zarr(tmp_path / "a.zarr").obs["group"].tolist() == frame["group"].tolist()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_several_label_columns_and_chosen_features(tmp_path, frame, kind):
    frame.loc[3, "score"] = np.nan
    WRITERS[kind](frame, tmp_path / f"a.{kind}")
    ingest(tmp_path / f"a.{kind}", tmp_path / "a.zarr", labels=["score", "age"], features=["height", "member"])
    np.testing.assert_array_equal(read_labels(tmp_path / "a.zarr"), frame[["score", "age"]].to_numpy())
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), frame[["height", "member"]].to_numpy(dtype=float))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_several_files_continue_one_another(tmp_path, frame, kind):
    paths = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for path, part in zip(paths, (frame[:20], frame[20:]), strict=True):
        WRITERS[kind](part, path)
    ingest(paths, tmp_path / "a.zarr", labels="group", features=["height"])
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr")[:, 0], frame["height"])
    WRITERS[kind](frame.drop(columns="height"), paths[1])
    with pytest.raises(DataError, match=rf"1\.{kind} has no column 'height'; it has id, age"):
        ingest(paths, tmp_path / "b.zarr", labels="group", features=["height"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2", "-1"], [1, 2, -1]),
        (["1", "", "2.5"], [1, np.nan, 2.5]),
        (["1", "", "x"], ["1", None, "x"]),
        (["NA", "x", "y"], [None, "x", "y"]),
    ],
)
def test_labels_in_text_are_numbers_where_all_are(tmp_path, values, expected):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"1,{value}\n" for value in values))
    ingest(tmp_path / "a.csv", tmp_path / "a.zarr", labels="y", block_bytes=1)
    found = read_labels(tmp_path / "a.zarr")
    assert len(found) == 3
    for left, right in zip(found, expected, strict=True):
        assert left == right or (left != left and right != right)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_wrong_is_named(tmp_path, frame, kind):
    path = tmp_path / f"a.{kind}"
    WRITERS[kind](frame, path)
    with pytest.raises(DataError, match=rf"a\.{kind} row 1, column 'id': 'p0' is not a number; name the columns"):
        ingest(path, tmp_path / "a.zarr", labels="group")
    with pytest.raises(DataError, match=rf"a\.{kind} has no column 'grup'; it has id, height"):
        ingest(path, tmp_path / "a.zarr", labels="grup")
    frame.loc[41, "age"] = np.nan
    WRITERS[kind](frame, path)
    with pytest.raises(DataError, match=rf"a\.{kind} row 42, column 2 \('age'\): the value is nan; missing"):
        ingest(path, tmp_path / "a.zarr", labels="group", ids="id", block_bytes=500)
    with pytest.raises(DataError, match="no column left"):
        ingest(path, tmp_path / "a.zarr", features=[])
    assert [entry.name for entry in tmp_path.iterdir()] == [f"a.{kind}"]


def test_csv_that_is_no_table(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    with pytest.raises(DataError, match="line 1 holds numbers, not the names"):
        ingest(tmp_path / "a.csv", tmp_path / "a.zarr")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(DataError, match=r"b\.csv is no readable table: .*line 3"):
        ingest(tmp_path / "b.csv", tmp_path / "a.zarr")
    (tmp_path / "c.csv").write_text("a,b\n1,2\n1,4x\n")
    with pytest.raises(DataError, match=r"c\.csv row 2, column 'b': '4x' is not a number"):
        ingest(tmp_path / "c.csv", tmp_path / "a.zarr")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DataError, match=r"d\.parquet is no readable Parquet"):
        ingest(tmp_path / "d.parquet", tmp_path / "a.zarr")


ROW_NAMES = {"r.csv": ',"a","b"\n', "r.tsv": '"a","b"\n', "pandas.csv.gz": ",a,b\n", "table.csv": "a,b\n"}


@pytest.mark.parametrize("name", ROW_NAMES)
def test_a_field_more_than_the_header_has_names_the_rows(tmp_path, name):
    text = ROW_NAMES[name] + "".join(f'"r,{row}",{row},{row}.5\n' for row in range(900))
    text = text.replace('"r,', '"r;').replace(",", "\t") if "tsv" in name else text
    opened = gzip.open if name.endswith("gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.write(text)
    ingest(tmp_path / name, tmp_path / "a.zarr", block_bytes=1000)
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), np.arange(900)[:, None] + [0, 0.5])
    assert names(tmp_path / "a.zarr", "var") == ["a", "b"]
    assert names(tmp_path / "a.zarr", "obs")[-1] == ("r;899" if "tsv" in name else "r,899")
    ingest(tmp_path / name, tmp_path / "b.zarr", labels="b")
    np.testing.assert_array_equal(read_labels(tmp_path / "b.zarr"), np.arange(900) + 0.5)
    if not name.endswith("gz"):
        np.testing.assert_array_equal(read_labels(tmp_path / name, "b"), np.arange(900) + 0.5)


@pytest.mark.parametrize("first", ["1,2\n", '"1",2\n', "1,2\r\n", "r,1,2\n", '"r\nr",1,2\n'])
@pytest.mark.parametrize("wrong", ["1\n", "1,2,3,4\n", "other"])
def test_rows_of_other_numbers_of_fields_are_errors_with_their_line(tmp_path, first, wrong):
    wrong = wrong if wrong != "other" else "1,2\n" if first.count(",") > 1 else "r,1,2\n"
    (tmp_path / "a.csv").write_text("a,b\n" + 700 * first + wrong + 5 * first, newline="")
    fields, line = wrong.count(",") + 1, 2 + 700 * first.count("\n")
    with pytest.raises(DataError, match=rf"a\.csv is no readable table: line {line} has {fields} field"):
        ingest(tmp_path / "a.csv", tmp_path / "a.zarr", block_bytes=1000, missing="nan")
    with pytest.raises(DataError, match=rf"a\.csv is no readable table: line {line} has {fields} field"):
        read_labels(tmp_path / "a.csv", "b")


def test_a_separator_at_the_ends_of_rows_alone_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2,\n3,4,\n")
    with pytest.raises(DataError, match="line 2 has 3 fields, expected 2"):
        ingest(tmp_path / "a.csv", tmp_path / "a.zarr")


def test_quotes_that_do_not_end_are_an_error(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n1,2\n"3,4\n' + 99 * "1,2\n")
    with pytest.raises(DataError, match=r"no readable table: .*EOF inside string"):
        ingest(tmp_path / "a.csv", tmp_path / "a.zarr")


def test_no_index_of_parquet_is_a_feature(tmp_path, frame):
    frame = frame[["height", "score", "age", "group"]].set_index(["age", "group"])
    frame.to_parquet(tmp_path / "a.parquet")
    ingest(tmp_path / "a.parquet", tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), frame)
    frame.assign(name=[f"n{i}" for i in range(len(frame))]).reset_index("group", drop=True).to_parquet(
        tmp_path / "b.parquet"
    )
    ingest(tmp_path / "b.parquet", tmp_path / "b.zarr", ids="name")
    np.testing.assert_array_equal(matrix(tmp_path / "b.zarr"), frame)


def test_parquet_index_names_the_rows(tmp_path, frame):
    frame.set_index("id")[["height", "score"]].to_parquet(tmp_path / "a.parquet")
    ingest(tmp_path / "a.parquet", tmp_path / "a.zarr")
    assert names(tmp_path / "a.zarr", "obs") == frame["id"].tolist()


def test_files_of_different_precision_need_a_dtype(tmp_path):
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path, dtype in zip(paths, (np.float32, np.float64), strict=True):
        pd.DataFrame({"a": np.array([1 / 3, 1], dtype=dtype)}).to_parquet(path)
    with pytest.raises(DataError, match=r"values are float32 at first and float64 later; give dtype"):
        ingest(paths, tmp_path / "a.zarr")
    assert ingest(paths, tmp_path / "a.zarr", dtype="float64").shape == (4, 1)


def test_missing_packages_are_named_with_the_way_to_install_them(tmp_path, frame, monkeypatch):
    WRITERS["parquet"](frame, tmp_path / "a.parquet")
    original = importlib.import_module

    def without(name, package=None):
        if name == "pyarrow":
            raise ImportError("No module named 'pyarrow'")
        return original(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(DataError, match=r"a\.parquet needs the package pyarrow: pip install pyarrow"):
        ingest(tmp_path / "a.parquet", tmp_path / "a.zarr")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.parquet"]


@pytest.mark.parametrize("kind", ["csv", "quoted.csv", "parquet", "categories.parquet", "svm", "mtx"])
def test_numbers_in_text_are_the_nearest(tmp_path, kind):
    rng = np.random.default_rng(0)
    values = rng.normal(size=3000) * 10.0 ** rng.integers(-30, 30, 3000)
    texts = [f"{value:.17g}" if row % 2 else f"{value:.25e}" for row, value in enumerate(values)]
    path, rows = tmp_path / f"a.{kind}", "\n".join(texts)
    if "parquet" in kind:
        column = pd.Series(texts, dtype=object)
        pd.DataFrame({"a": column.astype("category") if kind != "parquet" else column}).to_parquet(path)
    elif kind == "svm":
        path.write_text("\n".join(f"{text} 1:{text}" for text in texts))
    elif kind == "mtx":
        path.write_text(f"%%MatrixMarket matrix array real general\n{len(texts)} 1\n{rows}\n")
    else:
        path.write_text("a\n" + (rows if kind == "csv" else "\n".join(f'"{text}"' for text in texts)))
    ingest(path, tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr")[:, 0], [float(text) for text in texts])
