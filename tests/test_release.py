"""What leaves the repository: workflows, recipes of packages and images; what several of them say is the same."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
OF_CONDA = {"dask": "dask-core", "matplotlib": "matplotlib-base", "prometheus-client": "prometheus_client"}
"""Names of packages that conda-forge has by another name."""


def jobs(name: str) -> dict[str, Any]:
    return yaml.safe_load(WORKFLOWS[name].read_text())["jobs"]


def of_conda(requirements: list[str]) -> set[str]:
    """Requirements by the names of conda, without extras; an extra is a package of its own."""
    found = set[str]()
    for one in map(Requirement, requirements):
        found |= {f"{OF_CONDA.get(one.name, one.name)}{one.specifier}", *one.extras}
    return found


def test_every_action_is_one_commit() -> None:
    used = [line for path in WORKFLOWS.values() for line in path.read_text().splitlines() if "uses:" in line]
    assert len(used) >= 8
    assert [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line)] == []


def test_every_python_that_the_package_names_is_tested() -> None:
    tested = set(jobs("tests")["tests"]["strategy"]["matrix"]["python"])
    named = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert named <= tested
    assert PROJECT["requires-python"] == f">={min(named, key=lambda one: int(one[2:]))}"


def test_every_target_of_make_that_a_workflow_asks_for_is_there() -> None:
    asked = set(re.findall(r"run: make ([\w-]+)", "".join(path.read_text() for path in WORKFLOWS.values())))
    asked |= set(jobs("tests")["rest"]["strategy"]["matrix"]["target"])
    assert {"check", "test", "package"} <= asked
    assert asked <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_who_publishes_has_no_password_and_no_other_right() -> None:
    build, publish = jobs("release")["build"], jobs("release")["publish"]
    assert (publish["permissions"], publish["environment"]) == ({"id-token": "write"}, "pypi")
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert "permissions" not in build
    assert "secrets." not in WORKFLOWS["release"].read_text()


def test_a_release_names_the_repository_that_makes_it(tmp_path: Path) -> None:
    (step,) = [one for one in jobs("release")["build"]["steps"] if "Name this repository" in one.get("name", "")]
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    own = {**os.environ, "HERE": "https://example.org/a/b", "GITHUB_REF_NAME": "v1"}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=own, check=True)
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"] == {
        **PROJECT,
        "urls": {
            "Source": "https://example.org/a/b",
            "Issues": "https://example.org/a/b/issues",
            "Changelog": "https://example.org/a/b/blob/v1/CHANGELOG.md",
        },
    }


@pytest.mark.parametrize(("tag", "status"), [(f"v{PROJECT['version']}", 0), ("v9", 1)])
def test_a_tag_that_is_not_the_version_is_no_release(tag: str, status: int) -> None:
    (step,) = [one for one in jobs("release")["build"]["steps"] if "The tag" in one.get("name", "")]
    ended = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert ended.returncode == status


def test_the_recipe_of_conda_has_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    run = {one.replace(" ", "") for one in recipe["requirements"]["run"]}
    assert run - {"python>=${{python_min}}"} == of_conda(PROJECT["dependencies"])
    commands = [f"{name} = {where}" for name, where in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
    assert recipe["about"]["license"] == PROJECT["license"]


def test_the_environment_of_conda_has_what_package_and_extras_need() -> None:
    lines = yaml.safe_load((ROOT / "deploy/conda/environment.yaml").read_text())["dependencies"]
    extras = [one for name in ("plot", "files", "remote", "metrics") for one in PROJECT["optional-dependencies"][name]]
    found = {one for one in lines if isinstance(one, str)}
    beside = {one for one in found if re.match(r"(python|pip|setuptools)\b", one)}
    assert found - beside == of_conda([*PROJECT["dependencies"], *extras])
    assert lines[-1] == {"pip": ["../.."]}
    assert (ROOT / "deploy/conda" / "../.." / "pyproject.toml").exists()


def test_the_image_of_apptainer_is_that_of_the_containerfile() -> None:
    image, file = ((ROOT / "deploy" / one).read_text() for one in ("slurm/image.def", "kubernetes/Containerfile"))
    (base,) = re.findall(r"^ARG BASE=(.*)$", file, re.MULTILINE)
    assert f"\nFrom: {base}\n" in image
    commands = []
    for text in (image, file):
        lines = (" ".join(line.split()) for line in re.split(r"&&|\n", text.replace("\\\n", " ")))
        commands.append([line for line in lines if "/opt/dlatent/bin/pip " in line or "compileall" in line])
    assert len(commands[0]) == 4
    assert commands[0] == commands[1]
