"""Views whose entries have distributions of their own, through public names; and the E-step by definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg as la
import scipy.sparse as sp
import scipy.stats as st
import zarr
from hypothesis import given
from hypothesis import strategies as some
from scipy.special import logsumexp

from dlatent import (
    PPCA,
    CorrespondenceFactorAnalysis,
    CorrespondencePPCA,
    DataError,
    DataWarning,
    FactorAnalysis,
    JointViews,
    load,
    select_n_components,
)
from dlatent.arrays import Array
from dlatent.cli.main import main
from dlatent.gaussian.specification import Parameters
from dlatent.observations import OBSERVATION_MODELS
from dlatent.observations.by_view import ByView
from dlatent.observations.posterior import Own
from tests.observations.cases import distribution, drawn, log_density

pytestmark = pytest.mark.filterwarnings("ignore::dlatent.DataWarning")
Table = npt.NDArray[np.int64]
N, GENES, PROTEINS = 600, 30, 8
KINDS = [CorrespondencePPCA, CorrespondenceFactorAnalysis]
NAMES = ("normal", "student", "poisson", "bernoulli", "negative_binomial")
GRID = np.linspace(-9.0, 9.0, 1501)
SHAPES = {"student": 4.0, "negative_binomial": 5.0}
"""Where the parameters of shape begin."""


class Cells:
    """Counts of genes and levels of proteins of the same cells, by NumPy alone."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        z, depth = rng.normal(size=(N, 2)), 0.6 * rng.normal(size=(N, 1))
        self.genes, self.proteins = 0.7 * rng.normal(size=(GENES, 2)), rng.normal(size=(PROTEINS, 2))
        self.predictors = z @ self.genes.T - 0.3
        self.counts = rng.poisson(np.exp(self.predictors + depth)).astype(float)
        self.expected = z @ self.proteins.T + 3.0
        self.levels = self.expected + 0.5 * rng.normal(size=(N, PROTEINS))

    def views(self, rows: slice = slice(None)) -> dict[str, Array]:
        return {"rna": self.counts[rows], "protein": self.levels[rows]}


CELLS = Cells()
EVERY = np.column_stack([np.arange(N)] * 2)
LIKELIHOOD = {"rna": "poisson"}


def degrees(found: Array, loadings: Array) -> float:
    return float(np.degrees(la.subspace_angles(found[: loadings.shape[1]].T, loadings).max()))


@pytest.fixture(scope="module")
def model() -> Any:
    return CorrespondencePPCA(2, likelihood=LIKELIHOOD).fit(CELLS.views(), correspondence=EVERY)


def of_all(width: int, seed: int) -> tuple[ByView, Parameters, Own]:
    """Views of all distributions, so many features each, with one component."""
    rng, d = np.random.default_rng(seed), width * len(NAMES)
    views = ByView(tuple(OBSERVATION_MODELS[name] for name in NAMES), (width,) * len(NAMES))
    shape, noise = views.first_shape(d), np.full(d, 0.4)
    parameters = Parameters(0.8 * rng.normal(size=(d, 1)), rng.normal(-0.3, 0.5, d), noise, shape=shape)
    return views, parameters, Own(noise, shape)


@given(seed=some.integers(0, 99))
def test_means_and_variances_are_those_of_entries_whose_predictors_are_normal(seed: int) -> None:
    views, _, own = of_all(2, seed)
    rng = np.random.default_rng(seed)
    e, v = rng.normal(size=(4, 2 * len(NAMES))), rng.uniform(0.1, 0.5, (4, 2 * len(NAMES)))
    weights = st.norm.pdf(GRID) * (GRID[1] - GRID[0])
    mean, variance = views.mean(e, v), views.variance(e, v, own)
    for at, name in enumerate(NAMES):
        cells = np.s_[:, 2 * at : 2 * at + 2]
        eta = e[cells][..., None] + np.sqrt(v[cells])[..., None] * GRID
        inside, spread = distribution(name, eta, 0.4, SHAPES.get(name)).stats("mv")
        expected = inside @ weights
        np.testing.assert_allclose(mean[cells], expected, rtol=1e-6)
        total = (spread + (inside - expected[..., None]) ** 2) @ weights
        np.testing.assert_allclose(variance[cells], total, rtol=1e-6)


