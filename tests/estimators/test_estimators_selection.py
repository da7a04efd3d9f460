"""Numbers of components compared by folds of the samples, and by one spectrum, for all models."""

from __future__ import annotations

import json
import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from scipy.stats import norm
from sklearn import decomposition
from sklearn.datasets import load_wine
from sklearn.model_selection import KFold, ShuffleSplit, cross_val_score
from sklearn.preprocessing import scale

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    DataError,
    DataWarning,
    FactorAnalysis,
    JointViews,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
    open_graph,
    select_n_components,
)
from dlatent.cli.main import main
from dlatent.gaussian.missing_entries.incomplete import Hiding, hidden
from tests.simulators import simulate

SIMULATED = simulate(240, (10, 2), 3, noise=(0.3, 0.3), random_state=2)
X, Y = SIMULATED.features, SIMULATED.targets
FACTORS = simulate(240, (12,), 2, noise=(1.0,), random_state=1).features * np.linspace(1.0, 3.0, 12)
WINE = scale(load_wine().data)
RING = sp.csr_array(np.roll(np.eye(240), 1, axis=0) + np.roll(np.eye(240), -1, axis=0))
PAIRS = np.column_stack([np.arange(240), np.where(np.arange(240) < 200, np.arange(240), -1)])
JOINT = JointViews({"left": X[:, :6], "right": X[:200, 6:]}, correspondence=PAIRS)
FOLDS = KFold(3)
NUMBERS = [1, 2, 3, 4, 5]


def chosen(model: Any, data: Any = X, **options: Any) -> int:
    return int(select_n_components(model, data, NUMBERS, **options).attrs["best"])


@pytest.mark.parametrize("criterion", ["held_out", "cross_validation", "bic", "evidence", "parallel"])
def test_every_criterion_finds_the_planted_number(criterion: str) -> None:
    assert chosen(PPCA(), criterion=criterion) == 3


@pytest.mark.parametrize("criterion", ["cross_validation", "bic"])
def test_the_planted_number_of_factors_is_found(criterion: str) -> None:
    found = select_n_components(FactorAnalysis(), FACTORS, [1, 2, 3], criterion=criterion, cv=2)
    assert found.attrs["best"] == 2


SEARCHED = {
    "ppca": (PPCA(), X, None),
    "missing": (PPCA(missing="nan"), np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X), None),
    "sparse": (PPCA(), sp.csr_array(np.where(abs(X) < 1, 0.0, X)), None),
    "mixture": (PPCAMixture(n_mixtures=2, n_init=1, random_state=0), X, None),
    "supervised": (SupervisedPPCA(), X, Y),
    "classes": (SupervisedPPCA(target_noise_floor=0.1), X, np.where(np.arange(240) < 200, Y[:, 0] > 0, -1)),
    "kernel": (KernelPPCA(gamma=0.01), X, None),
    "kernel, supervised": (KernelSupervisedPPCA(gamma=0.01), X, Y),
    "views": (CorrespondencePPCA(), JOINT, None),
    "views, supervised": (CorrespondenceSupervisedPPCA(), JOINT, Y),
}


SLOWER = ("mixture", "classes", "kernel, supervised", "views, supervised")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOWER)) for name in SEARCHED])
def test_folds_are_those_of_scikit_learn(name: str) -> None:
    model, data, y = SEARCHED[name]
    found = select_n_components(model, data, [1, 2], y, criterion="cross_validation", cv=FOLDS)
    for at, k in enumerate((1, 2)):
        expected = cross_val_score(model.set_params(n_components=k), data, y, cv=FOLDS, error_score="raise")
        np.testing.assert_allclose(found["fold_log_likelihood"][at], expected, rtol=1e-9)
        assert found["cross_validated_log_likelihood"][at] == pytest.approx(expected.mean(), rel=1e-9)
    assert found.attrs["score"] == "cross_validated_log_likelihood"


@pytest.mark.parametrize(("model", "y"), [(RelationalPPCA(), None), (RelationalSupervisedPPCA(), Y)])
def test_folds_of_graphs_have_the_edges_between_their_samples(model: Any, y: Any) -> None:
    found = select_n_components(model, X, [1, 2], y, graph=RING, cv=FOLDS)
    assert found.attrs["criterion"] == "cross_validation"
    for at, k in enumerate((1, 2)):
        options = {"y": y, "cv": FOLDS, "params": {"graph": open_graph(RING)}, "error_score": "raise"}
        expected = cross_val_score(model.set_params(n_components=k), X, **options)
        np.testing.assert_allclose(found["fold_log_likelihood"][at], expected, rtol=1e-9)


