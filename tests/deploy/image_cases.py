"""The image of deploy/kubernetes, built without a container engine, and processes in its root file system."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy_cases import DEPLOY, environment

REPOSITORY = DEPLOY.parent
NAME = "localhost/dlatent:0.1.0"
INSIDE = """
set -eu
root=$1 scratch=$2 user=$3 hosts=$4; shift 4
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
[ "$hosts" = - ] || { touch "$root/etc/hosts"; mount --bind "$hosts" "$root/etc/hosts"; }
mount --bind "$scratch" "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"; mount --bind "$1" "$root$2"; mount -o remount,bind,ro "$root$2"; shift 2
done
shift
mount -o remount,bind,ro "$root"
cd /
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$root" env --chdir=/tmp "$@"
"""
"""A process as in a container: its own mounts and processes, a root that it cannot write, no rights."""


def missing() -> str:
    """Why no image can be built here; "" where it can."""
    absent = [name for name in ("buildah", "mmdebstrap") if not shutil.which(name)]
    if absent:
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends buildah mmdebstrap"
    return "" if os.geteuid() == 0 else "buildah with --isolation=chroot is run by root"


def _say(*words: str | Path, folder: Path, **more: str) -> str:
    ended = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, cwd=folder, timeout=560, env=environment(**more)
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout.strip()


class Image:
    """Built in a folder, from a Debian that `mmdebstrap` makes and wheels that `pip` of this environment fetches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        wheels = folder / "wheels"
        lock = REPOSITORY / "requirements" / "dev.txt"
        fetch = ("-m", "pip", "download", "-q", "-d", wheels, "-c", lock, f"{REPOSITORY}[metrics,remote]", "setuptools")
        _say(sys.executable, *fetch, folder=folder)
        packages = "--include=python3,python3-venv,ca-certificates"
        _say("mmdebstrap", "--variant=minbase", packages, "bookworm", "base.tar", folder=folder, SOURCE_DATE_EPOCH="0")
        (folder / "Base").write_text("FROM scratch\nADD base.tar /\n")
        (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        self._buildah("bud", "--isolation=chroot", "-f", "Base", "-t", "localhost/base", ".")
        self.digest = self.build()
        container = self._buildah("from", NAME)
        self.root = Path(self._buildah("mount", container))
        told = json.loads(self._buildah("inspect", "--type=image", NAME))["OCIv1"]["config"]
        self.user: str = told["User"]
        self.variables = dict(one.split("=", 1) for one in told["Env"])

    def build(self) -> str:
        """Build the image (again), and give its digest."""
        given = ("--no-cache", "--timestamp=0", "--build-arg=BASE=localhost/base", f"--tag={NAME}")
        mounts = (f"--volume={self._folder}/pip.conf:/etc/pip.conf:ro", f"--volume={self._folder}/wheels:/wheels:ro")
        file = f"--file={DEPLOY}/kubernetes/Containerfile"
        said = self._buildah("bud", "--isolation=chroot", *given, *mounts, file, str(REPOSITORY))
        return said.splitlines()[-1]

    def _buildah(self, *words: str) -> str:
        store = ("--storage-driver=vfs", f"--root={self._folder}/storage", f"--runroot={self._folder}/run")
        return _say("buildah", *store, *words, folder=self._folder)

    def command(
        self, words: Sequence[str], scratch: Path, mounts: dict[str, Path] | None = None, hosts: Path | None = None
    ) -> list[str]:
        """What runs a command as a container of the image would; `mounts` are read only, by their place in it."""
        apart = ("unshare", "--mount", "--pid", "--fork", "--propagation=private")
        given = (str(self.root), str(scratch), self.user, str(hosts or "-"))
        bound = (text for place, path in (mounts or {}).items() for text in (str(path), place))
        return [*apart, "bash", "-c", INSIDE, "container", *given, *bound, "--", *words]
