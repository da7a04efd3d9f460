"""Pictures of what was not observed show the model's means and intervals at the right places."""

from __future__ import annotations

import numpy as np
import pytest

import dlatent
from dlatent import plot


@pytest.fixture
def holes(data):
    return data.where(np.random.default_rng(2).random(data.shape) > 0.2)


def intervals(axes) -> np.ndarray:
    """Place, lower and upper end of each error bar."""
    (bars,) = axes.containers[0].lines[2]
    return np.array([[segment[0, 0], *segment[:, 1]] for segment in bars.get_segments()])


def test_observed_filled_in_and_true_values(data, holes) -> None:
    model = dlatent.PPCA(3, missing="nan", prior="ml").fit(holes)
    axes = plot.imputation(model, holes, 4, truth=data.values[:, 4], level=0.9)
    gone = np.isnan(holes.values[:, 4])
    observed, filled, truth = axes.lines
    np.testing.assert_array_equal(observed.get_xydata(), np.column_stack([np.arange(80), data[:, 4]])[~gone])
    np.testing.assert_array_equal(truth.get_xydata(), np.column_stack([np.arange(80), data[:, 4]])[gone])

    # The conditional distribution of a normal vector, row by row.
    covariance, rows = model.get_covariance(), np.flatnonzero(gone)
    expected = []
    for row in rows:
        seen = ~np.isnan(holes.values[row])
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen, 4])
        mean = model.mean_[4] + weights @ (data.values[row, seen] - model.mean_[seen])
        spread = 1.6448536269514722 * np.sqrt(covariance[4, 4] - weights @ covariance[seen, 4])
        expected.append([row, mean - spread, mean + spread])
    np.testing.assert_allclose(intervals(axes), expected, rtol=1e-6)
    np.testing.assert_allclose(filled.get_ydata(), np.mean(np.array(expected)[:, 1:], axis=1), rtol=1e-6)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cell", "gene gene4")
    whole = plot.imputation(model, holes, 4, truth=data, level=0.9).lines[2]
    np.testing.assert_array_equal(whole.get_xydata(), truth.get_xydata())
    with pytest.raises(ValueError, match=r"truth has the shape \(3,\); expected \(80,\) or \(80, 12\)"):
        plot.imputation(model, holes, 4, truth=[1.0, 2.0, 3.0])
    assert "90%" in axes.get_legend_handles_labels()[1][2] + axes.get_legend_handles_labels()[1][1]


def test_samples_lie_at_their_coordinates(holes) -> None:
    dated = holes.assign_coords(cell=1900 + 2 * np.arange(80))
    axes = plot.imputation(dlatent.PPCA(2, missing="nan").fit(dated), dated, 0)
    assert set(axes.lines[0].get_xdata()) | set(axes.lines[1].get_xdata()) == set(range(1900, 2060, 2))
    plain = plot.imputation(dlatent.PPCA(2, missing="nan").fit(holes.values), holes.values, 0)
    assert (plain.get_xlabel(), plain.get_ylabel()) == ("sample", "feature 0")


def test_what_cannot_be_drawn_is_refused(holes) -> None:
    model = dlatent.PPCA(2, missing="nan").fit(holes)
    with pytest.raises(ValueError, match="the data have 12"):
        plot.imputation(model, holes, 12)
    with pytest.raises(ValueError, match="probability"):
        plot.imputation(model, holes, 0, level=95)
    with pytest.raises(ValueError, match="position along each"):
        plot.imputation(model, holes, {"gene": 1, "cell": 2})


def test_a_cell_of_a_grid_is_named_by_its_coordinates(field) -> None:
    holes = field.copy()
    holes[5:9, 1, 2] = np.nan
    model = dlatent.PPCA(2, missing="nan").fit(holes, dim="time")
    axes = plot.imputation(model, holes, {"lat": 1, "lon": 2}, truth=field[:, 1, 2])
    np.testing.assert_array_equal(intervals(axes)[:, 0], [5, 6, 7, 8])
    np.testing.assert_array_equal(axes.lines[2].get_ydata(), field.values[5:9, 1, 2])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "lat 0.0, lon 30.0")


def test_a_view_from_another(data) -> None:
    views = {"image": data.values[:60, :7], "sound": data.values[20:, 7:]}
    pairs = np.column_stack([np.arange(20, 60), np.arange(40)])
    model = dlatent.CorrespondencePPCA(3, head="likelihood").fit(views, correspondence=pairs)
    new, truth = data.values[:20, :7], data.values[:20, 9]
    axes = plot.reconstruction(model, new, "image", "sound", 2, truth=truth, level=0.5)

    # The conditional distribution of a normal vector.
    image, sound = model.components_["image"].T, model.components_["sound"].T[2]
    covariance = image @ image.T + model.noise_variance_["image"] * np.eye(7)
    weights = np.linalg.solve(covariance, image @ sound)
    mean = model.mean_["sound"][2] + (new - model.mean_["image"]) @ weights
    variance = sound @ sound + model.noise_variance_["sound"] - weights @ image @ sound
    half = 0.6744897501960817 * np.sqrt(variance)
    np.testing.assert_allclose(intervals(axes), np.column_stack([truth, mean - half, mean + half]), rtol=1e-6)
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), axes.lines[1].get_ydata())
    np.testing.assert_array_equal(intervals(plot.reconstruction(model, new, "image", "sound", 2))[:, 0], np.arange(20))
    with pytest.raises(ValueError, match=r"give truth\[:, 2\]"):
        plot.reconstruction(model, new, "image", "sound", 2, truth=data.values[:20, 7:])