def test_the_likelihood_of_factors_is_that_of_scikit_learn() -> None:
    found = select_n_components(FactorAnalysis(), FACTORS, [2], criterion="cross_validation", cv=FOLDS)
    other = decomposition.FactorAnalysis(2, tol=1e-8, max_iter=5000, svd_method="lapack")
    np.testing.assert_allclose(found["fold_log_likelihood"][0], cross_val_score(other, FACTORS, cv=FOLDS), rtol=1e-6)


def test_the_number_of_components_is_that_which_scikit_learn_finds_for_pca() -> None:
    """Its noise variance is divided by N - 1, so that its likelihoods differ a little."""
    scores = [cross_val_score(decomposition.PCA(k, svd_solver="full"), X, cv=FOLDS).mean() for k in NUMBERS]
    found = select_n_components(PPCA(), X, NUMBERS, criterion="cross_validation", cv=FOLDS)
    np.testing.assert_allclose(found["cross_validated_log_likelihood"], scores, rtol=2e-3)
    assert found.attrs["best"] == NUMBERS[int(np.argmax(scores))]


def test_samples_are_shuffled_and_depend_on_the_seed() -> None:
    options: dict[str, Any] = {"criterion": "cross_validation", "random_state": 3}
    found = select_n_components(PPCA(), X, [2], cv=4, **options)
    by_hand = select_n_components(PPCA(), X, [2], cv=KFold(4, shuffle=True, random_state=3), **options)
    np.testing.assert_array_equal(found["fold_log_likelihood"], by_hand["fold_log_likelihood"])
    other = select_n_components(PPCA(), X, [2], cv=4, criterion="cross_validation")
    assert other["fold_log_likelihood"].shape == (1, 4)
    assert (other["fold_log_likelihood"].values != found["fold_log_likelihood"].values).all()
    splits = ShuffleSplit(2, random_state=0)
    found = select_n_components(SupervisedPPCA(2), X, [2], Y, cv=splits, criterion="cross_validation")
    expected = cross_val_score(SupervisedPPCA(2), X, Y, cv=splits)
    np.testing.assert_allclose(found["fold_log_likelihood"][0], expected, rtol=1e-9)


@pytest.mark.parametrize("criterion", ["held_out", "cross_validation", "parallel"])
def test_bits_do_not_depend_on_where_it_runs(client: Any, criterion: str) -> None:
    lazy = da.from_array(X, chunks=(100, 4))
    found = select_n_components(PPCA(tol=1e-3), lazy, [2], criterion=criterion, cv=2, client=client)
    assert found.identical(select_n_components(PPCA(tol=1e-3), lazy, [2], criterion=criterion, cv=2, client="serial"))


@pytest.mark.parametrize("blocks", [X, da.from_array(X, chunks=(7, -1)), sp.csr_array(X)], ids=["one", "many", "csr"])
def test_folds_of_blocks_are_those_of_rows(blocks: Any, tmp_path: Any) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(33, 10))
    by_rows = select_n_components(PPCA(), str(tmp_path / "x.zarr"), [2], criterion="cross_validation")
    found = select_n_components(PPCA(), blocks, [2], criterion="cross_validation")
    np.testing.assert_allclose(found["fold_log_likelihood"], by_rows["fold_log_likelihood"], rtol=1e-9)


def test_the_criterion_from_the_spectrum_is_that_of_the_fits() -> None:
    found = select_n_components(PPCA(), WINE, [1, 4, 9], criterion="bic")
    expected = [PPCA(k).fit(WINE).bic(WINE) for k in (1, 4, 9)]
    np.testing.assert_allclose(found["bic"], expected, rtol=1e-10)
    by_fits = select_n_components(FactorAnalysis(), FACTORS, [1, 2], criterion="bic")
    np.testing.assert_array_equal(by_fits["bic"], [FactorAnalysis(k).fit(FACTORS).bic(FACTORS) for k in (1, 2)])


