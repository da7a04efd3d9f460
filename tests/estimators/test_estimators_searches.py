"""Graphs, views and masks in the searches and pipelines of scikit-learn, with and without metadata routing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dlatent import (
    CorrespondenceLLE,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    DataError,
    JointViews,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
    open_graph,
)

pytestmark = pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
RNG = np.random.default_rng(0)
N = 90
Y = np.arange(N) % 3
X = np.eye(3)[Y] @ RNG.normal(size=(3, 7)) + RNG.normal(size=(N, 7))
ABOVE = np.triu(RNG.random((N, N)) < np.where(Y[:, None] == Y, 0.25, 0.02), 1).astype(float)
ADJACENCY = sp.csr_array(ABOVE + ABOVE.T)
FOLDS = KFold(2)


@pytest.fixture(params=[False, True], ids=["", "routed"])
def routing(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether metadata go where they are asked for, or all to the estimator."""
    with sklearn.config_context(enable_metadata_routing=request.param):
        yield request.param


def asking(model, routing, **requests):
    return model.set_fit_request(**requests) if routing else model


def test_a_search_cuts_an_open_graph_with_its_samples(routing):
    model, graph = asking(RelationalPPCA(2), routing, graph=True), open_graph(ADJACENCY)
    search = GridSearchCV(model, {"alpha": [0.5, 2.0]}, cv=FOLDS, error_score="raise").fit(X, graph=graph)
    for number, alpha in enumerate((0.5, 2.0)):
        for fold, (train, test) in enumerate(FOLDS.split(X)):
            inside = ADJACENCY[train][:, train]
            by_hand = RelationalPPCA(2, alpha=alpha).fit(X[train], graph=inside).score(X[test])
            assert search.cv_results_[f"split{fold}_test_score"][number] == by_hand
    whole = RelationalPPCA(2, **search.best_params_).fit(X, graph=ADJACENCY)
    np.testing.assert_array_equal(search.best_estimator_.components_, whole.components_)


def test_a_matrix_that_is_cut_by_rows_alone_is_refused(routing):
    model = asking(RelationalPPCA(2), routing, graph=True)
    with pytest.raises(DataError, match=r"shape \(45, 90\).*give it open_graph\(A\), which is cut whole"):
        GridSearchCV(model, {"alpha": [1.0]}, cv=FOLDS, error_score="raise").fit(X, graph=ADJACENCY)
    with pytest.raises(DataError) as other:
        RelationalPPCA(2).fit(X, graph=ADJACENCY[:, :45])
    assert "search" in str(other.value)
    with pytest.raises(DataError) as other:
        RelationalPPCA(2).fit(X, graph=ADJACENCY[:45])
    assert "search" not in str(other.value)


def test_graphs_reach_models_in_pipelines(routing):
    graph, model = open_graph(ADJACENCY), RelationalSupervisedPPCA(2, target_type="class")
    pipeline = make_pipeline(StandardScaler(), asking(model, routing, graph=True))
    name = "graph" if routing else "relationalsupervisedppca__graph"
    found = cross_val_predict(pipeline, X, Y, cv=FOLDS, method="predict_proba", params={name: graph})
    for train, test in FOLDS.split(X):
        scaler = StandardScaler().fit(X[train])
        by_hand = RelationalSupervisedPPCA(2, target_type="class")
        by_hand.fit(scaler.transform(X[train]), Y[train], graph=ADJACENCY[train][:, train])
        np.testing.assert_array_equal(found[test], by_hand.predict_proba(scaler.transform(X[test])))
    first = make_pipeline(asking(RelationalPPCA(2), routing, graph=True), LogisticRegression())
    name = "graph" if routing else "relationalppca__graph"
    assert (cross_val_score(first, X, Y, cv=FOLDS, params={name: graph}) > 0.5).all()


def test_masks_of_labels_are_cut_with_the_samples(routing):
    labelled = np.random.default_rng(1).random(N) < 0.6
    model = asking(SupervisedPPCA(2, target_type="class"), routing, labelled=True)
    found = cross_val_predict(model, X, Y, cv=FOLDS, params={"labelled": labelled})
    for train, test in FOLDS.split(X):
        by_hand = SupervisedPPCA(2, target_type="class").fit(X[train], Y[train], labelled=labelled[train])
        np.testing.assert_array_equal(found[test], by_hand.predict(X[test]))


