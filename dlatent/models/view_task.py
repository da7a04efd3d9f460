"""The task of a fit to several views of which some rows correspond."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dlatent.arrays import Array, DataSource
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.fit import INITIAL_MEAN
from dlatent.fitted.linear import JointGaussian
from dlatent.fitted.parts import ViewLabels
from dlatent.fitted.targets import EncodedTargets
from dlatent.fitted.view_heads import ViewHeads
from dlatent.gaussian.head import JointRowsRequest, LabelledRows, block_labelled_joint
from dlatent.gaussian.likelihood import block_view_means
from dlatent.gaussian.moments import representable
from dlatent.gaussian.specification import Specification, View
from dlatent.gaussian.view_heads import PairedRowsRequest, block_paired_rows, fraction_of_pairs, joined, view_heads
from dlatent.gaussian.views import Arrangement, count_empty_views
from dlatent.models.initial import far_shift, views_in_spreads
from dlatent.models.inputs import Names, Pairing, Views
from dlatent.models.joint_views import joined_rows
from dlatent.models.model import Model
from dlatent.models.observations import view_likelihoods, with_view_likelihoods
from dlatent.models.table import MOST, table_fields, task_of
from dlatent.models.task import FitTask
from dlatent.models.views import TARGETS, JointSamples, arrangement, opened
from dlatent.passes import Pass, Run
from dlatent.solvers.solver import Solution
from dlatent.stores.joint import JointSource, joint


def samples_to_fit(model: Model[Any], views: Views, correspondence: Pairing, on: Names) -> JointSamples:
    """The joint samples of views to be fitted.  Errors: DataError."""
    model._check()
    data, sources = opened(views, on)
    if len(sources) < 2:
        raise DataError(f"there is {len(sources)} view; a correspondence is between two or more")
    table = joined_rows(views, correspondence, on, data, sources)
    rows, features = len(table), sum(source.shape[1] for source in sources.values())
    asked: Any = model.n_components
    k = 1 if asked == "auto" else int(asked)
    if k >= min(rows, features):
        raise DataError(
            f"n_components is {k}, but {rows} samples × {features} features of all views allow at most "
            f"{min(rows, features) - 1}; ask for fewer components"
        )
    return JointSamples(sources, table)


def view_task(
    model: Any, samples: JointSamples, targets: EncodedTargets | None = None, *, shared: bool = True,
    fixed: bool = False,
) -> FitTask:  # fmt: skip
    """The task of a model of joint samples, whose last view are the targets where there are some.

    Parameters: `shared`, whether the features of a view share a noise variance; `fixed`, whether it is the floor.
    """
    names = [name for name in samples.sources if targets is None or name != TARGETS]
    refused, likelihoods = names if model.zero_rows == "raise" else (), view_likelihoods(model, names)
    source = joint(*samples, refuse_zero_rows=refused, holes=model._missing == "nan", likelihoods=likelihoods)
    views = tuple(View(name, view.shape[1], shared=shared, fixed=fixed) for name, view in source.views.items())
    rule = "auto" if model.n_components == "auto" else None
    k = min(MOST, source.shape[0] - 1, sum(source.sizes) - 1) if rule else int(model.n_components)
    specification = Specification(views, source.patterns, k)
    about, patterns = arrangement(source, range(len(views)), source.sizes), source.patterns
    largest = max(block.nbytes for view in (source, *source.views.values()) for block in view.blocks)
    task = task_of(model, source, specification, fitted_views, rule)
    task = replace(
        task,
        data=replace(task.data, largest_block=largest),
        targets=targets,
        arrangement=about,
        shift=initial_means,
        count=partial(count_empty_views, arrangement=about, patterns=patterns, views=len(names)),
        labelled=partial(labelled_pass, arrangement=about),
        grids={name: view.labels.grid for name, view in source.views.items()},
        in_spreads=views_in_spreads,
        head=model.head,
        learned=partial(with_view_heads, arrangement=about, views=len(names)) if model.head == "auto" else None,
    )
    return with_view_likelihoods(task, model, likelihoods)


def initial_means(session: Session, observed: bool) -> Array:
    """The mean of each dense view over the first block that has it; of sparse ones that of the features that are far
    from zero, and zero for the others."""
    source = joint_source(session.source)
    request = source.patterns, arrangement(source, range(len(source.views)), source.sizes)
    bounds, blocks = np.cumsum([0, *source.sizes]), list[int]()
    for view in range(len(source.views)):
        pattern = next(p for p in reversed(range(len(source.patterns))) if view in source.patterns[p])
        blocks.append(next(at for at, b in enumerate(source.blocks) if b.start == source.bounds[pattern]))
    sparse = [block for block, view_source in zip(blocks, source.views.values(), strict=True) if view_source.sparse]
    shift = far_shift(session, sparse, request)
    for view, (view_source, block) in enumerate(zip(source.views.values(), blocks, strict=True)):
        if view_source.sparse:
            continue
        mean = session.run_block(Pass(block_view_means, request, cached=False, name=INITIAL_MEAN), block)
        at = slice(bounds[view], bounds[view + 1])
        shift[at] = representable(mean[at], view_source.dtype)
    return shift


def labelled_pass(
    solution: Solution, part: float, sums: Any, arrangement: Arrangement
) -> Pass[Any, LabelledRows | None]:
    """The pass that finds what is known of z in a part of the samples with targets, and sums over all of them."""
    request = JointRowsRequest(solution.parameters, solution.specification, arrangement, part, sums)
    return Pass(block_labelled_joint, request)


def with_view_heads(
    fitted: JointGaussian, solution: Solution, run: Run, arrangement: Arrangement, views: int
) -> JointGaussian:
    """The model with what tells each view from another, from the samples that have both."""
    parameters, specification, samples = solution.parameters, solution.specification, solution.view_samples
    part = fraction_of_pairs(specification.patterns, arrangement, views)
    if not part:
        return fitted
    request = PairedRowsRequest(specification.patterns, arrangement, views, part)
    rows = run(Pass(block_paired_rows, request, combine=joined, recorded=False, name="pairs"))
    if rows is None:
        return fitted
    return replace(fitted, heads=ViewHeads(view_heads(rows, parameters, specification, samples, views)))


def joint_source(source: DataSource) -> JointSource:
    """The data of a fit, which are joint samples."""
    assert isinstance(source, JointSource)
    return source


def fitted_views(task: FitTask, solution: Solution) -> JointGaussian:
    """The fitted model of several views."""
    sources = joint_source(task.source).views
    features = {name: source for name, source in sources.items() if task.targets is None or name != TARGETS}
    labels = {name: source.labels for name, source in features.items()}
    sizes = tuple(source.shape[1] for source in features.values())
    return JointGaussian(**table_fields(task, solution) | {"labels": ViewLabels(labels, sizes)})
