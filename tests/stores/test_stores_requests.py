"""What a server is asked for: each document once, each chunk, and no list of more than the store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from s3_server import S3, s3_server

from dlatent import PPCA, load

ROWS, FEATURES, CHUNKS = 12_500, 100, 10
RUN = "import sys; from dlatent.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def x(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> str:
    """10 MB in ten chunks, with names of rows and columns."""
    file, place = tmp_path_factory.mktemp("files") / "x.npy", "s3://stores/x.zarr"
    np.save(file, np.random.default_rng(0).normal(size=(ROWS, FEATURES)))
    asked(s3, "ingest", str(file), place, "--block-size", "1MB", "--quiet")
    array = zarr.open_array(f"{place}/X", mode="r", storage_options=s3.options)
    assert array.nchunks == CHUNKS
    return place


def asked(s3: S3, *words: str) -> Counter[tuple[str, str]]:
    """The requests of a command."""
    before = len(s3.requests())
    environment = {**os.environ, **s3.environment}
    ended = subprocess.run([sys.executable, "-c", RUN, *words], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return Counter(s3.requests()[before:])


def check(requests: Counter[tuple[str, str]], most: int, new: str, model: str = "m.zarr") -> None:
    """Few requests, each document and chunk of a new store written once and not read, and lists inside of stores."""
    said = "\n".join(f"{count} {verb} {key}" for (verb, key), count in requests.most_common())
    assert requests.total() <= most, said
    for (verb, key), count in requests.items():
        assert verb != "LIST" or key.startswith(("x.zarr/", f"{new}/", f"{model}/")), said
        if key.startswith(f"/stores/{new}/"):
            # The root says first that the store is not complete, and at last that it is.
            assert (verb, count) == ("PUT", 2 if key == f"/stores/{new}/zarr.json" else 1), said


def test_the_requests_of_a_fit_and_of_a_transform(s3: S3, x: str, tmp_path: Path) -> None:
    model = "s3://stores/m.zarr"
    check(asked(s3, "fit", "ppca", x, "-k", "3", "-o", model, "--quiet"), 60, "m.zarr")
    check(asked(s3, "transform", model, x, "-o", "s3://stores/s.zarr", "--quiet"), 80, "s.zarr")
    scores = zarr.open_array("s3://stores/s.zarr/scores", mode="r", storage_options=s3.options)
    asked(s3, "transform", model, x, "-o", str(tmp_path / "s.zarr"), "--quiet")
    np.testing.assert_array_equal(scores[...], zarr.open_array(str(tmp_path / "s.zarr" / "scores"), mode="r")[...])


def test_the_requests_of_open_stores(s3: S3, x: str) -> None:
    obstore = pytest.importorskip("obstore.store", reason="obstore is not installed here")

    def place(name: str) -> zarr.storage.ObjectStore:
        server = {"endpoint": s3.options["endpoint_url"], "region": "us-east-1", "client_options": {"allow_http": True}}
        keys = {"access_key_id": s3.options["key"], "secret_access_key": s3.options["secret"]}
        return zarr.storage.ObjectStore(obstore.S3Store("stores", prefix=name, **server, **keys))

    data, model, scores = map(place, ("x.zarr", "open_m.zarr", "open_s.zarr"))
    before = len(s3.requests())
    PPCA(3).fit(data).save(model)
    fitted = len(s3.requests())
    load(model).transform(data, out=scores)
    check(Counter(s3.requests()[before:fitted]), 60, "open_m.zarr")
    check(Counter(s3.requests()[fitted:]), 80, "open_s.zarr", "open_m.zarr")


def test_a_plan_reads_each_document_once_and_no_chunk_of_the_matrix(s3: S3, x: str) -> None:
    requests = asked(s3, "plan", "ppca", x, "-k", "3")
    assert {count for (verb, key), count in requests.items() if key.endswith("zarr.json")} == {1}
    assert not [key for _, key in requests if key.startswith("/stores/x.zarr/X/c/")]
