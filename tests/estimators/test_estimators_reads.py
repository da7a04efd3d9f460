"""A server that fails in the middle of a fit: the bits of the folder, or one error that names the chunk.

Faults of one chunk each, by a real server, for fits in this process and in two worker processes, which read by
themselves.
"""

from __future__ import annotations

import http.server
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client

from dlatent import PPCA, Callback, ingest, open_data, verify
from dlatent.errors import StoreError
from dlatent.stores import checked as retries
from dlatent.stores import sparse

RNG = np.random.default_rng(4)
X = RNG.normal(size=(200, 3)) @ RNG.normal(size=(3, 40)) + 0.3 * RNG.normal(size=(200, 40))
BLOCK = 25 * 40 * 8
SHORT = 0.01
"""Seconds until a read is tried for the second time."""


def _hurry() -> None:
    retries.FIRST_DELAY = SHORT


@pytest.fixture(scope="module")
def two_processes(two_processes: Client) -> Client:
    two_processes.run(_hurry)
    return two_processes


@pytest.fixture(autouse=True)
def small(nothing_is_cached: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits long, and small data have many chunks."""
    monkeypatch.setattr(retries, "FIRST_DELAY", SHORT)
    monkeypatch.setattr(sparse, "CHUNK_ELEMENTS", 1000)


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder; once it is `armed`, answers for a chunk are those of `fault`, for so many requests."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.lock = threading.Lock()
        self.chunk, self.fault, self.left, self.asked = "", "", 0.0, 0
        self.armed = self.lists = False

    def failing(self, path: str) -> str:
        """The fault of a request, or nothing."""
        with self.lock:
            if not self.armed or not path.endswith(self.chunk):
                return ""
            self.asked += 1
            self.left -= 1
            return self.fault if self.left >= 0 else ""


class Handler(http.server.SimpleHTTPRequestHandler):
    """A file, or a fault; listings if the server is told so, as web servers need not give any."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the system waits 40 ms between the head of an answer and its body

    def do_GET(self) -> None:
        fault = self.server.failing(self.path)  # type: ignore[attr-defined]
        if fault.isdigit():
            self.send_error(int(fault))
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        elif fault in ("truncated", "wrong bytes", "shorter"):
            whole = Path(self.translate_path(self.path)).read_bytes()
            sent = whole[:-9] if fault != "wrong bytes" else whole[:-20] + bytes(20)
            self.send_response(200)
            self.send_header("Content-Length", str(len(sent if fault == "shorter" else whole)))
            self.end_headers()
            self.wfile.write(sent)
            self.close_connection = True
        else:
            time.sleep(1.0 if fault == "slow" else 0.0)
            super().do_GET()

    def list_directory(self, path: Any) -> Any:
        """Refuse, or not."""
        if self.server.lists:  # type: ignore[attr-defined]
            return super().list_directory(path)
        return self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    with Server(tmp_path) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def stored(folder: Path, kind: str) -> tuple[Path, str]:
    """A store that this library wrote, and a chunk in the middle of it."""
    if kind == "dense":
        np.save(folder / "x.npy", X)
        ingest([folder / "x.npy"], folder / "x.zarr", block_bytes=BLOCK)
        chunks = sorted((folder / "x.zarr" / "X" / "c").glob("*/0"))
        assert len(chunks) > 5
        return folder / "x.zarr", "/X/c/3/0"
    sp.save_npz(folder / "x.npz", sp.csr_array(np.where(np.abs(X) > 0.3, X, 0)))
    ingest([folder / "x.npz"], folder / "x.zarr", block_bytes=BLOCK)
    assert (folder / "x.zarr" / "X" / "data" / "c" / "3").exists()
    return folder / "x.zarr", "/X/data/c/3"


def fitted(place: Any, client: Any, then: Callable[[], None] = lambda: None) -> PPCA:
    """A fit of several passes; `then` is called after the second."""
    passes = list[object]()

    def count(record: object) -> None:
        passes.append(record)
        if len(passes) == 2:
            then()

    source = open_data(place, block_bytes=BLOCK)
    assert len(source.blocks) > 3
    model = PPCA(3, solver="krylov").fit(source, client=client, callbacks=[Callback(on_pass=count)])
    assert len(passes) > 3
    return model


def same(one: PPCA, other: PPCA) -> bool:
    return one.components_.tobytes() == other.components_.tobytes() and one.log_likelihood_ == other.log_likelihood_


ALWAYS = float("inf")
PASSED = [("500", 1), ("503", 2), ("429", 1), ("502", 4), ("slow", 1), ("truncated", 1), ("reset", 2)]
SAID = {
    ("500", ALWAYS): r"was not read in 5 attempts \(ClientResponseError: 500",
    ("504", ALWAYS): r"was not read in 5 attempts \(ClientResponseError: 504",
    ("truncated", ALWAYS): r"was not read in 5 attempts \(ClientPayloadError",
    ("reset", ALWAYS): r"was not read in 5 attempts \(\w*(Disconnected|Connection|OS)\w*Error",
    ("403", ALWAYS): r"cannot be read \(ClientResponseError: 403",
    ("401", ALWAYS): r"cannot be read \(ClientResponseError: 401",
    ("404", 1): "is not there",
    ("410", 1): r"cannot be read \(ClientResponseError: 410",
    ("wrong bytes", ALWAYS): "checksum",
    ("shorter", ALWAYS): "checksum",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_web_server_that_fails_for_a_while(kind: str, client: Any, server: Server, tmp_path: Path) -> None:
    path, chunk = stored(tmp_path, kind)
    url = f"http://127.0.0.1:{server.server_address[1]}/x.zarr"
    expected = fitted(path, "serial")
    for fault, times in PASSED:
        server.chunk, server.fault, server.left, server.asked, server.armed = chunk, fault, times, 0, False
        assert same(fitted(url, client, lambda: setattr(server, "armed", True)), expected), fault
        assert server.asked > times, fault


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_web_server_that_fails(kind: str, client: Any, server: Server, tmp_path: Path) -> None:
    _, chunk = stored(tmp_path, kind)
    url = f"http://127.0.0.1:{server.server_address[1]}/x.zarr"
    workers = client.nthreads() if isinstance(client, Client) else {}
    for (fault, times), said in SAID.items():
        server.chunk, server.fault, server.left, server.asked, server.armed = chunk, fault, times, 0, False
        with pytest.raises(StoreError) as raised:
            fitted(url, client, lambda: setattr(server, "armed", True))
        text = str(raised.value)
        within = chunk.removeprefix("/X/data/" if kind == "sparse" else "/X/")
        named = re.match(rf"{url}/X\S*: cannot read rows (\d+):(\d+)\D.* ?chunk (X/|X/data/)?{within}\W", text)
        assert named, text
        start, stop = int(named[1]), int(named[2])
        assert 0 <= start < stop <= len(X), text
        assert stop - start < len(X), text
        assert re.search(said, text), text
        if kind == "dense" and "checksum" not in said and fault not in ("reset", "truncated"):
            # A chunk of sparse data may be in two blocks, and aiohttp itself asks again where a connection is reset.
            assert server.asked == (retries.ATTEMPTS if "5 attempts" in said else 1), fault
    if workers:
        assert client.nthreads() == workers  # nobody died of it


def test_a_web_server_without_listings_is_not_called_whole(server: Server, tmp_path: Path) -> None:
    """And a store there opens, though nobody can say which chunks it has."""
    stored(tmp_path, "dense")
    url = f"http://127.0.0.1:{server.server_address[1]}/x.zarr"
    np.testing.assert_array_equal(open_data(url).blocks[0].load(), X)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="lists no array, as web servers need not"):
        verify(url)
    assert verify(f"{url}/X").arrays == 1


@pytest.mark.slow
def test_a_chunk_is_lost_of_a_store_that_others_wrote(server: Server, two_processes: Client, tmp_path: Path) -> None:
    """Whose lists tell, when it is opened, which chunks are there."""
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(20, 40))
    url, server.lists = f"http://127.0.0.1:{server.server_address[1]}/x.zarr", True
    model = PPCA(3).fit(url, client=two_processes)
    assert abs(model.log_likelihood_ - PPCA(3).fit(X).log_likelihood_) < 1e-6 * abs(model.log_likelihood_)
    server.chunk, server.fault, server.left, server.armed = "/c/4/0", "404", ALWAYS, True
    with pytest.raises(StoreError, match=rf"^{url}: cannot read rows \d+:\d+: the chunk c/4/0 of"):
        PPCA(3).fit(url, client=two_processes)


