"""What predicts targets: estimated after the fit from the rows that have them, in every model with targets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from dlatent import (
    CorrespondenceSupervisedPPCA,
    DataError,
    KernelSupervisedPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
)
from dlatent.gaussian.head import LabelledRows, feature_metric, joined, output_head
from dlatent.gaussian.stack import ClassSpaces, class_head
from tests.fitted import encoding_of, head_of, parameters_of, specification_of
from tests.simulators import simulate

pytestmark = pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")

IRIS, KINDS = load_iris(return_X_y=True)
DIGITS, NUMBERS = load_digits(return_X_y=True)
SOME = np.where(np.arange(150) % 4 == 0, KINDS, -1)
LENGTHS = np.where(SOME >= 0, IRIS[:, 3] + 0.01 * np.arange(150) / 150, np.nan)
RING = sp.csr_array((np.ones(150), (np.arange(150), np.roll(np.arange(150), 1))), shape=(150, 150))
HOLES = np.where(np.random.default_rng(0).random(IRIS.shape) < 0.1, np.nan, IRIS)
CASES = {
    "dense": (SupervisedPPCA(2, whiten=True), IRIS, {}),
    "sparse": (SupervisedPPCA(2, whiten=True), sp.csr_array(IRIS), {}),
    "missing": (SupervisedPPCA(2, missing="nan", whiten=True), HOLES, {}),
    "kernel": (KernelSupervisedPPCA(2, gamma=0.3, whiten=True), IRIS, {}),
    "graph": (RelationalSupervisedPPCA(2, alpha=0.7, whiten=True), IRIS, {"graph": RING + RING.T}),
}


def few(each, seed=0, classes=NUMBERS):
    rng, chosen = np.random.default_rng(seed), np.full(len(classes), -1)
    for code in np.unique(classes):
        own = rng.permutation(np.flatnonzero(classes == code))[:each]
        chosen[own] = code
    return chosen


def by_hand(model, scores, covariance, targets, x=None):
    """The head of a model of the public scores of all rows, of which some have encoded targets, and of features where
    these count."""
    own = ~np.isnan(targets).all(axis=1)
    features = None if x is None else x[own] - model.mean_
    rows = LabelledRows(scores[own], targets[own], covariance[own].sum(axis=0), features=features)
    metric, encoding = feature_metric(parameters_of(model), specification_of(model)), encoding_of(model)
    if encoding.kind == "class":
        spaces = ClassSpaces(encoding.table(), metric)
        return class_head(rows._replace(sums=spaces.sums(*rows[:2])), spaces, encoding.centre)
    head = output_head(rows, encoding.rotation, encoding.centre, metric)
    return head if x is None else head.about(model.mean_)


@pytest.mark.parametrize("targets", ["classes", "numbers"])
@pytest.mark.parametrize("name", CASES)
def test_the_head_is_that_of_the_scores_of_the_labelled_rows(name, targets):
    model, x, more = CASES[name]
    y = SOME if targets == "classes" else LENGTHS
    model.fit(x, y, **more)
    found = model.posterior(x)
    covariance = np.broadcast_to(found["covariance"].values, (150, 2, 2))
    scores, counts = np.asarray(found["scores"]), name in ("dense", "sparse") and targets == "numbers"
    head = by_hand(model, scores, covariance, encoding_of(model).encode(y, 150), IRIS if counts else None)
    for own, expected in zip(head_of(model)[:4], head[:4], strict=True):
        assert (own is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-8)
    scores = np.asarray(model.transform(x))
    if targets == "classes":
        np.testing.assert_allclose(np.log(model.predict_proba(x)), head.decisions(scores), rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(model.predict(x), head.decisions(scores).argmax(axis=1))
        assert np.mean(model.predict(x) == KINDS) > 0.85
    else:
        outputs = head.outputs(scores, IRIS if counts else None)
        np.testing.assert_allclose(model.predict(x), outputs[:, 0], rtol=1e-6)
        variance = model.predict(x, return_variance=True)[1]
        expected = [head.variance(own)[0] for own in covariance]
        np.testing.assert_allclose(np.broadcast_to(variance.ravel(), 150), expected, rtol=1e-6)


def test_labelled_rows_of_blocks_are_joined_in_order():
    rng = np.random.default_rng(0)
    one, other = (
        LabelledRows(rng.normal(size=(n, 2)), rng.normal(size=(n, 1)), n * np.eye(2), float(n), rng.normal(size=(n, 4)))
        for n in (3, 2)
    )
    found = joined(joined(None, one), joined(other, None))
    for name in ("scores", "targets", "features"):
        np.testing.assert_array_equal(getattr(found, name), np.vstack([getattr(part, name) for part in (one, other)]))
    np.testing.assert_array_equal(found.covariance, 5.0 * np.eye(2))
    assert found.sums == 5.0
    assert joined(one._replace(features=None), other._replace(features=None)).features is None


def test_views_that_a_labelled_row_has_count():
    pairs = np.column_stack([np.arange(120), np.arange(120)])
    views = {"a": IRIS[:, :2], "b": IRIS[:, 2:]}
    y = np.concatenate([np.where(np.arange(120) % 3 == 0, KINDS[:120], -1), KINDS[120:], np.full(30, -1)])
    y[120:150:2] = -1
    model = CorrespondenceSupervisedPPCA(2).fit(views, y, correspondence=pairs)
    found = model.posterior(views, correspondence=pairs)
    covariance = found["covariance"].values[found["pattern_of"].values]
    head = by_hand(model, found["scores"].values, covariance, encoding_of(model).encode(y, 180))
    np.testing.assert_allclose(head_of(model).coefficients, head.coefficients, rtol=1e-6, atol=1e-9)
    probabilities = model.predict_proba(views, correspondence=pairs)
    np.testing.assert_allclose(np.log(probabilities), head.decisions(found["scores"].values, None), rtol=1e-6)


def test_the_likelihood_is_a_head_too():
    model = SupervisedPPCA(2, head="likelihood", whiten=True).fit(IRIS, LENGTHS)
    expected = model.transform(IRIS) @ model.target_components_ + model.target_mean_
    np.testing.assert_allclose(model.predict(IRIS), expected[:, 0], rtol=1e-12)
    assert "head_coefficients" not in model.result_
    assert "head_coefficients" in SupervisedPPCA(2).fit(IRIS, LENGTHS).result_
    assert "rule_weights" in SupervisedPPCA(2).fit(IRIS, SOME).result_
    assert model.plan(IRIS, LENGTHS).passes == SupervisedPPCA(2).plan(IRIS, LENGTHS).passes - 1
    with pytest.raises(DataError, match="head is 'ridge'"):
        SupervisedPPCA(2, head="ridge").fit(IRIS, SOME)


@pytest.mark.slow
def test_few_labels_and_many_components_do_not_break_it():
    """Two labels of each digit: classes by the likelihood are wrong twice as often as need be, and sure of it."""
    errors, losses = {"auto": [], "likelihood": []}, {"auto": [], "likelihood": []}
    for seed in range(2):
        labels = few(2, seed)
        rest = labels < 0
        for head in errors:
            model = SupervisedPPCA(30, head=head).fit(DIGITS, labels)
            said = model.predict_proba(DIGITS[rest])
            errors[head].append(np.mean(said.argmax(axis=1) != NUMBERS[rest]))
            own = said[np.arange(len(said)), NUMBERS[rest]]
            losses[head].append(-np.log(np.maximum(own, 1e-12)).mean())
    assert np.mean(errors["auto"]) < np.mean(errors["likelihood"])
    assert np.mean(losses["auto"]) < 1.2 < 3.0 < np.mean(losses["likelihood"])


def test_numbers_from_few_rows_are_not_learnt_by_heart():
    data = simulate(600, (12, 8), 5, noise=(0.3, 0.3), random_state=0)
    known = np.where((np.arange(600) < 12)[:, None], data.targets, np.nan)
    rest = slice(12, None)
    lost = {}
    for head in ("auto", "likelihood"):
        predicted = (
            SupervisedPPCA(4, head=head, target_type="regression").fit(data.features, known).predict(data.features)
        )
        lost[head] = np.mean((predicted - data.targets)[rest] ** 2)
    assert lost["auto"] < 0.9 * lost["likelihood"]


@pytest.mark.parametrize("labelled", [20, 300])
def test_the_variance_is_that_of_rows_that_are_not_labelled(labelled):
    ratios = []
    for seed in range(4):
        data = simulate(1000, (10, 3), 3, noise=(0.5, 0.5), random_state=seed)
        known = np.where((np.arange(1000) < labelled)[:, None], data.targets, np.nan)
        model = SupervisedPPCA(3, target_type="regression").fit(data.features, known)
        means, variance = model.predict(data.features, return_variance=True)
        ratios.append(np.mean((means - data.targets)[labelled:] ** 2, axis=0) / variance)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.35 if labelled == 20 else 0.1)


def test_targets_that_miss_outputs_are_fitted_one_by_one():
    data = simulate(200, (8, 2), 2, noise=(0.2, 0.2), random_state=2)
    y = data.targets.copy()
    y[::2, 0], y[1::3, 1] = np.nan, np.nan
    lost = []
    for own in (y, data.targets):
        model = SupervisedPPCA(2, missing="nan", target_type="regression").fit(data.features, own)
        lost.append(np.mean((model.predict(data.features) - data.targets) ** 2))
    assert lost[0] < 1.1 * lost[1]


def test_of_more_rows_than_the_driver_takes_a_random_part_tells_as_much(monkeypatch):
    """Of normal classes, which are learned from sums over all rows."""
    rng, codes = np.random.default_rng(0), np.arange(2000) % 10
    x = 1.2 * rng.normal(size=(10, 12))[codes] + rng.normal(size=(2000, 12))
    y = np.where(rng.random(2000) < 0.5, codes, -1)
    whole = SupervisedPPCA(9).fit(x, y)
    monkeypatch.setattr("dlatent.gaussian.head.FEW_NUMBERS", 100 * 19)
    part, again = (SupervisedPPCA(9).fit(x, y) for _ in range(2))
    np.testing.assert_array_equal(head_of(part).coefficients, head_of(again).coefficients)
    assert not np.array_equal(head_of(part).coefficients, head_of(whole).coefficients)
    right = [np.mean((model.predict(x) == codes)[y < 0]) for model in (whole, part)]
    assert right[0] < 0.98
    assert right[1] > right[0] - 0.005


@pytest.mark.slow
def test_many_classes_of_few_rows_each_are_learned_from_all_rows(monkeypatch):
    """A part of the rows, which is all that the driver takes, has some of each class only."""
    monkeypatch.setattr("dlatent.gaussian.head.FEW_NUMBERS", 100 * 210)
    rng = np.random.default_rng(1)
    codes = np.arange(3000) % 200
    rows = rng.normal(size=(200, 30))[codes] * np.geomspace(1.0, 0.3, 30) + 0.4 * rng.normal(size=(3000, 30))
    wrong = {}
    for head in ("auto", "likelihood"):
        model = SupervisedPPCA(10, head=head).fit(rows[:2000], codes[:2000])
        wrong[head] = np.mean(model.predict(rows[2000:]) != codes[2000:])
    assert wrong["auto"] < wrong["likelihood"]


def test_rare_labels_are_learned_from_all_rows(monkeypatch):
    """By the linear regression, the last of the rules; how sure it may be a part of the rows tells."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(4000, 3))
    rows = z @ rng.normal(size=(3, 20)) + 0.3 * rng.normal(size=(4000, 20))
    labels = np.column_stack([z[:, 0] > 0.0, z[:, 1] > 2.6]).astype(int)
    assert labels[:, 1].sum() < 30
    heads = [head_of(SupervisedPPCA(10).fit(rows, labels))]
    monkeypatch.setattr("dlatent.gaussian.head.FEATURE_NUMBERS", 400 * 32)
    heads.append(head_of(SupervisedPPCA(10).fit(rows, labels)))
    whole, part = (np.vstack([head.coefficients[-1], head.features]) for head in heads)
    factor = np.linalg.norm(part, axis=0) / np.linalg.norm(whole, axis=0)
    np.testing.assert_allclose(part, factor * whole, atol=1e-9 * np.abs(part).max())
    assert 0.3 < factor.min() < factor.max() < 3.0
    assert (np.abs(factor - 1.0) > 1e-6).all()


