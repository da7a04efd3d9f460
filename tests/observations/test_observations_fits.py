"""Fits with a likelihood other than the normal one, through public names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp
import scipy.stats as st

from dlatent import PPCA, DataError, FactorAnalysis, PlanError, SupervisedPPCA, select_n_components
from tests.observations.cases import case, drawn

NAMES = ["student", "student_rows", "poisson", "bernoulli", "negative_binomial"]
COUNTS = ["poisson", "negative_binomial"]


def angle(model: Any, loadings: Any) -> float:
    """The largest angle between loadings, in degrees."""
    found = model.components_.T[:, : loadings.shape[1]]
    return float(np.degrees(la.subspace_angles(found, loadings).max()))


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
@pytest.mark.parametrize("name", NAMES)
def test_a_fit_finds_the_loadings_and_its_bound_never_falls(name: str, kind: Any) -> None:
    entries, loadings = case(name, 1500, 16)
    model = kind(2, likelihood=name).fit(entries)
    heights = model.history_["iteration_log_likelihood"].values
    assert (np.diff(heights) >= -1e-9 * np.abs(heights[1:])).all()
    assert model.converged_
    assert angle(model, loadings) < (15.0 if name == "bernoulli" else 6.0)
    assert model.score_samples(entries).sum() == pytest.approx(model.log_likelihood_, rel=1e-8)
    assert model.n_components_ == 2
    assert model.transform(entries).shape == (1500, 2 + (name in COUNTS))


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_components_is_found(name: str, kind: Any) -> None:
    entries, _ = case(name, 600, 40, 3)
    entries[np.random.default_rng(0).random(entries.shape) < 0.05] = np.nan
    model = kind(likelihood=name, missing="nan").fit(entries)
    assert abs(model.n_components_ - 3) <= (name in COUNTS)
    alone = np.apply_along_axis(np.random.default_rng(1).permutation, 0, np.nan_to_num(entries))
    assert kind(likelihood=name).fit(alone).n_components_ == 1


@pytest.mark.parametrize("name", NAMES)
def test_missing_entries_are_filled_in_with_intervals_that_hold(name: str) -> None:
    """Of cells that were hidden at least 95 in 100 lie within three standard deviations."""
    entries, _ = case(name, 1200, 12)
    hidden = np.random.default_rng(1).random(entries.shape) < 0.15
    holes = np.where(hidden, np.nan, entries)
    model = PPCA(2, likelihood=name, missing="nan").fit(holes)
    filled, variance = model.impute(holes), model.impute_variance(holes)
    np.testing.assert_array_equal(filled[~hidden], entries[~hidden])
    assert (variance[~hidden] == 0.0).all()
    assert (variance[hidden] > 0.0).all()
    means = np.broadcast_to(np.nanmean(holes, axis=0), entries.shape)
    error, naive = (np.median(np.abs(each - entries)[hidden] ** 2) for each in (filled, means))
    if name == "bernoulli":  # whose errors are nearly 0 or 1
        error, naive = (((each - entries)[hidden] ** 2).mean() for each in (filled, means))
    assert error < (1.0 if name == "bernoulli" else 0.95) * naive
    if name != "student":  # whose variance has no bound where ν is small
        inside = np.abs(filled - entries)[hidden] <= 3.0 * np.sqrt(variance[hidden])
        assert inside.mean() > 0.95


@pytest.mark.parametrize("name", COUNTS)
def test_what_sparse_rows_do_not_store_is_a_zero_or_missing(name: str) -> None:
    entries = drawn(name, 200, 8)
    sparse = sp.csr_array(entries)
    dense, zeros = PPCA(2, likelihood=name).fit(entries), PPCA(2, likelihood=name).fit(sparse)
    np.testing.assert_allclose(zeros.components_, dense.components_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(zeros.transform(sparse), dense.transform(entries), rtol=1e-9, atol=1e-12)
    unstored = PPCA(2, likelihood=name, missing="unstored").fit(sparse)
    holes = np.where(entries == 0.0, np.nan, entries)
    known = PPCA(2, likelihood=name, missing="nan").fit(holes)
    np.testing.assert_allclose(unstored.components_, known.components_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["student", "student_rows"])
def test_outliers_do_not_lead_astray(name: str) -> None:
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(20, 3))
    entries = rng.normal(size=(300, 3)) @ loadings.T + 0.5 * rng.normal(size=(300, 20))
    rows = rng.choice(300, 15, replace=False)
    entries[rows] = 8.0 * np.sqrt((entries**2).mean()) * rng.normal(size=(15, 20))
    cosine = [
        (np.cos(la.subspace_angles(model.components_.T, loadings)) ** 2).mean()
        for model in (PPCA(3).fit(entries), PPCA(3, likelihood=name).fit(entries))
    ]
    assert cosine[0] < 0.8
    assert cosine[1] > 0.98


def test_levels_of_counts_may_be_left_out() -> None:
    """Without noise factor analysis is PPCA; rows have a level in both, or in neither."""
    x, _ = case("poisson", 300, 20, 2)
    with_levels, without = (
        [kind(2, likelihood="poisson", row_effects=level).fit(x) for kind in (PPCA, FactorAnalysis)]
        for level in ("auto", False)
    )
    for one, other in (with_levels, without):
        np.testing.assert_allclose(one.log_likelihood_, other.log_likelihood_, rtol=1e-6)
    assert without[1].transform(x).shape == (300, 2)
    assert with_levels[1].transform(x).shape == (300, 3)
    with pytest.raises(DataError, match="row_effects=True is for another likelihood"):
        FactorAnalysis(2, row_effects=True).fit(x)


def test_large_negative_binomial_sizes_are_poisson() -> None:
    """Counts of Poisson need no more variance: sizes grow, and the bound is no worse than that of Poisson by more than
    what the tilted bound loses."""
    entries, _ = case("poisson", 800, 10)
    poisson, other = (PPCA(2, likelihood=name).fit(entries) for name in COUNTS)
    assert abs(other.log_likelihood_ - poisson.log_likelihood_) < 0.01 * entries.size
    np.testing.assert_allclose(np.abs(other.components_), np.abs(poisson.components_), atol=0.1)


@pytest.mark.parametrize(
    ("name", "value", "said"), [("poisson", -1.0, "a count"), ("poisson", 0.5, "a count"), ("bernoulli", 2.0, "0 or 1")]
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_entries_that_may_not_be_are_named(name: str, value: float, said: str, form: Any) -> None:
    entries = drawn(name, 40, 5)
    model = PPCA(2, likelihood=name).fit(form(entries))
    entries[17, 3] = value
    for method in (PPCA(2, likelihood=name).fit, model.transform, model.score_samples):
        with pytest.raises(DataError, match=rf"row 17, column 3 is {value:g}.*{said}"):
            method(form(entries))


def test_what_does_not_go_with_a_likelihood_is_refused() -> None:
    entries = drawn("poisson", 60, 5)
    for model, said in (
        (PPCA("mle", likelihood="poisson"), "give a number"),
        (PPCA(2, likelihood="poisson", prior="ard"), "prior='ard' does not go with likelihood='poisson'"),
        (PPCA(2, likelihood="poisson", scale="spread"), "would make other numbers"),
        (
            FactorAnalysis(2, likelihood="poisson", missing="nan", warm_start=True),
            "warm_start=True does not go with likelihood='poisson'",
        ),
        (PPCA(2, likelihood="gamma"), "expected 'normal'"),
    ):
        with pytest.raises(DataError, match=said):
            model.fit(entries)
    with pytest.raises(TypeError, match="PPCA and FactorAnalysis have it"):
        SupervisedPPCA(likelihood="poisson")  # type: ignore[call-arg]
    with pytest.raises(PlanError, match="krylov"):
        PPCA(2, likelihood="poisson", solver="krylov").fit(entries)
    with pytest.raises(PlanError, match="weights"):
        PPCA(2, likelihood="poisson").fit(entries, sample_weight=np.ones(60))
    fitted = PPCA(2, likelihood="poisson").fit(entries)
    for ask in (
        fitted.get_covariance,
        fitted.get_precision,
        fitted.north_rule,
        lambda: fitted.predict_cells(entries, [0], [0]),
        lambda: fitted.bootstrap(entries, block_length=1),
        lambda: select_n_components(PPCA(likelihood="poisson"), entries, [1, 2], criterion="held_out"),
    ):
        with pytest.raises(DataError, match="normal entries"):
            ask()


def test_numbers_of_components_are_compared_by_rows_that_are_left_out() -> None:
    entries, _ = case("poisson", 400, 10)
    compared = select_n_components(PPCA(likelihood="poisson"), entries, [1, 2, 4], cv=3)
    assert compared.attrs["criterion"] == "cross_validation"
    assert compared.attrs["best"] in (2, 4)
    assert np.isfinite(compared["cross_validated_log_likelihood"]).all()


def test_no_number_of_components_of_counts_is_read_off_eigenvalues() -> None:
    entries = drawn("poisson", 200, 6)
    compared = select_n_components(PPCA(likelihood="poisson"), entries, [1, 2], criterion="bic")
    each = [PPCA(k, likelihood="poisson").fit(entries).bic(entries) for k in (1, 2)]
    np.testing.assert_allclose(compared["bic"], each, rtol=1e-6)
    for criterion in ("evidence", "parallel"):
        with pytest.raises(DataError, match=criterion):
            select_n_components(PPCA(likelihood="poisson"), entries, [1, 2], criterion=criterion)


def test_expected_entries_are_in_the_units_of_the_data() -> None:
    entries = drawn("poisson", 200, 8)
    model = PPCA(2, likelihood="poisson").fit(entries)
    expected = model.inverse_transform(model.transform(entries))
    assert (expected > 0.0).all()
    assert expected.mean() == pytest.approx(entries.mean(), rel=0.2)
    chances = PPCA(2, likelihood="bernoulli").fit(drawn("bernoulli", 200, 8)).inverse_transform(np.zeros((1, 2)))
    assert ((chances > 0.0) & (chances < 1.0)).all()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("factor", [1e2, 1e4, 1e6])
def test_large_counts_are_fitted_as_well_as_small_ones(name: str, factor: float) -> None:
    """Their logarithms are nearly normal, and say all: the bound is near that of means which are the counts."""
    rng = np.random.default_rng(0)
    loadings = 0.7 * rng.normal(size=(8, 2))
    eta = rng.normal(size=(400, 2)) @ loadings.T - 0.3 + 0.5 * rng.normal(size=(400, 1))
    counts = rng.poisson(factor * np.exp(eta)).astype(float)
    model = PPCA(2, likelihood=name).fit(counts)
    assert angle(model, loadings) < 6.0
    saturated = st.poisson.logpmf(counts, counts).mean()
    assert saturated - 4.0 < model.log_likelihood_ / counts.size < saturated
    np.testing.assert_allclose(model.inverse_transform(model.transform(counts)).mean(), counts.mean(), rtol=0.1)


@pytest.mark.filterwarnings("ignore:.*never observed", "ignore:.*no observed entry")
@pytest.mark.parametrize("name", NAMES)
def test_features_and_rows_without_an_entry_are_told_of(name: str) -> None:
    holes = drawn(name, 200, 8)
    holes[:, 3] = holes[5] = np.nan
    model = PPCA(2, likelihood=name, missing="nan").fit(holes)
    assert any("never observed" in text for text in model._fit.report.notices[-1])
    filled = model.impute(holes)
    assert np.isnan(filled[:, 3]).all()
    assert np.isfinite(np.delete(filled, 3, axis=1)).all()
    drawn_rows = model.sample(4, random_state=0)
    assert np.isnan(drawn_rows[:, 3]).all()
    assert np.isfinite(np.delete(drawn_rows, 3, axis=1)).all()
    assert (model.transform(holes)[5] == 0.0).all()
