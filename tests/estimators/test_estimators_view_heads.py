"""What tells one view from another after the fit: the ridge regression that samples left out choose."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA
from dlatent.gaussian.view_heads import RATIOS, RowsSVD, joined, left_out_ridge
from tests.simulators import simulate

RNG = np.random.default_rng(3)


def halves(x, y, pairs):
    """Views of which the first rows are pairs; of the others the first half has the one, the second the other."""
    middle = (pairs + len(x)) // 2
    views = {"a": x[:middle], "b": np.vstack([y[:pairs], y[middle:]])}
    return views, np.tile(np.arange(pairs)[:, None], 2), slice(pairs, middle)


def regression(x, y, ratio):
    """Ridge with an intercept, from its definition: slopes W minimise ‖y − xW‖² + ‖W‖² / ratio about the means."""
    inside = x - x.mean(axis=0)
    w = np.linalg.solve(inside.T @ inside + np.eye(x.shape[1]) / ratio, inside.T @ (y - y.mean(axis=0)))
    return w, y.mean(axis=0) - x.mean(axis=0) @ w


@pytest.mark.parametrize("shape", [(25, 4, 3), (9, 14, 80)])
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_missed_is_what_regressions_miss_without_the_row(shape, inside) -> None:
    n, features, outputs = shape
    x = RNG.normal(size=(n, features)) * np.arange(1, features + 1)
    y = x[:, :1] + RNG.normal(size=(n, outputs))
    basis = np.linalg.qr(RNG.normal(size=(outputs, 2)))[0] if inside else None
    onto = np.eye(outputs) if basis is None else basis @ basis.T
    centred, mean = x - x.mean(axis=0), y.mean(axis=0)
    found = left_out_ridge(RowsSVD.of(centred, 1.0 / n), y - mean, basis)
    missed = []
    for ratio in RATIOS * n / (centred**2).sum():
        errors = np.empty_like(y)
        for row in range(n):
            others = np.arange(n) != row
            w, offset = regression(x[others], y[others], ratio)
            errors[row] = y[row] - y[others].mean(axis=0) - (x[row] @ w + offset - y[others].mean(axis=0)) @ onto
        missed.append(errors)
    # With few outputs, or a basis, these are compared themselves; of more, random sums of them.
    sums = [((errors if basis is None else errors @ basis) ** 2).sum() for errors in missed]
    best = (
        int(np.argmin(sums))
        if outputs <= 64 or inside
        else int(np.argmin([abs(e - found.missed).max() for e in missed]))
    )
    np.testing.assert_allclose(found.missed, missed[best], rtol=1e-8, atol=1e-8)
    w, _ = regression(x, y, RATIOS[best] * n / (centred**2).sum())
    np.testing.assert_allclose(found.left @ found.right, w @ onto, rtol=1e-8, atol=1e-10)
    assert sums[best] < 1.05 * min(sums)


def test_rows_of_blocks_are_joined_in_order() -> None:
    """Of two patterns; a block may have rows of none, of one, or of both."""
    a, b, c = ((RNG.normal(size=(n, 2)), RNG.normal(size=(n, 3))) for n in (2, 1, 4))
    found = None
    for block in (None, (None, a), (b, None), None, (c, c), (None, None)):
        found = joined(found, block)
    for rows, parts in zip(found or (), ((b, c), (a, c)), strict=True):
        for view, stacked in enumerate(rows):
            np.testing.assert_array_equal(stacked, np.vstack([part[view] for part in parts]))


@pytest.mark.filterwarnings("ignore::dlatent.MisfitWarning", "ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize(
    "kind", [CorrespondencePPCA, pytest.param(CorrespondenceFactorAnalysis, marks=pytest.mark.slow)]
)
def test_views_that_tell_nothing_of_each_other_are_not_told_from_each_other(kind) -> None:
    """The mean is what a regression on few pairs should come to, and intervals hold."""
    errors, inside = [], []
    for seed in range(6):
        x, y = (simulate(200, (8,), 2, noise=(1.0,), strength=2.0, random_state=seed + at).stacked for at in (0, 50))
        views, pairs, alone = halves(x, y, 20)
        model = kind(2, tol=1e-6).fit(views, correspondence=pairs)
        guess, variance = model.reconstruct(x[alone], "a", "b", return_variance=True)
        errors.append(((guess - y[alone]) ** 2).sum() / ((y[alone] - y.mean(axis=0)) ** 2).sum())
        inside.append((abs(guess - y[alone]) < 1.96 * np.sqrt(variance)).mean())
    assert np.mean(errors) < 1.1
    assert 0.9 < np.mean(inside) < 0.99


def test_pairs_are_told_what_a_regression_tells_and_few_pairs_more() -> None:
    """Structure that components cannot hold is learned; what they hold makes up for pairs."""
    data = simulate(600, (10, 10), 8, noise=(0.3, 0.3), random_state=4).stacked
    views, pairs, alone = halves(data[:, :10], data[:, 10:], 200)
    x, y = data[alone, :10], data[alone, 10:]
    w, offset = regression(data[:200, :10], data[:200, 10:], 10.0)
    errors = {}
    for head in ("auto", "likelihood"):
        model = CorrespondencePPCA(2, head=head).fit(views, correspondence=pairs)
        errors[head] = ((model.reconstruct(x, "a", "b") - y) ** 2).mean()
    plain = ((x @ w + offset - y) ** 2).mean()
    assert errors["auto"] < 1.02 * plain
    assert errors["auto"] < 0.8 * errors["likelihood"]
    few = simulate(600, (30, 30), 2, noise=(2.0, 2.0), random_state=5).stacked
    views, pairs, alone = halves(few[:, :30], few[:, 30:], 15)
    model = CorrespondencePPCA(2).fit(views, correspondence=pairs)
    ratios = 1.0 / np.array([1.0, 10.0, 100.0, 1e3, 1e4])
    fits = [regression(few[:15, :30], few[:15, 30:], ratio) for ratio in ratios]
    plain = min(((few[alone, :30] @ w + b - few[alone, 30:]) ** 2).mean() for w, b in fits)
    assert ((model.reconstruct(few[alone, :30], "a", "b") - few[alone, 30:]) ** 2).mean() < plain


def test_units_do_not_matter_to_factor_analysis() -> None:
    data = simulate(120, (5, 4), 2, noise=(0.4, 0.5), random_state=6).stacked
    scale = np.array([1e3, 1.0, 1e-2, 5.0, 1.0, 1.0, 1e4, 0.1, 2.0])
    guesses = []
    for rows, units in ((data, np.ones(4)), (data * scale, scale[5:])):
        views, pairs, alone = halves(rows[:, :5], rows[:, 5:], 30)
        model = CorrespondenceFactorAnalysis(2, tol=1e-13).fit(views, correspondence=pairs)
        guesses.append(model.reconstruct(rows[alone, :5], "a", "b") / units)
    np.testing.assert_allclose(*guesses, rtol=1e-4, atol=1e-4)


def test_the_kind_of_the_views_does_not_matter() -> None:
    data = simulate(90, (6, 5), 2, noise=(0.4, 0.5), random_state=7).stacked
    views, pairs, alone = halves(data[:, :6], data[:, 6:], 30)
    model = CorrespondencePPCA(2, tol=1e-13).fit(views, correspondence=pairs)
    wanted, rows = model.reconstruct(data[alone, :6], "a", "b"), data[alone, :6]
    kinds = (
        {n: da.from_array(x, chunks=(7, 3)) for n, x in views.items()},
        {n: sp.csr_array(x) for n, x in views.items()},
    )
    for others in kinds:
        other = CorrespondencePPCA(2, tol=1e-13).fit(others, correspondence=pairs)
        np.testing.assert_allclose(other.reconstruct(rows, "a", "b"), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.reconstruct(sp.csr_array(rows), "a", "b"), wanted, rtol=1e-12)
    np.testing.assert_array_equal(
        model.predictive_variance("a", "b"), model.reconstruct(rows, "a", "b", return_variance=True)[1]
    )


@pytest.mark.filterwarnings("ignore::dlatent.MisfitWarning", "ignore::dlatent.DataWarning")
def test_of_views_too_wide_for_their_pairs_the_likelihood_tells() -> None:
    """Rows that are learned from lie in the memory of the driver."""
    rng = np.random.default_rng(1)
    x, y = (sp.random_array((1200, 12_000), density=5e-4, rng=rng, format="csr") for _ in "ab")
    pairs = np.tile(np.arange(1100)[:, None], 2)
    model = CorrespondencePPCA(1, zero_rows="keep", tol=1e-3).fit({"a": x, "b": y}, correspondence=pairs)
    scores = model.transform({"a": x[1100:]})
    wanted = model.inverse_transform(scores, "b")
    np.testing.assert_allclose(model.reconstruct(x[1100:], "a", "b"), wanted, rtol=1e-9, atol=1e-9)


def test_third_views_and_single_pairs_are_no_matter() -> None:
    data = simulate(80, (5, 4, 3), 2, noise=(0.3, 0.3, 0.3), random_state=8).stacked
    views = {"a": data[:60, :5], "b": data[20:, 5:9], "c": data[:, 9:]}
    line = np.arange(80)
    table = np.column_stack([np.where(line < 60, line, -1), np.where(line >= 20, line - 20, -1), line])
    model = CorrespondencePPCA(2).fit(views, correspondence=table)
    error = ((model.reconstruct(data[:, 9:], "c", "a")[60:] - data[60:, :5]) ** 2).mean()
    assert error < ((data[60:, :5] - data[60:, :5].mean(axis=0)) ** 2).mean()
    one = CorrespondencePPCA(2).fit({"a": data[:40, :5], "b": data[40:, 5:9]}, correspondence=[[0, 0]])
    guess, variance = one.reconstruct(data[40:, :5], "a", "b", return_variance=True)
    assert np.isfinite(guess).all()
    assert (variance > 0).all()
