"""Correspondences as users give them: pairs, tables, labels; refusals by view and row; what comes back."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import dlatent
from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA, DataError, DataWarning, NotFittedError
from tests.oracles.views import some_views, split, table_of
from tests.simulators import simulate

DATA = simulate(60, (6, 5), 2, noise=(0.3, 0.4), offset=2.0, random_state=2).stacked
A, B = DATA[:45, :6], DATA[20:, 6:]
PAIRS = np.column_stack([np.arange(20, 45), np.arange(25)])
VIEWS = {"a": A, "b": B}
NAMES = np.array([f"n{i}" for i in range(60)])


def fit(views=VIEWS, **options):
    return CorrespondencePPCA(2, tol=1e-12).fit(views, **(options or {"correspondence": PAIRS}))


REFERENCE = fit()


def assert_same(model, *, rtol=1e-7):
    assert model.log_likelihood_ == pytest.approx(REFERENCE.log_likelihood_, rel=1e-11)
    for name in model.view_names_:
        np.testing.assert_allclose(model.components_[name], REFERENCE.components_[name], rtol=rtol, atol=1e-6)


def test_a_table_or_a_frame_or_a_data_array_say_what_pairs_say():
    longer = np.vstack([PAIRS, [[3, -1]]])
    frame = pd.DataFrame({"b": longer[:, 1], "a": longer[:, 0]}).replace(-1, np.nan)
    array = xr.DataArray(longer[:, ::-1], dims=("sample", "view"), coords={"view": ["b", "a"]})
    for given in (longer, longer.astype(float), frame, array, PAIRS.tolist()):
        assert_same(fit(correspondence=given))


def test_rows_are_samples_where_asked():
    views = {"a": DATA[:, :6], "b": DATA[:, 6:]}
    listed = fit(views, correspondence=np.repeat(np.arange(len(DATA))[:, None], 2, axis=1))
    assert fit(views, correspondence="rows").log_likelihood_ == listed.log_likelihood_


def test_labels_say_what_pairs_say(tmp_path):
    a = xr.DataArray(A, dims=("row", "word"), coords={"row": NAMES[:45], "code": ("row", np.arange(45))})
    b = xr.DataArray(B, dims=("line", "term"), coords={"row": ("line", NAMES[20:])})
    assert_same(fit({"a": a, "b": b}, on="row"))
    frames = {"a": pd.DataFrame(A, index=pd.Index(NAMES[:45], name="id")), "b": pd.DataFrame(B).assign(id=NAMES[20:])}
    assert_same(fit(frames, on="id"))
    assert_same(fit(VIEWS, on={"a": NAMES[:45], "b": NAMES[20:]}))
    with_none = np.array([None, *NAMES[1:45]], dtype=object)
    assert_same(fit(VIEWS, on={"a": with_none, "b": NAMES[20:]}))
    b.to_dataset(name="x").assign_coords(line=NAMES[20:]).to_zarr(tmp_path / "b.zarr", zarr_format=3)
    a.rename(row="line").drop_vars("code").to_dataset(name="x").to_zarr(tmp_path / "a.zarr", zarr_format=3)
    assert_same(fit({"a": str(tmp_path / "a.zarr"), "b": str(tmp_path / "b.zarr")}, on="line"))


def test_a_view_alone_and_views_together_are_transformed():
    alone = REFERENCE.transform({"b": B})
    assert alone.shape == (40, 2)
    lazy = REFERENCE.transform({"b": da.from_array(B, chunks=(9, 5))})
    np.testing.assert_array_equal(lazy.compute(), alone)
    both = REFERENCE.transform(VIEWS, correspondence=PAIRS)
    np.testing.assert_array_equal(both["row_a"][:25], PAIRS[:, 0])
    np.testing.assert_array_equal(both["row_b"][-15:], np.arange(25, 40))
    np.testing.assert_allclose(both[-15:], alone[25:], rtol=1e-12)
    turned = REFERENCE.transform({"b": B, "a": A}, correspondence=PAIRS[:, ::-1])
    np.testing.assert_allclose(turned[:25], both[:25], rtol=1e-10, atol=1e-12)
    assert (abs(both[:25].values - REFERENCE.transform({"a": A[20:]})) > 1e-3).any(), "the other view says something"


def test_reconstructions_come_in_the_kind_of_the_data(tmp_path):
    plain = REFERENCE.reconstruct(A, "a", "b")
    assert plain.shape == (45, 5)
    lazy = REFERENCE.reconstruct(da.from_array(A, chunks=(10, 6)), "a", "b")
    np.testing.assert_array_equal(lazy.compute(), plain)
    out = REFERENCE.reconstruct(A, "a", "b", out=tmp_path / "b.zarr")
    np.testing.assert_array_equal(zarr.open(out)["reconstructed"][:], plain)
    own = CorrespondencePPCA(2, tol=1e-12, head="likelihood").fit(VIEWS, correspondence=PAIRS)
    scores = own.transform({"a": A})
    np.testing.assert_allclose(own.inverse_transform(scores, "b"), own.reconstruct(A, "a", "b"), rtol=1e-12)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("line 1 of the correspondence names row 45 of view 'a', which has 45", {"correspondence": [[0, 0], [45, 2]]}),
        ("line 1 of the correspondence names row -2 of view 'b'", {"correspondence": [[0, 0], [1, -2]]}),
        ("view 'b', row 7 is in two correspondences \\(lines 1 and 2\\)", {"correspondence": [[0, 0], [1, 7], [2, 7]]}),
        ("line 1 of the correspondence names no row", {"correspondence": [[0, 0], [-1, -1]]}),
        ("expected \\(samples, 2\\)", {"correspondence": [[0, 0, 0]]}),
        ("expected whole numbers", {"correspondence": [[0.5, 1.0]]}),
        ("view 'b' shares no sample with 'a'", {"correspondence": [[0, -1]]}),
        ("give either correspondence", {}),
        ("give either correspondence", {"correspondence": PAIRS, "on": "row"}),
        ("the only word that it takes is 'rows'", {"correspondence": "lines"}),
        ("views of as many rows each; 'a' has 45, 'b' has", {"correspondence": "rows"}),
        ("view 'b' has the label 'n20' in rows 0 and 1", {"on": {"a": NAMES[:45], "b": ["n20", *NAMES[20:59]]}}),
        ("no label occurs in two of the views", {"on": {"a": range(45), "b": range(100, 140)}}),
        ("view 'b' has 40 rows, but 3 labels", {"on": {"a": NAMES[:45], "b": NAMES[:3]}}),
        ("those of view 'b' are missing", {"on": {"a": NAMES[:45]}}),
        ("view 'a' is a numpy array without labels 'row'", {"on": "row"}),
    ],
)  # fmt: skip
def test_correspondences_that_cannot_be_are_refused(words, options):
    with pytest.raises(DataError, match=words):
        CorrespondencePPCA(2).plan(VIEWS, **options)


def test_views_that_cannot_be_are_refused():
    with pytest.raises(DataError, match="view 'b': cannot read data of type"):
        CorrespondencePPCA(2).fit({"a": A, "b": object()}, correspondence=PAIRS)
    with pytest.raises(DataError, match="a correspondence is between two or more"):
        CorrespondencePPCA(2).fit({"a": A}, correspondence=PAIRS[:, :1])
    with pytest.raises(DataError, match="views are of type ndarray"):
        CorrespondencePPCA(2).fit(A, correspondence=PAIRS)
    with pytest.raises(DataError, match="'c' is no view of the model; it was fitted to 'a', 'b'"):
        REFERENCE.transform({"c": A})
    with pytest.raises(DataError, match=r"view 'a': X has 5 features, but .* is expecting 6 features"):
        REFERENCE.transform({"a": B, "b": B}, correspondence=PAIRS)
    with pytest.raises(DataError, match="out is for the scores of one view"):
        REFERENCE.transform(VIEWS, correspondence=PAIRS, out="never.zarr")
    with pytest.raises(NotFittedError, match="call fit first"):
        CorrespondencePPCA(2).reconstruct(A, "a", "b")


@pytest.mark.slow
def test_constant_views_and_features_are_named():
    with pytest.raises(DataError, match="the data of the view 'b' are constant"):
        fit({"a": A, "b": np.ones_like(B)}, correspondence=PAIRS)
    for solver in ("covariance", "accelerated_em"):
        with pytest.raises(DataError, match="the data of the view 'b' are constant"):
            CorrespondenceFactorAnalysis(1, solver=solver).fit({"a": A, "b": np.ones_like(B)}, correspondence=PAIRS)
    same = B.copy()
    same[:, 3] = 2.0
    with pytest.warns(DataWarning, match="feature 3 of the view 'b' has one value"):
        CorrespondenceFactorAnalysis(1).fit({"a": A, "b": same}, correspondence=PAIRS)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_one_pair_is_enough_to_fit(solver):
    """Samples that have every view need not vary for a start."""
    model = CorrespondencePPCA(2, solver=solver).fit(VIEWS, correspondence=PAIRS[:1])
    assert model.converged_
    assert model.n_samples_ == 45 + 40 - 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dlatent.DataWarning")
@pytest.mark.parametrize("feature", [0, 3])
def test_constant_features_are_kept(feature):
    sizes, has = (7, 6), some_views(70, 2, random_state=0)
    rows = simulate(70, sizes, 2, noise=(0.4, 0.6), offset=3.0, random_state=0).stacked
    rows[:, feature] = 2.0
    views, table = split(rows, sizes, has), table_of(has)
    fits = [
        CorrespondenceFactorAnalysis(2, solver=solver, tol=1e-12).fit(views, correspondence=table)
        for solver in ("covariance", "accelerated_em")
    ]
    assert fits[0].log_likelihood_ == pytest.approx(fits[1].log_likelihood_, rel=1e-10)
    for model in fits:
        assert np.flatnonzero(model.at_floor_["a"]).tolist() == [feature]
        np.testing.assert_allclose(model.reconstruct(views["b"], "b", "a")[:, feature], 2.0, atol=1e-6)


def test_hyperparameters_are_checked():
    with pytest.raises(DataError, match="noise is 'none'"):
        CorrespondencePPCA(2, noise="none").fit(VIEWS, correspondence=PAIRS)
    with pytest.raises(DataError, match="leave solver='auto'"):
        CorrespondencePPCA(2, noise="zero", solver="em").fit(VIEWS, correspondence=PAIRS)
    with pytest.raises(DataError, match="expected 'auto', 'covariance', 'accelerated_em' or 'em'"):
        CorrespondenceFactorAnalysis(2, solver="krylov").fit(VIEWS, correspondence=PAIRS)


@pytest.mark.parametrize(
    "make", [CorrespondencePPCA, pytest.param(CorrespondenceFactorAnalysis, marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
def test_what_is_loaded_is_what_was_saved(make, tmp_path):
    words = xr.DataArray(A, dims=("row", "word"), coords={"word": list("uvwxyz")})
    numbered = xr.DataArray(B, dims=("row", "code"), coords={"code": [7, 8, 9, 10, 11]})
    model = make(1).fit({"a": words, "b": numbered}, correspondence=PAIRS)
    model.save(tmp_path / "m.zarr")
    again = dlatent.load(tmp_path / "m.zarr")
    xr.testing.assert_identical(again.result_, model.result_)
    for one, other in (("a", "b"), ("b", "a")):
        data = xr.DataArray(VIEWS[one], dims=("i", "j"))
        xr.testing.assert_identical(again.reconstruct(data, one, other), model.reconstruct(data, one, other))
    assert again.reconstruct(xr.DataArray(A, dims=("i", "j")), "a", "b")["code"].values.tolist() == [7, 8, 9, 10, 11]
    assert again.result_["feature_view"].values.tolist() == ["a"] * 6 + ["b"] * 5
    np.testing.assert_array_equal(again.at_floor_["a"], model.at_floor_["a"])


def test_fit_transform_is_fit_and_transform():
    found = CorrespondencePPCA(2, tol=1e-12).fit_transform(VIEWS, correspondence=PAIRS)
    xr.testing.assert_identical(found, REFERENCE.transform(VIEWS, correspondence=PAIRS))
