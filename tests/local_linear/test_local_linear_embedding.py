"""Weights solve their least squares problems; the smallest eigenvectors are those of M' by its definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.arrays import Block
from dlatent.solvers.lle.embedding import (
    Reference,
    WeightRequest,
    block_coordinates,
    block_weights,
    closed_sets,
    components,
    coordinates,
    interpolated,
    residual_matrix,
    weight_matrix,
    weights,
)
from dlatent.solvers.lle.neighbours import exact_neighbours
from dlatent.solvers.lle.smallest import factorised, predicted_fill, smallest
from tests.law_examples import examples

K = 5


def sheet(rows, seed=0, features=3):
    """A curved sheet in three dimensions, and more where asked."""
    random = np.random.default_rng(seed)
    u, v = random.random((2, rows)) * [[2.0], [1.0]]
    x = np.column_stack([np.sin(2 * u), np.cos(2 * u), v])
    return x if features == 3 else x @ random.normal(size=(3, features))


def graph(x, k=K, regularisation=1e-3):
    indices = exact_neighbours(x, np.arange(len(x)), k, x.mean(axis=0)).indices
    found = weights(x, x[indices.ravel()], np.arange(indices.size), k, regularisation)
    return indices, found


def objective(x, neighbours, w, regularisation):
    """What the weights of one sample minimise."""
    spread = ((neighbours - x) ** 2).sum()
    return ((x - w @ neighbours) ** 2).sum() + regularisation * spread * (w**2).sum()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 10**6), k=st.integers(1, 7), regularisation=st.sampled_from([1e-6, 1e-3, 0.1]))
def test_no_other_weights_are_better(sparse, seed, k, regularisation):
    random = np.random.default_rng(seed)
    x, near = random.normal(size=(4, 3)), random.normal(size=(4 * k, 3))
    order = random.permutation(4 * k)
    made = sp.csr_array if sparse else np.asarray
    found = weights(made(x), made(near), order, k, regularisation)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    for row, w, own in zip(x, found, near[order].reshape(4, k, 3), strict=True):
        best = objective(row, own, w, regularisation)
        for _ in range(10):
            step = random.normal(size=k) * 0.01
            assert objective(row, own, w + step - step.mean(), regularisation) >= best * (1 - 1e-9)


def test_neighbours_in_one_place_have_equal_weights():
    np.testing.assert_array_equal(weights(np.ones((1, 2)), np.ones((4, 2)), np.arange(4), 4, 1e-3), [[0.25] * 4])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("parts", [1, 3])
def test_weights_by_blocks_and_parts_are_the_same(parts, sparse):
    x = sheet(60)
    indices, expected = graph(x)
    made = sp.csr_array if sparse else np.asarray
    blocks = [Block(i, a, made(x[a:b])) for i, (a, b) in enumerate([(0, 13), (13, 15), (15, 60)])]
    for part in range(parts):
        request = WeightRequest(indices, 1e-3, part, parts)
        for own in blocks:
            found = block_coordinates(own, blocks[0], request)
            for other in blocks[1:]:
                found += block_coordinates(own, other, request)
            numbers = np.arange(own.start, own.start + own.rows)
            asked = numbers[numbers % parts == part]
            np.testing.assert_allclose(block_weights(own, found, request), expected[asked], rtol=1e-6, atol=1e-12)


def definition(x, k=K):
    """(I − W)ᵀ(I − W), entry by entry."""
    indices, found = graph(x, k)
    w = np.zeros((len(x), len(x)))
    for row, (near, own) in enumerate(zip(indices, found, strict=True)):
        for j, value in zip(near, own, strict=True):
            w[row, j] += value
    return (np.eye(len(x)) - w).T @ (np.eye(len(x)) - w)


def joint(views, places, samples):
    """B and, entry by entry, M' of several views."""
    total = np.zeros((samples, samples))
    matrices = []
    for x, place in zip(views, places, strict=True):
        own = definition(x)
        for a, i in enumerate(place):
            for b, j in enumerate(place):
                total[i, j] += own[a, b]
        matrices.append(weight_matrix(*graph(x), len(x)))
    return residual_matrix(matrices, places, samples), total


def two_views(shared=12):
    """Two views of a sheet, 40 and 50 rows, of which some are the same samples."""
    places = [np.arange(40), np.concatenate([np.arange(shared)[::-1], np.arange(40, 90 - shared)])]
    whole = sheet(90 - shared)
    other = np.column_stack([whole[:, 0] + whole[:, 2], whole[:, 1], whole[:, 2] ** 2])
    return [whole[places[0]], other[places[1]]], places, 90 - shared


def test_samples_in_correspondence_are_one_unknown():
    residual, expected = joint(*two_views())
    np.testing.assert_allclose((residual.T @ residual).toarray(), expected, atol=1e-12)


def test_correspondences_leave_one_null_vector_and_their_lack_two():
    for shared, nullity in ((12, 1), (0, 2)):
        views, places, samples = two_views(shared)
        residual, expected = joint(views, places, samples)
        values = la.eigvalsh(expected)
        assert (values < 1e-12).sum() == nullity
        assert len(components(residual)) == nullity