@given(seed=some.integers(0, 99))
def test_the_bound_is_below_the_evidence_and_near_it(seed: int) -> None:
    views, parameters, own = of_all(3, seed)
    rng = np.random.default_rng(seed)
    x = views.sample(10, parameters, own, rng)
    seen = np.repeat((rng.random((10, len(NAMES))) > 0.3).astype(float), 3, axis=1)  # a sample lacks whole views
    about = views.expectation(x * seen, seen, parameters, own)
    eta = GRID[:, None, None] * parameters.loadings[:, 0] + parameters.mean
    each = np.tile(st.norm.logpdf(GRID)[:, None], 10)
    for at, name in enumerate(NAMES):
        some_of = slice(3 * at, 3 * at + 3)
        each += (
            seen[:, some_of] * log_density(name, x[None, :, some_of], eta[:, :, some_of], 0.4, SHAPES.get(name))
        ).sum(axis=2)
    gap = logsumexp(each, axis=0) + np.log(GRID[1] - GRID[0]) - about.bound
    assert gap.min() > -1e-7
    assert gap.sum() / max(seen.sum(), 1.0) < 0.05


@given(seed=some.integers(0, 99))
def test_views_of_normal_entries_have_the_exact_posterior(seed: int) -> None:
    rng, normal = np.random.default_rng(seed), OBSERVATION_MODELS["normal"]
    parameters = Parameters(rng.normal(size=(7, 2)), rng.normal(size=7), rng.uniform(0.1, 2.0, 7))
    own, x = Own(parameters.noise_variance, None), rng.normal(size=(20, 7))
    seen = np.hstack([np.repeat((rng.random((20, 1)) > 0.3).astype(float), 3, axis=1), np.ones((20, 4))])
    exact = normal.expectation(x * seen, seen, parameters, own)
    found = ByView((normal, normal), (3, 4)).expectation(x * seen, seen, parameters, own)
    for one, other in ((exact.mean, found.mean), (exact.covariance, found.covariance), (exact.bound, found.bound)):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "student", "bernoulli"])
