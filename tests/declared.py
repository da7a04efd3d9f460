"""What pyproject.toml says of other packages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(groups: Iterable[str]) -> list[Requirement]:
    """All of them: to build dlatent, to use it with all extras, and of these groups for development."""
    stated = chain(
        PROJECT["build-system"]["requires"],
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
        *(PROJECT["dependency-groups"][name] for name in groups),
    )
    return [Requirement(one) for one in stated if isinstance(one, str)]
