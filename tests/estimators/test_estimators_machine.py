"""Calls of one estimator in any order and on any container, against a model of its parameters and of the rows it knows.

What is fitted is told by the eigenvectors of the rows, and with missing entries by a fit of the same rows in NumPy.
Calls that are refused leave the estimator as it was.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from scipy.stats import multivariate_normal
from sklearn.base import clone

from dlatent import PPCA, DlatentError, NotFittedError, load
from tests.fits import bits
from tests.law_examples import runs

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 5)) + 0.5 * RNG.normal(size=(60, 5)) + 2
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
PARTS = (slice(0, 30), slice(30, 52), slice(52, 60))


def stored(rows: Any, folder: Path) -> str:
    zarr.create_array(folder / "rows.zarr", data=rows, chunks=(7, 5), overwrite=True)
    return str(folder / "rows.zarr")


CONTAINERS: dict[str, Callable[[Any, Path], Any]] = {
    "NumPy": lambda rows, _: rows.copy(),
    "lists": lambda rows, _: rows.tolist(),
    "sparse": lambda rows, _: sp.csr_array(rows),
    "Dask": lambda rows, _: da.from_array(rows, chunks=(6, 5)),
    "Zarr": stored,
    "xarray": lambda rows, _: xr.DataArray(rows, dims=("sample", "feature")),
    "pandas": lambda rows, _: pd.DataFrame(rows, columns=list("pqrst")),
}
AS_NUMPY = ("NumPy", "lists", "Zarr", "xarray")
"""Containers whose rows are read in one block, so that a fit has the same bits."""
container = st.sampled_from(sorted(CONTAINERS))
part = st.sampled_from(range(len(PARTS)))


class Truth(NamedTuple):
    """Mean, covariance, noise variance and log-likelihood of a model."""

    mean: Any
    covariance: Any
    noise: float
    log_likelihood: float


@cache
def truth(parts: tuple[int, ...], components: int, missing: str) -> Truth:
    """What PPCA makes of these parts: in closed form, and where entries are missing by a fit."""
    if missing == "nan":
        model = PPCA(components, missing="nan", prior="ml").fit(np.concatenate([HOLES[PARTS[n]] for n in parts]))
        return Truth(model.mean_, model.get_covariance(), model.noise_variance_, model.log_likelihood_)
    rows = np.concatenate([X[PARTS[n]] for n in parts])
    variances, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    variances[:-components] = noise = variances[:-components].mean()
    mean, covariance = rows.mean(axis=0), vectors * variances @ vectors.T
    return Truth(mean, covariance, noise, multivariate_normal(mean, covariance).logpdf(rows).sum())


class Estimator(RuleBasedStateMachine):
    """One PPCA; `parts` are those of the rows that it was fitted to, None where it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.model = PPCA(2, prior="ml")
        self.params = self.model.get_params()
        self.parts: tuple[int, ...] | None = None
        self.goes_on = True
        """Whether rows can be added to those of before."""
        self.named = False
        """Whether the first of its rows had names of features."""
        self.bits = dict[str, bytes]()
        self.saved = dict[str, Any]()

    def teardown(self) -> None:
        self.temporary.cleanup()

    @invariant()
    def it_is_what_the_model_says(self) -> None:
        assert self.model.get_params() == self.params
        assert hasattr(self.model, "partial_fit") == (self.params["missing"] == "raise")
        if self.parts is None:
            assert not hasattr(self.model, "components_")
            with pytest.raises(NotFittedError):
                self.model.transform(X)
        else:
            assert bits(self.model) == self.bits

    def rows(self, number: int) -> Any:
        return (HOLES if self.params["missing"] == "nan" else X)[PARTS[number]]

    def given(self, kind: str, number: int) -> Any:
        """A part of the rows in a container."""
        return CONTAINERS[kind](self.rows(number), self.folder)

    def fitted(self, parts: tuple[int, ...], goes_on: bool) -> None:
        """The estimator has been fitted to these parts."""
        self.parts, self.goes_on, self.bits = parts, goes_on, bits(self.model)
        expected = truth(parts, self.params["n_components"], self.params["missing"])
        rtol = 1e-4 if self.params["missing"] == "nan" else 1e-8
        np.testing.assert_allclose(self.model.mean_, expected.mean, rtol=rtol)
        np.testing.assert_allclose(self.model.get_covariance(), expected.covariance, rtol=rtol, atol=rtol)
        assert self.model.noise_variance_ == pytest.approx(expected.noise, rel=rtol)
        assert self.model.log_likelihood_ == pytest.approx(expected.log_likelihood, rel=rtol)
        assert self.model.n_samples_ == sum(len(X[PARTS[number]]) for number in parts)

    @rule(kind=container, number=part)
    def fit(self, kind: str, number: int) -> None:
        nan = self.params["missing"] == "nan"
        if kind == "sparse" and nan:
            with pytest.raises(DlatentError, match="sparse"):
                self.model.fit(self.given(kind, number))
            return
        assert self.model.fit(self.given(kind, number)) is self.model
        self.named = kind == "pandas"
        self.fitted((number,), not nan)
        if kind in AS_NUMPY:
            assert self.bits == bits(PPCA(**self.params).fit(self.rows(number)))

    @precondition(lambda self: self.params["missing"] == "raise")
    @rule(kind=container, number=part)
    def partial_fit(self, kind: str, number: int) -> None:
        if not self.goes_on:
            with pytest.raises(DlatentError, match="`load` has none"):
                self.model.partial_fit(self.given(kind, number))
            return
        assert self.model.partial_fit(self.given(kind, number)) is self.model
        self.named = self.named if self.parts else kind == "pandas"
        self.fitted((*(self.parts or ()), number), True)

    @rule(components=st.integers(1, 3), missing=st.sampled_from(["raise", "raise", "nan"]), whiten=st.booleans())
    def set_params(self, components: int, missing: str, whiten: bool) -> None:
        """What is fitted stays; whether scores are whitened is asked when they are computed."""
        changed = {"n_components": components, "missing": missing, "whiten": whiten}
        assert self.model.set_params(**changed) is self.model
        self.params |= changed

    @precondition(lambda self: self.parts is not None)
    @rule(kind=container, number=part, out=st.booleans())
    def transform(self, kind: str, number: int, out: bool) -> None:
        """Scores are the posterior means of rows, for any number of them."""
        rows, given = X[PARTS[number]], CONTAINERS[kind](X[PARTS[number]], self.folder)
        if kind == "sparse" and self.params["missing"] == "nan":
            with pytest.raises(DlatentError, match="sparse"):
                self.model.transform(given)
            return
        if out:
            self.model.transform(given, out=self.folder / "scores.zarr", overwrite=True)
            scores: Any = zarr.open_group(self.folder / "scores.zarr")["scores"][:]
        else:
            scores = np.asarray(self.model.transform(given))
        loadings = self.model.components_
        inner = loadings @ loadings.T + self.model.noise_variance_ * np.eye(len(loadings))
        expected = (rows - self.model.mean_) @ loadings.T @ np.linalg.inv(inner)
        if not self.params["whiten"]:
            expected *= np.linalg.norm(loadings, axis=1)
        np.testing.assert_allclose(scores, expected, rtol=1e-7, atol=1e-7)

    @precondition(lambda self: self.parts is not None)
    @rule(name=st.sampled_from(["a.zarr", "b.zarr"]), overwrite=st.booleans())
    def save(self, name: str, overwrite: bool) -> None:
        if name in self.saved and not overwrite:
            with pytest.raises(DlatentError, match=name):
                self.model.save(self.folder / name)
            return
        self.model.save(self.folder / name, overwrite=overwrite)
        self.saved[name] = self.parts, self.named, self.bits, self.params.copy()

    @rule(name=st.sampled_from(["a.zarr", "b.zarr"]))
    def load(self, name: str) -> None:
        if name not in self.saved:
            with pytest.raises(DlatentError, match=name):
                load(self.folder / name)
            return
        self.model = load(self.folder / name)
        self.parts, self.named, self.bits, params = self.saved[name]
        self.params, self.goes_on = params.copy(), False

    @rule(again=st.sampled_from([copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]))
    def copy(self, again: Callable[[Any], Any]) -> None:
        """A copy is in all the same."""
        self.model = again(self.model)

    @rule(stay=st.booleans())
    def clone(self, stay: bool) -> None:
        """A clone has the parameters alone."""
        other: Any = clone(self.model)
        assert other.get_params() == self.params
        assert not hasattr(other, "components_")
        if not stay:
            self.model, self.parts, self.named, self.goes_on = other, None, False, True

    @rule(
        method=st.sampled_from(["fit", "partial_fit", "transform"]),
        wrong=st.sampled_from(["width", "infinite", "empty", "names"]),
        number=part,
    )
    def refuse_rows(self, method: str, wrong: str, number: int) -> None:
        """Rows that nobody can use, and those of other features than were fitted."""
        rows = self.rows(number)
        bad: dict[str, Any] = {
            "infinite": np.where(np.arange(len(rows))[:, None] == 3, np.inf, rows),
            "empty": rows[:0],
        }
        if self.parts is not None and method != "fit":
            bad["width"] = rows[:, :4]
            if self.named:
                bad["names"] = pd.DataFrame(rows[:, ::-1], columns=list("tsrqp"))
        if hasattr(self.model, method):
            with pytest.raises((DlatentError, NotFittedError)):
                getattr(self.model, method)(bad.get(wrong, rows[:, :0]))

    @rule(changed=st.sampled_from([{"n_components": 9}, {"solver": "no"}, {"n_components": -1}]), add=st.booleans())
    def refuse_parameters(self, changed: dict[str, Any], add: bool) -> None:
        """Values that are refused when they are used."""
        self.model.set_params(**changed)
        method = "partial_fit" if add and hasattr(self.model, "partial_fit") else "fit"
        with pytest.raises(DlatentError):
            getattr(self.model, method)(self.rows(0))
        with pytest.raises(ValueError, match="wrong"):
            self.model.set_params(wrong=1)
        self.model.set_params(**{name: self.params[name] for name in changed})


def test_an_estimator_is_what_its_calls_have_made_it() -> None:
    run_state_machine_as_test(Estimator, settings=runs(8))
