"""A whole fit has the same bits on the serial engine, on threads, and on clusters of one and two workers."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from law_cases import CASES, ROUTES, as_dask, fit, numbers, same_bits, texts

from dlatent import PPCA, CorrespondencePPCA, SupervisedPPCA
from tests.one_solver import only_solver

X, Y, LABELLED = numbers(n=200, d=24)
ROWS = (50, 3, 1, 70, 26, 30, 20)
ENGINES = ["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"]


@pytest.fixture(params=ENGINES)
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("laws") / "x.zarr"
    array = zarr.create_array(path, shape=X.shape, chunks=(30, 10), dtype=X.dtype)
    array[:] = X
    return str(path)


@pytest.fixture(scope="module")
def fits(stored):
    """Fits by what the data are, and by who computes, each made once."""
    forms = {"stored": stored, "memory": X, "dask": as_dask(X, ROWS)}

    @cache
    def made(case, solver, form, client="serial"):
        return fit(case, forms[form], Y, LABELLED, solver=solver, tol=1e-7, client=client)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("case", CASES)
def test_fits_of_dask_arrays_have_the_same_bits(client, fits, case, solver):
    expected, found = fits(case, solver, "dask"), fits(case, solver, "dask", client)
    assert same_bits(found, expected)
    lines = [model.history_["iteration_log_likelihood"].values for model in (found, expected)]
    np.testing.assert_array_equal(*lines)


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("case", ["ppca", "semi"])
def test_fits_of_stores_and_of_memory_have_the_same_bits(client, fits, case, solver):
    for form in ("stored", "memory"):
        assert same_bits(fits(case, solver, form, client), fits(case, solver, form))


@pytest.mark.parametrize("solver", ROUTES)
def test_fits_of_sparse_documents_have_the_same_bits(client, solver):
    for kind in ("documents", "labelled documents"):
        assert of_documents(kind, solver, client) == of_documents(kind, solver, "serial")


@cache
def of_documents(kind, solver, client):
    x, labels = texts()
    model = PPCA(3, solver=solver) if kind == "documents" else SupervisedPPCA(2, solver=solver)
    model.fit(as_dask(x, (40, 50)), labels, client=client)
    return model.components_.tobytes(), model.log_likelihood_


def test_textbook_em_over_the_data_has_the_same_bits(client):
    options = {"solver": "em", "max_iter": 5, "client": "serial"}
    with only_solver("krylov"), pytest.warns(UserWarning, match="stopped after 5"):
        expected = fit("semi", as_dask(X, ROWS), Y, LABELLED, **options)
    with only_solver("krylov"), pytest.warns(UserWarning, match="stopped after 5"):
        found = fit("semi", as_dask(X, ROWS), Y, LABELLED, **options | {"client": client})
    assert same_bits(found, expected)


def test_transforms_have_the_same_bits(client, stored):
    model = fit("semi", X, Y, LABELLED)
    expected = model.transform(stored, client="serial")
    np.testing.assert_array_equal(model.transform(stored, client=client), expected)
    expected = model.score_samples(stored, client="serial")
    np.testing.assert_array_equal(model.score_samples(stored, client=client), expected)


def test_transform_into_a_store_has_the_same_bits(client, stored, tmp_path):
    model = fit("ppca", X, Y, LABELLED)
    out = model.transform(stored, out=tmp_path / "z.zarr", client=client)
    np.testing.assert_array_equal(zarr.open(out)["scores"][:], model.transform(stored, client="serial"))


def test_the_active_client_is_used(two_workers, stored):
    seen = []
    with two_workers.as_current():
        model = PPCA(2, solver="covariance")
        from dlatent import Callback

        model.fit(stored, callbacks=[Callback(on_pass=seen.append)])
        assert model.plan(stored).machine.startswith("cluster, 2 workers")
    assert seen
    assert same_bits(model, PPCA(2, solver="covariance").fit(stored, client="serial"))


def test_sparse_results_do_not_depend_on_the_storage_order():
    """Unsorted and doubled entries are summed before anything is computed."""
    rows, labels = texts()
    coo = rows.tocoo()
    twice = sp.coo_array(
        (np.concatenate([coo.data * 0.25, coo.data * 0.75]), tuple(np.tile(c, 2)[::-1][::-1] for c in coo.coords)),
        shape=coo.shape,
    )
    order = np.random.default_rng(0).permutation(twice.nnz)
    shuffled = sp.coo_array((twice.data[order], tuple(c[order] for c in twice.coords)), shape=coo.shape)
    one, other = (SupervisedPPCA(2).fit(data, labels) for data in (rows, shuffled))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6, atol=1e-9)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-12)


def test_scores_of_many_rows_pass_through_no_other_worker(two_workers, stored):
    """Each result of the workers has the rows of one group; what joined two of them could grow as long as the data."""
    model, sent, send = fit("semi", X, Y, LABELLED), [], two_workers.get
    with patch.object(
        two_workers, "get", side_effect=lambda graph, *a, **b: sent.append(graph) or send(graph, *a, **b)
    ):
        found = [model.transform(stored, client=two_workers), model.score_samples(stored, client=two_workers)]
        joint = two_views(stored, two_workers)
    np.testing.assert_array_equal(found[0], model.transform(stored, client="serial"))
    np.testing.assert_array_equal(found[1], model.score_samples(stored, client="serial"))
    np.testing.assert_array_equal(joint, two_views(stored, "serial"))
    keys = [key[0] if isinstance(key, tuple) else key for graph in sent for key in dict(graph)]
    for name in ("scores", "log_likelihood", "joint rows"):
        assert any(key.startswith(name) for key in keys), name
    assert not [key for key in keys if "-join-" in key]


def two_views(stored, client):
    pairs = np.arange(0, len(X), 2)[:, None] + [0, 0]
    model = CorrespondencePPCA(2).fit({"a": stored, "b": X[:, :5]}, correspondence=pairs, client="serial")
    return model.transform({"a": stored, "b": X[:, :5]}, correspondence=pairs, client=client).values
