"""Probabilistic relational PCA: documents that cite, pages that link, products bought together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import xarray as xr

from dlatent.arrays import Array, DataSource, Graph
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.graph import Edges, Entries
from dlatent.fitted.linear import LinearGaussian
from dlatent.gaussian.specification import Specification
from dlatent.models import feature_methods, row_methods, target_methods
from dlatent.models import task as tasks
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARED,
    GraphSolver,
    Head,
    Parameter,
    Prior,
    Start,
    TargetType,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Data, GraphLike, Mask, PathLike, TargetsLike
from dlatent.models.map_rows import open_edges
from dlatent.models.model import LinearModel
from dlatent.models.row_methods import RowsRun
from dlatent.models.scikit import attribute
from dlatent.models.table import table_fields, table_task, with_targets
from dlatent.models.task import FitRun, Known, Task
from dlatent.operators import given_precision, graph_precision
from dlatent.operators.given_precision import GivenPrecision
from dlatent.operators.graph_precision import EXACT_COMPONENT, EXACT_SAMPLES, Estimate, Precision
from dlatent.operators.probes import probe_pass, probe_source
from dlatent.passes import Run
from dlatent.solvers.graph.samples import graph_log_likelihood
from dlatent.solvers.plan import Plan
from dlatent.solvers.task import Relation
from dlatent.solvers.task import Task as SolverTask
from dlatent.stores.graph.open import open_graph, open_precision

ALPHA = Parameter(NOT_NEGATIVE, "float", "α ≥ 0, the weight of a sample beside its neighbours.", short="A")
GAMMA = Parameter(
    NOT_NEGATIVE,
    "float",
    "γ ≥ 0, the weight of the features alone.  With 0 the precision may be singular: its rank takes the place of N "
    "(errata 17), found for connected components of up to 4,000 samples.",
    short="G",
)
SOLVER = choice(
    GraphSolver,
    'How the maximum is found.  "auto" takes the cheaper of two that find the global maximum from eigenvectors (PRPCA '
    '(17)–(18)): "covariance" (one pass, D² numbers) and "krylov" (about ten passes); "em" iterates (19)–(22).',
)
START = choice(Start, 'Where "em" begins; "pca" as in the paper.')
START_NOISE = Parameter(
    POSITIVE.or_none(),
    "float",
    'σ² at which "em" begins with `start="pca"`, in squared units of the features (the paper has 1e-6); by default '
    "that of the start.",
    short="VARIANCE",
)
PRIOR = replace(
    SHARED["prior"],
    text='Prior of the loadings.  "auto" and "ml" are none: maximum likelihood.  "ard" (automatic relevance '
    "determination) gives those of each component a normal prior whose variance the evidence chooses, and switches off "
    "components that the data do not support.  A number is the variance of all loadings, in squared units of the "
    "features.",
)


@dataclass(frozen=True)
class Relating:
    """Samples depend on each other by Δ, which a graph makes or is given in its place; where "em" begins."""

    graph: Graph
    precision: Precision | GivenPrecision
    start: str
    start_noise: float | None

    def shape(self) -> dict[str, Any]:
        """Whether the precision is given."""
        return {"given_precision": self.graph.precision}

    def relation(self, specification: Specification) -> Relation:
        """Δ and its rank.  Errors: DataError where there are no fewer components."""
        rank, partly = self._rank(), len(specification.patterns) > 1
        if specification.n_components >= rank:
            instead = "" if self.graph.precision else ", or gamma > 0"
            raise DataError(f"n_components is {specification.n_components}, but Δ has rank {rank}; use fewer{instead}")
        return Relation(self.precision, rank, self.start, self.start_noise, self.graph if partly else None)

    def settled(self, task: SolverTask, plan: Plan, run: Run) -> SolverTask:
        """The task as it is."""
        return task

    def _rank(self) -> int:
        """Rank of Δ; a given one that is too large to be counted is taken as definite."""
        graph = self.graph
        if graph.precision and graph.samples <= EXACT_COMPONENT:
            return given_precision.rank(whole(graph))
        if isinstance(self.precision, Precision) and self.precision.gamma == 0:
            return graph_precision.rank(whole(graph), self.precision)
        return graph.samples


def whole(graph: Graph) -> sp.csr_array:
    """The adjacency matrix in memory, for what factorises it."""
    return graph.rows.load(0, graph.samples)


def related(model: Any, task: Task, graph: GraphLike, precision: GraphLike = None) -> Task:
    """The task of samples in a graph, or of a precision.  Errors: DataError where this is none between them."""
    between = opened(model, graph, precision, task.source)
    delta = GivenPrecision() if between.precision else model.precision
    relating = Relating(between, delta, model.start, model.start_noise)
    return replace(task, between=relating, fitted=fitted_related)


def opened(model: Any, graph: GraphLike, precision: GraphLike, source: DataSource | None = None) -> Graph:
    """The graph between the samples, or the precision that takes its place, with its α and γ.

    Errors: DataError where both are given, or α or γ beside a precision; for edges that are none between the samples.
    """
    if precision is None:
        if source is None:
            return open_graph(graph)
        edges = open_edges(graph, source)
        if not edges.entries and not model.alpha and not model.gamma:
            raise DataError("alpha and gamma are 0 and there is no edge, so that Δ is zero; give alpha > 0")
        return edges
    if graph is not None:
        raise DataError("graph= and precision= both say what is between the samples; give one of them")
    for name in ("alpha", "gamma"):
        if getattr(model, name) != getattr(type(model), name):
            raise DataError(
                f"{name} makes a precision of a graph, and precision= is one already; leave {name} out, or give the "
                "graph as graph=…"
            )
    if source is None:
        return open_precision(precision)
    return open_precision(precision, samples=source.shape[0], origin=source.labels.origin)


def fitted_related(task: Task, known: Known) -> LinearGaussian:
    """The fitted model, with what is between the samples."""
    relation, graph = known.asked.relation, task.graph
    assert relation is not None
    assert graph is not None
    delta, between = relation.precision, Entries(graph.entries, relation.rank)
    edges = Edges(*delta, graph.entries // 2, relation.rank) if isinstance(delta, Precision) else None
    return LinearGaussian(**table_fields(task, known), between=edges or between)


def check_start(model: Any) -> None:
    """Refuse a noise variance of a start that has none.  Errors: DataError."""
    if model.start_noise is not None and model.start != "pca":
        raise DataError("start_noise belongs to start='pca', the start of the paper; give both, or none")


@attribute
def precision_numbers(self: Any) -> Precision:
    """The numbers of Δ = γI + (αI + A)²."""
    return Precision(float(self.alpha), float(self.gamma))


@attribute
def precision_rank_(self: LinearModel) -> int:
    """int: Rank of Δ, N for γ > 0.  That of a given precision is counted up to 4,000 samples; larger ones are taken as
    definite, with rank N."""
    fitted: Any = self._model
    rank: int = fitted.between.rank
    return rank


@described
def log_determinant(
    self: Any,
    graph: GraphLike = None,
    *,
    precision: GraphLike = None,
    method: str = "auto",
    probes: int = 32,
    steps: int = 100,
    client: Where = None,
) -> Estimate:
    r"""log|Δ|, which no fit needs.

    .. math:: \log |\Delta| = \sum_i \log\left(\gamma + (\alpha + \lambda_i)^2\right)

    over the eigenvalues λ_i of the adjacency matrix; of a given precision Σ log λ_i over its own.

    Parameters
    ----------
    method : {"auto", "exact", "lanczos"}, default "auto"
        "exact" is a sparse factorisation (of a singular Δ over the non-zero eigenvalues), "lanczos" stochastic
        Lanczos quadrature; "auto" is exact up to 20,000 samples.
    probes : int, default 32
        Random vectors of "lanczos".
    steps : int, default 100
        Steps of "lanczos".

    Returns
    -------
    Estimate
        The value in nats, and its standard error (0 where it is exact).

    Raises
    ------
    DataError
        For other methods, or where Δ is singular and too large for its eigenvalues.
    """
    if method not in ("auto", "exact", "lanczos"):
        raise DataError(f"method is {method!r}; expected 'auto', 'exact' or 'lanczos'")
    between = opened(self, graph, precision)
    exact = method == "exact" or (method == "auto" and between.samples <= EXACT_SAMPLES)
    if exact and between.precision:
        return Estimate(given_precision.log_determinant(whole(between)), 0.0)
    if not between.precision and (exact or self.gamma == 0):
        return Estimate(graph_precision.log_determinant(whole(between), self.precision), 0.0)
    if probes < 2 or steps < 2:
        raise DataError(f"{probes} probes and {steps} steps were asked for; an estimate needs 2 of each")
    delta = GivenPrecision() if between.precision else self.precision
    with connect(probe_source(between.samples, probes), client=client, cache_bytes=0) as session:
        values, changes = session.run(probe_pass(between, delta, steps))
    return graph_precision.estimated(values, changes)


@described
def node_variance(
    self: Any, graph: GraphLike = None, rows: npt.ArrayLike | None = None, *, precision: GraphLike = None
) -> Array:
    """(Δ⁻¹)_ii of samples in a graph, by which the posterior covariance of each is multiplied.

    Parameters
    ----------
    rows : array of int of shape (n,), optional
        Positions of samples; by default all.

    Returns
    -------
    ndarray of shape (n,)
        A number for each.

    Raises
    ------
    DataError
        For γ = 0, for a singular precision, or for more than 20,000 samples.
    """
    between = opened(self, graph, precision)
    if between.samples > EXACT_SAMPLES:
        raise DataError(
            f"the graph has {between.samples} samples; (Δ⁻¹)_ii is a factorisation, done up to {EXACT_SAMPLES}"
        )
    chosen = np.arange(between.samples) if rows is None else np.asarray(rows)
    if between.precision:
        return given_precision.inverse_diagonal(whole(between), chosen)
    return graph_precision.inverse_diagonal(whole(between), self.precision, chosen)


def joint_log_likelihood(
    model: Any,
    X: Data,
    graph: GraphLike,
    precision: GraphLike,
    targets: Array | None,
    client: Where,
    determinant: dict[str, Any],
) -> Estimate:
    """Log-likelihood of samples in a graph together, or of a precision, with ½ (D + L) log|Δ|."""
    task = related(model, table_task(model, X, before=model._fitted()), graph, precision)
    between = {"graph" if precision is None else "precision": task.graph}
    constant, specification = model.log_determinant(**between, client=client, **determinant), model._model.specification
    if targets is not None:
        partly = bool(np.isnan(targets[:, 0]).any())
        specification = replace(specification, patterns=((0, 1), (0,)) if partly else ((0, 1),))
    task = replace(task, specification=specification)
    with connect(task.source, targets=targets, client=client, graph=task.graph) as session:
        asked = task.for_solver(session)
        plan = tasks.planned(task, asked, session)
        session.keep(plan.cache_bytes)
        value = graph_log_likelihood(asked, plan, model._model.parameters, session.run)
    width = sum(specification.sizes)
    return Estimate(value + 0.5 * width * constant.value, 0.5 * width * constant.standard_error)


def require_completable(model: Any, samples: int) -> None:
    """Refuse samples without targets where the rest of a graph cannot tell of them.  Errors: DataError."""
    if model.gamma == 0:
        raise DataError(
            "some samples have no targets, and with γ = 0 the precision may be singular, which does not tell what "
            "their neighbours say of them; use gamma=1e-6"
        )
    if samples > EXACT_SAMPLES:
        raise DataError(
            f"some of {samples:,} samples have no targets; with a graph that takes a factorisation, done up to "
            f"{EXACT_SAMPLES:,} samples: use SupervisedPPCA without the graph, RelationalPPCA without targets, or "
            "fit the labelled samples and the edges between them"
        )


@model
class RelationalPPCA(LinearModel):
    r"""Probabilistic relational PCA of samples in a graph, by maximum likelihood.

    .. math:: T \sim N(1 \mu^\top, \Delta^{-1}, W W^\top + \sigma^2 I), \qquad
        \Delta = \gamma I + (\alpha I + A)^\top (\alpha I + A)

    T are the samples × features, A the adjacency matrix.  Samples in a graph share what they say: the fit is PCA of the
    features summed over each sample and its neighbours, (αI + A)(T − 1μᵀ), with a little of the features alone (γ).
    With A = 0, α = 0, γ = 1 it is PPCA.  Variances are those of H = (T − 1μᵀ)ᵀΔ(T − 1μᵀ)/N.  Another Δ is given as
    `precision=` in the place of a graph.

    Attributes
    ----------
    log_likelihood_ : float
        In nats, without ½ D log|Δ|, a constant of the graph; see `log_likelihood`.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by Δ1.

    References
    ----------
    Li, Yeung and Zhang (2009), with errata 15–19; rows are samples here.  Read more in :doc:`/models/relational`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dlatent import RelationalPPCA
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> ring = sp.csr_array(np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0))
    >>> model = RelationalPPCA(2).fit(X, graph=ring)
    >>> model.precision_rank_
    30
    """

    alpha: float = parameter(ALPHA, default=1.0)
    gamma: float = parameter(GAMMA, default=1e-6)
    solver: GraphSolver = parameter(SOLVER, default="auto")
    start: Start = parameter(START, default="random")
    start_noise: float | None = parameter(START_NOISE, default=None)
    prior: Prior | float = parameter(PRIOR, default="auto")

    _rules = (check_start,)

    def _task(
        self,
        X: Data,
        *,
        graph: GraphLike = None,
        precision: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        **data: Any,
    ) -> Task:
        return related(self, table_task(self, X, dim, weights), graph, precision)

    @described
    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        precision: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, with what its neighbour sums move; reads the graph once, and no data."""
        task = self._task(X, graph=graph, precision=precision, dim=dim, weights=weights)
        return tasks.plan(task, client)

    @described
    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        graph: GraphLike = None,
        precision: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to samples × features and the graph between the samples, or a precision.

        Raises
        ------
        DataError
            For data, a graph or a precision that cannot be fitted, naming row, column and block, the edge or the entry.
        """
        task = self._task(X, graph=graph, precision=precision, dim=dim, weights=weights)
        return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))

    @described
    def posterior(
        self, X: Data, *, graph: GraphLike = None, precision: GraphLike = None, client: Where = None
    ) -> xr.Dataset:
        """The distribution of the latent variables given the features (PRPCA (19)).

        Parameters
        ----------
        graph : sparse matrix, networkx graph, path or URL, optional
            Edges between these samples; by default there are none.
        precision : sparse matrix, path or URL, optional
            The precision between these samples, of a model that was fitted to one; by default I.

        Returns
        -------
        xarray.Dataset
            `scores` (sample, component), `covariance` (component, component_2), which is M⁻¹, and `node_variance`
            (sample).  The covariance of a sample is its `node_variance` times M⁻¹: (Δ⁻¹)_ii, or 1/(γ + α²) where there
            are no edges, and 1 where a precision would say otherwise.

        Raises
        ------
        DataError
            For other features, for a singular Δ, or for more than 20,000 samples with edges.
        """
        dataset = row_methods.posteriors(self, X, None, RowsRun(client=client))
        samples, dim = dataset.sizes[dataset["scores"].dims[0]], dataset["scores"].dims[0]
        if graph is None and precision is None:
            each = np.full(samples, 1.0 / self._model.row_precision)
        else:
            each = self.node_variance(graph, precision=precision)
        if len(each) != samples:
            raise DataError(f"the edges join {len(each)} samples, but {samples} were given")
        return dataset.assign(node_variance=(dim, each))

    @described
    def log_likelihood(
        self,
        X: Data,
        graph: GraphLike = None,
        *,
        precision: GraphLike = None,
        client: Where = None,
        **determinant: str | int,
    ) -> Estimate:
        """log p(T) of samples in a graph together, with ½ D log|Δ|.

        Parameters
        ----------
        **determinant : optional
            Keywords of `log_determinant`.

        Returns
        -------
        Estimate
            The value in nats, and its standard error (0 where log|Δ| is exact); never compare it across γ.
        """
        return joint_log_likelihood(self, X, graph, precision, None, client, determinant)

    log_determinant, node_variance = log_determinant, node_variance
    precision, precision_rank_ = precision_numbers, precision_rank_
    transform, score_samples, score = row_methods.transform, row_methods.score_samples, row_methods.score
    impute, impute_variance, sample = row_methods.impute, row_methods.impute_variance, feature_methods.sample
    components_, mean_ = feature_methods.components_, feature_methods.mean_
    inverse_transform, get_covariance = feature_methods.inverse_transform, feature_methods.get_covariance
    get_precision = feature_methods.get_precision


@model
class RelationalSupervisedPPCA(LinearModel):
    """Supervised PPCA of samples in a graph: features and targets share z, samples the precision Δ of RelationalPPCA.

    H takes the place of the joint covariance of features and targets.  Where some samples have no targets, the
    likelihood is that of all features and of the targets that are there; for gamma > 0, solver "covariance" or "em",
    and up to 20,000 samples, whose rows come together on the driver.

    Attributes
    ----------
    log_likelihood_ : float
        In nats, the targets on their rank, without ½ [(D + L) log|Δ| − L log|Δ_UU|], a constant of the graph and of the
        samples U without targets, with L columns of targets.
    mean_ : ndarray of shape (n_features,)
        μ, weighted by Δ1.

    References
    ----------
    Li, Yeung and Zhang (2009) and Yu et al. (2006), joined.  Read more in :doc:`/models/relational`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from dlatent import RelationalSupervisedPPCA
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> ring = sp.csr_array(np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0))
    >>> model = RelationalSupervisedPPCA(2).fit(X, X[:, 0], graph=ring)
    >>> model.predict(X).shape
    (30,)
    """

    alpha: float = parameter(ALPHA, default=1.0)
    gamma: float = parameter(GAMMA, default=1e-6)
    solver: GraphSolver = parameter(SOLVER, default="auto")
    start: Start = parameter(START, default="random")
    start_noise: float | None = parameter(START_NOISE, default=None)
    target_type: TargetType = parameter(default="auto")
    target_noise_floor: float = parameter(default=1e-3)
    head: Head = parameter(default="auto")

    _rules = (check_start,)

    def __sklearn_tags__(self) -> Any:
        return target_methods.target_tags(self, super().__sklearn_tags__())

    def _task(
        self,
        X: Data,
        *,
        y: TargetsLike = None,
        labelled: Mask = None,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        **data: Any,
    ) -> Task:
        task = with_targets(table_task(self, X, dim, weights), y, labelled, self)
        if len(task.specification.patterns) > 1:
            require_completable(self, task.source.shape[0])
        return related(self, task, graph)

    @described
    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        labelled: Mask = None,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, with what its neighbour sums move; reads the graph once, and no features.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets)
            The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.
        """
        return tasks.plan(self._task(X, y=y, labelled=labelled, graph=graph, dim=dim, weights=weights), client)

    @described
    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        labelled: Mask = None,
        graph: GraphLike = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to features, targets of all samples or of some, and the graph between the samples.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets)
            The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.

        Raises
        ------
        DataError
            For data, targets or a graph that cannot be fitted; also where some samples have no targets, and γ = 0 or
            there are more than 20,000.
        """
        task = self._task(X, y=y, labelled=labelled, graph=graph, dim=dim, weights=weights)
        return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))

    @described
    def posterior(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables of samples without edges.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets), optional
            Targets as in `fit`.  Of samples without, and without `y`, the features alone count.

        Returns
        -------
        xarray.Dataset
            As in SupervisedPPCA.posterior.
        """
        dataset = row_methods.posterior(self, X, y, client=client)
        return dataset.assign(covariance=dataset["covariance"] / self._model.row_precision)

    @described
    def log_likelihood(
        self, X: Data, y: TargetsLike, graph: GraphLike, *, client: Where = None, **determinant: str | int
    ) -> Estimate:
        """log p of features and targets of samples in a graph together, with the constant of the graph.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Targets as in `fit`; those that are missing are integrated out.
        **determinant : optional
            Keywords of `log_determinant`.

        Returns
        -------
        Estimate
            The value in nats, and its standard error (0 where log|Δ| is exact); never compare it across γ.
        """
        targets = row_methods.encoded(self, X, y)
        if targets is not None and np.isnan(targets[:, 0]).any():
            require_completable(self, len(targets))
        return joint_log_likelihood(self, X, graph, None, targets, client, determinant)

    log_determinant, node_variance = log_determinant, node_variance
    precision, precision_rank_ = precision_numbers, precision_rank_
    transform, score_samples, score = row_methods.transform, row_methods.score_samples, row_methods.score
    impute, impute_variance, sample = row_methods.impute, row_methods.impute_variance, target_methods.sample
    components_, mean_ = feature_methods.components_, feature_methods.mean_
    inverse_transform, get_covariance = feature_methods.inverse_transform, feature_methods.get_covariance
    get_precision = feature_methods.get_precision
    predict, predict_proba = target_methods.predict, target_methods.predict_proba
    decision_function = target_methods.decision_function
    predictive_variance = target_methods.predictive_variance
    target_components_, target_mean_ = target_methods.target_components_, target_methods.target_mean_
    target_noise_variance_, classes_ = target_methods.target_noise_variance_, target_methods.classes_
