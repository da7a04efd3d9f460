"""Everything through S3 only, with worker processes: the same bits as on local files, and nothing half-written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from deploy_cases import Command, environment, until
from s3_server import S3, SECRET, s3_server

pytestmark = pytest.mark.slow

ROWS = 4000
RUN = """
import json, sys
from dlatent.cli.main import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    if status not in (0, 6):  # 6: iterations were not enough
        raise SystemExit(f"{status}: {words[0]}")
"""
STORES = ("data", "large", "edges", "model", "scores", "labelled", "data2", "edges2", "relational")
FIT = ["-k", "2", "-m", "3", "--max-iter", "40", "--quiet"]
"""A fit of many passes."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def commands(words: Sequence[Sequence[str]], s3: S3, status: int = 0) -> str:
    """What some commands say, one after the other in one process."""
    line = [sys.executable, "-c", RUN, json.dumps(words)]
    ended = subprocess.run(line, capture_output=True, text=True, env=environment(**s3.environment), timeout=300)
    assert ended.returncode == status, ended.stderr
    assert SECRET not in ended.stdout + ended.stderr
    return ended.stdout if status == 0 else ended.stderr


def contents(place: str, s3: S3) -> dict[str, Any]:
    """All arrays of a store, and the course of a fit."""
    options = s3.options if "://" in place else None
    root = zarr.open_group(place, mode="r", storage_options=options)
    arrays = {name: one[...] for name, one in root.members(max_depth=None) if isinstance(one, zarr.Array)}
    fitted: Any = root.attrs.get("result")
    return arrays if fitted is None else {**arrays, "history": json.dumps(fitted["attributes"]["report"]["history"])}


