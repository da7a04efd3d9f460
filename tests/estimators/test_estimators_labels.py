"""Targets in all the forms that people have them: one model, whatever the dtype and the mark of the unlabelled."""

from __future__ import annotations

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
from estimator_cases import CLASSES, LABELLED, PARTLY, D, N, X, Y, same
from sklearn.metrics import accuracy_score

import dlatent
from dlatent import (
    PPCA,
    CorrespondenceSupervisedPPCA,
    DataError,
    KernelSupervisedPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
    select_n_components,
)
from tests.fitted import view_samples_of

COMPLETE = SupervisedPPCA(1).fit(X, CLASSES)
SEMI = SupervisedPPCA(1).fit(X, np.where(LABELLED, CLASSES, -1))

WORDS = np.array(["ant", "bee", "cow"])
FORMS = {
    "int8": CLASSES.astype(np.int8),
    "uint64": CLASSES.astype(np.uint64),
    "int64 far away": CLASSES * 10**12 + 7,
    "whole floats": CLASSES.astype(float),
    "float32": CLASSES.astype(np.float32),
    "str": WORDS[CLASSES],
    "bytes": WORDS[CLASSES].astype("S"),
    "object of str": WORDS[CLASSES].astype(object),
    "object of int": CLASSES.astype(object),
    "object of np.str_": np.array([np.str_(w) for w in WORDS[CLASSES]], dtype=object),
    "list of int": CLASSES.tolist(),
    "list of str": WORDS[CLASSES].tolist(),
    "column": CLASSES[:, None],
    "dask": da.from_array(CLASSES, chunks=7),
    "xarray": xr.DataArray(CLASSES, dims="sample"),
}


@pytest.mark.parametrize("form", FORMS)
def test_class_labels_of_any_dtype_give_one_model(form):
    found = SupervisedPPCA(1).fit(X, FORMS[form])
    assert same(found, COMPLETE)
    assert len(found.classes_) == 3
    predicted = found.predict(X)
    order = {label: number for number, label in enumerate(found.classes_.tolist())}
    np.testing.assert_array_equal([order[label] for label in predicted.tolist()], COMPLETE.predict(X))


def test_predictions_have_the_dtype_of_the_labels():
    assert SupervisedPPCA(1).fit(X, WORDS[CLASSES]).predict(X).dtype.kind == "U"
    assert SupervisedPPCA(1).fit(X, CLASSES).predict(X).dtype.kind == "i"
    assert SupervisedPPCA(1).fit(X, CLASSES > 0).predict(X).dtype == bool
    assert SupervisedPPCA(1).fit(X, WORDS[CLASSES].astype(object)).predict(X).dtype.kind == "U"


def test_booleans_are_two_classes():
    found = SupervisedPPCA(1).fit(X, CLASSES > 0)
    assert same(found, SupervisedPPCA(1).fit(X, (CLASSES > 0).astype(int)))


def marked(values, mark, dtype):
    hidden = np.array(values, dtype=dtype)
    hidden[~LABELLED] = mark
    return hidden


UNLABELLED = {
    "-1": marked(CLASSES, -1, np.int64),
    "-1.0": marked(CLASSES, -1.0, float),
    "NaN": marked(CLASSES, np.nan, float),
    "None among integers": marked(CLASSES, None, object),
    "NaN among objects": marked(CLASSES, np.nan, object),
    "None among text": marked(WORDS[CLASSES], None, object),
    "NaN among text": marked(WORDS[CLASSES], np.nan, object),
    "list with None": marked(CLASSES, None, object).tolist(),
    "list of text with None": marked(WORDS[CLASSES], None, object).tolist(),
    "-1 among text": marked(WORDS[CLASSES], -1, object),
}


@pytest.mark.parametrize("form", UNLABELLED)
def test_unlabelled_rows_by_any_mark_give_one_model(form):
    assert same(SupervisedPPCA(1).fit(X, UNLABELLED[form]), SEMI)


@pytest.mark.parametrize("kind", ["int", "str", "float"])
def test_a_mask_hides_labels(kind):
    values = {"int": CLASSES, "str": WORDS[CLASSES], "float": CLASSES.astype(float)}[kind]
    assert same(SupervisedPPCA(1).fit(X, values, labelled=LABELLED), SEMI)
    as_xarray = xr.DataArray(LABELLED, dims="sample")
    assert same(SupervisedPPCA(1).fit(X, values, labelled=as_xarray), SEMI)


