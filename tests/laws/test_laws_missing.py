"""Fits to data with missing entries: stored ratings are those in memory, and the likelihood never falls."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from law_cases import numbers, same_bits

from dlatent import PPCA, FactorAnalysis, open_data
from tests.law_examples import examples
from tests.sparse_stores import write_csr

COMPLETE, *_ = numbers(n=160, d=10)
HOLES = np.random.default_rng(0).random(COMPLETE.shape) < 0.3
HOLES[:, 0] = False
X = np.where(HOLES, np.nan, COMPLETE)


def sparse():
    lines, columns = np.nonzero(~HOLES)
    return sp.csr_array((COMPLETE[lines, columns], (lines, columns)), shape=COMPLETE.shape)


@pytest.fixture(params=["threads", "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


def test_stored_ratings_give_the_same_bits(client, tmp_path):
    group = zarr.create_group(tmp_path / "ratings.zarr")
    write_csr(group, [sparse()])
    place = str(tmp_path / "ratings.zarr")
    assert len(open_data(place).blocks) >= 1
    expected = PPCA(2, missing="unstored").fit(place, client="serial")
    assert same_bits(PPCA(2, missing="unstored").fit(place, client=client), expected)
    assert expected.log_likelihood_ == pytest.approx(
        PPCA(2, missing="nan", scale="none").fit(X).log_likelihood_, rel=1e-11
    )


@pytest.mark.parametrize("kind", [PPCA, pytest.param(FactorAnalysis, marks=pytest.mark.slow)])
@given(part=st.floats(0.0, 0.95), seed=st.integers(0, 50), k=st.integers(1, 3), prior=st.sampled_from(["ml", "ard"]))
@settings(max_examples=examples(10), derandomize=True)
def test_the_likelihood_never_falls(kind, part, seed, k, prior):
    """But for rounding: squares of the data are divided by the noise, of which little is left where few entries are."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(COMPLETE.shape) < part, np.nan, COMPLETE)
    x[np.arange(160), rng.integers(10, size=160)] = COMPLETE[np.arange(160), rng.integers(10, size=160)]
    model = kind(k, missing="nan", prior=prior, max_iter=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, client="serial")
    lines = model.history_["iteration_log_likelihood"].values
    squares = np.nansum((x - np.nanmean(x, axis=0)) ** 2, axis=0) / model.noise_variance_
    assert (np.diff(lines) >= -1e-10 * abs(lines).max() - 16 * np.finfo(float).eps * squares.sum()).all()
    assert lines[-1] == model.log_likelihood_