def test_views_of_one_likelihood_are_one_table(name: str) -> None:
    """Student's views have noise variances of their own, and so have features in factor analysis; of these each view
    has degrees of freedom of its own."""
    rows = drawn(name, 300, 12)
    pieces, options = (rows[:, :5], rows[:, 5:]), {"likelihood": name, "tol": 1e-10}
    views = CorrespondencePPCA(2, **options).fit(pieces, correspondence="rows")
    table = PPCA(2, **options).fit(rows)
    more = 20.0 if name == "student" else 1e-6 * abs(table.log_likelihood_)
    assert -1e-6 * abs(table.log_likelihood_) < views.log_likelihood_ - table.log_likelihood_ < more
    found = np.hstack(list(views.components_.values()))
    assert np.degrees(la.subspace_angles(found.T, table.components_.T).max()) < (2.0 if name == "student" else 0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_lack_views_tell_of_the_loadings_too(kind: Any) -> None:
    paired = np.column_stack([np.arange(200, 400), np.arange(200)])
    views = {"rna": CELLS.counts[:400], "protein": CELLS.levels[200:]}
    model = kind(2, likelihood=LIKELIHOOD).fit(views, correspondence=paired)
    heights = model.history_["iteration_log_likelihood"].values
    assert (np.diff(heights) >= -1e-9 * np.abs(heights[1:])).all()
    assert model.converged_
    assert model.view_samples_ == {"rna": 400, "protein": 400}
    assert degrees(model.components_["rna"], CELLS.genes) < 8.0
    assert degrees(model.components_["protein"], CELLS.proteins) < 4.0
    np.testing.assert_allclose(np.mean(model.noise_variance_["protein"]), 0.25, rtol=0.1)
    total = model.score_samples(views, correspondence=paired).sum()
    assert float(total) == pytest.approx(model.log_likelihood_, rel=1e-8)


def test_counts_have_a_level_of_their_sample_and_others_have_not(model: Any) -> None:
    assert model.n_components_ == 2
    assert "poisson" in str(model._summary_lines())
    assert not model.components_["protein"][-1].any()
    assert np.ptp(model.components_["rna"][-1]) < 1e-12
    assert model.components_["rna"][-1, 0] == pytest.approx(0.6, rel=0.1)
    assert np.asarray(model.noise_variance_["rna"]) == 0.0
    plain = CorrespondencePPCA(2, likelihood=LIKELIHOOD, row_effects=False).fit(CELLS.views(), correspondence=EVERY)
    assert plain.components_["rna"].shape == (2, GENES)
    assert plain.log_likelihood_ < model.log_likelihood_ - 100.0


def test_one_view_tells_of_the_other(model: Any) -> None:
    found = model.reconstruct(CELLS.counts, "rna", "protein")
    unexplained = ((found - CELLS.expected) ** 2).sum() / ((CELLS.expected - CELLS.expected.mean(axis=0)) ** 2).sum()
    assert unexplained < 0.2
    counts = model.reconstruct(CELLS.levels, "protein", "rna")
    assert np.corrcoef(np.log(counts).ravel(), CELLS.predictors.ravel())[0, 1] > 0.9
    assert counts.mean() == pytest.approx(CELLS.counts.mean(), rel=0.1)
    filled = model.impute({"rna": CELLS.counts[:5], "protein": CELLS.levels[:3]}, correspondence=[[0, 0]])
    np.testing.assert_array_equal(filled["rna"], CELLS.counts[:5])
    every = model.impute({"rna": CELLS.counts[:5]}, every_view=True)
    np.testing.assert_allclose(every["protein"].values, found[:5], rtol=1e-6)


def test_scores_are_known_as_well_as_they_say(model: Any) -> None:
    rows = model.sample(4000, random_state=1)
    about = model.posterior(rows, correspondence="rows")
    assert about["covariance"].dims == ("sample", "component", "component_2")
    np.testing.assert_allclose(about["scores"].values, model.transform(rows, correspondence="rows").values)
    second = (about["scores"].values[:, :, None] * about["scores"].values[:, None, :]).mean(axis=0)
    np.testing.assert_allclose(second + about["covariance"].values.mean(axis=0), np.eye(3), atol=0.08)
    expected = model.inverse_transform(np.zeros((1, 3)), "rna")
    np.testing.assert_allclose(expected, np.exp(model.mean_["rna"])[None], rtol=1e-12)


def test_results_do_not_depend_on_containers_and_chunks(tmp_path: Path, model: Any) -> None:
    zarr.create_array(tmp_path / "rna.zarr", data=CELLS.counts, chunks=(64, GENES))
    kinds: list[dict[str, Any]] = [
        {"rna": sp.csr_array(CELLS.counts), "protein": CELLS.levels},
        {"rna": str(tmp_path / "rna.zarr"), "protein": da.from_array(CELLS.levels, chunks=(100, PROTEINS))},
    ]
    for views in kinds:
        again = CorrespondencePPCA(2, likelihood=LIKELIHOOD).fit(views, correspondence=EVERY)
        np.testing.assert_allclose(again.components_["rna"], model.components_["rna"], rtol=1e-6, atol=1e-8)
    zeros, scores = sp.csr_array(CELLS.counts), model.transform({"rna": CELLS.counts})
    np.testing.assert_allclose(model.transform({"rna": zeros}), scores, rtol=1e-9, atol=1e-12)


HOLES = np.where(np.random.default_rng(7).random(CELLS.levels.shape) < 0.2, np.nan, CELLS.levels)
OTHERS = np.log1p(CELLS.counts[:, :6])


def test_views_with_missing_entries_are_those_of_one_table() -> None:
    options: dict[str, Any] = {"missing": "nan", "tol": 1e-11}
    views = {"protein": HOLES, "rna": OTHERS}
    model = CorrespondenceFactorAnalysis(2, **options).fit(views, correspondence="rows")
    table = FactorAnalysis(2, prior="ml", **options).fit(np.hstack(list(views.values())))
    assert model.log_likelihood_ == pytest.approx(table.log_likelihood_, rel=1e-10)
    filled, expected = model.impute(views, correspondence="rows"), table.impute(np.hstack(list(views.values())))
    np.testing.assert_allclose(filled["protein"], expected[:, :PROTEINS], rtol=1e-5)
    whole = {"protein": CELLS.levels, "rna": OTHERS}
    around, plain = (kind.fit(whole, correspondence="rows") for kind in (model, CorrespondenceFactorAnalysis(2)))
    assert around.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_that_of_the_observed_entries_of_the_views_that_samples_have(kind: Any) -> None:
    paired = np.column_stack([np.arange(200, 400), np.arange(200)])
    views = {"protein": HOLES[:400], "rna": OTHERS[200:]}
    model = kind(2, missing="nan").fit(views, correspondence=paired)
    rows = np.full((N, PROTEINS + 6), np.nan)
    rows[:400, :PROTEINS], rows[200:, PROTEINS:] = views["protein"], views["rna"]
    loadings, mean = (np.concatenate(list(each.values()), axis=-1).T for each in (model.components_, model.mean_))
    noise = [
        np.broadcast_to(each, size) for each, size in zip(model.noise_variance_.values(), (PROTEINS, 6), strict=True)
    ]
    covariance, total = loadings @ loadings.T + np.diag(np.concatenate(noise)), 0.0
    for row in rows:
        seen = np.flatnonzero(~np.isnan(row))
        if len(seen):
            total += st.multivariate_normal.logpdf(row[seen], mean[seen], covariance[np.ix_(seen, seen)])
    assert model.log_likelihood_ == pytest.approx(total, rel=1e-9)
    assert float(model.score_samples(views, correspondence=paired).sum()) == pytest.approx(total, rel=1e-9)


def test_counts_may_be_missing_too(tmp_path: Path) -> None:
    counts = np.where(np.random.default_rng(8).random(CELLS.counts.shape) < 0.2, np.nan, CELLS.counts)
    views = {"rna": counts, "protein": HOLES}
    model = CorrespondencePPCA(2, likelihood=LIKELIHOOD, missing="nan").fit(views, correspondence=EVERY)
    assert degrees(model.components_["rna"], CELLS.genes) < 8.0
    filled, lost = model.impute(views, correspondence=EVERY)["rna"], np.isnan(counts)
    assert np.corrcoef(np.log(filled[lost]), CELLS.predictors[lost])[0, 1] > 0.7
    np.testing.assert_array_equal(filled[~lost], counts[~lost])
    model.save(tmp_path / "m.zarr")
    np.testing.assert_array_equal(
        load(tmp_path / "m.zarr").transform({"rna": counts}), model.transform({"rna": counts})
    )
    with pytest.raises(DataError, match=r"view 'rna', row 0, column .* is nan; .*missing='nan'"):
        CorrespondencePPCA(2, likelihood=LIKELIHOOD).fit(views, correspondence=EVERY)
    views["protein"] = np.where(np.arange(PROTEINS) == 1, np.nan, HOLES)
    with pytest.warns(DataWarning, match=r"1 of 38 features were never observed \(columns 1 of the view 'protein'\)"):
        CorrespondencePPCA(2, likelihood=LIKELIHOOD, missing="nan").fit(views, correspondence=EVERY)
    with pytest.raises(DataError, match="scale='spread' is for complete samples of normal entries"):
        CorrespondencePPCA(2, missing="nan", scale="spread").fit(views, correspondence=EVERY)


def test_the_number_of_components_is_found() -> None:
    assert CorrespondencePPCA(likelihood=LIKELIHOOD).fit(CELLS.views(), correspondence=EVERY).n_components_ == 2
    joint = JointViews(CELLS.views(slice(200)), correspondence="rows")
    compared = select_n_components(CorrespondencePPCA(likelihood=LIKELIHOOD, tol=1e-5), joint, [1, 2])
    assert compared.attrs["best"] == 2


def test_entries_that_may_not_be_are_named(model: Any) -> None:
    bad, turned = CELLS.counts.copy(), EVERY[::-1]
    bad[7, 3] = -1.0
    views = {"rna": bad, "protein": CELLS.levels}
    with pytest.raises(DataError, match=r"view 'rna', row 7, column 3 is -1, and not a count"):
        CorrespondencePPCA(2, likelihood=LIKELIHOOD).fit(views, correspondence=turned)
    with pytest.raises(DataError, match=r"view 'rna', row 7, column 3 is -1, and not a count"):
        model.transform(views, correspondence=turned)
    with pytest.raises(DataError, match=r"row 7, column 3 is -1"):
        model.transform({"rna": bad})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"likelihood": {"dna": "poisson"}}, "likelihood names the view 'dna'; there are 'rna', 'protein'"),
        ({"likelihood": {"rna": "student_rows"}}, "expected one of normal, student, poisson, bernoulli"),
        ({"likelihood": "counts"}, "expected one of normal, student, poisson, bernoulli"),
        ({"likelihood": LIKELIHOOD, "scale": "spread"}, "scale='spread' is for complete samples of normal entries"),
        ({"likelihood": LIKELIHOOD, "noise": "zero"}, "noise='zero' is for complete samples of normal entries"),
        ({"likelihood": "student", "row_effects": True}, "row_effects=True is for counts, and no view has any"),
        ({"row_effects": True}, "row_effects=True is for counts, and no view has any"),
    ],
)
def test_what_does_not_go_with_a_likelihood_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        CorrespondencePPCA(2, **options).fit(CELLS.views(), correspondence=EVERY)


def test_what_normal_entries_alone_have_is_refused(model: Any) -> None:
    for ask in (
        lambda: model.predictive_variance("rna", "protein"),
        lambda: model.get_covariance("rna"),
        lambda: model.reconstruct(CELLS.counts, "rna", "protein", return_variance=True),
    ):
        with pytest.raises(DataError, match=r"is of normal entries, and this model has likelihood='poisson, normal'"):
            ask()


def test_commands_name_the_likelihoods_of_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rows in CELLS.views().items():
        zarr.create_array(tmp_path / f"{name}.zarr", data=rows, chunks=(200, rows.shape[1]))
    np.save(tmp_path / "rows.npy", EVERY)
    given = [f"{name}={tmp_path / name}.zarr" for name in CELLS.views()]
    place = str(tmp_path / "model.zarr")
    command = ["fit", "correspondence", *given, "--correspondence", str(tmp_path / "rows.npy"), "-o", place]
    assert main([*command, "-k", "2", "--likelihood", "rna=poisson"]) == 0
    assert load(place).likelihood == {"rna": "poisson"}
    assert main([*command, "-k", "2", "--likelihood", "rna=counts", "--overwrite"]) == 2
    assert "'rna=counts' is not one of normal, student" in capsys.readouterr().err
