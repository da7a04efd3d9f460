"""tall, wide, text and text-newsgroups: dlatent beside its peers and the limits of the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side as say
from benchmarks.cases import newsgroups
from benchmarks.generate import Factors, power_law, write_dense, zipf_counts
from benchmarks.quality import write_exact
from benchmarks.stored import path_of, size_on_disk
from benchmarks.task import Case, Check, Row, Summary, Task

COMPONENTS, MORE = 20, (50, 100)
METHODS = "benchmarks.methods"
PATIENCE = 240.0
"""Seconds after which a peer is given up."""
TIGHT = 1e-10
"""Tolerance of the log-likelihood on text, where 1e-8 of the captured variance is asked for."""
DENSE_LIMITS = ("limit-decode", "limit-gram")
SPARSE_LIMITS = ("limit-decode", "limit-sparse-pass")


def _sized(rows: int, scale: float) -> int:
    return max(500, round(rows * scale))


def _dense(folder: Path, rows: int, features: int) -> Row:
    rng = np.random.default_rng(11)
    model = Factors(features, power_law(100, 100.0), noise=1.0, mean=3.0 * rng.standard_normal(features), seed=12)
    array = write_dense(folder / "data.zarr", model, rows, "float64", seed=13)
    return {
        "shape": [rows, features],
        "bytes": int(array.nbytes),
        "stored_bytes": size_on_disk(path_of(folder)),
    } | write_exact(folder, COMPONENTS)


def prepare_tall(folder: Path, scale: float) -> Row:
    """200,000 × 512 float64: 100 factors of variance 100/j, unit noise, a mean."""
    return _dense(folder, _sized(200_000, scale), 512)


def prepare_wide(folder: Path, scale: float) -> Row:
    """20,000 × 5,000 float64 of the same kind."""
    return _dense(folder, _sized(20_000, scale), max(300, round(5_000 * scale**0.5)))


def prepare_text(folder: Path, scale: float) -> Row:
    """20,000 × 25,000 sparse: Zipf's law and 50 topics, tf-idf, rows of length one."""
    import scipy.sparse as sp

    from dlatent import ingest

    counts = zipf_counts(_sized(20_000, scale), max(2_000, round(25_000 * scale**0.5)), topics=50, tokens=130, seed=14)
    source = folder / "counts.npz"
    sp.save_npz(source, counts)
    report = ingest(source, path_of(folder), weighting="tfidf", unit_norm=True, overwrite=True)
    source.unlink()
    return {
        "shape": list(report.shape),
        "nonzeros": report.nnz,
        "stored_bytes": report.bytes_written,
    } | write_exact(folder, max(MORE))


def prepare_newsgroups(folder: Path, scale: float) -> Row:
    """20 Newsgroups as tf-idf, rows of length one."""
    return newsgroups.prepare(folder, scale) | write_exact(folder, max(MORE))


def _peer(name: str, method: str, *requires: str, k: int = COMPONENTS, **arguments: Any) -> Task:
    function = f"{METHODS}.{method}"
    return Task(name, function, {"n_components": k, **arguments}, requires=requires, timeout=PATIENCE)


def _limits(second: Task) -> tuple[Task, ...]:
    return Task("limit-decode", f"{METHODS}.limits:decode"), second


def _own(k: int = COMPONENTS, suffix: str = "", **options: Any) -> tuple[Task, ...]:
    function, asked = f"{METHODS}.of_dlatent:ppca", {"n_components": k, **options}
    return (
        Task(f"dlatent{suffix}", function, asked),
        Task(f"dlatent-threads{suffix}", function, asked | {"workers": 0}),
        Task(f"dlatent-threads-memory{suffix}", f"{METHODS}.of_dlatent:ppca_in_memory", asked),
    )


def _dense_peers() -> tuple[Task, ...]:
    solvers = ("covariance_eigh", "randomized", "arpack")
    return (
        *(_peer(f"sklearn-{solver}", "of_sklearn:pca", "sklearn", solver=solver) for solver in solvers),
        _peer("sklearn-truncated-svd", "of_sklearn:truncated_svd", "sklearn"),
        _peer("dask-svd-compressed", "of_dask:svd_compressed", power_iterations=4),
        _peer("dask-covariance-eigh", "of_dask:covariance_eigh"),
        _peer("dask-ml-randomized-4", "of_dask_ml:pca", "dask_ml", power_iterations=4),
        _peer("dask-ml-truncated-svd", "of_dask_ml:truncated_svd", "dask_ml"),
        _peer("xeofs-eof", "of_xeofs:eof", "xeofs"),
        _peer("numpy-em", "of_numpy:em", iterations=300),
    )


def tall_tasks(scale: float) -> tuple[Task, ...]:
    """Limits, dlatent, all peers, and factor analysis."""
    return (
        *_limits(Task("limit-gram", f"{METHODS}.limits:gram")),
        *_own(),
        *_dense_peers(),
        _peer("sklearn-incremental", "of_sklearn:incremental_pca", "sklearn"),
        _peer("dask-ml-incremental", "of_dask_ml:incremental_pca", "dask_ml"),
        _peer("ppca", "of_missing:ppca_package", "ppca", complete=True),
        _peer("pyppca", "of_missing:pyppca_package", "pyppca", complete=True),
        Task("dlatent-factor-analysis", f"{METHODS}.of_dlatent:factor_analysis", {"n_components": COMPONENTS}),
        _peer("sklearn-factor-analysis", "of_sklearn:factor_analysis", "sklearn"),
    )


