"""Versions of what decides the bits of a result: the same on the driver and on every worker."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import Any

from dlatent.blas import kernels
from dlatent.engine.failures import attended
from dlatent.engine.nested import own_worker
from dlatent.errors import EngineError

PACKAGES = ("dlatent", "numpy", "scipy")


@cache
def versions() -> dict[str, str]:
    """Those of this process."""
    return {name: version(name) for name in PACKAGES}


def check_workers(client: Any, workers: Iterable[str]) -> None:
    """Refuse workers that have others, before they get any work: one without dlatent ends when it gets a task; and warn
    of those on processors of another kind.

    Errors: EngineError with both versions.
    """
    found = attended(client, lambda: client.get_versions(packages=list(PACKAGES)))["workers"]
    for address in workers:
        if address in found:  # and has not gone again
            _require_same(found[address]["packages"], versions(), address)
    for address, kind in attended(client, partial(client.run, kernels, on_error="ignore")).items():
        if kind != kernels():
            warnings.warn(
                f"The worker {address} computes for processors of the kind {kind}, this process for {kernels()}: "
                "the last bits of a result depend on who has made it.  Take machines of one kind, or set "
                "OPENBLAS_CORETYPE=Haswell in the environment of all of them.",
                RuntimeWarning,
                stacklevel=2,
            )
            break


def require_same(driver: Mapping[str, str]) -> None:
    """Refuse to work for a driver that has others, on a worker that came after they were compared.

    Errors: EngineError with both versions.
    """
    worker = own_worker()
    _require_same(versions(), driver, "of this task" if worker is None else worker.address)


def _require_same(found: Mapping[str, str | None], driver: Mapping[str, str], address: str) -> None:
    differing = [f"{name} {found.get(name) or 'not'}" for name in PACKAGES if found.get(name) != driver[name]]
    if differing:
        own = ", ".join(f"{name} {driver[name]}" for name in PACKAGES)
        raise EngineError(
            f"The worker {address} has {' and '.join(differing)}, but the driver has {own}: the bits of a result would "
            "depend on who has made it. Install the same versions everywhere, then run again."
        )
