"""Pictures of scores and loadings show the right samples, features, colours and names."""

from __future__ import annotations

from importlib.util import find_spec

import anndata
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.collections import EllipseCollection, LineCollection, QuadMesh

import dlatent
from dlatent import PPCA, CorrespondencePPCA, plot


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


def test_features_in_other_units_are_drawn_alike_where_a_fit_is_in_units_of_spreads(data) -> None:
    units = np.where(np.arange(data.shape[1]) % 2, 1000.0, 0.01)
    drawn = []
    for X in (data, data * units):
        model = PPCA(3, scale="spread").fit(X)
        bars, both = plot.loadings(model, 1), plot.biplot(model, model.transform(X), components=(0, 1))
        tips = [text.xy for text in both.texts if text.get_text()]
        drawn.append(([bar.get_width() for bar in bars.patches], tips))
        assert "in spreads of the features" in bars.get_xlabel()
    for plain, other in zip(*drawn, strict=True):
        np.testing.assert_allclose(other, plain, rtol=1e-6)


def test_one_component_by_label() -> None:
    scores = np.column_stack([np.arange(9.0), 10.0 * np.arange(9.0)])
    labels = ["b", "b", "b", "a", "a", "c", None, "a", float("nan")]
    axes = plot.scores_by_label(scores, labels, 1, most_labels=2)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    shown = points(axes)
    np.testing.assert_array_equal(shown["a"][:, 0], scores[[3, 4, 7], 1])
    np.testing.assert_array_equal(shown["b"][:, 0], scores[:3, 1])
    assert abs(shown["b"][:, 1] - 1.0).max() < 0.5
    assert len(np.unique(shown["b"][:, 1])) == 3
    medians = [lines.get_segments()[0][:, 0] for lines in axes.collections if isinstance(lines, LineCollection)]
    np.testing.assert_array_equal(medians, [[40.0, 40.0], [10.0, 10.0]])
    assert axes.get_xlabel() == "component 1"
    with pytest.raises(ValueError, match="the scores have 2"):
        plot.scores_by_label(scores, labels, 2)
    with pytest.raises(ValueError, match="give one for each"):
        plot.scores_by_label(scores, labels[:3])


def test_annotated_data_are_no_array_of_scores(model) -> None:
    adata, scores = anndata.AnnData(np.ones((4, 3), dtype=np.float32)), np.ones((4, 2))
    for draw in (
        plot.scores,
        lambda given: plot.scores_by_label(given, "abab"),
        lambda given: plot.biplot(model, given),
    ):
        with pytest.raises(TypeError, match=r"got AnnData: pass its scores, as adata\.obsm\['X_ppca'\]"):
            draw(adata)
    for draw in (plot.scores, plot.scores_by_label):
        with pytest.raises(TypeError, match=r"pass one of its columns, as adata\.obs\['type'\]"):
            draw(scores, labels=adata)
    with pytest.raises(TypeError, match=r"pass its matrix, as adata\.to_df\(\)"):
        plot.imputation(model, adata, 0)
    mudata = pytest.importorskip("mudata", reason="mudata is not installed here")
    with mudata.set_options(pull_on_update=False):
        several = mudata.MuData({"rna": adata})
    with pytest.raises(TypeError, match=r"got MuData: pass its scores"):
        plot.scores_by_label(several, "abab", 0)


def test_loadings_of_one_view(model) -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((40, 2))
    views = {
        name: pd.DataFrame(z @ rng.standard_normal((2, 5)) + rng.standard_normal((40, 5)), columns=list(names))
        for name, names in (("small", "abcde"), ("great", "ABCDE"))
    }
    pairs = np.repeat(np.arange(40)[:, None], 2, axis=1)
    joint = CorrespondencePPCA(2).fit(views, correspondence=pairs)
    axes = plot.loadings(joint, 1, view="great", top=3)
    column = joint.components_["great"][1]
    order = np.argsort(-np.abs(column))[:3]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], column[order])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ABCDE"[number] for number in order]
    assert axes.get_xlabel() == "loading of component 1, great"
    with pytest.raises(ValueError, match="no view 'other'; it has 'small', 'great'"):
        plot.loadings(joint, view="other")
    with pytest.raises(ValueError, match="it has none"):
        plot.loadings(model, view="small")


def shapes(ellipses: EllipseCollection) -> np.ndarray:
    """What makes each ellipse of a circle of radius 1, known when it is drawn."""
    ellipses.axes.figure.canvas.draw()
    return np.asarray(ellipses.get_transforms())[:, :2, :2]


