"""What all estimators of the family share: open, check, plan, fit, and the results as labelled arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels, Block, DataSource, Grid
from dlatent.blas import pinned
from dlatent.containers import refuse_mask
from dlatent.engine.connect import Where, connect
from dlatent.engine.records import PassRecord
from dlatent.engine.session import Session
from dlatent.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    MisfitWarning,
    NoiseFloorWarning,
    PrecisionWarning,
    number_of,
)
from dlatent.fitted.facts import Facts, component_facts, noise_facts, total_variance
from dlatent.fitted.grid import (
    cells_named,
    feature_words,
    grid_attributes,
    grid_variables,
    restored_grid,
    spread_all,
)
from dlatent.fitted.history import history_dataset, history_variables, restored_passes
from dlatent.fitted.room import FACTORS, require_room
from dlatent.fitted.summary import INITIAL_MEAN
from dlatent.fitted.targets import EncodedTargets
from dlatent.fitting.diagnostics import lost_digits, require_sound
from dlatent.fitting.outcome import Options, Outcome
from dlatent.fitting.plan import Plan, Problem
from dlatent.fitting.planner import make_plan
from dlatent.fitting.routes import ROUTES
from dlatent.fitting.task import MAX_EM_ITERATIONS, Task
from dlatent.linear_gaussian.head import Head
from dlatent.linear_gaussian.moments import Moments, count_empty_rows
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View
from dlatent.models.callbacks import Callback, Listeners, require_callbacks
from dlatent.models.checkpoints import checkpointed
from dlatent.models.features import KnownFeatures, feature_names, outside, require_order
from dlatent.models.hyperparameters import LatentVariableHyperparameters
from dlatent.models.inputs import PathLike, ScoresLike, Seed
from dlatent.models.labelled import unwrap
from dlatent.models.restored import (
    noise_name,
    restored_covariance,
    restored_outcome,
    restored_specification,
    uncertainty_variables,
)
from dlatent.models.saved import Estimator
from dlatent.models.task import initial_mean, sound_algebra
from dlatent.order import group_count, task_count
from dlatent.stores.places import read_places, require_apart

ONLY_DENSE = (
    "missing='nan' is for dense data, and the {data} is sparse; with missing='unstored' the stored entries are the "
    "observed ones, with 'raise' what is not stored is zero"
)
ONLY_DENSE_FILLED = "entries that are NaN in dense data are filled in, and the {data} is sparse; make it dense before"
BYTES_PER_ENTRY = 12
CHOICES = ("solver", "max_rank", "columns_at_once", "column_blocks")
"""What of a plan decides which passes a fit makes."""
WARNINGS = {
    "convergence": ConvergenceWarning,
    "floor": NoiseFloorWarning,
    "precision": PrecisionWarning,
    "data": DataWarning,
    "misfit": MisfitWarning,
}


@dataclass(frozen=True)
class Given:
    """What a fit is given: the data, and beside them targets and a graph where the model takes these; whether rows are
    added, and the moments of those before; `beside`, where what is no source is read from."""

    source: DataSource
    targets: EncodedTargets | None = None
    adding: bool = False
    earlier: Moments | None = None
    beside: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Where all of it is read from, as far as that is known."""
        return (*read_places(self.source), *self.beside)

    def named(self) -> dict[str, Any]:
        """All of it by name."""
        return {"data": self.source, "targets": self.targets}


@dataclass(frozen=True)
class Fitted:
    """Everything that a fit leaves: the outcome, what the passes cost, the labels of the axes, the plan (None of a
    model that was loaded), and what predicts targets, where that is not the outcome."""

    outcome: Outcome
    passes: tuple[PassRecord, ...]
    labels: AxisLabels
    plan: Plan | None = None
    head: Head | None = None


