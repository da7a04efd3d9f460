"""Pictures of fits show the numbers of the model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

import dlatent
from dlatent import plot


def test_history_of_a_model_a_result_and_a_history(model, data) -> None:
    values = model.history_["iteration_log_likelihood"].values
    expected = np.abs(values - values[-1]) / abs(values[-1])
    for given in (model, model.result_, model.history_):
        axes = plot.history(given)
        x, y = axes.lines[0].get_data()
        np.testing.assert_array_equal(x, np.arange(1, len(values) + 1))
        np.testing.assert_allclose(y, np.maximum(expected, 1e-16))
        assert axes.get_yscale() == "log"
        assert f"{values[-1]:.10g}" in axes.get_title()


def test_explained_variance_leaves_the_noise_out(model, data) -> None:
    axes = plot.explained_variance(model)
    heights = np.array([bar.get_height() for bar in axes.patches])
    total = np.var(data.values, axis=0).sum()
    np.testing.assert_allclose(heights, (model.components_**2).sum(axis=1) / total)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.cumsum(heights))
    assert 0.97 < heights.sum() < 1
    assert plot.explained_variance(model.result_).patches[0].get_height() == heights[0]


def test_the_variance_of_views_is_a_map_of_views_and_components(data) -> None:
    rows = np.arange(len(data))
    views = {"first": data.values[:, :5], "second": data.values[:, 5:]}
    model = dlatent.CorrespondencePPCA(2).fit(views, correspondence=np.column_stack([rows, rows]))
    shares = model.explained_variance_ratio_
    for name, x in views.items():
        np.testing.assert_allclose(shares[name], (model.components_[name] ** 2).sum(axis=1) / np.var(x, axis=0).sum())
    table = model.result_["explained_variance_ratio"]
    assert table.dims == ("view", "component")
    np.testing.assert_array_equal(table.sel(view="second"), shares["second"])
    for given in (model, model.result_):
        axes = plot.explained_variance(given)
        np.testing.assert_allclose(axes.images[0].get_array(), 100 * np.array([shares["first"], shares["second"]]))
        assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]
        assert len(axes.texts) == 4


def test_the_spectrum_is_that_of_the_covariance(model, data) -> None:
    eigenvalues = np.linalg.eigvalsh(np.cov(data.values.T, bias=True))[::-1]
    axes = plot.spectrum(model, chosen=2)
    line, noise, chosen = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), eigenvalues[:3], rtol=1e-6)
    np.testing.assert_allclose(noise.get_ydata(), eigenvalues[3:].mean(), rtol=1e-6)
    np.testing.assert_array_equal(chosen.get_xdata(), 2)
    assert axes.get_yscale() == "log"
    assert len(plot.spectrum(model.result_).lines) == 2


def test_the_spectrum_needs_one_level_of_noise(data) -> None:
    with pytest.raises(TypeError, match="its own noise variance"):
        plot.spectrum(dlatent.FactorAnalysis(2).fit(data))


def test_the_selection_in_the_order_of_numbers(data) -> None:
    found = dlatent.select_n_components(dlatent.PPCA(), data, [4, 1, 3], random_state=1)
    assert found.attrs["best"] == 3  # the data have three components
    axes = plot.selection(found)
    x, y = axes.lines[0].get_data()
    np.testing.assert_array_equal(x, [1, 3, 4])
    np.testing.assert_array_equal(y, found["held_out_log_likelihood"].values[[1, 2, 0]])
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), found.attrs["best"])
    np.testing.assert_array_equal(plot.spectrum(dlatent.PPCA(5).fit(data), chosen=found).lines[2].get_xdata(), 3)


@pytest.mark.parametrize("criterion", ["cross_validation", "bic", "evidence", "parallel"])
def test_the_selection_by_every_criterion(data, criterion: str) -> None:
    found = dlatent.select_n_components(dlatent.PPCA(), data, [2, 3, 4], criterion=criterion)
    axes = plot.selection(found)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), found[found.attrs["score"]].values)
    assert len(axes.lines) == (3 if criterion == "parallel" else 2)
    assert axes.get_ylabel()


def test_a_saved_model_is_drawn_as_well(model, data, tmp_path: Path) -> None:
    model.save(tmp_path / "m.zarr")
    axes = plot.explained_variance(dlatent.load(tmp_path / "m.zarr"))
    assert len(axes.patches) == 3


def test_given_axes_are_drawn_on(model) -> None:
    _, panels = pyplot.subplots(1, 4)
    assert plot.history(model, ax=panels[0]) is panels[0]
    assert plot.explained_variance(model, ax=panels[1]) is panels[1]
    assert plot.loadings(model, 0, ax=panels[2]) is panels[2]
    assert plot.scores(np.ones((4, 2)), ax=panels[3]) is panels[3]
    assert len(pyplot.get_fignums()) == 1


@pytest.mark.parametrize("draw", [plot.history, plot.explained_variance, lambda given: plot.loadings(given, 0)])
def test_what_is_no_result_is_refused(draw, data) -> None:
    with pytest.raises(TypeError, match="result_"):
        draw(np.ones(3))
    with pytest.raises(TypeError, match="result_"):
        draw(data.to_dataset(name="x"))


def test_without_matplotlib_the_way_out_is_named(model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        plot.history(model)
    with pytest.raises(dlatent.DlatentError, match="matplotlib"):
        plot.scores(np.ones((3, 2)))