LABELS = np.column_stack([NUMBERS % 2 == 0, NUMBERS >= 5, np.isin(NUMBERS, (2, 3, 5, 7)), NUMBERS == 8]).astype(int)


def loss_of_labels(said, truth):
    own = np.where(truth == 1, said, 1.0 - said)
    return -np.log(np.maximum(own, 1e-12)).mean()


def test_labels_have_probabilities_that_decide():
    y = np.where((np.arange(len(DIGITS)) % 6 == 0)[:, None], LABELS, -1)
    rest, model, plain = y[:, 0] < 0, SupervisedPPCA(8).fit(DIGITS, y), SupervisedPPCA(8, head="likelihood")
    lost = {}
    for head, fitted in (("auto", model), ("likelihood", plain.fit(DIGITS, y))):
        said, log_odds = fitted.predict_proba(DIGITS), fitted.decision_function(DIGITS)
        assert said.shape == LABELS.shape
        np.testing.assert_allclose(said, 1.0 / (1.0 + np.exp(-log_odds)), rtol=1e-9)
        np.testing.assert_array_equal(fitted.predict(DIGITS), (said > 0.5).astype(int))
        lost[head] = loss_of_labels(said[rest], LABELS[rest])
    logistic = OneVsRestClassifier(LogisticRegression(max_iter=2000)).fit(DIGITS[~rest] / 16.0, LABELS[~rest])
    theirs = loss_of_labels(logistic.predict_proba(DIGITS[rest] / 16.0), LABELS[rest])
    assert lost["auto"] < 1.05 * theirs < lost["likelihood"]
    ours = f1_score(LABELS[rest], model.predict(DIGITS[rest]), average="macro")
    assert ours > f1_score(LABELS[rest], logistic.predict(DIGITS[rest] / 16.0), average="macro") - 0.02
    assert not hasattr(SupervisedPPCA(2).fit(IRIS, LENGTHS), "predict_proba")


