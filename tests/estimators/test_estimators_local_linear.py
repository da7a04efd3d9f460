"""Locally linear embedding against scikit-learn, and what every estimator promises as far as it applies here."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
from sklearn.datasets import load_digits, make_s_curve, make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding as Peer
from sklearn.neighbors import NearestNeighbors

import dlatent
from dlatent import CorrespondenceLLE, LocallyLinearEmbedding, NotFittedError, self_correspondence
from dlatent.errors import ConvergenceWarning, DataError, DataWarning, PlanError


def s_curve(rows=300, seed=0):
    return make_s_curve(rows, random_state=seed)[0]


class SmallerIndexFirst(NearestNeighbors):
    """Neighbours by all differences, ties to the smaller index; the searches of scikit-learn break them otherwise."""

    def kneighbors(self, X, n_neighbors=None, return_distance=True):
        squares = np.array([((row - self._fit_X) ** 2).sum(axis=1) for row in X])
        order = np.argsort(squares, axis=1, kind="stable")[:, : n_neighbors or self.n_neighbors]
        return (np.sqrt(np.take_along_axis(squares, order, 1)), order) if return_distance else order


DATA = {"S-curve": (s_curve(800), 12), "Swiss roll": (make_swiss_roll(800, random_state=0)[0], 12)}
VIEWS = {"left": s_curve(60), "right": s_curve(80)[20:] ** 3 + s_curve(80)[20:]}
PAIRS = np.column_stack([np.arange(0, 60, 2), np.arange(0, 60, 2)])


def single(**options):
    return LocallyLinearEmbedding(n_neighbors=8, **options)


def double(**options):
    return CorrespondenceLLE(n_neighbors=8, **options)


def distance(one, other):
    """The largest sine of an angle between two subspaces."""
    one, other = np.linalg.qr(one)[0], np.linalg.qr(other)[0]
    return np.linalg.norm(one - other @ (other.T @ one), 2)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_scikit_learn_has_the_same_subspace(name, sparse):
    x, k = DATA[name]
    peer = Peer(n_neighbors=k, n_components=2, eigen_solver="dense").fit(x)
    model = LocallyLinearEmbedding(n_neighbors=k, n_components=2, disconnected="keep")
    model.fit(sp.csr_array(x) if sparse else x)
    assert distance(model.embedding_, peer.embedding_) < 1e-6
    np.testing.assert_allclose(abs(model.embedding_), abs(peer.embedding_) * np.sqrt(len(x)), atol=1e-4)
    np.testing.assert_allclose(model.reconstruction_error_, peer.reconstruction_error_, rtol=1e-4)


@pytest.mark.parametrize(
    ("k", "sparse"), [(10, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((10, True), (30, False)))]
)
def test_scikit_learn_has_the_same_subspace_of_digits_where_ties_go_to_the_smaller_index(k, sparse, monkeypatch):
    """Digits are whole numbers: with k = 30, 106 of 1,797 have another image as far away as their last neighbour."""
    x = load_digits().data
    monkeypatch.setattr("sklearn.manifold._locally_linear.NearestNeighbors", SmallerIndexFirst)
    peer = Peer(n_neighbors=k, n_components=2, eigen_solver="dense").fit(x)
    model = LocallyLinearEmbedding(n_neighbors=k, n_components=2, disconnected="keep")
    model.fit(sp.csr_array(x) if sparse else x)
    assert distance(model.embedding_, peer.embedding_) < 1e-6
    np.testing.assert_allclose(abs(model.embedding_), abs(peer.embedding_) * np.sqrt(len(x)), atol=1e-4)
    np.testing.assert_allclose(model.reconstruction_error_, peer.reconstruction_error_, rtol=1e-4)


def test_scikit_learn_places_new_samples_alike():
    x, new = s_curve(), s_curve(50, 1)
    peer = Peer(n_neighbors=8, eigen_solver="dense").fit(x)
    signs = np.sign((single().fit(x).embedding_ * peer.embedding_).sum(axis=0))
    expected = peer.transform(new) * signs * np.sqrt(len(x))
    np.testing.assert_allclose(single().fit(x).transform(new), expected, atol=1e-5)


def fitted(model, **options):
    if isinstance(model, CorrespondenceLLE):
        return model.fit(VIEWS, correspondence=PAIRS, **options)
    return model.fit(s_curve(), **options)


def test_order_shift_turn_and_scale_do_not_matter():
    x, model = s_curve(), single().fit(s_curve())
    order = np.random.default_rng(0).permutation(len(x))
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    for other in (x[order], x[order] + 1e4, x[order] * 50.0, x[order] @ turn, x[order].astype(np.float32)):
        assert distance(single().fit(other).embedding_, model.embedding_[order]) < 1e-3


@pytest.mark.parametrize("make", [single, double])
def test_sparse_and_single_precision_rows_are_saved(make, tmp_path):
    views = {"left": sp.csr_array(VIEWS["left"].astype(np.float32)), "right": sp.csr_array(VIEWS["right"])}
    model = single().fit(sp.csr_array(s_curve())) if make is single else double().fit(views, correspondence=PAIRS)
    model.save(tmp_path / "model.zarr")
    again, new = dlatent.load(tmp_path / "model.zarr"), s_curve()[:9]
    np.testing.assert_array_equal(again.transform(new), model.transform(new))
    if make is double:
        for start in (None, new):
            np.testing.assert_array_equal(again.reconstruct(start), model.reconstruct(start))


def test_names_are_kept():
    rows = [f"r{i}" for i in range(300)]
    data = xr.DataArray(s_curve(), dims=("row", "column"), coords={"row": rows})
    model = single().fit(data)
    found = model.transform(data)
    assert found.dims == ("row", "component")
    assert found["row"].values.tolist() == rows
    assert model.result_["embedding"].dims == ("sample", "component")


def test_views_by_shared_labels_are_those_by_pairs():
    left = xr.DataArray(VIEWS["left"], dims=("i", "f"), coords={"i": np.arange(60)})
    right = xr.DataArray(
        VIEWS["right"], dims=("i", "g"), coords={"i": np.where(np.arange(60) % 2, -1, 1) * np.arange(60)}
    )
    by_labels = double().fit({"left": left, "right": right}, on="i")
    by_pairs = double().fit(VIEWS, correspondence=PAIRS)
    for view in ("left", "right"):
        np.testing.assert_allclose(by_labels.embedding_of(view), by_pairs.embedding_of(view), atol=1e-6)


def test_a_reconstruction_comes_near_what_it_stands_for():
    """Two views of one sheet, 80 of 300 samples in correspondence; the other 220 of one view from the other."""
    x = s_curve(300)
    other = np.column_stack([x[:, 0] * x[:, 1], x[:, 1], x[:, 2], x[:, 0]])
    pairs = np.repeat(np.arange(80)[:, None], 2, axis=1)
    model = double().fit([x, other], correspondence=pairs)
    for found in (model.reconstruct()[80:], model.reconstruct(x[80:])):
        error = ((found - other[80:]) ** 2).sum() / ((other[80:] - other[80:].mean(axis=0)) ** 2).sum()
        assert error < 0.02
    named = model.reconstruct(xr.DataArray(x[:5], dims=("row", "f")), from_view="0", to_view="1")
    assert named.dims == ("row", "feature")


def test_self_correspondence_keeps_the_order_of_the_data():
    x = s_curve(300)
    model = self_correspondence(x, parts=3, overlap=0.4, n_neighbors=10)
    counts = (model.samples_ >= 0).sum(axis=1)
    assert ((counts == 3).sum(), (counts == 1).sum()) == (120, 180)
    for part in range(3):
        own = np.flatnonzero(model.samples_[:, part] >= 0)
        np.testing.assert_array_equal(model.embedding_of(part), model.embedding_[own])


def test_subsets_that_share_all_samples_are_the_data():
    x = s_curve(300)
    model = self_correspondence(x, overlap=0.999, n_neighbors=10)
    assert distance(model.embedding_, LocallyLinearEmbedding(n_neighbors=10).fit(x).embedding_) < 1e-6


def test_graphs_that_fall_apart_are_refused_or_told():
    x = np.concatenate([s_curve(100), s_curve(60) + 100.0])
    with pytest.raises(DataError, match=r"2 sets of samples .*\(of 100, 60; the last holds row 100, row 101"):
        single().fit(x)
    with pytest.warns(DataWarning, match="raise n_neighbors"):
        model = single(disconnected="keep").fit(x)
    assert [len(members) for members in model.separate_sets_] == [100, 60]
    alone = np.concatenate([VIEWS["right"], s_curve(20) + 100.0])
    with pytest.raises(DataError, match=r"the last holds row 60 of 'right'.* or give correspondences"):
        double().fit({**VIEWS, "right": alone}, correspondence=PAIRS)
    with pytest.raises(DataError, match="shares no sample"):
        double().fit(VIEWS, correspondence=np.empty((0, 2), dtype=int))


def test_a_solver_that_does_not_settle_says_so(monkeypatch):
    monkeypatch.setattr("dlatent.solvers.lle.smallest.ROUNDS", 1)
    monkeypatch.setattr("dlatent.solvers.lle.smallest.STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="eigen_solver='direct'"):
        model = single(eigen_solver="iterative").fit(s_curve(1200))
    assert not model.converged_


def test_plan_before_fit():
    plan = single().plan(s_curve())
    assert plan.passes == 3
    assert "300 × 3, 8 neighbours each" in str(plan)
    assert single().fit(s_curve()).n_passes_ == plan.passes
    assert set(double().plan(VIEWS)) == {"left", "right"}


def test_refusals():
    bad = s_curve()
    bad[5, 2] = np.nan
    with pytest.raises(DataError, match="row 5, column 2"):
        single().fit(bad)
    with pytest.raises(DataError, match="allow at most 7"):
        single().fit(s_curve(8))
    for name, value in (("n_neighbors", 0), ("n_components", True), ("reg", 0.0), ("eigen_solver", "arpack")):
        with pytest.raises(DataError, match=f"{name} is"):
            single().set_params(**{name: value}).fit(s_curve())
    with pytest.raises(DataError, match="300 samples allow at most 298"):
        single(n_components=299).fit(s_curve())
    model = single().fit(s_curve())
    with pytest.raises(DataError, match="features"):
        model.transform(s_curve()[:, 1:])
    with pytest.raises(NotFittedError, match="fit first"):
        single().transform(s_curve())
    with pytest.raises(DataError, match="there is no view 'up'; the views are 'left', 'right'"):
        fitted(double()).transform(s_curve(), "up")
    with pytest.raises(DataError, match="reg is 0"):
        fitted(double()).reconstruct(reg=0)
    for options in ({"parts": 1}, {"overlap": 1.0}):
        with pytest.raises(DataError, match=next(iter(options))):
            self_correspondence(s_curve(), **options)


def test_training_rows_that_are_too_many_are_not_kept(monkeypatch):
    monkeypatch.setattr("dlatent.models.embedding.REFERENCE_BYTES", 1000)
    model = single().fit(s_curve())
    with pytest.raises(DataError, match="were not kept"):
        model.transform(s_curve())


def test_what_does_not_fit_is_refused_before_rows_are_loaded(monkeypatch):
    """The rows that a model keeps count, and where workers are threads of the driver both do."""
    x = np.random.default_rng(0).normal(size=(60, 20_000))
    plan = single().plan(x)
    assert plan.driver_memory > 2 * x.nbytes
    monkeypatch.setattr("dlatent.engine.executor.memory", lambda: 2**28)
    monkeypatch.setattr("dlatent.models.embedding.rows_of", lambda _: pytest.fail("rows were loaded"))
    with pytest.raises(PlanError, match=r"60 × 20,000 does not fit: locally linear embedding needs .* 256.0 MiB"):
        single().fit(x)


@pytest.mark.slow
def test_approximate_neighbours_need_their_library():
    try:
        import pynndescent  # noqa: F401
    except ImportError:
        with pytest.raises(DataError, match="pip install"):
            single(neighbors="approximate").fit(s_curve())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = single(neighbors="approximate").fit(s_curve(1500))
    exact = single().fit(s_curve(1500))
    assert model.neighbor_recall_[0] > 0.95
    assert exact.neighbor_recall_ == (1.0,)
    assert distance(model.embedding_, exact.embedding_) < 0.1
