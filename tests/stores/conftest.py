"""Settings for the tests of the stores."""

from __future__ import annotations

import fsspec.config
import pytest


@pytest.fixture(autouse=True)
def _remote_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `local://` URLs stand for an object store: fsspec reaches them, and directories come by themselves."""
    monkeypatch.setitem(fsspec.config.conf, "local", {"auto_mkdir": True})
