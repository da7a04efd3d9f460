"""The estimators among scikit-learn's own tools."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from checked_models import ChainGraphPPCA, ChainRelationalPPCA, ChainRelationalSupervisedPPCA, Halves, LeftHalves
from estimator_cases import CLASSES, N, X, Y
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from dlatent import (
    PPCA,
    CorrespondenceFactorAnalysis,
    CorrespondenceLLE,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    FactorAnalysis,
    Imputer,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    SupervisedPPCA,
)
from dlatent.testing import expected_failed_checks
from tests.simulators import simulate

CHECKED = [
    PPCA(),
    PPCA(missing="nan"),
    PPCA(1, likelihood="student"),
    KernelPPCA(),
    Imputer(),
    LocallyLinearEmbedding(),
    LocallyLinearEmbedding(disconnected="keep"),
    ChainGraphPPCA(),
    ChainRelationalPPCA(),
]
CHECKED_SLOWLY = [
    SupervisedPPCA(),
    SupervisedPPCA(target_type="class"),
    KernelSupervisedPPCA(),
    # On few rows a component collapses onto some of them; of sparse rows the likelihood then keeps six digits only.
    PPCAMixture(noise_floor=1e-3),
    # Of 15 rows and 30 features it has a Heywood case, before whose floor the likelihood is flat to rounding.
    FactorAnalysis(noise_floor=1e-3),
    FactorAnalysis(missing="nan"),
    SupervisedPPCA(missing="nan"),
    KernelSupervisedPPCA(target_type="class"),
    ChainGraphPPCA(missing="nan"),
    ChainRelationalSupervisedPPCA(),
    ChainRelationalSupervisedPPCA(target_type="class"),
    Halves(CorrespondencePPCA()),
    Halves(CorrespondenceFactorAnalysis()),
    Halves(CorrespondenceSupervisedPPCA()),
    LeftHalves(CorrespondenceLLE(disconnected="keep")),
]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failed_checks)
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(CHECKED_SLOWLY, expected_failed_checks=expected_failed_checks)
def test_the_contract_of_scikit_learn_for_models_of_slower_fits(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [LocallyLinearEmbedding(), LocallyLinearEmbedding(disconnected="keep")], ids=str)
def test_every_declared_check_fails_and_no_other(model):
    declared = expected_failed_checks(model)
    results = check_estimator(model, expected_failed_checks=declared, on_fail=None, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert failed == declared.keys() & {result["check_name"] for result in results}
    assert not [result for result in results if result["status"] == "failed"]


def test_the_text_of_a_model_names_what_differs_from_the_defaults():
    assert repr(PPCA()) == "PPCA()"
    assert repr(PPCA(5, tol=1e-6)) == "PPCA(n_components=5, tol=1e-06)"
    assert repr(SupervisedPPCA(target_type="class")) == "SupervisedPPCA(target_type='class')"
    assert "PPCA" in PPCA(2).fit(X)._repr_html_()


def test_pipelines_end_in_a_classifier():
    pipeline = make_pipeline(StandardScaler(), PPCA(3), LogisticRegression())
    assert pipeline.fit(X, CLASSES).score(X, CLASSES) > 0.5
    supervised = make_pipeline(StandardScaler(), SupervisedPPCA(2), LogisticRegression())
    assert supervised.fit(X, CLASSES).score(X, CLASSES) > 0.5


def test_pipelines_with_a_model_at_the_end_predict():
    pipeline = make_pipeline(StandardScaler(), SupervisedPPCA(2))
    assert pipeline.fit(X, Y).predict(X).shape == (N, 2)


def test_the_held_out_likelihood_chooses_the_number_of_components():
    x = simulate(300, (10,), 3, noise=(0.3,), random_state=4).features
    search = GridSearchCV(PPCA(), {"n_components": [1, 2, 3, 4, 6]}, cv=KFold(4)).fit(x)
    assert search.best_params_ == {"n_components": 3}
    assert search.best_score_ == pytest.approx(search.cv_results_["mean_test_score"][2])
    scores = cross_val_score(SupervisedPPCA(2), X, Y, cv=KFold(3))
    assert np.isfinite(scores).all()


def test_output_as_data_frames():
    pd = pytest.importorskip("pandas", reason="pandas comes with the extra 'files'")
    model = PPCA(2).set_output(transform="pandas").fit(X)
    found = model.transform(X)
    assert isinstance(found, pd.DataFrame)
    assert found.columns.tolist() == ["ppca0", "ppca1"]
    assert model.get_feature_names_out().tolist() == ["ppca0", "ppca1"]
    np.testing.assert_array_equal(found.to_numpy(), PPCA(2).fit(X).transform(X))


@pytest.mark.parametrize("model", [PPCA(2), KernelPPCA(2), PPCAMixture(1, 2), LocallyLinearEmbedding()])
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_scores_in_a_store_are_in_no_data_frame(model, container, tmp_path):
    library = pytest.importorskip(container, reason=f"{container} is not installed")
    model = clone(model).set_output(transform=container).fit(X)
    place = model.transform(X, out=tmp_path / "scores.zarr")
    assert place == str(tmp_path / "scores.zarr")
    assert isinstance(model.transform(X), library.DataFrame)
    np.testing.assert_array_equal(zarr.open_group(place)["scores"][:], model.transform(X).to_numpy())


def test_steps_hand_on_data_frames():
    pytest.importorskip("pandas", reason="pandas comes with the extra 'files'")
    pipeline = make_pipeline(StandardScaler(), PPCA(2)).set_output(transform="pandas")
    assert pipeline.fit_transform(X).columns.tolist() == ["ppca0", "ppca1"]
