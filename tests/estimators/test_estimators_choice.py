"""Choosing the number of components: by cells that were held out, and from the eigenvalues of complete data."""

from __future__ import annotations

import json

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import scale

from dlatent import (
    PPCA,
    DataError,
    FactorAnalysis,
    KernelPPCA,
    PlanError,
    RelationalPPCA,
    SupervisedPPCA,
    load,
    select_n_components,
)
from dlatent.cli.main import main
from dlatent.gaussian.missing_entries.incomplete import Hiding, chosen, hidden
from tests.oracles import dense as oracles
from tests.simulators import simulate
from tests.sparse_stores import observed_entries

DATA = simulate(300, (10, 2), 3, noise=(0.2, 0.2), random_state=2)
X = np.where(np.random.default_rng(0).random(DATA.features.shape) < 0.1, np.nan, DATA.features)


def test_the_true_number_is_chosen_though_the_likelihood_of_the_fit_grows():
    found = select_n_components(PPCA(tol=1e-7), X, [1, 2, 3, 4, 5])
    assert found.attrs["best"] == 3
    assert (np.diff(found["log_likelihood"]) > 0).all()
    assert found["held_out_rmse"].sel(n_components=3) < found["held_out_rmse"].sel(n_components=1)


@pytest.mark.parametrize("make", [PPCA, pytest.param(FactorAnalysis, marks=pytest.mark.slow)])
def test_scores_are_those_of_a_dense_gaussian(make):
    """Each held-out cell given the other cells of its row, and the fit is that of the data with NaN there."""
    hiding = Hiding(0.2, 7)
    rest = hidden(X, 0, hiding)
    model = make(2, missing="nan", prior="ml").fit(rest)
    dense = oracles.DenseModel(model.components_.T, model.mean_, np.broadcast_to(model.noise_variance_, 10))
    scores, errors = [], []
    for row, whole in zip(rest, X, strict=True):
        gone = np.isnan(row)
        if gone.any():
            ahead = oracles.missing_given(dense, row)
            known = ~np.isnan(whole[gone])
            away = (whole[gone] - ahead.mean)[known]
            scores += norm.logpdf(away, scale=np.sqrt(np.diag(ahead.covariance)[known])).tolist()
            errors += (away**2).tolist()
    found = select_n_components(make(prior="ml"), X, [2], held_out=0.2, random_state=7)
    assert found["log_likelihood"].item() == model.log_likelihood_
    assert found["held_out_log_likelihood"].item() == pytest.approx(np.mean(scores), rel=1e-9)
    assert found["held_out_rmse"].item() == pytest.approx(np.sqrt(np.mean(errors)), rel=1e-9)


def test_the_same_cells_are_held_out_whatever_the_input_and_its_blocks(tmp_path):
    one = select_n_components(PPCA(tol=1e-15), X, [2])
    lazy = select_n_components(PPCA(tol=1e-15), da.from_array(X, chunks=(70, 4)), [2])
    sparse = select_n_components(PPCA(tol=1e-15, missing="unstored"), observed_entries(X), [2])
    for other in (lazy, sparse):
        for name in ("held_out_log_likelihood", "log_likelihood"):
            assert other[name].item() == pytest.approx(one[name].item(), rel=1e-9)


def test_the_part_that_is_held_out_is_the_one_asked_for_and_depends_on_the_seed():
    rows, columns = np.arange(1000, dtype=np.uint64)[:, None], np.arange(200, dtype=np.uint64)
    one, other = (chosen(rows, columns, Hiding(0.3, seed)) for seed in (0, 1))
    for places in (one, other):
        assert places.mean() == pytest.approx(0.3, abs=0.005)
        assert abs(places.mean(axis=0) - 0.3).max() < 0.08
        assert abs(np.corrcoef(places[:, :20].T) - np.eye(20)).max() < 0.15
    assert (one & other).mean() == pytest.approx(0.09, abs=0.005)


def test_targets_are_known_and_features_held_out():
    found = select_n_components(SupervisedPPCA(), X, [1, 3], DATA.targets)
    assert found.attrs["best"] == 3
    assert found["held_out_rmse"][1] < select_n_components(PPCA(), X, [3])["held_out_rmse"][0]


