"""Callbacks of scikit-learn 1.9 hear of fits, alone and in searches and pipelines."""

from __future__ import annotations

import io

import numpy as np
import pytest
import rich
import scipy.sparse as sp
from estimator_cases import CLASSES, N, X
from rich.console import Console
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    DataError,
    GraphPPCA,
    LocallyLinearEmbedding,
    SupervisedPPCA,
    show_progress,
)

callback = pytest.importorskip("sklearn.callback", reason="callbacks come with scikit-learn 1.9")


class Noted:
    """Notes what it hears."""

    def __init__(self):
        self.heard, self.data, self.fitted, self.tasks = [], [], [], []

    def setup(self, estimator, context):
        self.heard.append("setup")

    def teardown(self, estimator, context):
        self.heard.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
        self.heard.append("begin")
        self.data.append((X, y))
        self.tasks.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.heard.append("end")
        self.fitted.append(fitted_estimator)


class Propagated(Noted):
    """Goes from a search to the models in it."""

    max_propagation_depth = None


def test_a_fit_is_a_task_and_each_pass_one_within():
    noted = Noted()
    model = PPCA(2, solver="krylov").set_callbacks(noted).fit(X)
    within = ["begin", "end"] * model.n_passes_
    assert noted.heard == ["setup", "begin", *within, "end", "teardown"]
    assert noted.tasks == ["fit", *model.history_["pass_name"].values[-model.n_passes_ :].tolist()]
    assert noted.data[0][0] is X
    np.testing.assert_array_equal(noted.fitted[-1].transform(X), model.transform(X))
    assert noted.fitted[:-1] == [None] * model.n_passes_


FITS = {
    "targets": lambda noted: SupervisedPPCA(2).set_callbacks(noted).fit(X, CLASSES),
    "graph": lambda noted: GraphPPCA(2).set_callbacks(noted).fit(X, graph=sp.csr_array((N, N))),
    "views": lambda noted: (
        CorrespondencePPCA(1)
        .set_callbacks(noted)
        .fit({"left": X[:, :4], "right": X[:, 4:]}, correspondence=np.column_stack([np.arange(N)] * 2))
    ),
    "neighbours": lambda noted: LocallyLinearEmbedding(disconnected="keep").set_callbacks(noted).fit(X),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_every_kind_of_model_tells_its_passes(fit):
    noted = Noted()
    fit(noted)
    assert (noted.heard[:2], noted.heard[-2:]) == (["setup", "begin"], ["end", "teardown"])
    assert len(noted.heard) > 4


def test_targets_are_told():
    noted = Noted()
    SupervisedPPCA(2).set_callbacks(noted).fit(X, y=CLASSES)
    assert noted.data[0][1] is CLASSES


def test_the_callback_is_torn_down_after_an_error_and_forgotten_when_none_is_set():
    noted = Noted()
    model = PPCA(2).set_callbacks(noted)
    with pytest.raises(DataError):
        model.fit(np.ones_like(X))
    assert (noted.heard[0], noted.heard[-1]) == ("setup", "teardown")
    model.set_callbacks().fit(X)
    assert noted.heard.count("setup") == 1


def test_a_callback_of_a_search_hears_of_the_fits_in_it():
    noted = Propagated()
    search = GridSearchCV(make_pipeline(StandardScaler(), PPCA(solver="krylov")), {"ppca__n_components": [1, 2]}, cv=2)
    search.set_callbacks(noted).fit(X)
    assert (noted.heard.count("setup"), noted.heard.count("teardown")) == (1, 1)
    best = search.best_estimator_[-1]
    passes = best.history_["pass_name"].values[-best.n_passes_ :]
    assert noted.tasks.count(passes[-1]) >= 5, "four folds and candidates, and the refit"
    assert not hasattr(best, "_parent_callback_ctx")


@pytest.fixture
def shown(monkeypatch):
    show_progress(True)
    text = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=text, force_terminal=True, width=100))
    yield text
    show_progress("auto")


def test_the_bar_of_scikit_learn_shows_searches_and_fits_and_no_other_beside_it(shown):
    bar = callback.ProgressBar(max_propagation_depth=None)
    GridSearchCV(PPCA(), {"n_components": [1, 2]}, cv=2, scoring=lambda *_: 0.0).set_callbacks(bar).fit(X)
    assert "GridSearchCV - fit" in shown.getvalue()
    assert "PPCA - fit" in shown.getvalue()
    assert "pass 1" not in shown.getvalue()
    PPCA(2).fit(X)
    assert "pass 1" in shown.getvalue()
