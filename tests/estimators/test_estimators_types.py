"""Type checkers know what public methods take and return, the parameters, and what a fit leaves."""

from __future__ import annotations

import inspect
import re

import pytest

import dlatent
from dlatent.models import MODELS

api = pytest.importorskip("mypy.api", reason="mypy comes with the tools of development")

CLASSES = {model.name: model.load() for model in MODELS}
OF_ANY = re.compile(r"NDArray\[Any\]|dict\[str, Any\]")
"""Arrays of any dtype, and facts in JSON."""


def signatures():
    """Every public function, and every public method and property of a model, that the package defines."""
    for name in dlatent.__all__:
        found = getattr(dlatent, name)
        if inspect.isfunction(found):
            yield name, found
        for key in dir(found) if name in CLASSES else ():
            member = inspect.getattr_static(found, key)
            function = member.fget if isinstance(member, property) else member
            own = str(getattr(function, "__module__", "")).startswith("dlatent.")
            if inspect.isfunction(function) and own and (key == "__init__" or not key.startswith("_")):
                yield f"{name}.{key}", function


SIGNATURES = dict(signatures())


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_no_signature_takes_or_returns_just_anything(name):
    signature = inspect.signature(SIGNATURES[name])
    said = {one.name: str(one.annotation) for one in signature.parameters.values() if one.name != "self"}
    # Which class a store holds is known when it is read.
    said |= {} if name == "load" else {"return": str(signature.return_annotation)}
    assert "<class 'inspect._empty'>" not in said.values()
    assert not [one for one, words in said.items() if re.search(r"\bAny\b", OF_ANY.sub("", words))]


def fitted_attributes(model, seen=()):
    """The names of the attributes that the documentation of a class lists, or of the classes that it refers to."""
    about = (inspect.getdoc(model) or "").partition("\nAttributes")[2].partition("\nSource: ")[0]
    found = set(re.findall(r"`(\w+_)`", about))
    for names in re.findall(r"^((?:\w+_, )*\w+_) : ", about, flags=re.MULTILINE):
        found |= set(names.split(", "))
    known = (*seen, model.__name__)
    named = " ".join(re.findall(r"(?m)^(?:: |.*others are )?(?:[Tt]hose of|Others as) ([^.;:]*)", about))
    for other in [name for name in CLASSES if re.search(rf"\b{name}\b", named) and name not in known]:
        found |= set(fitted_attributes(CLASSES[other], known))
    return sorted(found)


@pytest.mark.slow
def test_type_checkers_see_parameters_and_what_a_fit_leaves(tmp_path):
    lines = ["import dlatent"]
    for name, model in CLASSES.items():
        absent = {"components_", "mean_"} if "Kernel" in name else set()
        parameters = [key for key in inspect.signature(model.__init__).parameters if key != "self"]
        attributes = [key for key in fitted_attributes(model) if key not in absent]
        assert attributes
        lines.append(f"def of_{name}(model: dlatent.{name}) -> None:")
        lines += [f"    reveal_type(model.{key})" for key in (*parameters, *attributes)]
    (tmp_path / "asked.py").write_text("\n".join(lines) + "\n")
    said, wrong, _ = api.run([str(tmp_path / "asked.py"), "--cache-dir", str(tmp_path / "cache")])
    revealed = re.findall(r"asked\.py:(\d+): note: Revealed type is \"(.*)\"", said)
    assert not wrong
    assert len(revealed) == sum("reveal_type" in line for line in lines), said
    anything = re.compile(r"(?<!\[)\bAny\b")
    assert [(lines[int(at) - 1], kind) for at, kind in revealed if anything.search(kind)] == []
