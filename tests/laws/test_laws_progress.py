"""The likelihood never decreases: not in EM, not in accelerated EM, not from subspace to larger subspace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_cases import CASES, ROUTES, fit, numbers, texts

from dlatent import PPCA, Callback, ConvergenceWarning, SupervisedPPCA
from tests.fitted import fit_of
from tests.simulators import documents

FEW = settings(max_examples=8, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def lines(model):
    return model.history_["iteration_log_likelihood"].values


@FEW
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4), case=st.sampled_from(CASES))
@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning", "ignore::dlatent.ConvergenceWarning")
def test_textbook_em_never_loses_likelihood(seed, k, case):
    x, y, labelled = numbers(40, 6, 2, seed)
    model = fit(case, x, y, labelled, n_components=k, solver="em", max_iter=60, random_state=seed)
    values = lines(model)
    assert len(values) > 2
    assert np.diff(values).min() >= -1e-10 * abs(values).max()
    assert model.log_likelihood_ == values[-1]


@FEW
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4), case=st.sampled_from(CASES))
@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning", "ignore::dlatent.ConvergenceWarning")
def test_no_em_run_beats_the_default_solver(seed, k, case):
    """The default is a maximum over subspaces and starts; textbook EM from random loadings must not find a higher."""
    x, y, labelled = numbers(40, 6, 2, seed)
    best = fit(case, x, y, labelled, n_components=k).log_likelihood_
    for start in range(3):
        run = fit(case, x, y, labelled, n_components=k, solver="em", max_iter=800, random_state=start)
        assert run.log_likelihood_ <= best + 1e-6 * max(abs(best), 1.0)


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("model", [PPCA, SupervisedPPCA])
def test_larger_subspaces_never_lose_likelihood(model, k):
    data = documents(200, 400, classes=6, random_state=k)
    labels = np.where(np.arange(200) < 60, data.labels, -1)
    fitted = model(k, solver="krylov").fit(data.features, labels)
    values, ranks = lines(fitted), fitted.history_["iteration_rank"].values
    assert len(values) >= 3
    assert np.diff(values).min() >= -1e-10 * abs(values).max()
    assert (np.diff(ranks) > 0).all()
    assert fitted.converged_


@pytest.mark.parametrize(("features", "k", "tol", "seed"), [(60, 10, 1e-9, 10), (100, 12, 1e-6, 0), (100, 20, 1e-6, 0)])
def test_what_has_converged_is_as_near_the_maximum_as_it_says(features, k, tol, seed):
    """Few strong directions in noise: the first gain is huge, and says nothing of those that follow."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(10_000, 8)) @ rng.normal(size=(8, features))
    x = signal + 0.5 * rng.normal(size=signal.shape)
    found, best = (PPCA(k, solver=solver, tol=tol).fit(x, client="serial") for solver in ("krylov", "covariance"))
    assert found.converged_
    assert found.log_likelihood_ >= best.log_likelihood_ * (1 + tol if best.log_likelihood_ < 0 else 1 - tol)


@pytest.mark.parametrize("max_iter", [1, 2, 4])
def test_more_passes_never_end_lower(max_iter):
    data = documents(200, 400, classes=6, random_state=0)
    with pytest.warns(ConvergenceWarning):
        short = PPCA(6, solver="krylov", max_iter=max_iter).fit(data.features)
    long = PPCA(6, solver="krylov").fit(data.features)
    assert short.log_likelihood_ <= long.log_likelihood_ + 1e-9
    assert short.n_passes_ <= max_iter + 1


@pytest.mark.parametrize("solver", ROUTES)
def test_callbacks_see_the_history_as_it_is_made(solver):
    x, labels = texts()
    passes, iterations, groups = [], [], []
    heard = Callback(on_pass=passes.append, on_iteration=iterations.append, on_task=lambda *a: groups.append(a))
    model = SupervisedPPCA(2, solver=solver).fit(x, labels, callbacks=[heard])
    # The last line may be replaced by the thorough solve, which callbacks hear of with the solution.
    np.testing.assert_allclose([line.log_likelihood for line in iterations], lines(model), rtol=1e-6)
    assert ["initial mean", *(record.name for record in passes)] == list(model.history_["pass_name"].values)
    assert model.n_passes_ == len(passes)
    assert max(done for done, _ in groups) == groups[-1][1]


@pytest.mark.parametrize("solver", ROUTES)
def test_the_independent_evaluation_agrees(solver):
    """Route krylov ends with a pass that evaluates the likelihood on the data."""
    x, labels = texts()
    model = SupervisedPPCA(2, solver=solver).fit(x, labels)
    assert model.score_samples(x, labels).sum() == pytest.approx(model.log_likelihood_, rel=1e-9)
    if solver == "krylov":
        assert model.history_["pass_name"].values[-2:].tolist() == ["check", "labelled rows"]
        assert fit_of(model).report.checked_log_likelihood == pytest.approx(model.log_likelihood_, rel=1e-9)
