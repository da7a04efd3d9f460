"""What weights of samples may be, who takes them, and where they go."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
import sklearn
import xarray as xr
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dlatent
from dlatent import PPCA, DataError, FactorAnalysis, PlanError, StoreError
from dlatent.models import MODELS

X = np.random.default_rng(0).normal(size=(60, 3)) @ np.diag([3.0, 2.0, 1.0])
W = np.random.default_rng(1).gamma(1.0, size=60)
TAKING = {"PPCA", "FactorAnalysis"}

REFUSED = {
    "negative": (np.where(np.arange(60) == 7, -1.0, 1.0), r"sample_weight of row 7 is -1.0 \(1 such"),
    "missing": (np.where(np.arange(60) > 57, np.nan, 1.0), r"row 58 is nan \(2 such"),
    "infinite": (np.where(np.arange(60) == 0, np.inf, 1.0), "row 0 is inf"),
    "zero": (np.zeros(60), "zero for all samples"),
    "too few": (np.ones(59), r"shape \(59,\); expected a weight for each of the 60"),
    "a column": (np.ones((60, 1)), r"shape \(60, 1\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_weights_that_are_none_are_refused(name: str) -> None:
    weights, words = REFUSED[name]
    model = PPCA(1).fit(X)
    for call in (PPCA(1).fit, PPCA(1).plan, model.score):
        with pytest.raises(DataError, match=words):
            call(X, sample_weight=weights)


def test_where_rows_have_no_statistics_in_common_weights_are_refused() -> None:
    with pytest.raises(DataError, match="complete data; with missing entries repeat rows"):
        PPCA(1, missing="nan").fit(X, sample_weight=W)
    with pytest.raises(PlanError, match=r"'gram' is none.*samples have weights; take covariance or krylov"):
        PPCA(1, solver="gram").plan(X[:, :2], sample_weight=W)
    assert "gram" not in {cost.solver for cost in PPCA(1).plan(X.T[:, :30], sample_weight=W[:3]).alternatives}


def test_those_take_weights_of_whom_the_documentation_says_so() -> None:
    assert {model.name for model in MODELS if "sample_weight" in signature(model.load().fit).parameters} == TAKING
    for name in TAKING:
        assert "sample_weight" in signature(getattr(dlatent, name).score).parameters


def test_weights_come_in_what_holds_them() -> None:
    expected = PPCA(1).fit(X, sample_weight=W).components_
    labelled = xr.DataArray(X, dims=("time", "x"), coords={"time": np.arange(60)})
    for weights in (W.tolist(), xr.DataArray(W, dims="time")):
        np.testing.assert_array_equal(PPCA(1).fit(X, sample_weight=weights).components_, expected)
    weights = xr.DataArray(W, dims="time", coords={"time": np.arange(60)})
    np.testing.assert_array_equal(PPCA(1).fit(labelled, sample_weight=weights).components_, expected)
    with pytest.raises(DataError, match="row 0"):
        PPCA(1).fit(labelled, sample_weight=weights[::-1])


def test_searches_and_pipelines_pass_weights_on() -> None:
    folds = KFold(2)
    with sklearn.config_context(enable_metadata_routing=True):
        model = PPCA(1).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"n_components": [1, 2]}, cv=folds).fit(X, sample_weight=W)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=True), model)
        piped = pipeline.fit(X, sample_weight=W)[-1].components_
    scaler = StandardScaler().fit(X, sample_weight=W)
    np.testing.assert_array_equal(piped, PPCA(1).fit(scaler.transform(X), sample_weight=W).components_)
    for fold, (train, test) in enumerate(folds.split(X)):
        by_hand = PPCA(2).fit(X[train], sample_weight=W[train]).score(X[test], sample_weight=W[test])
        assert search.cv_results_[f"split{fold}_test_score"][1] == by_hand


def test_a_checkpoint_is_that_of_its_weights(tmp_path: Any) -> None:
    place = tmp_path / "checkpoint"
    first = FactorAnalysis(1).fit(X, sample_weight=W, checkpoint=place)
    again = FactorAnalysis(1).fit(X, sample_weight=W, checkpoint=place, resume=True)
    np.testing.assert_array_equal(first.components_, again.components_)
    for options in ({}, {"sample_weight": W[::-1]}):
        with pytest.raises(StoreError, match=r"another|differ"):
            FactorAnalysis(1).fit(X, checkpoint=place, resume=True, **options)
