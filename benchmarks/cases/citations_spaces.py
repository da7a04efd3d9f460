"""What a linear classifier is given: documents in the space of each method, and how well their classes are told.

A space is fitted to all documents and edges, without a label, as in the paper; only the classifier is cross-validated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.stored import load

Array = npt.NDArray[np.float64]
Space = Array | sp.csr_array

FOLDS = 5
PENALTY = 1.0
"""C of the linear support vector machine, the default of scikit-learn: chosen by nothing."""


class GraphData(NamedTuple):
    """Documents (N, D), the symmetric adjacency matrix of their edges (N, N), and their classes (N,)."""

    features: sp.csr_array
    graph: sp.csr_array
    classes: npt.NDArray[Any]


def graph_data(folder: Path, data: str, weighting: str) -> GraphData:
    """A data set as `prepare` wrote it."""
    features, graph = (sp.csr_array(load(str(folder / f"{data}-{name}.zarr"))) for name in (weighting, "edges"))
    return GraphData(features, graph, np.load(folder / f"{data}-classes.npy"))


def pca(data: GraphData, k: int, *, whiten: bool = True) -> Array:
    """Posterior means of PPCA, or scores in units of the features."""
    from dlatent import PPCA

    return np.asarray(PPCA(k, zero_rows="keep", whiten=whiten).fit(data.features).transform(data.features))


def prpca(data: GraphData, k: int, **options: Any) -> Array:
    """Posterior means of relational PPCA: each document by its own words, in a subspace that the edges have chosen."""
    from dlatent import RelationalPPCA

    model = RelationalPPCA(k, zero_rows="keep", **{"whiten": True, **options}).fit(data.features, graph=data.graph)
    return np.asarray(model.transform(data.features))


def averaged(data: GraphData, k: int) -> Array:
    """Two steps: each document becomes the mean of itself and its neighbours, then PPCA."""
    return pca(data._replace(features=sp.csr_array(averaging(data.graph) @ data.features)), k)


def prpca_averaged(data: GraphData, k: int) -> Array:
    """The posterior means of relational PPCA, averaged over each document and its neighbours."""
    return np.asarray(averaging(data.graph) @ prpca(data, k))


def averaging(graph: sp.csr_array) -> sp.csr_array:
    """The matrix (N, N) that replaces each row by the mean of itself and its neighbours."""
    own = sp.csr_array(graph + sp.eye_array(graph.shape[0]))
    return sp.csr_array(sp.diags_array(1.0 / own.sum(axis=1)) @ own)


REDUCED: dict[str, Callable[[GraphData, int], Array]] = {
    "pca": pca,
    "prpca": prpca,
    "averaged-pca": averaged,
    "prpca-averaged": prpca_averaged,
}
"""Spaces of K dimensions, by the name of the method."""


def content(data: GraphData) -> sp.csr_array:
    """All words."""
    return unit_rows(data.features)


def neighbours(data: GraphData) -> sp.csr_array:
    """Rows of the adjacency matrix: which documents a document is linked with."""
    return unit_rows(data.graph)


def both(data: GraphData) -> sp.csr_array:
    """Words and edges side by side."""
    return sp.csr_array(sp.hstack([content(data), neighbours(data)], format="csr"))


WHOLE: dict[str, Callable[[GraphData], sp.csr_array]] = {"content": content, "graph": neighbours, "content+graph": both}
"""Spaces without a reduction, by the name of the method."""


def unit_rows(rows: sp.csr_array) -> sp.csr_array:
    """Rows of Euclidean length one, rows of zeros as they are; with the 32-bit indices that scikit-learn asks for."""
    lengths = np.sqrt(rows.power(2).sum(axis=1))
    scaled = rows.data / np.repeat(lengths, np.diff(rows.indptr))
    return sp.csr_array((scaled, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)), shape=rows.shape)


def unit_scale(scores: Array) -> Array:
    """Scores divided by one number, so that they are 1 in the root mean square.

    Posterior means shrink as edges make variances larger, and without this the same C would be another
    penalty for each method.
    """
    return scores / np.sqrt((scores**2).mean())


def accuracies(space: Space, classes: npt.NDArray[Any], repeats: int) -> list[float]:
    """Share of documents whose class a linear SVM tells, in stratified 5-fold cross-validation; one number a repeat."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.svm import LinearSVC

    classifier = LinearSVC(C=PENALTY, dual="auto", max_iter=20_000, random_state=0)
    found = []
    for seed in range(repeats):
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        found.append(float((cross_val_predict(classifier, space, classes, cv=folds) == classes).mean()))
    return found
