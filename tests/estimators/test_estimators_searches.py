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

from dlatent import DataError, RelationalPPCA, RelationalSupervisedPPCA, SupervisedPPCA
from dlatent.stores.graph import open_graph

pytestmark = pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
RNG = np.random.default_rng(0)
N = 90
Y = np.arange(N) % 3
X = np.eye(3)[Y] @ RNG.normal(size=(3, 7)) + RNG.normal(size=(N, 7))
ABOVE = np.triu(RNG.random((N, N)) < np.where(Y[:, None] == Y, 0.25, 0.02), 1).astype(float)
ADJACENCY = sp.csr_array(ABOVE + ABOVE.T)
FOLDS = KFold(3)


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
    with pytest.raises(DataError, match=r"shape \(60, 90\).*give it open_graph\(A\), which is cut whole"):
        GridSearchCV(model, {"alpha": [1.0]}, cv=FOLDS, error_score="raise").fit(X, graph=ADJACENCY)
    with pytest.raises(DataError) as other:
        RelationalPPCA(2).fit(X, graph=ADJACENCY[:, :60])
    assert "search" in str(other.value)
    with pytest.raises(DataError) as other:
        RelationalPPCA(2).fit(X, graph=ADJACENCY[:60])
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
