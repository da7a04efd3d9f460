"""A scheduler that asks for certificates is used by who has them and by nobody else, and nobody can read along."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Security
from tls_cases import Authority, Cluster, Relay, authority

import dlatent
from dlatent import ingest
from dlatent.cli import cluster as command
from dlatent.cli.main import parser

FAILED = "TLS handshake failed"
"""What a scheduler says in its log of whom it refuses."""
PLAN = ("plan", "ppca", "x.zarr", "-k", "2", "--json")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("own") / "pem", "own")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("foreign") / "pem", "foreign")


@pytest.fixture(scope="module")
def secure(own: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Relay]]:
    """A scheduler and two workers that speak TLS with each other, the workers through the relay."""
    yield from clustered(tmp_path_factory.mktemp("secure") / "tls", "tls", own.options)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Relay]]:
    """The same without TLS."""
    yield from clustered(tmp_path_factory.mktemp("plain") / "tcp", "tcp", [])


def clustered(folder: Path, protocol: str, options: list[str]) -> Iterator[tuple[Cluster, Relay]]:
    cluster = Cluster(folder, protocol, options)
    relay = Relay(int(cluster.address.rpartition(":")[2]))
    try:
        for name in ("first", "second"):
            cluster.work(name, f"{protocol}://127.0.0.1:{relay.port}")
        yield cluster, relay
    finally:
        cluster.stop()
        relay.close()


@pytest.fixture
def nobody() -> Iterator[socket.socket]:
    """A port that takes connections, and at which nobody ever says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def address_of(listener: socket.socket, protocol: str = "tls") -> str:
    return f"{protocol}://127.0.0.1:{listener.getsockname()[1]}"


def untouched(listener: socket.socket) -> bool:
    """Whether nobody has connected."""
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def test_wrong_combinations_are_refused_before_anything_is_contacted(
    run, own: Authority, foreign: Authority, nobody: socket.socket, tmp_path: Path
) -> None:
    ca, cert, key = (("--tls-ca-file", own.ca), ("--tls-cert", own.cert), ("--tls-key", own.key))
    (tmp_path / "no.pem").write_text("no certificate")
    here, tcp = ("--scheduler", address_of(nobody)), ("--scheduler", address_of(nobody, "tcp"))
    bare = ("--scheduler", address_of(nobody).removeprefix("tls://"))
    for words, said in (
        ([*here], "give --tls-ca-file CA.pem --tls-cert CERT.pem --tls-key KEY.pem"),
        ([*here, *ca], "--tls-cert is said neither here nor"),
        ([*here, *cert, *key], "--tls-ca-file is said neither here nor"),
        ([*here, *ca, *key], "give --tls-cert CERT.pem with it"),
        ([*here, *ca, *cert], f"--tls-cert {own.cert}"),  # without a key in it
        ([*here, *ca, *cert, "--tls-key", foreign.key], "the key is that of the certificate"),
        ([*here, *ca, *cert, "--tls-key", tmp_path / "gone.pem"], f"--tls-key: there is no file {tmp_path}/gone.pem"),
        ([*here, *cert, *key, "--tls-ca-file", tmp_path], f"--tls-ca-file: there is no file {tmp_path}"),
        ([*here, *cert, *key, "--tls-ca-file", tmp_path / "no.pem"], f"--tls-ca-file {tmp_path}/no.pem"),
        ([*tcp, *ca, *cert, *key], "give an address such as tls://host:8786"),
        ([*bare, *ca, *cert, *key], "give an address such as tls://host:8786"),
        ([*ca, *cert, *key], "give --scheduler tls://host:8786 too"),
        ([*ca, "--workers", "1"], "give --scheduler tls://host:8786 too"),
    ):
        ended = run(*PLAN, *words)
        assert ended.status == 2, ended.err
        assert said in ended.err, (words, ended.err)
        assert ended.err.count("\n") == 1
        assert untouched(nobody), words
    for wrong in ({"distributed.comm.require-encryption": True}, {"distributed.comm.tls.min-version": 1.1}):
        with dask.config.set(wrong):
            ended = run(*PLAN, *tcp)
        assert (ended.status, ended.err.count("\n"), untouched(nobody)) == (2, 1, True)
        assert "Dask's configuration" in ended.err


