"""The strength of smoothing over a graph, chosen by cells that the fits have not seen.

Maximum likelihood cannot choose it: rows that are smoothed otherwise are other data.  For each λ the leading directions
come from three subspace iterations, a cheap fit, whose rank is K; the passes are shared by the candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array, Block
from dlatent.fitting.costs import COMPARED_ITERATIONS, OVERSAMPLING, compared_columns, compared_width
from dlatent.fitting.plan import Plan
from dlatent.fitting.task import Task
from dlatent.linear_gaussian.held_out import Hiding
from dlatent.linear_gaussian.smoothing import (
    Comparison,
    SmoothingRequest,
    check_and_add,
    compared,
    fold_predicted,
    fold_scores,
    fold_smoothed,
    score_maps,
    sent_rows,
    shares,
)
from dlatent.passes import Pass, Run, neighbour_pass

CANDIDATES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
HIDING = Hiding(0.2, 0)
S = TypeVar("S")


def chosen_smoothing(task: Task, plan: Plan, hops: int, run: Run, *, sparse: bool) -> Comparison:
    """The comparison of all candidates, for a task whose samples are in a graph."""
    specification = task.specification
    width, k = specification.sizes[0], specification.n_components
    count, total = run(Pass(check_and_add, task.options.refuse_zero_rows, name="mean"))
    shift = np.zeros(width) if sparse else total / count
    columns = min(k + OVERSAMPLING, width)
    start: Array = np.asarray(la.qr(np.random.default_rng(0).standard_normal((width, columns)), mode="economic")[0])
    room = min(plan.columns_at_once, compared_columns(task.problem))
    together = max(1, room // compared_width(task.problem) - 1)
    groups = [CANDIDATES[at : at + together] for at in range(1, len(CANDIDATES), together)]
    groups[0] = (*CANDIDATES[:1], *groups[0])  # λ = 0 sends nothing
    requests = [SmoothingRequest(group, hops, True, HIDING, shift, ()) for group in groups]
    sums = [_predicted(request, start, k, run) for request in requests]
    return compared(np.concatenate(sums))


def _predicted(request: SmoothingRequest, start: Array, k: int, run: Run) -> Array:
    """The sums over hidden cells of some candidates that share their passes."""
    directions, offsets = (start,) * len(request.smoothings), tuple[Array, ...]()
    for _ in range(COMPARED_ITERATIONS):
        found = run(_pass(fold_smoothed, request._replace(directions=directions), "smoothing"))
        totals = zip(found.total, found.weight.tolist(), strict=True)
        offsets = tuple(total / weight for total, weight in totals)
        # About the weighted mean, as `linear_gaussian.graph_statistics.centred_product`.
        centred = [
            product - np.outer(total, offset @ v)
            for product, total, offset, v in zip(found.product, found.total, offsets, directions, strict=True)
        ]
        directions = tuple(_leading(one) for one in centred)
    once = request._replace(
        twice=False,
        directions=tuple(v[:, :k] for v in directions),
        means=tuple(request.shift + offset for offset in offsets),
    )
    maps = score_maps(run(_pass(fold_scores, once, "scores")), HIDING.part)
    return run(_pass(fold_predicted, once._replace(maps=maps), "hidden cells"))


def _leading(product: Array) -> Array:
    """An orthonormal basis of the columns, those of the largest singular values first."""
    return np.asarray(la.svd(product, full_matrices=False)[0])


def _pass(fold: Callable[[Block, SmoothingRequest], S], request: SmoothingRequest, name: str) -> Pass[Any, S]:
    hops = request.hops * (1 + request.twice)
    return neighbour_pass(sent_rows, fold, request, keep=shares, hops=hops, normalised=True, name=name)
