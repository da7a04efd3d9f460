"""Statistics of joint samples, sorted by pattern: those of direct sums, for dense, sparse and mixed views."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.arrays import Block, add
from dlatent.gaussian.expectation import ExpectationRequest, block_expectation
from dlatent.gaussian.likelihood import (
    JointRequest,
    LikelihoodRequest,
    block_log_likelihood,
    block_results,
    block_view_means,
    joint_scores,
)
from dlatent.gaussian.moments import MomentRequest, block_moments
from dlatent.gaussian.products import ProductRequest, block_feature_sums, block_products
from dlatent.gaussian.specification import Specification, View
from dlatent.gaussian.views import Arrangement
from tests.oracles import dense as oracles
from tests.simulators import random_parameters

SIZES, K = (5, 4, 3), 2
PATTERNS = ((0, 1, 2), (0, 2), (1,))
EDGES = (0, 12, 20, 35)
SHIFT = np.linspace(-1.0, 2.0, sum(SIZES))
SPECIFICATION = Specification(tuple(View(n, d) for n, d in zip("abc", SIZES, strict=True)), PATTERNS, K)
PARAMETERS = random_parameters(SIZES, K, noise=(0.3, 0.5, 0.8), random_state=1)
SPARSE = [(), (1,), (0, 2), (0, 1, 2)]


def places(pattern):
    return np.concatenate([np.arange(sum(SIZES)).reshape(-1)[SPECIFICATION.slices[view]] for view in pattern])


@pytest.fixture(params=SPARSE, ids=lambda views: f"sparse {views}")
def case(request):
    """Blocks of joint samples, their arrangement, and the rows with NaN where a view is missing."""
    rng = np.random.default_rng(2)
    whole = rng.standard_normal((EDGES[-1], sum(SIZES))) * (rng.random((EDGES[-1], sum(SIZES))) < 0.7)
    arrangement = Arrangement(EDGES, SIZES, tuple(view not in request.param for view in range(3)))
    rows, blocks = np.full(whole.shape, np.nan), []
    for pattern, (start, stop) in zip(PATTERNS, pairwise(EDGES), strict=True):
        rows[start:stop, places(pattern)] = whole[start:stop][:, places(pattern)]
        for first in range(start, stop, 5):
            x = whole[first : min(first + 5, stop)][:, places(pattern)]
            mixed = any(view in request.param for view in pattern)
            blocks.append(Block(len(blocks), first, sp.csr_array(x) if mixed else x))
    return blocks, arrangement, rows


def summed(function, request, blocks):
    return reduce(add, [function(block, request) for block in blocks])


def of_pattern(rows, number):
    return rows[EDGES[number] : EDGES[number + 1]][:, places(PATTERNS[number])]


def test_moments_and_feature_sums_are_the_direct_sums(case):
    blocks, arrangement, rows = case
    moments = summed(block_moments, MomentRequest(SHIFT, PATTERNS, False, arrangement), blocks)
    features = summed(block_feature_sums, MomentRequest(SHIFT, PATTERNS, False, arrangement), blocks)
    for number, (part, sums) in enumerate(zip(moments, features, strict=True)):
        moved = of_pattern(rows, number) - SHIFT[places(PATTERNS[number])]
        assert part.samples == sums.samples == len(moved)
        for found in (part.total, sums.total):
            np.testing.assert_allclose(found, moved.sum(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(part.gram, sum(np.outer(x, x) for x in moved), rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(sums.energy, (moved**2).sum(axis=0), rtol=1e-12, atol=1e-12)


def test_products_are_the_direct_sums(case):
    blocks, arrangement, rows = case
    rng = np.random.default_rng(3)
    directions = tuple(rng.standard_normal((size, width)) for size, width in zip(SIZES, (3, 0, 2), strict=True))
    request = ProductRequest(directions, SHIFT, PATTERNS, True, False, arrangement)
    for number, part in enumerate(summed(block_products, request, blocks)):
        pattern = PATTERNS[number]
        moved = of_pattern(rows, number) - SHIFT[places(pattern)]
        start = 0
        for view, product in zip(pattern, part.product, strict=True):
            own = moved[:, start : start + SIZES[view]]
            start += SIZES[view]
            np.testing.assert_allclose(product, moved.T @ (own @ directions[view]), rtol=1e-12, atol=1e-11)


def test_expectations_and_likelihood_are_those_of_dense_conditionals(case):
    blocks, arrangement, rows = case
    relative = PARAMETERS._replace(mean=PARAMETERS.mean - SHIFT)
    found = summed(block_expectation, ExpectationRequest(relative, SPECIFICATION, SHIFT, arrangement), blocks)
    model, total = oracles.dense(PARAMETERS, SIZES), oracles.log_densities(oracles.dense(PARAMETERS, SIZES), rows)
    for number, part in enumerate(found):
        own = rows[EDGES[number] : EDGES[number + 1]]
        latent = [oracles.latent_given(model, row) for row in own]
        extended = np.array([np.append(about.mean, 1.0) for about in latent])
        second = extended.T @ extended
        second[:K, :K] += sum(about.covariance for about in latent)
        moved = of_pattern(rows, number) - SHIFT[places(PATTERNS[number])]
        np.testing.assert_allclose(part.second, second, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(part.cross, moved.T @ extended, rtol=1e-9, atol=1e-9)
        assert part.log_likelihood == pytest.approx(total[EDGES[number] : EDGES[number + 1]].sum(), rel=1e-10)
    value = summed(block_log_likelihood, LikelihoodRequest(PARAMETERS, SPECIFICATION, arrangement), blocks)
    assert value == pytest.approx(total.sum(), rel=1e-10)


def test_rows_keep_their_order(case):
    blocks, arrangement, rows = case
    request = JointRequest(joint_scores, PARAMETERS, SPECIFICATION, PATTERNS, arrangement)
    found = np.concatenate([part for block in blocks for part in block_results(block, request)])
    expected = [oracles.latent_given(oracles.dense(PARAMETERS, SIZES), row).mean for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def test_means_are_those_of_the_dense_views_of_a_block(case):
    blocks, arrangement, rows = case
    found = block_view_means(blocks[0], (PATTERNS, arrangement))
    dense = np.repeat(arrangement.dense, SIZES)
    np.testing.assert_allclose(found, np.where(dense, rows[:5].mean(axis=0), 0.0), rtol=1e-12, atol=1e-14)


def test_what_a_block_has_not_adds_nothing():
    one, other = (np.ones(2), None), (None, np.full(3, 2.0))
    found = add(one, other)
    np.testing.assert_array_equal(found[0], np.ones(2))
    np.testing.assert_array_equal(found[1], np.full(3, 2.0))
    assert add(None, None) is None
