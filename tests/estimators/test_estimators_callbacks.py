"""What a fit tells while it runs: to the callbacks that it was given, and to those of the blocks around it."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import rich
from rich.console import Console

from dlatent import PPCA, Callback, DataError, KernelPPCA, LocallyLinearEmbedding, ProgressBar, show_progress
from dlatent.models import callbacks

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
    plan = PPCA(2).plan(X)
    assert callbacks.Listeners([Callback(on_pass=print)], plan).on_task is None
    assert callbacks.Listeners([Noted()], plan).on_task is not None


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_progress_bar_is_shown_and_taken_away(model, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=shown, force_terminal=True, width=100))
    with ProgressBar():
        model.fit(X)
    assert "pass 1" in shown.getvalue()
    assert not shown.getvalue().endswith("pass 1")


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is shown on a terminal that somebody looks at."""
    shown = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=shown, force_terminal=True, width=100))
    monkeypatch.setattr(callbacks, "_interactive", lambda: True)
    return shown


@pytest.fixture
def usual():
    show_progress("auto")  # commands that ran in this process have said otherwise
    yield
    show_progress("auto")


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_bar_is_shown_by_itself_where_something_takes_long(model, monkeypatch):
    shown = terminal(monkeypatch)
    model.fit(X).transform(X)
    assert not shown.getvalue()
    monkeypatch.setattr(callbacks, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(callbacks, "LONG_BYTES", 0)
    model.fit(X)
    assert "pass 1 of about" in shown.getvalue()
    seen = len(shown.getvalue())
    model.transform(X)
    assert "pass 1" not in shown.getvalue()[seen:]
    assert re.search("scores|embedding|coordinates", shown.getvalue()[seen:])
    seen = len(shown.getvalue())
    show_progress(False)
    model.fit(X).transform(X)
    assert len(shown.getvalue()) == seen


@pytest.mark.usefixtures("usual")
def test_bars_of_short_fits_and_no_second_one(monkeypatch):
    shown = terminal(monkeypatch)
    show_progress(True)
    PPCA(2).fit(X)
    assert "pass 1" in shown.getvalue()
    bars, begin = [], callbacks.ProgressBar.begin
    monkeypatch.setattr(callbacks.ProgressBar, "begin", lambda self, *rest: (bars.append(self), begin(self, *rest)))
    PPCA(2).fit(X, callbacks=[ProgressBar()])
    with ProgressBar():
        PPCA(2).fit(X).transform(X)
    assert len(bars) == 3
    with pytest.raises(DataError, match="show_progress takes True, False or 'auto'"):
        show_progress("always")


def test_nothing_is_shown_where_nobody_looks_on(monkeypatch, capsys):
    monkeypatch.setattr(callbacks, "LONG_SECONDS", 0.0)
    PPCA(2).fit(X)
    assert capsys.readouterr().out == ""


def test_the_log_has_plan_passes_and_iterations(caplog):
    with caplog.at_level("DEBUG", logger="dlatent"):
        model = PPCA(2, solver="krylov").fit(X)
        model.transform(X)
    records = [record.pass_record for record in caplog.records if hasattr(record, "pass_record")]
    first, *names = model.history_["pass_name"].values.tolist()
    assert first == "initial mean"
    assert [record.name for record in records] == [*names, "scores"]
    assert "solver    krylov" in caplog.text
    assert f"iteration {model.n_iter_}: log-likelihood {model.log_likelihood_:.10g}" in caplog.text


def test_plans_and_fitted_models_are_tables_in_notebooks():
    model = PPCA(2).fit(X)
    assert "<b>log-likelihood</b>" in model._repr_html_()
    assert "<b>log-likelihood</b>" not in PPCA(2)._repr_html_()
    plan = PPCA(2).plan(X)
    page = plan._repr_html_()
    assert page.count("<tr>") == len(str(plan).splitlines())
    assert "<b>solver</b></td>" in page
    assert "<b>passes</b>" in LocallyLinearEmbedding(n_components=2).plan(X)._repr_html_()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([print], r"callbacks\[0\] is <built-in function print>; .*Callback\(on_iteration=function\)"),
        (print, r"callbacks\[0\] is <built-in function print>"),
        ([Noted(), Noted], r"callbacks\[1\] is the class Noted; .*callbacks=\[Noted\(\)\]"),
        (Noted(), "a single callback; give a list"),
        ("bar", r"callbacks\[0\] is 'b'"),
        (None, r"callbacks\[0\] is None"),
    ],
)
def test_what_is_no_callback_is_refused_before_the_fit(model, wrong, words):
    with pytest.raises(DataError, match=words):
        model.fit(X, callbacks=wrong)


def test_a_callback_is_made_of_functions():
    with pytest.raises(DataError, match="on_pass is 3; give a function"):
        Callback(on_pass=3)
