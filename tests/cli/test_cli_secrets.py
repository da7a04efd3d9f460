"""No credential of a URL reaches a message, a plan, a repr, a saved file or standard output."""

from __future__ import annotations

import http.server
import logging
import os
import pickle
import threading
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from fsspec.implementations.memory import MemoryFileSystem

import dlatent
from dlatent import ingest, open_data
from dlatent.errors import DlatentError, StoreError, masked
from dlatent.stores.graph.open import open_graph

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
        (f"s3://k:{SECRET}/+{SECRET}@bucket/x", "s3://***@bucket/x"),
        (f"s3://k:{SECRET}'s@bucket/a@2.zarr", "s3://***@2.zarr"),  # rather too much than too little
        (f"['https://h:80/x?a='{SECRET}', 'b']", "['https://h:80/x?***', 'b']"),
        (f"s3://k:{SECRET}@bucket/a@2.zarr", "s3://***@bucket/a@2.zarr"),
        ("http://host:8080/a@2.zarr", "http://host:8080/a@2.zarr"),
        ("s3://bucket/a@2.zarr", "s3://bucket/a@2.zarr"),
        ("why? mail a@b", "why? mail a@b"),
    ):
        assert masked(text) == shown
        assert str(StoreError(text)) == shown
    for text, shown in (
        (f"/ann:{SECRET}@bucket/no.zip", "/***@bucket/no.zip"),  # what a file system says that has cut the scheme off
        (f"/bucket/no.zip?sig={SECRET}: gone", "/bucket/no.zip?***: gone"),
        ("rows 0:5 of a@b, as x?y", "rows 0:5 of a@b, as x?y"),
    ):
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
    seen += map(repr, (report, source, model, model.plan(f"{HOST}/x.zarr"), model.result_, model.plan_))
    seen += [str(model.plan(f"{HOST}/x.zarr")), repr(kernel), kernel._repr_html_()]
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
        ["verify", f"{HOST}/x.zarr"],
        ["fit", f"{HOST}/x.zarr", "-k", "2"],  # without the name of a model
        ["inspect", f"{HOST}/m.zarr", f"{HOST}/x.zarr"],
        ["fit", "correspondence", f"{HOST}/x.zarr", "--on", "id", "-k", "2", "-o", f"{HOST}/o.zarr"],
        ["fit", "supervised", f"{HOST}/x.zarr", "-k", "2", "-o", f"{HOST}/o.zarr", "--labels", f"{HOST}/l.zarr#a"],
        ["fit", "relational", f"{HOST}/x.zarr", "-k", "2", "-o", f"{HOST}/o.zarr", "--graph", f"{HOST}/g.csv?{SECRET}"],
        ["plan", "kernel", f"{HOST}/x.zarr", "-k", "2", "--kernel-store", f"{HOST}/kk.zarr"],
        ["plan", "ppca", f"{HOST}/x.zarr", "-k", "2", "--scheduler", f"tls://ann:{SECRET}@127.0.0.1:9"],
    ):
        said = run(*words)
        seen += [said.out, said.err]
    for words in (["plan", "ppca", f"{HOST}/x.zarr", "-k", "2"], ["inspect", f"{HOST}/m.zarr"]):
        seen.append(run(*words, "--json").out)
    x_url, m_url = f"{HOST}/x.zarr", f"{HOST}/m.zarr"
    for wrong in (lambda: dlatent.load(x_url), lambda: open_data(m_url), lambda: model.save(m_url)):
        with pytest.raises(DlatentError) as caught:
            wrong()
        seen += [*traceback.format_exception(caught.value), repr(caught.value)]
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


