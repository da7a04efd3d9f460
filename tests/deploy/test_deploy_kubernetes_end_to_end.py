"""The recipe for Kubernetes on a real API server, where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import image_cases
import pytest
from deploy_cases import environment

FOLDER = os.environ.get("DLATENT_KUBERNETES")


def missing() -> str:
    """Why there is no Kubernetes here; "" where there is."""
    if not FOLDER:
        return "DLATENT_KUBERNETES names no folder of kube-apiserver: tests/deploy/kubernetes_binaries.sh makes one"
    if not shutil.which("kubectl"):
        return "there is no kubectl"
    return image_cases.missing()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(missing()), reason=missing() or "there is Kubernetes")
def test_end_to_end() -> None:
    assert FOLDER
    command = [sys.executable, str(Path(__file__).with_name("kubernetes_end_to_end.py")), FOLDER]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment())
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr[-20000:]
    assert ended.stdout.endswith("OK\n")
