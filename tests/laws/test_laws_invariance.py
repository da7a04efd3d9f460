"""What must not change a fit, beside the table of `relations`: rows alone, a far mean, other numbers and targets."""

from __future__ import annotations

import numpy as np
import pytest
from law_cases import CASES, ROUTES, as_dask, assert_same_maximum, fit, numbers, same_bits, texts

from dlatent import PPCA, SupervisedPPCA

X, Y, LABELLED = numbers()
N, D = X.shape


@pytest.fixture(scope="module", params=[(case, solver) for case in CASES for solver in ROUTES], ids=" ".join)
def whole(request):
    case, solver = request.param
    return case, solver, fit(case, X, Y, LABELLED, solver=solver)


def test_a_chunk_of_one_row_each_does_not_matter(whole):
    case, solver, expected = whole
    found = fit(case, as_dask(X, (1,) * N), Y, LABELLED, solver=solver)
    assert_same_maximum(found, expected)


@pytest.mark.parametrize("offset", [-3.0, 1e6])
def test_a_mean_far_from_zero_costs_no_digits(whole, offset):
    """Design, "Precision": an initial mean; the data themselves keep 1e-10 of their spread at an offset of 1e6."""
    case, solver, expected = whole
    found = fit(case, X + offset, Y, LABELLED, solver=solver)
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.mean_ - offset, expected.mean_, rtol=1e-6, atol=1e-8)
    assert found.noise_variance_ == pytest.approx(expected.noise_variance_, rel=1e-7)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)


def test_scores_at_an_offset_keep_their_digits(whole):
    case, solver, expected = whole
    found = fit(case, X + 1e6, Y, LABELLED, solver=solver)
    np.testing.assert_allclose(found.transform(X + 1e6), expected.transform(X), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.score_samples(X + 1e6), expected.score_samples(X), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["int16", "uint8", "bool"])
def test_whole_numbers_are_data_too(dtype):
    values = (np.abs(X) * 20).astype(dtype) if dtype != "bool" else X > 0
    keep = values.any(axis=1)
    found = PPCA(2).fit(values[keep])
    assert same_bits(found, PPCA(2).fit(values[keep].astype(float)))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_both_routes_give_one_model_of_documents(kind):
    """Sixty words, so that the subspace is a true one and grows."""
    x, labels = texts()
    data = x if kind == "sparse" else x.toarray()
    one, other = (SupervisedPPCA(3, solver=solver, tol=1e-12).fit(data, labels) for solver in ROUTES)
    assert other.history_["iteration_rank"].values[-1] < 60
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-8)
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-2, atol=2e-3)
    unsupervised = [PPCA(3, solver=solver, tol=1e-12).fit(data).log_likelihood_ for solver in ROUTES]
    assert unsupervised[0] == pytest.approx(unsupervised[1], rel=1e-9)


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize(("n", "d"), [(30, 6), (6, 30), (7, 7)])
def test_as_many_components_as_the_data_allow(solver, n, d):
    """Where these leave no noise, the likelihood has no bound, and a value to compare at a floor alone."""
    x, k = numbers(n, d)[0], min(n, d) - 1
    model, other = (PPCA(k, solver=own, tol=1e-12, noise_floor=1e-6).fit(x) for own in (solver, "covariance"))
    assert model.components_.shape == (k, d)
    assert model.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-8)
    lowest = PPCA(k, solver=solver, tol=1e-12).fit(x)
    assert lowest.at_floor_ == (n <= d,)
    if n <= d:
        assert lowest.noise_variance_ < 1e-12 * x.var()
    np.testing.assert_allclose(lowest.transform(x), other.transform(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize("labels", ["complete", "semi"])
def test_supervised_models_take_as_many_components_as_the_data_allow(solver, labels):
    x, y, labelled = numbers(30, 6)
    model = fit(labels, x, y, labelled, n_components=5, solver=solver)
    assert model.components_.shape == (5, 6)
    assert np.isfinite(model.log_likelihood_)