def test_a_busy_server_at_the_opening(server: Server, tmp_path: Path) -> None:
    stored(tmp_path, "dense")
    url = f"http://127.0.0.1:{server.server_address[1]}/x.zarr"
    server.chunk, server.fault, server.left, server.armed = "/x.zarr/zarr.json", "503", 2, True
    assert open_data(url).shape == X.shape
    server.left = ALWAYS
    with pytest.raises(StoreError, match=r"^zarr.json of http://\S*/x\.zarr was not read in 5 attempts .*503"):
        open_data(url)
    server.fault = "403"
    with pytest.raises(StoreError, match=r"^zarr.json of http://\S*/x\.zarr cannot be read .*403.*your right to read"):
        open_data(url)


class Bucket:
    """An S3 server of moto's on loopback, which is told of faults as `Server` is."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._inner = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self.chunk, self.fault, self.left, self.asked = "", "", 0.0, 0
        self.armed = False
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _answer(self, environ: Any, start_response: Any) -> Any:
        # s3fs may ask for the size before (HEAD), which is answered.
        path = environ["PATH_INFO"] if environ["REQUEST_METHOD"] == "GET" else "-"
        fault = Server.failing(self, path)  # type: ignore[arg-type]
        if fault.isdigit():
            codes = {"403": "AccessDenied", "404": "NoSuchKey", "500": "InternalError", "503": "ServiceUnavailable"}
            said = f"<Error><Code>{codes[fault]}</Code><Message>no</Message></Error>".encode()
            start_response(f"{fault} no", [("Content-Type", "application/xml"), ("Content-Length", str(len(said)))])
            return [said]
        if fault != "truncated":
            return self._inner(environ, start_response)
        whole = b"".join(self._inner(environ, lambda *_: None))
        start_response("200 OK", [("Content-Length", str(len(whole)))])
        return [whole[:-9]]

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def lock(self) -> threading.Lock:
        """One for all."""
        return _LOCK


_LOCK = threading.Lock()


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    pytest.importorskip("moto", reason="an S3 server is that of moto")
    pytest.importorskip("s3fs", reason="fsspec reads S3 with s3fs")
    found = Bucket()
    yield found
    found.close()


def _keys(address: str) -> None:
    """Where S3 is, who asks, and how often botocore tries; clients that another test has made are forgotten."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "3", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(params=["cluster", "serial"])
