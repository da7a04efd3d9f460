"""Small real data for the case `defaults`: what scikit-learn brings, the files of DLATENT_DATA, and random splits."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cases.few_labels import some_labelled
from benchmarks.external import data_file

Array = npt.NDArray[np.float64]

BUNDLED = ("iris", "wine", "breast_cancer", "digits", "diabetes", "linnerud")
IMAGES = {"orl": "orl_32x32", "yale": "yale_32x32", "coil20": "coil20_32x32"}
WORDS = {
    "newsgroups20": "newsgroups20", "cora_ml": "cora_titles_ml", "cora_ds": "cora_titles_ds",
    "linqs_cora": "linqs_cora", "webkb_cornell": "webkb_cornell", "webkb_texas": "webkb_texas",
}  # fmt: skip
FILES = (*IMAGES.values(), *WORDS.values(), "yeast_multilabel")
PART, LEAST = 20, 5
"""Every so many articles of newsgroups20 are taken, and the words that occur in so many of them."""
HIDDEN = 0.1
"""The part of the cells that are hidden."""
OTHERS, PIXELS = 200, 4
"""Rows, at most, of which one view alone is known; pixels that are told from others."""


class Given(NamedTuple):
    """What a method sees of a split, and `truth`, which only its score sees.

    `known` are the rows (N,) whose targets are known or that a model is fitted to, of missing data the cells.
    """

    rows: Any
    targets: Any
    known: npt.NDArray[np.bool_]
    seed: int
    graph: Any = None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(np.unique(self.targets))


@cache
def read(name: str) -> tuple[Any, Any, Any]:
    """Features, targets and the adjacency matrix of a data set (None where there is none).

    Grey levels reach to 1; words are tf-idf, in rows of length 1; pages are joined where they have a common neighbour.
    """
    if name in BUNDLED:
        import sklearn.datasets

        rows, targets = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        return np.asarray(rows, dtype=np.float64), targets, None
    raw = np.load(data_file(f"{(IMAGES | WORDS).get(name, name)}.npz"), allow_pickle=False)
    if name in IMAGES:
        return raw["X"] / float(raw["X"].max()), raw["y"], None
    if name not in WORDS:
        return raw["X"].astype(np.float64), raw["Y"].astype(int), None
    rows = sp.csr_array((raw["X_data"], raw["X_indices"], raw["X_indptr"]), shape=tuple(raw["X_shape"]))
    targets = raw["y"]
    if name == "newsgroups20":
        rows, targets = rows[::PART], targets[::PART]
        rows = rows[:, np.flatnonzero((rows > 0).sum(axis=0) >= LEAST)]
    graph = _adjacency(raw["edges"], rows.shape[0], common=name.startswith("webkb")) if "edges" in raw else None
    return _weighted(rows), targets, graph


def _weighted(rows: sp.csr_array) -> sp.csr_array:
    from sklearn.feature_extraction.text import TfidfTransformer

    rows = sp.csr_array((rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)), shape=rows.shape)
    return sp.csr_array(TfidfTransformer().fit_transform(rows.astype(np.float64)))


def _adjacency(edges: npt.NDArray[Any], count: int, *, common: bool) -> sp.csr_array:
    """Symmetric, of ones, without a diagonal; `common`: rows that link to, or are linked by, the same one."""
    links = sp.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    joined = links @ links.T + links.T @ links if common else links + links.T
    return sp.csr_array((joined - sp.diags_array(joined.diagonal()) != 0).astype(np.float64))


def in_units(rows: Any, unit: str, seed: int) -> Any:
    """The rows as they are ("raw"), z-scored, or with each feature in a unit of its own from 1e-3 to 1e3 ("random")."""
    if unit == "z-scored":
        spread = rows.std(axis=0)
        return (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return rows * 10.0 ** np.random.default_rng(1000 + seed).uniform(-3, 3, rows.shape[1]) if unit == "random" else rows


def hidden(name: str, unit: str, seed: int) -> Given:
    """Cells hidden at random; the targets are the whole."""
    whole = in_units(read(name)[0], unit, seed)
    known = np.random.default_rng(seed).random(whole.shape) >= HIDDEN
    return Given(np.where(known, whole, np.nan), whole, known, seed)


def labelled(name: str, unit: str, each: str, seed: int) -> Given:
    """So many labelled rows of each class or label, or "half" of them."""
    rows, targets, graph = read(name)
    rows = in_units(rows, unit, seed)
    many = targets if targets.ndim > 1 else (targets[:, None] == np.unique(targets)).astype(float)
    if each == "half":
        rng, known = np.random.default_rng(seed), np.zeros(len(many), dtype=bool)
        for members in map(np.flatnonzero, many.T):
            known[rng.permutation(members)[: (len(members) + 1) // 2]] = True
    else:
        known = some_labelled(many, int(each), seed)
    codes = targets if targets.ndim > 1 else np.unique(targets, return_inverse=True)[1]
    return Given(rows, codes, known, seed, graph)


def parted(name: str, unit: str, part: float, seed: int) -> Given:
    """A random part of the rows is known."""
    rows, targets, _ = read(name)
    known = np.zeros(len(targets), dtype=bool)
    known[np.random.default_rng(seed).permutation(len(known))[: round(part * len(known))]] = True
    return Given(in_units(rows, unit, seed), targets, known, seed)


def halves(name: str) -> tuple[Array, Array]:
    """The left and the right half of all images of a data set; faces lie in files column by column."""
    images = read(name)[0]
    side = round(images.shape[1] ** 0.5)
    upright = images.reshape(-1, side, side)
    if name in IMAGES:
        upright = upright.transpose(0, 2, 1)
    left, right = upright[:, :, : side // 2], upright[:, :, side // 2 :]
    return left.reshape(len(images), -1), right.reshape(len(images), -1)


def paired(name: str, pairs: str, seed: int) -> Given:
    """Left halves of pairs and of others, the right halves as targets, which are known of the pairs."""
    left, right = halves(name)
    count = int(pairs)
    chosen = np.random.default_rng(seed).permutation(len(left))[: count + OTHERS]
    return Given(left[chosen], right[chosen], np.arange(len(chosen)) < count, seed)


def numbers(name: str, seed: int) -> Given:
    """Numbers to be told from features: targets of a data set, or a few pixels of the right half from the left half."""
    given = parted(name, "raw", 2 / 3, seed)
    if name != "digits":
        return given._replace(targets=np.asarray(given.targets, dtype=np.float64).reshape(len(given.known), -1))
    left, right = halves(name)
    varied = np.argsort(-right.std(axis=0), kind="stable")[:PIXELS]
    return given._replace(rows=left, targets=right[:, varied])


def factor_rows(width: str, seed: int) -> Given:
    """240 rows of five factors, with a noise of its own in each feature."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((240, 5)) @ rng.standard_normal((5, int(width)))
    rows += rng.standard_normal(rows.shape) * rng.uniform(0.5, 2.0, rows.shape[1])
    return Given(rows, None, np.ones(len(rows), dtype=bool), seed)
