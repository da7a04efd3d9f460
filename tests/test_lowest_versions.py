"""The lowest versions that pyproject.toml allows are those that `make test-lowest` installs."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = ("build", "test")
FLOORS = [
    requirement
    for requirement in map(
        Requirement,
        chain(
            LISTED["build-system"]["requires"],
            LISTED["project"]["dependencies"],
            *LISTED["project"]["optional-dependencies"].values(),
            *(LISTED["dependency-groups"][name] for name in GROUPS),
        ),
    )
    if requirement.name != "dlatent"
]
LINES = (ROOT / "requirements/lowest.txt").read_text().splitlines()
TESTED = dict(line.partition(" ")[0].split("==") for line in LINES if line[0] not in "# ")


@pytest.mark.parametrize("floor", FLOORS, ids=lambda floor: floor.name)
def test_the_version_that_is_stated_is_the_version_that_is_tested(floor):
    (stated,) = floor.specifier
    assert stated.operator == ">="
    assert Version(stated.version) == Version(TESTED[floor.name]), "take lower ones by `make lock LOCK_FLAGS=--upgrade`"
