"""A whole fit has the same bits on the serial engine, on threads, and on clusters of one and two workers."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from law_cases import as_dask, fit, numbers, same_bits, texts

from dlatent import PPCA, Callback, CorrespondencePPCA, PPCAMixture, SupervisedPPCA, open_data
from tests.engine.simulated import cut
from tests.fits import FITS, bits
from tests.one_solver import only_solver
from tests.sparse_stores import write_csr

X, Y, LABELLED = numbers(n=200, d=24)
ROWS = (50, 3, 1, 70, 26, 30, 20)


@pytest.fixture(params=["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


@pytest.fixture(scope="module")
def stored(folder):
    zarr.create_array(folder / "x.zarr", data=X, chunks=(30, 10))
    return str(folder / "x.zarr")


def in_store(rows, folder):
    """Rows in a store, of seven blocks or so."""
    place = folder / f"{len(list(folder.iterdir()))}.zarr"
    if sp.issparse(rows):
        write_csr(zarr.create_group(place), [rows[:10], rows[10:]])
    else:
        zarr.create_array(place, data=rows, chunks=(max(1, len(rows) // 7), 5))
    return open_data(str(place), block_bytes=rows.shape[0] * rows.shape[1] * 8 // 7)


def in_dask(rows, _):
    """Rows in chunks of many sizes."""
    sizes = [each for each in (9, 1, 3, 2) if each < rows.shape[0] // 3]
    return as_dask(rows, (*sizes, rows.shape[0] - sum(sizes)))


FORMS = {"memory": lambda rows, _: cut(rows, 9), "stored": in_store, "dask": in_dask}


@pytest.fixture(scope="module")
def fits(folder):
    """Bits of fits by what the data are, and by who computes, each made once."""

    @cache
    def made(name, form, client="serial"):
        return bits(FITS[name](lambda rows: FORMS[form](rows, folder), client=client))

    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [pytest.param(form, marks=[pytest.mark.slow] * (form != "stored")) for form in FORMS])
@pytest.mark.parametrize("name", FITS)
def test_fits_have_the_same_bits(client, fits, name, form):
    assert fits(name, form, client) == fits(name, form)


def test_textbook_em_over_the_data_has_the_same_bits(client):
    options = {"solver": "em", "max_iter": 5}
    with only_solver("krylov"), pytest.warns(UserWarning, match="stopped after 5"):
        one, other = (fit("semi", as_dask(X, ROWS), Y, LABELLED, client=c, **options) for c in ("serial", client))
    assert same_bits(one, other)


RESULTS = {
    "semi": (lambda: fit("semi", X, Y, LABELLED), ("transform", "score_samples"), "scores"),
    "mixture": (
        lambda: PPCAMixture(2, 3, n_init=2, max_iter=8).fit(X),
        ("predict_proba", "transform", "score_samples", "predict", "reconstruct"),
        "responsibilities",
    ),
}
"""Models, methods whose results are asked for, and the array of the first of these in a store."""


@pytest.mark.filterwarnings("ignore::dlatent.ConvergenceWarning", "ignore::dlatent.MisfitWarning")
@pytest.mark.parametrize("name", RESULTS)
def test_results_have_the_same_bits(client, stored, tmp_path, name):
    make, methods, array = RESULTS[name]
    model = make()
    for method in methods:
        found, expected = (getattr(model, method)(stored, client=where) for where in (client, "serial"))
        np.testing.assert_array_equal(found, expected)
    first = getattr(model, methods[0])
    out = first(stored, out=tmp_path / "z.zarr", client=client)
    np.testing.assert_array_equal(zarr.open(out)[array][:], first(stored, client="serial"))


def test_the_active_client_is_used(two_workers, stored):
    seen = []
    with two_workers.as_current():
        model = PPCA(2, solver="covariance").fit(stored, callbacks=[Callback(on_pass=seen.append)])
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
