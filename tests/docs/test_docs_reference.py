"""The reference has all that is public, says of every parameter what its signature says, and its examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

import dlatent
from dlatent.models import MODELS, hyperparameters
from dlatent.models.docstrings import SHARED, entries, parsed

DOCS = Path(__file__).parents[2] / "docs"
NEEDED = frozenset({"y", "graph"})
"""Parameters that scikit-learn wants to have a default, and without which some models cannot be fitted."""
LATER = frozenset({"classes_"})
"""Attributes that a model has only after some fits."""


def listed() -> dict[str, Any]:
    """The objects that have a page of the reference, by name."""
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    found = {}
    for block in re.findall(r"^\.\. autosummary::\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for name in re.findall(r"^   ([\w.]+)$", block, flags=re.MULTILINE):
            module, _, last = f"dlatent.{name}".rpartition(".")
            found[name] = getattr(importlib.import_module(module), last)
    return found


PAGES = listed()
_, _, RETURNED = (DOCS / "reference.md").read_text(encoding="utf-8").partition("## What functions return")
VALUES = {name for name in PAGES if f"\n   {name}\n" in RETURNED}
"""Users get these, and do not make them."""
USED = [name for name in PAGES if name not in VALUES]
MODEL_NAMES = {model.name for model in MODELS}


def public_methods(name: str) -> Iterator[tuple[str, Any]]:
    for key, member in inspect.getmembers(PAGES[name], inspect.isfunction):
        if not key.startswith("_") and member.__module__.startswith("dlatent"):
            yield f"{name}.{key}", member


DESCRIBED = dict(PAGES) | {key: own for name in USED for key, own in public_methods(name)}


def test_the_reference_has_all_that_is_public() -> None:
    errors = {name for name in dlatent.__all__ if name.endswith(("Error", "Warning"))}
    assert set(dlatent.__all__) - errors == {name for name in PAGES if "." not in name}
    assert set(PAGES) > MODEL_NAMES
    page = (DOCS / "reference_errors.md").read_text(encoding="utf-8")
    for name in errors:
        assert getattr(dlatent, name).__module__ == "dlatent.errors" or f"dlatent.{name}" in page


def complaints(found: Any) -> Iterator[str]:
    """What the section of parameters says otherwise than the signature."""
    sections = parsed(found.__doc__ or "")
    signature = inspect.signature(found).parameters
    own = entries(sections.get("Parameters", ""))
    wanted = {name: parameter for name, parameter in signature.items() if name not in ("self", "cls")}
    values = inspect.isclass(found) and found.__name__ in VALUES
    yield from (f"{name} is not described" for name in wanted if name not in own)
    yield from (f"{name} is no parameter" for name in own if name not in wanted)
    yield from (f"{a} stands before {b}" for a, b in zip(own, wanted, strict=False) if a != b)
    for name, entry in own.items():
        header, _, text = entry.partition("\n")
        if not re.fullmatch(r"\**[\w*]+ : \S.*", header) or not text.strip():
            yield f"{name} has no type, or no description: {entry!r}"
        elif not (values or name in NEEDED) and name in wanted and not says_default(header, wanted[name].default):
            yield f"{name} has the default {wanted[name].default!r}, which {header!r} does not say"


def says_default(header: str, default: Any) -> bool:
    if default is inspect.Parameter.empty:
        return "default" not in header
    if default is None or default == ():
        return header.endswith("optional")
    said = re.search(r", default (.+)$", header)
    return said is not None and ast.literal_eval(said[1]) == default


@pytest.mark.parametrize("name", DESCRIBED)
def test_parameters_are_those_of_the_signature(name: str) -> None:
    kind, _, method = name.partition(".")
    # A bar has the methods of a callback, which says what they are given.
    found = getattr(dlatent.Callback, method, DESCRIBED[name]) if kind == "ProgressBar" else DESCRIBED[name]
    assert not list(complaints(found)), f"{name}: {list(complaints(found))}"


def test_complaints_are_made() -> None:
    def function(first: int, second: str = "a", third: None = None) -> None:
        """Nothing.

        Parameters
        ----------
        first : int
            A number.
        second : str, default "b"
            A text.
        fourth : int
            Too many.
        """

    found = list(complaints(function))
    assert len(found) == 4
    assert "third is not described" in found
    assert "fourth is no parameter" in found


@pytest.mark.parametrize("name", DESCRIBED)
def test_results_are_described(name: str) -> None:
    found = DESCRIBED[name]
    if not inspect.isclass(found) and inspect.signature(found).return_annotation != "None":
        assert parsed(found.__doc__).get("Returns"), f"{name} says nothing of what it returns"


@pytest.mark.parametrize("name", sorted(MODEL_NAMES))
def test_choices_are_those_of_the_type(name: str) -> None:
    own = entries(parsed(PAGES[name].__doc__)["Parameters"])
    for field in fields(PAGES[name]):
        hint = vars(hyperparameters).get(str(field.type))
        if get_origin(hint) is Literal:
            said = re.search(r" : \{(.*?)\}", own[field.name])
            assert said, f"{field.name} does not name its choices"
            choices = ast.literal_eval(f"[{said[1]}]")
            assert set(choices) <= set(get_args(hint))
            # Of the solvers of PPCA, factor analysis has some.
            assert len(choices) == len(get_args(hint)) or (name, field.name) == ("FactorAnalysis", "solver")


def test_every_shared_description_is_used() -> None:
    texts = [inspect.getdoc(found) or "" for found in DESCRIBED.values()]
    for name, entry in SHARED.items():
        assert any(entry in text for text in texts), name


WITH_EXAMPLES = sorted(set(USED) & set(dlatent.__all__))


def run_example(name: str) -> dict[str, Any]:
    """Run the examples of an object, and return the variables that they leave."""
    text, names = parsed(PAGES[name].__doc__).get("Examples", ""), dict[str, Any]()
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert test.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    assert not runner.failures, "".join(said)
    return names | test.globs


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run_and_attributes_are_those_of_the_model(name: str) -> None:
    left = run_example(name)
    if name not in MODEL_NAMES:
        return
    model, own = left["model"], entries(parsed(PAGES[name].__doc__)["Attributes"])
    properties = {key for key, member in inspect.getmembers(type(model)) if isinstance(member, property)}
    found = {key for key in {*vars(model), *properties} if key.endswith("_") and not key.startswith("_")}
    assert set(own) - LATER == found - LATER
    for key, entry in own.items():
        if hasattr(model, key):
            assert has_said_shape(getattr(model, key), entry.partition("\n")[0]), f"{name}.{key}: {entry}"


def has_said_shape(value: Any, header: str) -> bool:
    """Whether a value is of the kind that a docstring says, and an array has as many dimensions."""
    if " : dict" in header:
        return isinstance(value, dict)
    if " : ndarray of" not in header:
        return not isinstance(value, np.ndarray)
    shapes = re.findall(r"\(([^()]*)\)", header)
    return isinstance(value, np.ndarray) and (
        not shapes or value.ndim in {len(shape.strip(",").split(",")) for shape in shapes}
    )


def test_what_a_class_says_itself_goes_before_what_its_bases_say() -> None:
    class Base:
        """A base."""

        @property
        def one_(self) -> int:
            """int: Of the base."""
            return 1

        @property
        def two_(self) -> int:
            """int: Of the base."""
            return 2

    class Own(Base):
        """A class.

        Examples
        --------
        >>> 1
        1
        """

        tol: float = hyperparameters.parameter(default=1e-9)

        @property
        def two_(self) -> int:
            """int: Of its own."""
            return 3

    Base.__module__ = Own.__module__ = "dlatent.models"
    sections = parsed(hyperparameters.model(Own).__doc__ or "")
    assert list(sections) == ["", "Parameters", "Attributes", "Examples"]
    assert list(entries(sections["Parameters"])) == ["tol"]
    assert entries(sections["Attributes"]) == {
        "one_": "one_ : int\n    Of the base.",
        "two_": "two_ : int\n    Of its own.",
    }
