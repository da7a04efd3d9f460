"""Several views with targets as users give them; refusals; what comes back."""

from __future__ import annotations

from functools import cache

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import CorrespondenceSupervisedPPCA, DataError, DataWarning, NotFittedError
from tests.simulators import simulate

DATA = simulate(60, (6, 5, 2), 2, noise=(0.3, 0.4, 0.3), offset=2.0, random_state=2).stacked
A, B = DATA[:45, :6], DATA[20:, 6:11]
PAIRS = np.column_stack([np.arange(20, 45), np.arange(25)])
VIEWS = {"a": A, "b": B}
FIRST = np.linalg.svd(DATA[:, :11] - DATA[:, :11].mean(axis=0))[0][:, 0]
KINDS = np.where(FIRST > 0, "yes", "no").astype(object)
OF_A = np.where(np.arange(45) % 2 == 0, KINDS[:45], None)
JOINT = {"correspondence": PAIRS}


def fit(y=None, views=VIEWS, k=2, *, labelled=None, **options):
    y = {"a": OF_A} if y is None else y
    return CorrespondenceSupervisedPPCA(k, tol=1e-12, **options).fit(views, y, labelled=labelled, **JOINT)


@cache
def fitted():
    return fit()


def test_targets_of_a_view_are_those_of_the_joint_samples():
    """Joint samples in the order of `transform`: the pairs, then the other rows of each view."""
    table = np.column_stack([fitted().transform(VIEWS, **JOINT)[f"row_{name}"] for name in "ab"])
    joint = np.where(table[:, 0] >= 0, OF_A[table[:, 0]], None)
    other = fit(joint)
    assert other.log_likelihood_ == fitted().log_likelihood_
    np.testing.assert_array_equal(other.target_components_, fitted().target_components_)
    series = fit({"a": pd.Series(OF_A)})
    assert series.log_likelihood_ == fitted().log_likelihood_


def test_users_see_the_views_and_not_the_targets_among_them():
    assert fitted().view_names_ == ("a", "b")
    for name in ("components_", "mean_", "noise_variance_", "at_floor_", "view_samples_"):
        assert list(getattr(fitted(), name)) == ["a", "b"]
    assert fitted().n_features_in_ == 11
    assert fitted().classes_.tolist() == ["no", "yes"]
    assert fitted().target_components_.shape == (2, 2)
    assert fitted().result_["feature_view"].values.tolist() == ["a"] * 6 + ["b"] * 5
    views, outputs = fitted().sample(7, random_state=0)
    assert {name: rows.shape for name, rows in views.items()} == {"a": (7, 6), "b": (7, 5)}
    assert outputs.shape == (7, 2)
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0)
    for action in (
        lambda: fitted().transform({"targets": A}),
        lambda: fitted().reconstruct(A, "a", "targets"),
        lambda: fitted().get_covariance("targets"),
        lambda: fitted().predictive_variance("targets"),
    ):
        with pytest.raises(DataError, match="'targets' is no view of the model; it was fitted to 'a', 'b'"):
            action()


def test_predictions_come_in_the_kind_of_the_data():
    plain = fitted().predict({"a": A})
    assert (plain == KINDS[:45].astype(str)).mean() > 0.8
    lazy = fitted().predict({"a": da.from_array(A, chunks=(20, 6))})
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), plain)
    rows = {"a": xr.DataArray(A, dims=("row", "word"), coords={"row": np.arange(45) + 7})}
    labelled, odds = fitted().predict_proba(rows), fitted().decision_function(rows)
    assert labelled.dims == ("row", "target")
    assert labelled["target"].values.tolist() == ["no", "yes"]
    assert odds.dims == ("row",)
    np.testing.assert_allclose(odds, np.log(labelled[:, 1] / labelled[:, 0]), rtol=1e-9)
    np.testing.assert_allclose(fitted().decision_function({"a": sp.csr_array(A)}), odds.values, rtol=1e-9)
    joint, variance = fitted().predict(VIEWS, return_variance=True, **JOINT)
    assert joint.dims == ("sample",)
    assert variance.dims == ("sample", "target")
    both, alone = fitted().predictive_variance(), fitted().predictive_variance("a")
    np.testing.assert_array_equal(variance[0], both)
    np.testing.assert_array_equal(variance[25], alone)
    np.testing.assert_array_equal(fitted().predictive_variance(["b", "a"]), both)
    assert (both < alone).all()
    assert fitted().predictive_variance("a", "b").shape == (5,)


def test_the_variance_of_numbers_is_what_is_missed_of_other_samples():
    every = simulate(600, (6, 5, 2), 2, noise=(0.3, 0.4, 0.3), random_state=3).stacked
    views, targets = {"a": every[:, :6], "b": every[:, 6:11]}, every[:, 11:]
    known = np.where(np.arange(600)[:, None] < 300, targets, np.nan)
    model = CorrespondenceSupervisedPPCA(2).fit(views, known, correspondence="rows")
    missed = ((model.predict(views, correspondence="rows") - targets)[300:] ** 2).mean(axis=0)
    np.testing.assert_allclose(missed, model.predictive_variance(), rtol=0.2)


