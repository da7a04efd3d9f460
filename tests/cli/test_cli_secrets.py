"""No credential of a URL reaches a message, a plan, a repr, a saved file or standard output."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem

import dlatent
from dlatent.errors import DlatentError, StoreError, masked
from dlatent.stores.ingest import ingest
from dlatent.stores.open import open as open_data

SECRET = "hunter2"
HOST = f"vault://ann:{SECRET}@bucket"


class Vault(MemoryFileSystem):  # type: ignore[misc]
    """As a file system whose paths are whole URLs (as those of http are), with credentials and all."""

    protocol = ("vault",)
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return "/" + str(path).removeprefix("vault://").strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return "vault://" + name.lstrip("/")


@pytest.fixture(autouse=True)
def _vault() -> Iterator[None]:
    fsspec.register_implementation("vault", Vault, clobber=True)
    Vault.store.clear()
    yield
    Vault.store.clear()


def test_what_is_masked() -> None:
    for text, shown in (
        (f"s3://k:{SECRET}@host/b?x={SECRET}", "s3://***@host/b?***"),
        (f"cannot open https://h/x.zarr?X-Amz-Signature={SECRET}&a=b: gone", "cannot open https://h/x.zarr?***: gone"),
        (f"a 'simplecache::ftp://u:p@{SECRET}@h/x', b", "a 'simplecache::ftp://***@h/x', b"),
        ("s3://bucket/a@2.zarr", "s3://bucket/a@2.zarr"),
        ("why? mail a@b", "why? mail a@b"),
    ):
        assert masked(text) == shown
        assert str(StoreError(text)) == shown
    error = pickle.loads(pickle.dumps(StoreError(HOST)))
    assert str(error) == "vault://***@bucket"


def test_a_secret_is_nowhere_to_be_seen(run: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((60, 5)) + 3
    np.save(tmp_path / "x.npy", x)
    seen: list[str] = []
    report = ingest(tmp_path / "x.npy", f"{HOST}/x.zarr")
    source = open_data(f"{HOST}/x.zarr")
    model = dlatent.PPCA(2).fit(f"{HOST}/x.zarr")
    kernel = dlatent.KernelPPCA(2, kernel_store=f"{HOST}/k.zarr", solver="memory").fit(f"{HOST}/x.zarr")
    seen += map(repr, (report, source, model, model.plan(f"{HOST}/x.zarr"), model.result_, model._fitted.plan))
    seen += [str(model.plan(f"{HOST}/x.zarr"))]
    for fitted, name in ((model, "m.zarr"), (kernel, "k.zarr")):
        fitted.save(tmp_path / name)
        fitted.save(f"{HOST}/{name}")
    for words in (
        ["ingest", tmp_path / "x.npy", f"{HOST}/y.zarr"],
        ["ingest", tmp_path / "x.npy", f"{HOST}/y.zarr"],
        ["ingest", f"{HOST}/absent.csv?sig={SECRET}", tmp_path / "y.zarr"],
        ["plan", "ppca", f"{HOST}/x.zarr", "-k", "2"],
        ["fit", "ppca", f"{HOST}/x.zarr", "-k", "2", "-o", f"{HOST}/n.zarr"],
        ["fit", "ppca", f"{HOST}/x.zarr", "-k", "9", "-o", f"{HOST}/o.zarr"],
        ["fit", "ppca", f"{HOST}/absent.zarr", "-k", "2", "-o", f"{HOST}/o.zarr"],
        ["fit", "ppca", f"{HOST}/absent.zarr?sig={SECRET}", "-k", "2", "-o", f"{HOST}/o.zarr"],
        ["transform", f"{HOST}/m.zarr", f"{HOST}/x.zarr", "-o", f"{HOST}/z.zarr"],
        ["inspect", f"{HOST}/m.zarr"],
        ["inspect", f"{HOST}/x.zarr"],
        ["inspect", f"{HOST}/k.zarr", "--json"],
        ["inspect", f"{HOST}/x.zarr", "--json"],
        ["inspect", tmp_path / "k.zarr", "--json"],
    ):
        said = run(*words)
        seen += [said.out, said.err]
    for words in (["plan", "ppca", f"{HOST}/x.zarr", "-k", "2"], ["inspect", f"{HOST}/m.zarr"]):
        seen.append(run(*words, "--json").out)
    x_url, m_url = f"{HOST}/x.zarr", f"{HOST}/m.zarr"
    for wrong in (lambda: dlatent.load(x_url), lambda: open_data(m_url), lambda: model.save(m_url)):
        with pytest.raises(DlatentError) as caught:
            wrong()
        seen += [str(caught.value), repr(caught.value)]
    for text in seen:
        assert SECRET not in text
    assert any("vault://***@bucket/x.zarr" in text for text in seen)
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            assert SECRET.encode() not in (Path(folder) / name).read_bytes()
    for name, file in Vault.store.items():
        assert SECRET.encode() not in file.getvalue(), name
    assert zarr.open_group(f"{HOST}/x.zarr", mode="r")["X"].shape == (60, 5)


def test_sources_of_signed_urls_are_named_without_signature(tmp_path: Path) -> None:
    with fsspec.open(f"vault://bucket/rows.csv?sig={SECRET}", "wb") as stream:
        stream.write(b"a,b\n1,2\n2,3\n4,9\n")
    report = ingest(f"vault://bucket/rows.csv?sig={SECRET}", tmp_path / "x.zarr")
    assert report.shape == (3, 2)
    assert zarr.open_group(tmp_path / "x.zarr", mode="r").attrs["dlatent"]["sources"] == ["rows.csv"]
    with fsspec.open(f"vault://bucket/rows.csv?sig={SECRET}", "wb") as stream:
        stream.write(b"a,b\n1,x\n")
    with pytest.raises(DlatentError) as caught:
        ingest(f"vault://bucket/rows.csv?sig={SECRET}", tmp_path / "y.zarr")
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))
