"""Route rows: few passes to the maximum, safe on plateaus, and units that change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.arrays import Block
from dlatent.gaussian.specification import Specification, View
from dlatent.solvers.ascent import accelerate
from dlatent.solvers.missing.solver import fit_rows
from tests.simulators import simulate
from tests.tasks import loop_task

D, K = 30, 3
STARTS = {"pairs": {"sums": 1, "pairs": 1}, "sketch": {"sums": 1, "sketch": 2}}


def specification(shared=True):
    return Specification((View("features", D, shared=shared),), ((0,),), K)


def rows(seed=0, part=0.3, n=300, strength=1.0):
    x = simulate(n, (D,), K, strength=strength, random_state=seed).features
    return np.where(np.random.default_rng(seed).random(x.shape) < part, np.nan, x)


class Counted:
    """Runs passes over rows in memory, and counts them."""

    def __init__(self, x):
        self.block, self.names = Block(0, 0, x), []

    def __call__(self, pass_):
        self.names.append(pass_.name)
        return pass_.map(self.block, pass_.parameters)


def many_features(monkeypatch):
    """The features count as too many for second moments of all pairs, and for a sample of the rows."""
    monkeypatch.setattr("dlatent.solvers.missing.starts.PAIRWISE", 0)
    monkeypatch.setattr("dlatent.solvers.missing.solver.PAIRWISE", 0)
    monkeypatch.setattr("dlatent.solvers.missing.solver.AHEAD", 0)


def task(shared=True, **changes):
    return loop_task(specification(shared), **{"max_iter": 300, "floor_parts": (1e-6,), "missing": True} | changes)


def fit(x, *, shared=True, textbook=False, **changes):
    run = Counted(x)
    found = fit_rows(run, task(shared, textbook=textbook, **changes), np.zeros(D))
    return found, run.names


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", range(2))
def test_few_passes_lead_to_the_height_of_long_plain_em(shared, start, seed, monkeypatch):
    if start == "sketch":
        many_features(monkeypatch)
    x = rows(seed)
    fast, names = fit(x, shared=shared)
    slow, _ = fit(x, shared=shared, textbook=True, tol=1e-14, max_iter=5000)
    assert fast.converged
    assert fast.log_likelihood == pytest.approx(slow.log_likelihood, rel=1e-9)
    assert len(names) <= 25
    # Factor analysis of few features looks for the best of several maxima in a sample of the rows.
    sampled = {"sample": 1} if start == "pairs" and not shared else {}
    assert {name: names.count(name) for name in names if name != "entries"} == STARTS[start] | sampled


@pytest.mark.parametrize("shared", [True, False])
def test_some_of_many_rows_lead_to_the_same_height_in_fewer_passes(shared, monkeypatch):
    wide = Specification((View("features", 300, shared=shared),), ((0,),), K)
    x = simulate(2_400, (300,), K, random_state=0).features
    x = np.where(np.random.default_rng(0).random(x.shape) < 0.8, np.nan, x)

    def fitted():
        run = Counted(x)
        task = loop_task(wide, max_iter=300, floor_parts=(1e-6,), missing=True)
        return fit_rows(run, task, np.zeros(300)), run.names

    led, names = fitted()
    assert {name: names.count(name) for name in names if name != "entries"} == {"sums": 1, "sample": 1}
    many_features(monkeypatch)
    sketched, more = fitted()
    assert led.log_likelihood == pytest.approx(sketched.log_likelihood, rel=1e-8)
    assert len(names) < len(more)


def test_passes_do_not_grow_with_the_scale_of_the_loadings():
    """Plain EM takes as many as the ratio of signal and noise."""
    counts = [len(fit(rows(0, strength=strength))[1]) for strength in (1.0, 10.0, 100.0)]
    assert max(counts) <= min(counts) + 10
    assert max(counts) <= 30


def test_the_estimate_of_what_is_left_bounds_it():
    """In its last lines, the history tells the distance to the maximum within a factor."""
    x = rows(1)
    best = fit(x, tol=1e-14)[0].log_likelihood
    found, _ = fit(x, tol=1e-6)
    left = (best - found.log_likelihood) / abs(best)
    assert 0 <= left < 1e-6
    assert found.history[-1].remaining <= 0.5e-6


def test_units_are_restored():
    plain, scaled = fit(rows())[0], fit(rows() * 1e4 + 3e6)[0]
    np.testing.assert_allclose(scaled.parameters.loadings, 1e4 * plain.parameters.loadings, rtol=1e-4, atol=1.0)
    np.testing.assert_allclose(scaled.parameters.mean, 1e4 * plain.parameters.mean + 3e6, rtol=1e-6)
    np.testing.assert_allclose(scaled.parameters.noise_variance, 1e8 * plain.parameters.noise_variance, rtol=1e-5)
    np.testing.assert_allclose(scaled.total_variance, 1e8 * np.array(plain.total_variance), rtol=1e-6)


def test_history_and_outcome_agree():
    seen = []
    found = fit_rows(Counted(rows()), task(), np.zeros(D), seen.append)
    assert tuple(seen) == found.history
    assert found.history[-1].log_likelihood == found.log_likelihood
    assert (np.diff([line.log_likelihood for line in seen]) > -1e-9).all()
    assert found.samples == 300
    assert found.view_samples == (300,)


class Point(tuple):
    """Two coordinates of a surface with a saddle at 0 and maxima at (0, ±1)."""

    def flatten(self):
        return np.array(self)

    def unflatten(self, vector):
        return Point(vector.tolist())


def test_steering_by_slopes_leaves_a_saddle_that_extrapolation_returns_to():
    """Maps that leave a saddle slowly draw Anderson's combination back to it; a stretched step gets away."""

    def value(x, y):
        return -0.5 * x**2 + 0.5 * y**2 - 0.25 * y**4

    def step(point):
        x, y = point
        return Point((0.2 * x, y + 0.02 * (y - y**3))), value(x, y)

    def steer(point, candidate, image, _):
        x, y = point
        slope = np.array([-x, y - y**3])
        if slope @ (candidate.flatten() - point.flatten()) > 0:
            return candidate
        return Point((point.flatten() + 20.0 * (image.flatten() - point.flatten())).tolist())

    start = Point((1.0, 1e-3))
    plain, steered = (
        accelerate(step, start, tolerance=1e-9, max_evaluations=100, **given) for given in ({}, {"steer": steer})
    )
    assert steered.value == pytest.approx(0.25, abs=1e-6)
    assert steered.evaluations < plain.evaluations or plain.value < 0.2


