"""Rows with missing entries: statistics, likelihood, gradient, posteriors and imputation against dense Gaussians."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.arrays import Block, add
from dlatent.gaussian.missing_entries import incomplete
from dlatent.gaussian.missing_entries import observed as rooms
from dlatent.gaussian.missing_entries.entries import (
    EntryRequest,
    SketchRequest,
    block_entries,
    block_entry_sums,
    block_observed_mean,
    block_pairs,
    block_sketch,
    gradient,
    maximise_entries,
)
from dlatent.gaussian.missing_entries.patterns import (
    PatternRequest,
    block_patterns,
    distinct,
    entries_of_patterns,
    few_buckets,
    pairs_of_patterns,
)
from dlatent.gaussian.specification import Parameters, Specification, View
from tests.law_examples import examples
from tests.oracles import dense as oracles
from tests.sparse_stores import observed_entries

D, L, K = 7, 2, 2
SHARED = Specification((View("features", D), View("targets", L)), ((0, 1), (0,)), K)
DIAGONAL = Specification((View("features", D + L, shared=False),), ((0,),), K)
SPECIFICATIONS = [SHARED, DIAGONAL]
HOLES = [0.0, 0.01, 0.3, 0.7, 0.97]


def parameters_of(specification, seed=0):
    rng = np.random.default_rng(seed)
    width, groups = sum(specification.sizes), len(specification.group_sizes)
    return Parameters(rng.standard_normal((width, K)), rng.standard_normal(width), rng.uniform(0.2, 1.5, groups))


def rows(part, n=40, seed=0, width=D + L):
    """Rows of normal numbers of which a part is missing, at least one entry of each observed."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, width)) * 1.5
    holes = rng.random(x.shape) < part
    holes[np.arange(n), rng.integers(width, size=n)] = False
    x[holes] = np.nan
    return x


def request(p, specification):
    width = len(p.mean)
    return EntryRequest(p, specification, np.zeros(width), np.ones(width))


def split(x):
    """As blocks carry them: features and targets."""
    return Block(0, 0, np.ascontiguousarray(x[:, :D]), np.ascontiguousarray(x[:, D:]))


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=["a variance per view", "per feature"])
@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.slow] * (part != 0.3)) for part in HOLES])
def test_statistics_are_those_of_dense_gaussians(specification, part):
    x, p = rows(part), parameters_of(specification)
    found = block_entries(split(x), request(p, specification))
    model = oracles.dense(p, specification.group_sizes)
    expected = oracles.log_densities(model, x).sum()
    assert found.log_likelihood == pytest.approx(expected, rel=1e-12)
    slope = oracles.score_vector(p, specification, x)
    np.testing.assert_allclose(gradient(found, p, specification) / len(x), slope, atol=1e-9)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=["a variance per view", "per feature"])
