"""The case of few labels: what its methods are given, and how their probabilities are measured."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.cases import few_labels
from benchmarks.cases.few_labels import METHODS, OF_CLASSES, Setting, calibration_error, measured, some_labelled


@pytest.fixture
def given() -> Setting:
    rng = np.random.default_rng(0)
    codes = np.arange(90) % 3
    rows = rng.normal(size=(90, 8)) + 4.0 * np.eye(3, 8)[codes]
    targets = np.eye(3)[codes]
    return Setting(rows, rows[:, :4] - rows[:, :4].mean(axis=0), targets, some_labelled(targets, 5, seed=1), True)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_tells_classes_that_lie_apart(given: Setting, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = METHODS[name](given)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-6)
    assert measured(found, given.targets, classes=True)["error"] < 0.15


@pytest.mark.parametrize("name", sorted({*METHODS} - {*OF_CLASSES}))
def test_methods_of_several_labels_tell_each(given: Setting, name: str) -> None:
    both = given._replace(targets=np.column_stack([given.targets[:, 0], 1.0 - given.targets[:, 0]]), classes=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = METHODS[name](both)
    assert measured(found, both.targets, classes=False)["error"] < 0.15


def test_so_many_of_each_class_are_labelled(given: Setting) -> None:
    assert given.targets[given.labelled].sum(axis=0).tolist() == [5.0, 5.0, 5.0]


def test_calibration_is_what_its_definition_says() -> None:
    rng = np.random.default_rng(2)
    sure = rng.uniform(1 / 3, 1.0, 400)
    right = rng.random(400) < sure**2
    expected, edges = 0.0, np.linspace(0.0, 1.0, few_labels.BINS + 1)
    for low, high in pairwise(edges):
        own = (sure >= low) & (sure < high)
        if own.any():
            expected += own.mean() * abs(sure[own].mean() - right[own].mean())
    assert calibration_error(sure, right) == pytest.approx(expected, rel=1e-12)
    assert expected > 0.05


def test_the_report_compares_the_heads_of_dlatent_on_the_same_splits() -> None:
    def row(first: int, by: dict[str, float]) -> dict[str, Any]:
        found = {
            name: {
                measure: [value + 0.01 * seed for seed in range(first, first + 2)] for measure in few_labels.MEASURES
            }
            for name, value in by.items()
        }
        about = {"data": "orl", "each": 2, "n_components": 20, "first": first, "last": first + 2}
        return {"status": "ok", "task": f"orl/{first}", "arguments": about, "measured": found}

    rows = [row(first, {few_labels.TODAY: 0.3, "head auto": 0.2}) for first in (0, 2)]
    found = few_labels.summarise(rows)
    assert "0.315 ± 0.006" in found.markdown
    assert "0.215 ± 0.006" in found.markdown
    assert [check.passed for check in found.checks] == [True]
    rows = [row(first, {few_labels.TODAY: 0.2, "head auto": 0.3}) for first in (0, 2)]
    assert [check.passed for check in few_labels.summarise(rows).checks] == [False]
