"""What a fit tells while it runs: to the callbacks that it was given, and to those of the blocks around it."""

from __future__ import annotations

import io

import numpy as np
import pytest
import rich
from rich.console import Console

from dlatent import PPCA, Callback, DataError, KernelPPCA, LocallyLinearEmbedding, ProgressBar
from dlatent.estimators import callbacks

X = np.random.default_rng(0).normal(size=(80, 3)) @ np.random.default_rng(1).normal(size=(3, 12))
X = X + 0.3 * np.random.default_rng(2).normal(size=X.shape)
MODELS = [PPCA(2, solver="krylov"), KernelPPCA(2), LocallyLinearEmbedding(n_components=2)]


class Noted(Callback):
    """Notes the name of everything that it hears of."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def on_plan(self, plan):
        self.heard.append("plan")

    def on_task(self, done, total):
        assert 0 < done <= total
        self.heard.append("task")

    def on_pass(self, record):
        self.heard.append("pass")

    def on_iteration(self, line):
        self.heard.append("iteration")

    def on_end(self):
        self.heard.append("end")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_callbacks_hear_of_the_plan_first_and_of_the_end_last(model):
    noted = Noted()
    model.fit(X, callbacks=[noted])
    assert (noted.heard[0], noted.heard[-1]) == ("plan", "end")
    assert {"task", "pass"} <= set(noted.heard)


def test_functions_hear_what_methods_would():
    passes, lines, ends = [], [], []
    heard = Callback(on_pass=passes.append, on_iteration=lines.append, on_end=lambda: ends.append(1))
    model = PPCA(2, solver="krylov").fit(X, callbacks=[heard])
    assert len(passes) == model.n_passes_
    assert [line.log_likelihood for line in lines] == model.history_["iteration_log_likelihood"].values.tolist()
    assert ends == [1]


def test_a_block_hears_of_all_its_fits_and_of_no_other():
    with Noted() as outer:
        with Noted() as inner:
            PPCA(2).fit(X)
        PPCA(2).fit(X)
    PPCA(2).fit(X)
    assert (inner.heard.count("plan"), outer.heard.count("plan")) == (1, 2)


def test_the_end_is_told_after_an_error():
    noted = Noted()
    bad = X.copy()
    bad[70, 3] = np.inf
    with pytest.raises(DataError, match="row 70, column 3"):
        PPCA(2).fit(bad, callbacks=[noted])
    assert (noted.heard[0], noted.heard[-1]) == ("plan", "end")


def test_nobody_counts_tasks_where_nobody_listens():
    assert callbacks.Listeners([Callback(on_pass=print)]).on_task is None
    assert callbacks.Listeners([Noted()]).on_task is not None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_progress_bar_is_shown_and_taken_away(model, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=shown, force_terminal=True, width=100))
    with ProgressBar():
        model.fit(X)
    assert "pass 1" in shown.getvalue()
    assert not shown.getvalue().endswith("pass 1")
