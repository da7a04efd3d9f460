"""Two vocabularies described by different documents: the counterpart of a word that both have, among its neighbours.

After figure 5 of Ham, Lee and Saul (2003).  The words of the first vocabulary are described by their counts in one half
of the 20 newsgroups' articles, those of the second by their counts in the other half, so that no document is common;
what connects them are the shared words.  A fifth of these are held out in turn, and looked for among all words of the
other vocabulary but those that are known to be the counterparts of others.  Needs DLATENT_DATA with newsgroups20.npz.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.external import data_file
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

WORDS, SHARED, FOLDS = 1000, 90, 5
NEAREST = (1, 5, 10)
COMPONENTS = (5, 10, 20)
RIDGE = 1e-2
"""Of the regression, in units of the squared length of a row, which is 1."""


Found = dict[str, list[np.ndarray]]
"""Ranks of counterparts, by the space that words are compared in."""


def prepare(folder: Path, scale: float) -> Row:
    """The 1,910 words of most documents, dealt at random to two vocabularies of 1,000 that share 90; log(1 + count) in
    the documents of each half, rows of length 1."""
    raw = np.load(data_file("newsgroups20.npz"), allow_pickle=False)
    counts = sp.csr_array((raw["X_data"], raw["X_indices"], raw["X_indptr"]), shape=tuple(raw["X_shape"])).tocsc()
    rng = np.random.default_rng(0)
    frequent = np.argsort(-np.diff(counts.indptr), kind="stable")[: 2 * WORDS - SHARED]
    dealt = rng.permutation(frequent)
    documents = rng.permutation(counts.shape[0])
    halves = (documents[: len(documents) // 2], documents[len(documents) // 2 :])
    for name, words, half in zip("ab", (dealt[:WORDS], dealt[WORDS - SHARED :]), halves, strict=True):
        rows = sp.csr_array(counts.tocsr()[np.sort(half)][:, words].T.astype(np.float64))
        rows.data = np.log1p(rows.data)
        rows = sp.csr_array(sp.diags_array(1.0 / np.sqrt((rows**2).sum(axis=1))) @ rows)
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(rows))
    return {"shape": [WORDS, WORDS, counts.shape[0]], "shared": SHARED}


def folds() -> list[np.ndarray]:
    """Which shared words are held out: each of them once."""
    return np.array_split(np.random.default_rng(1).permutation(SHARED), FOLDS)


def ranks(found: Any, candidates: Any, wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    """How many candidates are nearer by cosine distance to each row found than the wanted one is, those known apart."""

    def unit(rows: Any) -> Any:
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)

    near = unit(found) @ unit(candidates).T
    near[:, known] = -np.inf
    return np.asarray((near > near[np.arange(len(near)), wanted][:, None]).sum(axis=1))


def latent(model: str, k: int, a: Any, b: Any, known: np.ndarray, held: np.ndarray) -> Found:
    """Ranks of the counterparts from either side: by the angle between scores, and by that between what the model says
    of all documents of both halves for them, W E[z | one view]."""
    from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA

    make = {
        "PPCA": lambda: CorrespondencePPCA(k, solver="krylov", tol=1e-7),
        "PCA, no noise": lambda: CorrespondencePPCA(k, solver="krylov", noise="zero", tol=1e-7),
        "factor analysis": lambda: CorrespondenceFactorAnalysis(k, solver="accelerated_em", tol=1e-7, zero_rows="keep"),
    }[model]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = make().fit({"a": a, "b": b}, correspondence=known)
    one, other = fitted.transform({"a": a}), fitted.transform({"b": b})
    weights = np.linalg.cholesky(sum(own @ own.T for own in fitted.components_.values()))
    places = held - (WORDS - SHARED)
    found: Found = {}
    for name, x, y in (("scores", one, other), ("reconstructions", one @ weights, other @ weights)):
        found[name] = [ranks(x[held], y, places, known[:, 1]), ranks(y[places], x, held, known[:, 0])]
    return found


def regression(model: str, k: int, a: Any, b: Any, known: np.ndarray, held: np.ndarray) -> Found:
    """Ranks of the counterparts among the words of the other vocabulary, near what ridge regression predicts."""
    places = held - (WORDS - SHARED)
    found = []
    for x, y, rows, others, own, wanted in (
        (a, b, known[:, 0], known[:, 1], held, places),
        (b, a, known[:, 1], known[:, 0], places, held),
    ):
        x_mean, y_mean = x[rows].mean(axis=0), y[others].mean(axis=0)
        inner = x[rows].toarray() - x_mean
        weights = np.linalg.solve(inner @ inner.T + RIDGE * np.eye(len(rows)), inner @ (x[own].toarray() - x_mean).T)
        guess = weights.T @ (y[others].toarray() - y_mean)
        found.append(ranks(guess, y.toarray() - y_mean, wanted, others))
    return {"predictions": found}


def locally_linear(model: str, k: int, a: Any, b: Any, known: np.ndarray, held: np.ndarray) -> Found:
    """Ranks of the counterparts from either side, by the angle between places in the joint embedding."""
    from dlatent import CorrespondenceLLE

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = CorrespondenceLLE(n_neighbors=12, n_components=k, disconnected="keep").fit(
            {"a": a, "b": b}, correspondence=known
        )
    one, other = fitted.embedding_of("a"), fitted.embedding_of("b")
    places = held - (WORDS - SHARED)
    return {"coordinates": [ranks(one[held], other, places, known[:, 1]), ranks(other[places], one, held, known[:, 0])]}


METHODS = {
    "linear regression": regression,
    "PPCA": latent,
    "PCA, no noise": latent,
    "factor analysis": latent,
    "locally linear": locally_linear,
}


def run(folder: Path, scale: float, method: str, k: int) -> Row:
    """How often the counterpart is among the nearest, over all shared words and both directions."""
    a, b = (sp.csr_array(sp.load_npz(folder / f"{name}.npz")) for name in "ab")
    shared = np.arange(WORDS - SHARED, WORDS)
    each: Found = {}
    with Stopwatch() as watch:
        for fold in folds():
            known = np.delete(shared, fold)
            pairs = np.column_stack([known, known - (WORDS - SHARED)])
            for space, found in METHODS[method](method, k, a, b, pairs, shared[fold]).items():
                each.setdefault(space, []).extend(found)
    joined = {space: np.concatenate(found) for space, found in each.items()}
    hits = {space: {str(n): float((own < n).mean()) for n in NEAREST} for space, own in joined.items()}
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "hits": hits, "k": k}


def tasks(scale: float) -> tuple[Task, ...]:
    """One task for each method and number of components."""
    function = "benchmarks.cases.correspondence_words:run"
    made = [Task("linear regression", function, {"method": "linear regression", "k": 0}, once=True)]
    for name in list(METHODS)[1:]:
        made += [Task(f"{name}, {k}", function, {"method": name, "k": k}, once=True) for k in COMPONENTS]
    return tuple(made)


def summarise(rows: list[Row]) -> Summary:
    """The shares of words found, beside chance."""
    candidates = WORDS - SHARED + SHARED // FOLDS
    lines: list[tuple[Any, ...]] = [("chance", None, *(n / candidates for n in NEAREST), None)]
    for task, own in grouped(finished(rows), lambda row: row["task"]).items():
        for space, hits in own[-1]["hits"].items():
            lines.append((task, space, *(hits[str(n)] for n in NEAREST), middle(own, "fit_cpu_seconds")))
    heads = ("method, components", "angles between", *(f"among {n} nearest" for n in NEAREST), "processor s, 5 fits")
    text = markdown(heads, lines) + "\n\n" + not_run(rows)
    ours = [line[4] for line in lines if str(line[0]).startswith("PPCA")]
    said = f"PPCA finds counterparts among 10 of {candidates} far above chance"
    return Summary(text.rstrip(), (Check(said, min(ours) > 50 / candidates),) if ours else ())


CASE = Case(
    "correspondence-words",
    "20 Newsgroups: vocabularies of 1,000 words from different documents, 90 of them shared, a fifth of these held out",
    "benchmarks.cases.correspondence_words:prepare",
    tasks,
    summarise,
)
