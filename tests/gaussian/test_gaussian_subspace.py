"""The model inside a subspace: the likelihood there is the likelihood of the lifted parameters, and so is its slope."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.arrays import Block
from dlatent.errors import DataError
from dlatent.gaussian.likelihood import LikelihoodRequest, block_log_likelihood
from dlatent.gaussian.maximisation import likelihood
from dlatent.gaussian.products import ProductRequest, block_products
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.operators.sparse import by_columns, by_rows, sparse_times
from dlatent.operators.tall import GrowingColumns, orthonormal
from dlatent.solvers.moments.rayleigh_ritz import Subspace, gradient_block, ritz_residuals
from tests.oracles import dense as oracles
from tests.simulators import draw, hide, random_parameters, specification_of

SIZES, K, N = (12, 2), 2, 25


@pytest.fixture(params=["complete", "semi-supervised", "one view"])
def case(request):
    sizes = SIZES[:1] if request.param == "one view" else SIZES
    specification = specification_of(sizes, K, unlabelled=request.param == "semi-supervised")
    truth = random_parameters(sizes, K, noise=(0.3, 0.6)[: len(sizes)], random_state=1)
    data = draw(truth, specification, N, 2)
    labelled = np.ones(N, dtype=bool)
    if request.param == "semi-supervised":
        labelled = np.random.default_rng(3).random(N) < 0.4
    targets = hide(data.targets, labelled) if len(sizes) > 1 else None
    rows = data.features if targets is None else np.hstack([data.features, targets])
    return specification, Block(0, 0, data.features, targets), rows


def products(block, specification, directions, sums, shift):
    return block_products(block, ProductRequest(directions, shift, specification.patterns, sums))


def grown_space(specification, block):
    """Subspaces of the features, built in three steps to seven directions; the targets are whole."""
    shift = np.linspace(-1, 1, SIZES[0])
    stacked = np.concatenate([shift, np.zeros(sum(specification.sizes[1:]))])
    rng, others = np.random.default_rng(0), [np.eye(n) for n in specification.sizes[1:]]
    first = (orthonormal(rng.standard_normal((SIZES[0], 3))), *others)
    space = Subspace.begin(specification.patterns, first, products(block, specification, first, True, shift), stacked)
    for _ in range(2):
        nothing = [np.zeros((n, 0)) for n in specification.sizes[1:]]
        fresh = (orthonormal(rng.standard_normal((SIZES[0], 2)), space.basis[0]), *nothing)
        space = space.extended(fresh, products(block, specification, fresh, False, shift))
    return space


def reduced_point(space, specification):
    reduced = specification.resized(space.ranks)
    noise = (0.4, 0.7)[: len(reduced.sizes)]
    return reduced, random_parameters(reduced.sizes, K, noise=noise, random_state=9)


def test_likelihood_inside_is_the_likelihood_of_the_lifted_model(case):
    specification, block, rows = case
    space = grown_space(specification, block)
    reduced, point = reduced_point(space, specification)
    moments = space.moments(specification)
    inside = likelihood(point, moments, reduced)[0]
    model = oracles.dense(space.lifted(point), specification.sizes)
    assert inside == pytest.approx(oracles.log_densities(model, rows).sum(), rel=1e-10)


def test_gradient_block_comes_from_the_dense_conditionals(case):
    """Σ (x_v−μ_v) E[z]ᵀ over the samples that have a view, without a look at the data."""
    specification, block, rows = case
    space = grown_space(specification, block)
    _, point = reduced_point(space, specification)
    model = oracles.dense(space.lifted(point), specification.sizes)
    for view, own in enumerate(specification.slices):
        about_mean = space.shift[own] + space.offset(view)
        seen = [row for row in rows if not np.isnan(row[own]).any()]
        expected = sum(np.outer(row[own] - about_mean, oracles.latent_given(model, row).mean) for row in seen)
        found = gradient_block(space, point, specification, view)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def assert_same_space(space, direct, basis):
    for own, part, inner, expected in zip(space.patterns, space.products, space.inner, direct, strict=True):
        whole = np.vstack([np.hstack(row) for row in inner])
        stacked = np.hstack(expected.product)
        at = np.concatenate([[0], np.cumsum([len(basis[view]) for view in own])])
        rows = [basis[view].T @ stacked[at[i] : at[i + 1]] for i, view in enumerate(own)]
        np.testing.assert_allclose(np.hstack(part), stacked, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(whole, np.vstack(rows), rtol=1e-10, atol=1e-10)


def test_subspace_keeps_products_and_inner_products(case):
    specification, block, _ = case
    space = grown_space(specification, block)
    shift = space.shift[: SIZES[0]]
    assert_same_space(space, products(block, specification, space.basis, False, shift), space.basis)


def test_restart_is_the_same_data_seen_through_fewer_directions(case):
    specification, block, _ = case
    space = grown_space(specification, block)
    rng = np.random.default_rng(4)
    keep = [np.linalg.qr(rng.standard_normal((rank, min(rank, 4))))[0] for rank in space.ranks]
    small = space.restarted(keep)
    basis = tuple(q @ k for q, k in zip(space.basis, keep, strict=True))
    assert_same_space(small, products(block, specification, basis, False, space.shift[: SIZES[0]]), basis)


def test_ritz_residuals_are_products_of_principal_directions(case):
    specification, block, rows = case
    space = grown_space(specification, block)
    _, point = reduced_point(space, specification)
    loadings = point.loadings[: space.ranks[0]]
    chosen = space.principal(loadings, 2)
    np.testing.assert_allclose(chosen.T @ chosen, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(loadings.T @ chosen, 0.0, atol=1e-9)
    x = rows[:, : SIZES[0]]
    moved = x - x.mean(axis=0)
    expected = moved.T @ (moved @ (space.basis[0] @ chosen))
    np.testing.assert_allclose(ritz_residuals(space, loadings, 2), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_new_directions_stay_orthogonal_when_most_of_them_lies_inside(scale):
    rng = np.random.default_rng(0)
    basis = orthonormal(rng.standard_normal((200, 20)))
    candidates = basis @ rng.standard_normal((20, 6)) + scale * rng.standard_normal((200, 6))
    fresh = orthonormal(candidates, basis)
    assert fresh.shape == (200, 6)
    assert abs(basis.T @ fresh).max() < 1e-14 * 200
    np.testing.assert_allclose(fresh.T @ fresh, np.eye(6), atol=1e-13)


def test_directions_inside_the_span_or_doubled_are_dropped():
    rng = np.random.default_rng(0)
    basis = orthonormal(rng.standard_normal((50, 5)))
    assert orthonormal(basis @ rng.standard_normal((5, 3)), basis).shape == (50, 0)
    one = rng.standard_normal((50, 1))
    assert orthonormal(np.hstack([one, 2 * one, np.zeros((50, 1))]), basis).shape == (50, 1)


@pytest.mark.parametrize("left", [1, 7])
def test_no_more_directions_are_found_than_are_left(left):
    """Of the others rounding is all that there is, which made spaces wider than the data, or no Cholesky factor."""
    rng = np.random.default_rng(0)
    basis = orthonormal(rng.standard_normal((60, 60)))[:, : 60 - left]
    candidates = basis @ rng.standard_normal((60 - left, 25)) + 1e-9 * rng.standard_normal((60, 25))
    fresh = orthonormal(candidates, basis)
    assert fresh.shape == (60, left)
    assert abs(basis.T @ fresh).max() < 1e-14
    np.testing.assert_allclose(fresh.T @ fresh, np.eye(left), atol=1e-13)


@pytest.mark.parametrize("power", [-600, 600])
@pytest.mark.parametrize("known", [False, True], ids=["", "with what lies inside"])
def test_directions_of_any_length_have_the_same_basis(power, known):
    """Squares of such numbers are zero or infinite."""
    rng = np.random.default_rng(0)
    basis = orthonormal(rng.standard_normal((40, 4)))
    candidates = rng.standard_normal((40, 3))
    inside = basis.T @ candidates if known else None
    expected = orthonormal(candidates, basis, inside)
    inside = None if inside is None else np.ldexp(inside, power)
    np.testing.assert_allclose(orthonormal(np.ldexp(candidates, power), basis, inside), expected, atol=1e-14)


def test_a_short_direction_is_not_lost_beside_long_ones():
    rng = np.random.default_rng(0)
    candidates = rng.standard_normal((40, 3)) * [1e-9, 1.0, 1e9]
    found = orthonormal(candidates)
    np.testing.assert_allclose(found @ (found.T @ candidates), candidates, rtol=1e-6, atol=1e-24)


@pytest.mark.parametrize("width", [1, 32, 33, 50])
@pytest.mark.parametrize("numbers", [1, 30 * 16, 10**6], ids=["one column", "sixteen columns", "all columns"])
def test_sparse_products_by_slabs_have_the_bits_of_the_product_at_once(width, numbers, monkeypatch):
    monkeypatch.setattr("dlatent.operators.sparse.SLAB_BYTES", 8 * numbers)
    rng = np.random.default_rng(width)
    x = sp.random_array((30, 50), density=0.3, format="csr", rng=rng)
    right, left = rng.standard_normal((50, width)), np.asfortranarray(rng.standard_normal((30, width)))
    for held in (x, x.tocsc()):
        np.testing.assert_array_equal(sparse_times(held, right), x @ right)
        np.testing.assert_array_equal(sparse_times(held.T, left), x.T @ left)


def counted_words(rng, dtype):
    """Documents of which each feature has four entries or more, the last in a part of them, and one a stored zero."""
    counts = sp.random_array((60, 9), density=0.5, rng=rng).toarray().astype(dtype)
    counts[20:, -1] = 0.0
    x = sp.csr_array(counts)
    x.data[3] = 0.0
    return x


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shared", [True, False])
def test_a_pass_over_rows_by_columns_has_the_bits_of_one_by_rows(seed, dtype, shared, monkeypatch):
    rng = np.random.default_rng(seed)
    x = counted_words(rng, dtype)
    monkeypatch.setattr("dlatent.operators.sparse.SLAB_BYTES", 8 * 60 * (1 + seed))
    monkeypatch.setattr("dlatent.operators.sparse.ENTRIES_OF_PIECE", 4 + 8 * (seed % 2))
    held = by_columns(x)
    assert len(held.pieces) == len(x.data) // (9 * (4 + 8 * (seed % 2))) > 1
    np.testing.assert_array_equal(by_rows(held).toarray(), x.toarray())
    shift = rng.standard_normal(9) if seed % 2 else np.zeros(9)
    for sums in (True, False):
        request = ProductRequest((rng.standard_normal((9, 5)),), shift, ((0,),), sums)
        (one,), (other,) = (block_products(Block(0, 0, rows), request) for rows in (x, held))
        np.testing.assert_array_equal(one.product[0], other.product[0])
        assert (one.sums is None) == (not sums)
        for mine, yours in zip(one.sums or (), other.sums or (), strict=True):
            np.testing.assert_array_equal(mine, yours)
    specification = Specification((View("features", 9, shared=shared),), ((0,),), 2)
    noise = np.ones(1) if shared else rng.uniform(0.5, 2.0, 9)
    request = LikelihoodRequest(Parameters(rng.standard_normal((9, 2)), shift, noise), specification)
    assert block_log_likelihood(Block(0, 0, x), request) == block_log_likelihood(Block(0, 0, held), request)


def test_rows_by_columns_are_refused_with_the_words_of_rows_by_rows():
    def first_pass(x):
        request = ProductRequest((np.ones((9, 2)),), np.zeros(9), ((0,),), True, True)
        return block_products(Block(7, 1000, x), request)

    x = counted_words(np.random.default_rng(0), np.float64)
    for spoil in ("value", "row"):
        bad = x.copy()
        at = slice(bad.indptr[20], bad.indptr[21])
        bad.data[at] = np.nan if spoil == "value" else 0.0
        said = []
        for rows in (bad, by_columns(bad)):
            with pytest.raises(DataError, match="row 1020") as refused:
                first_pass(rows)
            said.append(str(refused.value))
        assert said[0] == said[1]
    first_pass(by_columns(x))


def test_only_sparse_rows_with_many_entries_of_each_feature_are_held_by_columns():
    dense = np.ones((40, 10))
    few = sp.random_array((40, 100), density=0.09, format="csr", rng=np.random.default_rng(0))
    assert by_columns(dense) is dense
    assert by_columns(few) is few
    assert {piece.format for piece in by_columns(sp.csr_array(dense)).pieces} == {"csc"}


@pytest.mark.parametrize(("most", "room"), [(None, 24), (100, 24), (5, 5), (2, 3)])
def test_room_for_directions_is_no_more_than_there_will_be(most, room):
    matrix, fresh = np.full((4, 2), 2.0), np.ones((4, 1))
    found = GrowingColumns.of(matrix).appended(fresh, most)
    assert found.buffer.shape == (4, room)
    assert found.matrix.tobytes() == np.hstack([matrix, fresh]).tobytes()
    assert found.appended(fresh, most).matrix.tobytes() == np.hstack([matrix, fresh, fresh]).tobytes()
    assert found.matrix.tobytes() == np.hstack([matrix, fresh]).tobytes()


def test_nothing_is_written_into_the_array_that_columns_began_as():
    """Columns that are part of a wider array of somebody else."""
    wide = np.zeros((4, 9), order="F")
    GrowingColumns.of(wide[:, :2]).appended(np.ones((4, 1)))
    assert not wide.any()
