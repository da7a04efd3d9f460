"""No NaN leaves a fit, and no likelihood that falls; what stopped short says so."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlatent import PPCA, FactorAnalysis, PPCAMixture, SupervisedPPCA
from dlatent.errors import DataError, DataWarning
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.solvers.diagnostics import FALL, require_sound
from dlatent.solvers.planner import SOLVERS
from dlatent.solvers.solver import Iteration, Solution

X = np.random.default_rng(0).normal(size=(60, 6))


def solution(*values: float, **parts: Any) -> Solution:
    parameters = Parameters(np.ones((6, 2)), np.zeros(6), np.ones(1))
    history = tuple(Iteration(n + 1, value, np.nan, np.nan, 0) for n, value in enumerate(values))
    specification = Specification((View("features", 6),), ((0,),), 2)
    whole = Solution(
        parameters, specification, values[-1], history, True, len(values), (False,), 60, (60,), (1.0,)
    )  # fmt: skip
    return replace(whole, **parts)


def test_what_rises_or_rounds_passes() -> None:
    require_sound(solution(-5.0))
    require_sound(solution(-1e9, -1e9 * (1 + 0.5 * FALL), -9e8))


@pytest.mark.parametrize("values", [(-1e9, -1e9 * (1 + 2 * FALL)), (-3.0, -2.0, -2.1), (-3.0, np.nan, -2.0)])
def test_a_likelihood_that_falls_is_an_error(values: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match=f"went from .* in iteration {len(values) if values[1] < 0 else 2},"):
        require_sound(solution(*values))


@pytest.mark.parametrize("field", ["loadings", "mean", "noise_variance"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_an_error(field: str, value: float) -> None:
    parameters = solution(-1.0).parameters
    broken = parameters._replace(**{field: np.full_like(getattr(parameters, field), value)})
    with pytest.raises(DataError, match=f"{field.replace('_', ' ')} that is not finite"):
        require_sound(solution(-1.0, parameters=broken))


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_a_fit_that_went_wrong_leaves_no_model(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (route,) = [type(SOLVERS[solver])]
    monkeypatch.setattr(route, "fit", lambda *_: solution(-1.0, log_likelihood=np.nan))
    model = PPCA(2, solver=solver)
    with pytest.raises(DataError, match="log-likelihood that is not finite"):
        model.fit(X, client="serial")
    assert not hasattr(model, "components_")


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(1), SupervisedPPCA(2), PPCAMixture(2, n_mixtures=2)])
def test_data_at_the_edge_of_the_numbers_are_called_what_they_are(scale: float, model: Any) -> None:
    targets = (np.arange(60) % 2,) if isinstance(model, SupervisedPPCA) else ()
    words = "too large for double precision" if scale > 1 else "differ by so little"
    with pytest.raises(DataError, match=words):
        model.fit(X * scale, *targets, client="serial")


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_components_that_are_zero_are_counted(solver: str) -> None:
    low = X[:, :2] @ np.random.default_rng(1).normal(size=(2, 9))
    with pytest.warns(DataWarning, match="2 of 4 components are zero, because the data have rank 2,"):
        model = PPCA(4, solver=solver).fit(low, client="serial")
    assert (model.components_[2:] == 0.0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        PPCA(2, solver=solver).fit(X, client="serial")


def test_the_mean_of_a_feature_without_entries_may_be_unknown() -> None:
    x = np.where(np.arange(6) == 5, np.nan, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = PPCA(2, missing="nan", prior="ml").fit(x, client="serial")
    assert np.isnan(model.mean_).tolist() == [False] * 5 + [True]
    assert np.isfinite(model.log_likelihood_)
