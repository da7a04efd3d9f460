"""Two vocabularies described by different documents: the counterpart of a word that both have, among its neighbours.

After figure 5 of Ham, Lee and Saul (2003).  The words of the first vocabulary are described by their counts in one half
of the 20 newsgroups' articles, those of the second by their counts in the other half, so that no document is common:
all that connects them are the shared words.  A fifth of these are held out in turn, and looked for among all words of
the other vocabulary.  Needs DLATENT_DATA with newsgroups20.npz.
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
COMPONENTS = (10, 20, 40)
RIDGE = 1e-2
"""Of the regression, in units of the squared length of a row, which is 1."""


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


def ranks(found: Any, candidates: Any, wanted: np.ndarray) -> np.ndarray:
    """How many candidates are nearer by angle to each row found than the wanted one is."""

    def unit(rows: Any) -> Any:
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)

    near = unit(found) @ unit(candidates).T
    return np.asarray((near > near[np.arange(len(near)), wanted][:, None]).sum(axis=1))


def latent(model: str, k: int, a: Any, b: Any, known: np.ndarray, held: np.ndarray) -> list[np.ndarray]:
    """Ranks of the counterparts in the shared coordinates, from either side."""
    from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA

    make = {
        "PPCA": lambda: CorrespondencePPCA(k, route="krylov", tol=1e-8),
        "PCA, no noise": lambda: CorrespondencePPCA(k, route="krylov", noise="zero", tol=1e-8),
        "factor analysis": lambda: CorrespondenceFactorAnalysis(k, route="rows", tol=1e-8, suspect_data="keep"),
    }[model]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = make().fit({"a": a, "b": b}, correspondence=known)
    one, other = fitted.transform({"a": a}), fitted.transform({"b": b})
    places = held - (WORDS - SHARED)
    return [ranks(one[held], other, places), ranks(other[places], one, held)]


def regression(model: str, k: int, a: Any, b: Any, known: np.ndarray, held: np.ndarray) -> list[np.ndarray]:
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
        found.append(ranks(guess, y.toarray() - y_mean, wanted))
    return found


METHODS = {
    "linear regression": regression,
    "PPCA": latent,
    "PCA, no noise": latent,
    "factor analysis": latent,
}


def run(folder: Path, scale: float, method: str, k: int) -> Row:
    """How often the counterpart is among the nearest, over all shared words and both directions."""
    a, b = (sp.csr_array(sp.load_npz(folder / f"{name}.npz")) for name in "ab")
    shared = np.arange(WORDS - SHARED, WORDS)
    found = []
    with Stopwatch() as watch:
        for fold in folds():
            known = np.delete(shared, fold)
            pairs = np.column_stack([known, known - (WORDS - SHARED)])
            found += METHODS[method](method, k, a, b, pairs, shared[fold])
    each = np.concatenate(found)
    hits = {str(n): float((each < n).mean()) for n in NEAREST}
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "hits": hits,
        "k": k,
        "words": len(each),
    }


def tasks(scale: float) -> tuple[Task, ...]:
    """One task for each method and number of components."""
    function = "benchmarks.cases.correspondence_words:run"
    made = [Task("linear regression", function, {"method": "linear regression", "k": 0}, once=True)]
    for name in list(METHODS)[1:]:
        made += [Task(f"{name}, {k}", function, {"method": name, "k": k}, once=True) for k in COMPONENTS]
    return tuple(made)


def summarise(rows: list[Row]) -> Summary:
    """The shares of words found, beside chance."""
    lines: list[tuple[Any, ...]] = [("chance", *(n / WORDS for n in NEAREST), None)]
    done = grouped(finished(rows), lambda row: row["task"])
    for task, own in done.items():
        lines.append((task, *(own[-1]["hits"][str(n)] for n in NEAREST), middle(own, "fit_cpu_seconds")))
    heads = ("method, components", *(f"among {n} nearest" for n in NEAREST), "processor s, 5 fits")
    text = markdown(heads, lines) + "\n\n" + not_run(rows)
    checks = []
    ours = [own[-1]["hits"]["10"] for task, own in done.items() if task.startswith("PPCA")]
    if ours and "linear regression" in done:
        best, theirs = max(ours), done["linear regression"][-1]["hits"]["10"]
        checks = [
            Check(f"PPCA finds counterparts among 10 of 1,000 far above chance ({best:.3f})", best > 5 * 10 / WORDS),
            Check(f"and more of them than linear regression ({theirs:.3f})", best > theirs),
        ]
    return Summary(text.rstrip(), tuple(checks))


CASE = Case(
    "correspondence-words",
    "20 Newsgroups: vocabularies of 1,000 words from different documents, 90 of them shared, a fifth of these held out",
    "benchmarks.cases.correspondence_words:prepare",
    tasks,
    summarise,
)
