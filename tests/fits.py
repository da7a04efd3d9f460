"""Fits of all kinds of models, in blocks as they are asked for, and their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent import (
    PPCA,
    CorrespondenceFactorAnalysis,
    CorrespondenceLLE,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    FactorAnalysis,
    GraphPPCA,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
)
from tests.fitted import variables_of
from tests.sparse_stores import observed_entries

RNG = np.random.default_rng(0)
N = 48
X = RNG.normal(size=(N, 3)) @ RNG.normal(size=(3, 8)) + 0.3 * RNG.normal(size=(N, 8))
WIDE = RNG.normal(size=(N, 3)) @ RNG.normal(size=(3, 24)) + 0.5 * RNG.normal(size=(N, 24))
"""Rows of so many features that Krylov spaces take several passes."""
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
LABELS = np.where(np.arange(N) % 3 == 0, -1, (X[:, 0] > 0).astype(int))
OUTPUTS = np.where((np.arange(N) % 3 == 0)[:, None], np.nan, X[:, :2] + np.random.default_rng(1).normal(size=(N, 2)))
PATH = sp.csr_array(sp.diags_array([np.ones(N - 1)] * 2, offsets=[-1, 1]))
CHAIN = sp.csr_array(sp.diags_array([-0.5, 1.25, -0.5], offsets=[-1, 0, 1], shape=(N, N)))
ORDER = np.random.default_rng(2).permutation(N - N // 3)
"""Of the rows of the second view, so that pairs are gathered from everywhere."""
PAIRS = np.column_stack([np.arange(N // 3, 2 * N // 3), np.argsort(ORDER)[: N // 3]])
COUNTS = RNG.poisson(np.exp(np.clip(0.4 * X[:, 4:], -2.0, 2.0))).astype(float)
ERRORS = np.exp(0.3 * RNG.normal(size=X.shape))

Fit = Callable[..., Any]


def whole(rows: Any) -> Any:
    """Rows in one block."""
    return rows


def views(cut: Callable[[Any], Any], likelihood: bool = False) -> dict[str, Any]:
    """Two views, of which the last third of the samples of the first is the first of the other."""
    return {"a": cut(X[: 2 * N // 3, :4]), "b": cut((COUNTS if likelihood else X[:, 4:])[N // 3 :][ORDER])}


FITS: dict[str, Fit] = {
    "covariance": lambda cut=whole, **more: PPCA(2, solver="covariance").fit(cut(X), **more),
    "weights": lambda cut=whole, **more: PPCA(2).fit(cut(X), sample_weight=ERRORS[:, 0], **more),
    "krylov": lambda cut=whole, **more: PPCA(2, solver="krylov").fit(cut(WIDE), **more),
    "krylov, sparse": lambda cut=whole, **more: PPCA(2, solver="krylov").fit(
        cut(sp.csr_array(WIDE * (WIDE > 1))), **more
    ),
    "gram": lambda cut=whole, **more: PPCA(2, solver="gram").fit(cut(X[:7]), **more),
    "gram, labels": lambda cut=whole, **more: SupervisedPPCA(2, solver="gram").fit(cut(WIDE[:20]), LABELS[:20], **more),
    "em": lambda cut=whole, **more: PPCA(2, solver="em", max_iter=20).fit(cut(X), **more),
    "missing": lambda cut=whole, **more: PPCA(2, missing="nan").fit(cut(HOLES), **more),
    "missing, sparse": lambda cut=whole, **more: PPCA(2, missing="unstored").fit(cut(observed_entries(HOLES)), **more),
    "levels": lambda cut=whole, **more: PPCA(2, missing="nan", row_effects=True).fit(cut(HOLES), **more),
    "error bars": lambda cut=whole, **more: PPCA(2).fit(
        cut(X), uncertainty=ERRORS, offset=ERRORS[:, 0], covariates=ERRORS[:, 1:3], **more
    ),
    "counts": lambda cut=whole, **more: PPCA(1, likelihood="poisson", tol=1e-3).fit(cut(COUNTS), **more),
    "heavy tails": lambda cut=whole, **more: PPCA(2, likelihood="student", tol=1e-3).fit(cut(X), **more),
    "factor analysis": lambda cut=whole, **more: FactorAnalysis(1).fit(cut(X[:, :5]), **more),
    "factor analysis, missing": lambda cut=whole, **more: FactorAnalysis(1, missing="nan", tol=1e-3).fit(
        cut(HOLES[:, :5]), **more
    ),
    "mixture": lambda cut=whole, **more: PPCAMixture(2, n_mixtures=2).fit(cut(X), **more),
    "mixture, diagonal": lambda cut=whole, **more: PPCAMixture(
        1, n_mixtures=2, noise="diagonal", solver="em", max_iter=8
    ).fit(cut(X), **more),
    "supervised": lambda cut=whole, **more: SupervisedPPCA(2, solver="krylov").fit(cut(WIDE), LABELS, **more),
    "supervised, sparse": lambda cut=whole, **more: SupervisedPPCA(2, solver="covariance").fit(
        cut(sp.csr_array(X * (X > 0.5))), OUTPUTS, **more
    ),
    "supervised, missing": lambda cut=whole, **more: SupervisedPPCA(2, missing="nan", tol=1e-4).fit(
        cut(HOLES), OUTPUTS, **more
    ),
    "relational": lambda cut=whole, **more: RelationalPPCA(2, solver="krylov").fit(cut(WIDE), graph=PATH, **more),
    "relational, sparse": lambda cut=whole, **more: RelationalPPCA(2, solver="krylov").fit(
        cut(sp.csr_array(WIDE * (WIDE > 1))), graph=PATH, **more
    ),
    "relational, precision": lambda cut=whole, **more: RelationalPPCA(2, solver="covariance").fit(
        cut(X), precision=CHAIN, **more
    ),
    "smoothed": lambda cut=whole, **more: GraphPPCA(2, solver="krylov").fit(cut(WIDE), graph=PATH, **more),
    "relational, labels": lambda cut=whole, **more: RelationalSupervisedPPCA(2).fit(cut(X), LABELS, graph=PATH, **more),
    "views": lambda cut=whole, **more: CorrespondencePPCA(2).fit(views(cut), correspondence=PAIRS, **more),
    "views, no noise": lambda cut=whole, **more: CorrespondencePPCA(2, solver="krylov", noise="zero").fit(
        views(cut), correspondence=PAIRS, **more
    ),
    "views of factors": lambda cut=whole, **more: CorrespondenceFactorAnalysis(1, solver="accelerated_em").fit(
        views(cut), correspondence=PAIRS, **more
    ),
    "views of counts": lambda cut=whole, **more: CorrespondencePPCA(1, likelihood={"b": "poisson"}, tol=1e-3).fit(
        views(cut, likelihood=True), correspondence=PAIRS, **more
    ),
    "views, labels": lambda cut=whole, **more: CorrespondenceSupervisedPPCA(2).fit(
        views(cut), {"a": LABELS[: 2 * N // 3]}, correspondence=PAIRS, **more
    ),
    "kernel": lambda cut=whole, **more: KernelPPCA(2, solver="memory").fit(cut(X), **more),
    "kernel, recomputed": lambda cut=whole, **more: KernelPPCA(2, solver="recomputed").fit(cut(X), **more),
    "kernel, labels": lambda cut=whole, **more: KernelSupervisedPPCA(2, solver="recomputed").fit(
        cut(X), LABELS, **more
    ),
    "landmarks": lambda cut=whole, **more: KernelPPCA(2, landmarks=12).fit(cut(X), **more),
    "embedding": lambda cut=whole, **more: LocallyLinearEmbedding(n_neighbors=6).fit(cut(X), **more),
    "embedded views": lambda cut=whole, **more: CorrespondenceLLE(n_neighbors=6).fit(
        views(cut), correspondence=PAIRS, **more
    ),
}


def bits(model: Any) -> dict[str, bytes]:
    """All variables of a model but what its passes cost."""
    found = variables_of(model)
    return {
        name: np.asarray(values).tobytes()
        for name, values in found.items()
        if (name == "pass_name" or not name.startswith("pass_")) and np.asarray(values).dtype != object
    }