@pytest.mark.parametrize("part", HOLES[:4])
def test_an_em_step_is_the_textbook_one(specification, part):
    x, p = rows(part), parameters_of(specification)
    found = block_entries(split(x), request(p, specification))
    new = maximise_entries(found, p, specification, expand=False)
    expected = oracles.em_step(oracles.dense(p, specification.group_sizes), x, specification.group_sizes)
    np.testing.assert_allclose(new.loadings, expected.loadings, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(new.mean, expected.mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(specification.per_feature(new.noise_variance), expected.noise, rtol=1e-9)


def test_entries_of_features_that_nothing_is_known_of_count_as_missing():
    x, p = rows(0.3), parameters_of(DIAGONAL)
    p = p._replace(mean=np.where(np.arange(D + L) == 4, np.nan, p.mean))
    without = x.copy()
    without[:, 4] = np.nan
    np.testing.assert_array_equal(
        incomplete.scores(x, None, p, DIAGONAL), incomplete.scores(without, None, p, DIAGONAL)
    )


@given(
    part=st.sampled_from(HOLES),
    repeats=st.booleans(),
    cuts=st.lists(st.integers(1, 79), max_size=4),
    cells=st.sampled_from([1, 200, 1 << 19]),
)
@settings(max_examples=examples(40), derandomize=True)
def test_neither_blocks_nor_chunks_nor_shared_masks_matter(part, repeats, cuts, cells):
    """The law of additivity, for masks that repeat and masks that do not."""
    x, p = rows(part, n=80), parameters_of(DIAGONAL)
    if repeats:
        x[np.isnan(x[np.arange(80) % 3])] = np.nan
    asked = request(p, DIAGONAL)
    whole = block_entries(Block(0, 0, x), asked)
    bounds = [0, *sorted(set(cuts)), 80]
    before, rooms.DENSE_CELLS = rooms.DENSE_CELLS, cells
    try:
        total = None
        for a, b in itertools.pairwise(bounds):
            found = block_entries(Block(0, a, x[a:b]), asked)
            total = found if total is None else add(total, found)
    finally:
        rooms.DENSE_CELLS = before
    for one, other in zip(total, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_equal_masks_share_a_factorisation():
    x = rows(0.0, n=90)
    x[:50, 2] = np.nan
    x[50:, 4:6] = np.nan
    assert rooms.observed(x, np.zeros(D + L), np.ones(D + L)).mask.shape[0] == 2
    assert rooms.observed(rows(0.5, n=90), np.zeros(D + L), np.ones(D + L)).mask.shape[0] > 40


def test_the_mask_is_held_as_what_is_rare():
    few, many, half = (rooms.observed(rows(p, n=300, width=60), np.zeros(60), np.ones(60)) for p in (0.02, 0.995, 0.5))
    assert few.absent
    assert sp.issparse(many.mask)
    assert not sp.issparse(half.mask)


def test_sums_and_pilot_are_those_of_the_observed_entries():
    x = rows(0.4)
    shift = np.linspace(-1, 1, D + L)
    found = block_entry_sums(Block(0, 0, np.vstack([x, np.full((2, D + L), np.nan)])), shift)
    assert (found.samples, found.empty) == (42.0, 2.0)
    np.testing.assert_array_equal(found.counts, (~np.isnan(x)).sum(axis=0))
    np.testing.assert_allclose(found.total, np.nansum(x - shift, axis=0), atol=1e-12)
    np.testing.assert_allclose(found.energy, np.nansum((x - shift) ** 2, axis=0), rtol=1e-12)
    np.testing.assert_allclose(block_observed_mean(Block(0, 0, x), None), np.nanmean(x, axis=0), atol=1e-12)


def test_a_sketch_is_a_product_with_the_mean_filled_data():
    x, rng = rows(0.4), np.random.default_rng(2)
    shift, scale, directions = rng.standard_normal(D + L), rng.uniform(0.5, 2, D + L), rng.standard_normal((D + L, 3))
    filled = np.nan_to_num((x - shift) / scale)
    for data in (x, observed_entries(x), sp.csr_array(x)):
        found = block_sketch(Block(0, 0, data), SketchRequest(directions, shift, scale))
        np.testing.assert_allclose(found, filled.T @ (filled @ directions), atol=1e-11)


def test_bartlett_scores_need_as_many_entries_as_factors():
    x, p = rows(0.3, n=12), parameters_of(DIAGONAL)
    x[3, 1:] = np.nan
    found = incomplete.bartlett(x, None, p, DIAGONAL)
    assert np.isnan(found[3]).all()
    for score, row in zip(np.delete(found, 3, axis=0), np.delete(x, 3, axis=0), strict=True):
        seen = ~np.isnan(row)
        if seen.sum() >= K:
            root = np.sqrt(p.noise_variance[seen])
            expected = np.linalg.lstsq(p.loadings[seen] / root[:, None], (row - p.mean)[seen] / root, rcond=None)[0]
            np.testing.assert_allclose(score, expected, rtol=1e-7)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=["a variance per view", "per feature"])
def test_moments_of_masks_give_what_rows_give(specification):
    x = rows(0.0, n=60)
    x[:20, :3] = np.nan
    x[20:35, 4:] = np.nan
    x[35:37] = np.nan
    shift, scale = np.linspace(-1, 1, D + L), np.linspace(0.5, 2, D + L)
    sums = block_entry_sums(split(x), shift)
    buckets = few_buckets(sums.buckets, D + L)
    assert len(buckets) == 4
    cut = [Block(0, 0, x[a:b, :D], x[a:b, D:]) for a, b in ((0, 30), (30, 60))]
    found = add(*(block_patterns(block, PatternRequest(buckets, shift, scale)) for block in cut))
    assert distinct(found)
    asked = EntryRequest(parameters_of(specification), specification, shift, scale)
    for one, other in zip(entries_of_patterns(found, asked), block_entries(split(x), asked), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    expected = block_pairs(split(x), (shift, scale))
    for one, other in zip(pairs_of_patterns(found), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)


def test_sums_of_pairs_are_over_the_rows_that_observe_both():
    x = rows(0.4, n=70)
    shift, scale = np.linspace(-1, 1, D + L), np.linspace(0.5, 2, D + L)
    found = block_pairs(split(x), (shift, scale))
    u = (x - shift) / scale
    for j, k in ((0, 0), (1, 5), (6, 8)):
        both = ~np.isnan(u[:, j]) & ~np.isnan(u[:, k])
        assert found.counts[j, k] == both.sum()
        assert found.gram[j, k] == pytest.approx((u[both, j] * u[both, k]).sum(), rel=1e-11)


def test_many_masks_or_sparse_rows_are_not_few():
    x = rows(0.5, n=200)
    assert few_buckets(block_entry_sums(Block(0, 0, x), np.zeros(D + L)).buckets, D + L) is None
    assert few_buckets(block_entry_sums(Block(0, 0, observed_entries(x)), np.zeros(D + L)).buckets, D + L) is None
    assert few_buckets(np.eye(1, 4096)[0], 10_000) is None