@pytest.mark.parametrize("criterion", ["bic", "evidence"])
@pytest.mark.parametrize("data", [WINE, X])
def test_all_numbers_by_the_spectrum_are_compared_as_the_model_itself_compares_them(criterion: str, data: Any) -> None:
    rule = "bic" if criterion == "bic" else "mle"
    found = select_n_components(PPCA(), data, range(1, data.shape[1]), criterion=criterion)
    assert found.attrs["best"] == PPCA(rule).fit(data).n_components_


@pytest.mark.parametrize("criterion", ["bic", "evidence"])
def test_numbers_that_leave_no_noise_are_not_compared(criterion: str) -> None:
    flat = np.hstack([X[:, :4], X[:, :4]])
    found = select_n_components(PPCA(), flat, [1, 2, 3, 4, 5], criterion=criterion)
    assert np.isnan(found[found.attrs["score"]].values).tolist() == [False, False, False, True, True]
    with pytest.raises(DataError, match="leaves no noise"):
        select_n_components(PPCA(), flat, [4, 5], criterion=criterion)


@pytest.mark.parametrize("model", [PPCA(), FactorAnalysis()])
@pytest.mark.parametrize("criterion", ["held_out", "cross_validation", "bic", "evidence", "parallel"])
def test_noise_has_no_components(model: Any, criterion: str) -> None:
    if isinstance(model, PPCA) or criterion not in ("evidence", "parallel"):
        noise = np.random.default_rng(3).normal(size=(100, 8))
        assert select_n_components(model, noise, [0, 1, 2], criterion=criterion).attrs["best"] == 0


def test_no_components_are_independent_noise() -> None:
    """About the means of the rows that a fit saw, with their variances, whose mean is the one of PPCA."""
    (one, other), samples = FOLDS.split(FACTORS).__next__(), len(FACTORS)
    for model, noise in ((PPCA(), FACTORS[one].var(axis=0).mean()), (FactorAnalysis(), FACTORS[one].var(axis=0))):
        found = select_n_components(model, FACTORS, [0], criterion="cross_validation", cv=FOLDS)
        expected = norm.logpdf(FACTORS[other], FACTORS[one].mean(axis=0), np.sqrt(noise)).sum(axis=1).mean()
        assert found["fold_log_likelihood"].values[0, 0] == pytest.approx(expected, rel=1e-9)
        free = 12 + np.size(noise)
        noise = np.full(12, FACTORS.var(axis=0).mean()) if np.size(noise) == 1 else FACTORS.var(axis=0)
        twice = -2.0 * norm.logpdf(FACTORS, FACTORS.mean(axis=0), np.sqrt(noise)).sum()
        found = select_n_components(model, FACTORS, [0], criterion="bic")
        assert found["bic"].item() == pytest.approx(twice + free * np.log(samples), rel=1e-9)
    hiding = Hiding(0.1, 0)
    rest = hidden(FACTORS, 0, hiding)
    cells = np.isnan(rest)
    found = select_n_components(FactorAnalysis(), FACTORS, [0])
    each = norm.logpdf(FACTORS, np.nanmean(rest, axis=0), np.nanstd(rest, axis=0))[cells]
    assert found["held_out_log_likelihood"].item() == pytest.approx(each.mean(), rel=1e-9)
    with pytest.raises(DataError, match="compared for PPCA"):
        select_n_components(PPCAMixture(), X, [0, 1])


def test_a_feature_that_a_fold_has_not_is_as_noisy_as_others_without_components_too() -> None:
    gaps = FACTORS.copy()
    gaps[1:, 4] = np.nan
    found = select_n_components(FactorAnalysis(missing="nan"), gaps, [0, 1], criterion="cross_validation", cv=FOLDS)
    without, one = found["fold_log_likelihood"].values[:, 0]
    assert one - 5.0 < without < one


@pytest.mark.parametrize("numbers", [[2, 3], [3, 4], [1, 3, 8], [3]])
def test_a_best_at_an_edge_of_the_candidates_is_a_warning(numbers: list[int]) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert select_n_components(PPCA(), X, numbers, criterion="evidence").attrs["best"] == 3
    expected = {3: "largest that was compared, 3", 4: "smallest that was compared, 3"}.get(max(numbers))
    assert [expected in str(each.message) for each in said] == ([True] if expected and len(numbers) > 1 else [])