def test_a_checkpoint_has_no_secret(tmp_path: Path) -> None:
    """That of a fit, in whose header are the hyperparameters, and that of rows, which names the store they go to."""
    x = np.random.default_rng(0).standard_normal((4000, 160)) + 3
    headers = list[str]()

    def look(_: object) -> None:
        headers.append((tmp_path / "fit.checkpoint" / "fit.json").read_text())
        assert SECRET not in headers[-1]

    kernel = dlatent.KernelPPCA(2, kernel_store=f"{HOST}/k.zarr", solver="stored")
    kernel.fit(x[:200, :5], checkpoint=tmp_path / "fit.checkpoint", callbacks=[dlatent.Callback(on_pass=look)])
    assert "vault://***@bucket/k.zarr" in headers[0]
    np.save(tmp_path / "x.npy", x)
    ingest(tmp_path / "x.npy", f"{HOST}/x.zarr", block_bytes=128_000)
    model = dlatent.PPCA(2).fit(f"{HOST}/x.zarr")
    with damaged(f"{HOST}/x.zarr/X/c/15/0"), pytest.raises(StoreError, match="cannot read rows"):
        model.transform(f"{HOST}/x.zarr", out=f"{HOST}/z.zarr", resume=True)
    beside = [file for name, file in Vault.store.items() if "z.zarr.checkpoint" in name]
    assert beside, "nothing to go on with"
    assert [file for file in beside if SECRET.encode() in file.getvalue()] == []
    model.transform(f"{HOST}/x.zarr", out=f"{HOST}/z.zarr", resume=True)
    np.testing.assert_allclose(
        zarr.open_group(f"{HOST}/z.zarr", mode="r")["scores"][:], model.transform(f"{HOST}/x.zarr")
    )


@contextmanager
def damaged(url: str) -> Iterator[None]:
    """One changed bit."""
    vault = Vault()
    whole = vault.cat_file(url)
    vault.pipe_file(url, whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    yield
    vault.pipe_file(url, whole)


def test_logs_of_workers_have_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((200, 5)))
    ingest(tmp_path / "x.npy", f"{HOST}/x.zarr", block_bytes=1000)
    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        logger = logging.getLogger("distributed")
        logger.addHandler(caplog.handler)
        try:
            with damaged(f"{HOST}/x.zarr/X/c/3/0"), pytest.raises(StoreError) as caught:
                dlatent.PPCA(2).fit(f"{HOST}/x.zarr", client=client)
        finally:
            logger.removeHandler(caplog.handler)
    said = [record.getMessage() for record in caplog.records if record.name.startswith(("distributed", "dlatent"))]
    assert any("vault://***@bucket/x.zarr" in text for text in said)
    for text in (*said, *traceback.format_exception(caught.value)):
        assert SECRET not in text


class _Guarded(http.server.BaseHTTPRequestHandler):
    """Gives nothing to anybody."""

    def do_GET(self) -> None:
        self.send_error(403)

    do_HEAD = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_errors_of_web_servers_have_no_secret(run: Any, tmp_path: Path) -> None:
    """Neither those of dlatent, nor the causes that Python shows with them."""
    x, model = np.random.default_rng(0).standard_normal((30, 4)), dlatent.PPCA(2)
    model.fit(x)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://ann:{SECRET}@127.0.0.1:{server.server_port}/x.zarr?X-Amz-Signature={SECRET}"
        for work in (
            lambda: dlatent.load(url),
            lambda: dlatent.PPCA(2).fit(url),
            lambda: ingest(url.replace("x.zarr", "x.csv"), tmp_path / "y.zarr"),
            lambda: model.save(url),
            lambda: model.transform(x, out=url),
            lambda: dlatent.PPCA(2).fit(x, checkpoint=url),
            lambda: dlatent.KernelPPCA(2, kernel_store=url, solver="stored").fit(x),
            lambda: open_graph(url),
        ):
            with pytest.raises(DlatentError) as caught:
                work()
            text = "".join(traceback.format_exception(caught.value))
            assert "://***@127.0.0.1" in text
            assert SECRET not in text
        said = run("--debug", "inspect", url)
        assert "Traceback" in said.err
        assert SECRET not in said.err
        server.shutdown()


@pytest.mark.parametrize("url", [f"s3://key:{SECRET}@bucket/x.zarr", f"simplecache::s3://key:{SECRET}/+@bucket/x"])
def test_keys_in_the_url_of_a_bucket_are_refused(url: str, tmp_path: Path) -> None:
    """fsspec takes them for a part of the bucket's name, which it shows."""
    model = dlatent.PPCA(2).fit(np.random.default_rng(0).standard_normal((30, 4)))
    for work in (
        lambda: dlatent.PPCA(2).fit(url),
        lambda: dlatent.load(url),
        lambda: ingest(f"{url}.csv", tmp_path / "y.zarr"),
        lambda: model.save(url),
    ):
        with pytest.raises(DlatentError, match="AWS_SECRET_ACCESS_KEY") as caught:
            work()
        assert SECRET not in "".join(traceback.format_exception(caught.value))


