"""The process of one task: `python -m benchmarks.child REQUEST RESULT`, both JSON files."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

COMPONENTS = "components"
PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "dask": "dask",
    "distributed": "distributed",
    "zarr": "zarr",
    "dlatent": "dlatent",
    "dask_ml": "dask-ml",
    "xeofs": "xeofs",
    "ppca": "ppca",
    "pyppca": "pyppca",
}
"""Modules and the packages that they come from."""


def resolved(function: str) -> Any:
    """The function that "module:name" names."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of a result")


def versions() -> dict[str, str]:
    """Versions of what the task has imported."""
    found = {name: version(package) for name, package in PACKAGES.items() if name in sys.modules}
    return {"python": sys.version.split()[0]} | found


def main(request: Path, result: Path) -> None:
    """Run the task; large arrays under "components" go to a file beside the result."""
    asked = json.loads(request.read_text())
    found = dict(resolved(asked["function"])(Path(asked["folder"]), asked["scale"], **asked["arguments"]))
    components = found.pop(COMPONENTS, None)
    if components is not None:
        np.save(result.with_suffix(".npy"), np.asarray(components, dtype=np.float64))
    found.setdefault("versions", versions())
    result.write_text(json.dumps(found, default=plain))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
