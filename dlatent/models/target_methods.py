"""Fits with targets, and what a fitted model says of targets, each method once; a model takes those that it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Features
from dlatent.engine.connect import Where
from dlatent.fitted.grid import over_features
from dlatent.fitted.linear import Linear
from dlatent.fitted.parts import Targets
from dlatent.fitted.rows import OfRows
from dlatent.gaussian.expectation import pattern_projection
from dlatent.models.inputs import Data, PathLike, Rows, Seed
from dlatent.models.linear import drawn
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import Model, attribute, available_if
from dlatent.models.row_methods import mapped
from dlatent.stores.lazy import is_dask_array


def targets_of(model: Any) -> Targets:
    """The targets of a fitted model."""
    targets: Targets = model._model.targets
    return targets


@attribute
def target_components_(self: Model[Any]) -> Array:
    """ndarray of shape (n_components, n_targets): W_yᵀ, loadings of the targets (for classes of the one-of-C
    indicators)."""
    return targets_of(self).loadings.T


@attribute
def target_mean_(self: Model[Any]) -> Array:
    """ndarray of shape (n_targets,): μ_y."""
    return targets_of(self).mean


@attribute
def target_noise_variance_(self: Model[Any]) -> float:
    """float: σ_y²."""
    return float(self._model.noise.variance[-1])


@attribute
def classes_(self: Model[Any]) -> npt.NDArray[Any]:
    """ndarray of shape (n_targets,): Labels in the order of the targets, for classes only."""
    targets = targets_of(self)
    if not targets.classes:
        raise AttributeError(f"this {type(self).__name__} was fitted to targets that are no classes")
    return np.asarray(targets.names)


@dataclass(frozen=True)
class Predictions(OfRows):
    """Predictions of the targets of rows: log-probabilities of classes through `form`, or means of outputs."""

    rule: Any
    classes: bool
    form: Callable[[Array], Array] = np.asarray

    def __call__(self, x: Features, y: Array | None) -> Array:
        """The predictions (n, C) or (n, L)."""
        if self.classes:
            return self.form(self.rows.posteriors(x, self.rule.log_probabilities, self.rule.width))
        return np.asarray(self.rule.outputs(self.rows.scores(x, None)))


@dataclass(frozen=True)
class OutputVariances(OfRows):
    """The variances of the outputs (n, L) given the observed features of rows."""

    head: Any

    def __call__(self, x: Features, y: Array | None) -> Array:
        """The variances."""
        return np.asarray(self.rows.variances(x, self.head.coefficients.T) + self.head.noise)


def predictions(model: Model[Linear], X: Data, run: RowsRun, form: Any = np.asarray, name: str = "decision") -> Any:
    """Return `form` of the log-probabilities (N, C) of classes, or the means (N, L), in the kind of the input."""
    targets = targets_of(model)
    rows = Predictions(model._rows, model._model.predictor(), targets.classes, form)
    return mapped(model, X, rows, name if targets.classes else "outputs", "target", targets.names, run=run)


def may_have_classes(model: Any) -> bool:
    """Whether the targets of a model are classes, or, before a fit, may be."""
    if hasattr(model, "_fit"):
        return targets_of(model).classes
    return model.target_type in ("auto", "class")


@available_if(may_have_classes)
def predict_proba(
    self: Model[Linear],
    X: Data,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: bool = False,
    client: Where = None,
) -> Rows | str:
    r"""Probabilities of the classes.

    .. math:: p(c \mid x) \propto \left[\pi_c \, N(u \mid m_c, V)\right]^\tau, \qquad u = R \, E[z \mid x]
        \;\text{or}\; R \, E[z \mid x] / \lVert R \, E[z \mid x] \rVert

    With `head="auto"` each class is normal in the space of the scores, all with one covariance V, as in linear
    discriminant analysis, with priors of m_c and V by evidence; R is the identity or the metric of the features.  The
    space, and τ ≤ 1, are those in which labelled samples that are left out are most probable.  π_c is the fraction of
    the labelled samples that a class has.  Where each class has five or more, and these are then more probable, it is
    p(c | x) ∝ exp(a_cᵀu + b_c), as in multinomial logistic regression, with a normal prior of a_c.

    With `head="likelihood"` it is Bayes' rule with the densities of the model, p(c | x) ∝ π_c p(x | y = t_c) with
    t_c the code of a class.

    Returns
    -------
    array of shape (n_samples, n_classes), or str
        In the kind of the input, columns as in `classes_`, or the path `out`; rows add up to 1.

    Raises
    ------
    AttributeError
        For targets that are no classes.
    """
    return cast(Rows, predictions(self, X, RowsRun(out, overwrite, resume, client), np.exp, "probabilities"))


def decision_function(self: Model[Linear], X: Data, *, client: Where = None) -> Rows:
    """For class labels what decides between them; else the mean of the targets, E[y|x] = b + A E[z|x].

    Returns
    -------
    array of shape (n_samples,) or (n_samples, n_targets)
        In the kind of the input: of two classes the log-odds log p(c₂|x)/p(c₁|x), of more log p(c|x), dims (sample,
        target); of other targets regression values, or scores of the labels.
    """
    return cast(Rows, decisions(targets_of(self), predictions(self, X, RowsRun(client=client))))


def decisions(targets: Targets, values: Any) -> Any:
    """The log-odds (N,) from the log-probabilities of two classes, in their kind; all else as it is."""
    if not targets.classes or len(targets.names) > 2:
        return values
    if isinstance(values, xr.DataArray):
        first, second = (values.isel(target=number, drop=True) for number in (0, 1))
        return (second - first).rename("decision")
    return values[:, 1] - values[:, 0]


def predict(
    self: Model[Linear], X: Data, *, return_variance: bool = False, client: Where = None
) -> Rows | tuple[Rows, Rows]:
    r"""Predict the targets from the features.

    .. math:: y \mid x \sim N\left(b + A E[z \mid x],\; A M^{-1} A^\top + S\right)

    With `head="auto"` each row of A has a normal prior whose variance the evidence chooses, and the diagonal S is such
    that labelled samples that are left out vary as said.  With `head="likelihood"` A = W_y, b = μ_y and S = σ_y²VVᵀ, as
    the model of the fit has it.

    Returns
    -------
    predicted : array of shape (n_samples,) or (n_samples, n_targets)
        Class labels (the most probable class, see `predict_proba`), 0 and 1 for multi-label targets (mean above ½), or
        means.
    variance : array of shape (n_targets,) or (n_samples, n_targets)
        With `return_variance` only: the variance of each target, the same for all samples, or where entries may be
        missing that of each sample.
    """
    targets, run = targets_of(self), RowsRun(client=client)
    values = predicted(targets, predictions(self, X, run))
    if not return_variance:
        return values
    if not self._rows.holes:
        return values, predictive_variance(self)
    rows = OutputVariances(self._rows, self._model.output_head())
    return values, cast(Rows, mapped(self, X, rows, "variance", "target", targets.names, run=run))


def predicted(targets: Targets, means: Any) -> Rows:
    """Classes from their log-probabilities, else 0/1 or numbers from the means of the outputs; in their kind, Dask
    arrays stay lazy."""
    if targets.classes:
        return labels_of(np.asarray(targets.names), means.argmax(axis=1))
    if targets.kind == "multilabel":
        return cast(Rows, (means > 0.5).astype(np.int64))
    return cast(Rows, means[:, 0] if means.shape[1] == 1 else means)


def labels_of(names: npt.NDArray[Any], codes: Any) -> Rows:
    """The labels of class numbers in the kind of the input."""
    if isinstance(codes, xr.DataArray):
        return codes.copy(data=labels_of(names, codes.data)).rename("labels")
    if is_dask_array(codes):
        return cast(Rows, codes.map_blocks(names.__getitem__, dtype=names.dtype))
    return cast(npt.NDArray[Any], names[codes])


def predictive_variance(self: Model[Linear]) -> Array:
    """Variance of each target given the features: the diagonal of A M⁻¹Aᵀ + S, see `predict`.

    Of class labels it is that of the indicators, as the likelihood has it.  Of samples in a graph it is that of one
    without edges.

    Returns
    -------
    ndarray of shape (n_targets,)
        In squared units of the targets.
    """
    return output_variance(self._model, (0,))


def output_variance(fitted: Any, pattern: tuple[int, ...]) -> Array:
    """Variance of each output given the views of a pattern (L,)."""
    about = pattern_projection(fitted.parameters, fitted.specification, pattern)
    variance: Array = fitted.output_head().variance(about.covariance / fitted.row_precision)
    return variance


def sample(
    self: Model[Linear], n_samples: int = 1, *, random_state: Seed = None
) -> tuple[npt.NDArray[np.float64] | xr.DataArray, npt.NDArray[np.float64]]:
    """Draw samples from the model: z ~ N(0, I), x = W_x z + μ_x + ε_x, y = W_y z + μ_y + ε_y.

    Returns
    -------
    samples : array of shape (n_samples, n_features)
        In units of the features.
    targets : ndarray of shape (n_samples, n_targets)
        In units of the targets.
    """
    fitted, targets = self._model, targets_of(self)
    both = drawn(fitted, n_samples, random_state)
    features = over_features(both[:, fitted.features], fitted.labels.known)
    return features, targets.encoding.decode(both[:, fitted.specification.slices[-1]])
