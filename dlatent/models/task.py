"""A fit: from what is to be fitted over plan and solver to a fitted model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np

from dlatent.arrays import Array, Block, DataSource, Graph, Grid
from dlatent.blas import pinned
from dlatent.engine.cache import ReferenceCache
from dlatent.engine.connect import Where, connect
from dlatent.engine.machine import cache_share
from dlatent.engine.session import PassRecord, Session
from dlatent.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    DlatentError,
    MisfitWarning,
    NoiseFloorWarning,
    PrecisionWarning,
    number_of,
    outside,
)
from dlatent.fitted.features import cells_named
from dlatent.fitted.fit import Fit, FittedModel, Report
from dlatent.fitted.parts import EstimatedHead, EstimatedStack
from dlatent.fitted.rows import compares, function
from dlatent.fitted.targets import EncodedTargets
from dlatent.gaussian.head import (
    MOST_FEATURES,
    LabelledRows,
    RowsRequest,
    block_labelled,
    feature_metric,
    fraction_of_rows,
    joined,
    output_head,
    output_sums,
)
from dlatent.gaussian.stack import ClassSpaces, class_head, label_head
from dlatent.gaussian.views import count_empty_rows
from dlatent.models.callbacks import Callback, Listeners, require_callbacks
from dlatent.models.checkpoints import checkpointed
from dlatent.models.initial import first_look, in_data_units, in_spreads, last_look
from dlatent.models.inputs import PathLike
from dlatent.passes import Pass, Run
from dlatent.solvers.diagnostics import lost_digits, require_sound
from dlatent.solvers.evidence import supported, switched_on, with_evidence
from dlatent.solvers.plan import Plan
from dlatent.solvers.planner import SOLVERS, make_plan
from dlatent.solvers.solver import Solution, Solver
from dlatent.solvers.task import Task
from dlatent.stores.places import read_places, require_apart

M = TypeVar("M", bound=Any)
NOT_FINITE = "array must not contain infs or NaNs"
"""The words of SciPy for them, in a plain ValueError."""
CHOICES = ("solver", "max_rank", "columns_at_once", "column_blocks")
"""Figures of a plan that decide which passes a fit makes."""
WARNINGS: dict[str, type[Warning]] = {
    "convergence": ConvergenceWarning,
    "floor": NoiseFloorWarning,
    "precision": PrecisionWarning,
    "data": DataWarning,
    "misfit": MisfitWarning,
}


class FitRun(NamedTuple):
    """How a fit is run."""

    client: Where = None
    callbacks: Sequence[Callback] = ()
    checkpoint: PathLike | None = None
    resume: bool = False


@dataclass(frozen=True, kw_only=True)
class FitTask(Task):
    """A task with its data, and what a model does before and after the solver.

    Parameters
    ----------
    source : the data.
    fitted : makes the fitted model of the task and its solution.
    solvers : those among which the plan chooses.
    prepared : makes of the task the one that is solved, with passes over the data.
    targets : those of the samples, with their encoding.
    extra_places : where what is no source is read from.
    shift : the mean about which the first sums are made.
    count : counts the rows of zeros in a block.
    labelled : the pass over the labelled rows of views, in the place of that over the rows of a table.
    grids : the cells that the features of each view were, by its name.
    units : what each feature is divided by before the fit (D,), where that is known.
    genotypes : whether features are numbers of copies of an allele, and their units those of Patterson et al. (2006).
    in_spreads : makes of the task that of features in units of their spreads, and says which passes found these.
    learned : makes of the fitted model one that has learned more, with passes over the data.
    """

    source: DataSource
    fitted: Callable[[FitTask, Solution], FittedModel]
    solvers: Mapping[str, Solver] = field(default_factory=lambda: SOLVERS)
    prepared: Callable[[FitTask, Plan, Run], FitTask] | None = None
    targets: EncodedTargets | None = None
    extra_places: tuple[str, ...] = ()
    shift: Callable[[Session, bool], Array] | None = None
    count: Callable[[Block], int] = count_empty_rows
    labelled: Callable[[Solution, float, Any], Pass[Any, LabelledRows | None]] | None = None
    grids: Mapping[str | None, Grid | None] | None = None
    units: Array | None = None
    genotypes: bool = False
    in_spreads: Callable[[FitTask, Where], tuple[FitTask, tuple[PassRecord, ...]]] = in_spreads
    learned: Callable[[Any, Solution, Run], FittedModel] | None = None

    @property
    def graph(self) -> Graph | None:
        """The graph between the samples."""
        return None if self.between is None else self.between.graph

    @property
    def places(self) -> tuple[str, ...]:
        """Where all that is given is read from, as far as that is known."""
        return (*read_places(self.source, self.graph), *self.extra_places)

    def within(self, session: Session) -> Self:
        """The task with what a session tells: which rows meet over the edges, and where a kernel is kept."""
        between, kernel = self.between, self.kernel
        if between is not None:
            moved = session.traffic()
            between = replace(between, travelling=moved.rows, reach=moved.reach, tasks=moved.tasks)
        if kernel is not None:
            kernel = replace(kernel, kept=partial(kernel.kept, session))
        return replace(self, between=between, kernel=kernel)


def plan(task: FitTask, client: Where) -> Plan:
    """The plan of a fit."""
    with connect(task.source, client=client, graph=task.graph, planned=True) as session:
        return make_plan(task.within(session), session.available, task.solvers)


def run(task: FitTask, options: FitRun, model: M) -> M:
    """Fit a model to a task, and warn of what a user should know."""
    callbacks = require_callbacks(options.callbacks)
    named = partial(cells_named, task.grids if task.grids is not None else {None: task.source.labels.grid})
    with named():
        task, looks = task.in_spreads(task, options.client) if task.scale else (task, ())
    source, checkpoint = task.source, options.checkpoint
    # Most of the driver's matrices are small, where BLAS threads would only wait for each other, and they would make
    # bits depend on cores; tall ones are cut into slabs (`operators.tall`).
    with (
        connect(
            source,
            targets=None if task.targets is None else task.targets.rows,
            client=options.client,
            graph=task.graph,
        ) as session,
        ExitStack() as opened,
        pinned(),
        sound_algebra(),
        named(),
    ):
        task = task.within(session)
        if task.start is not None and checkpoint is not None:
            raise DataError("warm_start=True goes on from parameters that no checkpoint holds; leave out one of both")
        plan = make_plan(task, session.available, task.solvers)
        if checkpoint is not None:
            require_apart(checkpoint, *task.places)
        data = {"data": source, "targets": task.targets, "graph": task.graph}
        choices = {name: getattr(plan, name) for name in CHOICES}
        journal = opened.enter_context(checkpointed(checkpoint, options.resume, model, data, choices, session))
        if journal is not None:
            session.journal, plan = journal, _with_choices(task, plan, session, journal.choices)
        session.keep(plan.cache_bytes)
        if not task.refuse_zero_rows and not task.missing:
            session.count = task.count
        solver, listeners = task.solvers[plan.solver], Listeners(callbacks, plan)
        with listeners.told():
            shift, apart, seen = first_look(session, task, solver.observed)
            session.on_pass, session.on_progress = listeners.on_pass, listeners.on_task
            if task.prepared is not None:
                task = task.prepared(task, plan, session.run)
            limited = task.limited(plan.max_rank, solver.most)
            solution = solver.fit(limited, plan, shift, session.run, listeners.on_iteration)
            require_sound(solution)
            lost = lost_digits(solution, shift)
            if task.targets is None and not task.missing and task.rule == "auto" and not task.chosen_first:
                solution = supported(solution, _count(solution, task))
            if task.prior != "ml" and not task.missing and task.targets is None:
                prior = None if isinstance(task.prior, str) else float(task.prior)
                solution = with_evidence(solution, _count(solution, task), prior)
            if task.missing and task.rule == "auto":
                solution = switched_on(solution)
            tails = last_look(seen, task, solution)
            if task.units is not None:
                solution = in_data_units(solution, task)
            if task.weighted:  # of samples solvers count the sum of the weights
                rows = source.shape[0]
                solution = replace(solution, samples=rows, view_samples=(rows,))
            fitted: Any = task.fitted(task, solution)
            if task.targets is not None and task.head == "auto":
                fitted = _with_head(fitted, solution, task, session)
            if task.learned is not None:
                fitted = task.learned(fitted, solution, session.run)
            if task.units is not None:
                fitted = fitted.in_data_units(task.units)
    advice = (*solution.advice, *lost, *apart, *tails, *remarks(session.counted, task.targets))
    notices = tuple((kind, text) for kind, _, text in (each.partition(": ") for each in advice))
    report = Report(
        solution.log_likelihood,
        solution.checked_log_likelihood,
        solution.converged,
        solution.iterations,
        solution.samples,
        plan.summary(),
        notices,
        solution.history,
        (*looks, *session.passes),
    )
    for kind, text in notices:
        warnings.warn(text, WARNINGS[kind], stacklevel=outside())
    identity = None if journal is None else journal.identity
    model._become(Fit(fitted, report, solution.moments, task.places, identity))
    return model


def _with_choices(task: FitTask, plan: Plan, session: Session, choices: dict[str, Any]) -> Plan:
    """The plan with the choices that a checkpoint has kept."""
    if {name: getattr(plan, name) for name in CHOICES} == choices:
        return plan
    chosen = make_plan(replace(task, solver=choices["solver"]), session.available, task.solvers)
    return replace(chosen, **choices)


def _count(solution: Solution, task: FitTask) -> float:
    """Independent samples: their number, the sum of their weights, or the rank of what joins them."""
    weights, relation = task.source.weights, task.relation
    samples = solution.samples if weights is None else weights.sum()
    return float(samples if relation is None else relation.rank)


def _with_head(fitted: Any, solution: Solution, task: FitTask, session: Session) -> FittedModel:
    """The model with what predicts targets from scores, from the samples that have targets."""
    assert task.targets is not None
    encoding, specification = task.targets.encoding, solution.specification
    metric = feature_metric(solution.parameters, specification)
    spaces = ClassSpaces(encoding.table(), metric) if encoding.kind == "class" else None
    labelled, width = solution.view_samples[-1], specification.n_components + len(encoding.names)
    # Where each row has all targets or none, regressions on scores follow from sums.
    sums: Any = (None if task.missing else output_sums) if spaces is None else spaces.sums
    mean = _mean_of_features(fitted, labelled, task)
    features = 0 if mean is None else len(mean)
    part = fraction_of_rows(labelled, width, features, summed=sums is not None)
    if labelled <= features:  # few rows have all that their sums tell
        sums, part = None, 1.0
    if task.labelled is not None:
        request = task.labelled(solution, part, sums)
    else:
        rows = fitted.rows
        scores: Any = function(rows.scores)
        if compares(scores):
            scores = scores.with_cache(ReferenceCache(cache_share(session.resources.worker_memory)))
        shared = rows.shared_covariance((0,))
        covariance: Any = function(rows.covariances) if shared is None else shared
        request = Pass(block_labelled, RowsRequest(scores, covariance, part, sums, mean))
    rows_known = session.run(replace(request, combine=joined, recorded=False, name="labelled rows"))
    assert rows_known is not None
    head: EstimatedHead | EstimatedStack
    if spaces is not None:
        head = EstimatedStack(*class_head(rows_known, spaces, encoding.centre))
    elif encoding.kind == "multilabel":
        rules = label_head(rows_known, encoding.rotation, encoding.centre, metric)
        head = EstimatedStack(*(rules if mean is None else rules.about(mean)))
    else:
        apart = rows_known._replace(covariance=rows_known.covariance / fitted.row_precision)
        found = output_head(apart, encoding.rotation, encoding.centre, metric)
        head = EstimatedHead(*(found if mean is None else found.about(mean)))
    return cast(FittedModel, replace(fitted, targets=replace(fitted.targets, head=head)))


def _mean_of_features(fitted: Any, labelled: int, task: FitTask) -> Array | None:
    """The mean (D,) of the features from which targets are learned, too; None where scores alone tell them: classes,
    where a row has not all features itself, and where these are too many."""
    assert task.targets is not None
    apart = task.missing or task.labelled is not None or task.kernel is not None or task.between is not None
    if task.targets.encoding.kind == "class" or apart:
        return None
    mean: Array = fitted.mean
    return mean if min(labelled, len(mean)) * len(mean) <= MOST_FEATURES else None


NO_LABEL = frozenset({"", "nan", "na", "n/a", "none", "null", "unknown", "unlabelled", "unlabeled", "unassigned"})
"""What others write where they know no class."""


def remarks(zero_rows: int, encoded: EncodedTargets | None) -> Iterator[str]:
    """Advice on what is odd about the data and was fitted all the same; it begins with its kind."""
    if zero_rows:
        yield (
            f"data: {number_of(zero_rows, 'row is', 'rows are')} all zeros, and fitted so; drop them where they stand "
            "for nothing (dlatent ingest --zero-rows drop), or see where they are with zero_rows='raise'"
        )
    if encoded is None or encoded.class_counts is None:
        return
    counts, names = encoded.class_counts, encoded.encoding.names.tolist()
    for name, count in zip(names, counts, strict=True):
        if isinstance(name, str) and name.strip().lower() in NO_LABEL:
            yield (
                f"data: {name!r} is fitted as a class like the others, with {number_of(count, 'row')}; rows without a "
                "label are None, NaN or -1"
            )
    if (counts == 1).any():
        lone = [name for name, count in zip(names, counts, strict=True) if count == 1]
        yield (
            f"data: {len(lone)} of {len(counts)} classes have one labelled row, for example {lone[0]!r}; nothing tells "
            "their noise, so merge or unlabel them, or pass target_type='regression' if y are numbers"
        )


@contextmanager
def sound_algebra() -> Iterator[None]:
    """Errors of LAPACK as DataError, with what to do."""
    try:
        yield
    except DlatentError:
        raise
    except ValueError as error:
        if not isinstance(error, np.linalg.LinAlgError) and str(error) != NOT_FINITE:
            raise
        raise DataError(
            f"the fit's linear algebra has no result in double precision ({error}): some numbers are too large, too "
            "small or too nearly dependent beside others; bring features and targets to like scales, take out features "
            "that repeat others, ask for fewer components, or raise noise_floor"
        ) from error
