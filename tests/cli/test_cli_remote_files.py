"""Files that commands read lie anywhere that fsspec reaches: `local://` stands for an object store."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from dlatent import read_labels
from dlatent.cli.main import main
from dlatent.errors import DataError

ROWS = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and labels, names and rows that correspond in files of every kind."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(ROWS, 5))
    classes = np.arange(ROWS) % 3
    np.save(folder / "values.npy", values)
    np.save(folder / "columns.npy", np.asfortranarray(values))
    np.save(folder / "labels.npy", classes)
    np.savez(folder / "labels.npz", y=classes)
    (folder / "labels.txt").write_text("\n".join(np.array(["art", "", "sea"])[classes]))
    for suffix in ("csv", "tsv"):
        (folder / f"labels.{suffix}").write_text("kind\n" + "".join(f"{kind}\n" for kind in classes))
    (folder / "names.txt").write_text("a\nb\nc\nd\ne\n")
    (folder / "names.npy").write_text("a\nb\n")
    np.save(folder / "rows.npy", np.stack([np.arange(40)] * 2, axis=1))
    (folder / "rows.csv").write_text("left,right\n" + "".join(f"{row},{row}\n" for row in range(40)))
    assert main(["ingest", folder / "values.npy", folder / "values.zarr", "--quiet"]) == 0
    return folder


class PiecesFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that comes by pieces, as those of S3 and of web servers do: its `readline` takes no limit."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return Path(self.path).read_bytes()[start:end]


class Pieces(AbstractFileSystem):  # type: ignore[misc]
    """Local files by `pieces://`."""

    protocol = "pieces"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "size": Path(path).stat().st_size, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> PiecesFile:
        return PiecesFile(self, path, mode, size=Path(path).stat().st_size)


fsspec.register_implementation("pieces", Pieces, clobber=True)


def contents(store: Path) -> dict[str, Any]:
    """All arrays of a store."""
    root = zarr.open_group(store, mode="r")
    return {name: one[...] for name, one in root.members(max_depth=None) if isinstance(one, zarr.Array)}


@pytest.mark.parametrize("name", ["values.npy", "columns.npy"])
@pytest.mark.parametrize("labels", ["labels.npy", "labels.npz", "labels.txt", "labels.csv", "labels.tsv"])
def test_ingest_of_remote_files(run: Any, files: Path, tmp_path: Path, name: str, labels: str) -> None:
    for place, out in ((files, "here"), (f"local://{files}", "there")):
        words = ["--labels", f"{place}/{labels}", "--features", f"{place}/names.txt", "--quiet"]
        assert run("ingest", f"{place}/{name}", tmp_path / out, *words).status == 0
    here, there = contents(tmp_path / "here"), contents(tmp_path / "there")
    assert here.keys() == there.keys()
    for array in here:
        np.testing.assert_array_equal(here[array], there[array])
    assert there["var/_index"].tolist() == list("abcde")


@pytest.mark.parametrize("labels", ["labels.csv#kind", "labels.npy"])
def test_a_fit_with_remote_labels(run: Any, files: Path, tmp_path: Path, labels: str) -> None:
    fit = ["fit", "supervised", f"local://{files}/values.zarr", "-k", "2", "--quiet"]
    assert run(*fit, "--labels", f"local://{files}/{labels}", "-o", tmp_path / "there").status == 0
    assert run(*fit, "--labels", f"{files}/{labels}", "-o", tmp_path / "here").status == 0
    here, there = contents(tmp_path / "here"), contents(tmp_path / "there")
    assert here.keys() == there.keys()
    for name in here:
        np.testing.assert_array_equal(here[name], there[name])


@pytest.mark.parametrize("rows", ["rows.npy", "rows.csv"])
def test_a_fit_with_a_remote_correspondence(run: Any, files: Path, tmp_path: Path, rows: str) -> None:
    views = [f"{side}=local://{files}/values.zarr" for side in ("left", "right")]
    words = ["--correspondence", f"local://{files}/{rows}", "-k", "2", "-o", tmp_path / "model", "--quiet"]
    assert run("fit", "correspondence", *views, *words).status in (0, 6)


def test_remote_files_that_are_not_there(run: Any, files: Path, tmp_path: Path) -> None:
    there, data = f"local://{files}", f"local://{files}/values.zarr"
    pair = ["fit", "correspondence", f"a={data}", f"b={data}"]
    for words in (
        ["ingest", f"{there}/values.npy", tmp_path / "x", "--labels", f"{there}/gone.txt"],
        ["ingest", f"{there}/values.npy", tmp_path / "x", "--features", f"{there}/gone.txt"],
        ["ingest", f"{there}/gone.npy", tmp_path / "x"],
        ["fit", "supervised", data, "-k", "2", "-o", tmp_path / "x", "--labels", f"{there}/gone.csv#kind"],
        [*pair, "--correspondence", f"{there}/gone.npy", "-k", "2", "-o", tmp_path / "x"],
    ):
        ended = run(*words)
        assert ended.status == 3, ended.err
        assert f"{there}/gone" in ended.err
        assert "does not exist; check the path" in ended.err
        assert not (tmp_path / "x").exists()
    with pytest.raises(DataError, match=r"no readable npy file"):
        read_labels(f"{there}/names.npy")


def test_a_remote_file_that_is_no_store(run: Any, files: Path) -> None:
    ended = run("plan", "ppca", f"local://{files}/values.npy", "-k", "2")
    assert ended.status == 3
    assert f"dlatent ingest local://{files}/values.npy OUT.zarr" in ended.err


@pytest.mark.parametrize("name", ["rows.svm", "rows.mtx", "rows.csv", "rows.csv.gz", "edges.csv"])
def test_texts_that_come_by_pieces(run: Any, tmp_path: Path, name: str) -> None:
    texts = {
        "rows.svm": "1 1:2 3:4.5\n0 2:1\n",
        "rows.mtx": "%%MatrixMarket matrix coordinate real general\n% a remark\n2 3 2\n1 1 2\n2 3 4.5\n",
        "rows.csv": "a,b\n1,2.5\n3,4\n",
        "edges.csv": "from,to\n0,1\n1,2\n2,3\n",
    }
    text = texts[name.removesuffix(".gz")].encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    command = ["ingest-graph"] if name.startswith("edges") else ["ingest", "--quiet"]
    options = ["--samples", "4", "--direction", "symmetrise"] if name.startswith("edges") else []
    for place, out in ((tmp_path, "here"), (f"pieces://{tmp_path}", "there")):
        assert run(*command, f"{place}/{name}", tmp_path / out, *options).status == 0
    here, there = contents(tmp_path / "here"), contents(tmp_path / "there")
    assert here.keys() == there.keys()
    for array in here:
        np.testing.assert_array_equal(here[array], there[array])
