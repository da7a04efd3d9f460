"""Fits to data with missing entries: the likelihood never falls."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_cases import numbers

from dlatent import PPCA, FactorAnalysis
from tests.law_examples import examples

COMPLETE, *_ = numbers(n=160, d=10)


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
