"""No command destroys what it reads: its output is no input, lies in none and has none in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from dlatent.cli.main import main
from tests.cli.conftest import Run, low_rank

ONTO_INPUTS = [
    "fit ppca a.zarr -k 2 -o a.zarr --overwrite",
    "fit ppca a.zarr -k 2 -o ./sub/../a.zarr/ --overwrite",
    "fit ppca a.zarr -k 2 -o {here}/a.zarr --overwrite",
    "fit ppca a.zarr -k 2 -o file://{here}/a.zarr --overwrite",
    "fit ppca FILE://{here}/a.zarr -k 2 -o a.zarr --overwrite",
    "fit ppca local://{here}/a.zarr -k 2 -o a.zarr --overwrite",
    "fit ppca a.zarr -k 2 -o local://{here}/a.zarr --overwrite",
    "fit ppca link.zarr -k 2 -o a.zarr --overwrite",
    "fit ppca a.zarr -k 2 -o link.zarr --overwrite",
    "fit ppca a.zarr -k 2 -o linked/a.zarr --overwrite",
    "fit ppca a.zarr/X -k 2 -o a.zarr --overwrite",
    "fit ppca a.zarr/X -k 2 -o a.zarr/obs --overwrite",
    "fit ppca a.zarr -k 2 -o a.zarr/X --overwrite",
    "fit ppca a.zarr -k 2 -o a.zarr/new",
    "fit ppca sub/b.zarr -k 2 -o sub --overwrite",
    "fit ppca a.zarr -k 2 -o new.zarr --checkpoint a.zarr --resume",
    "fit ppca a.zarr -k 2 -o new.zarr --checkpoint a.zarr/c",
    "fit ppca a.zarr -k 2 -o new.zarr --checkpoint new.zarr",
    "fit ppca a.zarr -k 2 -o new.zarr --checkpoint new.zarr/c",
    "fit kernel a.zarr -k 2 -o new.zarr --kernel-store a.zarr/K",
    "fit supervised sub/b.zarr -k 2 --labels a.zarr#kind -o a.zarr --overwrite",
    "fit relational a.zarr -k 2 --graph g.zarr -o g.zarr --overwrite",
    "fit correspondence x=a.zarr y=sub/b.zarr --correspondence rows.csv -k 2 -o a.zarr --overwrite",
    "fit correspondence x=a.zarr y=sub/b.zarr --correspondence rows.csv -k 2 -o sub/b.zarr --overwrite",
    "transform m.zarr a.zarr -o a.zarr --overwrite",
    "transform m.zarr a.zarr -o a.zarr --overwrite --resume",
    "transform m.zarr a.zarr -o m.zarr --overwrite",
    "transform m.zarr a.zarr -o m.zarr/scores",
    "impute m.zarr a.zarr -o a.zarr/X --overwrite",
    "predict s.zarr a.zarr -o a.zarr/zarr.json --overwrite",
    "predict s.zarr a.zarr -o a.zarr/labels.csv",
    "predict s.zarr a.zarr -o s.zarr/zarr.json --overwrite",
    "predict s.zarr sub/b.zarr -o g.zarr/zarr.json --overwrite",
    "plot history m.zarr -o m.zarr/zarr.json --overwrite",
    "plot scores t.zarr --labels labels.csv -o labels.csv --overwrite",
    "ingest a.zarr a.zarr --overwrite",
    "ingest a.zarr a.zarr/X --overwrite",
    "ingest a.zarr link.zarr --overwrite",
    "ingest data.csv new.zarr/x data.csv",
    "ingest-graph g.zarr g.zarr --overwrite",
    "ingest-graph edges.csv a.zarr --data a.zarr --direction undirected --overwrite",
    "rechunk a.zarr a.zarr --overwrite",
    "rechunk a.zarr/X a.zarr --overwrite",
    "rechunk a.zarr a.zarr/again",
    "reorder a.zarr g.zarr a.zarr new.zarr --overwrite",
    "reorder a.zarr g.zarr new.zarr g.zarr --overwrite",
    "reorder a.zarr g.zarr new.zarr new.zarr",
    "reorder a.zarr g.zarr new.zarr new.zarr/g",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, two views of them, a graph, models and scores."""
    folder = tmp_path_factory.mktemp("made")
    features, classes = low_rank(40, 5)
    kinds = ["cat" if kind else "dog" for kind in classes]
    lines = [",".join([*map(repr, row), kind]) for row, kind in zip(features.tolist(), kinds, strict=True)]
    (folder / "data.csv").write_text("\n".join(["a,b,c,d,e,kind", *lines]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["from,to", *(f"{i},{i + 1}" for i in range(39))]) + "\n")
    (folder / "rows.csv").write_text("\n".join(["x,y", *(f"{i},{i}" for i in range(40))]) + "\n")
    (folder / "labels.csv").write_text("\n".join(["kind", *kinds]) + "\n")
    (folder / "sub").mkdir()
    for words in (
        "ingest data.csv a.zarr --labels kind",
        "ingest data.csv sub/b.zarr --labels kind",
        "ingest-graph edges.csv g.zarr --data a.zarr --direction undirected",
        "fit ppca a.zarr -k 2 -o m.zarr",
        "fit supervised a.zarr -k 2 -o s.zarr",
        "transform m.zarr a.zarr -o t.zarr",
    ):
        names = ("data.csv", "edges.csv", "a.zarr", "sub/b.zarr", "g.zarr", "m.zarr", "s.zarr", "t.zarr")
        placed = [str(folder / word) if word in names else word for word in words.split()]
        assert main([*placed, *(["--quiet"] if words.split()[0] != "ingest-graph" else [])]) == 0
    os.symlink("a.zarr", folder / "link.zarr")
    os.symlink(".", folder / "linked")
    return folder