def test_what_the_configuration_says_is_checked_too(run, own: Authority, nobody: socket.socket, tmp_path: Path) -> None:
    with dask.config.set(configuration(own) | {"distributed.comm.tls.ca-file": f"{tmp_path}/gone.pem"}):
        ended = run(*PLAN, "--scheduler", address_of(nobody))
        assert ended.status == 2
        assert "gone.pem" in ended.err
        # The key of the configuration is not that of the option's certificate.
        ended = run(*PLAN, "--scheduler", address_of(nobody), "--tls-ca-file", own.ca, "--tls-cert", own.cert)
        assert ended.status == 2
        assert str(own.cert) in ended.err
        assert str(own.key) not in ended.err
    assert untouched(nobody)


def test_worker_processes_have_certificates_where_encryption_is_required(
    run, own: Authority, store: Path, tmp_path: Path
) -> None:
    required, words = {"distributed.comm.require-encryption": True}, ["--workers", "1", "--memory-limit", "1GiB"]
    fit = ["fit", "ppca", str(store), "-k", "2", "-o", str(tmp_path / "m.zarr"), *words]
    with dask.config.set(required | configuration(own, "client", "scheduler", "worker")):
        parsed = parser().parse_args(fit)
        with command.connected(parsed) as client:
            assert client.scheduler.address.startswith("tls://127.0.0.1:")
            assert [address[:6] for address in client.scheduler_info(n_workers=-1)["workers"]] == ["tls://"]
    with dask.config.set(required):
        ended = run(*fit)
    assert ended.status == 5
    assert "it must name certificates of scheduler, worker and client" in ended.err
    assert ended.err.count("\n") == 1


def configuration(signed: Authority, *roles: str) -> dict[str, str]:
    tls = {"ca-file": signed.ca}
    for role in roles or ("client",):
        tls |= {f"{role}.cert": signed.cert, f"{role}.key": signed.key}
    return {f"distributed.comm.tls.{name}": str(path) for name, path in tls.items()}


@pytest.mark.timeout(120)  # it would wait for ever
@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_a_scheduler_that_takes_connections_and_is_silent(
    run, own: Authority, nobody: socket.socket, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "CONNECT_SECONDS", 0.5)
    options = own.options if protocol == "tls" else []
    ended = run(*PLAN, "--scheduler", address_of(nobody, protocol), *options)
    assert ended.status == 5
    assert f"no Dask scheduler answers at {address_of(nobody, protocol)}" in ended.err
    assert "it is silent" in ended.err or "imed out" in ended.err
    assert ended.err.count("\n") == 1


SAID = {
    "a web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a server of ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(4096),
    "a frame that is no message": b"".join(length.to_bytes(8, "little") for length in (17, 1, 1)) + b"\x05",
    "what it is told": None,
}


class Answer(socketserver.BaseRequestHandler):
    """Says the same to everybody, or what it is told."""

    server: Any

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while told := self.request.recv(4096):
                self.request.sendall(self.server.said or told)


@pytest.mark.parametrize("kind", SAID)
def test_another_server_in_the_place_of_a_scheduler(run, kind: str) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.said = SAID[kind]  # type: ignore[attr-defined]
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.server_address[1]}"
        ended = run(*PLAN, "--scheduler", address)
        server.shutdown()
    assert ended.status == 5
    assert ended.err.startswith(f"dlatent: what answers at {address} is no Dask scheduler but another server; give")
    assert ended.err.count("\n") == 1


def test_a_worker_in_the_place_of_a_scheduler(run) -> None:
    with LocalCluster(n_workers=1, processes=True, dashboard_address=":0", protocol="tcp") as cluster:
        with Client(cluster, set_as_default=False) as client:
            (worker,) = client.nthreads()
        ended = run(*PLAN, "--scheduler", worker)
    assert (ended.status, ended.err.count("\n")) == (5, 1)
    assert f"what answers at {worker} is no Dask scheduler but a Worker; give the port" in ended.err


@pytest.mark.slow
def test_a_fit_by_certificates_has_the_bits_of_a_serial_fit(
    run, secure: tuple[Cluster, Relay], own: Authority, store: Path, tmp_path: Path
) -> None:
    expected = dlatent.PPCA(2).fit(store, client="serial")
    ended = run(
        *("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--quiet"),
        *("--scheduler", secure[0].address, *own.options),
    )
    assert ended.status == 0, ended.err
    found = dlatent.load(tmp_path / "m.zarr")
    assert found.components_.tobytes() == expected.components_.tobytes()
    assert found.log_likelihood_ == expected.log_likelihood_


