"""What `docs/design.md` promises of the code as a whole, counted."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import dlatent
from dlatent import Callback
from dlatent.models import MODELS

ROOT = Path(__file__).parents[1]


def own_classes(cls: type) -> list[type]:
    """The classes of dlatent that a class is made of."""
    return [base for base in cls.__mro__ if base.__module__.startswith("dlatent.")]


def classes() -> Iterator[type]:
    """The classes of models and of what they keep, each once."""
    for package in ("dlatent.models", "dlatent.fitted"):
        for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
            members = vars(import_module(module.name)).values()
            yield from (one for one in members if inspect.isclass(one) and one.__module__ == module.name)


def code(member: Any) -> Any:
    """That of a function, whatever scikit-learn has wrapped around it."""
    return getattr(inspect.unwrap(member), "__code__", None) if inspect.isfunction(member) else None


def overridden(cls: type) -> list[str]:
    """Concrete methods and properties of a class that override concrete ones, but for what every class is given under
    its own name."""
    lines = []
    for name, member in vars(cls).items():
        method = inspect.isfunction(member) or isinstance(member, property | cached_property)
        if name.startswith("__") or not method:
            continue
        above: Any = next((vars(base)[name] for base in own_classes(cls)[1:] if name in vars(base)), None)
        same = inspect.isfunction(member) and code(member) is code(above)
        if above is not None and not same and not getattr(above, "__isabstractmethod__", False):
            lines.append(f"{cls.__name__}.{name}")
    return lines


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_is_made_of_few_classes(model: Any) -> None:
    assert len(own_classes(getattr(dlatent, model.name))) <= 4


def test_few_methods_override_others() -> None:
    lines = [line for cls in classes() if not issubclass(cls, Callback) for line in overridden(cls)]
    assert len(lines) <= 10, lines
    assert "Embedding.attributes" in lines  # so that the count counts


def test_what_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:\w+/)+[\w.]*|\w+\.py)`", page)
    assert len(places) > 20
    roots = (ROOT, ROOT / "dlatent", ROOT / "dlatent/stores/ingest")
    assert not [place for place in places if not any((root / place).exists() for root in roots)]


def test_no_file_is_long() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "dlatent").rglob("*.py")}
    assert not {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > 350}