def wide_tasks(scale: float) -> tuple[Task, ...]:
    """Limits, dlatent, and the peers that can take 5,000 features."""
    return (*_limits(Task("limit-gram", f"{METHODS}.limits:gram")), *_own(), *_dense_peers())


def text_tasks(scale: float) -> tuple[Task, ...]:
    """Limits, dlatent, and what there is for sparse data; more components for dlatent and the exact peer."""
    more = [
        task
        for k in MORE
        for task in (
            *_own(k, f"-{k}", tol=TIGHT),
            _peer(f"sklearn-arpack-{k}", "of_sklearn:pca", "sklearn", k=k, solver="arpack"),
        )
    ]
    columns = {"columns": COMPONENTS}
    return (
        *_limits(Task("limit-sparse-pass", f"{METHODS}.limits:sparse_pass", columns)),
        *_own(tol=TIGHT),
        _peer("sklearn-arpack", "of_sklearn:pca", "sklearn", solver="arpack"),
        _peer("sklearn-truncated-svd", "of_sklearn:truncated_svd", "sklearn"),
        _peer("numpy-em", "of_numpy:em", iterations=300),
        *more,
    )


def summarise_tall(rows: list[Row]) -> Summary:
    """The table, and: exact, near the limits, faster than equals, and far from dask-ml."""
    done = say.by_task(rows)
    own, rival = say.variants(done), done.get("dask-ml-randomized-4", [])
    checks = [
        *say.exact(own, 5e-7),
        *say.at_most(own, say.floors(rows, DENSE_LIMITS), 1.3, "at most 1.3× one decoding + one Gram matrix"),
        *say.faster_than_equals(done, own),
        *say.at_most(own, rival, 1 / 5, "at most a fifth of the time of dask-ml with 4 power iterations"),
        *say.less_memory(own, rival, 1 / 3, "at most a third of the memory of dask-ml with 4 power iterations"),
        *_better_factors(done),
        *say.within_plan(done),
    ]
    return say.summary(rows, DENSE_LIMITS, checks)


def _better_factors(done: say.Done) -> list[Check]:
    own, other = done.get("dlatent-factor-analysis", []), done.get("sklearn-factor-analysis", [])
    if not own or not other:
        return []
    found, theirs = own[-1]["log_likelihood"], other[-1]["log_likelihood"]
    gain = (found - theirs) / abs(theirs)
    text = f"factor analysis is as likely as scikit-learn's or more (relative difference: {gain:.1e})"
    return [Check(text, gain >= -1e-12)]


def summarise_wide(rows: list[Row]) -> Summary:
    """The table, and: exact in the time of the randomized solver in memory."""
    done = say.by_task(rows)
    own = say.variants(done)
    words = "at most the time of scikit-learn's randomized PCA in memory"
    checks = [
        *say.exact(own, 1e-6),
        *say.at_most(own, done.get("sklearn-randomized", []), 1.0, words),
        *say.within_plan(done),
    ]
    return say.summary(rows, DENSE_LIMITS, checks)


def summarise_text(rows: list[Row]) -> Summary:
    """The table, and for each K: exact in few passes and in the processor time of ARPACK; little memory."""
    done = say.by_task(rows)
    checks: list[Check] = []
    for k, suffix in ((COMPONENTS, ""), *((k, f"-{k}") for k in MORE)):
        own, words = say.variants(done, suffix), f", K = {k}"
        peer = done.get(f"sklearn-arpack{suffix}", [])
        time = f"at most the processor time of scikit-learn's ARPACK in memory{words}"
        checks += say.exact(own, 1e-8, words)
        checks += say.few_passes(own, 12, words)
        checks += say.at_most(own, peer, 1.0, time, "fit_cpu_seconds")
    checks += [*say.within_plan(done), *say.nothing_dense(done)]
    return say.summary(rows, SPARSE_LIMITS, checks)


def _case(name: str, title: str, tasks: Callable[[float], tuple[Task, ...]], summarise: Any) -> Case:
    return Case(
        name,
        title,
        f"benchmarks.cases.comparison:prepare_{name.rpartition('-')[2]}",
        tasks,
        summarise,
        judge="benchmarks.quality:judge",
        draw=say.draw,
    )


TALL = _case("tall", "dense 200,000 × 512 float64, K = 20", tall_tasks, summarise_tall)
WIDE = _case("wide", "dense 20,000 × 5,000 float64, K = 20", wide_tasks, summarise_wide)
TEXT = _case("text", "sparse 20,000 × 25,000 (Zipf), K = 20, 50, 100", text_tasks, summarise_text)
NEWSGROUPS = _case("text-newsgroups", "20 Newsgroups as tf-idf, K = 20, 50, 100", text_tasks, summarise_text)
