"""No version that pyproject.toml allows, and none in a lock file, is one of which a listed advisory warns."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.version import Version

from tests.declared import PROJECT, ROOT, requirements

LISTED = tomllib.loads((ROOT / "requirements/advisories.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
BOUNDS = [bound for bound in requirements(PROJECT["dependency-groups"]) if bound.specifier]


@pytest.mark.parametrize("advisory", LISTED["fixed"], ids=lambda advisory: advisory["advisory"])
def test_lower_bounds_and_locked_versions_are_those_without_it(advisory: dict[str, str]) -> None:
    package, fixed = advisory["package"], Version(advisory["version"])
    bounds = [bound for bound in BOUNDS if bound.name == package]
    assert bounds, f"{package} is none of the dependencies any more; take it out of the list"
    for bound in bounds:
        (lowest,) = (Version(one.version) for one in bound.specifier if one.operator == ">=")
        assert lowest >= fixed, f"{bound} allows versions of which {advisory['advisory']} warns"
    for lock in LOCKS:
        for version in re.findall(rf"^{re.escape(package)}==(\S+)", lock.read_text(), flags=re.MULTILINE):
            assert Version(version) >= fixed, f"{lock.name} has {package} {version}"


def test_there_are_lock_files_to_look_at() -> None:
    assert {lock.name for lock in LOCKS} == {"demo.txt", "dev.txt", "lowest.txt"}
