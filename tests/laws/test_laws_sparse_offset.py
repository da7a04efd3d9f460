"""Sparse rows give what dense rows give, however far from zero some of their columns lie.

Models do not change with the origin of the features but for their mean, so that the oracle of every offset is the fit
of the dense rows about zero; but where means have a prior it is that of the dense rows in their place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from law_cases import as_dask

import dlatent as d
from dlatent.errors import DataError, DataWarning, NoiseFloorWarning, PrecisionWarning
from dlatent.models import MODELS
from tests.sparse_stores import write_csr

N, D = 60, 6
RNG = np.random.default_rng(0)
# Few binary digits: a number of 1e8 beside them keeps all.
X = np.round((RNG.normal(size=(N, 3)) @ RNG.normal(size=(3, D)) + 0.3 * RNG.normal(size=(N, D))) * 1024) / 1024
WIDE = np.round((RNG.normal(size=(12, 2)) @ RNG.normal(size=(2, 30)) + 0.3 * RNG.normal(size=(12, 30))) * 1024) / 1024
Y = (X[:, 0] > 0).astype(int)
SOME = np.where(np.arange(N) % 3 == 0, Y, -1)
RING = {"graph": sp.csr_array(np.roll(np.eye(N), 1, 0) + np.roll(np.eye(N), -1, 0))}
PAIRS = {"correspondence": np.column_stack([np.arange(45)] * 2)}
OF_VIEWS = np.concatenate([SOME[:45], np.full(30, -1)])

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "PPCA": (d.PPCA(2), {}),
    "PPCA krylov": (d.PPCA(2, solver="krylov", tol=1e-12), {}),
    "PPCA em": (d.PPCA(2, solver="em", tol=1e-10, random_state=0), {}),
    "PPCA ard": (d.PPCA(2, prior="ard"), {}),
    "PPCA gram": (d.PPCA(2, solver="gram"), {}),
    "FactorAnalysis": (d.FactorAnalysis(2), {}),
    "SupervisedPPCA": (d.SupervisedPPCA(2), {"y": Y}),
    "SupervisedPPCA some": (d.SupervisedPPCA(2, tol=1e-12), {"y": SOME}),
    "RelationalPPCA": (d.RelationalPPCA(2), RING),
    "RelationalPPCA krylov": (d.RelationalPPCA(2, solver="krylov", tol=1e-12), RING),
    "RelationalSupervisedPPCA": (d.RelationalSupervisedPPCA(2), RING | {"y": SOME}),
    "GraphPPCA": (d.GraphPPCA(2, smoothing=1.0), RING),
    # Of sparse columns near zero the strength is chosen about zero, and may be another one than that of dense rows.
    "GraphPPCA chosen far": (d.GraphPPCA(2), RING),
    "KernelPPCA": (d.KernelPPCA(2, kernel="linear"), {}),
    "KernelPPCA recomputed": (d.KernelPPCA(2, kernel="linear", solver="recomputed"), {}),
    "KernelPPCA landmarks": (d.KernelPPCA(2, kernel="linear", landmarks=20), {}),
    "KernelPPCA rbf": (d.KernelPPCA(2, kernel="rbf"), {}),
    "KernelSupervisedPPCA": (d.KernelSupervisedPPCA(2, kernel="linear"), {"y": SOME}),
    "CorrespondencePPCA": (d.CorrespondencePPCA(2), PAIRS),
    "CorrespondencePPCA krylov": (d.CorrespondencePPCA(2, solver="krylov", tol=1e-12), PAIRS),
    "CorrespondenceFactorAnalysis": (d.CorrespondenceFactorAnalysis(1), PAIRS),
    "CorrespondenceSupervisedPPCA": (d.CorrespondenceSupervisedPPCA(2), PAIRS | {"y": OF_VIEWS}),
    "PPCAMixture": (d.PPCAMixture(2, 2, random_state=0), {}),
    "LocallyLinearEmbedding": (d.LocallyLinearEmbedding(n_neighbors=8), {}),
    "CorrespondenceLLE": (d.CorrespondenceLLE(n_neighbors=8), PAIRS),
}


def rows_of(name: str, form: Any = np.asarray, offset: Any = 0.0) -> Any:
    """The data of a case at an offset, in a form; of two views the second stays dense and in its place."""
    x = WIDE if "gram" in name else X
    moved = x + np.resize(offset, x.shape[1])
    return {"a": form(moved[:, :4]), "b": x[:, 4:]} if name.startswith("Correspondence") else form(moved)


def said(name: str, model: Any, rows: Any) -> dict[str, Any]:
    """The fit, and what it says of rows, but for signs."""
    found = {key: getattr(model, key) for key in ("log_likelihood_", "embedding_") if hasattr(model, key)}
    options = PAIRS if name.startswith("Correspondence") and "LLE" not in name else {}
    for method in ("transform", "score_samples"):
        if hasattr(model, method) and name != "CorrespondenceLLE":
            graph = RING if (name.split()[0], method) == ("GraphPPCA", "transform") else {}
            found[method] = getattr(model, method)(rows, **options, **graph)
    return {key: np.abs(np.asarray(value)) for key, value in found.items()}


@pytest.fixture(scope="module", params=CASES)
def dense(request):
    """A case, and what the model says of its dense rows about zero."""
    name = request.param
    model, options = CASES[name]
    return name, said(name, model.fit(rows_of(name), **options), rows_of(name))


def assert_the_same_of_sparse_rows(dense, offset):
    name, expected = dense
    model, options = CASES[name]
    rows = rows_of(name, sp.csr_array, offset)
    found = said(name, model.fit(rows, **options), rows)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("offset", [1e3, 1e8])
def test_stored_entries_give_what_dense_rows_with_holes_give(offset):
    rows = X + np.resize([offset, 0.0], D)
    rows[::7, 1] = rows[3::9, 2] = np.nan
    seen = sp.coo_array(np.nan_to_num(rows, nan=0.0)).tocsr()
    found = d.PPCA(2, missing="unstored", tol=1e-12).fit(seen)
    expected = d.PPCA(2, missing="nan", scale="none", tol=1e-12).fit(rows)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-8)
    np.testing.assert_allclose(found.score_samples(seen), expected.score_samples(rows), rtol=1e-5)


def test_every_model_has_a_case():
    assert {name.split()[0] for name in CASES} == {model.name for model in MODELS}


def test_sparse_rows_give_what_dense_rows_give_beside_columns_far_from_zero(dense):
    assert_the_same_of_sparse_rows(dense, [1e8, 1e4 if dense[0].endswith("far") else 0.0, 1e3, 1e6])


@pytest.mark.slow
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(st.lists(st.floats(-1, 8), min_size=1, max_size=D))
@example([-1.0])
@example([0.0, 6.0])  # rounding moved the axes of factors that explain two features wholly
@example([3.0])
@example([6.0])
@example([8.0])
def test_sparse_rows_give_what_dense_rows_give_at_any_offset(dense, exponents):
    least = 4.0 if dense[0].endswith("far") else -1.0
    assert_the_same_of_sparse_rows(dense, np.round(10.0 ** np.maximum(exponents, least)))


COUNTS = RNG.poisson(1.0, size=(N, 5)).astype(float)
BESIDE_IDS = np.column_stack([COUNTS, 1e6 + RNG.permutation(N)])


def stored(rows, path):
    write_csr(zarr.open_group(path, mode="w"), [rows[:25], rows[25:]])
    return str(path)


CONTAINERS = {
    "SciPy": lambda rows, path: rows,
    "float32": lambda rows, path: rows.astype("f4"),
    "CSC": lambda rows, path: rows.tocsc(),
    "Dask": lambda rows, path: as_dask(rows, (1, 25, N - 26)),
    "Zarr": stored,
}


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_counts_beside_ids_give_what_dense_rows_give(container, solver, tmp_path):
    rows = CONTAINERS[container](sp.csr_array(BESIDE_IDS), tmp_path / "x")
    found, expected = (d.PPCA(3, solver=solver, tol=1e-12).fit(x) for x in (rows, BESIDE_IDS))
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-10)
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-12)
    np.testing.assert_allclose(found.noise_variance_, expected.noise_variance_, rtol=1e-9)
    np.testing.assert_allclose(found.score_samples(rows), expected.score_samples(BESIDE_IDS), rtol=1e-8)
    np.testing.assert_allclose(found.transform(rows), expected.transform(BESIDE_IDS), rtol=1e-6, atol=1e-8)


def test_a_row_alone_has_the_likelihood_that_it_has_among_others():
    model = d.PPCA(2).fit(sp.csr_array(X + 1e8))
    whole, alone = model.score_samples(sp.csr_array(X + 1e8)), model.score_samples(sp.csr_array(X[[7]] + 1e8))
    np.testing.assert_allclose(alone, whole[[7]], rtol=1e-10)
    empty = sp.csr_array((np.array([1e8] * D), np.arange(D), [0, D, D]), shape=(2, D))
    np.testing.assert_allclose(model.score_samples(empty)[0], model.score_samples(np.full((1, D), 1e8))[0], rtol=1e-9)


def test_a_column_that_a_few_rows_lack_is_taken_about_its_mean():
    rows = np.vstack([X + 1e3] * 6)
    rows[7, 0] = 0.0
    found, expected = d.PPCA(2).fit(sp.csr_array(rows)), d.PPCA(2).fit(rows)
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-10)
    np.testing.assert_allclose(found.score_samples(sp.csr_array(rows)), expected.score_samples(rows), rtol=1e-8)


def test_rows_that_are_added_are_taken_about_the_first_ones():
    expected = d.PPCA(2).fit(X)
    found = d.PPCA(2).partial_fit(sp.csr_array(X[:30] + 1e8)).partial_fit(sp.csr_array(X[30:] + 1e8))
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-6)


def test_rows_of_zeros_are_found_beside_columns_far_from_zero():
    rows = sp.csr_array(np.vstack([X + 1e3, np.zeros(D), X + 1e3]))
    with pytest.raises(DataError, match=f"row {N} .* is all zeros"):
        d.PPCA(2, zero_rows="raise").fit(rows)
    with pytest.warns(DataWarning, match="1 row is all zeros"):
        d.PPCA(2).fit(rows)


@pytest.mark.parametrize(
    ("model", "category", "words"),
    [
        (d.PPCA(2, solver="covariance"), PrecisionWarning, "keeps few digits"),
        (d.PPCA(2, solver="krylov"), PrecisionWarning, "keeps few digits"),
        (d.FactorAnalysis(2), NoiseFloorWarning, "6 of 6 features .* but for rounding"),
        (d.RelationalPPCA(2), PrecisionWarning, "keeps few digits"),
    ],
    ids=lambda case: f"{type(case).__name__} {case.solver}" if hasattr(case, "solver") else "",
)
def test_digits_that_are_lost_all_the_same_are_told_of(model, category, words):
    """Nine spreads from zero nothing is moved, and the squares have two digits more than the variances; the noise has
    twelve digits less: too few for noise variances of single features, which end at their floor."""
    low = RNG.normal(size=(N, 2)) @ RNG.normal(size=(2, D))
    rows = sp.csr_array(low + 9.0 * low.std(axis=0) + 1e-6 * RNG.normal(size=(N, D)))
    with pytest.warns(category, match=words):
        model.fit(rows, **(RING if isinstance(model, d.RelationalPPCA) else {}))


def test_nothing_is_told_where_no_digits_are_lost(recwarn):
    d.PPCA(2).fit(sp.csr_array(X + 1e8))
    d.PPCA(3).fit(sp.csr_array(BESIDE_IDS))
    assert not [w for w in recwarn if issubclass(w.category, PrecisionWarning)]
