"""Targets of views in all forms, joint scores on every engine, and many sparse features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dlatent import CorrespondencePPCA, CorrespondenceSupervisedPPCA
from tests.oracles.views import some_views, split, table_of
from tests.simulators import documents, simulate
from tests.sparse_stores import write_csr

SIZES = (12, 9)
HAS = some_views(300, 2, share=0.4, random_state=3)
VIEWS = split(simulate(300, SIZES, 2, noise=(0.4, 0.5), random_state=4).stacked, SIZES, HAS)
# The second view in another order, so that pairs are gathered from everywhere.
PLACES = np.random.default_rng(5).permutation(len(VIEWS["b"]))
VIEWS["b"] = VIEWS["b"][np.argsort(PLACES)]
TABLE = table_of(HAS)
TABLE[:, 1] = np.where(TABLE[:, 1] >= 0, PLACES[TABLE[:, 1]], -1)
DRAWN = np.random.default_rng(6)
CLASSES = {"b": np.where(DRAWN.random(len(VIEWS["b"])) < 0.6, VIEWS["b"][:, 0] > 0, -1)}
OUTPUTS = np.where(DRAWN.random((300, 1)) < 0.6, DRAWN.standard_normal((300, 2)), np.nan)


@pytest.fixture(params=["threads", "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    zarr.create_array(folder / "a.zarr", data=VIEWS["a"], chunks=(40, 5))
    write_csr(zarr.create_group(folder / "b.zarr"), [sp.csr_array(VIEWS["b"])], columns=SIZES[1])
    return {name: str(folder / f"{name}.zarr") for name in "ab"}


def bits(model):
    values = [*model.components_.values(), *model.mean_.values(), *map(np.asarray, model.noise_variance_.values())]
    if hasattr(model, "target_mean_"):
        values += [model.target_components_, model.target_mean_, np.asarray(model.target_noise_variance_)]
    return [value.tobytes() for value in values], model.log_likelihood_


def test_samples_without_targets_are_those_that_have_them_elsewhere(stored):
    """Rows that say nothing of the targets are no different whether these are NaN, None, −1 or masked."""
    known = CLASSES["b"] >= 0
    none = np.where(known, CLASSES["b"], None)
    ways = [
        (CLASSES, None),
        ({"b": none}, None),
        ({"b": np.where(known, CLASSES["b"], np.nan)}, None),
        ({"b": np.where(known, CLASSES["b"], 0)}, known),
    ]
    fits = [
        CorrespondenceSupervisedPPCA(2).fit(stored, y, labelled=labelled, correspondence=TABLE) for y, labelled in ways
    ]
    assert all(bits(fit) == bits(fits[0]) for fit in fits)
    rows = np.where(TABLE[:, 1] >= 0, CLASSES["b"][TABLE[:, 1]], -1)
    joint = CorrespondenceSupervisedPPCA(2).fit(stored, rows, correspondence=TABLE)
    assert bits(joint) == bits(fits[0])


def test_joint_scores_have_the_same_bits(client, stored):
    model = CorrespondencePPCA(2).fit(VIEWS, correspondence=TABLE)
    expected = model.transform(stored, correspondence=TABLE, client="serial")
    np.testing.assert_array_equal(model.transform(stored, correspondence=TABLE, client=client), expected)
    one = model.transform({"b": stored["b"]}, client="serial")
    np.testing.assert_array_equal(model.transform({"b": stored["b"]}, client=client), one)


def test_many_sparse_features_by_both_routes():
    """Subspaces that grow, of two views: the maximum that moments find."""
    first, second = documents(300, 150, random_state=1).features, documents(300, 110, random_state=1).features
    has = some_views(300, 2, share=0.3, random_state=2)
    views = {"a": first[np.flatnonzero(has[:, 0])], "b": second[np.flatnonzero(has[:, 1])]}
    fits = [
        CorrespondencePPCA(2, solver=solver, tol=1e-11).fit(views, correspondence=table_of(has))
        for solver in ("covariance", "krylov")
    ]
    assert fits[1].n_passes_ > 3
    assert fits[0].log_likelihood_ == pytest.approx(fits[1].log_likelihood_, rel=1e-10)
    for one, other in (("a", "a"), ("a", "b")):
        np.testing.assert_allclose(
            fits[0].get_covariance(one, other), fits[1].get_covariance(one, other), rtol=1e-4, atol=1e-7
        )