class LatentVariableModel(LatentVariableHyperparameters, Estimator):
    """What all models with a likelihood share: from what a fit is given to a task, a plan and a fitted model.

    Attributes
    ----------
    n_components_ : int
        K, given or chosen.
    component_names_ : ndarray of shape (n_components,)
        Labels of the latent variables, from 0.
    log_likelihood_ : float
        Of all samples, in nats.
    n_iter_ : int
        Iterations of the loop, as in `history_`.
    n_passes_ : int
        Passes over the data, the initial mean of their first block not counted.
    converged_ : bool
        Whether the tolerance was met.
    n_samples_ : int
        Number of samples, N.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data of the fit had names, all of them texts.
    history_ : xarray.Dataset
        A line for each iteration and for each pass.
    plan_ : dict
        What was planned: solver, reason, passes, bytes and memory.
    """

    n_features_in_: int
    _parameters: Parameters
    _specification: Specification
    _shared = True
    """Whether the features of a view share one noise variance."""

    @property
    def _missing(self) -> str:
        """How entries may be missing; "raise" in models that take none."""
        return getattr(self, "missing", "raise")

    @property
    def _prior(self) -> str | float:
        """The prior of the loadings; "ml" in models that have none."""
        return "ml"

    @property
    def _row_effects(self) -> bool:
        """Whether samples have levels; False in models that have none."""
        return getattr(self, "row_effects", False)

    def _floor_parts(self, specification: Specification) -> tuple[float, ...]:
        """The floor of the noise of each view, as a part of its mean variance."""
        return (float(self.noise_floor),) * len(specification.views)

    def _check_shape(self, source: DataSource) -> None:
        """Refuse data that the model cannot be fitted to."""
        self._check_missing(source)
        rows, features = source.shape
        if rows < 2:
            raise DataError(f"the {source.description} has {rows} sample; a fit needs at least 2")
        if self._most_components(source) > min(rows - 1, features):
            raise DataError(
                f"n_components is {self.n_components}, but data of {rows} samples × {features} features allow at "
                f"most {min(rows - 1, features)}; ask for fewer components"
            )

    def _most_components(self, source: DataSource) -> int:
        """K, or as many components as there may be where it is chosen from the data."""
        return int(self.n_components)

    def _check_missing(self, source: DataSource) -> None:
        if self._missing == "nan" and source.sparse:
            raise DataError(ONLY_DENSE.format(data=source.description))
        if self._missing == "unstored" and not source.sparse:
            raise DataError(
                f"missing='unstored' is for sparse data, and the {source.description} is dense; mark its missing "
                "entries with NaN and say missing='nan'"
            )

    def _make_specification(self, given: Given) -> Specification:
        """Views, noise and patterns of the model for what is given."""
        views: tuple[View, ...] = (View("features", given.source.shape[1], shared=self._shared),)
        patterns: tuple[tuple[int, ...], ...] = ((0,),)
        if given.targets is not None:
            views += (View("targets", given.targets.encoding.rank),)
            patterns = ((0, 1),) if given.targets.complete else ((0, 1), (0,))
        components = self._most_components(given.source)
        return Specification(views, patterns, components + int(self._row_effects), self._row_effects)

    def _problem(self, session: Session, given: Given, specification: Specification) -> Problem:
        """The shape of the fit, for the planner."""
        source = given.source
        sizes = [block.nbytes for block in source.blocks]
        found = Problem(
            samples=source.shape[0],
            features=source.shape[1],
            targets=sum(specification.sizes[1:]),
            n_components=specification.n_components,
            patterns=len(specification.patterns),
            nbytes=source.nbytes,
            largest_block=max(sizes),
            blocks=len(sizes),
            tasks=task_count(group_count(sizes)),
            itemsize=source.dtype.itemsize,
            # Nobody has counted the entries of sparse Dask chunks: take them from the guessed bytes.
            nnz=(source.nnz or source.nbytes // BYTES_PER_ENTRY) if source.sparse else None,
            description=source.description,
            in_memory=source.in_memory,
            missing=self._missing != "raise",
            shared=all(view.shared for view in specification.views),
            em_passes=(self.max_iter or MAX_EM_ITERATIONS) + 1 if self.solver == "em" else None,
            decoding=source.decoding,
            target_bytes=0 if given.targets is None else given.targets.nbytes,
            computed=source.blocks[0].collection is not None,
            weighted=source.weights is not None,
            adding=given.adding,
            passes_after=self._passes_after,
            prior=self._prior != "ml",
        )
        return replace(found, **self._more_of_problem(given, specification))

    @property
    def _passes_after(self) -> int:
        """How many passes a fit makes when the outcome is known."""
        return 0

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        """What else the planner must know: of views that samples lack, of a kernel, of a mixture."""
        return {}

    def _more_of_task(self, session: Session, given: Given, specification: Specification) -> dict[str, Any]:
        """What else is to be fitted: samples in a graph, several views, features that a kernel makes."""
        return {}

    def _task(self, session: Session, given: Given, specification: Specification | None = None) -> Task:
        """What is to be fitted, by the specification of the model or by another."""
        specification = self._make_specification(given) if specification is None else specification
        options = Options(
            tolerance=float(self.tol),
            max_iterations=int(self.max_iter or 0),
            random_state=self.random_state,
            floor_parts=self._floor_parts(specification),
            refuse_zero_rows=self.zero_rows == "raise",
            refuse_missing=self._missing == "raise",
            prior=self._prior,
        )
        task = Task(
            self._problem(session, given, specification),
            specification,
            options,
            targets=None if given.targets is None else given.targets.rows,
            earlier=given.earlier,
        )
        return replace(task, **self._more_of_task(session, given, specification))

    def _planned(self, task: Task, session: Session) -> Plan:
        return make_plan(task.problem, session.available, ROUTES, "auto" if self.solver == "em" else self.solver)

    def _grids(self, source: DataSource) -> dict[str | None, Grid | None]:
        """The grids over which the features of each view lie, under None those of a single one."""
        return {None: source.labels.grid}

    def _planned_again(self, plan: Plan, task: Task, session: Session, choices: dict[str, Any]) -> Plan:
        """The plan with the choices that a checkpoint has kept."""
        if {name: getattr(plan, name) for name in CHOICES} == choices:
            return plan
        return replace(make_plan(task.problem, session.available, ROUTES, choices["solver"]), **choices)

    def _plan(self, given: Given, client: Where) -> Plan:
        """What a fit will cost."""
        with connect(given.source, client=client, planned=True) as session:
            return self._planned(self._task(session, given), session)

    def _fit(
        self, given: Given, client: Where, callbacks: Sequence[Callback], checkpoint: PathLike | None, resume: bool
    ) -> Self:
        """Fit the model to what is given, and tell what a user should know of it."""
        callbacks = require_callbacks(callbacks)
        rows = None if given.targets is None else given.targets.rows
        # Most of the driver's matrices are small, where BLAS threads would only wait for each other, and they would
        # make bits depend on cores; tall ones are cut into slabs (`operators.tall`).
        with (
            connect(given.source, targets=rows, client=client) as session,
            ExitStack() as opened,
            pinned(),
            sound_algebra(),
            cells_named(self._grids(given.source)),
        ):
            task = self._task(session, given)
            plan = self._planned(task, session)
            choices = {name: getattr(plan, name) for name in CHOICES}
            if checkpoint is not None:
                require_apart(checkpoint, *given.places)
            journal = opened.enter_context(checkpointed(checkpoint, resume, self, given.named(), choices, session))
            if journal is not None:
                session.journal, plan = journal, self._planned_again(plan, task, session, journal.choices)
            session.keep(plan.cache_bytes)
            if self.zero_rows == "keep" and self._missing == "raise":
                session.count_beside(self._count(given.source))
            route, listeners = ROUTES[plan.solver], Listeners(callbacks, plan)
            with listeners.told():
                earlier = given.earlier
                shift = self._initial_mean(session, observed=route.observed) if earlier is None else earlier.shift
                session.on_pass, session.on_progress = listeners.on_pass, listeners.on_task
                outcome = route.fit(task, plan, shift, session.run, listeners.on_iteration)
                require_sound(outcome)
                lost = lost_digits(outcome, shift, task.settled_options(plan).precision)
                head = self._estimated_head(session, outcome, given)
        outcome = replace(outcome, advice=(*outcome.advice, *lost, *remarks(session.counted, given.targets)))
        self._keep(Fitted(outcome, tuple(session.passes), given.source.labels, plan, head), task, given)
        if not given.adding:
            self._read, self._place = (), None
        self._read += given.places
        self._checkpoint = None if journal is None else journal.identity
        for text in outcome.advice:
            kind, _, words = text.partition(": ")
            warnings.warn(words, WARNINGS[kind], stacklevel=outside())
        return self

    def _estimated_head(self, session: Session, outcome: Outcome, given: Given) -> Head | None:
        """What predicts targets, where the model has some and the outcome does not do it."""
        return None

    def _count(self, source: DataSource) -> Callable[[Block], int]:
        """Counts the rows of zeros in a block."""
        return count_empty_rows

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        """Make the fit the model's."""
        assert fitted.plan is not None
        self._become(fitted, fitted.plan.summary())

    def _become(self, fitted: Fitted, plan: dict[str, str | int]) -> None:
        outcome = fitted.outcome
        self._parameters, self._specification = outcome.parameters, outcome.specification
        self.n_components_ = outcome.specification.n_components - int(outcome.specification.row_effects)
        self._fitted, self.plan_ = fitted, plan
        self._publish(outcome, fitted.passes)

    def _initial_mean(self, session: Session, *, observed: bool) -> Array:
        """A shift near the mean of the features, or of their observed entries."""
        return initial_mean(session, observed=observed)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        """The fitted attributes in scikit-learn's manner."""
        raise NotImplementedError

    def _publish_course(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        """How the fit went."""
        self.log_likelihood_ = outcome.log_likelihood
        self.n_iter_ = outcome.iterations
        self.n_passes_ = sum(record.name != INITIAL_MEAN for record in passes)
        self.converged_ = outcome.converged
        self.n_samples_ = outcome.samples
        self.history_ = history_dataset(outcome.history, passes)

    @property
    def _n_features_out(self) -> int:
        return self._specification.n_components

    def _require_fitted(self) -> Fitted:
        super()._require_fitted()
        return self._fitted

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the features (D,), where the data of the fit had names, and all of them were texts."""
        return feature_names(self, self._require_fitted().labels.features)

    def _known_features(self, *, holes: bool | None = None) -> KnownFeatures:
        """What the model asks of new data; `holes` says whether NaN is a missing entry (None: as in the fit)."""
        known = self._require_fitted().labels
        around = ", or fit around NaN with missing='nan'" if hasattr(self, "missing") else ""
        dense = ONLY_DENSE if self._missing == "nan" else ONLY_DENSE_FILLED if holes else ""
        holes = self._missing != "raise" if holes is None else holes
        return KnownFeatures(
            type(self).__name__,
            self.n_features_in_,
            known.features,
            holes=holes,
            advice=around,
            dense=dense,
            grid=known.grid,
            place=self._place,
        )

    def _latent(self, Z: ScoresLike) -> npt.NDArray[Any]:
        """Latent variables (n, K) that a user gives, in the order of the components.

        Errors: NotFittedError; DataError for another number of components, or for labels in another order.
        """
        self._require_fitted()
        given, k = unwrap(Z), self._n_features_out
        scores = refuse_mask(given.data, "Z")
        if scores.ndim != 2 or scores.shape[1] != k:
            raise DataError(f"the scores have shape {scores.shape}; expected samples × {k} components")
        if given.labels is not None:
            for names in (self.component_names_, self.get_feature_names_out()):
                require_order(names, given.labels.features, "the labels of the components")
        return scores

    @property
    def component_names_(self) -> npt.NDArray[np.int64]:
        """Labels of the latent dimension, from 0."""
        return np.arange(self._specification.n_components)

    @property
    def _own(self) -> slice:
        """Which of the stacked features of the model are not targets."""
        return slice(None)

    @property
    def _own_loadings(self) -> Array:
        """The loadings of the features that are not targets, as users see them."""
        return self._parameters.loadings[self._own]

    def _drawn(self, n_samples: int, random_state: Seed) -> Array:
        """Samples of all stacked features: z ~ N(0, I), x = Wz + μ + ε."""
        self._require_fitted()
        rng, p = np.random.default_rng(random_state), self._parameters
        z = rng.standard_normal((n_samples, p.loadings.shape[1]))
        noise = np.sqrt(self._specification.per_feature(p.noise_variance))
        return np.asarray(z @ p.loadings.T + p.mean + rng.standard_normal((n_samples, len(p.mean))) * noise)

    def _covariance(self, own: slice, other: slice | None = None) -> Array:
        """The model's covariance of some of the stacked features, or that between them and others."""
        loadings = self._parameters.loadings
        mine, theirs = loadings[own], loadings[own if other is None else other]
        require_room(len(mine), len(theirs), "the covariance of the features", FACTORS)
        found = np.asarray(mine @ theirs.T)
        if other is None or other == own:
            found.flat[:: len(mine) + 1] += self._specification.per_feature(self._parameters.noise_variance)[own]
        return found

    @property
    def _noise_is_given(self) -> bool:
        """Whether the noise variances are their floors."""
        return False

    def _parameter_variables(self) -> dict[str, Any]:
        """Loadings, mean and noise."""
        return uncertainty_variables(self._parameters.of(self._own)) | {
            "loadings": self._own_loadings,
            "mean": self._parameters.mean[self._own],
            noise_name(self._shared, "noise_variance"): self._parameters.noise_variance,
            noise_name(self._shared, "noise_floor"): self._specification.floors,
            noise_name(self._shared, "at_floor"): np.array(self._fitted.outcome.at_floor),
        }

    def _over_dimensions(self, dataset: xr.Dataset) -> xr.Dataset:
        labels = self._fitted.labels
        return dataset if labels.grid is None else spread_all(dataset, labels.dims[1], labels.grid)

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        fitted = self._require_fitted()
        outcome = fitted.outcome
        found: dict[str, Any] = {
            **self._parameter_variables(),
            "view_samples": np.array(outcome.view_samples),
            "total_variance": np.array(outcome.total_variance),
            "view": np.array([view.name for view in self._specification.views]),
            "component": self.component_names_,
            **history_variables(self.history_),
        }
        if fitted.labels.features is not None:
            found["feature"] = np.asarray(fitted.labels.features)
        return found | (grid_variables(fitted.labels.grid) if whole and fitted.labels.grid else {})

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        fitted = self._require_fitted()
        outcome = fitted.outcome
        found = {name: getattr(outcome, name) for name in ("log_likelihood", "converged", "iterations", "samples")}
        found |= {"passes": self.n_passes_, "dims": fitted.labels.dims}
        more = {name: getattr(outcome, name) for name in ("checked_log_likelihood", "advice")}
        more |= {"patterns": self._specification.patterns, "view_sizes": self._specification.sizes, "plan": self.plan_}
        more |= {"grid": grid_attributes(fitted.labels.grid)} if fitted.labels.grid else {}
        return found | more if whole else found

    def _facts(self) -> Facts:
        outcome, passes = self._require_fitted().outcome, self.history_
        return {
            "kind": type(self).__name__,
            "parameters": self.get_params(),
            "samples": self.n_samples_,
            "features": self.n_features_in_,
            "log_likelihood": self.log_likelihood_,
            "converged": self.converged_,
            "iterations": self.n_iter_,
            "solver": self.plan_["solver"],
            "passes": self.n_passes_,
            "bytes_read": int(passes["pass_bytes_read"].sum()),
            "seconds": float(passes["pass_seconds"].sum()),
            "noise": self._noise_facts(),
            "components": self._component_facts(),
            "warnings": [text.partition(": ")[2] for text in outcome.advice],
        }

    def _words(self) -> dict[str, str]:
        found = self._facts()
        reading = f"{found['bytes_read'] / 1e6:,.1f} MB read, {found['seconds']:.1f} s"
        return {
            "data": f"{found['samples']:,} samples × {found['features']:,} features",
            "log-likelihood": f"{found['log_likelihood']:.10g} nats",
            "converged": "yes" if found["converged"] else "NO",
            "passes": f"{found['passes']} over the data by {found['solver']}, {reading}",
        }

    def _noise_facts(self) -> list[Facts]:
        """The noise of each view."""
        return noise_facts(self._fitted.outcome)

    def _component_facts(self) -> list[Facts]:
        """Each component, with the features of the largest loadings."""
        fitted, loadings = self._fitted, self._own_loadings
        names = feature_words(fitted.labels, len(loadings))
        return component_facts(loadings, names, total_variance(fitted.outcome, self._specification, 1))

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        first, second = attributes["dims"]
        grid = restored_grid(values, attributes["grid"]) if "grid" in attributes else None
        labels = AxisLabels((first, second), None, values.get("feature"), grid=grid)
        outcome = self._restored_outcome(values, attributes)
        self._become(Fitted(outcome, restored_passes(values), labels), attributes["plan"])

    def _restored_outcome(self, values: dict[str, Any], attributes: dict[str, Any]) -> Outcome:
        parameters, shared = self._restored_parameters(values), self._shared
        made = restored_specification(values, attributes, parameters, shared=shared, fixed=self._noise_is_given)
        made = replace(made, row_effects=self._row_effects)
        at_floor = tuple(values[noise_name(shared, "at_floor")].tolist())
        return restored_outcome(values, attributes, parameters, made, at_floor)

    def _restored_parameters(self, values: dict[str, Any]) -> Parameters:
        loadings, mean = values["loadings"], values["mean"]
        noise = values[noise_name(self._shared, "noise_variance")]
        return Parameters(loadings, mean, noise, restored_covariance(values, loadings), values.get("mean_variance"))


def remarks(zero_rows: int, encoded: EncodedTargets | None) -> Iterator[str]:
    """What is odd about the data and was fitted all the same."""
    if zero_rows:
        yield (
            f"data: {number_of(zero_rows, 'row is', 'rows are')} all zeros, and fitted so; drop them where they stand "
            "for nothing (dlatent ingest --zero-rows drop), or see where they are with zero_rows='raise'"
        )
    counts = None if encoded is None else encoded.class_counts
    if encoded is not None and counts is not None and (counts == 1).any():
        lone = encoded.encoding.names[counts == 1].tolist()
        yield (
            f"data: {len(lone)} of {len(counts)} classes have one labelled row, for example {lone[0]!r}; nothing tells "
            "their noise, so merge or unlabel them, or pass target_type='regression' if y are numbers"
        )
