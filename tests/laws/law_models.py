"""Models on small random data, and what they say of it: the rows of the table of relations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

import dlatent as d
from tests.graphs import power_law_graph
from tests.observations.cases import case
from tests.simulators import simulate


@dataclass(frozen=True)
class Problem:
    """What a model is fitted to.  Of joint samples, x has the features of all views, NaN where a sample lacks one."""

    x: Any
    y: Any = None
    between: dict[str, Any] = field(default_factory=dict)  # graph or precision
    beside: dict[str, Any] = field(default_factory=dict)  # uncertainty, offset, covariates
    weights: Any = None
    sizes: tuple[int, ...] = ()  # features of each view
    wrap: Callable[[Any], Any] = np.asarray  # the container of the data
    options: dict[str, Any] = field(default_factory=dict)  # other hyperparameters
    shuffle: int | None = None  # a seed for orders of the rows of each view

    def rows(self, order: Any) -> Problem:
        """These samples, in this order."""
        return replace(
            self,
            x=self.x[order],
            y=None if self.y is None else self.y[order],
            between={name: sp.csr_array(one[order][:, order]) for name, one in self.between.items()},
            beside={name: one[order] for name, one in self.beside.items()},
            weights=None if self.weights is None else self.weights[order],
        )

    def features(self, function: Callable[[Any], Any]) -> Problem:
        """Features changed by a function; of views, each by itself."""
        parts = [function(part) for part in np.split(self.x, np.cumsum(self.sizes)[:-1], axis=1)]
        return replace(self, x=np.hstack(parts), sizes=tuple(part.shape[1] for part in parts) if self.sizes else ())

    def in_parts(self, *parts: int | None) -> dict[str, Any]:
        """A graph or precision of parts that nothing joins: these samples (None), or so many single ones."""
        return {
            name: sp.csr_array(sp.block_diag([one if n is None else (name == "precision") * sp.eye(n) for n in parts]))
            for name, one in self.between.items()
        }


class Answer(NamedTuple):
    """What a fitted model says: the log-likelihood, and for each sample its density, scores, expected entries and
    expected targets."""

    total: float
    density: Any
    scores: Any
    entries: Any
    targets: Any

    def rows(self, order: Any) -> Answer:
        """Of these samples."""
        return Answer(self.total, *(None if one is None else one[order] for one in self[1:]))

    def expected(self, function: Callable[[Any], Any]) -> Answer:
        """With other expected entries."""
        return self if self.entries is None else self._replace(entries=function(self.entries))


def answer(estimator: Any, problem: Problem) -> tuple[Answer, Any]:
    """What a model says that is fitted to these data, and the model."""
    model = clone(estimator).set_params(**problem.options)
    if problem.sizes:
        return _of_views(model, problem), model
    x, beside = problem.wrap(problem.x), problem.beside
    weights = {} if problem.weights is None else {"sample_weight": problem.weights}
    model.fit(x, *(() if problem.y is None else (problem.y,)), **problem.between, **beside, **weights)
    edges = problem.between if isinstance(model, d.GraphPPCA) else {}
    scores = np.asarray(model.transform(x, **beside, **edges))
    if isinstance(model, d.LocallyLinearEmbedding):
        return Answer(model.eigenvalues_.sum(), None, model.embedding_, None, None), model
    entries = targets = None
    if model.get_params().get("missing") == "nan":
        entries = np.asarray(model.impute(x, **beside, **edges))
    elif isinstance(model, d.PPCAMixture):
        entries, scores, targets = model.reconstruct(x), None, np.sort(model.predict_proba(x), axis=1)
    elif not hasattr(model, "dual_components_"):
        entries = np.asarray(model.inverse_transform(scores))
    if hasattr(model, "predict_proba") and hasattr(model, "classes_"):
        targets = np.asarray(model.predict_proba(x))
    elif hasattr(model, "predict") and problem.y is not None:
        targets = np.asarray(model.predict(x)).reshape(len(problem.x), -1)
    density = np.asarray(model.score_samples(x, **beside))
    return Answer(model.log_likelihood_, density, scores, entries, targets), model


def views(problem: Problem) -> tuple[dict[str, Any], Any]:
    """Each view, and the rows of all samples in them, −1 where a sample lacks it."""
    parts = np.split(problem.x, np.cumsum(problem.sizes)[:-1], axis=1)
    rows = [np.flatnonzero(~np.isnan(part).all(axis=1)) for part in parts]
    if problem.shuffle is not None:
        rows = [np.random.default_rng(problem.shuffle).permutation(one) for one in rows]
    table = np.full((len(problem.x), len(parts)), -1)
    for view, one in enumerate(rows):
        table[one, view] = np.arange(len(one))
    return {f"view {i}": problem.wrap(parts[i][rows[i]]) for i in range(len(parts))}, table


def _of_views(model: Any, problem: Problem) -> Answer:
    data, table = views(problem)
    said = {"correspondence": table}
    model.fit(data, *(() if problem.y is None else (problem.y,)), **said)
    if isinstance(model, d.CorrespondenceLLE):
        return Answer(model.eigenvalues_.sum(), None, np.asarray(model.embedding_), None, None)
    scores = np.asarray(model.transform(data, **said))
    entries = np.hstack([np.asarray(model.inverse_transform(scores, view)) for view in data])
    targets = np.asarray(model.predict(data, **said)) if problem.y is not None else None
    return Answer(model.log_likelihood_, np.asarray(model.score_samples(data, **said)), scores, entries, targets)


# Data: functions of a random generator.


def shape(rng: Any) -> tuple[int, int]:
    return int(rng.integers(40, 90)), int(rng.integers(6, 10))


def numbers(rng: Any, targets: int = 0) -> Problem:
    """Two strong directions and noise; targets of the same latent variables."""
    return of_shape(rng, *shape(rng), targets)


def wide(rng: Any) -> Problem:
    """Fewer samples than features, and so are twice as many."""
    return of_shape(rng, 18, 40, 0)


def of_shape(rng: Any, n: int, width: int, targets: int) -> Problem:
    drawn = simulate(n, (width, targets), 2, noise=(0.3, 0.2), random_state=int(rng.integers(10**6)))
    return Problem(standardised(drawn.features), drawn.targets if targets else None)


def standardised(x: Any) -> Any:
    """In units of the spreads, so that a fit in these units is one of the data as they are."""
    return x / np.nanstd(x, axis=0, ddof=1)


def few_holes(rng: Any) -> Problem:
    return holes(rng, whole=of_shape(rng, 40, 5, 0))


def holes(rng: Any, targets: int = 0, whole: Problem | None = None) -> Problem:
    """Some entries of the features are missing."""
    whole = whole or numbers(rng, targets)
    gone = rng.random(whole.x.shape) < 0.15
    gone[:, 0] = False
    return replace(whole, x=standardised(np.where(gone, np.nan, whole.x)))


def some(rng: Any) -> Problem:
    """Two targets of about half of the samples."""
    whole = numbers(rng, 2)
    return replace(whole, y=np.where(rng.random((len(whole.x), 1)) < 0.5, whole.y, np.nan))


def classes(rng: Any) -> Problem:
    whole = numbers(rng, 1)
    labels = np.digitize(whole.y[:, 0], np.quantile(whole.y, [0.3, 0.6]))
    return replace(whole, y=np.where(rng.random(len(labels)) < 0.6, labels, -1))


def linked(make: Callable[..., Problem], **more: Any) -> Callable[[Any], Problem]:
    """The same, in a graph."""

    def made(rng: Any) -> Problem:
        problem = make(rng, **more)
        n = len(problem.x)
        return replace(problem, between={"graph": power_law_graph(n, 2 * n, random_state=int(rng.integers(10**6)))})

    return made


def ordered(rng: Any) -> Problem:
    """Rows in time, each like the one before, with the precision that this is."""
    problem = numbers(rng)
    n = len(problem.x)
    new = sp.eye_array(n) - sp.diags_array([np.full(n - 1, 0.6)], offsets=[-1])
    return replace(problem, between={"precision": sp.csr_array(new.T @ new)})


def measured(rng: Any) -> Problem:
    """Numbers with error bars, known offsets and a covariate."""
    problem = numbers(rng)
    bars = np.where(rng.random(problem.x.shape) < 0.05, np.inf, np.exp(rng.normal(-1.5, 0.4, problem.x.shape)))
    beside = {"uncertainty": bars, "offset": rng.normal(size=len(problem.x))}
    return replace(problem, beside={**beside, "covariates": rng.normal(size=(len(problem.x), 2))})


def entries(likelihood: str) -> Callable[[Any], Problem]:
    """Drawn as this likelihood says."""

    def made(rng: Any) -> Problem:
        x = case(likelihood, *shape(rng), seed=int(rng.integers(10**6))).entries
        return Problem(standardised(x) if likelihood.startswith("student") else x)

    return made


def clusters(rng: Any) -> Problem:
    """Two groups far apart, of different sizes."""
    problem = numbers(rng)
    return replace(problem, x=standardised(problem.x + 15.0 * (np.arange(len(problem.x)) % 3 == 0)[:, None]))


def joint(rng: Any, targets: int = 0, noise: float = 0.3) -> Problem:
    """Two views, of which some samples lack one."""
    drawn = simulate(90, (6, 5, targets), 2, noise=(noise, 1.2 * noise, 0.2), random_state=int(rng.integers(10**6)))
    x, lacks = drawn.stacked[:, :11].copy(), rng.integers(0, 4, 90)
    x[lacks == 1, :6] = np.nan
    x[lacks == 2, 6:] = np.nan
    return Problem(standardised(x), drawn.stacked[:, 11:] if targets else None, sizes=(6, 5))


def joint_holes(rng: Any) -> Problem:
    problem = joint(rng)
    gone = rng.random(problem.x.shape) < 0.1
    gone[:, [0, 6]] = False
    return replace(problem, x=np.where(gone, np.nan, problem.x))


def sheet(rng: Any, of_views: bool = False) -> Problem:
    """Points near a curved surface in four dimensions."""
    at = rng.uniform(size=(80, 2)) * [2.0, 1.0]
    x = np.column_stack([at, np.sin(2 * at[:, 0]), at[:, 1] ** 2]) + 0.01 * rng.normal(size=(80, 4))
    if not of_views:
        return Problem(standardised(x))
    both = np.hstack([x, 2.0 * x[:, ::-1] + 0.01 * rng.normal(size=x.shape)])
    both[:15, :4], both[65:, 4:] = np.nan, np.nan
    return Problem(standardised(both), sizes=(4, 4))


class Row(NamedTuple):
    """A model, data for it, how closely it agrees (heights of the likelihood, all else beside the largest number),
    whether it takes long, and the solvers with which it is fitted in turn."""

    estimator: Any
    data: Callable[[Any], Problem]
    rest: float = 1e-6
    height: float = 1e-11
    slow: bool = False
    solvers: tuple[str, ...] = ("auto",)


TIGHT: dict[str, Any] = {"tol": 1e-13, "max_iter": 5000}
ML: dict[str, Any] = {"missing": "nan", "prior": "ml", "scale": "none", **TIGHT}
ARD: dict[str, Any] = {"missing": "nan", **TIGHT}
JUDGED: dict[str, Any] = {"head": "likelihood", **TIGHT}
LINEAR, KERNEL = {"solvers": ("covariance", "krylov")}, {"solvers": ("memory", "recomputed")}
MODELS = {
    "ppca": Row(d.PPCA(2, **TIGHT), numbers, **LINEAR),
    "ppca gram": Row(d.PPCA(2, **TIGHT), wide, solvers=("gram",)),
    "ppca ard": Row(d.PPCA(5, prior="ard", **TIGHT), numbers, **LINEAR),
    "ppca spread": Row(d.PPCA(2, scale="spread", **TIGHT), numbers, **LINEAR),
    "ppca missing": Row(d.PPCA(2, **ML), holes),
    "ppca missing ard": Row(d.PPCA(2, **ARD), holes),
    "ppca measured": Row(d.PPCA(2, **TIGHT), measured),
    "factors": Row(d.FactorAnalysis(2, tol=1e-13), numbers),
    "factors missing": Row(d.FactorAnalysis(1, **ML), few_holes, 1e-5, slow=True),
    "factors missing ard": Row(d.FactorAnalysis(1, **ARD), few_holes, 1e-5, slow=True),
    "student": Row(d.PPCA(2, likelihood="student", **TIGHT), entries("student"), 1e-5),
    "student factors": Row(d.FactorAnalysis(1, likelihood="student", **TIGHT), entries("student"), 1e-5, 1e-7),
    "student rows": Row(d.PPCA(2, likelihood="student_rows", **TIGHT), entries("student_rows"), 1e-5),
    "poisson": Row(d.PPCA(2, likelihood="poisson", **TIGHT), entries("poisson"), 1e-5),
    "negative binomial": Row(  # drawn without levels, which would creep to zero
        d.PPCA(2, likelihood="negative_binomial", row_effects=False, **TIGHT),
        entries("negative_binomial"),
        1e-4,
        1e-8,
        slow=True,
    ),
    "bernoulli": Row(d.PPCA(1, likelihood="bernoulli", **TIGHT), entries("bernoulli"), 1e-5),
    "mixture": Row(d.PPCAMixture(2, 2, n_init=8, **TIGHT), clusters),
    "mixture diagonal": Row(d.PPCAMixture(1, 2, noise="diagonal", n_init=8, **TIGHT), clusters, 1e-5),
    "supervised": Row(d.SupervisedPPCA(2, **TIGHT), partial(numbers, targets=2), **LINEAR),
    "supervised some": Row(d.SupervisedPPCA(2, **JUDGED), some, **LINEAR),
    "supervised classes": Row(d.SupervisedPPCA(2, **JUDGED), classes, **LINEAR),
    "supervised missing": Row(d.SupervisedPPCA(2, **ML), partial(holes, targets=2)),
    "supervised missing ard": Row(d.SupervisedPPCA(2, **ARD), partial(holes, targets=2)),
    "relational": Row(d.RelationalPPCA(2, **TIGHT), linked(numbers), **LINEAR),
    "relational precision": Row(d.RelationalPPCA(2, **TIGHT), ordered, **LINEAR),
    "relational supervised": Row(d.RelationalSupervisedPPCA(2, **JUDGED), linked(numbers, targets=2), **LINEAR),
    "relational some": Row(d.RelationalSupervisedPPCA(2, **JUDGED), linked(some)),
    "graph": Row(d.GraphPPCA(2, smoothing=1.0, **TIGHT), linked(numbers), **LINEAR),
    "graph missing": Row(d.GraphPPCA(2, smoothing=0.5, **ML), linked(holes)),
    "views ppca": Row(d.CorrespondencePPCA(2, **TIGHT), joint, **LINEAR),
    "views factors": Row(
        d.CorrespondenceFactorAnalysis(1, **TIGHT), partial(joint, noise=0.8), solvers=("accelerated_em",)
    ),
    "views missing": Row(d.CorrespondencePPCA(2, **ARD), joint_holes, 1e-5),
    "views supervised": Row(d.CorrespondenceSupervisedPPCA(2, **TIGHT), partial(joint, targets=2), **LINEAR),
    "kernel linear": Row(d.KernelPPCA(2, kernel="linear", **TIGHT), wide, **KERNEL),
    "kernel rbf": Row(d.KernelPPCA(2, **TIGHT), numbers, **KERNEL),
    "kernel supervised": Row(d.KernelSupervisedPPCA(2, **TIGHT), some, **KERNEL),
    "embedding": Row(d.LocallyLinearEmbedding(n_neighbors=10), sheet),
    "embedded views": Row(d.CorrespondenceLLE(n_neighbors=10), partial(sheet, of_views=True)),
}
