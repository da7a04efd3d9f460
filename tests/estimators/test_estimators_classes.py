"""Models with class labels as classifiers of scikit-learn: probabilities, decisions, and the tools that use them."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

from dlatent import (
    CorrespondenceSupervisedPPCA,
    DataError,
    KernelSupervisedPPCA,
    NotFittedError,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
)
from tests.fitted import FirstUse, encoding_of, parameters_of, specification_of
from tests.oracles import dense as oracles

IRIS, KINDS = load_iris(return_X_y=True)
NAMES = load_iris().target_names[KINDS]
TUMOURS, MALIGN = load_breast_cancer(return_X_y=True)
TUMOURS = scale(TUMOURS)
RING = sp.csr_array((np.ones(150), (np.arange(150), np.roll(np.arange(150), 1))), shape=(150, 150))
RING = RING + RING.T
PAIRS = np.column_stack([np.arange(100), np.arange(100)])


def views(some=slice(None)):
    return {"sepals": IRIS[some, :2], "petals": IRIS[some, 2:]}


SOME = np.where(np.arange(150) % 3 == 0, KINDS, -1)
LIKELIHOOD = {"head": "likelihood"}
MODELS = FirstUse(
    {
        "supervised": lambda: SupervisedPPCA(3, **LIKELIHOOD).fit(IRIS, NAMES),
        "semi-supervised": lambda: SupervisedPPCA(3, **LIKELIHOOD).fit(IRIS, SOME),
        "missing": lambda: SupervisedPPCA(
            2, missing="nan", prior="ml", solver="em", max_iter=50, tol=1e-4, **LIKELIHOOD
        ).fit(IRIS, NAMES),
        "kernel": lambda: KernelSupervisedPPCA(3, gamma=0.3, **LIKELIHOOD).fit(IRIS, NAMES),
        "graph": lambda: RelationalSupervisedPPCA(3, alpha=0.7, **LIKELIHOOD).fit(IRIS, NAMES, graph=RING),
        "auto": lambda: SupervisedPPCA(3).fit(IRIS, NAMES),
        "auto, missing": lambda: SupervisedPPCA(2, missing="nan", prior="ml", solver="em", max_iter=50, tol=1e-4).fit(
            IRIS, SOME
        ),
        "auto, kernel": lambda: KernelSupervisedPPCA(3, gamma=0.3).fit(IRIS, NAMES),
        "auto, graph": lambda: RelationalSupervisedPPCA(3, alpha=0.7).fit(IRIS, NAMES, graph=RING),
    }
)


def by_bayes(model, x, precision=1.0):
    """p(c | x) from the model's dense distribution of features and codes of classes."""
    encoding, sizes = encoding_of(model), specification_of(model).sizes
    dense = oracles.dense(parameters_of(model), sizes)
    joint = dense.observed._replace(covariance=dense.observed.covariance / precision)
    own, found = np.arange(sum(sizes)) >= sizes[0], []
    for code, share in zip(encoding.table(), encoding.centre, strict=True):
        beside = oracles.condition(joint, own, code)
        found.append(share * oracles.multivariate_normal(*beside).pdf(x))
    return np.stack(found, axis=1) / np.sum(found, axis=0)[:, None]


