"""Bits are those of one kind of processor: a cluster of several, and a fit that goes on on another, are told of."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

from dlatent import PPCA
from dlatent.blas import kernels

X = np.random.default_rng(0).normal(size=(40, 6))
OTHER = "Nehalem"
pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or OTHER in kernels() or not kernels()[:1].isupper(),
    reason="OpenBLAS has kernels of older processors on x86 alone",
)


@pytest.mark.slow
def test_workers_of_another_kind_are_told_of_once(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", OTHER)  # what is loaded here already stays
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "1GiB"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        PPCA(2).fit(X, client=client)
    (said,) = (str(one.message) for one in recwarn if "OPENBLAS_CORETYPE" in str(one.message))
    assert f"of the kind {OTHER}, this process for {kernels()}" in said


def test_a_fit_that_goes_on_on_another_kind_is_told_of(tmp_path: Path) -> None:
    place = tmp_path / "fit.checkpoint"
    program = f"""
import numpy as np
from dlatent import PPCA
X = np.random.default_rng(0).normal(size=(40, 6))
PPCA(2).fit(X, client="serial", checkpoint={str(place)!r})
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "OPENBLAS_CORETYPE": OTHER}, check=True)
    with pytest.warns(RuntimeWarning, match=f"of the kind {OTHER}, and goes on on one of the kind {kernels()}"):
        PPCA(2).fit(X, client="serial", checkpoint=place, resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PPCA(2).fit(X, client="serial", checkpoint=tmp_path / "own.checkpoint")
        PPCA(2).fit(X, client="serial", checkpoint=tmp_path / "own.checkpoint", resume=True)
