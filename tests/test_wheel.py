"""What would be released: the wheel and the source distribution, built and used outside the clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel, which was built from a source distribution, which is there, too."""
    folder = tmp_path_factory.mktemp("built")
    command = [
        sys.executable,
        "-m",
        "uv",
        "build",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        folder,
    ]
    made = subprocess.run([*command, ROOT], capture_output=True, text=True, env={**os.environ, "UV_OFFLINE": "1"})
    assert made.returncode == 0, made.stderr
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = held.namelist()
        metadata = message_from_bytes(held.read(next(name for name in names if name.endswith("/METADATA"))))
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "dlatent").rglob("*.py")}
    assert {name for name in names if name.startswith("dlatent/")} == modules | {"dlatent/py.typed"}
    others = {name.partition("/")[2] for name in names if not name.startswith("dlatent/")}
    assert others == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
    assert (metadata["Name"], metadata["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_source_distribution_can_be_built_from(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "dlatent/__init__.py", "dlatent/py.typed"} <= names
    assert not [name for name in names if name.endswith((".npz", ".zarr"))]


def test_what_is_installed_works_without_the_clone(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as held:
        held.extractall(place)
    code = (
        "import dlatent, numpy as np\n"
        f"assert dlatent.__file__.startswith({str(place)!r}), dlatent.__file__\n"
        "model = dlatent.PPCA(2).fit(np.random.default_rng(0).normal(size=(50, 6)))\n"
        "print(dlatent.__version__, model.components_.shape)\n"
    )
    found = {**os.environ, "PYTHONPATH": str(place)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=found)
    assert said.stdout == f"{PROJECT['version']} (2, 6)\n", said.stderr
    words = [sys.executable, "-m", "dlatent.cli.main", "--version"]
    said = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=found)
    assert said.stdout == f"dlatent {PROJECT['version']}\n", said.stderr


def interpreter(version: str) -> str | None:
    """A Python of this version, on the path or of pyenv; one without `venv` is none."""
    found = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for one in found:
        if one is not None:
            asked = [one, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
            said = subprocess.run(asked, capture_output=True, text=True)
            if said.returncode == 0 and said.stdout.strip() == version:
                return str(one)
    return None


class Clean:
    """An environment with the wheel, and what it needs with some extras; nothing else."""

    def __init__(self, folder: Path, python: str, wheel: Path, extras: str) -> None:
        self.folder, self.programs = folder, folder / "clean" / "bin"
        self.run(sys.executable, "-m", "uv", "venv", "-q", "--python", python, "clean")
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", self.programs / "python"]
        self.run(*install, f"{wheel}[{extras}]")

    def run(self, *words: str | Path) -> str:
        """What a command says."""
        left = ("PYTHONPATH", "MPLBACKEND")  # with the first dlatent is there already
        own = {name: value for name, value in os.environ.items() if name not in left} | {"MPLBACKEND": "agg"}
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, env=own)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.timeout(900)
def test_the_first_lines_of_the_readme_in_a_bare_environment(built: Path, tmp_path: Path) -> None:
    readme, (wheel,) = (ROOT / "README.md").read_text(), built.glob("*.whl")
    (extras,) = re.findall(r"^pip install '\.\[(\w+)\]'", readme, re.MULTILINE)
    code = readme.partition("```python\n")[2].partition("\n```")[0]
    clean = Clean(tmp_path, sys.executable, wheel, extras)
    said = clean.run(
        clean.programs / "python", "-c", f"{code}\nprint(dlatent.__file__, filled.shape, np.isnan(filled).any())"
    )
    assert said == f"{next(tmp_path.glob('clean/lib/python*/site-packages'))}/dlatent/__init__.py (1797, 64) False\n"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_a_clean_environment_with_the_newest_dependencies(built: Path, tmp_path: Path, version: str) -> None:
    python, (wheel,) = interpreter(version), built.glob("*.whl")
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    clean = Clean(tmp_path, python, wheel, "files,plot")
    run, programs = clean.run, clean.programs
    code = (
        "import numpy as np; np.savez('x.npz', X=np.random.default_rng(0).normal(size=(200, 8)), y=np.arange(200) % 2)"
    )
    run(programs / "python", "-c", code)
    run(programs / "dlatent", "ingest", "x.npz", "x.zarr")
    run(programs / "dlatent", "fit", "supervised", "x.zarr", "-k", "2", "-o", "m.zarr", "--workers", "1", "--quiet")
    assert run(programs / "dlatent", "predict", "m.zarr", "x.zarr", "--quiet").count("\n") == 201
    run(programs / "dlatent", "plot", "spectrum", "m.zarr", "-o", "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_one_version_is_said_everywhere() -> None:
    import dlatent

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {dlatent.__version__, PROJECT["version"], cited["version"]} == {PROJECT["version"]}
    assert cited["license"] == PROJECT["license"]
