"""An ingest that was interrupted goes on behind what it had read, to the same store."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
import zarr

from dlatent import ingest, open_data
from dlatent.errors import DataError, StoreError
from dlatent.stores.ingest import svmlight as format_svmlight

ROWS = 12_000
rng = np.random.default_rng(0)
COUNTS = rng.poisson(0.3, size=(ROWS, 30))
COUNTS[::97] = 0


def svmlight(rows: range) -> bytes:
    lines = []
    for i in rows:
        entries = " ".join(f"{j + 1}:{COUNTS[i, j]}" for j in np.flatnonzero(COUNTS[i]))
        lines.append(f"{10_000 + i} {entries}\n" if entries else f"{10_000 + i} 1:0\n")
    return "".join(lines).encode()


def frame(rows: range) -> pd.DataFrame:
    found = pd.DataFrame(COUNTS[rows.start : rows.stop, :6] / 7, columns=[*"abcdef"])
    found["kind"] = [("x", "yy", None, "ü")[i % 4] for i in rows]
    found["name"] = [f"row {i}" for i in rows]
    return found


def two(folder: Path, ending: str, write: Callable[[Path, range], Any]) -> list[Path]:
    places = [folder / f"{name}{ending}" for name in "ab"]
    for place, rows in zip(places, (range(7000), range(7000, ROWS)), strict=True):
        write(place, rows)
    return places


def named(folder: Path) -> dict[str, Any]:
    (folder / "t.txt").write_text("".join(f"C{i % 3}\n" for i in range(ROWS)))
    return {"labels": folder / "t.txt", "weighting": "tfidf", "unit_norm": True, "zero_rows": "drop"}


FORMATS: dict[str, Callable[[Path], tuple[list[Path], dict[str, Any]]]] = {
    "svmlight": lambda f: (two(f, ".svm", lambda place, rows: place.write_bytes(svmlight(rows))), {}),
    "svmlight, weighted, rows dropped, labels of a file": lambda f: (
        two(f, ".svm", lambda place, rows: place.write_bytes(svmlight(rows))),
        named(f),
    ),
    "svmlight, compressed": lambda f: (
        two(f, ".svm.gz", lambda place, rows: place.write_bytes(gzip.compress(svmlight(rows)))),
        {"dtype": "float32"},
    ),
    "csv": lambda f: (
        two(f, ".csv", lambda place, rows: frame(rows).to_csv(place, index=False)),
        {"labels": "kind", "ids": "name"},
    ),
    "parquet": lambda f: (
        two(f, ".parquet", lambda place, rows: frame(rows).to_parquet(place, index=False, row_group_size=2500)),
        {"labels": "kind", "ids": "name"},
    ),
}


def contents(place: Any) -> dict[str, Any]:
    members = zarr.open_group(place, mode="r", use_consolidated=False).members(max_depth=None)
    return {name: (dict(one.attrs), one[...] if isinstance(one, zarr.Array) else None) for name, one in members}


def assert_same(found: Any, expected: Any) -> None:
    found, expected = contents(found), contents(expected)
    assert found.keys() == expected.keys()
    for name, (attributes, values) in expected.items():
        assert found[name][0] == attributes, name
        np.testing.assert_array_equal(found[name][1], values, err_msg=name)


def interrupted_at(number: int) -> Callable[..., None]:
    left = iter(range(number))

    def progress(*_: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return progress


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_the_store_is_that_of_one_that_was_not_interrupted(tmp_path: Path, kind: str) -> None:
    sources, options = FORMATS[kind](tmp_path)
    options = {**options, "block_bytes": 1 << 17}
    ingest(sources, tmp_path / "whole.zarr", **options)
    place = tmp_path / "out" / "x.zarr"
    batches = 0
    for number in (0, 1, 3):
        with pytest.raises(KeyboardInterrupt):
            ingest(sources, place, resume=True, progress=interrupted_at(batches + number), **options)
        batches += number
        assert [one.name for one in place.parent.iterdir()] == ["x.zarr.checkpoint"]
        assert len(list((tmp_path / "out/x.zarr.checkpoint").glob("*.npz"))) == batches + 1
    ingest(sources, place, resume=True, **options)
    assert [one.name for one in place.parent.iterdir()] == ["x.zarr"]
    assert_same(place, tmp_path / "whole.zarr")


def test_what_is_recorded_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, _ = FORMATS["svmlight"](tmp_path)
    parsed = {place.name: b"" for place in sources}
    parse = format_svmlight.parse

    def counting(text: bytes, base: int, name: str, line: int) -> Any:
        assert line == parsed[name].count(b"\n") + 1
        parsed[name] += text
        return parse(text, base, name, line)

    monkeypatch.setattr(format_svmlight, "parse", counting)
    for number in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            ingest(sources, tmp_path / "x.zarr", block_bytes=1 << 17, resume=True, progress=interrupted_at(number))
    ingest(sources, tmp_path / "x.zarr", block_bytes=1 << 17, resume=True)
    assert parsed == {place.name: place.read_bytes() for place in sources}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"block_bytes": 1 << 18}, "options block_bytes was 131072 and is 262144"),
        ({"labels": "name"}, "options labels was 'kind' and is 'name'"),
        ({"missing": "nan"}, "options missing"),
        ("another file", "ingest was"),
        ("another value", "files .*a.csv values"),
        ("another row", "files .*b.csv bytes"),
    ],
    ids=str,
)
def test_another_ingest_is_refused_with_what_differs(tmp_path: Path, change: Any, differs: str) -> None:
    sources, options = FORMATS["csv"](tmp_path)
    options = {**options, "block_bytes": 1 << 17}
    with pytest.raises(KeyboardInterrupt):
        ingest(sources, tmp_path / "x.zarr", resume=True, progress=interrupted_at(2), **options)
    if isinstance(change, dict):
        options.update(change)
    elif change == "another file":
        sources = sources[:1]
    elif change == "another value":
        text = sources[0].read_bytes()
        sources[0].write_bytes(text.replace(b"row 17\n", b"row 71\n"))
    else:
        sources[1].write_bytes(sources[1].read_bytes() + b"0,0,0,0,0,0,x,last\n")
    with pytest.raises(StoreError, match=differs):
        ingest(sources, tmp_path / "x.zarr", resume=True, **options)


def test_errors_name_the_line_of_the_file(tmp_path: Path) -> None:
    text = svmlight(range(ROWS)).split(b"\n")
    text[10_500] += b" 3:oops"
    (tmp_path / "a.svm").write_bytes(b"\n".join(text))
    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "a.svm", tmp_path / "x.zarr", block_bytes=1 << 17, resume=True, progress=interrupted_at(2))
    for _ in range(2):
        with pytest.raises(DataError, match=r"a\.svm line 10501: the value of '3:oops'"):
            ingest(tmp_path / "a.svm", tmp_path / "x.zarr", block_bytes=1 << 17, resume=True)


def test_other_formats_say_that_they_begin_anew(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    with pytest.raises(
        DataError, match="an ingest of npy cannot go on where it was, only one of svmlight, csv, parquet"
    ):
        ingest(tmp_path / "a.npy", tmp_path / "x.zarr", resume=True)
    assert [one.name for one in tmp_path.iterdir()] == ["a.npy"]


def test_an_object_store_has_the_checkpoint_beside_the_half_written_store(tmp_path: Path) -> None:
    files, base = fsspec.filesystem("memory"), f"memory://{tmp_path.name}"
    files.pipe(f"/{tmp_path.name}/a.svm", svmlight(range(ROWS)))
    ingest(f"{base}/a.svm", f"{base}/whole.zarr", block_bytes=1 << 17)
    with pytest.raises(KeyboardInterrupt):
        ingest(f"{base}/a.svm", f"{base}/x.zarr", block_bytes=1 << 17, resume=True, progress=interrupted_at(3))
    # One that is killed leaves a store that says that it is unfinished.
    zarr.open_group(f"{base}/x.zarr", mode="w", attributes={"dlatent": {"complete": False}})
    ingest(f"{base}/a.svm", f"{base}/x.zarr", block_bytes=1 << 17, resume=True)
    assert open_data(f"{base}/x.zarr").shape == (ROWS, 30)
    assert_same(f"{base}/x.zarr", f"{base}/whole.zarr")
    assert not files.exists(f"/{tmp_path.name}/x.zarr.checkpoint")
    with pytest.raises(StoreError, match="already exists"):
        ingest(f"{base}/a.svm", f"{base}/x.zarr", block_bytes=1 << 17, resume=True)