def boundary(ellipses: EllipseCollection, number: int) -> np.ndarray:
    """Points on one ellipse."""
    along = np.linspace(0, 2 * np.pi, 12)
    circle = np.array([np.cos(along), np.sin(along)])
    return np.asarray(ellipses.get_offsets()[number] + (shapes(ellipses)[number] @ circle).T)


def test_ellipses_hold_the_probability_of_the_posterior(model, data) -> None:
    posterior = model.posterior(data)
    axes = plot.scores(posterior, components=(2, 0), ellipses=0.9)
    (ellipses,) = (found for found in axes.collections if isinstance(found, EllipseCollection))
    covariance = posterior["covariance"].values[np.ix_([2, 0], [2, 0])]
    off = boundary(ellipses, 7) - posterior["scores"].values[7, [2, 0]]
    squared = np.einsum("ij,jk,ik->i", off, np.linalg.inv(covariance), off)
    np.testing.assert_allclose(squared, 4.605170185988092)  # 90 % of chi-squared with two degrees of freedom
    assert len(ellipses.get_offsets()) == 80


def test_each_sample_has_its_own_ellipse_where_samples_differ(data) -> None:
    holes = data.copy()
    holes[3, :10] = np.nan
    posterior = dlatent.PPCA(2, missing="nan").fit(holes).posterior(holes)
    views = {"first": data.values[:60, :6], "second": data.values[:, 6:]}
    pairs = np.column_stack([np.arange(60)] * 2)
    of_views = dlatent.CorrespondencePPCA(2).fit(views, correspondence=pairs).posterior(views, correspondence=pairs)
    for result, few, many in ((posterior, 3, 4), (of_views, 79, 0)):
        (ellipses,) = (
            found for found in plot.scores(result, ellipses=0.5).collections if isinstance(found, EllipseCollection)
        )
        own = result["covariance"].values
        own = own[result["pattern_of"].values] if "pattern_of" in result else own
        for sample in (few, many):
            area = np.linalg.det(shapes(ellipses)[sample])
            np.testing.assert_allclose(area, 2 * np.log(2) * np.sqrt(np.linalg.det(own[sample])))
        assert np.linalg.det(own[few]) > np.linalg.det(own[many])


def test_ellipses_need_covariances_and_a_probability(model, data) -> None:
    with pytest.raises(TypeError, match="posterior"):
        plot.scores(model.transform(data), ellipses=0.5)
    with pytest.raises(ValueError, match="probability"):
        plot.scores(model.posterior(data), ellipses=50)


