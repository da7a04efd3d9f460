"""Which places are one, and what is replaced: laws 1 and 2 of `dlatent.stores.places`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import ZipStore

import dlatent
from dlatent import ingest, rechunk
from dlatent.errors import StoreError
from dlatent.stores.places import read_places, require_apart, require_separate
from tests.s3_server import s3_server

SAME = [
    ("s3://bucket/a.zarr", "s3://bucket/a.zarr/"),
    ("s3://bucket/a.zarr", "S3A://bucket//a.zarr/X"),
    ("s3://bucket/a.zarr", "s3://bucket"),
    ("gs://bucket/a.zarr", "gcs://bucket/a.zarr"),
    ("memory://a", "memory:///a/b"),
    ("https://u:p@host/a.zarr", "https://host/a.zarr?sig=1"),
    ("filecache::s3://bucket/a.zarr", "s3://bucket/a.zarr"),
    ("zip://a.zarr::s3://bucket/a.zip", "s3://bucket/a.zip"),
    ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a/b"),
]
APART = [
    ("s3://bucket/a.zarr", "s3://bucket/a.zarr.new"),
    ("s3://bucket/a", "s3://bucket/A"),
    ("s3://bucket/a.zarr", "s3://other/a.zarr"),
    ("s3://bucket/a.zarr", "gs://bucket/a.zarr"),
    ("s3://bucket/a.zarr", "/bucket/a.zarr"),
    ("abfs://one@account.dfs.core.windows.net/a", "abfs://two@account.dfs.core.windows.net/a"),
    ("memory://a", "memory://b"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_urls_of_one_place(one: str, other: str) -> None:
    for output, other_output in ((one, other), (other, one)):
        with pytest.raises(StoreError, match="choose another place"):
            require_apart(output, other_output)
        with pytest.raises(StoreError, match="give two places"):
            require_separate(output, None, other_output)


@pytest.mark.parametrize(("one", "other"), APART)
def test_urls_of_two_places(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ENDPOINT_URL", "http://127.0.0.1:1"), ("AWS_MAX_ATTEMPTS", "1")):
        monkeypatch.setenv(name, value)
    require_separate(one, other)


def test_local_places_are_known_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep" / "a.zarr").mkdir(parents=True)
    os.symlink("deep", tmp_path / "link")
    os.symlink(tmp_path / "deep" / "a.zarr", tmp_path / "a")
    for spelled in (
        "a",
        "link/a.zarr",
        "deep/../link/./a.zarr/",
        tmp_path / "deep" / "a.zarr" / "X",
        "deep",
        "a/new",
        f"file://{tmp_path}/deep/a.zarr",
        f"FILE://{tmp_path}/deep/a.zarr",
        f"simplecache::{tmp_path}/link/a.zarr",
    ):
        with pytest.raises(StoreError, match="choose another place"):
            require_apart(spelled, "deep/a.zarr")
    for spelled in ("b", "deep/a.zarr.new", "deep/a", "link/b", "..a"):
        require_apart(spelled, "deep/a.zarr", None, np.eye(2), ["deep/a.zarr"], "absent")
    require_apart("absent", "absent")  # nothing is there to be lost


def test_a_store_in_an_archive_is_its_archive(tmp_path: Path) -> None:
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.create_array(store, name="X", data=np.eye(3))
    array = zarr.open_group(ZipStore(tmp_path / "a.zip", mode="r"), mode="r")["X"]
    assert read_places(array) == (str(tmp_path / "a.zip"),)


def test_object_stores_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 5)))
    with s3_server(tmp_path) as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        type(s3.files).clear_instance_cache()
        data, model = "s3://stores/a.zarr", "s3://stores/m.zarr"
        ingest(tmp_path / "x.npy", data)
        dlatent.PPCA(2).fit(data).save(model)
        before = s3.contents()
        for call in (
            lambda: dlatent.PPCA(2).fit(data).save("s3://stores/a.zarr/", overwrite=True),
            lambda: dlatent.PPCA(2).fit(data).save("S3A://stores/a.zarr/X", overwrite=True),
            lambda: dlatent.PPCA(2).fit(f"{data}/X").save(f"{data}/obs", overwrite=True),
            lambda: dlatent.PPCA(2).fit(zarr.open_group(data, mode="r")["X"]).save(data, overwrite=True),
            lambda: dlatent.load(model).transform(data, out=model, overwrite=True),
            lambda: dlatent.load(model).transform(data, out=data, overwrite=True, resume=True),
            lambda: ingest(data, f"{data}/X", overwrite=True),
            lambda: rechunk(data, data, overwrite=True),
        ):
            with pytest.raises(StoreError, match="choose another place"):
                call()
            assert s3.contents() == before
        dlatent.load(model).transform(data, out="s3://stores/t.zarr")
        dlatent.load(model).transform(data, out="s3://stores/t.zarr", overwrite=True)
        s3.files.pipe_file("stores/t.zarr/thesis.txt", b"three years")
        before = s3.contents()
        with pytest.raises(StoreError, match=r"thesis\.txt"):
            dlatent.load(model).transform(data, out="s3://stores/t.zarr", overwrite=True)
        assert s3.contents() == before