def test_labels_by_the_likelihood_are_those_of_two_densities():
    """p(1 | x) ∝ N(1 | E[y|x], Var[y|x]), from the joint normal distribution; entries may be missing."""
    y = np.column_stack([IRIS[:, 0] > 5.8, IRIS[:, 3] > 1.0]).astype(int)
    for x, options in ((IRIS, {}), (HOLES, {"missing": "nan", "prior": "ml"})):
        model = SupervisedPPCA(2, head="likelihood", **options).fit(x, y)
        w, t = model.components_.T, model.target_components_.T
        joint = np.vstack([w, t])
        noise = np.repeat([model.noise_variance_, model.target_noise_variance_], [4, 2])
        covariance, mean = joint @ joint.T + np.diag(noise), np.concatenate([model.mean_, model.target_mean_])
        said = model.predict_proba(x)
        for row in (0, 7, 60, 149):
            seen = np.flatnonzero(~np.isnan(x[row]))
            gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen, 4:]).T
            m = mean[4:] + gain @ (x[row, seen] - mean[seen])
            v = np.diag(covariance[4:, 4:] - gain @ covariance[seen, 4:])
            one, zero = (
                np.exp(norm.logpdf(value, m, np.sqrt(v)) - norm.logpdf(0.5, m, np.sqrt(v))) for value in (1, 0)
            )
            np.testing.assert_allclose(said[row], one / (one + zero), rtol=1e-6)