@pytest.mark.parametrize("values", [CLASSES, CLASSES > 0, WORDS[CLASSES]], ids=["int", "bool", "str"])
def test_labels_keep_their_kind_where_some_are_hidden(values, tmp_path):
    """Labels that are numbers stay such, in a saved model, too, so that they compare with those that were given."""
    plain = SupervisedPPCA(1, target_type="class").fit(X, values)
    for model in (
        SupervisedPPCA(1, target_type="class").fit(X, values, labelled=LABELLED),
        SupervisedPPCA(1, target_type="class").fit(X, marked(values, None, object)),
    ):
        model.save(tmp_path / "m.zarr", overwrite=True)
        for one in (model, dlatent.load(tmp_path / "m.zarr")):
            assert one.classes_.dtype.kind == plain.classes_.dtype.kind
            assert accuracy_score(values, one.predict(X)) > 0.3


def test_pandas_missing_values_are_unlabelled():
    pd = pytest.importorskip("pandas", reason="pandas comes with the extra 'files'")
    words = pd.Series(WORDS[CLASSES], dtype="string").where(LABELLED)
    assert same(SupervisedPPCA(1).fit(X, words), SEMI)
    numbers = pd.Series(CLASSES, dtype="Int64").where(LABELLED)
    assert same(SupervisedPPCA(1).fit(X, numbers), SEMI)
    assert same(SupervisedPPCA(1).fit(X, pd.Categorical(words)), SEMI)


def test_regression_targets_unlabelled_by_nan_or_mask_give_one_model():
    expected = SupervisedPPCA(2).fit(X, PARTLY)
    assert same(SupervisedPPCA(2).fit(X, Y, labelled=LABELLED), expected)
    rows = [list(row) if keep else [None, None] for row, keep in zip(Y, LABELLED, strict=True)]
    assert same(SupervisedPPCA(2).fit(X, np.array(rows, dtype=object)), expected)
    assert same(SupervisedPPCA(2).fit(X, da.from_array(PARTLY, chunks=(7, 1))), expected)


def test_regression_targets_of_one_column_come_back_as_a_vector():
    column, vector = (SupervisedPPCA(2).fit(X, y) for y in (Y[:, :1], Y[:, 0]))
    assert same(column, vector)
    assert vector.predict(X).shape == (N,)
    assert vector.target_components_.shape == (2, 1)
    assert SupervisedPPCA(2).fit(X, Y).predict(X).shape == (N, 2)


def test_minus_one_is_a_number_for_regression():
    y = np.round(Y[:, 0])
    y[:5] = -1
    found = SupervisedPPCA(2, target_type="regression").fit(X, y)
    assert view_samples_of(found) == (N, N)
    assert found.predict(X).dtype == np.float64


def test_fractions_are_regression_and_whole_numbers_classes():
    assert not hasattr(SupervisedPPCA(1).fit(X, CLASSES).fit(X, Y[:, 0]), "classes_")
    assert SupervisedPPCA(1).fit(X, CLASSES.astype(float)).classes_.tolist() == [0, 1, 2]


def test_multilabel_targets():
    labels = (Y > 0).astype(int)
    expected = SupervisedPPCA(1).fit(X, labels)
    assert expected.predict(X).dtype.kind == "i"
    assert set(np.unique(expected.predict(X))) <= {0, 1}
    for form in (labels.astype(bool), sp.csr_array(labels), labels.astype(np.uint8), labels.tolist()):
        assert same(SupervisedPPCA(1).fit(X, form), expected)
    floats = SupervisedPPCA(1, target_type="multilabel").fit(X, labels.astype(float))
    assert same(floats, expected)
    accuracy = (expected.predict(X) == labels).mean()
    assert accuracy > 0.7
    semi = SupervisedPPCA(1).fit(X, labels, labelled=LABELLED)
    assert view_samples_of(semi) == (N, LABELLED.sum())


def test_transform_with_labels_differs_only_where_they_are_given():
    with_y = SEMI.transform(X, np.where(LABELLED, CLASSES, -1))
    without = SEMI.transform(X)
    np.testing.assert_array_equal(with_y[~LABELLED], without[~LABELLED])
    assert (abs(with_y - without)[LABELLED] > 1e-6).all()


