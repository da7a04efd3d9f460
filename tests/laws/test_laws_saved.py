"""A saved model is the model: what it holds, and what it says of rows, has the same bits after loading."""

from __future__ import annotations

import inspect
import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
import xarray as xr
from law_models import MODELS, Problem, answer, views

import dlatent as d
from dlatent import DlatentError, load
from tests.fits import COUNTS, FITS, LABELS, X, bits

pytestmark = pytest.mark.filterwarnings("ignore")
OF_ROWS = (
    *("transform", "posterior", "score_samples", "score", "responsibilities", "impute", "impute_variance"),
    *("predict", "predict_proba", "decision_function", "residuals", "log_likelihood", "bic"),
)
OF_NOTHING = ("predictive_variance", "get_covariance", "get_precision", "rotated", "_summary", "_summary_lines")
"""Methods of models, where they have them."""


def said(model: Any, method: str, *given: Any, **beside: Any) -> Any:
    """What a method answers, or with which words it refuses."""
    call = getattr(model, method)
    known = inspect.signature(call).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    try:
        return call(*given, **{name: value for name, value in beside.items() if takes_all or name in known})
    except (DlatentError, TypeError) as error:
        return str(error)


def same(one: Any, other: Any) -> bool:
    """To the last bit, with all labels."""
    if isinstance(one, dict | xr.Dataset):
        return type(one) is type(other) and [*one] == [*other] and all(same(one[name], other[name]) for name in one)
    if isinstance(one, xr.DataArray):
        return bool(one.identical(other))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    left, right = np.asarray(one), np.asarray(other)
    return left.dtype == right.dtype and bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))


def holds_the_same(model: Any, again: Any) -> None:
    """Attributes, parameters, and what is known without rows."""
    assert type(again) is type(model)
    assert bits(again) == bits(model)
    assert same(again.get_params(), model.get_params())
    names = [name for name in dir(model) if name.endswith("_") and not name.startswith("_") and hasattr(model, name)]
    assert "result_" in names
    for name in names:
        assert same(getattr(again, name), getattr(model, name)), name
    for method in OF_NOTHING:
        if hasattr(model, method):
            assert same(said(again, method), said(model, method)), method
    if hasattr(model, "sample"):
        one, other = (said(each, "sample", 5, random_state=1) for each in (again, model))
        assert same(one, other)


@cache
def fitted(name: str) -> tuple[Any, Problem]:
    row = MODELS[name]
    problem = row.data(np.random.default_rng(0))
    return answer(row.estimator, problem)[1], problem


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * row.slow) for name, row in MODELS.items()]
)
def test_a_loaded_model_says_the_same_of_rows(name: str, tmp_path: Any) -> None:
    model, problem = fitted(name)
    model.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    holds_the_same(model, again)
    data, table = views(problem) if problem.sizes else (problem.x, None)
    beside = {**problem.beside, **problem.between, **({} if table is None else {"correspondence": table})}
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        *((method, (data,), more) for method in OF_ROWS for more in ({}, beside)),
        ("log_likelihood", (data, problem.y), problem.between),
        ("node_variance", (), problem.between),
    ]
    if table is None:
        scores, labels = model.transform(data, **problem.beside), np.zeros(len(data), dtype=int)
        calls += [("inverse_transform", (scores, *more), {}) for more in ((), (labels,))] + [
            ("reconstruct", (data,), {})
        ]
    else:
        one = data["view 0"]
        calls += [("transform", (one, "view 0"), {}), ("reconstruct", (one, "view 0", "view 1"), {})]
        calls += [("inverse_transform", (np.eye(model.n_components), "view 1"), {})]
    answered = set()
    for method, given, more in calls:
        if hasattr(model, method):
            one, other = (said(each, method, *given, **more) for each in (again, model))
            assert same(one, other), method
            answered |= set() if isinstance(one, str) else {method}
    assert answered == {method for method, *_ in calls if hasattr(model, method)}


MORE: dict[str, Any] = {
    "rotated": lambda: d.FactorAnalysis(2, rotation="varimax").fit(X),
    "oblique": lambda: d.FactorAnalysis(2, rotation="promax").fit(X),
    "kernel of spreads": lambda: d.KernelSupervisedPPCA(2, kernel="poly", scale="spread", landmarks=12).fit(X, LABELS),
    "given kernel": lambda: d.KernelSupervisedPPCA(2, kernel="precomputed").fit(X @ X.T, LABELS),
    "embedding of spreads": lambda: d.LocallyLinearEmbedding(n_neighbors=6, scale="spread").fit(X),
    "spreads, labels": lambda: d.SupervisedPPCA(2, scale="spread").fit(X, LABELS),
    "prior, labels": lambda: d.SupervisedPPCA(3, prior="ard", head="likelihood").fit(X, LABELS),
    "several labels": lambda: d.SupervisedPPCA(2).fit(X, (X[:, :2] > 0).astype(int)),
    "mixture of one": lambda: d.PPCAMixture(2, 1).fit(X),
    "chosen": lambda: d.PPCA("bic").fit(X),
    "rows added": lambda: d.PPCA().partial_fit(X[:30]).partial_fit(X[30:]),
    "views of counts and tails": lambda: d.CorrespondencePPCA(
        1, likelihood={"a": "negative_binomial", "b": "student"}, tol=1e-3
    ).fit({"a": COUNTS, "b": X[:, 4:]}, correspondence="rows"),
    "views, chosen": lambda: d.CorrespondencePPCA(solver="krylov").fit([X[:, :4], X[:, 4:]], correspondence="rows"),
}


@pytest.mark.parametrize("name", [*FITS, *MORE])
def test_a_loaded_model_holds_the_same_and_so_does_a_pickled_one(name: str, tmp_path: Any) -> None:
    model = FITS[name](client="serial") if name in FITS else MORE[name]()
    model.save(tmp_path / "m.zarr")
    holds_the_same(model, load(tmp_path / "m.zarr"))
    holds_the_same(model, pickle.loads(pickle.dumps(model)))