def test_a_map_of_loadings_has_coordinates_units_and_land(field) -> None:
    model = dlatent.PPCA(2).fit(field, dim="time")
    axes = plot.loadings_map(model, 1)
    (mesh,) = (found for found in axes.collections if isinstance(found, QuadMesh))
    drawn = np.ma.filled(mesh.get_array().astype(float), np.nan).reshape(3, 4)
    np.testing.assert_array_equal(drawn, model.result_["loadings"].sel(component=1).values)
    assert np.isnan(drawn[0, 0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lon", "lat")
    assert mesh.colorbar.ax.get_ylabel() == "loading (K)"
    assert -mesh.norm.vmin == mesh.norm.vmax == np.nanmax(np.abs(drawn))
    with pytest.raises(ValueError, match="the model has 2"):
        plot.loadings_map(model, 2)


def test_a_map_of_one_of_several_variables_is_drawn_as_the_error_says(field) -> None:
    both = xr.Dataset({"sst": field, "slp": field + 1.0})
    result = dlatent.PPCA(2).fit(both, dim="time").result_
    with pytest.raises(ValueError, match=r"loadings_map\(model\.result_\.sel\(variable='sst'\)\)"):
        plot.loadings_map(result)
    mesh = next(found for found in plot.loadings_map(result.sel(variable="sst")).collections)
    drawn = np.ma.filled(mesh.get_array().astype(float), np.nan).ravel()
    np.testing.assert_array_equal(drawn, result["loadings"].sel(variable="sst", component=0).values.ravel())
    cells = field.expand_dims(level=1, axis=3)
    with pytest.raises(ValueError, match=r"loadings_map\(model\.result_\.isel\(level=0\)\)"):
        plot.loadings_map(dlatent.PPCA(2).fit(cells, dim="time"))


def test_an_image_of_loadings_is_upright(model) -> None:
    axes = plot.loadings_map(model, 0, shape=(3, 4))
    (mesh,) = (found for found in axes.collections if isinstance(found, QuadMesh))
    np.testing.assert_array_equal(mesh.get_array().reshape(3, 4), model.components_[0].reshape(3, 4))
    assert axes.yaxis_inverted()
    with pytest.raises(ValueError, match="12 features, which make no image of 3 × 5"):
        plot.loadings_map(model, 0, shape=(3, 5))
    with pytest.raises(ValueError, match="give the shape"):
        plot.loadings_map(model, 0)


def test_loadings_and_variances_of_a_grid(field) -> None:
    model = dlatent.PPCA(2).fit(field, dim="time")
    axes = plot.loadings(model, 0, top=2)
    values = model.result_["loadings"].sel(component=0)
    most = np.unravel_index(int(np.nanargmax(np.abs(values.values))), values.shape)
    assert axes.get_yticklabels()[0].get_text() == f"{values['lat'].values[most[0]]} {values['lon'].values[most[1]]}"
    assert axes.patches[0].get_width() == values.values[most]
    flat = dlatent.PPCA(2).fit(field.values.reshape(50, 12)[:, 1:])
    for draw in (plot.explained_variance, plot.spectrum):
        kinds = (draw(given) for given in (flat, model, model.result_))
        first, *others = (np.concatenate([line.get_ydata() for line in axes.lines]) for axes in kinds)
        for other in others:
            np.testing.assert_allclose(other, first)


def test_a_biplot_has_arrows_along_loadings(model, data) -> None:
    scores = model.transform(data)
    axes = plot.biplot(model, scores, components=(0, 2), top=3)
    (points_,) = points(axes).values()
    np.testing.assert_array_equal(points_, scores.values[:, [0, 2]])
    names = {text.get_text(): np.array(text.xy) for text in axes.texts if text.get_text()}
    arrows = model.components_[[0, 2]].T
    longest = np.argsort(-np.linalg.norm(arrows, axis=1))[:3]
    assert list(names) == [f"gene{number}" for number in longest]
    scale = np.linalg.norm(names[f"gene{longest[0]}"]) / np.linalg.norm(arrows[longest[0]])
    for number in longest:
        np.testing.assert_allclose(names[f"gene{number}"], scale * arrows[number])
    farthest = np.linalg.norm(points_, axis=1).max()
    np.testing.assert_allclose(np.linalg.norm(names[f"gene{longest[0]}"]), farthest)


def test_of_features_that_go_together_a_biplot_names_one() -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((100, 2))
    loadings = np.array([[3.0, 0.0], [2.9, 0.1], [2.8, 0.0], [0.0, 1.5]])
    noise = 0.01 * rng.standard_normal((100, 4))
    X = xr.DataArray(latent @ loadings.T + noise, dims=("row", "column"), coords={"column": list("abcd")})
    model = dlatent.PPCA(2).fit(X)
    axes = plot.biplot(model, model.transform(X), top=4)
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["a", "d"]


def over_longitude():
    rng = np.random.default_rng(2)
    coords = {"lat": np.linspace(-60.0, 60.0, 5), "lon": np.arange(0.0, 360.0, 45.0)}
    field = xr.DataArray(rng.normal(size=(30, 5, 8)), dims=("time", "lat", "lon"), coords=coords)
    return PPCA(2).fit(field, dim="time")


def test_a_map_has_coastlines():
    """Nothing is drawn, so that nothing is fetched."""
    crs = pytest.importorskip("cartopy.crs", reason="cartopy is not installed")
    axes = plot.loadings_map(over_longitude(), coastlines=True)
    assert isinstance(axes.projection, crs.PlateCarree)
    assert [type(one).__name__ for one in axes.get_children()].count("FeatureArtist") == 1
    mesh = axes.collections[0]
    loadings = over_longitude().result_["loadings"][..., 0].values
    np.testing.assert_array_equal(np.ravel(mesh.get_array()), loadings.ravel())
    round_earth = pyplot.axes(projection=crs.Orthographic())
    assert (
        plot.loadings_map(over_longitude().result_.transpose("component", "lon", "lat", ...), ax=round_earth)
        is round_earth
    )
    assert "FeatureArtist" not in [type(one).__name__ for one in round_earth.get_children()]
    assert abs(round_earth.dataLim.x1) > 1e6  # metres of the projection, not degrees


def test_coastlines_need_a_projection():
    with pytest.raises(ValueError, match=r"plt\.axes\(projection="):
        plot.loadings_map(over_longitude(), coastlines=True, ax=pyplot.subplots()[1])


@pytest.mark.skipif(find_spec("cartopy") is not None, reason="cartopy is installed")
def test_coastlines_without_cartopy_say_what_to_install():
    with pytest.raises(plot.PlotError, match="pip install cartopy"):
        plot.loadings_map(over_longitude(), coastlines=True)