@pytest.mark.parametrize("solver", ["direct", "iterative"])
def test_embeddings_are_eigenvectors_of_the_dense_matrix(solver):
    residual, expected = joint(*two_views())
    values, vectors = la.eigh(expected)
    found = smallest(residual, 2, memory=1e9, solver=solver)
    np.testing.assert_allclose(found.values, values[1:3], rtol=1e-6)
    own = vectors[:, 1:3]
    tolerance = 1e-7 if solver == "direct" else 1e-4
    assert np.linalg.norm(found.vectors - own @ (own.T @ found.vectors), 2) < tolerance
    assert found.residual < 1e-3
    assert found.solver.startswith(solver)


def test_coordinates_have_mean_zero_and_the_square_of_their_number():
    residual, _ = joint(*two_views())
    y = coordinates(smallest(residual, 2, memory=1e9).vectors)
    np.testing.assert_allclose(y.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(y.T @ y, len(y) * np.eye(2), atol=1e-9)
    assert (np.take_along_axis(y, abs(y).argmax(axis=0)[None], axis=0) > 0).all()
    np.testing.assert_array_equal(coordinates(-y / np.sqrt(len(y))), coordinates(y / np.sqrt(len(y))))


def test_components_are_numbered_by_size():
    x = np.concatenate([sheet(20) + 50.0, sheet(30, 1), sheet(25, 2) - 50.0])
    residual = residual_matrix([weight_matrix(*graph(x), 75)], [np.arange(75)], 75)
    expected = [range(20, 50), range(50, 75), range(20)]
    assert [members.tolist() for members in components(residual)] == list(map(list, expected))


def test_sets_that_nobody_leaves_are_closed():
    """Two tight clusters, and between them points that have neighbours in both: one component, two null vectors."""
    between = np.linspace(1.0, 9.0, 9)
    x = np.concatenate([np.linspace(-0.2, 0.2, 8), between, np.linspace(9.8, 10.2, 9)])[:, None]
    indices = exact_neighbours(x, np.arange(len(x)), 6, np.zeros(1)).indices
    matrix = weight_matrix(indices, np.full(indices.shape, 1 / 6), len(x))
    residual = residual_matrix([matrix], [np.arange(len(x))], len(x))
    assert len(components(residual)) == 1
    closed = closed_sets(matrix)
    assert (la.svdvals(residual.toarray()) < 1e-12).sum() == len(closed) == 2
    np.testing.assert_array_equal(closed[0], np.arange(17, 26))
    np.testing.assert_array_equal(closed[1], np.arange(8))


def test_predicted_fill_is_that_of_the_factors_within_a_factor_of_two():
    x = sheet(6000)
    residual = residual_matrix([weight_matrix(*graph(x, 8), 6000)], [np.arange(6000)], 6000)
    for joined in (True, False):
        matrix = factorised(residual, joined=joined)
        shifted = sp.csc_array(matrix + 1e-10 * sp.eye_array(6000, format="csc"))
        options = {"SymmetricMode": True}
        factors = sp.linalg.splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.01, options=options)
        actual = (factors.L.nnz + factors.U.nnz) / 6000
        assert 0.5 < predicted_fill(matrix) / actual < 2.0


def test_the_factors_of_one_view_and_of_its_square_give_the_same():
    x = sheet(400)
    residual = residual_matrix([weight_matrix(*graph(x, 8), 400)], [np.arange(400)], 400)
    _, singular, vectors = la.svd(residual.toarray())
    for joined in (True, False):
        found = smallest(residual, 3, memory=1e9, joined=joined, solver="direct")
        np.testing.assert_allclose(found.values, singular[::-1][1:4] ** 2, rtol=1e-8)
        own = vectors[::-1][1:4].T
        assert np.linalg.norm(found.vectors - own @ (own.T @ found.vectors), 2) < 1e-6
        assert found.residual < 1e-4


def test_null_vectors_beside_the_constant_are_found_where_sets_are_apart():
    x = np.concatenate([sheet(200), sheet(150, 1) + 50.0])
    residual = residual_matrix([weight_matrix(*graph(x), 350)], [np.arange(350)], 350)
    found = smallest(residual, 2, memory=1e9, joined=False, solver="direct")
    apart = np.where(np.arange(350) < 200, 1 / 200, -1 / 150)
    assert found.values[0] < 1e-12
    assert found.values[1] > 1e-10
    np.testing.assert_allclose(abs(found.vectors[:, 0]), abs(apart) / np.linalg.norm(apart), rtol=1e-4)


def test_samples_of_the_reference_are_interpolated_by_themselves():
    x = sheet(300)
    found = interpolated(x[:20], Reference(x, x, K, 1e-9))
    np.testing.assert_allclose(found, x[:20], atol=1e-3)
    moved = interpolated(np.array([[np.sin(2.0), np.cos(2.0), 0.5]]), Reference(x, x**2, K, 1e-3))
    np.testing.assert_allclose(moved, [[np.sin(2.0) ** 2, np.cos(2.0) ** 2, 0.25]], atol=0.02)


def test_sparse_references_give_the_same():
    x, values = sheet(100), sheet(100, 3)
    dense = interpolated(x[:9] + 0.01, Reference(x, values, K, 1e-3))
    sparse = interpolated(sp.csr_array(x[:9] + 0.01), Reference(sp.csr_array(x), sp.csr_array(values), K, 1e-3))
    np.testing.assert_allclose(sparse, dense, rtol=1e-8)
