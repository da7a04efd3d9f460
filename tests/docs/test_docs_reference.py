"""The reference page says of every parameter what its signature says, as Sphinx renders it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

napoleon = pytest.importorskip("sphinx.ext.napoleon", reason="Sphinx comes with the tools of development")

DOCS = Path(__file__).parents[2] / "docs"
IMPLIED = frozenset({"self", "cls"})
ELSEWHERE = re.compile(r"as in|as for|as `|those of|of the same name")
"""What a docstring says where another one describes the parameters."""


def conf() -> ModuleType:
    """The configuration of the documentation, which brings docstrings into the form that Sphinx reads."""
    specification = importlib.util.spec_from_file_location("documentation_conf", DOCS / "conf.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def resolved(dotted: str) -> Any:
    """The object of a dotted name, by imports as far as they go."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ImportError(dotted)


def documented() -> Iterator[tuple[str, Any]]:
    """Every class, function and public method of the page."""
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    for kind, name in re.findall(r"^\.\. auto(class|function|module|exception):: (\S+)", page, flags=re.MULTILINE):
        found = resolved(name)
        if kind == "module":
            own = (value for key, value in vars(found).items() if not key.startswith("_"))
            for member in own:
                inside = getattr(member, "__module__", "").startswith(name)
                if inside and (inspect.isfunction(member) or inspect.isclass(member)):
                    yield from described(f"{name}.{member.__name__}", member)
        else:
            yield from described(name, found)


def described(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    yield name, found
    if inspect.isclass(found):
        for key, member in inspect.getmembers(found, inspect.isfunction):
            if not key.startswith("_") and member.__module__.startswith("dlatent"):
                yield f"{name}.{key}", member


def parameters(found: Any) -> set[str]:
    """The names in the signature."""
    return set(inspect.signature(found).parameters) - IMPLIED


def rendered(docstring: str) -> tuple[list[str], list[str]]:
    """The lines that Sphinx gets of a docstring, and the names of its parameters."""
    lines = inspect.cleandoc(docstring).splitlines()
    conf().describe_entries(None, "class", "", None, None, lines)
    # Else attributes come as directives of their own.
    configuration = napoleon.Config(napoleon_use_rtype=False, napoleon_use_ivar=True)
    lines = napoleon.NumpyDocstring(lines, configuration, what="class").lines()
    fields = [found[1] for line in lines if (found := re.match(r":param ([^:]*):", line))]
    return lines, [name.strip() for field in fields for name in field.replace("\\", "").split(",")]


OBJECTS = dict(documented())


@pytest.mark.parametrize("name", OBJECTS)
def test_parameters_are_those_of_the_signature(name: str) -> None:
    found = OBJECTS[name]
    docstring = inspect.getdoc(found) or ""
    if re.search(r"^Parameters\n-+$", docstring, flags=re.MULTILINE):
        _, names = rendered(docstring)
        assert set(names) == parameters(found), f"{name}: {set(names) ^ parameters(found)}"
        return
    prose = re.search(
        r"Parameters: (.*?)(?=\n\n|\n(?:Returns|Errors|Raises|Law|Laws|Source|Yields):|\Z)", docstring, flags=re.DOTALL
    )
    if prose is None:
        return
    text = " ".join(prose[1].split())
    headed = {word for part in text.split(";") for word in leading(part)}
    assert headed <= parameters(found), f"{name} describes {headed - parameters(found)}, which it does not have"
    silent = {word for word in parameters(found) if not re.search(rf"`{word}`", docstring)}
    if not ELSEWHERE.search(docstring):
        assert not silent, f"{name} says nothing of {silent}"


def leading(part: str) -> list[str]:
    """The names in code that a part of a sentence begins with: "`X` (N, D)", "`a`, `b` as in …"."""
    found = re.match(r"\s*((?:`\w+`(?:,| and)? ?)+)", part)
    return re.findall(r"`(\w+)`", found[1]) if found else []