def test_transform_of_new_rows_by_any_form_of_label():
    some = slice(0, 9)
    expected = SEMI.transform(X[some], CLASSES[some])
    words = SupervisedPPCA(1).fit(X, marked(WORDS[CLASSES], None, object))
    np.testing.assert_array_equal(words.transform(X[some], WORDS[CLASSES[some]]), expected)
    np.testing.assert_array_equal(SEMI.transform(X[some], CLASSES[some].tolist()), expected)
    np.testing.assert_array_equal(SEMI.transform(X[some], CLASSES[some].astype(float)), expected)


def test_targets_with_other_coordinates_than_the_data_are_refused():
    data = xr.DataArray(X, dims=("doc", "word"), coords={"doc": [f"d{i}" for i in range(N)]})
    y = xr.DataArray(CLASSES, dims="doc", coords={"doc": [f"d{i}" for i in range(N)]})
    assert same(SupervisedPPCA(1).fit(data, y), COMPLETE)
    turned = y.isel(doc=slice(None, None, -1))
    with pytest.raises(
        DataError, match=r"row 0: the targets are labelled 'd59', the data 'd0'.*y.sel\(doc=X\['doc'\]\)"
    ):
        SupervisedPPCA(1).fit(data, turned)


TURN = np.arange(N)[::-1]
INDEXES = {
    "texts": [f"d{i}" for i in range(N)],
    "shuffled numbers": (np.arange(N) * 7) % N,
    "pairs": pd.MultiIndex.from_product([["a", "b"], range(N // 2)]),
}


@pytest.mark.parametrize("index", INDEXES)
def test_targets_are_in_the_order_of_the_data(index):
    data, y = pd.DataFrame(X, index=INDEXES[index]), pd.Series(CLASSES, index=INDEXES[index])
    assert same(SupervisedPPCA(1).fit(data, y), COMPLETE)
    for own in (y.iloc[TURN], y.to_frame().iloc[TURN]):
        message = r"row 0: the targets are labelled .*, the data .*y = y.loc\[X.index\], or pass y.to_numpy\(\)"
        for call in (SupervisedPPCA(1).fit, COMPLETE.transform, COMPLETE.score, SupervisedPPCA(1).plan):
            with pytest.raises(DataError, match=message):
                call(data, own)
        with pytest.raises(DataError, match=message):
            select_n_components(SupervisedPPCA(1), data, [1], own)
        assert same(SupervisedPPCA(1).fit(data, own.loc[data.index]), COMPLETE)
    shown = pd.Series(LABELLED, index=INDEXES[index])
    assert same(SupervisedPPCA(1).fit(data, y, labelled=shown), SEMI)
    with pytest.raises(DataError, match="row 0: the truth values are labelled"):
        SupervisedPPCA(1).fit(data, y, labelled=shown.iloc[TURN])
    weights = pd.Series(1.0 + CLASSES, index=INDEXES[index])
    weighted = PPCA(1).fit(data, sample_weight=weights)
    assert weighted.score(data, sample_weight=weights) == weighted.score(X, sample_weight=1.0 + CLASSES)
    for own in (PPCA(1).fit, weighted.score):
        with pytest.raises(DataError, match="row 0: the weights are labelled"):
            own(data, sample_weight=weights.iloc[TURN])


def test_targets_that_have_no_names_of_rows_lie_as_the_data():
    named, plain = pd.DataFrame(X, index=INDEXES["texts"]), pd.Series(CLASSES)
    cells = anndata.AnnData(X)  # its names of rows are the texts of 0, 1, …
    for data, y in (
        (named, plain),
        (pd.DataFrame(X), plain.set_axis(INDEXES["texts"])),
        (X, plain.iloc[::1]),
        (cells, plain),
    ):
        assert same(SupervisedPPCA(1).fit(data, y), COMPLETE)
    with pytest.raises(DataError, match="row 0: the targets are labelled 'e0', the data 'd0'"):
        SupervisedPPCA(1).fit(named, plain.set_axis([f"e{i}" for i in range(N)]))
    cells.obs_names = INDEXES["texts"]
    with pytest.raises(DataError, match="row 0: the targets are labelled 'd59', the data 'd0'"):
        SupervisedPPCA(1).fit(cells, plain.set_axis(INDEXES["texts"]).iloc[TURN])


def test_widths_are_those_of_the_data():
    assert COMPLETE.components_.shape == (1, D)
    assert COMPLETE.target_components_.shape == (1, 3)
    assert COMPLETE.target_mean_.sum() == pytest.approx(1.0)


def test_a_matrix_of_labels_marks_unlabelled_rows_by_minus_one():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 5))
    labels = (x[:, :2] + rng.normal(size=(60, 2)) > 0).astype(int)
    hidden = np.arange(60) % 3 == 0
    marked = np.where(hidden[:, None], -1, labels)
    fitted = SupervisedPPCA(2).fit(x, marked)
    masked = SupervisedPPCA(2).fit(x, labels, labelled=~hidden)
    assert fitted.log_likelihood_ == masked.log_likelihood_
    assert set(np.unique(fitted.predict(x))) <= {0, 1}


ATTRIBUTES = ({"_FillValue": -9999.0}, {"missing_value": [-1.0, -9.0]}, {"scale_factor": 0.1}, {"add_offset": 2.0})


@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=lambda attributes: min(attributes))
def test_a_DataArray_of_encoded_values_is_refused(attributes):
    data = xr.DataArray(X, dims=("sample", "feature"), name="X", attrs=attributes)
    model, classes = SupervisedPPCA(1), xr.DataArray(CLASSES, dims="sample", attrs=attributes)
    message = f"encoded values .{min(attributes)}=.*xr.decode_cf"
    for given in (data, data.to_dataset()):
        with pytest.raises(DataError, match=message):
            model.fit(given, CLASSES)
        with pytest.raises(DataError, match=message):
            COMPLETE.predict(given)
    with pytest.raises(DataError, match=message):
        model.fit(X, classes)
    with pytest.raises(DataError, match=message):
        dlatent.PPCA(1).fit(X, sample_weight=xr.DataArray(np.ones(N), dims="sample", attrs=attributes))
    with pytest.raises(DataError, match=message):
        dlatent.PPCA(1).fit(data.drop_attrs(), weights=xr.DataArray(np.ones(D), dims="feature", attrs=attributes))
    same(model.fit(data.drop_attrs(), classes.drop_attrs()), COMPLETE)


