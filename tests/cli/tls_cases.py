"""Certificates, a real cluster of Dask, and a relay that keeps what goes over the wire."""

from __future__ import annotations

import datetime
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

STARTS_IN = 60.0
QUIET = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")


@dataclass(frozen=True)
class Authority:
    """One that signs: its certificate, and one of a member with its key, as PEM files."""

    ca: Path
    cert: Path
    key: Path

    @property
    def options(self) -> list[str]:
        """What `dask scheduler`, `dask worker` and `dlatent` take."""
        return ["--tls-ca-file", str(self.ca), "--tls-cert", str(self.cert), "--tls-key", str(self.key)]


def authority(folder: Path, name: str) -> Authority:
    """A new one, with files in `folder`."""
    folder.mkdir()
    made = Authority(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    root, member = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _named(f"{name} authority")
    made.ca.write_bytes(_certificate(issuer, root.public_key(), issuer, root, authority=True))
    made.cert.write_bytes(_certificate(_named(name), member.public_key(), issuer, root, authority=False))
    made.key.write_bytes(
        member.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return made


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    *,
    authority: bool,
) -> bytes:
    day, now = datetime.timedelta(days=1), datetime.datetime.now(tz=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


class Cluster:
    """A scheduler and workers in processes of their own, which listen on loopback; `log` is what they say."""

    def __init__(self, folder: Path, protocol: str, options: list[str]) -> None:
        folder.mkdir()
        self._folder, self._protocol, self._options = folder, protocol, options
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", *QUIET)
        self.address = self._said("scheduler", rf"Scheduler at:\s+({protocol}://[\d.:]+)")

    def work(self, name: str, address: str) -> None:
        """Start a worker that knows the scheduler by this address."""
        self._start(
            name, "worker", address, "--name", name, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", *QUIET
        )
        self._said(name, r"(Registered to)")

    def log(self, name: str = "scheduler") -> str:
        """What a process has said."""
        return (self._folder / f"{name}.log").read_text()

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait(30)

    def _start(self, name: str, role: str, *words: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{role}", *words, "--protocol", self._protocol]
        with (self._folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen([*command, *self._options], stdout=log, stderr=log, cwd=self._folder)
        self._processes.append(started)

    def _said(self, name: str, words: str) -> str:
        deadline = time.monotonic() + STARTS_IN
        while time.monotonic() < deadline and self._processes[-1].poll() is None:
            found = re.search(words, self.log(name))
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(self.log(name))


class Relay:
    """Passes bytes on, both ways, between who connects to its port and one port on loopback; `seen` are the bytes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._kept: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def seen(self) -> bytes:
        """All that has gone through, one direction of a connection after the other."""
        return b"".join(self._kept)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # once it is closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        kept = bytearray()
        self._kept.append(kept)
        with suppress(OSError):
            while got := source.recv(1 << 16):
                kept += got
                sink.sendall(got)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