def digest(folder: Path) -> str:
    """Of all that is in a folder: names, links and bytes."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


@pytest.mark.parametrize("words", ONTO_INPUTS)
def test_no_command_writes_onto_what_it_reads(
    run: Run, made: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    before = digest(made)
    said = run(*words.format(here=made).split())
    assert said.status == 3, (said.out, said.err)
    assert "choose" in said.err or "give two places" in said.err
    assert digest(made) == before


@pytest.mark.parametrize(
    "words",
    [
        "transform m.zarr a.zarr -o s.zarr --overwrite",
        "fit ppca a.zarr -k 2 -o a.zarr.new",
        "fit ppca a.zarr -k 2 -o a",
        "transform m.zarr a.zarr -o sub/scores.zarr",
        "rechunk a.zarr sub/a.zarr",
        "predict s.zarr a.zarr -o labels.csv --overwrite",
    ],
)
def test_what_lies_apart_is_written(
    run: Run, made: Path, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    assert run(*words.split()).status == 0


def test_what_is_replaced_is_a_whole_store(
    run: Run, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "copy", symlinks=True)
    here = tmp_path / "copy"
    monkeypatch.chdir(here)
    for name, document in (("braces", "{}"), ("text", "no JSON"), ("other", json.dumps({"zarr_format": 7}))):
        (here / name).mkdir()
        (here / name / "zarr.json").write_text(document)
        (here / name / "thesis.txt").write_text("three years")
    (here / "t.zarr" / "scores" / "thesis.txt").write_text("three years")
    (here / "s.zarr" / "notes").mkdir()
    (here / "s.zarr" / "notes" / "thesis.txt").write_text("three years")
    before = digest(here)
    for name, why in (
        ("braces", "is no Zarr store"),
        ("text", "is no Zarr store"),
        ("other", "is no Zarr store"),
        ("t.zarr", "thesis.txt"),
        ("s.zarr", "thesis.txt"),
        ("sub", "is no Zarr store"),
        ("g.zarr/data", "is a part of a store"),
    ):
        said = run("fit", "ppca", "a.zarr", "-k", "2", "-o", name, "--overwrite")
        assert (said.status, why in said.err, digest(here)) == (3, True, before), said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("fit ppca a.zarr -k 2 -o /", "choose another place"),
        ("fit ppca a.zarr -k 2 -o / --overwrite", "choose another place"),
        ("fit ppca a.zarr -k 2 -o file:/// --overwrite", "names no place"),
        ("fit ppca a.zarr -k 2 -o memory:// --overwrite", "names no place"),
        ("fit ppca a.zarr -k 2 -o @ --overwrite", "names no place"),
        ("fit ppca @ -k 2 -o new.zarr", "names no place"),
        ("fit ppca a\0b -k 2 -o new.zarr", "null character"),
        ("fit ppca a.zarr -k 2 -o new\0.zarr", "null character"),
        ("fit ppca a.zarr -k 2 -o new.zarr --checkpoint c\0", "null character"),
        ("predict s.zarr a.zarr -o / --overwrite", "choose another place"),
        ("predict s.zarr a.zarr -o @ --overwrite", "names no place"),
        ("predict s.zarr a.zarr -o x\0", "null character"),
        ("plot history m.zarr -o x\0.png", "null character"),
        ("rechunk a.zarr /", "choose another place"),
        ("ingest data.csv x\0", "null character"),
        ("ingest x\0.csv new.zarr", "null character"),
        ("fit supervised a.zarr -k 2 --labels x\0.csv -o new.zarr", "null character"),
        ("inspect x\0", "null character"),
        ("verify x\0", "null character"),
    ],
)
def test_what_is_no_place_is_refused(
    run: Run, made: Path, words: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    before = digest(made)
    said = run(*("" if word == "@" else word for word in words.split(" ")))
    assert (said.status, why in said.err) == (3, True), said.err
    assert digest(made) == before
