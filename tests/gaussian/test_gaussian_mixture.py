"""Laws of the statistics of a mixture: additive, about any shift, from any form of the rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dlatent import DataError
from dlatent.arrays import Block
from dlatent.gaussian.specification import Specification, View
from dlatent.solvers.mixture import statistics as mixtures
from dlatent.solvers.mixture.rows import MixtureRows
from dlatent.solvers.mixture.starts import SubsetRequest, block_subset, joined_subsets
from dlatent.solvers.mixture.statistics import (
    Mixture,
    MixtureRequest,
    canonical_mixture,
    maximise_mixture,
    mixture_sums,
)
from tests.oracles.mixture import mixture_log_densities, simulate_mixture

SEEDS = st.integers(0, 10_000)
NOISES = pytest.mark.parametrize("own_noise", [False, True], ids=["isotropic", "diagonal"])


def specification(features=5, *, own_noise, floor=1e-6):
    return Specification((View("features", features, floor, shared=not own_noise),), ((0,),), 2)


def close(one, other, rtol=1e-9):
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())


@NOISES
def test_few_rows_at_a_time_are_all_rows(own_noise, monkeypatch):
    data = simulate_mixture(200, 5, own_noise=own_noise)
    request = MixtureRequest(data.mixture, np.zeros(5))
    expected = [mixture_sums(rows, request) for rows in (data.features, sp.csr_array(data.features))]
    monkeypatch.setattr(mixtures, "CHUNK_BYTES", 8)
    for rows, whole in zip((data.features, sp.csr_array(data.features)), expected, strict=True):
        close(mixture_sums(rows, request), whole)
        logs = MixtureRows(data.mixture).log_density(rows, None)
        np.testing.assert_allclose(logs, mixture_log_densities(data.mixture, data.features), rtol=1e-10)


@NOISES
@given(SEEDS, st.booleans())
def test_an_iteration_never_loses_likelihood(own_noise, seed, expand):
    data = simulate_mixture(25, 5, own_noise=own_noise, separation=1.0, random_state=seed)
    start = simulate_mixture(2, 5, own_noise=own_noise, separation=1.0, random_state=seed + 1).mixture
    request = MixtureRequest(start, np.zeros(5))
    found = maximise_mixture(
        mixture_sums(data.features, request), start, specification(own_noise=own_noise), expand=expand
    )
    before, after = (mixture_log_densities(m, data.features).sum() for m in (start, found))
    assert after >= before - 1e-9 * abs(before)


@NOISES
def test_a_component_without_samples_keeps_its_parameters(own_noise):
    data = simulate_mixture(50, 5, own_noise=own_noise)
    far = data.mixture._replace(mean=data.mixture.mean + np.array([0.0, 0.0, 1e4])[:, None])
    sums = mixture_sums(data.features, MixtureRequest(far, np.zeros(5)))
    found = maximise_mixture(sums, far, specification(own_noise=own_noise))
    np.testing.assert_array_equal(found.mean[2], far.mean[2])
    assert found.weights[2] == 0.0
    assert all(np.isfinite(part).all() for part in found)
    again = mixture_sums(data.features, MixtureRequest(found, np.zeros(5)))
    assert np.isfinite(again.log_likelihood)
    assert again.log_likelihood > sums.log_likelihood


@NOISES
@given(SEEDS)
def test_a_vector_is_the_mixture_that_it_came_from(own_noise, seed):
    mixture = simulate_mixture(2, 5, own_noise=own_noise, random_state=seed).mixture
    close(mixture.unflatten(mixture.flatten()), mixture, rtol=1e-12)
    unit = np.linspace(1.0, 3.0, 5) if own_noise else np.full(5, 2.0)
    close(mixture.rescaled(unit).rescaled(1.0 / unit), mixture, rtol=1e-12)


@given(SEEDS, st.permutations(range(3)), st.booleans())
def test_the_canonical_form_is_one_for_all_orders_and_rotations(seed, order, equal):
    mixture = simulate_mixture(2, 5, random_state=seed).mixture
    weights = np.full(3, 1 / 3) + 1e-12 * np.arange(3) if equal else mixture.weights
    mixture, order = mixture._replace(weights=weights), list(order)
    turned = np.linalg.qr(np.random.default_rng(seed).standard_normal((2, 2)))[0]
    other = Mixture(*(part[order] for part in mixture))
    other = other._replace(loadings=other.loadings @ turned)
    one, two = (canonical_mixture(m, specification(own_noise=False)) for m in (mixture, other))
    close(one, two, rtol=1e-7)
    assert (np.diff(one.weights) <= 1e-9).all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_some_rows_come_whole_and_in_order(form):
    rows = np.random.default_rng(0).standard_normal((30, 4))
    wanted = np.array([0, 7, 8, 21, 29])
    request = SubsetRequest(wanted, np.zeros(4), False)
    blocks = [Block(i, start, form(rows[start : start + 10])) for i, start in enumerate((0, 10, 20))]
    first, second, third = (block_subset(block, request) for block in blocks)
    found = joined_subsets(joined_subsets(first, second), third)
    held = [part.toarray() if sp.issparse(part) else part for part in found.rows]
    np.testing.assert_array_equal(np.vstack(held), rows[wanted])
    np.testing.assert_allclose(found.sums.total, rows.sum(axis=0))
    assert found.sums.samples == 30


def test_the_first_pass_refuses_what_is_no_number():
    rows = np.ones((3, 4))
    rows[1, 2] = np.nan
    with pytest.raises(DataError, match="row 11, column 2"):
        block_subset(Block(1, 10, rows), SubsetRequest(np.array([0]), np.zeros(4), True))
    rows[1] = 0.0
    with pytest.raises(DataError, match="row 11"):
        block_subset(Block(1, 10, rows), SubsetRequest(np.array([0]), np.zeros(4), True))
