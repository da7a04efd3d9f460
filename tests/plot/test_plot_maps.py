"""Pictures of scores and loadings show the right samples, features, colours and names."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from dlatent import plot


def points(axes) -> dict[str, np.ndarray]:
    return {group.get_label(): np.asarray(group.get_offsets()) for group in axes.collections}


def test_scores_of_two_components(model, data) -> None:
    scores = model.transform(data)
    axes = plot.scores(scores, components=(2, 0))
    (shown,) = points(axes).values()
    np.testing.assert_array_equal(shown, scores.values[:, [2, 0]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("component 2", "component 0")
    assert axes.get_legend() is None
    (other,) = points(plot.scores(model.posterior(data), components=(-1, 0))).values()
    np.testing.assert_array_equal(other, shown)


def test_names_of_components_come_from_the_coordinates() -> None:
    scores = xr.DataArray(np.ones((4, 2)), dims=("row", "axis"), coords={"axis": ["size", "shape"]})
    assert plot.scores(scores).get_ylabel() == "component shape"


def test_frequent_labels_get_colours_and_the_rest_is_grey() -> None:
    scores = np.arange(20.0).reshape(10, 2)
    labels = ["b", "b", "b", "a", "a", "c", None, float("nan"), "a", "a"]
    axes = plot.scores(scores, labels=labels, most_labels=2)
    shown = points(axes)
    assert list(shown) == ["others", "a", "b"]
    np.testing.assert_array_equal(shown["a"], scores[[3, 4, 8, 9]])
    np.testing.assert_array_equal(shown["others"], scores[[5, 6, 7]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["others", "a", "b"]
    colours = {tuple(group.get_facecolor()[0]) for group in axes.collections}
    assert len(colours) == 3


def test_numbers_are_labels_too() -> None:
    shown = points(plot.scores(np.eye(4), labels=np.array([7, 7, 9, 9])))
    assert list(shown) == ["7", "9"]


def test_bad_scores_and_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="give one for each"):
        plot.scores(np.ones((4, 2)), labels=["a"])
    with pytest.raises(ValueError, match="the scores have 2"):
        plot.scores(np.ones((4, 2)), components=(0, 2))
    with pytest.raises(ValueError, match="samples × components"):
        plot.scores(np.ones(4))


def test_loadings_are_the_largest_with_their_names(model) -> None:
    axes = plot.loadings(model, 1, top=4)
    column = model.components_[1]
    order = np.argsort(-np.abs(column))[:4]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], column[order])
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"gene{j}" for j in order]
    assert axes.yaxis_inverted()
    with pytest.raises(ValueError, match="the model has 3"):
        plot.loadings(model, 3)
