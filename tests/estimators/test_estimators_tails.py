"""A fit of normal entries says where its residuals have heavy tails, and which likelihood helps."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp

from dlatent import PPCA, FactorAnalysis, MisfitWarning, SupervisedPPCA

MODELS = [PPCA(3), PPCA(3, missing="nan"), PPCA(3, scale="spread"), PPCA(3, solver="krylov"), FactorAnalysis(3)]


def said(model, x, *targets, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(x, *targets, **options)
    return [str(each.message) for each in found if each.category is MisfitWarning]


def normal(rng, samples=300, features=20):
    loadings = rng.normal(size=(features, 3))
    return rng.normal(size=(samples, 3)) @ loadings.T + 0.5 * rng.normal(size=(samples, features)), loadings


def outlying(rng, kind):
    """Data with outliers, the true loadings, and the likelihood for them."""
    x, loadings = normal(rng)
    if kind == "t":
        return x + 0.5 * rng.standard_t(1.5, x.shape), loadings, "student"
    part, _, what = kind.partition(" % of ")
    if what == "rows":
        at = rng.random(300) < int(part) / 100.0
        x[at] = 8.0 * x.std() * rng.normal(size=(at.sum(), 20))
        return x, loadings, "student_rows"
    at = rng.random(x.shape) < int(part) / 100.0
    x[at] = 15.0 * x.std() * rng.normal(size=at.sum())
    return x, loadings, "student"


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("kind", ["5 % of rows", "20 % of rows", "5 % of entries", "20 % of entries", "t"])
def test_outliers_are_seen_and_the_likelihood_for_them_is_named(model, kind):
    x, _, likelihood = outlying(np.random.default_rng(1), kind)
    (text,) = said(model, x)
    assert f"likelihood={likelihood!r}" in text
    assert "logarithms" not in text


@pytest.mark.parametrize("kind", ["5 % of rows", "5 % of entries", "t"])
def test_the_likelihood_that_is_named_helps(kind):
    x, loadings, likelihood = outlying(np.random.default_rng(2), kind)
    models = PPCA(3), PPCA(3, likelihood=likelihood)
    assert [bool(said(model, x)) for model in models] == [True, False]
    plain, robust = (la.subspace_angles(model.components_.T, loadings).max() for model in models)
    assert robust < 0.2 < 0.5 < plain


def test_the_text_counts_what_is_far_off():
    """One entry in each of 40 rows, of which none is near 5 standard deviations by chance."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(size=(200, 10)), -3.0, 3.0)
    x[np.arange(40), np.arange(40) % 10] = 30.0 * rng.choice([-1.0, 1.0], size=40)
    (text,) = said(FactorAnalysis(1), x)
    assert re.search(r"\b2 % of the residuals of 200 rows are more than 5 times their usual size", text)
    (text,) = said(FactorAnalysis(1), np.abs(x))
    assert "of skewed features take logarithms" in text


@pytest.mark.parametrize("seed", range(24))
def test_normal_data_of_any_shape_have_no_heavy_tails(seed):
    rng = np.random.default_rng(seed)
    samples, features = (int(np.exp(rng.uniform(*np.log(most)))) for most in ((10, 1000), (3, 100)))
    components = int(rng.integers(1, min(11, features, samples - 1)))
    true = int(rng.integers(1, 11))
    x = rng.normal(size=(samples, true)) @ rng.normal(size=(true, features)) + rng.normal(size=(samples, features))
    x = x * np.exp(seed % 3 * rng.normal(size=features)) + rng.normal(size=features)
    if seed % 2:
        x[rng.random(x.shape) < 0.1] = np.nan
    kind = PPCA if seed % 4 < 2 else FactorAnalysis
    assert not said(kind(components, missing="nan" if seed % 2 else "raise"), x)


@pytest.mark.parametrize(
    "drawn",
    [
        lambda rng: rng.poisson(np.exp(normal(rng)[0] / 3.0)),
        lambda rng: (rng.random((300, 20)) < 0.05).astype(float),
        lambda rng: normal(rng)[0] * (rng.random((300, 20)) < 0.2),
        lambda rng: rng.normal(size=(300, 3)) @ rng.normal(size=(3, 20)),
        lambda rng: rng.exponential(size=(300, 20)),
    ],
    ids=["counts", "binary", "zeros", "exact", "exponential"],
)
def test_what_is_neither_normal_nor_outlying_is_left_alone(drawn):
    x = drawn(np.random.default_rng(0))
    assert not said(PPCA(3), x)
    assert not said(FactorAnalysis(3), x)


def test_only_models_whose_entries_could_have_another_likelihood_look():
    rng = np.random.default_rng(1)
    x, _, _ = outlying(rng, "5 % of entries")
    assert not said(PPCA(3, likelihood="student"), x)
    assert not said(SupervisedPPCA(3), x, rng.integers(2, size=300))
    assert not said(PPCA(3), x, sample_weight=np.ones(300))
    assert not said(PPCA(3), sp.csr_array(x))