HAS = np.column_stack([np.arange(N) % 5 != 0, np.arange(N) % 5 != 1])
TABLE = np.where(HAS, np.cumsum(HAS, axis=0) - 1, -1)
VIEWS = {"left": X[HAS[:, 0], :4], "right": sp.csr_array(X[HAS[:, 1], 4:])}
JOINT = JointViews(VIEWS, correspondence=TABLE)


def views_of(rows):
    """The views of some samples from the features of all of them, and which rows correspond."""
    own = HAS[rows]
    return {"left": X[rows, :4][own[:, 0]], "right": sp.csr_array(X[rows, 4:][own[:, 1]])}, (
        np.where(own, np.cumsum(own, axis=0) - 1, -1)
    )


def test_a_search_cuts_joint_views_along_their_samples(routing):
    search = GridSearchCV(CorrespondencePPCA(), {"n_components": [1, 2]}, cv=FOLDS, error_score="raise").fit(JOINT)
    for number, k in enumerate((1, 2)):
        for fold, (train, test) in enumerate(FOLDS.split(X)):
            (views, pairs), (others, of_others) = views_of(train), views_of(test)
            by_hand = CorrespondencePPCA(k).fit(views, correspondence=pairs).score(others, correspondence=of_others)
            assert search.cv_results_[f"split{fold}_test_score"][number] == by_hand


@pytest.mark.slow
def test_joint_views_reach_classifiers_and_pipelines(routing):
    found = cross_val_predict(
        CorrespondenceSupervisedPPCA(2, target_type="class"), JOINT, Y, cv=FOLDS, method="predict_proba"
    )
    for train, test in FOLDS.split(X):
        (views, pairs), (others, of_others) = views_of(train), views_of(test)
        by_hand = CorrespondenceSupervisedPPCA(2, target_type="class").fit(views, Y[train], correspondence=pairs)
        np.testing.assert_array_equal(found[test], by_hand.predict_proba(others, correspondence=of_others))
    pipeline = make_pipeline(CorrespondencePPCA(2), LogisticRegression())
    assert (cross_val_score(pipeline, JOINT, Y, cv=FOLDS, error_score="raise") > 0.5).all()


def test_joint_views_are_views_with_their_correspondence():
    plain = CorrespondencePPCA(2).fit(VIEWS, correspondence=TABLE)
    joint = CorrespondencePPCA(2).fit(JOINT)
    np.testing.assert_array_equal(joint.components_["left"], plain.components_["left"])
    np.testing.assert_array_equal(joint.transform(JOINT), plain.transform(VIEWS, correspondence=TABLE))
    assert joint.plan(JOINT).figures() == plain.plan(VIEWS, correspondence=TABLE).figures()
    lle = CorrespondenceLLE(disconnected="keep")
    np.testing.assert_array_equal(lle.fit(JOINT).samples_, TABLE)
    one = JOINT[np.flatnonzero(HAS[:, 0] & ~HAS[:, 1])]
    assert list(one) == ["left"]
    assert joint.transform(one).shape == (one.shape[0], 2)
    assert repr(JOINT) == "JointViews of 90 samples in the views 'left', 'right'"


def test_labels_that_views_share_join_them():
    pd = pytest.importorskip("pandas", reason="pandas comes with the extra 'files'")
    left = pd.DataFrame(X[:40, :4]).assign(name=[f"s{i}" for i in range(40)])
    right = pd.DataFrame(X[20:60, 4:]).assign(name=[f"s{i}" for i in range(20, 60)])
    joint = JointViews({"left": left, "right": right}, on="name")
    assert joint.shape == (60, 2)
    some = joint[[0, 25, 45]]
    assert some.correspondence.tolist() == [[0, 0], [1, -1], [-1, 1]]
    np.testing.assert_array_equal(some["left"].to_numpy(), X[[20, 5], :4])
    np.testing.assert_array_equal(some["right"].to_numpy(), X[[20, 45], 4:])


def test_views_that_lie_elsewhere_are_not_cut(tmp_path):
    joint = JointViews([X[:, :4], X[:, 4:].tolist()], correspondence=np.column_stack([np.arange(N)] * 2))
    with pytest.raises(DataError, match="view '1' is of type list, of which no rows are cut"):
        joint[:10]