def by_ridge(x, y, new):
    return np.reshape(RidgeCV(np.logspace(-4, 5, 28)).fit(x, y).predict(new), (len(new), -1))


def explained(said, truth, middle):
    truth = np.reshape(truth, (len(truth), -1))
    return np.mean(1.0 - ((np.reshape(said, truth.shape) - truth) ** 2).sum(0) / ((truth - middle) ** 2).sum(0))


def weak(seed=0):
    """Targets along directions of little variance, which a few components do not have."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 8)) @ rng.normal(size=(8, 40)) + 0.5 * rng.normal(size=(300, 40))
    return x, np.column_stack([x[:, 0] - x[:, 1], x[:, 2] + x[:, 3]]) + 0.3 * rng.normal(size=(300, 2))


@pytest.mark.parametrize("data", ["diabetes", "weak", "wide"])
@pytest.mark.parametrize("k", [1, 5])
def test_of_few_components_numbers_are_told_as_well_as_by_ridge_regression(data, k):
    x, y = load_diabetes(return_X_y=True) if data == "diabetes" else weak()
    if data == "wide":  # more features than labelled rows
        x = x @ np.random.default_rng(3).normal(size=(40, 250)) / 6.0
    train = np.arange(len(x)) % 3 < 2
    model = SupervisedPPCA(k).fit(x[train], y[train])
    ours = explained(model.predict(x[~train]), y[~train], y[train].mean(0))
    assert ours > explained(by_ridge(x[train], y[train], x[~train]), y[~train], y[train].mean(0)) - 0.02
    sparse = SupervisedPPCA(k, solver="covariance").fit(sp.csr_array(x[train]), y[train])
    np.testing.assert_allclose(sparse.predict(sp.csr_array(x[~train])), model.predict(x[~train]), rtol=1e-3, atol=1e-3)


def test_whole_floats_of_many_values_are_numbers():
    x, y = load_diabetes(return_X_y=True)
    assert y.dtype == float
    assert not hasattr(SupervisedPPCA(2).fit(x, y), "classes_")
    with pytest.raises(AttributeError, match="target_type='class'"):
        SupervisedPPCA(2).fit(x, y).classes_  # noqa: B018
    assert len(SupervisedPPCA(2).fit(IRIS, KINDS.astype(float)).classes_) == 3


def test_rows_without_anything_have_the_shares_of_the_classes_or_the_mean():
    model = SupervisedPPCA(2).fit(IRIS, KINDS)
    assert np.isfinite(model.predict_proba(np.repeat(model.mean_[None], 2, axis=0))).all()
    missing = SupervisedPPCA(2, missing="nan").fit(HOLES, SOME)
    assert np.isfinite(missing.predict_proba(np.full((2, 4), np.nan))).all()


def test_of_many_labels_a_linear_rule_tells_more_than_normal_classes():
    """Of rows whose place along a skew direction makes them one or the other."""
    rng = np.random.default_rng(1)
    z = np.column_stack([np.exp(1.2 * rng.normal(size=1200)), 2.0 * rng.normal(size=(1200, 2))])
    x, classes = z @ rng.normal(size=(3, 10)) + 0.1 * rng.normal(size=(1200, 10)), (z[:, 0] > 1.0).astype(int)
    rest, wrong, losses = np.arange(1200) % 2 == 1, [], []
    model = SupervisedPPCA(3).fit(x, np.where(rest, -1, classes))
    scores = model.transform(x)
    normal = LinearDiscriminantAnalysis().fit(scores[~rest], classes[~rest])
    for said in (model.predict_proba(x[rest]), normal.predict_proba(scores[rest])):
        wrong.append(np.mean(said.argmax(axis=1) != classes[rest]))
        losses.append(-np.log(said[np.arange(600), classes[rest]]).mean())
    assert wrong[0] < 0.9 * wrong[1]
    assert losses[0] < 0.95 * losses[1]


@pytest.mark.slow
@pytest.mark.parametrize("each", [2, 5])
@pytest.mark.parametrize("data", [load_iris, load_wine])
def test_few_labels_are_told_as_well_as_by_logistic_regression(data, each):
    """With scikit-learn's defaults on standardised features, which knows no rows without a label."""
    x, classes = data(return_X_y=True)
    x, losses = (x - x.mean(axis=0)) / x.std(axis=0), []
    for seed in range(5):
        chosen = few(each, seed, classes)
        known = chosen >= 0
        rival = LogisticRegression().fit(x[known], classes[known])
        said = [model.predict_proba(x[~known]) for model in (SupervisedPPCA().fit(x, chosen), rival)]
        losses.append([-np.log(each[np.arange((~known).sum()), classes[~known]]).mean() for each in said])
    ahead = np.subtract(*np.transpose(losses)[::-1])
    assert ahead.mean() > -3.0 * ahead.std(ddof=1) / np.sqrt(5)
