"""Rows that come a part at a time: the model is that of all of them."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import PPCA, DataError, FactorAnalysis, PlanError
from dlatent.models import MODELS
from tests.law_examples import examples
from tests.simulators import simulate

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
X = simulate(90, (8,), 2, noise=(0.5,), random_state=3).features + 1e4
WHOLE = PPCA(2).fit(X)


def same(model: Any, whole: Any, rtol: float = 1e-7) -> None:
    np.testing.assert_allclose(model.get_covariance(), whole.get_covariance(), rtol=rtol, atol=1e-7)
    np.testing.assert_allclose(model.mean_, whole.mean_, rtol=1e-12)
    assert model.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-9)
    assert model.n_samples_ == whole.n_samples_


@settings(max_examples=examples(25))
@given(st.lists(st.integers(3, 89), max_size=6, unique=True), st.randoms(use_true_random=False))
def test_parts_in_any_order_are_one_fit(cuts: list[int], random: Any) -> None:
    parts = [part for part in np.split(X, sorted(cuts)) if len(part)]
    first = max(range(len(parts)), key=lambda number: len(parts[number]))  # of as many rows as components ask for
    order = [first, *random.sample([n for n in range(len(parts)) if n != first], len(parts) - 1)]
    model = PPCA(2)
    for number in order:
        model.partial_fit(parts[number])
    same(model, WHOLE)


@pytest.mark.parametrize(
    "make", [lambda: PPCA(2, solver="em", max_iter=30), lambda: FactorAnalysis(1, rotation="varimax")]
)
def test_other_models_and_solvers_do_alike(make: Any) -> None:
    same(make().partial_fit(X[:40]).partial_fit(X[40:]), make().fit(X), 1e-5)


def test_parts_come_in_any_kind() -> None:
    named = xr.DataArray(X.reshape(90, 4, 2), dims=("time", "lat", "lon"))
    model = PPCA(2).partial_fit(named[:50], dim="time").partial_fit(named[50:])
    same(model, WHOLE)
    assert model.result_["loadings"].dims == ("lat", "lon", "component")
    same(PPCA(2).partial_fit(da.from_array(X[:50], chunks=(20, 8))).partial_fit(X[50:]), WHOLE)
    near = X - 1e4
    same(PPCA(2).partial_fit(sp.csr_array(near[:50])).partial_fit(sp.csr_array(near[50:])), PPCA(2).fit(near))


@pytest.mark.parametrize("cls", [PPCA, FactorAnalysis])
def test_rows_are_added_to_those_of_a_fit(cls: Any) -> None:
    same(cls(2).fit(X[:50]).partial_fit(X[50:]), cls(2).fit(X))
    same(cls("auto").fit(X[:50]).partial_fit(X[50:]), cls("auto").fit(X))


@pytest.mark.filterwarnings("ignore")
def test_a_fit_that_keeps_no_moments_says_which_do() -> None:
    wide = np.random.default_rng(0).normal(size=(600, 501))
    fits = (
        PPCA(2, solver="krylov").fit(X),
        PPCA(2).fit(X, sample_weight=np.full(len(X), 2.0)),
        PPCA(2, scale="spread").fit(X).set_params(scale="none"),
        PPCA(2, solver="covariance").fit(wide),
    )
    for model in fits:
        words = "`fit` keeps those of at most 500 features, where the solver is 'covariance'.*partial_fit of a clone"
        with pytest.raises(DataError, match=words):
            model.partial_fit(wide if model.n_features_in_ == 501 else X)


def test_the_number_of_components_may_change_between_parts() -> None:
    model = PPCA(1).partial_fit(X[:50]).set_params(n_components=2).partial_fit(X[50:])
    same(model, WHOLE)
    with pytest.raises(DataError, match="allow at most 8"):
        model.set_params(n_components=9).partial_fit(X[:1])


def test_names_are_those_of_the_first_part() -> None:
    pd = pytest.importorskip("pandas", reason="pandas comes with the extra 'files'")
    table = pd.DataFrame(X, columns=list("abcdefgh"))
    model = PPCA(2).partial_fit(table[:50])
    with pytest.raises(DataError, match="same order"):
        model.partial_fit(table.iloc[50:, ::-1])
    same(model.partial_fit(table[50:]), WHOLE)
    assert model.feature_names_in_.tolist() == list("abcdefgh")


def test_models_without_such_moments_have_no_such_method() -> None:
    assert {model.name for model in MODELS if hasattr(model.load(), "partial_fit")} == {"PPCA", "FactorAnalysis"}
    assert hasattr(PPCA(2), "partial_fit")
    assert not hasattr(PPCA(2, missing="nan"), "partial_fit")
    with pytest.raises(DataError, match="need a number"):
        PPCA("mle").partial_fit(X)
    with pytest.raises(PlanError, match="rows are added to those of before"):
        PPCA(2, solver="krylov").partial_fit(X)