def sources(folder: Path) -> None:
    """Rows of a known rank with classes, and edges between them."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(ROWS, 6)) * [3, 2.5, 2.2, 2, 1.9, 1.8]
    features = latent @ rng.normal(size=(6, 40)) + rng.normal(size=(ROWS, 40))
    np.savez(folder / "rows.npz", X=features, y=np.where(np.arange(ROWS) % 3, np.arange(ROWS) % 5, -1))
    edges = np.stack([np.arange(ROWS), np.arange(3, ROWS + 3) % ROWS], axis=1)
    (folder / "edges.csv").write_text("from,to\n" + "".join(f"{one},{other}\n" for one, other in edges.tolist()))


def prepare(place: str) -> list[list[str]]:
    """Files become stores."""
    data, joined = f"{place}/data.zarr", ["--data", f"{place}/data.zarr", "--direction", "symmetrise"]
    return [
        ["ingest", f"{place}/rows.npz", data, "--block-size", "100kB", "--quiet"],
        ["ingest-graph", f"{place}/edges.csv", f"{place}/edges.zarr", *joined],
    ]


def who(place: str) -> list[str]:
    """Workers read what is on S3, and this process the files, as bits do not depend on it."""
    return ["--workers", "2"] if "://" in place else []


def use(place: str) -> list[list[str]]:
    """What follows a fit."""
    data, model, workers = f"{place}/data.zarr", f"{place}/model.zarr", [*who(place), "--quiet"]
    labels, relational = f"{data}#label", f"{place}/relational.zarr"
    return [
        ["doctor", data, "--writable", model, *who(place)],
        ["transform", model, data, "-o", f"{place}/scores.zarr", *workers],
        ["transform", model, data, "-o", f"{place}/scores.zarr", *workers, "--overwrite", "--resume"],
        ["fit", "supervised", data, "-k", "2", "--labels", labels, "-o", f"{place}/labelled.zarr", *workers],
        ["rechunk", data, f"{place}/large.zarr", "--chunk-size", "1MB", "--quiet"],
        ["reorder", data, f"{place}/edges.zarr", f"{place}/data2.zarr", f"{place}/edges2.zarr"],
        ["fit", "relational", f"{place}/data2.zarr", "--graph", f"{place}/edges2.zarr", "-k", "2", "-o", relational],
        *(["verify", f"{place}/{name}.zarr"] for name in ("data", "large", "edges", "model", "scores", "relational")),
    ]


def look(place: str) -> list[list[str]]:
    """What is asked of stores."""
    names = ("data", "edges", "scores")
    asked = [["inspect", f"{place}/{name}.zarr", "--json"] for name in names]
    return [*asked, ["plan", "ppca", f"{place}/data.zarr", "-k", "3", "--json"]]


def test_the_whole_way_through_s3(s3: S3, tmp_path: Path) -> None:
    here, there = str(tmp_path), "s3://stores/way"
    sources(tmp_path)
    for name in ("rows.npz", "edges.csv"):
        s3.files.put_file(str(tmp_path / name), f"stores/way/{name}")
    fit = {at: ["fit", "mixture", f"{at}/data.zarr", "-o", f"{at}/model.zarr", *FIT, *who(at)] for at in (here, there)}
    commands([*prepare(here), fit[here], *use(here)], s3)
    commands(prepare(there), s3)
    resumed = [*fit[there], "--checkpoint", f"{there}/kept", "--resume"]
    killed = Command(["dlatent", *resumed], tmp_path, **s3.environment)
    until(lambda: s3.files.exists("stores/way/kept/000005.npz") or killed.process.poll() is not None, 120)
    killed.watch()
    assert killed.end(signal.SIGKILL) < 0, killed.said
    assert not s3.files.exists("stores/way/model.zarr")
    kept = json.loads(commands([["inspect", f"{there}/kept", "--json"]], s3))
    assert 5 <= kept["results"] < 42
    commands([["verify", f"{there}/kept"], resumed, *use(there)], s3)
    assert not s3.files.exists("stores/way/kept/fit.json")
    for name in STORES:
        expected, found = contents(f"{here}/{name}.zarr", s3), contents(f"{there}/{name}.zarr", s3)
        assert found.keys() == expected.keys()
        for array, values in expected.items():
            np.testing.assert_array_equal(found[array], values, err_msg=f"{name} {array}")
    for asked, same in zip(look(here), look(there), strict=True):
        assert commands([same], s3).replace(there, here) == commands([asked], s3)
    names = {name.split("/")[2] for name in s3.contents()}
    assert names == {"rows.npz", "edges.csv", *(f"{name}.zarr" for name in STORES)}
    for name, content in s3.contents().items():
        assert SECRET.encode() not in content, name
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


def test_an_ingest_to_s3_that_ends_early(s3: S3, tmp_path: Path) -> None:
    """Terminated it leaves nothing, killed nothing that opens; what it was to replace is gone in both cases."""
    lines = "".join(f"{row % 3} {row % 7 + 1}:1.5 {row % 11 + 9}:2 30:{row}\n" for row in range(900_000))
    (tmp_path / "rows.svm").write_text(lines)
    (tmp_path / "few.svm").write_text(lines[: lines.index("\n", 10_000) + 1])
    place = "s3://stores/early/x.zarr"
    words = ["dlatent", "ingest", "rows.svm", place, "--block-size", "20kB"]

    def begun() -> Command:
        command = Command(words, tmp_path, **s3.environment)
        chunk = "stores/early/x.zarr/X/data/c/0"
        until(lambda: s3.files.exists(chunk) or command.process.poll() is not None, 120, lambda: command.said)
        return command

    terminated = begun()
    assert terminated.end(signal.SIGTERM) == 143, terminated.said
    assert not [name for name in s3.contents() if "early" in name]
    killed = begun()
    assert killed.end(signal.SIGKILL) < 0, killed.said
    for command in (["plan", "ppca", place, "-k", "2"], ["verify", place], ["ingest", place, str(tmp_path / "y")]):
        assert "half-written store" in commands([command], s3, status=1)
    assert "already exists" in commands([["ingest", str(tmp_path / "few.svm"), place]], s3, status=1)
    few = ["ingest", str(tmp_path / "few.svm"), "--quiet", "--overwrite"]
    commands([[*few, place], [*few, str(tmp_path / "few")], ["verify", place]], s3)
    expected, found = contents(str(tmp_path / "few"), s3), contents(place, s3)
    assert found.keys() == expected.keys()
    for array, values in expected.items():
        np.testing.assert_array_equal(found[array], values)


def test_errors_of_s3_name_the_place_and_no_secret(s3: S3, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 4)))
    data, model = "s3://stores/errors/x.zarr", "s3://stores/errors/model.zarr"
    fit = ["--debug", "fit", "ppca", data, "-k", "2", "-o"]
    commands([["ingest", str(tmp_path / "x.npy"), data], [*fit, model]], s3)
    for words, said in (
        ([*fit, "s3://no-bucket/m.zarr"], "cannot write a store at s3://no-bucket/m.zarr"),
        ([*fit, model], "already exists"),
        ([*fit, f"{model}2", "--checkpoint", "s3://no-bucket/kept"], "checkpoint s3://no-bucket/kept"),
        (["--debug", "plan", "ppca", "s3://no-bucket/x.zarr", "-k", "2"], "s3://no-bucket/x.zarr"),
        (["--debug", "plan", "ppca", "s3://stores/x.npy", "-k", "2"], "s3://stores/x.npy is no Zarr store"),
        (["--debug", "ingest", "s3://stores/gone.csv", data, "--overwrite"], "s3://stores/gone.csv does not exist"),
        (["plan", "ppca", f"s3://user:{SECRET}@stores/x.zarr", "-k", "2"], "AWS_SECRET_ACCESS_KEY"),
    ):
        assert said in commands([words], s3, status=1)
    silent = S3({**s3.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}, {}, None)
    assert "check that it is within reach" in commands([["--debug", "plan", "ppca", data, "-k", "2"]], silent, status=1)
    commands([["verify", data], ["inspect", model]], s3)  # a mistake has replaced nothing
