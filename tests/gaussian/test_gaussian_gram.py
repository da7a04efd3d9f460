"""Spaces of combinations of samples: the likelihood there is that of the model of the features themselves."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.errors import DataError
from dlatent.gaussian.gram import DualSpace, dual_data, dual_solution, extended_frame, posterior_rows
from dlatent.gaussian.maximisation import likelihood
from dlatent.operators.tall import orthonormal
from tests.oracles import dense as oracles
from tests.simulators import draw, hide, random_parameters, specification_of

N, WIDTH, K = 14, 30, 2


@pytest.fixture(params=["complete", "semi-supervised", "one view"])
def case(request):
    """A specification in K coordinates, features about their mean, and targets."""
    sizes = (WIDTH,) if request.param == "one view" else (WIDTH, 2)
    specification = specification_of(sizes, K, unlabelled=request.param == "semi-supervised")
    truth = random_parameters(sizes, K, noise=(0.3, 0.6)[: len(sizes)], random_state=1)
    data = draw(truth, specification, N, 2)
    labelled = np.ones(N, dtype=bool)
    if request.param == "semi-supervised":
        labelled = np.arange(N) % 3 == 0
    targets = hide(data.targets, labelled) if len(sizes) > 1 else None
    features = data.features - data.features.mean(axis=0)
    return specification.resized((K, *sizes[1:])), features, targets


def grown(case, steps=2):
    specification, features, targets = case
    kernel = features @ features.T
    data = dual_data(targets, specification, N, WIDTH)._replace(energy=float(np.trace(kernel)))
    rng = np.random.default_rng(3)
    first = orthonormal(rng.standard_normal((N, 3)))
    space = DualSpace.begin(first, kernel @ first, data)
    for _ in range(steps):
        fresh = orthonormal(rng.standard_normal((N, 2)), space.basis)
        space = space.extended((fresh,), kernel @ fresh)
    return space


def directions(space, features):
    return features.T @ space.basis @ space.frame


def point(space, specification):
    reduced = specification.resized((space.rank, *specification.sizes[1:]))
    noise = (0.4, 0.7)[: len(reduced.sizes)]
    return reduced, random_parameters(reduced.sizes, K, noise=noise, random_state=9)


def lifted(space, features, parameters):
    """The model of the features themselves."""
    rank, span = space.rank, directions(space, features)
    loadings = np.vstack([span @ parameters.loadings[:rank], parameters.loadings[rank:]])
    mean = np.concatenate([span @ parameters.mean[:rank], parameters.mean[rank:]])
    sizes = (WIDTH, len(parameters.mean) - rank)[: len(parameters.noise_variance)]
    return oracles.DenseModel(loadings, mean, np.repeat(parameters.noise_variance, sizes))


def rows_of(case):
    _, features, targets = case
    return features if targets is None else np.hstack([features, targets])


def test_directions_are_orthonormal_and_coordinates_are_projections(case):
    space = grown(case)
    span = directions(space, case[1])
    np.testing.assert_allclose(span.T @ span, np.eye(space.rank), atol=1e-10)
    np.testing.assert_allclose(space.coordinates, case[1] @ span, atol=1e-9)


def test_likelihood_inside_is_that_of_the_features(case):
    specification, features, _ = case
    space = grown(case)
    reduced, parameters = point(space, specification)
    moments = space.moments(specification)
    inside = likelihood(parameters, moments, reduced)[0]
    expected = oracles.log_densities(lifted(space, features, parameters), rows_of(case)).sum()
    assert inside == pytest.approx(expected, rel=1e-10)


def test_posterior_rows_are_dense_conditionals(case):
    specification, features, _ = case
    space = grown(case)
    _, parameters = point(space, specification)
    model = lifted(space, features, parameters)
    expected = [oracles.latent_given(model, row).mean for row in rows_of(case)]
    found = posterior_rows(space.coordinates, space.data, parameters, specification)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_the_space_grows_towards_the_gradient(case):
    """Σ (x−μ) E[z]ᵀ lies in the features of the old combinations and of those that are asked for next."""
    specification, features, _ = case
    space = grown(case)
    _, parameters = point(space, specification)
    model = lifted(space, features, parameters)
    z = np.array([oracles.latent_given(model, row).mean for row in rows_of(case)])
    gradient = features.T @ z
    (fresh,) = space.growth(parameters, specification, 2, first=True)
    np.testing.assert_allclose(space.basis.T @ fresh, 0.0, atol=1e-12)
    asked = np.linalg.qr(features.T @ np.hstack([space.basis, fresh]))[0]
    old = np.linalg.qr(features.T @ space.basis)[0]
    np.testing.assert_allclose(asked @ (asked.T @ gradient), gradient, atol=1e-9)
    assert abs(old @ (old.T @ gradient) - gradient).max() > 1e-3


def test_earlier_coordinates_stay_when_the_space_grows(case):
    small, large = grown(case, 1), grown(case, 2)
    np.testing.assert_allclose(large.coordinates[:, : small.rank], small.coordinates, atol=1e-10)


def test_a_restart_is_the_same_data_in_fewer_directions(case):
    space = grown(case)
    keep = np.linalg.qr(np.random.default_rng(4).standard_normal((space.rank, 4)))[0]
    small = space.restarted((keep,))
    np.testing.assert_allclose(small.coordinates, space.coordinates @ keep, atol=1e-9)
    np.testing.assert_allclose(small.basis.T @ small.basis, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(small.inner, small.basis.T @ small.products, atol=1e-8)
    fresh = orthonormal(np.random.default_rng(5).standard_normal((N, 2)), small.basis)
    again = small.extended((fresh,), case[1] @ case[1].T @ fresh)
    span = directions(again, case[1])
    np.testing.assert_allclose(span.T @ span, np.eye(again.rank), atol=1e-9)


def test_the_solution_in_the_span_of_its_loadings_is_the_same_model(case):
    specification, features, _ = case
    space = grown(case)
    _, parameters = point(space, specification)
    # Outside the span of the loadings the best mean is the mean of the data, which is zero here.
    own = parameters.loadings[: space.rank]
    inside = own @ np.linalg.lstsq(own, parameters.mean[: space.rank], rcond=None)[0]
    parameters = parameters._replace(mean=np.concatenate([inside, parameters.mean[space.rank :]]))
    found = dual_solution(space, parameters, specification)
    about = features.T @ found.combinations
    np.testing.assert_allclose(about.T @ about, np.eye(K), atol=1e-9)
    loadings = np.vstack([about @ found.parameters.loadings[:K], found.parameters.loadings[K:]])
    expected = lifted(space, features, parameters)
    np.testing.assert_allclose(loadings @ loadings.T, expected.loadings @ expected.loadings.T, atol=1e-8)
    np.testing.assert_allclose(about @ found.parameters.mean[:K], expected.mean[:WIDTH], atol=1e-8)


def test_features_without_energy_are_no_directions():
    """A kernel of rank 2 gives two directions, however many combinations are asked for."""
    rows = np.random.default_rng(0).standard_normal((8, 2))
    frame = extended_frame(np.zeros((0, 0)), rows @ rows.T, 5)
    assert frame.shape == (8, 2)
    np.testing.assert_allclose(frame.T @ rows @ rows.T @ frame, np.eye(2), atol=1e-10)


def test_rounding_is_no_direction_beyond_the_features():
    """Rows of two features beside a third direction of a ten-thousandth of their size."""
    rows = np.random.default_rng(0).standard_normal((8, 3)) * [1.0, 1.0, 1e-4]
    widths = [extended_frame(np.zeros((0, 0)), rows @ rows.T, dimension).shape[1] for dimension in (3, 2)]
    assert widths == [3, 2]
    assert extended_frame(np.zeros((0, 0)), np.eye(8), 2).shape[1] == 8  # and is refused


def test_a_matrix_that_is_no_kernel_is_refused():
    with pytest.raises(DataError, match="not positive semi-definite"):
        extended_frame(np.zeros((0, 0)), np.diag([1.0, 0.5, -0.1]), 3)


def test_more_directions_than_features_are_refused():
    rows = np.random.default_rng(0).standard_normal((8, 5))
    specification = specification_of((2,), 2)
    data = dual_data(None, specification, 8, 4)._replace(energy=float((rows**2).sum()))
    space = DualSpace.begin(np.eye(8), rows @ rows.T, data)
    with pytest.raises(DataError, match="span 5 dimensions, more than the 4"):
        space.moments(specification)