CHAIN = f"zip://x.zarr::{HOST}/x.zip"


def test_a_chain_of_urls_does_not_show_its_password(run: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((60, 5)))
    ingest(tmp_path / "x.npy", tmp_path / "x.zarr")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for path in (tmp_path / "x.zarr").rglob("*"):
            archive.write(path, path.relative_to(tmp_path))
    Vault().pipe_file(f"{HOST}/x.zip", (tmp_path / "x.zip").read_bytes())
    before = {name: file.getvalue() for name, file in Vault.store.items()}
    kept = tmp_path / "kept"
    source, model = open_data(CHAIN), dlatent.PPCA(2).fit(CHAIN, checkpoint=kept)
    seen = [repr(source), repr(source.places), repr(model), str(model.plan(CHAIN)), repr(model.result_)]
    model.save(tmp_path / "m.zarr")
    absent, wrong = f"zip://x.zarr::{HOST}/absent.zip", f"zip://x.zarr::foo://ann:{SECRET}@bucket/x.zip"
    for words, status in (
        (["fit", "ppca", CHAIN, "-k", "2", "-o", tmp_path / "n.zarr"], 0),
        (["inspect", CHAIN], 0),
        (["verify", CHAIN], 0),
        (["transform", tmp_path / "m.zarr", CHAIN, "-o", f"zip://o.zarr::{HOST}/o.zip"], 3),
        (["fit", "ppca", CHAIN, "-k", "2", "-o", f"{HOST}/x.zip", "--overwrite"], 3),
        (["fit", "ppca", CHAIN, "-k", "2", "-o", f"{HOST}/x.zip/m.zarr"], 3),
        *(
            ([str(word) for word in words], 3)
            for place in (absent, wrong, f"FOO://ann:{SECRET}@bucket/x.zarr", f"zip://::{HOST}/absent.zip?sig={SECRET}")
            for words in (
                ["fit", "ppca", place, "-k", "2", "-o", tmp_path / "o.zarr"],
                ["fit", "ppca", CHAIN, "-k", "2", "-o", place],
                ["fit", "ppca", CHAIN, "-k", "2", "-o", tmp_path / "o.zarr", "--checkpoint", place],
                ["fit", "supervised", CHAIN, "-k", "2", "-o", tmp_path / "o.zarr", "--labels", f"{place}#a"],
                ["fit", "relational", CHAIN, "-k", "2", "-o", tmp_path / "o.zarr", "--graph", place],
                ["transform", place, CHAIN, "-o", tmp_path / "o.zarr"],
                ["inspect", place],
                ["verify", place],
                ["ingest", place, tmp_path / "o.zarr"],
                ["ingest", f"{place}.csv", tmp_path / "o.zarr"],
                ["ingest-graph", f"{place}.csv", tmp_path / "o.zarr"],
                ["rechunk", place, tmp_path / "o.zarr"],
                ["rechunk", CHAIN, place],
            )
        ),
    ):
        said = run(*words)
        assert said.status == status, (words, said.err)
        seen += [said.out, said.err]
    for place in (absent, wrong):
        for call in (open_data, model.save, dlatent.load):
            with pytest.raises(DlatentError) as caught:
                call(place)
            seen += [str(caught.value), repr(caught.value.__cause__)]
    assert not [text for text in seen if SECRET in text]
    assert {name: file.getvalue() for name, file in Vault.store.items()} == before
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path


def test_schemes_are_read_in_any_case(run: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((60, 5)))
    ingest(tmp_path / "x.npy", f"{HOST.replace('vault', 'VAULT')}/x.zarr")
    for place in (f"{HOST.replace('vault', 'Vault')}/x.zarr", f"SimpleCache::{HOST.replace('vault', 'VAULT')}/x.zarr"):
        said = run("fit", "ppca", place, "-k", "2", "-o", tmp_path / "m.zarr", "--overwrite")
        assert said.status == 0, said.err
