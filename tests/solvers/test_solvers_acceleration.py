"""Anderson acceleration: safe with any map, far fewer maps than plain iteration, and never a lower value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dlatent.solvers.ascent import accelerate, settle


@dataclass(frozen=True)
class Vector:
    """A point of which all coordinates are free."""

    values: np.ndarray

    def flatten(self):
        return self.values

    def unflatten(self, vector):
        return Vector(vector)


MATRIX = np.diag(np.linspace(0.1, 0.999, 12))
FIXED = np.linspace(-1, 1, 12)


def linear(point):
    """A slow linear map with the fixed point FIXED; the value is minus the squared distance."""
    moved = FIXED + MATRIX @ (point.values - FIXED)
    return Vector(moved), -float(np.sum((point.values - FIXED) ** 2))


def plain_iterations(tolerance):
    point, count = Vector(np.zeros(12)), 0
    while linear(point)[1] < -tolerance:
        point, count = linear(point)[0], count + 1
    return count


def test_slow_maps_converge_in_a_fraction_of_the_steps():
    found = accelerate(linear, Vector(np.zeros(12)), tolerance=1e-14, max_evaluations=500)
    assert found.converged
    np.testing.assert_allclose(found.point.values, FIXED, atol=1e-5)
    assert found.evaluations < plain_iterations(1e-10) / 50


def test_the_returned_value_belongs_to_the_returned_point():
    found = accelerate(linear, Vector(np.zeros(12)), tolerance=1e-14, max_evaluations=20)
    assert not found.converged
    assert found.evaluations == 20
    assert linear(found.point)[1] == found.value


def test_a_climb_goes_on_from_the_memory_of_another():
    """Where its last point is looked at again, steps are those of one climb."""
    visited = []

    def step(point):
        visited.append(point.values)
        return linear(point)

    start = Vector(np.zeros(12))
    accelerate(step, start, tolerance=0.0, max_evaluations=12)
    whole, points, images = visited.copy(), [], []
    visited.clear()
    first = accelerate(step, start, tolerance=0.0, max_evaluations=6, memory=(points, images))
    accelerate(step, first.point, tolerance=0.0, max_evaluations=7, memory=(points[:-1], images[:-1]))
    assert first.value == linear(Vector(whole[5]))[1]
    np.testing.assert_allclose(visited[6:], whole[5:], rtol=1e-9, atol=1e-12)


def wavy(point):
    """A contraction whose value has ripples: extrapolated points often are worse."""
    moved = 0.8 * point.values
    return Vector(moved), -float(np.sum(point.values**2) + 0.5 * np.sum(np.sin(9 * point.values) ** 2))


@pytest.mark.parametrize("seed", range(5))
def test_values_of_accepted_points_never_fall(seed):
    """A worse extrapolation is given up for the plain image, which a map like EM's makes no worse."""
    accepted, seen = [], []

    def step(point):
        image, value = linear(point)
        seen.append(value)
        return image, value

    start = Vector(np.random.default_rng(seed).standard_normal(12) * 3)
    found = accelerate(step, start, tolerance=1e-12, max_evaluations=200)
    best = -np.inf
    for value in seen:
        if value >= best:
            accepted.append(value)
            best = value
    assert found.value == pytest.approx(accepted[-1], abs=1e-9)
    assert found.value >= seen[0]


def test_a_map_with_ripples_ends_at_its_fixed_point():
    found = accelerate(wavy, Vector(np.full(3, 2.0)), tolerance=1e-14, max_evaluations=400)
    np.testing.assert_allclose(found.point.values, 0.0, atol=1e-4)


def test_extrapolated_points_are_projected():
    visited = []

    def step(point):
        visited.append(point.values.min())
        return linear(point)

    accelerate(
        step,
        Vector(np.zeros(12)),
        tolerance=1e-13,
        max_evaluations=100,
        project=lambda p: Vector(np.maximum(p.values, -0.5)),
    )
    # Images of the map itself are not projected, and tend to -1 slowly; extrapolations would be there at once.
    assert min(visited) >= -1.0


def test_values_that_are_not_numbers_are_given_up():
    """An extrapolation into a region without a likelihood is like one with a bad likelihood."""

    def step(point):
        image, value = linear(point)
        return image, value if abs(point.values).max() < 1.01 else float("nan")

    found = accelerate(step, Vector(np.zeros(12)), tolerance=1e-12, max_evaluations=500)
    assert np.isfinite(found.value)
    assert found.value > linear(Vector(np.zeros(12)))[1]


def test_settling_goes_to_the_fixed_point_itself():
    """The value is flat to rounding at a distance of 1e-8; the point is found to many more digits."""
    near = Vector(FIXED + 1e-8)
    found = settle(linear, near, tolerance=1e-14, max_evaluations=60)
    assert abs(found.values - FIXED).max() < 1e-10
    assert abs(near.values - FIXED).max() > 1e-9


def test_settling_ends_where_rounding_is_left():
    """Steps that no longer halve what a step changes: all 200 were made."""
    asked, rng = [0], np.random.default_rng(0)

    def rounded(point):
        asked[0] += 1
        image, value = linear(point)
        return Vector(image.values + 1e-10 * rng.standard_normal(len(image.values))), value

    found = settle(rounded, Vector(FIXED + 1e-6), tolerance=1e-14, max_evaluations=200)
    assert asked[0] < 80
    assert abs(linear(found)[0].values - found.values).max() < 1e-9


def test_settling_never_leads_away():
    """A map that drives points apart: the start is the best there is."""
    start = Vector(FIXED + 1e-3)
    found = settle(lambda p: (Vector(FIXED + 1e4 * (p.values - FIXED) ** 3 + p.values * 1e9), 0.0), start, **SETTLING)
    np.testing.assert_array_equal(found.values, start.values)


SETTLING = {"tolerance": 1e-14, "max_evaluations": 20}
