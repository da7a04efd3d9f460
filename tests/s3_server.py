"""An S3 server on loopback, in a process of its own, for tests whose commands are processes, too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SECRET = "neither/shown+nor+kept"

_REQUEST = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (\S+) HTTP')
"""A line of the log of the server, which colours what is not found."""

_LISTED = re.compile(r"[?&]prefix=([^&]*)")


@dataclass(frozen=True)
class S3:
    """What is in the environment of who uses it; the same for Zarr and fsspec; its files, among them the bucket
    `stores`; and its log."""

    environment: dict[str, str]
    options: dict[str, str]
    files: Any
    log: Path = Path(os.devnull)

    def requests(self) -> list[tuple[str, str]]:
        """Verb and key of each request so far; LIST and the prefix, of those that list."""
        lines = _REQUEST.findall(self.log.read_text())
        return [("LIST", listed[1]) if (listed := _LISTED.search(key)) else (verb, key) for verb, key in lines]

    def contents(self) -> dict[str, bytes]:
        """All objects of the bucket."""
        self.files.invalidate_cache()
        return {name: self.files.cat_file(name) for name in self.files.find("stores")}


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """A context with a server, whose log is in the folder."""
    pytest.importorskip("moto.server", reason="an S3 server is that of moto")
    s3fs = pytest.importorskip("s3fs", reason="fsspec reads S3 with s3fs")
    log = folder / "s3.log"
    with log.open("wb") as stream:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(words, stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + 60
        while not (found := re.search(r"Running on (http://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        options = {"endpoint_url": found[1], "key": "user", "secret": SECRET}
        files = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        files.mkdir("stores")
        names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        yield S3(dict(zip(names, options.values(), strict=True)), options, files, log)
    finally:
        process.terminate()
        process.wait(30)
