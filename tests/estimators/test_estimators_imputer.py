"""A step of a pipeline that fills missing entries in."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_cases import CLASSES, X
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dlatent import PPCA, DataError, FactorAnalysis, Imputer, KernelPPCA, NotFittedError, RelationalPPCA, SupervisedPPCA

HOLES = np.where(np.random.default_rng(3).random(X.shape) < 0.15, np.nan, X)


@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(2), SupervisedPPCA(2)], ids=str)
def test_it_fills_in_what_the_model_expects(model):
    imputer = Imputer(model).fit(HOLES, CLASSES)
    expected = clone(model).set_params(missing="nan").fit(HOLES, CLASSES).impute(HOLES)
    np.testing.assert_array_equal(imputer.transform(HOLES), expected)
    np.testing.assert_array_equal(imputer.transform(HOLES)[~np.isnan(HOLES)], HOLES[~np.isnan(HOLES)])
    assert model.missing == "raise", "what was given is not changed"


def test_without_a_model_it_is_ppca_of_as_many_components_as_the_data_support():
    expected = PPCA(missing="nan").fit(HOLES).impute(HOLES)
    np.testing.assert_array_equal(Imputer().fit_transform(HOLES), expected)


def test_rows_that_it_has_not_seen_are_filled_in():
    imputer = Imputer(PPCA(2)).fit(HOLES[:-20])
    assert np.isfinite(imputer.transform(HOLES[-20:])).all()
    assert (imputer.estimator_.impute_variance(HOLES[-20:]) > 0).any()


def test_pipelines_and_searches_go_on_with_whole_rows():
    pipeline = make_pipeline(Imputer(PPCA()), LogisticRegression())
    search = GridSearchCV(pipeline, {"imputer__estimator__n_components": [1, 2]}, cv=3).fit(HOLES, CLASSES)
    assert search.best_score_ > 0.5
    assert search.best_estimator_[0].estimator_.n_components_ == search.best_params_["imputer__estimator__n_components"]


def test_data_frames_keep_their_names():
    pd = pytest.importorskip("pandas", reason="pandas comes with the extra 'files'")
    frame = pd.DataFrame(HOLES, columns=list("abcdefgh"), index=[f"r{i}" for i in range(len(X))])
    filled = Imputer(PPCA(2)).set_output(transform="pandas").fit(frame).transform(frame)
    assert filled.columns.tolist() == list("abcdefgh")
    assert filled.index.tolist() == frame.index.tolist()
    assert not filled.isna().any(axis=None)
    imputer = Imputer(PPCA(2)).fit(frame)
    assert imputer.get_feature_names_out().tolist() == imputer.feature_names_in_.tolist() == list("abcdefgh")


def test_the_fit_of_the_model_can_be_resumed(tmp_path):
    Imputer(PPCA(2)).fit(HOLES, checkpoint=tmp_path / "kept", client="serial")
    assert (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "model", [KernelPPCA(2), RelationalPPCA(2), LogisticRegression()], ids=lambda m: type(m).__name__
)
def test_models_that_fill_nothing_in_are_refused(model):
    with pytest.raises(DataError, match=f"estimator is {type(model).__name__}.*takes no missing entries"):
        Imputer(model).fit(HOLES)


def test_it_has_to_be_fitted_first():
    with pytest.raises(NotFittedError, match="this Imputer is not fitted yet"):
        Imputer().transform(HOLES)
