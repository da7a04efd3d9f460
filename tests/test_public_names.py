"""The public names of the package: what is imported at first use, and what type checkers are told, are the same."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import dlatent
from dlatent.models import MODELS
from dlatent.models.scikit import Estimator


def told_to_type_checkers() -> dict[str, str]:
    """Names and modules of the imports under TYPE_CHECKING."""
    tree = ast.parse(Path(dlatent.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    assert all(name.asname == name.name for node in imports for name in node.names)
    return {name.name: str(node.module) for node in imports for name in node.names}


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
    assert bool(model.command) == bool(model.words)


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
