"""The case of defaults: splits, the table, and when it fails."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cases import defaults
from benchmarks.methods import of_defaults as by
from benchmarks.small_data import hidden, labelled, numbers
from benchmarks.task import Row
from dlatent import DataError, DataWarning, MisfitWarning

RIVAL = (0.31, 0.28, 0.35, 0.30, 0.26)


def row(default: Any, *, measure: str = "error", warned: tuple[tuple[str, str, int], ...] = ()) -> Row:
    """A result of one contest: the default, two rivals of which the first is the better one, and other settings;
    and warnings by kind, text and number of splits."""
    place = {"data": "iris", "variant": "raw"}
    methods = {
        ("default", "default"): default,
        ("rival", "good"): RIVAL,
        ("rival", "poor"): 0.9 * np.ones(5) if measure == "error" else np.zeros(5),
        ("setting", "K = 1"): np.full(5, 0.5),
        ("setting", "K = 2"): np.full(5, 0.125),
    }
    figures = [
        place | {"role": role, "method": name, "measure": measure, "values": list(values)}
        for (role, name), values in methods.items()
    ]
    said = [place | {"role": "default", "kind": kind, "texts": [text] * splits} for kind, text, splits in warned]
    return {"status": "ok", "task": "units", "figures": figures, "warned": said}


def passed(found: Row) -> bool:
    (check,) = defaults.summarise([found]).checks
    return check.passed


def test_a_default_behind_its_best_rival_fails() -> None:
    worse = np.add(RIVAL, [0.05, 0.04, 0.06, 0.05, -0.01])
    assert not passed(row(worse))
    assert passed(row(worse, measure="ARI"))
    assert passed(row(np.subtract(RIVAL, 0.05)))
    assert not passed(row(np.subtract(RIVAL, 0.05), measure="ARI"))


def test_noise_and_rounding_are_no_failure() -> None:
    assert passed(row(np.add(RIVAL, [0.05, -0.04, 0.06, -0.05, 0.01])))
    assert passed(row(np.add(RIVAL, 1e-9)))


def test_one_split_far_off_does_not_hide_that_all_are_behind() -> None:
    assert not passed(row(np.add(RIVAL, [0.02, 0.03, 9.0, 0.02, 0.01])))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_default_without_a_figure_fails(value: float) -> None:
    assert not passed(row([0.1, 0.1, value, 0.1, 0.1]))


def test_a_rival_without_a_figure_does_not() -> None:
    assert defaults.level(np.array([0.1, 0.2, np.inf]))


@pytest.mark.parametrize(
    ("kind", "text", "splits", "excused"),
    [
        (MisfitWarning, "few samples have every view; pass n_components=3", 3, True),
        (MisfitWarning, "few samples have every view; pass n_components=3", 2, False),
        (MisfitWarning, "reconstructions will exaggerate; try another number of components", 5, False),
        (DataWarning, "the units of the features differ; pass scale=True", 5, True),
        (DataWarning, "feature 3 has one value wherever it is observed, and says nothing: drop it", 5, False),
        (DataWarning, "1 row is all zeros, and fitted so; see where it is with zero_rows='raise'", 5, False),
    ],
)
def test_only_a_warning_on_most_splits_that_says_so_excuses(
    kind: type[Warning], text: str, splits: int, excused: bool
) -> None:
    assert passed(row(np.add(RIVAL, 0.1), warned=((kind.__name__, text, splits),))) is excused


def test_the_table_has_the_default_its_best_rival_and_the_best_setting() -> None:
    warned = ((MisfitWarning.__name__, "use scale=True", 5),)
    found = defaults.summarise([row(np.add(RIVAL, 0.1), warned=warned)]).markdown
    assert "| 0.4 ± 0.015 | good: 0.3 ± 0.015 | -0.1 ± " in found
    assert "| warned | K = 2: 0.125 ± 0 | – |" in found
    assert "| MisfitWarning | 5 | use scale=True |" in found
    assert "**behind**" in defaults.summarise([row(np.add(RIVAL, 0.1))]).markdown


def test_a_contest_is_measured_on_the_same_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[Any]] = {"ours": [], "rival": []}

    def ours(given: Any) -> Any:
        seen["ours"].append(given.rows)
        warnings.warn("the units differ; use scale=True", MisfitWarning, stacklevel=1)
        return by.column_means(given)

    def rival(given: Any) -> Any:
        seen["rival"].append(given.rows)
        return by.iterated_pca(given)

    contest = defaults.Contest(("wine",), hidden, ours, {"PCA": rival}, by.cell_error, variants=("z-scored",))
    monkeypatch.setitem(defaults.CONTESTS, "units", contest)
    found = defaults.compare(Path(), 0.4, "units")
    assert len(seen["ours"]) == 2
    np.testing.assert_array_equal(seen["ours"], seen["rival"])
    assert not np.array_equal(seen["ours"][0], seen["ours"][1], equal_nan=True)
    errors = {figure["role"]: figure["values"] for figure in found["figures"]}
    ours_error, pca_error = errors["default"], errors["rival"]
    np.testing.assert_allclose(ours_error, 1.0, atol=0.1)
    assert max(pca_error) < min(ours_error)
    assert [said["texts"] for said in found["warned"]] == [["the units differ; use scale=True"] * 2]


def test_a_default_that_ends_with_an_error_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(given: Any) -> Any:
        if given.seed == 1:
            raise DataError("no such scale; pass scale=True")
        return by.column_means(given)

    rivals = {"means": by.column_means}
    contest = defaults.Contest(("wine",), hidden, ours, rivals, by.cell_error, {"broken": ours})
    monkeypatch.setitem(defaults.CONTESTS, "units", contest)
    found = defaults.compare(Path(), 0.4, "units") | {"status": "ok", "task": "units"}
    assert not passed(found)
    assert "| DataError | 1 | no such scale; pass scale=True |" in defaults.summarise([found]).markdown


def test_units_do_not_change_what_is_hidden_or_how_it_is_scored() -> None:
    raw, scaled = hidden("wine", "raw", 3), hidden("wine", "random", 3)
    np.testing.assert_array_equal(raw.known, scaled.known)
    assert 0.05 < np.mean(~raw.known) < 0.15
    factors = scaled.targets.std(axis=0) / raw.targets.std(axis=0)
    assert factors.max() / factors.min() > 10
    one, other = (by.cell_error(given, by.column_means(given))["error"] for given in (raw, scaled))
    assert one == pytest.approx(other, rel=1e-9)


def test_so_many_rows_are_labelled() -> None:
    assert (
        np.bincount(labelled("iris", "raw", "2", 0).targets[labelled("iris", "raw", "2", 0).known]).tolist() == [2] * 3
    )
    half = labelled("wine", "raw", "half", 1)
    assert np.bincount(half.targets[half.known]).tolist() == [30, 36, 24]


def test_methods_that_know_the_answer_have_no_error() -> None:
    given = numbers("linnerud", 0)
    assert by.explained(given, given.targets[~given.known])["R²"] == 1.0
    assert by.explained(given, by.target_means(given))["R²"] == 0.0
    classes = labelled("iris", "raw", "5", 0)
    assert by.of_classes(classes, np.eye(3)[classes.targets]) == {"error": 0.0, "log-loss": 0.0}
