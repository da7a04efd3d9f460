"""Settings for the tests of the stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec.config
import pytest


@pytest.fixture(autouse=True)
def _remote_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `local://` URLs stand for an object store: fsspec reaches them, and directories come by themselves."""
    monkeypatch.setitem(fsspec.config.conf, "local", {"auto_mkdir": True})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a text into a file, and return its path."""

    def written(text: str, name: str = "a.svm") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written
