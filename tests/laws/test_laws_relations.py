"""Every model has the relations between fits that the table says, and no others."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from changes_of_data import Case
from law_models import MODELS, Answer, Problem, answer
from relations import RELATIONS, named
from sklearn.base import clone

from dlatent import DlatentError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@cache
def known(name: str, seed: int) -> tuple[Any, Problem, Answer, Any]:
    """An estimator with one of its solvers, a random problem for it, what it says of that, and the fitted model."""
    row = MODELS[name]
    problem, solver = row.data(np.random.default_rng(seed)), row.solvers[seed % len(row.solvers)]
    estimator = clone(row.estimator).set_params(**({} if solver == "auto" else {"solver": solver}))
    return estimator, problem, *answer(estimator, problem)


def compare(relation: str, name: str, seed: int, folder: Path) -> None:
    """The relation; of scores, which are free up to a rotation, by their inner products."""
    estimator, problem, said, model = known(name, seed)
    case = Case(problem, model, said, np.random.default_rng([seed, 7]), folder)
    changed, back = RELATIONS[relation].change(case)
    found = back(answer(estimator, changed)[0])
    if found.total is not None:
        assert found.total == pytest.approx(said.total, rel=MODELS[name].height, abs=1e-9)
    for field in ("density", "scores", "entries", "targets"):
        one, other = getattr(found, field), getattr(said, field)
        if one is None or other is None:
            continue
        if field == "scores":
            one, other = one @ one.T, other @ other.T
        np.testing.assert_allclose(one, other, rtol=0, atol=MODELS[name].rest * np.nanmax(abs(other)), err_msg=field)


def pairs(having: bool) -> list[Any]:
    """Those of the table, model by model."""
    return [
        pytest.param(name, relation, marks=[pytest.mark.slow] if row.slow else [])
        for name, row in MODELS.items()
        for relation, each in RELATIONS.items()
        if name in (each.models if having else each.others)
    ]


@pytest.mark.parametrize(("name", "relation"), pairs(having=True))
def test_a_relation_holds(name: str, relation: str, tmp_path: Path) -> None:
    """Of models with two solvers in turn."""
    compare(relation, name, list(RELATIONS).index(relation) % len(MODELS[name].solvers), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "relation"), [pair for pair in pairs(having=True) if not pair.marks])
def test_a_relation_holds_in_another_shape(name: str, relation: str, tmp_path: Path) -> None:
    compare(relation, name, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "relation"), pairs(having=False))
def test_a_relation_that_a_model_has_not_does_not_hold(name: str, relation: str, tmp_path: Path) -> None:
    """Or is refused: without this, a model could be left out that has it, and a comparison could see nothing."""
    with pytest.raises((AssertionError, DlatentError, AttributeError, TypeError, ValueError)):
        compare(relation, name, 0, tmp_path)


def test_the_table_names_models() -> None:
    for relation in RELATIONS.values():
        assert relation.others <= named(relation.among) <= set(MODELS)
