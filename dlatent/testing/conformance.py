"""The laws that every estimator of the family obeys, as a suite that a new model joins with one line.

In a test module:

    PRESETS = [Preset("ppca", partial(PPCA, 2), case), ...]

    @pytest.mark.parametrize("preset", PRESETS, ids=str)
    class TestConformance(Conformance): ...

Each method is one law, its docstring the sentence that it checks; `check_estimator(preset)` runs all without pytest.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from unittest import TestCase

import numpy as np
import scipy.sparse as sp
import xarray as xr
from sklearn.base import clone

from dlatent.arrays import Array
from dlatent.errors import DataError, DlatentError, StoreError
from dlatent.models.model import NotFittedError
from dlatent.models.saved import load

TIGHT, HEIGHT = 1e-5, 1e-9
"""Relative agreement of parameters, which are known to the root of rounding at a maximum, and of log-likelihoods."""


class Values(NamedTuple):
    """Values of a fit: loadings (K, D), mean (D,), noise variances, and the log-likelihood."""

    components: Array
    mean: Array
    noise_variance: Array
    log_likelihood: float


@dataclass(frozen=True)
class Preset:
    """One way to use an estimator: `make(**options)` gives it unfitted; `features` (N, D), NaN where it takes missing
    entries, `targets` (N rows) and `graph` (N, N) are what it is fitted to, where it takes them; `solvers` are two ways
    to the same maximum, the second by iterations."""

    name: str
    make: Callable[..., Any]
    features: Array = field(repr=False)
    targets: Any = field(default=None, repr=False)
    graph: Any = field(default=None, repr=False)
    solvers: tuple[str, str] = ("covariance", "krylov")

    def __str__(self) -> str:
        return self.name

    def fit(self, features: Any = None, **options: Any) -> Any:
        """The estimator fitted to its own data, or to other features."""
        return self.train(self.make(tol=1e-12, **options), features)

    def train(self, model: Any, features: Any = None, **options: Any) -> Any:
        """A model of this kind fitted to its own data, or to other features."""
        return model.fit(self.data(features), *self.labels, **self.keywords, **options)

    def data(self, features: Any = None) -> Any:
        """Its own features, or others, as the model takes them."""
        return self.features if features is None else features

    @property
    def labels(self) -> tuple[Any, ...]:
        """The targets, as an argument where there are any."""
        return () if self.targets is None else (self.targets,)

    def values(self, model: Any) -> Values:
        """The fitted parameters, of a kernel model the combinations of samples, which have no mean."""
        dual, noise = getattr(model, "dual_components_", None), np.asarray(model.noise_variance_)
        loadings, mean = (model.components_, model.mean_) if dual is None else (dual, np.zeros(1))
        return Values(loadings, mean, noise, model.log_likelihood_)

    def transform(self, model: Any, features: Any = None) -> Any:
        """Scores of the model's own data, or of other features."""
        return model.transform(self.data(features))

    def mean_score(self, model: Any) -> tuple[float, Array]:
        """Return `score`, and the log-likelihoods that it should be the mean of."""
        return model.score(self.features), model.score_samples(self.features)

    def diagonal(self, model: Any) -> Array:
        """Return the covariance of a complete sample (K, K), diagonal and increasing along the published axes."""
        rows = np.where(np.isnan(self.features), model.mean_, self.features) if self.incomplete else self.features
        covariance: Array = model.posterior(rows, *self.labels)["covariance"].values
        return covariance if covariance.ndim == 2 else covariance[0]

    def first_components(self, model: Any) -> Array:
        """Loadings of the view whose signs are canonical (K, D)."""
        return self.values(model).components

    def sample(self, model: Any, count: int, seed: int) -> tuple[Array, Array]:
        """Features drawn from the model (count, D), and the covariance that they should have (D, D)."""
        drawn = model.sample(count, random_state=seed)
        return (drawn[0] if isinstance(drawn, tuple) else drawn), model.get_covariance()

    def plan(self, model: Any) -> Any:
        """The plan of a fit to its own data."""
        return model.plan(self.data(), *self.labels, **self.keywords)

    def check_names(self) -> None:
        """Dimensions and coordinates of xarray input come back with the results."""
        rows = [f"r{i}" for i in range(len(self.features))]
        data = xr.DataArray(self.features, dims=("row", "column"), coords={"row": rows})
        model = self.fitted
        transformed = model.transform(data)
        assert transformed.dims == ("row", "component")
        assert transformed["row"].values.tolist() == rows
        np.testing.assert_array_equal(transformed.values, model.transform(self.features))
        if hasattr(model, "components_"):
            assert self.fit(data).result_["loadings"].dims == ("column", "component")

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes of the parameters before those of a model of one component."""
        return ()

    def middle(self, model: Any) -> Array:
        """The mean of the features (D,)."""
        return self.values(model).mean

    @property
    def cells(self) -> int:
        """Numbers that the likelihood of the features counts."""
        return int(np.isfinite(self.features).sum())

    @property
    def keywords(self) -> dict[str, Any]:
        """The graph as a relational model takes it."""
        return {} if self.graph is None else {"graph": self.graph}

    @property
    def incomplete(self) -> bool:
        """Whether entries are missing."""
        return bool(np.isnan(self.features).any())

    @property
    def sparse(self) -> tuple[sp.csr_array, dict[str, Any]]:
        """The features in sparse form, and the options that go with it."""
        places = np.nonzero(~np.isnan(self.features))
        rows: Any = sp.csr_array((self.features[places], places), shape=self.features.shape)
        return rows, {"missing": "unstored"} if self.incomplete else {}

    def reordered(self, order: Any) -> Preset:
        """Return the preset with its samples in another order."""
        targets = None if self.targets is None else np.asarray(self.targets)[order]
        graph = None if self.graph is None else self.graph[order][:, order]
        return replace(self, features=self.features[order], targets=targets, graph=graph)

    def log_likelihood(self, model: Any) -> float:
        """The log-likelihood of all samples, from what the model says of data that it is given."""
        if self.graph is None:
            return float(self.score_samples(model).sum())
        joint = model.log_likelihood(self.features, *self.labels, graph=self.graph).value
        width = self.features.shape[1] + len(getattr(model, "target_mean_", ()))
        return float(joint - 0.5 * width * model.log_determinant(self.graph).value)

    @cached_property
    def fitted(self) -> Any:
        """The estimator fitted to its own data; laws must not change it."""
        return self.fit()

    @cached_property
    def by_solver(self) -> dict[str, Any]:
        """The estimator fitted to its own data by each of its solvers; laws must not change them."""
        return {solver: self.fit(solver=solver) for solver in dict.fromkeys(self.solvers)}

    def score_samples(self, model: Any) -> Array:
        """The log-likelihood of each sample, targets included where there are any."""
        return np.asarray(model.score_samples(self.features, *self.labels))


class Conformance:
    """The laws of an estimator; every method takes a preset."""

    def too_many(self, preset: Preset) -> int:
        """The smallest number of components that must be refused."""
        return int(min(len(preset.features), preset.features.shape[1] + 1))

    def test_parameters_survive_cloning(self, preset: Preset) -> None:
        """Constructor arguments are kept as given, and a fit does not change them."""
        before = preset.make(tol=1e-12).get_params()
        assert clone(preset.fitted).get_params() == preset.fitted.get_params() == before

    def test_shapes(self, preset: Preset) -> None:
        """Attributes and results have their shapes, in float64, without NaN."""
        model, (rows, width) = preset.fitted, preset.features.shape
        k = model.n_components
        values, scores = preset.values(model), np.asarray(preset.transform(model))
        assert values.components.shape == (*preset.leading, k, width)
        assert values.mean.shape == (*preset.leading, width)
        assert scores.shape == (rows, k)
        assert preset.score_samples(model).shape == (rows,)
        assert (model.n_features_in_, model.n_samples_) == (width, rows)
        for array in (values.components, values.mean, scores):
            assert array.dtype == np.float64
            assert np.isfinite(array).all()

    def test_same_call_same_bits(self, preset: Preset) -> None:
        """A fit is deterministic, to the last bit."""
        _assert_close(preset, preset.fit(), preset.fitted, exact=True)

    def test_serial_is_the_reference(self, preset: Preset) -> None:
        """The engine changes no bit."""
        _assert_close(preset, preset.fitted, preset.train(preset.make(tol=1e-12), client="serial"), exact=True)

    def test_solvers_agree(self, preset: Preset) -> None:
        """All solvers find one maximum."""
        _assert_close(preset, *(preset.by_solver[solver] for solver in preset.solvers))

    def test_likelihood_never_falls(self, preset: Preset) -> None:
        """No iteration loses likelihood, and the last line of the history is the fit's log-likelihood."""
        model = preset.by_solver[preset.solvers[1]]
        lines = model.history_["iteration_log_likelihood"].values
        assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()
        assert lines[-1] == model.log_likelihood_

    def test_log_likelihood_is_the_sum_over_samples(self, preset: Preset) -> None:
        """`log_likelihood_` = Σ `score_samples`, targets included, and `score` is their mean; samples in a graph have
        one log-likelihood together, here without the constant of the graph."""
        model = preset.fitted
        np.testing.assert_allclose(preset.log_likelihood(model), model.log_likelihood_, rtol=HEIGHT)
        plain, each = preset.mean_score(model)
        np.testing.assert_allclose(plain, np.mean(each), rtol=1e-12)

    def test_textbook_em_is_no_better(self, preset: Preset) -> None:
        """The default solver's maximum is not below what EM finds."""
        best = preset.fitted
        with warnings.catch_warnings(action="ignore"):
            textbook = preset.train(preset.make(solver="em", tol=1e-9, max_iter=400))
        assert textbook.log_likelihood_ <= best.log_likelihood_ + 1e-7 * abs(best.log_likelihood_)

    def test_order_of_rows_does_not_matter(self, preset: Preset) -> None:
        """Samples are exchangeable."""
        order = np.random.default_rng(0).permutation(len(preset.features))
        _assert_close(preset, preset.reordered(order).fit(), preset.fitted)

    def test_shift(self, preset: Preset) -> None:
        """A constant added to the features moves the mean and nothing else, at a million spreads, too."""
        moved, model = (preset.values(m) for m in (preset.fit(preset.features + 1e6), preset.fitted))
        np.testing.assert_allclose(moved.mean - 1e6, model.mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(moved.components, model.components, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(moved.log_likelihood, model.log_likelihood, rtol=1e-8)

    def test_scale(self, preset: Preset) -> None:
        """Units of the features multiply loadings and mean, and the likelihood has their Jacobian."""
        scaled, model = (preset.values(m) for m in (preset.fit(preset.features * 50.0), preset.fitted))
        np.testing.assert_allclose(scaled.components, 50.0 * model.components, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scaled.mean, 50.0 * model.mean, rtol=1e-6)
        expected = model.log_likelihood - preset.cells * np.log(50.0)
        np.testing.assert_allclose(scaled.log_likelihood, expected, rtol=1e-8)

    def test_sparse_is_dense(self, preset: Preset) -> None:
        """Sparse and dense features are the same data, in fits and in results."""
        (rows, options), model = preset.sparse, preset.fitted
        _assert_close(preset, preset.fit(rows, **options), model)
        of_sparse = copy(model).set_params(**options)
        np.testing.assert_allclose(preset.transform(of_sparse, rows), preset.transform(model), rtol=1e-9, atol=1e-9)

    def test_float32_is_nearly_float64(self, preset: Preset) -> None:
        """Single precision data give the model up to single precision."""
        single, model = (preset.values(m) for m in (preset.fit(preset.features.astype(np.float32)), preset.fitted))
        np.testing.assert_allclose(single.components, model.components, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(single.log_likelihood, model.log_likelihood, rtol=1e-5)

    def test_canonical_form(self, preset: Preset) -> None:
        """The posterior covariance of complete rows, or what else the model publishes its axes by, is diagonal and
        increasing, and peaks of the loadings are positive."""
        model = copy(preset.fitted).set_params(**dict.fromkeys({"whiten"} & preset.fitted.get_params().keys(), True))
        full, components = preset.diagonal(model), preset.first_components(model)
        np.testing.assert_allclose(full, np.diag(np.diag(full)), atol=1e-8)
        assert (np.diff(np.diag(full)) >= -1e-12).all()
        peaks = np.take_along_axis(components, abs(components).argmax(axis=1)[:, None], axis=1)
        assert (peaks > 0).all()

    def test_saved_is_loaded(self, preset: Preset) -> None:
        """A loaded model computes the bits of the saved one; a path that is taken is refused."""
        model = preset.fitted
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.zarr"
            model.save(path)
            again = load(path)
            _refused(StoreError, lambda: model.save(path))
        _assert_close(preset, again, model, exact=True)
        np.testing.assert_array_equal(preset.transform(again), preset.transform(model))
        np.testing.assert_array_equal(preset.score_samples(again), preset.score_samples(model))
        xr.testing.assert_identical(again.result_, model.result_)

    def test_names_are_kept(self, preset: Preset) -> None:
        """Dimensions and coordinates of xarray input come back with the results."""
        preset.check_names()

    def test_samples_have_the_width_of_the_data(self, preset: Preset) -> None:
        """`sample` draws samples like those of the fit, the same for the same seed."""
        model = preset.fitted
        (x, covariance), (again, _) = (preset.sample(model, 4000, 3) for _ in range(2))
        np.testing.assert_array_equal(x, again)
        spread = np.sqrt(np.diag(covariance))
        assert (abs(x.mean(axis=0) - preset.middle(model)) < 6 * spread / np.sqrt(len(x))).all()

    def test_plan_before_fit(self, preset: Preset) -> None:
        """`plan` names a solver and its costs without fitting."""
        model = preset.make()
        plan = preset.plan(model)
        assert plan.solver in str(plan)
        assert plan.passes >= 1
        assert not hasattr(model, "components_")

    def test_refusals(self, preset: Preset) -> None:
        """Bad values, too many components, other widths and missing fits are refused with an error of the library."""
        bad = preset.features.copy()
        bad[5, 2] = np.inf if preset.incomplete else np.nan
        _refused(DataError, lambda: preset.fit(bad), "row 5, column 2")
        _refused(DataError, lambda: preset.fit(n_components=self.too_many(preset)), "allow at most")
        _refused(DataError, lambda: preset.fit(np.ones_like(preset.features)), "constant")
        model = preset.fitted
        _refused(DataError, lambda: preset.transform(model, preset.features[:, 1:]), "features")
        _refused(NotFittedError, lambda: preset.transform(preset.make()), "fit first")


def check_estimator(preset: Preset) -> list[str]:
    """Run every law for a preset; returns the names of the laws, raises AssertionError at the first that is broken."""
    names = [name for name in vars(Conformance) if name.startswith("test_")]
    for name in names:
        getattr(Conformance(), name)(preset)
    return names


def _assert_close(preset: Preset, one: Any, other: Any, *, exact: bool = False) -> None:
    pairs: Any = zip(Values._fields, preset.values(one), preset.values(other), strict=True)
    for name, mine, theirs in pairs:
        rtol = 0.0 if exact else HEIGHT if name == "log_likelihood" else TIGHT
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * np.max(np.abs(theirs)), err_msg=name)


def _refused(error: type[DlatentError], action: Callable[[], Any], text: str = "") -> None:
    TestCase().assertRaisesRegex(error, re.escape(text), action)  # noqa: PT027  (the suite runs without pytest)
