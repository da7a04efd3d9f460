"""Genotypes, numbers of copies of an allele: Patterson's scaling by the frequency, and missing ones."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import dlatent as d
from dlatent.errors import DataError

N, D = 90, 60
RNG = np.random.default_rng(0)
ANCESTRAL = RNG.uniform(0.1, 0.9, size=D)
FREQUENCIES = np.clip(ANCESTRAL + 0.15 * RNG.normal(size=(3, D)), 0.05, 0.95)
POPULATION = np.arange(N) % 3
GENOTYPES = RNG.binomial(2, FREQUENCIES[POPULATION]).astype(np.int8)
HOLES = np.where(RNG.random((N, D)) < 0.1, np.nan, GENOTYPES)


def chance(genotypes: np.ndarray) -> np.ndarray:
    """√(p(1 − p)), with the frequency p of known alleles."""
    p = np.nanmean(genotypes, axis=0, dtype=float) / 2
    return np.sqrt(p * (1 - p))


UNITS = chance(GENOTYPES)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, lambda values: da.from_array(values, chunks=(40, 25))])
def test_it_is_the_fit_of_genotypes_divided_by_their_chance_spread(wrap):
    found = d.PPCA(2, scale="patterson").fit(wrap(GENOTYPES))
    plain = d.PPCA(2).fit(GENOTYPES / UNITS)
    np.testing.assert_allclose(found.result_["feature_scale"], UNITS, rtol=1e-12)
    np.testing.assert_allclose(found.components_, plain.components_ * UNITS, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.mean_, GENOTYPES.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.transform(GENOTYPES), plain.transform(GENOTYPES / UNITS), rtol=1e-6, atol=1e-8)
    assert found.log_likelihood_ == pytest.approx(plain.log_likelihood_ - N * np.log(UNITS).sum(), rel=1e-9)


def test_missing_genotypes_do_not_count_in_the_frequency():
    found = d.PPCA(2, missing="nan", scale="patterson", tol=1e-12).fit(HOLES)
    plain = d.PPCA(2, missing="nan", scale="none", tol=1e-12).fit(HOLES / chance(HOLES))
    np.testing.assert_allclose(found.result_["feature_scale"], chance(HOLES), rtol=1e-12)
    np.testing.assert_allclose(found.impute(HOLES), plain.impute(HOLES / chance(HOLES)) * chance(HOLES), rtol=1e-4)


def test_an_allele_that_all_have_is_left_as_it_is():
    same = np.hstack([GENOTYPES, np.full((N, 1), 2, np.int8), np.zeros((N, 1), np.int8)])
    np.testing.assert_allclose(d.PPCA(2, scale="patterson").fit(same).result_["feature_scale"], [*UNITS, 1.0, 1.0])


def test_kernels_neighbours_and_views_have_it_too():
    scaled = GENOTYPES / UNITS
    for model in (d.KernelPPCA(2, gamma=0.01), d.LocallyLinearEmbedding(n_neighbors=12)):
        plain = model.fit(scaled).transform(scaled[:9])
        found = model.set_params(scale="patterson").fit(GENOTYPES).transform(GENOTYPES[:9])
        np.testing.assert_allclose(abs(found), abs(plain), rtol=1e-5, atol=1e-6)
    pairs = np.repeat(np.arange(N)[:, None], 2, axis=1)
    views = d.CorrespondencePPCA(2, scale="patterson").fit([GENOTYPES[:, :20], GENOTYPES[:, 20:]], correspondence=pairs)
    np.testing.assert_allclose(views.result_["feature_scale"], UNITS, rtol=1e-12)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("value", "shown"), [(-1, "-1"), (3, "3")])
def test_what_is_no_genotype_is_refused_with_its_place(wrap, value, shown):
    wrong = GENOTYPES.copy()
    wrong[70, 5] = wrong[80, 2] = value
    with pytest.raises(DataError, match=rf"row 70, column 5 is {shown}; .* np\.where\(X < 0, np\.nan, X\)"):
        d.PPCA(2, scale="patterson").fit(wrap(wrong))
    found = d.PPCA(2, scale="patterson").fit(wrap(GENOTYPES))
    for method in (found.transform, found.score_samples, found.residuals):
        with pytest.raises(DataError, match=rf"row 70, column 5 is {shown}; scale='patterson'"):
            method(wrap(wrong))


def test_what_is_no_genotype_is_refused_where_cells_are_predicted():
    wrong = HOLES.copy()
    wrong[70, 5] = -1
    found = d.PPCA(2, missing="nan", scale="patterson").fit(HOLES)
    with pytest.raises(DataError, match="row 70, column 5 is -1; scale='patterson'"):
        found.predict_cells(wrong, [70], [3])
