"""Every estimator obeys the laws of the conformance suite; a new model joins with one line."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import (
    PPCA,
    CorrespondenceFactorAnalysis,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    FactorAnalysis,
    GraphPPCA,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
)
from dlatent.gaussian.missing_entries.prior import Priors, divergence
from dlatent.testing.conformance import Conformance, Preset, check_estimator
from tests.fitted import encoded_of, parameters_of, specification_of
from tests.graphs import power_law_graph
from tests.oracles.mixture import MixturePreset, simulate_mixture
from tests.oracles.views import ViewsPreset, some_views
from tests.simulators import hide, plain_features, simulate

X = plain_features()
LABELLED = np.arange(len(X)) % 3 == 0
OUTPUTS = X[:, :2] @ np.array([[1.0, 0.3], [-0.5, 1.0]]) + np.random.default_rng(1).standard_normal((len(X), 2))
GRAPH = power_law_graph(len(X), 2 * len(X), random_state=2)
WEIGHTED = GRAPH.toarray() * np.add.outer(np.arange(len(X)), np.arange(len(X))) / len(X)
INNER = np.eye(len(X)) + 0.3 * GRAPH.toarray()
GIVEN = sp.csr_array(0.2 * np.eye(len(X)) + INNER @ INNER - 0.1 * GRAPH.toarray())
CLASSES = (OUTPUTS[:, 0] > np.median(OUTPUTS[:, 0])).astype(int)

HOLES = np.where(np.random.default_rng(3).random(X.shape) < 0.3, np.nan, X)
FEW_HOLES = np.where(np.random.default_rng(3).random(X.shape) < 0.1, np.nan, X)
GAPS = np.where(np.random.default_rng(4).random(OUTPUTS.shape) < 0.3, np.nan, OUTPUTS)
BY_ROWS = {"solvers": ("accelerated_em", "accelerated_em")}
WIDE = plain_features(20, 60)
OUTPUT = WIDE[:, :1] + np.random.default_rng(3).standard_normal((20, 1))
DUAL = ("gram", "krylov")
TWO, THREE = (6, 5), (5, 4, 6)
PAIRS = simulate(70, TWO, 2, noise=(0.3, 0.5), offset=3.0, random_state=5).stacked
TESTS = simulate(70, (7, 6), 2, noise=(0.4, 0.6), offset=3.0, random_state=0).stacked
TRIPLES = simulate(90, THREE, 2, noise=(0.3, 0.4, 0.2), offset=3.0, random_state=6).stacked
SOME, FEW = some_views(70, 2, random_state=7), some_views(90, 3, random_state=8)
ALL = np.ones((70, 2), dtype=bool)
MIXED, FACTORS = (
    simulate_mixture(200, 8, k, weights=(0.6, 0.4), noise=0.6, own_noise=k == 1, random_state=3).features
    for k in (2, 1)
)
SUMS = PAIRS[:, :2] + PAIRS[:, 6:8] + np.random.default_rng(9).standard_normal((70, 2))
PARTLY = np.arange(70) % 3 < 2
SIGNS = np.where(PARTLY, np.where(SUMS[:, 0] > np.median(SUMS[:, 0]), "high", "low"), None)


class GivenPreset(Preset):
    """A precision in the place of a graph."""

    @property
    def keywords(self):
        return {"precision": self.graph}

    def log_likelihood(self, model):
        joint = model.log_likelihood(self.features, precision=self.graph).value
        return joint - 0.5 * self.features.shape[1] * model.log_determinant(precision=self.graph).value


class SmoothedPreset(Preset):
    """Rows smoothed over a graph: their log-likelihood is that of f(S)(X − 1μᵀ) + 1μᵀ, rows without edges."""

    def log_likelihood(self, model):
        rows = (
            smoothed(self.graph.toarray(), model.smoothing_, model.hops) @ (self.features - model.mean_) + model.mean_
        )
        return float(model.score_samples(rows).sum())


def smoothed(graph, smoothing, hops):
    """f(S), by its definition, of a graph in which every sample has an edge or none."""
    degrees = graph.sum(axis=1)
    s = graph / np.sqrt(np.outer(degrees, degrees) + (graph == 0))
    return sum(smoothing**k * np.linalg.matrix_power(s, k) for k in range(hops + 1))


class InSpreads(Preset):
    """A model whose fit divided features by their spreads: signs are canonical there."""

    def first_components(self, model):
        return model.components_ / model.result_["feature_scale"].values


class BoundPreset(Preset):
    """A model with priors of loadings and means: what is maximised is lower by how far these are from them."""

    def rows(self, model):
        encoded = [] if self.targets is None else [encoded_of(model, self.features, self.targets)]
        return np.hstack([self.features, *encoded])

    def log_likelihood(self, model):
        rows, own = self.rows(model), parameters_of(model)
        counts, groups = np.isfinite(rows).sum(axis=0).astype(float), specification_of(model).group_slices
        spread = np.broadcast_to(own.loadings_covariance, (len(own.mean), own.loadings_covariance.shape[1]))
        priors = Priors(None if own.mean_variance is None else np.zeros(len(counts)))
        own = own._replace(loadings_covariance=spread)
        if len(groups) > 1:  # loadings are in units of the deviations of each noise group
            away = rows - np.nanmean(rows, axis=0)
            units = np.array([1.0 / np.sqrt(np.nanmean(away[:, at] ** 2)) for at in groups])
            own = own.rescaled(specification_of(model).per_feature(units), units)
        return super().log_likelihood(model) - divergence(own, counts, priors)


class PriorAxesPreset(BoundPreset):
    """The same of models with several noise variances, along whose axes the precision of the prior is diagonal."""

    def diagonal(self, model):
        own, k = parameters_of(model), model.n_components
        spread = np.zeros((len(own.mean), k, k))
        first, second = np.triu_indices(k)
        spread[:, first, second] = spread[:, second, first] = own.loadings_covariance
        away = self.rows(model) - np.nanmean(self.rows(model), axis=0)
        units = np.array([np.nanmean(away[:, at] ** 2) for at in specification_of(model).group_slices])
        squares = spread + own.loadings[:, :, None] * own.loadings[:, None, :]
        return np.linalg.inv((squares / specification_of(model).per_feature(units)[:, None, None]).mean(axis=0))


class AveragedPreset(BoundPreset):
    """Rows with missing entries averaged over a graph: their bound is that of the averages, rows without edges."""

    @property
    def cells(self):
        return int(np.isfinite(self.averages(self.make())).sum())

    def averages(self, model):
        f, seen = smoothed(self.graph.toarray(), model.smoothing, model.hops), np.isfinite(self.features)
        with np.errstate(invalid="ignore"):
            return (f @ np.where(seen, self.features, 0.0)) / (f @ seen)

    def log_likelihood(self, model):
        return BoundPreset(str(self), self.make, self.averages(model)).log_likelihood(model)


class SmoothedBoundPreset(BoundPreset, SmoothedPreset):
    """The same of smoothed rows."""


PRESETS = [
    Preset("ppca", partial(PPCA, n_components=3), X),
    Preset("ppca of one component", partial(PPCA, n_components=1), X),
    Preset("factor analysis", partial(FactorAnalysis, n_components=2), X, solvers=("covariance", "accelerated_em")),
    Preset("ppca, entries missing", partial(PPCA, n_components=2, missing="nan", prior="ml"), HOLES, **BY_ROWS),
    BoundPreset("ppca, complete, a prior", partial(PPCA, n_components=2, prior="ard"), X),
    BoundPreset("ppca, dual, a prior", partial(PPCA, n_components=3, prior="ard"), WIDE, solvers=DUAL),
    InSpreads("ppca, in spreads", partial(PPCA, n_components=2, scale="spread"), X),
    BoundPreset(
        "ppca, a prior", partial(PPCA, n_components=2, missing="nan", prior="ard", scale="none"), HOLES, **BY_ROWS
    ),
    Preset(
        "factor analysis, entries missing", partial(FactorAnalysis, n_components=2, missing="nan", prior="ml"), HOLES,
        **BY_ROWS,
    ),
    PriorAxesPreset(
        "factor analysis, a prior",
        partial(FactorAnalysis, n_components=2, missing="nan", scale="none", tol=1e-12), FEW_HOLES, **BY_ROWS,
    ),
    Preset(
        "supervised, entries missing", partial(SupervisedPPCA, n_components=2, missing="nan", prior="ml"), HOLES, GAPS,
        **BY_ROWS,
    ),
    PriorAxesPreset(
        "supervised, a prior",
        partial(SupervisedPPCA, n_components=2, missing="nan", scale="none"), HOLES, GAPS, **BY_ROWS
    ),
    Preset("supervised, regression", partial(SupervisedPPCA, n_components=2), X, OUTPUTS),
    Preset("supervised, classes", partial(SupervisedPPCA, n_components=1), X, np.array(["no", "yes"])[CLASSES]),
    Preset("supervised, multi-label", partial(SupervisedPPCA, n_components=2), X, (OUTPUTS > 0).astype(int)),
    Preset("semi-supervised, regression", partial(SupervisedPPCA, n_components=2), X, hide(OUTPUTS, LABELLED)),
    Preset("semi-supervised, classes", partial(SupervisedPPCA, n_components=1), X, np.where(LABELLED, CLASSES, -1)),
    Preset("ppca, dual", partial(PPCA, n_components=3), WIDE, solvers=DUAL),
    Preset("supervised, dual", partial(SupervisedPPCA, n_components=2), WIDE, OUTPUT, solvers=DUAL),
    Preset(
        "semi-supervised, dual", partial(SupervisedPPCA, n_components=2), WIDE, hide(OUTPUT, np.arange(20) % 2 == 0),
        solvers=DUAL,
    ),
    Preset("relational", partial(RelationalPPCA, n_components=3), X, graph=GRAPH),
    Preset("relational, weights", partial(RelationalPPCA, n_components=2, alpha=0.5, gamma=0.2), X, graph=0.3 * GRAPH),
    GivenPreset("relational, precision given", partial(RelationalPPCA, n_components=3), X, graph=GIVEN),
    Preset("relational supervised", partial(RelationalSupervisedPPCA, n_components=2), X, OUTPUTS[:, :1], graph=GRAPH),
    BoundPreset("relational, a prior", partial(RelationalPPCA, n_components=2, prior="ard"), X, graph=GRAPH),
    SmoothedBoundPreset(
        "smoothed, a prior", partial(GraphPPCA, n_components=2, smoothing=3.0, prior="ard"), X, graph=GRAPH
    ),
    SmoothedPreset("smoothed", partial(GraphPPCA, n_components=3, smoothing=3.0), X, graph=GRAPH),
    SmoothedPreset("smoothed, λ chosen", partial(GraphPPCA, n_components=2), X, graph=GRAPH),
    SmoothedPreset(
        "smoothed, weights", partial(GraphPPCA, n_components=2, smoothing=0.5, hops=3), X, graph=sp.csr_array(WEIGHTED)
    ),
    AveragedPreset(
        "smoothed, entries missing",
        partial(GraphPPCA, n_components=2, missing="nan", scale="none", smoothing=0.3, hops=1),
        HOLES, graph=GRAPH, **BY_ROWS,
    ),
    ViewsPreset("two views", partial(CorrespondencePPCA, n_components=2), PAIRS, sizes=TWO, has=SOME),
    ViewsPreset("three views", partial(CorrespondencePPCA, n_components=2), TRIPLES, sizes=THREE, has=FEW),
    ViewsPreset("complete views", partial(CorrespondencePPCA, n_components=2), PAIRS, sizes=TWO, has=ALL),
    ViewsPreset(
        "two views and targets", partial(CorrespondenceSupervisedPPCA, n_components=2), PAIRS, hide(SUMS, PARTLY),
        sizes=TWO, has=SOME,
    ),
    ViewsPreset(
        "two views and classes", partial(CorrespondenceSupervisedPPCA, n_components=2), PAIRS, SIGNS, sizes=TWO,
        has=SOME,
    ),
    ViewsPreset(
        "complete views and targets", partial(CorrespondenceSupervisedPPCA, n_components=2), PAIRS, SUMS, sizes=TWO,
        has=ALL,
    ),
    ViewsPreset(
        "factor analysis of two views",
        partial(CorrespondenceFactorAnalysis, n_components=2),
        TESTS,
        sizes=(7, 6),
        has=some_views(70, 2, random_state=0),
        solvers=("covariance", "accelerated_em"),
    ),
    MixturePreset("mixture", partial(PPCAMixture, n_components=2, n_mixtures=2), MIXED),
    MixturePreset(
        "mixture of factor analysers",
        partial(PPCAMixture, n_components=1, n_mixtures=2, noise="diagonal", noise_prior=0.0), FACTORS,
    ),
]  # fmt: skip


SLOW = (
    "factor analysis, a prior", "factor analysis, entries missing", "factor analysis of two views",
    "semi-supervised, dual", "supervised, a prior", "mixture of factor analysers", "three views",
    "two views and classes", "complete views and targets",
)  # fmt: skip
"""The first three begin their fits at many places; what the others add shows in few laws."""
EACH = pytest.mark.parametrize(
    "preset", [pytest.param(one, id=str(one), marks=[pytest.mark.slow] * (str(one) in SLOW)) for one in PRESETS]
)


@EACH
class TestConformance(Conformance):
    pass


class Broken(PPCA):
    """A model whose likelihoods are a little off: the suite must notice."""

    def score_samples(self, X, **options):
        return super().score_samples(X, **options) + 0.01


@pytest.mark.slow
@EACH
def test_a_result_is_written_as_netcdf(preset, tmp_path):
    """By h5netcdf, which takes no truth values, and by scipy, whose format has no long integers."""
    pytest.importorskip("h5netcdf")
    result = preset.fitted.result_
    for engine in ("h5netcdf", "scipy"):
        result.to_netcdf(tmp_path / engine, engine=engine)
        with xr.open_dataset(tmp_path / engine, engine=engine) as again:
            assert again.attrs["converged"] == preset.fitted.converged_
            assert set(again.data_vars) == set(result.data_vars)


def test_the_suite_notices_a_broken_model():
    with pytest.raises(AssertionError):
        check_estimator(Preset("broken", partial(Broken, n_components=2), X))


def test_the_suite_runs_without_pytest():
    assert len(check_estimator(PRESETS[0])) >= 18
