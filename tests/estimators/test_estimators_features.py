"""Features are known by their names, where they have some: data with other names, or the same in another order, are
refused before any of them is read, as scikit-learn refuses them."""

from __future__ import annotations

import warnings

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
import xarray as xr
from estimator_cases import CLASSES, D, N, X, Y
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

import dlatent
from dlatent import (
    PPCA,
    CorrespondenceLLE,
    CorrespondencePPCA,
    DataError,
    FactorAnalysis,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
)

NAMES = list("abcdefgh")
TURNED = NAMES[::-1]
RING = sp.csr_array((np.ones(N), (np.arange(N), (np.arange(N) + 1) % N)), shape=(N, N))
GRAPH = sp.csr_array(RING + RING.T)
ORDER = "Feature names must be in the same order as they were in fit"
PAIRS = np.column_stack([np.arange(40), np.arange(40)])
OTHER = np.column_stack([X[:, 0] + 0.3 * X[:, 1], X[:, 2] - X[:, 3], X[:, 4]]) + 0.1 * Y[:, :1]


def frame(names=NAMES, values=X):
    """The columns that have these names, in this order."""
    at = [NAMES.index(name) for name in names]
    return pd.DataFrame(values[:, at], columns=names)


MODELS = {
    "PPCA": lambda x: PPCA(2).fit(x),
    "with missing entries": lambda x: PPCA(2, missing="nan").fit(x),
    "FactorAnalysis": lambda x: FactorAnalysis(2).fit(x),
    "PPCAMixture": lambda x: PPCAMixture(1, 2).fit(x),
    "SupervisedPPCA": lambda x: SupervisedPPCA(2).fit(x, Y),
    "classes": lambda x: SupervisedPPCA(1).fit(x, CLASSES),
    "RelationalPPCA": lambda x: RelationalPPCA(2).fit(x, graph=GRAPH),
    "RelationalSupervisedPPCA": lambda x: RelationalSupervisedPPCA(2).fit(x, Y, graph=GRAPH),
    "KernelPPCA": lambda x: KernelPPCA(2).fit(x),
    "KernelSupervisedPPCA": lambda x: KernelSupervisedPPCA(2).fit(x, Y),
    "LocallyLinearEmbedding": lambda x: LocallyLinearEmbedding(n_neighbors=8).fit(x),
}
METHODS = {
    "transform": lambda m, x: m.transform(x),
    "posterior": lambda m, x: m.posterior(x),
    "score": lambda m, x: m.score(x),
    "score_samples": lambda m, x: m.score_samples(x),
    "predict": lambda m, x: m.predict(x),
    "predict_proba": lambda m, x: m.predict_proba(x),
    "reconstruct": lambda m, x: m.reconstruct(x),
    "decision_function": lambda m, x: m.decision_function(x),
    "impute": lambda m, x: m.impute(x),
    "impute_variance": lambda m, x: m.impute_variance(x),
    "log_likelihood": lambda m, x: m.log_likelihood(x, GRAPH),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_knows_the_names_and_refuses_another_order(name, tmp_path):
    model = MODELS[name](frame())
    model.save(tmp_path / "model.zarr")
    for own in (model, dlatent.load(tmp_path / "model.zarr")):
        assert own.feature_names_in_.tolist() == NAMES
        assert own.feature_names_in_.dtype == object, "as scikit-learn has them"
        used = [method for method in METHODS if hasattr(own, method)]
        assert "transform" in used
        for method in used:
            if method == "log_likelihood" and name == "RelationalSupervisedPPCA":
                continue  # wants targets
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                METHODS[method](own, frame())
            with pytest.raises(DataError, match=ORDER):
                METHODS[method](own, frame(TURNED))


@pytest.mark.parametrize("name", MODELS)
def test_models_of_features_without_names_have_none(name):
    model = MODELS[name](X)
    assert not hasattr(model, "feature_names_in_")
    with pytest.warns(UserWarning, match=f"X has feature names, but {type(model).__name__} was fitted without"):
        model.transform(frame())


def stored(names, folder, sparse):
    """A store of AnnData's layout, with names in `var`."""
    x = frame(names).to_numpy()
    place = folder / f"{''.join(names)}-{sparse}.zarr"
    made = anndata.AnnData(sp.csr_array(x) if sparse else x, var=pd.DataFrame(index=names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.write_zarr(place)
    return str(place)


def array(names):
    at = [NAMES.index(name) for name in names]
    return xr.DataArray(X[:, at], dims=("row", "gene"), coords={"gene": names})


@pytest.mark.filterwarnings("ignore:.*Zarr")
@pytest.mark.parametrize("sparse", [False, True])
def test_a_result_in_a_store_is_not_begun_for_other_names(sparse, tmp_path):
    model = PPCA(2).fit(stored(NAMES, tmp_path, sparse))
    with pytest.raises(DataError, match=ORDER):
        model.transform(stored(TURNED, tmp_path, sparse), out=tmp_path / "scores.zarr")
    assert not list(tmp_path.glob("*scores*"))


def test_names_are_compared_before_data_move():
    def refuse(block):
        raise AssertionError("a block was read")

    lazy = da.from_array(X, chunks=(13, 8)).map_blocks(refuse, dtype=float, meta=np.empty((0, 0)))
    turned = xr.DataArray(lazy, dims=("row", "gene"), coords={"gene": TURNED})
    with pytest.raises(DataError, match=ORDER):
        PPCA(2).fit(frame()).score(turned)
    with pytest.raises(DataError, match=ORDER):
        SupervisedPPCA(2).fit(frame(), Y).transform(turned, Y)


@pytest.mark.parametrize(
    "names",
    [TURNED, [*NAMES[:-1], "z"], NAMES[:5], [f"other {i}" for i in range(D)]],
    ids=["turned", "one", "few", "all"],
)
def test_the_words_are_those_of_scikit_learn(names):
    known = [name for name in names if name in NAMES]
    other = frame(known).reindex(columns=names, fill_value=0.0)
    with pytest.raises(ValueError) as expected:  # noqa: PT011
        PCA(2).fit(frame()).transform(other)
    with pytest.raises(DataError) as found:
        PPCA(2).fit(frame()).transform(other)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    "model",
    [
        PPCA(2),
        pytest.param(FactorAnalysis(2), marks=pytest.mark.slow),
        KernelPPCA(2),
        LocallyLinearEmbedding(n_neighbors=5),
    ],
)
def test_what_scikit_learn_asks_of_column_names(model):
    check_dataframe_column_names_consistency(type(model).__name__, model)


def test_names_are_texts_and_columns_of_numbers_have_their_order_alone():
    numbered = pd.DataFrame(X)
    model = PPCA(2).fit(numbered)
    assert not hasattr(model, "feature_names_in_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = model.transform(numbered)
        np.testing.assert_array_equal(model.transform(X), scores)
        np.testing.assert_array_equal(model.transform(numbered.set_axis(range(100, 100 + D), axis=1)), scores)
        others = PPCA(2).fit(numbered.set_axis(range(1, D + 1), axis=1))
        np.testing.assert_array_equal(others.transform(numbered), scores)
    with pytest.raises(DataError, match=r"in another order \(first at 0: 2, the model has 1\)"):
        others.transform(numbered.set_axis(range(2, D + 2), axis=1))
    with pytest.raises(DataError, match="some columns of the data frame have texts for names, as 'h', and others not"):
        PPCA(2).fit(pd.DataFrame(X, columns=[*range(D - 1), "h"]))


COLUMNS = {
    "0, 1, …": range(D),
    "whole numbers": [30, 10, 20, 50, 40, 80, 70, 60],
    "whole numbers as objects": pd.Index([3, 1, 2, 5, 4, 8, 7, 6], dtype=object),
    "real numbers": np.linspace(400.0, 700.0, D),
    "multi-index": pd.MultiIndex.from_product([["a", "b"], range(4)]),
    "dates": pd.date_range("2026-01-01", periods=D),
    "spans of time": pd.to_timedelta(range(D), unit="h"),
    "months": pd.period_range("2026-01", periods=D, freq="M"),
    "intervals": pd.interval_range(0, D),
    "categories": pd.CategoricalIndex(range(D)),
    "bytes": [name.encode() for name in NAMES],
}


@pytest.mark.parametrize("columns", COLUMNS)
def test_columns_of_any_kind_are_refused_in_another_order(columns, tmp_path):
    own = pd.DataFrame(X, columns=COLUMNS[columns])
    model = PPCA(2).fit(own)
    model.save(tmp_path / "model.zarr")
    for each in (model, dlatent.load(tmp_path / "model.zarr")):
        each.transform(own)
        with pytest.raises(DataError, match=r"another order|must be in the same order"):
            each.transform(own.iloc[:, ::-1])


@pytest.mark.parametrize("kind", [CorrespondencePPCA, CorrespondenceLLE])
@pytest.mark.parametrize("columns", ["whole numbers", "multi-index", "dates"])
def test_columns_of_views_are_refused_in_another_order(kind, columns, tmp_path):
    own = pd.DataFrame(X, columns=COLUMNS[columns])
    model = kind(n_components=2).fit({"left": own, "right": OTHER}, correspondence=PAIRS)
    model.save(tmp_path / "model.zarr")
    for each in (model, dlatent.load(tmp_path / "model.zarr")):
        with pytest.raises(DataError, match=r"view 'left': (.|\n)*order"):
            each.reconstruct(own.iloc[:, ::-1], "left", "right")


def test_tables_of_arrow_have_the_names_of_their_columns():
    table = pa.Table.from_pandas(frame())
    model = PPCA(2).fit(table)
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.transform(table.to_batches()[0]), model.transform(frame()))
    for turned in (table.select(TURNED), table.select(TURNED).to_batches()[0], table.select(TURNED).to_pandas()):
        with pytest.raises(DataError, match=ORDER):
            model.transform(turned)
    views = CorrespondencePPCA(1).fit({"left": table, "right": OTHER}, correspondence=PAIRS)
    with pytest.raises(DataError, match=ORDER):
        views.transform({"left": table.select(TURNED)})


def test_a_second_fit_forgets_the_names():
    model = PPCA(2).fit(frame())
    model.fit(X)
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(PPCA(2), "feature_names_in_")


def test_a_warning_says_where_the_order_cannot_be_checked():
    model = PPCA(2).fit(frame())
    with pytest.warns(UserWarning, match="X does not have valid feature names, but PPCA was fitted with") as said:
        model.transform(X)
    assert said[0].filename == __file__, "the line of the user"
    with pytest.raises(DataError, match="X has 5 features, but PPCA is expecting 8 features"):
        model.transform(X[:, :5])


@pytest.mark.parametrize("labels", [np.arange(D), np.linspace(400.0, 700.0, D)], ids=["whole", "real"])
def test_coordinates_that_are_numbers_are_refused_in_another_order(labels, tmp_path):
    own = xr.DataArray(X, dims=("row", "band"), coords={"band": labels})
    model = PPCA(2).fit(own)
    model.save(tmp_path / "model.zarr")
    for each in (model, dlatent.load(tmp_path / "model.zarr")):
        each.transform(own)
        with pytest.raises(
            DataError, match=r"the labels of the features are those of the model in another order \(first"
        ):
            each.transform(own.isel(band=slice(None, None, -1)))
        each.transform(own.assign_coords(band=labels + 1000))


def test_scores_are_taken_in_the_order_of_the_components():
    model = PPCA(2).fit(X).set_output(transform="pandas")
    scores = model.transform(X)
    expected = model.inverse_transform(scores.to_numpy())
    np.testing.assert_array_equal(model.inverse_transform(scores), expected)
    with pytest.raises(DataError, match="the labels of the components are those of the model in another order"):
        model.inverse_transform(scores[scores.columns[::-1]])
    labelled = PPCA(2).fit(array(NAMES)).transform(array(NAMES))
    with pytest.raises(DataError, match="the labels of the components"):
        model.inverse_transform(labelled.isel(component=[1, 0]))
    np.testing.assert_array_equal(model.inverse_transform(scores.set_axis(["x", "y"], axis=1)), expected)


VIEWS = {"left": frame(), "right": pd.DataFrame(OTHER, columns=["p", "q", "r"])}
RIGHT_TURNED = VIEWS["right"][["r", "q", "p"]]


@pytest.mark.parametrize("kind", [CorrespondencePPCA, CorrespondenceLLE])
def test_views_have_names_of_their_own(kind, tmp_path):
    model = kind(n_components=2).fit(VIEWS, correspondence=PAIRS)
    model.save(tmp_path / "model.zarr")
    for own in (model, dlatent.load(tmp_path / "model.zarr")):
        assert {view: names.tolist() for view, names in own.feature_names_in_.items()} == {
            "left": NAMES,
            "right": ["p", "q", "r"],
        }
        with pytest.raises(DataError, match=f"view 'right': The feature names should match(.|\n)*{ORDER}"):
            own.reconstruct(RIGHT_TURNED, "right", "left")
        if kind is CorrespondenceLLE:
            with pytest.raises(DataError, match=f"view 'right'(.|\n)*{ORDER}"):
                own.transform(RIGHT_TURNED, "right")
            continue
        together = {**VIEWS, "right": RIGHT_TURNED}
        for method in ("transform", "posterior", "score", "score_samples"):
            with pytest.raises(DataError, match=f"view 'right'(.|\n)*{ORDER}"):
                getattr(own, method)({"right": RIGHT_TURNED})
            with pytest.raises(DataError, match=f"view 'right'(.|\n)*{ORDER}"):
                getattr(own, method)(together, correspondence=PAIRS)


def test_views_of_which_some_have_names():
    model = CorrespondencePPCA(2).fit({**VIEWS, "left": X}, correspondence=PAIRS)
    assert list(model.feature_names_in_) == ["right"]
    with pytest.warns(UserWarning, match="view 'left': X has feature names, but CorrespondencePPCA was fitted without"):
        model.transform({"left": frame()})
    plain = CorrespondencePPCA(2).fit({"left": X, "right": OTHER}, correspondence=PAIRS)
    assert not hasattr(plain, "feature_names_in_")


def test_frames_of_polars_are_data_targets_and_views():
    polars = pytest.importorskip("polars", reason="polars comes with the tools of development")
    x, y = polars.from_pandas(frame()), polars.DataFrame(Y, schema=["s", "t"])
    model = SupervisedPPCA(2).fit(x, y)
    expected = SupervisedPPCA(2).fit(X, Y)
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(model.predict(x), expected.predict(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.transform(x, y), expected.transform(X, Y), rtol=1e-9, atol=1e-12)
    square = polars.DataFrame(X[:D]), polars.DataFrame(Y[:D].repeat(4, axis=1) + np.arange(8))
    found = SupervisedPPCA(2, zero_rows="keep").fit(*square)
    np.testing.assert_allclose(found.target_mean_, (Y[:D].repeat(4, axis=1) + np.arange(8)).mean(axis=0), rtol=1e-12)
    labels = polars.Series(["ant", "bee", None] * (N // 3))
    assert SupervisedPPCA(1).fit(x, labels).classes_.tolist() == ["ant", "bee"]
    keyed = {
        name: polars.DataFrame(own).with_columns(id=polars.Series(range(N))) for name, own in (("l", X), ("r", OTHER))
    }
    joined = CorrespondencePPCA(2).fit(keyed, on="id")
    assert joined.log_likelihood_ == pytest.approx(
        CorrespondencePPCA(2).fit({"l": X, "r": OTHER}, correspondence=np.arange(N)[:, None] + [0, 0]).log_likelihood_
    )
    holes = x.with_columns(polars.when(polars.col("a") > 0).then(polars.col("a")).alias("a"))
    assert PPCA(2, missing="nan").fit(holes).n_features_in_ == D