@pytest.mark.parametrize("name", ["supervised", "semi-supervised", "missing", "graph"])
def test_probabilities_are_bayes_rule_with_the_densities_of_the_model(name):
    model = MODELS[name]
    precision = 1e-6 + 0.7**2 if name == "graph" else 1.0
    np.testing.assert_allclose(model.predict_proba(IRIS), by_bayes(model, IRIS, precision), atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_decisions_and_predictions_agree(name):
    model = MODELS[name]
    probabilities, decisions = model.predict_proba(IRIS), model.decision_function(IRIS)
    assert probabilities.shape == decisions.shape == (150, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(decisions), probabilities, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(IRIS), model.classes_[probabilities.argmax(axis=1)])


def test_two_classes_have_log_odds():
    model = SupervisedPPCA(3).fit(TUMOURS, MALIGN)
    odds, probabilities = model.decision_function(TUMOURS), model.predict_proba(TUMOURS)
    assert odds.shape == (569,)
    np.testing.assert_allclose(1.0 / (1.0 + np.exp(-odds)), probabilities[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(TUMOURS), (odds > 0).astype(int))


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
def test_classes_are_as_probable_as_they_are_frequent():
    few = np.concatenate([np.flatnonzero(KINDS == 1)[:10], np.flatnonzero(KINDS == 2)])
    model = SupervisedPPCA(2).fit(IRIS[few], KINDS[few])
    assert np.mean(model.predict_proba(IRIS[few])[:, 1]) == pytest.approx(5 / 6, abs=0.03)


@pytest.mark.parametrize("head", [{}, LIKELIHOOD])
def test_a_linear_kernel_gives_the_probabilities_of_the_features(head):
    kernel = KernelSupervisedPPCA(2, kernel="linear", **head).fit(IRIS, NAMES)
    plain = SupervisedPPCA(2, tol=1e-13, **head).fit(IRIS, NAMES)
    np.testing.assert_allclose(kernel.predict_proba(IRIS[::7] + 0.1), plain.predict_proba(IRIS[::7] + 0.1), atol=1e-5)


def test_probabilities_come_in_the_kind_of_the_data(tmp_path):
    model = MODELS["supervised"]
    plain = model.predict_proba(IRIS)
    lazy = model.predict_proba(da.from_array(IRIS, chunks=(40, 4)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), plain, rtol=1e-12)
    named = model.predict_proba(xr.DataArray(IRIS, dims=("flower", "part")))
    assert named.dims == ("flower", "target")
    assert named["target"].values.tolist() == model.classes_.tolist()
    np.testing.assert_allclose(model.predict_proba(sp.csr_array(IRIS)), plain, rtol=1e-9)
    place = model.predict_proba(IRIS, out=tmp_path / "p.zarr")
    np.testing.assert_array_equal(zarr.open_group(place)["probabilities"][:], plain)
    two = SupervisedPPCA(2).fit(TUMOURS, MALIGN)
    odds = two.decision_function(xr.DataArray(TUMOURS, dims=("patient", "measure")))
    assert odds.dims == ("patient",)
    assert two.decision_function(da.from_array(TUMOURS, chunks=(200, 30))).shape == (569,)


def test_views_that_a_sample_has_tell_its_class():
    model = CorrespondenceSupervisedPPCA(3, head="likelihood")
    model.fit(views(slice(100)), NAMES[:100], correspondence=PAIRS)
    one = model.predict_proba({"petals": IRIS[:, 2:]})
    both = model.predict_proba(views(), correspondence=np.column_stack([np.arange(150)] * 2))
    assert one.shape == both.shape == (150, 2)
    np.testing.assert_allclose(both.sum(axis=1), 1.0, rtol=1e-12)
    # Two views with noises of their own are features that the oracle takes together.
    encoding, dense = encoding_of(model), oracles.dense(parameters_of(model), specification_of(model).sizes)
    beside = [oracles.condition(dense.observed, np.arange(5) >= 4, code) for code in encoding.table()]
    each = [
        share * oracles.multivariate_normal(*own).pdf(IRIS) for share, own in zip(encoding.centre, beside, strict=True)
    ]
    np.testing.assert_allclose(both, np.stack(each, axis=1) / np.sum(each, axis=0)[:, None], atol=1e-8)
    np.testing.assert_array_equal(model.predict({"petals": IRIS[:, 2:]}), model.classes_[one.argmax(axis=1)])


@pytest.mark.parametrize("kind", ["auto", pytest.param("class", marks=pytest.mark.slow)])
def test_the_tools_of_scikit_learn_use_probabilities_and_decisions(kind):
    model, folds = SupervisedPPCA(3, target_type=kind), StratifiedKFold(3)
    assert (cross_val_score(model, TUMOURS, MALIGN, scoring="roc_auc", cv=3) > 0.9).all()
    assert (cross_val_score(model, IRIS, NAMES, scoring="neg_log_loss", cv=folds) > -0.2).all()
    shown = cross_val_predict(model, IRIS, NAMES, method="predict_proba", cv=folds)
    np.testing.assert_allclose(shown.sum(axis=1), 1.0, rtol=1e-12)
    assert roc_auc_score(KINDS, shown, multi_class="ovr") > 0.99
    assert cross_val_predict(model, TUMOURS, MALIGN, method="decision_function", cv=3).shape == (569,)
    pipeline = make_pipeline(StandardScaler(), model)
    assert (cross_val_score(pipeline, TUMOURS, MALIGN, scoring="roc_auc", cv=3) > 0.9).all()
    calibrated = CalibratedClassifierCV(model, cv=3).fit(IRIS, KINDS)
    assert calibrated.score(IRIS, KINDS) > 0.9


def test_class_models_are_classifiers_as_far_as_is_known():
    """Before a fit only target_type says it, and folds have all classes where it does."""
    assert is_classifier(SupervisedPPCA(target_type="class"))
    assert not is_classifier(SupervisedPPCA())
    assert is_classifier(MODELS["supervised"])
    assert not is_classifier(SupervisedPPCA(2).fit(IRIS[:, :3], IRIS[:, 3] + 0.01))
    # Iris is in the order of its classes: plain thirds leave a class out.
    scores = cross_val_score(SupervisedPPCA(3, target_type="class"), IRIS, KINDS, scoring="accuracy", cv=3)
    assert (scores > 0.9).all()
    assert (cross_val_score(SupervisedPPCA(3), IRIS, KINDS, scoring="accuracy", cv=3) == 0.0).all()
    both = [("ppca", SupervisedPPCA(3, target_type="class")), ("logistic", LogisticRegression())]
    assert VotingClassifier(both, voting="soft").fit(IRIS, KINDS).score(IRIS, KINDS) > 0.9


def test_probabilities_are_about_as_good_as_those_of_other_programs():
    """Figures of docs/howto/scikit_learn.md, rounded up."""
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    for (x, y), k, limit in ((load_iris(return_X_y=True), 3, 0.07), (load_wine(return_X_y=True), 5, 0.08)):
        model = make_pipeline(StandardScaler(), SupervisedPPCA(k)) if k == 5 else SupervisedPPCA(k)
        assert log_loss(y, cross_val_predict(model, x, y, method="predict_proba", cv=folds)) < limit


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_numbers_have_no_probabilities(kind):
    y = IRIS[:, 3] + 0.01 if kind == "regression" else np.eye(3, dtype=int)[KINDS]
    model = SupervisedPPCA(2).fit(IRIS[:, :3], y)
    assert hasattr(model, "predict_proba") == (kind == "multilabel")
    assert hasattr(SupervisedPPCA(target_type=kind), "predict_proba") == (kind == "multilabel")
    assert model.decision_function(IRIS[:, :3]).shape == (150, 1 if kind == "regression" else 3)
    with pytest.raises(NotFittedError):
        SupervisedPPCA().predict_proba(IRIS)
    with pytest.raises(DataError, match="continuous y"):
        SupervisedPPCA(2, target_type="class").fit(IRIS, np.arange(150) + 0.5)
