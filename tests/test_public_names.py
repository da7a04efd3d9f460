"""The public names of the package: what is imported at first use, and what type checkers are told, are the same."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlatent
from dlatent.models import MODELS
from dlatent.models.model import Estimator


def told_to_type_checkers() -> dict[str, str]:
    """Names and modules of the imports under TYPE_CHECKING."""
    tree = ast.parse(Path(dlatent.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    assert all(name.asname == name.name for node in imports for name in node.names)
    return {name.name: str(node.module) for node in imports for name in node.names}


ROOT = Path(__file__).parents[1]
NAME = re.compile(r"(?<![\w/.:-])(?<!from )dlatent(?:\.[A-Za-z_]\w*)+(?![\w-])")
OTHER_NAMES = {"dlatent.engine", "dlatent.cli.main.parser"}
"""The name of the log, and what writes completions for shells."""
SECTIONS = re.compile(r"^\.\. automodule::.*$", re.MULTILINE)
"""Pages of the reference name modules whose members they show."""
LISTS = {"dlatent/stores/schema.py", "dlatent/models/__init__.py"}
"""These speak to those who add a model."""


def names_in_pages() -> set[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.ipynb")]
    texts = [path.read_text(encoding="utf-8") for path in pages if not {"_build", "tutorials"} & set(path.parts)]
    return {name for text in texts for name in NAME.findall(SECTIONS.sub("", text))}


def names_in_texts_of_the_package() -> set[str]:
    """Names in messages and docstrings."""
    texts = [
        node.value
        for path in (ROOT / "dlatent").rglob("*.py")
        if str(path.relative_to(ROOT)) not in LISTS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {name for text in texts for name in NAME.findall(text)}


def test_what_pages_and_messages_print_can_be_typed_in_a_fresh_process():
    names = (names_in_pages() | names_in_texts_of_the_package()) - OTHER_NAMES
    assert {"dlatent.load", "dlatent.open_data", "dlatent.plot.scores", "dlatent.verify"} < names
    assert all(name.split(".")[1] in dir(dlatent) for name in names), names
    program = "import sys, dlatent\nfor name in sys.argv[1:]: eval(name)"
    subprocess.run([sys.executable, "-c", program, *sorted(names)], check=True)


def test_the_directory_of_the_package_shows_what_users_need():
    assert dir(dlatent) == sorted([*dlatent.__all__, "plot", "testing", "__version__"])
    assert not [name for name in dlatent.__all__ if not getattr(dlatent, name).__doc__]


def test_type_checkers_know_every_public_name_and_no_other():
    told = told_to_type_checkers()
    assert sorted(told) == dlatent.__all__
    for name, module in told.items():
        assert getattr(dlatent, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_is_an_estimator_of_its_name(model):
    found = model.load()
    assert found.__name__ == model.name
    assert issubclass(found, Estimator)
    assert getattr(dlatent, model.name) is found
    assert bool(model.command) == bool(model.description)


def test_every_estimator_without_heirs_is_listed():
    for model in MODELS:
        importlib.import_module(f"dlatent.models.{model.module}")
    listed, waiting = {model.load() for model in MODELS}, [Estimator]
    while waiting:
        heirs = [heir for heir in waiting.pop().__subclasses__() if heir.__module__.startswith("dlatent.")]
        assert {heir for heir in heirs if not heir.__subclasses__()} <= listed
        waiting += heirs


def test_commands_have_names_of_their_own():
    commands = [model.command for model in MODELS if model.command]
    assert len(commands) == len(set(commands))


def test_the_module_of_saved_models_names_no_model():
    tree = ast.parse(inspect.getsource(importlib.import_module("dlatent.models.saved")))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            node.body[0] = ast.Pass()  # examples may
    code = ast.unparse(tree)
    assert "isinstance(model" not in code
    assert not [model.name for model in MODELS if model.name in code]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_errors_of_a_wrong_call_name_the_class_and_the_method_of_users(model):
    found = model.load()
    with pytest.raises(TypeError, match=rf"^{model.name}\.__init__\(\) got an unexpected keyword argument 'tolerance'"):
        found(tolerance=3)
    for name in dir(found):
        method = inspect.getattr_static(found, name)
        if inspect.isfunction(method) and not name.startswith("_") and method.__module__.startswith("dlatent."):
            with pytest.raises(TypeError, match=rf"^{model.name}\.{name}\(\) (got|missing|takes)"):
                getattr(found(), name)(*[None] * 20)
