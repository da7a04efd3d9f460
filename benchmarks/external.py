"""Real data, which this repository does not hold: files in the folder that DLATENT_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "DLATENT_DATA"


def data_file(name: str) -> Path:
    """The file of that name. Raises FileNotFoundError that says how to fix it."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise FileNotFoundError(f"set {VARIABLE} to a folder that holds {name}; docs/benchmarks.md says what is in it")
    path = Path(folder) / name
    if not path.exists():
        raise FileNotFoundError(f"{VARIABLE} has no file {name}; docs/benchmarks.md says what is in it")
    return path
