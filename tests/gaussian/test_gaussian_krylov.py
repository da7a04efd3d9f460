"""The Krylov space of one view: what it says of the data is what a look at them says, restarts and drops included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import PPCA
from dlatent.arrays import Block
from dlatent.gaussian.maximisation import likelihood
from dlatent.gaussian.products import ProductRequest, block_products
from dlatent.gaussian.specification import Parameters
from dlatent.operators.tall import orthonormal
from dlatent.solvers.moments.subspace import KrylovSpace
from tests.law_examples import examples
from tests.oracles import dense as oracles
from tests.simulators import random_parameters, specification_of

K, EXTRA = 3, 2


def scatter(rows):
    """Σ(x−μ)(x−μ)ᵀ, from its definition."""
    moved = rows - rows.mean(axis=0)
    return moved.T @ moved


def products(rows, directions, sums):
    request = ProductRequest((directions,), np.full(rows.shape[1], 0.5), ((0,),), sums)
    return block_products(Block(0, 0, rows, None), request)


def leading(inner):
    return np.linalg.eigh(inner)[1][:, ::-1][:, :K]


def spaces(rows, steps, restart_at):
    """Spaces that grow by themselves, thickly restarted before one step, each with the directions that come next."""
    features = rows.shape[1]
    first = orthonormal(np.random.default_rng(0).standard_normal((features, K + EXTRA)))
    space = KrylovSpace.begin(first, products(rows, first, True)[0], np.full(features, 0.5))
    specification = specification_of((features,), K, unlabelled=False)
    for step in range(steps):
        point = Parameters(leading(space.inner), np.zeros(space.ranks[0]), np.array([0.5]))
        if step == restart_at:
            loadings = point.loadings
            keep = np.hstack([loadings, space.principal(loadings, K + EXTRA)])
            space = space.restarted((keep,))
            point = point._replace(loadings=keep.T @ loadings, mean=np.zeros(keep.shape[1]))
        (fresh,) = space.growth(point, specification, EXTRA, first=not step)
        yield space, fresh
        if not fresh.shape[1]:
            return
        space = space.extended((fresh,), products(rows, fresh, False), features)


def assert_says_what_the_data_say(space, rows):
    whole, q = scatter(rows), space.basis
    scale = np.linalg.norm(whole)
    np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-13)
    np.testing.assert_allclose(space.inner, q.T @ whole @ q, atol=1e-13 * scale)
    outside = space.newest - q @ space.inside
    np.testing.assert_allclose(q.T @ outside, 0.0, atol=1e-13 * scale)
    if space.complete:
        np.testing.assert_allclose(whole @ q, q @ space.inner + outside @ space.coupling.T, atol=1e-12 * scale)


def decaying(seed, dimensions=60, last=0.2):
    rng = np.random.default_rng(seed)
    return 3.0 + rng.standard_normal((90, 60)) * np.geomspace(1.0, last, 60) * (np.arange(60) < dimensions)


@pytest.mark.parametrize("restart_at", [None, 2, 4])
def test_the_projected_matrix_is_that_of_the_data(restart_at):
    seen = 0
    for space, fresh in spaces(decaying(1), 8, restart_at):
        assert space.complete
        assert_says_what_the_data_say(space, decaying(1))
        assert abs(space.basis.T @ fresh).max() < 1e-13
        seen += 1
    assert seen == 8


@pytest.mark.parametrize("restart_at", [None, 2])
def test_it_grows_by_all_that_gradient_and_principal_directions_lack(restart_at):
    rows = decaying(1)
    for space, fresh in spaces(rows, 5, restart_at):
        q = np.hstack([space.basis, fresh])
        wanted = scatter(rows) @ space.basis @ np.linalg.eigh(space.inner)[1][:, ::-1][:, : K + EXTRA]
        outside = wanted - q @ (q.T @ wanted)
        assert np.linalg.norm(outside) < 1e-9 * np.linalg.norm(wanted)
        assert np.linalg.norm(wanted - space.basis @ (space.basis.T @ wanted)) > 1e-4 * np.linalg.norm(wanted)


def test_directions_stay_orthogonal_when_many_have_converged():
    """Where the newest products alone are looked at, rounding grows with every pass that finds an eigenvector."""
    rng = np.random.default_rng(5)
    u = np.linalg.qr(rng.standard_normal((500, 400)))[0]
    rows = u * np.concatenate([np.geomspace(100.0, 10.0, 8), np.linspace(1.0, 0.5, 392)])
    last = 0
    for space, _ in spaces(rows, 40, None):
        q, last = space.basis, space.ranks[0]
        np.testing.assert_allclose(q.T @ q, np.eye(last), atol=1e-13)
    assert last == 40 * (K + EXTRA)
    found = np.linalg.eigvalsh(space.inner)[::-1][:8]
    np.testing.assert_allclose(found, np.linalg.eigvalsh(scatter(rows))[::-1][:8], rtol=1e-13)


def equal_in_groups(rng):
    """Rows whose scatter has three eigenvalues, of multiplicity 2, 2 and 56: five directions soon depend."""
    raw = rng.standard_normal((90, 60))
    u = np.linalg.qr(raw - raw.mean(axis=0))[0]
    return u * np.repeat([9.0, 4.0, 1.0], [2, 2, 56]) + rng.standard_normal(60)


@pytest.mark.parametrize("restart_at", [None, 1])
def test_dropped_directions_leave_what_is_said_true(restart_at):
    rng = np.random.default_rng(2)
    # A little of everything, so that some directions depend to rounding only, and growth goes on after they do.
    rows = equal_in_groups(rng) + 1e-7 * rng.standard_normal((90, 60))
    found = [space for space, _ in spaces(rows, 6, restart_at)]
    assert any(not space.complete for space in found)
    assert len(found) > 3
    for space in found:
        assert_says_what_the_data_say(space, rows)


@given(st.integers(0, 10**6), st.integers(4, 60), st.floats(1e-6, 1.0), st.sampled_from([None, 1, 3]))
@settings(max_examples=examples(40))
def test_any_data_are_told_truly(seed, dimensions, last, restart_at):
    rows = decaying(seed, dimensions, last)
    for space, _ in spaces(rows, 6, restart_at):
        assert_says_what_the_data_say(space, rows)


def test_likelihood_inside_is_the_likelihood_of_the_lifted_model():
    rows = decaying(3)
    specification = specification_of((60,), K, unlabelled=False)
    for space, _ in spaces(rows, 4, 2):
        reduced = specification.resized(space.ranks)
        point = random_parameters(space.ranks, K, noise=(0.4,), random_state=9)
        moments = space.moments(specification)
        inside = likelihood(point, moments, reduced)[0]
        model = oracles.dense(space.lifted(point), (60,))
        assert inside == pytest.approx(oracles.log_densities(model, rows).sum(), rel=1e-10)


@pytest.mark.parametrize("variances", ["equal", "equal but ten", "equal in groups"])
def test_data_of_equal_variances_are_fitted(variances):
    """LAPACK may not find a few of many nearly equal eigenvalues."""
    rng = np.random.default_rng(0)
    u, _ = np.linalg.qr(rng.standard_normal((400, 300)))
    spread = {"equal": np.ones(300), "equal but ten": np.r_[np.full(10, 10.0), np.ones(290)]}
    spread["equal in groups"] = np.repeat([3.0, 2.0, 1.0], 100)
    x = u * spread[variances]
    model = PPCA(10, solver="krylov").fit(x)
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    noise = values[10:].mean()
    expected = -200.0 * (300 * np.log(2 * np.pi) + np.log(values[:10]).sum() + 290 * np.log(noise) + 300)
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-9)