def few_masks(seed=0, masks=3, n=300):
    """Rows of which each lacks one of a few sets of features, some rows nothing at all, and two rows everything."""
    x = simulate(n, (D,), K, random_state=seed).features
    rng = np.random.default_rng(seed)
    gone = rng.random((masks, D)) < 0.4
    gone[0] = False
    x[gone[rng.integers(masks, size=n)]] = np.nan
    x[:2] = np.nan
    return x


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_few_masks_take_two_passes(shared, monkeypatch):
    x = few_masks()
    found, names = fit(x, shared=shared)
    assert names == ["sums", "patterns"]
    assert found.converged
    monkeypatch.setattr("dlatent.solvers.missing.solver.few_buckets", lambda counts, features: None)
    other, visits = fit(x, shared=shared, tol=1e-12)
    assert "entries" in visits
    assert found.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-11)
    np.testing.assert_allclose(found.parameters.loadings, other.parameters.loadings, atol=1e-4)
    assert (found.samples, found.view_samples) == (other.samples, other.view_samples)


def test_masks_that_share_a_bucket_are_noticed(monkeypatch):
    monkeypatch.setattr(
        "dlatent.gaussian.missing_entries.observed.mask_keys", lambda masks: np.zeros(len(masks), np.uint64)
    )
    found, names = fit(few_masks())
    assert names[:2] == ["sums", "patterns"]
    assert "entries" in names
    monkeypatch.undo()
    assert found.log_likelihood == pytest.approx(fit(few_masks())[0].log_likelihood, rel=1e-9)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("part", [0.1, 0.4])
def test_a_sketch_shows_factors_and_noise_through_the_holes(shared, part, monkeypatch):
    """With many rows the start is the truth, though pairs of features share less in the mean-filled data."""
    many_features(monkeypatch)
    rng = np.random.default_rng(0)
    loadings, n = rng.standard_normal((D, K)), 20_000
    noise = np.full(D, 1.0) if shared else rng.uniform(0.3, 3.0, D)
    x = rng.standard_normal((n, K)) @ loadings.T + np.sqrt(noise) * rng.standard_normal((n, D))
    x[rng.random(x.shape) < np.linspace(0.0, 2.0 * part, D)] = np.nan
    requests = []

    class Listening(Counted):
        def __call__(self, pass_):
            requests.append(pass_.parameters)
            return super().__call__(pass_)

    run = Listening(x)
    fit_rows(run, task(shared, max_iter=1), np.zeros(D))
    begun, scale = requests[run.names.index("entries")].parameters, requests[-1].scale
    found, truth = (begun.loadings @ begun.loadings.T) * scale * scale[:, None], loadings @ loadings.T
    assert np.linalg.norm(found - truth) < 0.06 * np.linalg.norm(truth)  # 0.5 if the holes were forgotten
    groups = len(begun.noise_variance)
    assert abs(begun.noise_variance * scale[:groups] ** 2 / noise[:groups] - 1.0).mean() < 0.1