def test_the_command_prints_the_choice(tmp_path, capsys):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(60, 10))
    place = str(tmp_path / "x.zarr")
    assert main(["choose", "ppca", place, "-k", "1,3,5", "--missing", "nan"]) == 0
    assert "best       3\n" in capsys.readouterr().out
    assert main(["choose", "ppca", place, "-k", "1,3", "--held-out", "0.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == 3
    assert main(["choose", "ppca", place, "-k", "1,no"]) != 0


def test_refusals():
    with pytest.raises(DataError, match="above 0 and below 1"):
        select_n_components(PPCA(), X, [1], held_out=1.0)
    with pytest.raises(DataError, match="no numbers of components"):
        select_n_components(PPCA(), X, [])
    with pytest.raises(DataError, match="missing='unstored'"):
        select_n_components(PPCA(), observed_entries(X), [1], criterion="held_out")


SETS = {
    f"{read.__name__[5:]}{', scaled' if scaled else ''}": scale(read().data) if scaled else read().data
    for read in (load_breast_cancer, load_diabetes, load_iris, load_wine)
    for scaled in (False, True)
}


@pytest.mark.parametrize("name", SETS)
def test_evidence_and_shares_of_variance_choose_what_scikit_learn_chooses(name):
    x = SETS[name]
    for rule in ("mle", 0.5, 0.9, 0.99):
        # Where the noise would be at its floor, numbers are not compared; scikit-learn has no floor.
        model = PPCA(rule, noise_floor=1e-12).fit(x)
        assert model.n_components_ == PCA(rule, svd_solver="full").fit(x).n_components_


@pytest.mark.parametrize("name", ["iris", "wine, scaled", "diabetes"])
def test_the_criterion_that_chooses_is_the_one_of_the_fits(name):
    x = SETS[name]
    model = PPCA("bic").fit(x)
    assert model.n_components_ == min(range(1, x.shape[1]), key=lambda k: PPCA(k).fit(x).bic(x))
    assert model.bic(x) == pytest.approx(PPCA(model.n_components_).fit(x).bic(x), rel=1e-12)


@pytest.mark.parametrize("rule", ["mle", "bic"])
def test_rules_find_the_planted_number(rule):
    x = simulate(400, (12,), 3, noise=(0.3,), random_state=4).features
    assert PPCA(rule).fit(x).n_components_ == 3


@pytest.mark.parametrize("rule", ["mle", "bic"])
def test_numbers_that_leave_no_noise_are_not_compared(rule):
    """Three pixels of the digits never vary, so that 61 components leave nothing, at a likelihood without a bound."""
    assert PPCA(rule).fit(load_digits().data).n_components_ < 61
    with pytest.raises(DataError, match="have no bound"):
        PPCA(rule).fit(np.outer(np.arange(20.0), np.ones(3)))


def test_the_part_of_the_variance_is_the_smallest_above_it():
    x = SETS["wine, scaled"]
    for part in (0.3, 0.8, 0.999999):
        model = PPCA(part).fit(x)
        parts = np.cumsum(model.explained_variance_ratio_)
        assert parts[-1] > part
        assert len(parts) == 1 or parts[-2] <= part


def test_all_solvers_choose_alike_after_one_pass():
    wide = np.random.default_rng(0).standard_normal((40, 90))
    models = [PPCA(0.8, solver=solver).fit(wide) for solver in ("covariance", "gram", "em")]
    assert len({model.n_components_ for model in models}) == 1
    assert models[0].n_components_ == PCA(0.8, svd_solver="full").fit(wide).n_components_
    np.testing.assert_allclose(models[0].get_covariance(), models[1].get_covariance(), atol=1e-9)
    assert [model.n_passes_ for model in models[:2]] == [1, 2]


def test_a_choice_is_the_fit_with_that_number():
    x = SETS["wine, scaled"]
    chosen = PPCA("bic").fit(da.from_array(x, chunks=(50, -1)))
    given = PPCA(chosen.n_components_).fit(da.from_array(x, chunks=(50, -1)))
    np.testing.assert_array_equal(chosen.components_, given.components_)
    assert chosen.n_passes_ == 1
    assert clone(chosen).get_params()["n_components"] == "bic"


def test_what_a_default_fit_keeps_is_the_fit_with_that_number():
    """Of data of any shape, by every solver, with weights, and by rows that are added."""
    long = simulate(300, (12,), 3, noise=(0.3,), random_state=4).features
    wide = simulate(60, (400,), 4, noise=(0.5,), random_state=5).features
    weights = np.random.default_rng(0).integers(0, 3, 300).astype(float)
    few, of_wide = wide[:40], ("covariance", "krylov", "gram")  # fewer than 50: the most leave hardly any noise
    for x, k, solvers in ((long, 3, ("covariance", "krylov")), (wide, 4, of_wide), (few, 4, of_wide)):
        given = PPCA(k).fit(x)
        for solver in solvers:
            found = PPCA(solver=solver).fit(x)
            assert (found.n_components_, found.n_components) == (k, "auto")
            np.testing.assert_allclose(found.get_covariance(), given.get_covariance(), atol=1e-6)
            assert found.log_likelihood_ == pytest.approx(given.log_likelihood_, rel=1e-9)
            assert found.noise_variance_ == pytest.approx(given.noise_variance_, rel=1e-7)
            assert found.score(x) * len(x) == pytest.approx(found.log_likelihood_, rel=1e-9)
    found, given = (PPCA(k).fit(long, sample_weight=weights) for k in ("auto", 3))
    np.testing.assert_allclose(found.components_, given.components_, atol=1e-9)
    assert found.log_likelihood_ == pytest.approx(given.log_likelihood_, rel=1e-9)
    added = PPCA().partial_fit(long[:200]).partial_fit(long[200:])
    np.testing.assert_allclose(added.components_, PPCA(3).fit(long).components_, atol=1e-9)


def halves(x, seed):
    known = np.random.default_rng(seed).permutation(len(x)) < len(x) // 2
    return x[known], x[~known]


@pytest.mark.parametrize("name", SETS)
def test_a_default_fit_of_many_samples_has_the_largest_evidence(name):
    """So that rows that were left out are no less likely than with components that are sure not to be noise alone."""
    x = SETS[name]
    for solver in ("auto", "covariance", "em"):
        assert PPCA(solver=solver, max_iter=1).fit(x).n_components_ == PPCA("mle").fit(x).n_components_
    ahead = []
    for seed in range(5):
        fitted, left_out = halves(x, seed)
        found, evidence, surest = PPCA().fit(fitted), PPCA("mle").fit(fitted), PPCA(solver="krylov").fit(fitted)
        assert found.score(left_out) == pytest.approx(evidence.score(left_out), rel=1e-12)
        ahead.append(found.score(left_out) - surest.score(left_out))
    assert np.mean(ahead) > -1e-9


@pytest.mark.parametrize("scaled", [False, True])
def test_a_default_fit_does_not_take_directions_without_variance_for_the_noise(scaled):
    """Some pixels of the digits never vary, others in a few images: their variance is no measure of the noise."""
    x = scale(load_digits().data) if scaled else load_digits().data
    scores = []
    for seed in range(5):
        fitted, left_out = halves(x, seed)
        models = PPCA().fit(fitted), PPCA("mle").fit(fitted)
        scores.append([model.score(left_out) for model in models])
        assert models[0].n_components_ <= 50 < models[1].n_components_
    found, evidence = np.mean(scores, axis=0)
    assert found > evidence + 20.0
    assert PPCA().fit(np.outer(np.arange(20.0), np.ones(3))).n_components_ == 1
    assert PPCA().fit(np.arange(20.0)[:, None]).n_components_ == 1


@pytest.mark.parametrize("noise", [0.3, 1.0])
@pytest.mark.parametrize(("samples", "features", "k"), [(200, 10, 5), (200, 60, 10), (60, 12, 1), (2000, 40, 3)])
def test_a_default_fit_finds_the_planted_number(samples, features, k, noise):
    rng = np.random.default_rng(0)
    found, leading = [], []
    for _ in range(10):
        x = rng.normal(size=(samples, k)) @ rng.normal(size=(k, features))
        x += noise * rng.normal(size=x.shape)
        found.append(PPCA().fit(x).n_components_ == k)
        leading.append(PPCA(solver="krylov").fit(x).n_components_ == k)
    assert np.mean(found) >= max(0.9, np.mean(leading))


def test_no_more_than_fifty_are_a_choice_of_leading_components_alone():
    """Of few samples for each feature, by the Krylov solver, and of many features, as the plan says."""
    x = np.random.default_rng(0).normal(size=(800, 200)) * np.geomspace(1.0, 100.0, 200)
    assert PPCA().fit(x).n_components_ > 50 >= PPCA(solver="krylov").fit(x).n_components_
    assert PPCA().fit(x[:500]).n_components_ <= 50
    assert "n_components by 'auto', from all eigenvalues after the first pass" in str(PPCA().plan(x))
    for plan in (PPCA(solver="krylov").plan(x), PPCA().plan(da.zeros((9000, 2000), chunks=(1000, -1)))):
        assert "n_components by 'auto', at most 50, after the fit" in str(plan)


def test_a_default_fit_of_few_samples_keeps_what_the_prior_leaves_on():
    for x in (SETS["wine, scaled"][:39], simulate(40, (90,), 3, noise=(1.0,), random_state=1).features):
        most = min(50, len(x) - 1, x.shape[1] - 1)
        assert PPCA().fit(x).n_components_ == PPCA(most, prior="ard").fit(x).n_components_effective_
        assert PPCA(prior="ard").fit(x).components_.any(axis=1).all()
    noise = np.random.default_rng(0).standard_normal((100, 10))
    assert PPCA().fit(noise).n_components_ == 1
    # One noise of all features is that of features in their own units.
    for model in (PPCA(missing="nan", scale="none"), SupervisedPPCA(missing="nan", scale="none")):
        found = model.fit(X, DATA.targets) if isinstance(model, SupervisedPPCA) else model.fit(X)
        assert found.n_components_ == found.n_components_effective_ == 3
        assert found.transform(X).shape == (300, 3)
    again = PPCA(missing="nan", scale="none", warm_start=True).fit(X)
    assert again.fit(X).n_components_ == 3


@pytest.mark.parametrize("k", [1, 2, 3])
def test_factors_are_counted_in_units_of_their_noise(k):
    rng = np.random.default_rng(k)
    x = rng.normal(size=(400, k)) @ rng.normal(size=(k, 15)) + rng.normal(size=(400, 15)) * rng.uniform(0.3, 2.0, 15)
    found, scaled = FactorAnalysis().fit(x), FactorAnalysis().fit(x * np.geomspace(1e-3, 1e3, 15))
    assert found.n_components_ == scaled.n_components_ == k
    assert found.log_likelihood_ == pytest.approx(FactorAnalysis(k).fit(x).log_likelihood_, rel=1e-12)
    with_holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    assert FactorAnalysis(missing="nan").fit(with_holes).n_components_ == k


def test_supervised_models_take_many():
    x, digit = load_digits(return_X_y=True)
    found = SupervisedPPCA().fit(x[:900], digit[:900])
    assert found.n_components_ == 50
    assert np.mean(found.predict(x[900:]) != digit[900:]) < 0.12
    assert SupervisedPPCA().fit(SETS["iris"], np.arange(150) % 3).n_components_ == 3


def test_the_plan_says_how_the_number_is_chosen():
    x = SETS["wine"]
    plan = PPCA("mle").plan(x)
    assert (plan.solver, plan.passes, plan.task.rule) == ("covariance", 1, "mle")
    assert "n_components by 'mle'" in str(plan)
    assert "n_components" not in str(PPCA(2).plan(x))
    with pytest.raises(PlanError, match="from all eigenvalues; take covariance"):
        PPCA("mle", solver="krylov").plan(x)


REFUSED = {
    "missing entries": (lambda: PPCA(0.9, missing="nan").fit(X), "missing entries compare numbers by select_n_comp"),
    "few samples, mle": (lambda: PPCA("mle").fit(X[:10]), "more samples than features.*select_n_components"),
    "a prior that switches nothing off": (
        lambda: PPCA(missing="nan", prior="ml").fit(X),
        "prior='ard' leaves.*give a number",
    ),
    "few samples, bic": (lambda: PPCA("bic").fit(X[:8]), "more samples than features.*select_n_components"),
    "no rule": (lambda: PPCA("aic").fit(SETS["iris"]), "'auto', 'mle' or 'bic'"),
    "all the variance": (lambda: PPCA(1.0).fit(SETS["iris"]), "above 0 and below 1"),
    "factor analysis": (lambda: FactorAnalysis("bic").fit(SETS["iris"]), "select_n_components or GridSearchCV"),
    "targets": (lambda: SupervisedPPCA(0.9).fit(SETS["iris"], np.arange(150) % 3), "PPCA alone"),
    "kernels": (lambda: KernelPPCA("mle").fit(SETS["iris"]), "PPCA alone"),
    "graphs": (lambda: RelationalPPCA("mle").fit(SETS["iris"], graph=sp.csr_array((150, 150))), "PPCA alone"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rules_are_refused_where_they_have_no_meaning(name):
    call, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        call()


def test_the_command_line_takes_rules(tmp_path, capsys):
    x = SETS["wine, scaled"]
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(60, 13))
    for rule in ("0.9", "mle", "bic"):
        model = tmp_path / f"{rule}.zarr"
        assert main(["fit", "ppca", str(tmp_path / "x.zarr"), "-k", rule, "-o", str(model), "--quiet"]) == 0
        wanted = PPCA(float(rule) if rule == "0.9" else rule).fit(x)
        assert load(model).n_components_ == wanted.n_components_
    capsys.readouterr()
    assert main(["plan", "ppca", str(tmp_path / "x.zarr"), "-k", "mle"]) == 0
    assert "by 'mle'" in capsys.readouterr().out
    assert main(["plan", "fa", str(tmp_path / "x.zarr"), "-k", "mle"]) == 2
    assert main(["plan", "ppca", str(tmp_path / "x.zarr"), "-k", "1.5"]) == 2