def reader(request: pytest.FixtureRequest, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Who fits; all know the S3 server."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "")
    _keys(bucket.address)
    if request.param == "serial":
        return "serial"
    client = request.getfixturevalue("two_processes")
    client.run(_keys, bucket.address)
    return client


@pytest.mark.slow
def test_s3(reader: Any, bucket: Bucket, tmp_path: Path) -> None:
    """The client of S3 tries again by itself; dlatent does not multiply that, and names the chunk where it gives up."""
    import s3fs

    bucket.armed = False
    path, chunk = stored(tmp_path, "dense")
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    if not files.exists("stores"):
        files.mkdir("stores")
    files.put(str(path), "stores/x.zarr", recursive=True)
    expected = fitted(path, "serial")
    for fault, times in (("500", 1), ("503", 2), ("truncated", 1)):
        bucket.chunk, bucket.fault, bucket.left, bucket.asked, bucket.armed = chunk, fault, times, 0, False
        assert same(fitted("s3://stores/x.zarr", reader, lambda: setattr(bucket, "armed", True)), expected), fault
        assert bucket.asked > times, fault
    named = r"^s3://stores/x\.zarr/X: cannot read rows 75:100: the chunk X/c/3/0 of s3://stores/x\.zarr "
    lasting = {
        "500": (r"cannot be read \(.*Errno 121", 3),
        "truncated": (r"cannot be read \(\w*Payload\w*", 5),
        "403": (r"cannot be read \(PermissionError.*your right to read it", 1),
        "404": ("is not there", 1),
    }
    for fault, (said, asked) in lasting.items():
        bucket.chunk, bucket.fault, bucket.left, bucket.asked, bucket.armed = chunk, fault, ALWAYS, 0, False
        with pytest.raises(StoreError, match=named + said):
            fitted("s3://stores/x.zarr", reader, lambda: setattr(bucket, "armed", True))
        assert bucket.asked == asked, fault
