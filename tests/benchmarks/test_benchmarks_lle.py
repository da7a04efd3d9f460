"""The case with 200,000 points, on few."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases import lle_scale


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lle_scale, "SUBSAMPLE", 400)
    monkeypatch.setattr(lle_scale, "LOOKED_UP", 50)
    assert lle_scale.prepare(tmp_path, 0.0)["shape"] == [800, lle_scale.FEATURES]
    return tmp_path


def test_the_products_of_a_part_stand_for_all(folder) -> None:
    found = lle_scale.products(folder, 0.0, "float64")
    assert found["fit_seconds"] > 0


def test_a_subsample_is_embedded_as_by_scikit_learn(folder) -> None:
    found = lle_scale.subsample(folder, 0.0)
    assert found["angle"] < 1e-6
    np.testing.assert_allclose(found["own_error"], found["error"], atol=1e-6)


def row(task: str, **values: object) -> dict[str, object]:
    cap = {"limit": lle_scale.CAP, "oom_kills": 0}
    base = {"task": task, "status": "ok", "run": 0, "fit_seconds": 2.0, "peak_tree_pss": 50, "cap": cap}
    return base | {"eigen_residual": 1e-5, "eigen_solver": "direct", "recall": 1.0, "angle": 1e-8} | values


REQUIREMENTS = {
    "hard cap": ("lle/exact", {"cap": {"limit": lle_scale.CAP, "oom_kills": 1}}),
    "settled": ("lle/exact", {"eigen_residual": 1e-2}),
    "every neighbour": ("neighbours looked up", {"recall": 0.999}),
    "subsample": ("subsample", {"angle": 1e-3}),
}


@pytest.mark.parametrize("words", REQUIREMENTS)
def test_a_requirement_that_fails_is_named(words) -> None:
    task, values = REQUIREMENTS[words]
    names = ("lle/exact", "neighbours looked up", "subsample")
    rows = [row(name) for name in names]
    assert all(check.passed for check in lle_scale.summarise(rows).checks)
    rows = [row(name, **(values if name == task else {})) for name in names]
    failed = [check.text for check in lle_scale.summarise(rows).checks if not check.passed]
    assert len(failed) == 1
    assert words in failed[0]