def test_attributes_by_which_values_stand_for_themselves_are_none_of_encoded_ones():
    attributes = {"_FillValue": np.nan, "missing_value": np.float32("nan"), "scale_factor": 1.0, "add_offset": 0.0}
    data = xr.DataArray(X, dims=("sample", "feature"), attrs={**attributes, "_Unsigned": "false", "units": "K"})
    same(SupervisedPPCA(1).fit(data, CLASSES), COMPLETE)


NO_TARGETS = {
    "ragged": [[1.0, 2.0]] * (N - 1) + [[1.0]],
    "ragged objects": np.array([[1.0, 2.0]] * (N - 1) + [[1.0]], dtype=object),
    "a number": 3.0,
    "a scalar": np.array(3.0),
    "a text": "abc",
    "three dimensions": np.zeros((N, 2, 2)),
    "no outputs": [[]] * N,
    "a mapping": {"y": [1, 2]},
    "too short": [1, 2, 1],
    "a function": len,
    "a dataset": xr.Dataset({"y": ("sample", Y[:, 0])}),
    "nothing": None,
}
PAIRED = {"left": X, "right": Y}
PAIRS = np.column_stack([np.arange(N), np.arange(N)])
RING = sp.diags_array([np.ones(N - 1), np.ones(N - 1)], offsets=[-1, 1])
DOORS = {
    "fit": lambda y: SupervisedPPCA(1).fit(X, y),
    "regression": lambda y: SupervisedPPCA(1, target_type="regression").fit(X, y),
    "plan": lambda y: SupervisedPPCA(1).plan(X, y),
    "score": lambda y: COMPLETE.score(X, np.zeros(N + 1) if y is None else y),
    "kernel": lambda y: KernelSupervisedPPCA(1).fit(X, y),
    "graph": lambda y: RelationalSupervisedPPCA(1).fit(X, y, graph=RING),
    "views": lambda y: CorrespondenceSupervisedPPCA(1).fit(PAIRED, y, correspondence=PAIRS),
    "a view": lambda y: CorrespondenceSupervisedPPCA(1).fit(PAIRED, {"left": y}, correspondence=PAIRS),
    "labelled": lambda y: SupervisedPPCA(1).fit(X, CLASSES, labelled=len if y is None else y),
    "weights": lambda y: PPCA(1).fit(X, sample_weight=len if y is None else y),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("targets", NO_TARGETS)
def test_what_are_no_targets_is_refused_at_every_door(door, targets):
    with pytest.raises(DataError, match=r"y |y:|class labels|labelled |sample_weight "):
        DOORS[door](NO_TARGETS[targets])
