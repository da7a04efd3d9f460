"""The image of deploy/kubernetes: built, and the smoke command run in its root file system."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from deploy_cases import DEPLOY, OK
from image_cases import REPOSITORY, Image, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is buildah")]


@pytest.mark.timeout(1800)
def test_the_image() -> None:
    """All that is asked of it, in one test, so that no two processes build it."""
    with tempfile.TemporaryDirectory(prefix="dlatent-image-") as folder:  # gigabytes, which pytest would keep
        image = Image(Path(folder))
        it_has_the_locked_versions_and_neither_compiler_nor_pip(image)
        it_has_no_rights_and_writes_to_its_scratch_alone(image)
        it_runs_the_smoke_command(image)
        assert image.build() == image.digest, "built again it is another"


def run(image: Image, *words: str, mounts: dict[str, Path] | None = None) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o1777)
        command = image.command(words, Path(scratch), mounts)
        return subprocess.run(command, capture_output=True, text=True, timeout=200, env=image.variables)


def it_has_the_locked_versions_and_neither_compiler_nor_pip(image: Image) -> None:
    program = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    found = {line.lower().replace("_", "-") for line in run(image, "python", "-c", program).stdout.split()}
    locked = re.findall(r"^[^\s#]+==[^\s;]+", (REPOSITORY / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert len(found) > 40
    assert {line for line in found if not line.startswith("dlatent==")} <= {line.lower() for line in locked}
    which = 'for name in "$@"; do command -v "$name"; done'
    assert run(image, "sh", "-c", which, "sh", "cc", "gcc", "clang", "ld", "pip", "pip3").stdout == ""
    own = ("dlatent", "dask", "python")
    assert run(image, "sh", "-c", which, "sh", *own).stdout.split() == [f"/opt/dlatent/bin/{name}" for name in own]


def it_has_no_rights_and_writes_to_its_scratch_alone(image: Image) -> None:
    told = run(image, "sh", "-c", "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; touch /tmp/x && touch /opt/x")
    assert told.stdout.split() == ["10001", "CapEff:", "0000000000000000", "NoNewPrivs:", "1"]
    assert "Read-only file system" in told.stderr


def it_runs_the_smoke_command(image: Image) -> None:
    words = ("/mnt/local/cluster.sh", "python", "/opt/dlatent/smoke.py", "--data", "x.zarr", "--size", "20MB")
    ended = run(image, *words, mounts={"/mnt": DEPLOY})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 workers, 2 threads" in ended.stdout
    assert OK in ended.stdout
