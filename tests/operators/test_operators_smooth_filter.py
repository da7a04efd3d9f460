"""What stands between samples, hop by hop, against dense matrices that are formed."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import open_data, open_graph, open_precision
from dlatent.engine import edges
from dlatent.engine.connect import connect
from dlatent.gaussian.specification import Specification, View
from dlatent.operators.sample_precision import Precision, SmoothFilter, UserPrecision
from dlatent.solvers.graph.samples import GraphSamples
from dlatent.solvers.task import Relation
from tests.graphs import power_law_graph
from tests.law_examples import examples

SAMPLES, FEATURES = 60, 7
DRAWN = np.random.default_rng(2).uniform(0.5, 2.0, (SAMPLES - 3, SAMPLES - 3))
EDGES = power_law_graph(SAMPLES - 3, 120, random_state=1).toarray() * (DRAWN + DRAWN.T)
GRAPH = sp.csr_array(np.pad(EDGES, (0, 3)))  # three samples without edges
X = np.random.default_rng(0).normal(size=(SAMPLES, FEATURES)) + 3.0
SPARSE = sp.random_array((SAMPLES, FEATURES), density=0.4, rng=np.random.default_rng(3), format="csr")

SIGNED = (EDGES + EDGES.T) * np.sign(np.random.default_rng(4).normal(size=EDGES.shape))
SIGNED = np.pad(np.triu(SIGNED, 1) + np.triu(SIGNED, 1).T, (0, 3))
GIVEN = sp.csr_array(SIGNED + np.diag(abs(SIGNED).sum(axis=1) + 0.1))

PRECISIONS = {
    "given": UserPrecision(),
    "of the paper": Precision(0.7, 0.3),
    "one hop": SmoothFilter(2.0, 1),
    "two hops": SmoothFilter(0.3, 2),
    "weak": SmoothFilter(1e-6, 3),
    "strong": SmoothFilter(30.0, 3),
}


def normalised(graph):
    """S, by the definition."""
    dense = graph.toarray()
    degrees = dense.sum(axis=1)
    found = np.zeros_like(dense)
    for i, j in zip(*dense.nonzero(), strict=True):
        found[i, j] = dense[i, j] / np.sqrt(degrees[i] * degrees[j])
    return found


def formed(graph, precision):
    """Δ."""
    if isinstance(precision, UserPrecision):
        return GIVEN.toarray()
    if isinstance(precision, Precision):
        inner = precision.alpha * np.eye(graph.shape[0]) + graph.toarray()
        return precision.gamma * np.eye(len(inner)) + inner @ inner
    s = normalised(graph)
    f = sum(precision.smoothing**k * np.linalg.matrix_power(s, k) for k in range(precision.hops + 1))
    return f @ f


def samples_of(session, precision, shift, columns):
    task = SimpleNamespace(
        relation=Relation(precision, SAMPLES),
        refuse_zero_rows=False,
        specification=Specification((View("features", FEATURES),), ((0,),), 2),
    )
    plan = SimpleNamespace(columns_at_once=columns, column_blocks=columns)
    return GraphSamples(task, plan, shift, session.run)


def weighted(x, delta):
    """The mean weighted by Δ1, and the scatter about it."""
    mean = delta.sum(axis=0) @ x / delta.sum()
    return mean, (x - mean).T @ delta @ (x - mean)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    ("x", "entries"), [(X, 1), (SPARSE, 10**6), (SPARSE, 30)], ids=["dense", "sparse", "by pieces"]
)
@pytest.mark.parametrize("name", PRECISIONS)
def test_products_means_and_total_variance_are_those_of_the_formed_matrix(name, x, entries, shifted, monkeypatch):
    monkeypatch.setattr(edges, "MET_ENTRIES", entries)
    precision, directions = PRECISIONS[name], np.random.default_rng(5).normal(size=(FEATURES, 5))
    dense = x.toarray() if sp.issparse(x) else x
    mean, scatter = weighted(dense, formed(GRAPH, precision))
    shift = dense[:10].mean(axis=0) if shifted else np.zeros(FEATURES)
    graph = open_precision(GIVEN) if isinstance(precision, UserPrecision) else open_graph(GRAPH)
    with connect(open_data(x), client="serial", graph=graph) as session:
        data = samples_of(session, precision, shift, columns=2)
        (found,) = data.products((directions,), True)
        np.testing.assert_allclose(found.product[0], scatter @ directions, rtol=1e-9, atol=1e-10 * abs(scatter).max())
        np.testing.assert_allclose(shift + data.known.offset, mean, rtol=1e-9)
        assert data.known.sums.energy == pytest.approx(np.trace(scatter), rel=1e-9)
        moments = data.moments()
    np.testing.assert_allclose(moments.patterns[0].gram, scatter, rtol=1e-9, atol=1e-10 * abs(scatter).max())


@settings(max_examples=examples(20))
@given(st.floats(0.05, 0.95) | st.floats(1.0, 5.0), st.integers(1, 4), st.integers(0, 50))
def test_the_filter_is_positive_and_leaves_samples_without_edges_alone(smoothing, hops, seed):
    hops += hops % 2 if smoothing >= 1.0 else 0
    graph = sp.csr_array(sp.block_diag([power_law_graph(20, 40, random_state=seed), sp.csr_array((2, 2))]))
    delta = formed(graph, SmoothFilter(smoothing, hops))
    assert np.linalg.eigvalsh(delta).min() > 0
    np.testing.assert_array_equal(delta[-2:], np.eye(22)[-2:])


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
def test_a_precision_is_an_immutable_value(precision):
    assert pickle.loads(pickle.dumps(precision)) == precision
    assert hash(precision) == hash(pickle.loads(pickle.dumps(precision)))
    with pytest.raises(AttributeError):
        precision.hops = 3