@pytest.mark.slow
def test_the_environment_says_the_same_as_the_options(
    secure: tuple[Cluster, Relay], own: Authority, store: Path, tmp_path: Path
) -> None:
    """One file holds both the certificate and its key."""
    (tmp_path / "both.pem").write_bytes(own.cert.read_bytes() + own.key.read_bytes())
    names = {"CA_FILE": own.ca, "CLIENT__CERT": tmp_path / "both.pem"}
    says = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in names.items()}
    words = ["plan", "ppca", str(store), "-k", "2", "--scheduler", secure[0].address, "--json"]
    line = [sys.executable, "-m", "dlatent.cli.main", *words]
    ended = subprocess.run(line, env=os.environ | says, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def soon(holds: Callable[[], bool]) -> bool:
    """Whether something becomes true within seconds."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


@pytest.mark.slow
def test_a_client_without_the_right_certificates_is_refused(
    run, secure: tuple[Cluster, Relay], own: Authority, foreign: Authority
) -> None:
    address = secure[0].address
    mixed = Authority(own.ca, foreign.cert, foreign.key)
    deceived = Authority(foreign.ca, own.cert, own.key)
    for who in (foreign, mixed, deceived):
        before = secure[0].log().count(FAILED)
        ended = run(*PLAN, "--scheduler", address, *who.options)
        assert ended.status == 5
        assert f"the scheduler at {address} and this command do not accept each other's certificates" in ended.err
        assert ended.err.count("\n") == 1
        assert "Traceback" not in ended.err
        assert soon(lambda before=before: secure[0].log().count(FAILED) > before), secure[0].log()
    ended = run(*PLAN, "--scheduler", address.replace("tls://", "tcp://"))
    assert ended.status == 5
    assert "if it needs certificates, give its address as tls://HOST:PORT, with --tls-ca-file" in ended.err
    assert ended.err.count("\n") == 1
    with dask.config.set(configuration(foreign)):
        assert run(*PLAN, "--scheduler", address).status == 5


@pytest.mark.slow
@pytest.mark.parametrize(("who", "said"), [(None, "CERTIFICATE_REQUIRED"), ("foreign", "UNKNOWN_CA")])
def test_the_handshake_itself_is_refused(
    secure: tuple[Cluster, Relay], own: Authority, foreign: Authority, who: str | None, said: str
) -> None:
    context = ssl.create_default_context(cafile=str(own.ca))
    context.check_hostname = False
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Dask has it; Python 3.13 asks more of certificates
    if who is not None:
        context.load_cert_chain(foreign.cert, foreign.key)
    port = int(secure[0].address.rpartition(":")[2])
    with (
        pytest.raises(ssl.SSLError, match=said),
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw) as wrapped,
    ):
        wrapped.recv(1)


@pytest.mark.slow
def test_a_scheduler_without_certificates_says_that_it_has_none(
    run, plain: tuple[Cluster, Relay], own: Authority
) -> None:
    address = plain[0].address.replace("tcp://", "tls://")
    ended = run(*PLAN, "--scheduler", address, *own.options)
    assert ended.status == 5
    assert f"the scheduler at {address} does not speak TLS" in ended.err
    assert "begins with tcp://" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_nobody_can_read_along(
    plain: tuple[Cluster, Relay], secure: tuple[Cluster, Relay], own: Authority, tmp_path: Path
) -> None:
    """Rows of the data and the place of a store are on the wire of a plain cluster, and not of this one; names of
    features are on neither, as they stay with the driver."""
    rows = np.random.default_rng(0).normal(size=(200, 6))
    frame = pd.DataFrame(rows, columns=[f"dose_of_drug_{j}" for j in range(6)])
    ingest(_csv(frame, tmp_path), tmp_path / "patients_of_1999.zarr")
    certified = Security(
        tls_ca_file=str(own.ca), tls_client_cert=str(own.cert), tls_client_key=str(own.key), require_encryption=True
    )
    seen, bits = [], []
    for (cluster, relay), security in ((plain, None), (secure, certified)):
        protocol = cluster.address.partition("://")[0]
        with Client(f"{protocol}://127.0.0.1:{relay.port}", security=security, set_as_default=False) as client:
            bits.append(dlatent.PPCA(2).fit(frame, client=client).components_.tobytes())
            dlatent.PPCA(2).fit(tmp_path / "patients_of_1999.zarr", client=client)
        seen.append(relay.seen)
    assert bits[0] == bits[1]
    # pandas keeps rows or columns together, as its version has it.
    for secrets in ((rows[100].tobytes(), rows[100:106, 0].tobytes()), (b"patients_of_1999",)):
        assert [any(secret in bytes_ for secret in secrets) for bytes_ in seen] == [True, False]
    assert [b"dose_of_drug" in bytes_ for bytes_ in seen] == [False, False]


def _csv(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"
