"""The strength of smoothing over a graph, chosen by cells that the fits have not seen.

Maximum likelihood cannot choose it: rows that are smoothed otherwise are other data.  For each λ the leading directions
come from three subspace iterations, a cheap fit, whose rank is K; the passes are shared by the candidates.  Where
entries are missing each λ has a fit of its own, cut short: directions of rows that are filled with means would not tell
how much of what is missing the model finds by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array, Block
from dlatent.gaussian.missing_entries.entries import EntrySums, block_entry_sums
from dlatent.gaussian.missing_entries.incomplete import Hiding
from dlatent.operators.sample_precision import SmoothFilter
from dlatent.operators.sparse import far_mean
from dlatent.passes import Edges, Pass, Run
from dlatent.solvers.graph.averaged_rows import Averaging, ExpectedRequest, averaged, expected_cells
from dlatent.solvers.graph.costs import COMPARED_ITERATIONS, COMPARED_STEPS, OVERSAMPLING, compared_together
from dlatent.solvers.missing.solver import fit_rows
from dlatent.solvers.plan import Plan
from dlatent.solvers.smoothing.statistics import (
    SmoothingRequest,
    check_and_add,
    compared,
    fold_compared,
    fold_scores,
    fold_smoothed,
    score_axes,
    sent_rows,
    shares,
)
from dlatent.solvers.task import Comparison, Relation, Task

CANDIDATES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
HIDING = Hiding(0.25, 0)
S = TypeVar("S")
T = TypeVar("T", bound=Task)


def with_smoothing(task: T, plan: Plan, run: Run) -> T:
    """The task with the strength that is chosen from all candidates, for samples in a graph."""
    assert task.between is not None
    between, compare = task.between, _averaging if task.missing else _smoothing
    comparison = compare(task, plan, between.hops, run)
    strength = CANDIDATES[comparison.chosen]
    relation = Relation(SmoothFilter(strength, between.hops), between.graph.samples) if strength else None
    return replace(task, between=replace(between, relation=relation, comparison=comparison))


def _smoothing(task: Task, plan: Plan, hops: int, run: Run) -> Comparison:
    """The comparison of all candidates for complete rows."""
    width, k = task.specification.sizes[0], task.specification.n_components
    count, total, squares = run(Pass(check_and_add, task.refuse_zero_rows, name="mean"))
    shift = total / count
    if task.data.nnz is not None:
        shift = far_mean(shift, np.maximum(squares / count - shift**2, 0.0))
    columns = min(k + OVERSAMPLING, width)
    start: Array = np.asarray(la.qr(np.random.default_rng(0).standard_normal((width, columns)), mode="economic")[0])
    together = compared_together(task, plan.columns_at_once)
    groups = [CANDIDATES[at : at + together] for at in range(1, len(CANDIDATES), together)]
    groups[0] = (*CANDIDATES[:1], *groups[0])  # λ = 0 sends nothing
    requests = [SmoothingRequest(group, hops, True, HIDING, shift, ()) for group in groups]
    sums = [_compared(request, start, k, run) for request in requests]
    return compared(np.concatenate(sums))


def _averaging(task: Task, plan: Plan, hops: int, run: Run) -> Comparison:
    """The comparison of all candidates, where entries are missing."""
    short = replace(task, max_iter=COMPARED_STEPS, textbook=False)
    means: EntrySums = run(Pass(block_entry_sums, np.zeros(task.specification.sizes[0]), name="mean"))
    shift, sums = means.total / np.maximum(means.counts, 1.0), []
    for smoothing in CANDIDATES:
        averaging = Averaging(SmoothFilter(smoothing, hops) if smoothing else None, shift, HIDING)
        solution = fit_rows(averaged(run, averaging), short, shift)
        known = solution.parameters._replace(mean=np.nan_to_num(solution.parameters.mean))
        sums.append(run(expected_cells(ExpectedRequest(known, solution.specification, averaging))))
    return compared(np.concatenate(sums)[..., None])


def _compared(request: SmoothingRequest, start: Array, k: int, run: Run) -> Array:
    """The sums over hidden cells of some candidates that share their passes."""
    count = len(request.smoothings)
    directions, means = [start] * count, [request.shift] * count
    for _ in range(COMPARED_ITERATIONS):
        moved, sums = run(_pass(fold_smoothed, request._replace(directions=tuple(directions)), "smoothing"))
        parts = zip(np.split(moved, count, axis=1), np.split(sums, count), strict=True)
        for at, (part, weights) in enumerate(parts):
            # About the weighted mean, as `graph.statistics.centred_product`.
            total, offset = part[:, -1], part[:, -1] / weights[-1]
            centred = part[:, :-1] - np.outer(total, offset @ directions[at])
            directions[at] = la.svd(centred, full_matrices=False)[0]
            means[at] = request.shift + offset
    once = request._replace(twice=False, directions=tuple(v[:, :k] for v in directions), means=tuple(means))
    axes = score_axes(*run(_pass(fold_scores, once, "scores")))
    return run(_pass(fold_compared, once._replace(axes=axes), "hidden cells"))


def _pass(fold: Callable[[Block, SmoothingRequest], S], request: SmoothingRequest, name: str) -> Pass[Any, S]:
    edges = Edges(sent_rows, shares, request.hops * (1 + request.twice), normalised=True)
    return Pass(fold, request, exchange=edges, name=name)
