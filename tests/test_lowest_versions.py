"""The lowest versions that pyproject.toml allows are those that `make test-lowest` installs."""

from __future__ import annotations

import pytest
from packaging.version import Version

from tests.declared import ROOT, requirements

FLOORS = [floor for floor in requirements(("build", "test")) if floor.name != "dlatent"]
LINES = (ROOT / "requirements/lowest.txt").read_text().splitlines()
TESTED = dict(line.partition(" ")[0].split("==") for line in LINES if line[0] not in "# ")


@pytest.mark.parametrize("floor", FLOORS, ids=lambda floor: floor.name)
def test_the_version_that_is_stated_is_the_version_that_is_tested(floor):
    (stated,) = floor.specifier
    assert stated.operator == ">="
    assert Version(stated.version) == Version(TESTED[floor.name]), "take lower ones by `make lock LOCK_FLAGS=--upgrade`"
