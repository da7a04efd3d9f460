"""Laws of observation models: bounds, slopes and precisions by definition, and moments of what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
from hypothesis import given
from hypothesis import strategies as some
from scipy.integrate import quad

from dlatent.arrays import Array, Block
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.observations import OBSERVATION_MODELS
from dlatent.observations.poisson import FAR
from dlatent.observations.posterior import Own
from dlatent.observations.statistics import ObservationRequest, Values, block_observations, observation_slope
from dlatent.observations.tilted import tilted, tilted_bound
from tests.observations.cases import drawn, log_density
from tests.oracles import dense as oracles

NAMES = ["student", "poisson", "bernoulli", "negative_binomial"]
"""Those whose entries are independent given z."""
SHAPES = {"student": np.array([3.0]), "negative_binomial": np.array([2.5])}
numbers = some.floats(-3.0, 3.0)
variances = some.floats(0.0, 4.0)


def own_of(name: str) -> Own:
    return Own(np.array([0.7]), SHAPES.get(name))


def entry(name: str, seed: int) -> float:
    """An entry that may be."""
    rng = np.random.default_rng(seed)
    drawn = {"student": rng.normal() * 3.0, "bernoulli": float(rng.integers(2))}
    return float(drawn.get(name, rng.poisson(2.0)))


def bound(name: str, x: float, e: float, v: float) -> tuple[float, float, float]:
    model, own, at = OBSERVATION_MODELS[name], own_of(name), np.array([[x]])
    terms = model.terms(at, np.array([[e]]), np.array([[v]]), own)
    value = model.bound(at, np.array([[e]]), np.array([[v]]), own, terms) + model.constant(at, own)
    return float(value[0, 0]), float(terms.slope[0, 0]), float(terms.precision[0, 0])


@pytest.mark.parametrize("name", NAMES)
@given(e=numbers, v=variances, seed=some.integers(0, 999))
def test_the_bound_is_below_the_expected_log_likelihood(name: str, e: float, v: float, seed: int) -> None:
    """That of counts of Poisson is exact; without variance all are."""
    x = entry(name, seed)
    root, about = np.sqrt(v), (0.7, SHAPES.get(name, [0.0])[0])
    expected = log_density(name, x, e, *about)
    if root > 1e-3:
        nodes = lambda t: st.norm.pdf(t) * log_density(name, x, e + root * t, *about)  # noqa: E731
        expected = quad(nodes, -12.0, 12.0, limit=400)[0]
    value = bound(name, x, e, v)[0]
    assert value <= expected + 1e-6 * (1.0 + abs(expected))
    if name == "poisson" or v == 0.0:
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@given(e=numbers, v=some.floats(0.01, 4.0), seed=some.integers(0, 999))
def test_slope_and_precision_are_derivatives_of_the_bound(name: str, e: float, v: float, seed: int) -> None:
    x, step = entry(name, seed), 1e-5
    _, slope, precision = bound(name, x, e, v)
    by_mean = (bound(name, x, e + step, v)[0] - bound(name, x, e - step, v)[0]) / (2.0 * step)
    by_variance = (bound(name, x, e, v + step)[0] - bound(name, x, e, v - step)[0]) / (2.0 * step)
    np.testing.assert_allclose(slope, by_mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(precision, -2.0 * by_variance, rtol=1e-5, atol=1e-5)
    assert precision >= 0.0


@given(e=some.floats(0.0, 30.0), v=some.floats(0.0, 4.0))
def test_from_far_away_the_bound_of_counts_leads_back_along_its_tangent(e: float, v: float) -> None:
    """Where exp would leave the range of numbers the slope stays; the bound has no step there."""
    value, slope, _ = bound("poisson", 3.0, FAR + e, v)
    left = FAR - 0.5 * v
    edge, at_edge, _ = bound("poisson", 3.0, left, v)
    np.testing.assert_allclose(slope, at_edge, rtol=1e-12)
    np.testing.assert_allclose(value, edge + slope * (FAR + e - left), rtol=1e-12)


@pytest.mark.parametrize("each", [False, True], ids=["one noise", "a noise for each feature"])
@pytest.mark.parametrize("name", OBSERVATION_MODELS)
def test_the_slope_is_that_of_the_bound(name: str, each: bool) -> None:
    """By differences; the best q(z) of other parameters is another one, which changes nothing (envelope theorem)."""
    rng, (n, d, k) = np.random.default_rng(3), (12, 4, 2)
    model, specification = OBSERVATION_MODELS[name], Specification((View("x", d, shared=not each),), ((0,),), k)
    noise = rng.uniform(0.4, 2.0, d if each else 1)
    shape = model.first_shape(d)
    point = Parameters(
        0.7 * rng.normal(size=(d, k)),
        0.3 * rng.normal(size=d),
        noise,
        shape=shape,
        effects=0.3 * rng.normal(size=(d, 1)),
    )
    beside = [("covariates", 1), ("offset", 1)]
    parts = [drawn(name, n, d), rng.normal(size=(n, 1)), 0.3 * rng.normal(size=(n, 1))]
    if name == "normal":
        beside.append(("uncertainty", d))
        parts.append(rng.uniform(0.1, 1.0, (n, d)))
    parts[0][rng.random((n, d)) < 0.2] = np.nan
    block, values = Block(0, 0, np.hstack(parts)), Values("nan", tuple(beside))

    def sums(at: Parameters):
        return block_observations(block, ObservationRequest(model, at, specification, values, np.zeros(d), np.ones(d)))

    numerical = oracles.numerical_gradient(
        lambda v: sums(point.unflatten(v)).entries.log_likelihood, point.flatten(), step=1e-4
    )
    found = observation_slope(model, sums(point), point, specification)
    if model.noise:
        np.testing.assert_allclose(found, numerical, rtol=1e-5, atol=1e-5)
    else:  # what has no noise does not move it
        at = d * (k + 2)
        np.testing.assert_allclose(
            np.delete(found, slice(at, at + len(noise))),
            np.delete(numerical, slice(at, at + len(noise))),
            rtol=1e-5,
            atol=1e-5,
        )


def test_a_heavy_tail_may_have_no_variance() -> None:
    """That of t exists for more than two degrees of freedom."""
    at, student = np.ones((1, 1)), OBSERVATION_MODELS["student"]
    assert student.variance(at, at, Own(np.ones(1), np.array([2.0])))[0, 0] == np.inf


@given(seed=some.integers(0, 99))
def test_a_robust_start_does_not_know_up_from_down(seed: int) -> None:
    x = st.t(1.5).rvs((31, 4), random_state=seed)
    rows, middle = OBSERVATION_MODELS["student"].working(x, np.zeros(4), np.zeros((31, 1)))
    mirrored, other = OBSERVATION_MODELS["student"].working(-x, np.zeros(4), np.zeros((31, 1)))
    np.testing.assert_array_equal(mirrored, -rows)
    np.testing.assert_array_equal(other, -middle)
    assert np.abs(rows).max() < np.abs(x - middle).max()


@given(m=some.floats(-30.0, 30.0), v=some.floats(0.0, 50.0), a=some.floats(0.0, 1.0))
def test_the_tilted_bound_is_the_best_of_its_kind(m: float, v: float, a: float) -> None:
    means, variances = np.array([m]), np.array([v])
    found = tilted_bound(means, variances, tilted(means, variances)[0])[0]
    other = 0.5 * a * a * v + np.logaddexp(0.0, m + (0.5 - a) * v)
    assert found <= other + 1e-9 * (1.0 + abs(other))


def test_rare_events_keep_their_digits_in_single_precision() -> None:
    """log(1 + exp t) of a large negative t, which may be multiplied by many trials."""
    m, v = np.linspace(-30.0, 5.0, 200), np.full(200, 0.3)
    a, _ = tilted(m, v)
    single = tilted_bound(*(each.astype(np.float32) for each in (m, v, a)))
    np.testing.assert_allclose(single, tilted_bound(m, v, a), rtol=1e-5)


@pytest.mark.parametrize("name", OBSERVATION_MODELS)
def test_rows_are_drawn_as_the_density_says(name: str) -> None:
    """Of one feature, against SciPy's distribution of z and x by its first two moments."""
    model = OBSERVATION_MODELS[name]
    shape = {"student": 5.0, "student_rows": 5.0, "negative_binomial": 2.5}.get(name)
    own = Own(np.array([0.7]), None if shape is None else np.array([shape]))
    parameters = Parameters(np.array([[0.5]]), np.array([0.3]), own.noise, shape=own.shape)
    rows = model.sample(400_000, parameters, own, np.random.default_rng(0))[:, 0]
    e, v = np.array([[0.3]]), np.array([[0.25]])
    inverse = 5.0 / 3.0 if name == "student_rows" else 1.0
    mean, variance = (
        model.mean(e, v)[0, 0],
        model.variance(e, v * inverse, own._replace(noise=own.noise * inverse))[0, 0],
    )
    assert rows.mean() == pytest.approx(mean, abs=6.0 * rows.std() / np.sqrt(len(rows)))
    assert rows.var() == pytest.approx(variance, rel=0.05)


def test_values_that_may_not_be_are_known() -> None:
    values = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    expected: dict[str, list[bool]] = {
        "poisson": [False, True, False, True, True],
        "negative_binomial": [False, True, False, True, True],
        "bernoulli": [False, True, False, True, False],
        "student": [True] * 5,
        "student_rows": [True] * 5,
    }
    for name, allowed in expected.items():
        assert OBSERVATION_MODELS[name].allowed(values).tolist() == allowed


def test_logarithms_of_rising_factorials_are_those_of_scipy() -> None:
    from scipy.special import gammaln

    from dlatent.observations.poisson import risen

    counts: Array = np.array([[0.0, 1.0, 7.0, 64.0], [256.0, 65.0, 1e6, 3.0]])
    sizes = np.array([0.1, 1.0, 2.5, 1e4])
    np.testing.assert_allclose(risen(gammaln, counts, sizes), gammaln(counts + sizes) - gammaln(sizes), rtol=1e-9)
    np.testing.assert_allclose(risen(gammaln, counts, 1.0), gammaln(counts + 1.0), rtol=1e-14)
    assert risen(gammaln, np.zeros((0, 4)), sizes).shape == (0, 4)
