"""counts and error-bars: PPCA of entries that are not plainly normal, beside packages for these.

`counts` are those of 600 words in 2,000 articles of 20 Newsgroups, of which each count goes to a fit nine times in ten:
the deviance of the others says how well a fit knows what it did not see.  Needs DLATENT_DATA with newsgroups20.npz.
`error-bars` are rows of a model with three components, whose noise is known of each entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp
from scipy.special import xlogy

from benchmarks.external import data_file
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
OWN = "benchmarks.cases.observations"
COMPONENTS, BARS = 10, 3
ARTICLES, WORDS, LEAST = 2000, 600, 10
SEEN = 0.9
"""Part of each count that a fit sees."""
NEAR = 5e-4
"""Of a deviance."""


def prepare_counts(folder: Path, scale: float) -> Row:
    """Counts of the most frequent words in articles with at least some of them, and what of these a fit sees."""
    raw, rng = np.load(data_file("newsgroups20.npz"), allow_pickle=False), np.random.default_rng(0)
    parts = raw["X_data"].astype(np.int64), raw["X_indices"], raw["X_indptr"]
    words = sp.csr_array(parts, shape=tuple(raw["X_shape"]))
    frequent = np.argsort(-words.sum(axis=0))[: max(20, round(WORDS * scale))]
    counts = words[rng.permutation(words.shape[0])][:, frequent].toarray()
    counts = counts[counts.sum(axis=1) >= LEAST][: max(60, round(ARTICLES * scale))]
    seen = rng.binomial(counts, SEEN)
    known = seen.any(axis=0)
    np.savez(folder / "counts", seen=seen[:, known].astype(float), left=(counts - seen)[:, known].astype(float))
    return {"shape": list(counts.shape), "zeros": float((counts == 0).mean())}


def deviance(folder: Path, expected: Array) -> float:
    """Of an entry that a fit did not see, from the expected counts of those that it saw."""
    left, mean = np.load(folder / "counts.npz")["left"], np.maximum(expected * (1.0 - SEEN) / SEEN, 1e-12)
    return float(2.0 * np.mean(xlogy(left, left / mean) - (left - mean)))


def _counts(folder: Path, watch: Stopwatch, expected: Array, **more: Any) -> Row:
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "deviance": deviance(folder, expected),
        **more,
    }


def dlatent(folder: Path, scale: float, likelihood: str, tol: float = 1e-9) -> Row:
    """PPCA with a likelihood of counts."""
    from dlatent import PPCA

    seen = np.load(folder / "counts.npz")["seen"]
    with Stopwatch() as watch:
        model = PPCA(COMPONENTS, likelihood=likelihood, whiten=True, tol=tol).fit(seen, client="serial")
    about, loadings = model.posterior(seen), model.components_.T
    spread = np.einsum("jk,nkl,jl->nj", loadings, about["covariance"].values, loadings, optimize=True)
    expected = np.exp(about["scores"].values @ loadings.T + model.mean_ + spread / 2)
    return _counts(folder, watch, expected, passes=model.n_passes_)


def independence(folder: Path, scale: float) -> Row:
    """Counts as the totals of rows and columns tell them."""
    seen = np.load(folder / "counts.npz")["seen"]
    with Stopwatch() as watch:
        expected = seen.sum(axis=1, keepdims=True) * seen.sum(axis=0) / seen.sum()
    return _counts(folder, watch, expected)


def pln(folder: Path, scale: float) -> Row:
    """PlnPCA of pyPLNmodels, with the totals of the rows as offsets."""
    from pyPLNmodels import PlnPCA

    seen = np.load(folder / "counts.npz")["seen"]
    with Stopwatch() as watch:
        model = PlnPCA(seen, rank=COMPONENTS, compute_offsets_method="logsum")
        model.fit(verbose=False)
    return _counts(folder, watch, np.exp(np.asarray(model.offsets) + np.asarray(model.latent_variables)))


def glm(folder: Path, scale: float) -> Row:
    """The Python port of glmpca."""
    from glmpca.glmpca import glmpca

    seen = np.load(folder / "counts.npz")["seen"]
    with Stopwatch() as watch:
        found = glmpca(seen.T, COMPONENTS, fam="poi")
    predictors = (found["coefX"] + found["loadings"] @ found["factors"].T).T
    return _counts(folder, watch, np.exp(predictors) * seen.mean(axis=1, keepdims=True))


def count_tasks(scale: float) -> tuple[Task, ...]:
    """dlatent, and packages for counts."""
    return (
        Task("dlatent", f"{OWN}:dlatent", {"likelihood": "poisson"}),
        Task("dlatent-tol-1e-5", f"{OWN}:dlatent", {"likelihood": "poisson", "tol": 1e-5}),
        Task("dlatent-negative-binomial", f"{OWN}:dlatent", {"likelihood": "negative_binomial", "tol": 1e-5}),
        Task("independence", f"{OWN}:independence"),
        Task("pln-pca", f"{OWN}:pln", requires=("pyPLNmodels",)),
        Task("glmpca", f"{OWN}:glm", requires=("glmpca",)),
    )


def _lines(rows: list[Row], measure: str) -> tuple[str, dict[str, list[Row]]]:
    done = grouped(finished(rows), lambda row: row["task"])
    lines = [
        (task, middle(own, measure), middle(own, "fit_cpu_seconds"), middle(own, "fit_seconds"), middle(own, "passes"))
        for task, own in done.items()
    ]
    return f"{markdown(('method', measure, 'CPU s', 's', 'passes'), lines)}\n\n{not_run(rows)}".rstrip(), done


def summarise_counts(rows: list[Row]) -> Summary:
    """Deviances and times."""
    text, done = _lines(rows, "deviance")
    own, peer = (middle(done.get(name, []), "deviance") for name in ("dlatent-tol-1e-5", "pln-pca"))
    if own is None or peer is None:
        return Summary(text)
    times = [middle(done[name], "fit_cpu_seconds") for name in ("dlatent-tol-1e-5", "pln-pca")]
    assert times[0] is not None
    assert times[1] is not None
    part = times[0] / times[1]
    return Summary(
        text,
        (
            Check(f"the deviance is not above PlnPCA's by more than {NEAR:g} ({own - peer:+.5f})", own <= peer + NEAR),
            Check(f"at most a fifth of its CPU ({part:.2f})", part <= 0.2),
        ),
    )


def prepare_bars(folder: Path, scale: float) -> Row:
    """Rows of three components, noise of .1, and error bars of which some are ten times as wide as others."""
    rng, rows, features = np.random.default_rng(0), max(100, round(5000 * scale)), 100
    loadings, bars = rng.normal(size=(features, BARS)), 0.7 * np.exp(rng.normal(size=(rows, features)))
    truth = rng.normal(size=(rows, BARS)) @ loadings.T
    noise = 0.1 * rng.normal(size=bars.shape) + bars * rng.normal(size=bars.shape)
    np.savez(folder / "bars", x=truth + noise, bars=bars, loadings=loadings)
    return {"shape": [rows, features]}


def _angle(folder: Path, watch: Stopwatch, components: Array, **more: Any) -> Row:
    loadings = np.load(folder / "bars.npz")["loadings"]
    angle = float(np.degrees(la.subspace_angles(components.T, loadings).max()))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "angle": angle, **more}


def own_bars(folder: Path, scale: float, *, known: bool = True) -> Row:
    """PPCA with error bars, or without."""
    from dlatent import PPCA

    data = np.load(folder / "bars.npz")
    beside: Any = {"uncertainty": data["bars"]} if known else {}
    with Stopwatch() as watch:
        model = PPCA(BARS).fit(data["x"], client="serial", **beside)
    return _angle(folder, watch, model.components_, passes=model.n_passes_)


def weighted(folder: Path, scale: float, name: str) -> Row:
    """Weighted PCA or EMPCA of the package wpca, with weights 1/s."""
    import wpca

    data = np.load(folder / "bars.npz")
    with Stopwatch() as watch:
        model = getattr(wpca, name)(n_components=BARS)
        model.fit(data["x"], weights=1.0 / data["bars"])
    return _angle(folder, watch, np.asarray(model.components_))


def bar_tasks(scale: float) -> tuple[Task, ...]:
    """dlatent with error bars and without, and packages that take weights."""
    return (
        Task("dlatent", f"{OWN}:own_bars"),
        Task("dlatent-without", f"{OWN}:own_bars", {"known": False}),
        Task("wpca", f"{OWN}:weighted", {"name": "WPCA"}, ("wpca",)),
        Task("empca", f"{OWN}:weighted", {"name": "EMPCA"}, ("wpca",)),
    )


def summarise_bars(rows: list[Row]) -> Summary:
    """Largest angles to the true loadings, and times."""
    text, done = _lines(rows, "angle")
    angles = {name: middle(own, "angle") for name, own in done.items()}
    own, others = angles.pop("dlatent", None), [each for each in angles.values() if each is not None]
    if own is None or not others:
        return Summary(text)
    return Summary(text, (Check(f"no other is nearer ({own:.2f}°, {min(others):.2f}°)", own <= min(others)),))


COUNTS = Case(
    "counts", "600 words in 2,000 articles, K = 10", f"{OWN}:prepare_counts", count_tasks, summarise_counts
)  # fmt: skip
ERROR_BARS = Case("error-bars", "5,000 × 100 with error bars, K = 3", f"{OWN}:prepare_bars", bar_tasks, summarise_bars)