@pytest.mark.parametrize("kind", ["multilabel", "regression", "one output"])
def test_outputs_of_other_kinds(kind):
    values = {"multilabel": (DATA[:, 11:] > 2).astype(int), "regression": DATA[:, 11:], "one output": DATA[:, 11]}[kind]
    model = fit({"a": values[:45]})
    assert model.predict({"b": B}).shape == (40, *values.shape[1:])
    assert not hasattr(model, "classes_")
    if kind == "multilabel":
        assert set(np.unique(model.predict({"b": B}))) <= {0, 1}


def test_scores_of_one_view_with_targets():
    """Given targets a row has other scores, a row without none, and both are those of the joint samples."""
    found = fitted().transform({"a": A}, OF_A)
    known = OF_A != None  # noqa: E711
    plain = fitted().transform({"a": A})
    np.testing.assert_allclose(found[~known], plain[~known], rtol=1e-9, atol=1e-12)
    assert (abs(found[known] - plain[known]).max(axis=1) > 1e-6).all()
    np.testing.assert_array_equal(found["row_a"], np.arange(45))
    nothing = fitted().score_samples({"a": A}, {"a": np.full(45, None)})
    np.testing.assert_allclose(nothing, fitted().score_samples({"a": A}), rtol=1e-9)
    with pytest.raises(DataError, match="label 'maybe' is not among"):
        fitted().score_samples({"a": A}, ["maybe"] * 45)
    with pytest.raises(DataError, match="without targets"):
        fitted().transform({"a": A}, OF_A, out="z.zarr")


def test_a_target_of_zero_is_no_row_of_zeros(recwarn):
    """Rows of zeros are those of views; a target that is the mean of all is encoded as zero."""
    y = np.resize([-1.5, 0.0, 1.5], 45)
    fit({"a": y}, zero_rows="raise")
    fit({"a": y})
    assert not [one for one in recwarn if issubclass(one.category, DataWarning)]
    zero = A.copy()
    zero[3] = 0.0
    with pytest.raises(DataError, match="view 'a', row 3 is all zeros"):
        fit({"a": y}, {"a": zero, "b": B}, zero_rows="raise")
    with pytest.warns(DataWarning, match="^1 row is all zeros"):
        fit({"a": y}, {"a": zero, "b": B})


def test_lone_classes_are_told_of():
    with pytest.warns(DataWarning, match="1 of 3 classes have one labelled row"):
        fit({"a": np.where(np.arange(45) == 4, "lone", KINDS[:45])})


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ({"a": [None] * 45}, "no row of y is labelled"),
        ({"a": np.full(45, np.nan)}, "no row of y is labelled"),
        ({"a": ["x"] * 45}, "all 45 labelled rows have the class 'x'"),
        ({"c": OF_A}, "y has targets for 'c'; .* one of the views 'a', 'b'"),
        ({"a": OF_A, "b": OF_A[:40]}, "y has targets for 'a', 'b'; as a mapping it has one entry"),
        ({}, "y has targets for no view"),
        ({"a": OF_A[:40]}, "y has shape .40,.; the data have 45 samples"),
        (OF_A, r"y has shape \(45,\); there are 60 joint samples.*y=\{'a': targets\}"),
        ({"a": np.where(np.arange(90).reshape(45, 2) == 8, np.nan, 1.5 + A[:, :2])}, "row 4: output 0 of y is missing"),
    ],
)
def test_targets_that_cannot_be(y, words):
    with pytest.raises(DataError, match=words):
        fit(y)


def test_what_cannot_be_fitted():
    with pytest.raises(DataError, match="requires y to be passed"):
        CorrespondenceSupervisedPPCA(2).fit(VIEWS, **JOINT)
    with pytest.raises(DataError, match="a view is named 'targets'"):
        fit({"b": OF_A[:40]}, {"targets": A, "b": B})
    with pytest.raises(DataError, match="there is 1 view"):
        CorrespondenceSupervisedPPCA(2).fit({"a": A}, OF_A, **JOINT)
    with pytest.raises(DataError, match="60 samples × 11 features of all views allow at most 10"):
        fit(k=11)
    with pytest.raises(DataError, match="target_noise_floor is 2"):
        fit(target_noise_floor=2)
    with pytest.raises(DataError, match="target_type is 'odd'"):
        fit(target_type="odd")
    with pytest.raises(DataError, match="labelled has shape"):
        fit(labelled=np.ones(3, dtype=bool))
    with pytest.raises(DataError, match="name the one view"):
        fitted().predictive_variance(["a", "b"], "b")
    for method in ("predict", "decision_function", "transform"):
        with pytest.raises(NotFittedError):
            getattr(CorrespondenceSupervisedPPCA(), method)({"a": A})


@pytest.mark.parametrize("client", [None, "serial"])
def test_a_plan_reads_no_rows_and_counts_the_targets(client):
    def refuse(block):
        raise AssertionError("a row was read")

    chunks = {name: da.from_array(x, chunks=(20, -1)).map_blocks(refuse, dtype=x.dtype, meta=x[:0])
              for name, x in VIEWS.items()}  # fmt: skip
    plan = CorrespondenceSupervisedPPCA(2).plan(chunks, {"a": OF_A}, client=client, **JOINT)
    assert plan.task.specification.sizes == (6, 5, 1)
    assert plan.solver == "covariance"


def test_a_fit_to_other_targets_forgets_the_classes():
    assert not hasattr(fit().fit(VIEWS, {"b": DATA[20:, 12]}, **JOINT), "classes_")
