"""A fit: from what is to be fitted over plan and solver to a fitted model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dlatent.arrays import Array, Block, DataSource, Graph, Grid
from dlatent.blas import pinned
from dlatent.engine.cache import ReferenceCache
from dlatent.engine.connect import Where, connect
from dlatent.engine.machine import cache_share
from dlatent.engine.session import Session
from dlatent.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    DlatentError,
    MisfitWarning,
    NoiseFloorWarning,
    PrecisionWarning,
    number_of,
)
from dlatent.fitted.fit import INITIAL_MEAN, Fit, FittedModel, Notice, Report
from dlatent.fitted.grid import cells_named
from dlatent.fitted.linear import EstimatedHead
from dlatent.fitted.rows import compares, function
from dlatent.fitted.targets import EncodedTargets
from dlatent.gaussian.head import (
    ClassSpaces,
    Head,
    LabelledRows,
    RowsRequest,
    block_labelled,
    class_head,
    feature_metric,
    joined,
    output_head,
    output_sums,
    part_of,
)
from dlatent.gaussian.missing_entries.entries import block_observed_mean
from dlatent.gaussian.moments import Moments, block_column_sums, block_mean, representable
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement, count_empty_rows
from dlatent.models.callbacks import Callback, Listeners, require_callbacks
from dlatent.models.checkpoints import checkpointed
from dlatent.models.features import outside
from dlatent.models.inputs import PathLike
from dlatent.order import group_count, task_count
from dlatent.passes import Pass, Run
from dlatent.solvers.diagnostics import lost_digits, require_sound
from dlatent.solvers.evidence import with_evidence
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.planner import make_plan
from dlatent.solvers.registry import SOLVERS
from dlatent.solvers.solution import Options, Solution
from dlatent.solvers.task import MAX_EM_ITERATIONS, KernelFeatures, Relation
from dlatent.solvers.task import Task as SolverTask
from dlatent.stores.places import read_places, require_apart

NOT_FINITE = "array must not contain infs or NaNs"
"""What SciPy says of them, in a plain ValueError."""
BYTES_PER_ENTRY = 12
"""Of sparse Dask chunks, whose entries nobody has counted."""
CHOICES = ("solver", "max_rank", "columns_at_once", "column_blocks")
"""What of a plan decides which passes a fit makes."""
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


class Between(Protocol):
    """What is between the samples of a task: a graph, and how samples depend on each other over its edges."""

    @property
    def graph(self) -> Graph:
        """The graph."""
        ...

    def shape(self) -> dict[str, Any]:
        """What the planner must know of it."""
        ...

    def relation(self, specification: Specification) -> Relation | None:
        """How samples depend on each other, as far as that is known before the data are seen."""
        ...

    def settled(self, task: SolverTask, plan: Plan, run: Run) -> SolverTask:
        """The task with what is chosen from the data before the fit."""
        ...


class Known(NamedTuple):
    """What is known when a solver has ended: what it was asked, and what it found."""

    asked: SolverTask
    solution: Solution


@dataclass(frozen=True)
class Task:
    """What is to be fitted, and how.

    Parameters
    ----------
    source : the data.
    specification : views, noise and patterns.
    fitted : makes the fitted model of the task and of what a solver found.
    tol, max_iter, random_state, noise_floor, zero_rows, solver, missing, prior : hyperparameters of the same name.
    rule : how the number of components is chosen, None where it is given.
    targets : those of the rows, with the floor of their noise; `head`, by which density they are fitted.
    start : the fit from whose parameters iterations go on.
    adding : whether moments are kept for more rows; `earlier`, those of the rows before.
    beside : where what is no source is read from.
    between : what is between the samples: a graph, and how they depend on each other.
    shape : what else the planner must know of the family.
    kernel : makes the features of a kernel.
    arrangement : which rows of views are one sample.
    shift : the mean about which the first sums are made.
    count : counts the rows of zeros in a block.
    labelled : the pass over the labelled rows of views, in the place of that over the rows of a table.
    grids : the cells that the features of each view were, by its name.
    """

    source: DataSource
    specification: Specification
    fitted: Callable[[Task, Known], FittedModel]
    tol: float
    max_iter: int | None
    random_state: Any
    noise_floor: float
    zero_rows: str
    solver: str
    missing: str = "raise"
    prior: str | float = "ml"
    rule: str | float | None = None
    targets: EncodedTargets | None = None
    target_noise_floor: float = 0.0
    head: str = "likelihood"
    start: Fit | None = None
    adding: bool = False
    earlier: Moments | None = None
    beside: tuple[str, ...] = ()
    between: Between | None = None
    shape: Mapping[str, Any] = field(default_factory=dict)
    kernel: Callable[[Session], KernelFeatures] | None = None
    arrangement: Arrangement | None = None
    shift: Callable[[Session, bool], Array] | None = None
    count: Callable[[Block], int] = count_empty_rows
    labelled: Callable[[Solution, float, Any], Pass[Any, LabelledRows | None]] | None = None
    grids: Mapping[str | None, Grid | None] | None = None

    @property
    def graph(self) -> Graph | None:
        """The graph between the samples."""
        return None if self.between is None else self.between.graph

    @property
    def places(self) -> tuple[str, ...]:
        """Where all that is given is read from, as far as that is known."""
        return (*read_places(self.source, self.graph), *self.beside)

    def problem(self, session: Session) -> Problem:
        """Its shape, for the planner."""
        source, specification, sizes = self.source, self.specification, [block.nbytes for block in self.source.blocks]
        between = {}
        if self.between is not None:
            graph, moved = self.between.graph, session.traffic()
            between = {
                "graph_entries": graph.entries,
                "graph_in_memory": graph.in_memory,
                "travelling": moved.rows,
                "reach": moved.reach,
                **self.between.shape(),
            }
        shape = {
            "samples": source.shape[0],
            "features": source.shape[1],
            "targets": sum(specification.sizes[1:]),
            "n_components": specification.n_components,
            "patterns": len(specification.patterns),
            "nbytes": source.nbytes,
            "largest_block": max(sizes),
            "blocks": len(sizes),
            "tasks": task_count(group_count(sizes)),
            "itemsize": source.dtype.itemsize,
            "nnz": (source.nnz or source.nbytes // BYTES_PER_ENTRY) if source.sparse else None,
            "description": source.description,
            "in_memory": source.in_memory,
            "missing": self.missing != "raise",
            "shared": all(view.shared for view in specification.views),
            "em_passes": (self.max_iter or MAX_EM_ITERATIONS) + 1 if self.solver == "em" else None,
            "decoding": source.decoding,
            "target_bytes": 0 if self.targets is None else self.targets.nbytes,
            "computed": source.blocks[0].collection is not None,
            "weighted": source.weights is not None,
            "adding": self.adding,
            "passes_after": int(self.head == "auto"),
            "prior": self.prior != "ml",
            "rule": self.rule,
        }
        return Problem(**{**shape, **between, **self.shape})

    def for_solver(self, session: Session) -> SolverTask:
        """The task as solvers take it."""
        specification, views = self.specification, len(self.specification.views)
        parts = (float(self.noise_floor),) * views
        if self.targets is not None:
            parts = (*parts[:-1], float(self.target_noise_floor))
        options = Options(
            tolerance=float(self.tol),
            max_iterations=int(self.max_iter or 0),
            random_state=self.random_state,
            floor_parts=parts,
            refuse_zero_rows=self.zero_rows == "raise",
            refuse_missing=self.missing == "raise",
            prior=self.prior,
        )
        return SolverTask(
            self.problem(session),
            specification,
            options,
            targets=None if self.targets is None else self.targets.rows,
            relation=None if self.between is None else self.between.relation(specification),
            arrangement=self.arrangement,
            kernel=None if self.kernel is None else self.kernel(session),
            start=None if self.start is None else self._start(self.start),
            earlier=self.earlier,
        )

    def _start(self, fit: Fit) -> Solution:
        """What iterations go on from.  Errors: DataError where it is of another shape."""
        model: Any = fit.model
        last: Solution = model.start(fit.report)
        shapes = last.parameters.loadings.shape, last.parameters.noise_variance.shape
        specification, components = self.specification, self.shape.get("mixtures")
        several = () if components is None else (components,)
        loadings = (*several, sum(specification.sizes), specification.n_components)
        wanted = loadings, (*several, len(specification.group_sizes))
        if shapes != wanted:
            raise DataError(
                f"warm_start=True goes on from loadings and noise variances of shapes {shapes[0]} and {shapes[1]}, and "
                f"this fit has {wanted[0]} and {wanted[1]}; set warm_start=False for it"
            )
        return last


def plan(task: Task, client: Where) -> Plan:
    """What a fit will do and cost."""
    with connect(task.source, client=client, graph=task.graph, planned=True) as session:
        return planned(task, task.for_solver(session), session)


def planned(task: Task, asked: SolverTask, session: Session) -> Plan:
    """The plan of a task, of which solvers are asked this."""
    return make_plan(asked.problem, session.available, "auto" if task.solver == "em" else task.solver)


def run(task: Task, options: FitRun, model: Any) -> Fit:
    """Fit a task, and warn of what a user should know; `model` tells its checkpoint from others."""
    callbacks = require_callbacks(options.callbacks)
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
        cells_named(task.grids if task.grids is not None else {None: source.labels.grid}),
    ):
        asked = task.for_solver(session)
        if task.start is not None and checkpoint is not None:
            raise DataError("warm_start=True goes on from parameters that no checkpoint holds; leave out one of both")
        plan = planned(task, asked, session)
        if checkpoint is not None:
            require_apart(checkpoint, *task.places)
        data = {"data": source, "targets": task.targets, "graph": task.graph}
        choices = {name: getattr(plan, name) for name in CHOICES}
        journal = opened.enter_context(checkpointed(checkpoint, options.resume, model, data, choices, session))
        if journal is not None:
            session.journal, plan = journal, _with_choices(plan, asked, session, journal.choices)
        session.keep(plan.cache_bytes)
        if task.zero_rows == "keep" and task.missing == "raise":
            session.count = task.count
        solver, listeners = SOLVERS[plan.solver], Listeners(callbacks, plan)
        with listeners.told():
            shift = task.earlier.shift if task.earlier is not None else _shift(task, session, solver.observed)
            session.on_pass, session.on_progress = listeners.on_pass, listeners.on_task
            if task.between is not None:
                asked = task.between.settled(asked, plan, session.run)
            solution = solver.fit(asked, plan, shift, session.run, listeners.on_iteration)
            require_sound(solution)
            lost = lost_digits(solution, shift, asked.settled_options(plan).precision)
            solution = _with_prior(solution, task, asked.relation)
            fitted = task.fitted(task, Known(asked, _counted(solution, source)))
            if task.targets is not None and task.head == "auto":
                fitted = _with_head(fitted, solution, task, session)
    notices = (*map(Notice.of, (*solution.advice, *lost)), *remarks(session.counted, task.targets))
    report = Report(
        solution.log_likelihood,
        solution.checked_log_likelihood,
        solution.converged,
        solution.iterations,
        _counted(solution, source).samples,
        plan.summary(),
        tuple((notice.kind, notice.text) for notice in notices),
        solution.history,
        tuple(session.passes),
    )
    for notice in notices:
        warnings.warn(notice.text, WARNINGS[notice.kind], stacklevel=outside())
    return Fit(fitted, report, solution.moments, task.places, None if journal is None else journal.identity)


def _shift(task: Task, session: Session, observed: bool) -> Array:
    return initial_mean(session, observed=observed) if task.shift is None else task.shift(session, observed)


def _counted(solution: Solution, source: DataSource) -> Solution:
    """The solution with the number of samples, of which solvers count the sum of the weights."""
    rows = source.shape[0]
    return solution if source.weights is None else replace(solution, samples=rows, view_samples=(rows,))


def _with_choices(plan: Plan, asked: SolverTask, session: Session, choices: dict[str, Any]) -> Plan:
    """The plan with the choices that a checkpoint has kept."""
    if {name: getattr(plan, name) for name in CHOICES} == choices:
        return plan
    return replace(make_plan(asked.problem, session.available, choices["solver"]), **choices)


def _with_prior(solution: Solution, task: Task, relation: Relation | None) -> Solution:
    """What a prior of the loadings makes of the maximum of the likelihood of complete samples."""
    if task.prior == "ml" or task.missing != "raise" or task.targets is not None:
        return solution
    weights = task.source.weights
    samples = solution.samples if weights is None else weights.sum()
    count = float(samples if relation is None else relation.rank)
    return with_evidence(solution, count, None if isinstance(task.prior, str) else float(task.prior))


def _with_head(fitted: Any, solution: Solution, task: Task, session: Session) -> FittedModel:
    """The model with what predicts targets from scores, from the samples that have targets."""
    assert task.targets is not None
    encoding, specification = task.targets.encoding, solution.specification
    metric = feature_metric(solution.parameters, specification)
    spaces = ClassSpaces(encoding.table(), metric) if encoding.kind == "class" else None
    # Where each row has all targets or none, regressions on scores follow from sums.
    sums: Any = (output_sums if task.missing == "raise" else None) if spaces is None else spaces.sums
    width = specification.n_components + len(encoding.names)
    part = part_of(solution.view_samples[-1], width, summed=sums is not None)
    if task.labelled is not None:
        labelled = task.labelled(solution, part, sums)
    else:
        rows = fitted.rows
        scores: Any = function(rows.scores)
        if compares(scores):
            scores = scores.with_cache(ReferenceCache(cache_share(session.resources.worker_memory)))
        shared = rows.shared_covariance((0,))
        covariance: Any = function(rows.covariances) if shared is None else shared
        labelled = Pass(block_labelled, RowsRequest(scores, covariance, part, sums))
    found = session.run(replace(labelled, combine=joined, recorded=False, name="labelled rows"))
    assert found is not None
    head: Head
    if spaces is not None:
        head = class_head(found, spaces, encoding.centre)
    else:
        apart = found._replace(covariance=found.covariance / fitted.row_precision)
        head = output_head(apart, encoding.rotation, encoding.centre, metric)
    estimated = EstimatedHead.of(head, classes=spaces is not None)
    made: FittedModel = replace(fitted, targets=replace(fitted.targets, head=estimated))
    return made


def remarks(zero_rows: int, encoded: EncodedTargets | None) -> Iterator[Notice]:
    """What is odd about the data and was fitted all the same."""
    if zero_rows:
        yield Notice(
            "data",
            f"{number_of(zero_rows, 'row is', 'rows are')} all zeros, and fitted so; drop them where they stand for "
            "nothing (dlatent ingest --zero-rows drop), or see where they are with zero_rows='raise'",
        )
    counts = None if encoded is None else encoded.class_counts
    if encoded is not None and counts is not None and (counts == 1).any():
        lone = encoded.encoding.names[counts == 1].tolist()
        yield Notice(
            "data",
            f"{len(lone)} of {len(counts)} classes have one labelled row, for example {lone[0]!r}; nothing tells their "
            "noise, so merge or unlabel them, or pass target_type='regression' if y are numbers",
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


def initial_mean(session: Session, *, observed: bool = False) -> Array:
    """A shift near the mean (docs/models/solvers): the mean of the first block of dense data, of the `observed` entries
    where some are missing; of sparse data that of the features that are far from zero, and zero for the others."""
    source = session.source
    if observed:
        return session.run_block(Pass(block_observed_mean, None, cached=False, name=INITIAL_MEAN), 0)
    if source.sparse:
        return far_shift(session, (0,), None)
    mean = session.run_block(Pass(block_mean, None, cached=False, name=INITIAL_MEAN), 0)
    return representable(mean, source.dtype, sparse=False)


def far_shift(session: Session, blocks: Iterable[int], request: Any) -> Array:
    """The mean of sparse features that are far from zero, 0 for the others (D,): of all rows, where some of the blocks
    show such features, else zero."""
    sums = Pass(block_column_sums, request, cached=False, name=INITIAL_MEAN)
    shown = any(session.run_block(sums, block).far.any() for block in blocks)
    return session.run(sums).far if shown else np.zeros(session.source.shape[1])
