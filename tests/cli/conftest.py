"""Small stores, and the command line as a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlatent.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be JSON and nothing else."""
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str | Path) -> Ended:
        capsys.readouterr()
        status = main(words)
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return call


def low_rank(rows: int = 120, columns: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Rows about two centres, and which centre each is of."""
    rng = np.random.default_rng(3)
    classes = np.arange(rows) % 2
    latent = rng.standard_normal((rows, 2)) + 3 * classes[:, None]
    features = latent @ rng.standard_normal((2, columns)) + 0.3 * rng.standard_normal((rows, columns))
    return features + 5, classes


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dense data with a column of labels, half of them empty."""
    folder = tmp_path_factory.mktemp("store")
    features, classes = low_rank()
    lines = [",".join([*(f"f{j}" for j in range(features.shape[1])), "kind"])]
    for i, row in enumerate(features):
        lines.append(",".join([*map(repr, row.tolist()), "" if i >= 60 else ("cat", "dog")[classes[i]]]))
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    words = ["ingest", folder / "data.csv", folder / "data.zarr", "--labels", "kind", "--quiet", "--json"]
    assert main(words) == 0
    return folder / "data.zarr"


@pytest.fixture(scope="session")
def model(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted PPCA."""
    path = tmp_path_factory.mktemp("model") / "ppca.zarr"
    assert main(["fit", "ppca", store, "-k", "2", "-o", path, "--quiet"]) == 0
    return path