@pytest.mark.parametrize("criterion", ["held_out", "cross_validation", "evidence"])
def test_noise_that_differs_between_features_is_that_of_factor_analysis(criterion: str) -> None:
    loud = X[:, :8] + 2.0 * np.random.default_rng(0).normal(size=(240, 8)) * (np.arange(8) < 3)
    with pytest.warns(DataWarning, match="FactorAnalysis, with a noise variance for each feature"):
        select_n_components(PPCA(), loud, range(8), criterion=criterion)


def test_held_out_cells_tell_the_planted_number() -> None:
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 12)) + 0.7 * rng.normal(size=(200, 12))
        found.append(select_n_components(PPCA(), x, range(1, 7)).attrs["best"])
    assert found.count(3) >= 11


def test_noise_has_no_component_above_noise() -> None:
    found = select_n_components(PPCA(), np.random.default_rng(3).normal(size=(100, 30)), [1, 2], criterion="parallel")
    assert not found["above_noise"].any()
    assert found.attrs["best"] == 1
    wide = simulate(60, (150,), 3, noise=(0.3,), random_state=1).features
    assert chosen(PPCA(), wide, criterion="parallel") == 3


@pytest.mark.parametrize("data", [X, sp.csr_array(X)])
def test_what_is_compared_where_nothing_is_said(data: Any) -> None:
    expected = "cross_validation" if sp.issparse(data) else "held_out"
    assert select_n_components(PPCA(), data, [2]).attrs["criterion"] == expected
    assert select_n_components(PPCAMixture(n_init=1), data, [2]).attrs["criterion"] == "cross_validation"


REFUSED = {
    "no likelihood": (LocallyLinearEmbedding(), X, {}, "no likelihood.*GridSearchCV"),
    "no missing entries": (PPCAMixture(), X, {"criterion": "held_out"}, "criterion='cross_validation'"),
    "no bic": (KernelPPCA(), X, {"criterion": "bic"}, "for models that have `bic`; take 'auto'"),
    "no spectrum": (PPCA(missing="nan"), X, {"criterion": "evidence"}, "PPCA of complete data"),
    "too few samples": (PPCA(), X[:10], {"criterion": "evidence"}, "more samples than features"),
    "a kernel by its values": (KernelPPCA(kernel="precomputed"), X @ X.T, {}, "precomputed kernel.*name the kernel"),
    "views": (CorrespondencePPCA(), [X, X], {}, r"JointViews\(views, correspondence=…\)"),
    "views of no such model": (PPCA(), JOINT, {}, "one table of samples"),
    "no criterion": (PPCA(), X, {"criterion": "aic"}, "'auto', 'held_out', 'cross_validation'"),
    "targets of other rows": (SupervisedPPCA(), X, {"y": Y[:50]}, "y has 50 rows; the data have 240"),
    "no graph": (RelationalPPCA(), X, {}, "edges are missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_refused_with_a_way_out(name: str) -> None:
    model, data, options, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        select_n_components(model, data, [1, 2], **options)


@pytest.mark.slow
def test_the_command_takes_every_criterion(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(60, 10))
    place = str(tmp_path / "x.zarr")
    for criterion in ("cross_validation", "bic", "evidence", "parallel"):
        assert main(["choose", "ppca", place, "-k", "2,3,4", "--criterion", criterion]) == 0
        assert "best       3\n" in capsys.readouterr().out
    assert main(["choose", "mixture", place, "-k", "2,3", "-m", "1", "--folds", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = select_n_components(PPCAMixture(n_mixtures=1), place, [2, 3], cv=3)
    assert found["criterion"] == "cross_validation"
    assert [line["cross_validated_log_likelihood"] for line in found["candidates"]] == (
        expected["cross_validated_log_likelihood"].values.tolist()
    )
    sp.save_npz(tmp_path / "ring.npz", RING)
    np.save(tmp_path / "y.npy", np.arange(240) % 2)
    given = ["--graph", str(tmp_path / "ring.npz"), "--labels", str(tmp_path / "y.npy"), "--folds", "2"]
    assert main(["choose", "relational-supervised", place, "-k", "1,2", *given, "--json"]) == 0
    expected = select_n_components(RelationalSupervisedPPCA(), place, [1, 2], np.arange(240) % 2, graph=RING, cv=2)
    assert json.loads(capsys.readouterr().out)["best"] == expected.attrs["best"]
