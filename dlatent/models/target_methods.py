"""Fits with targets, and what a fitted model says of targets, each method once; a model takes those that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import expit

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.fitted.grid import over_features
from dlatent.fitted.linear import Linear
from dlatent.fitted.parts import Targets
from dlatent.fitted.rows import OutputVariances, Predictions
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
        raise AttributeError(
            f"this {type(self).__name__} was fitted to targets that are no classes; target_type='class' says they are"
        )
    return np.asarray(targets.names)


def predictions(model: Model[Linear], X: Data, run: RowsRun, form: Any = np.asarray, name: str = "decision") -> Any:
    """Return `form` of the log-probabilities (N, C) of classes or of the log-odds (N, L) of labels, or the means (N, L)
    of numbers, in the kind of the input."""
    targets = targets_of(model)
    rows = Predictions(model._rows, model._model.predictor(), form)
    return mapped(model, X, rows, name if targets.labels else "outputs", "target", targets.names, run=run)


def probable(targets: Targets) -> Callable[[Array], Array]:
    """Probabilities from what decides on classes or labels."""
    return np.exp if targets.classes else expit


def may_have_labels(model: Any) -> bool:
    """Whether the targets of a model are classes or labels, or, before a fit, may be."""
    if hasattr(model, "_fit"):
        return targets_of(model).labels
    return bool(model.target_type != "regression")


@available_if(may_have_labels)
def predict_proba(
    self: Model[Linear],
    X: Data,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: bool = False,
    client: Where = None,
) -> Rows | str:
    r"""Probabilities of the classes, or of each of several labels.

    .. math:: p(c \mid x) = \sum_m w_m p_m(c \mid x), \qquad
        p_m(c \mid x) \propto \left[\pi_c \, N(u_m \mid m_c, V)\right]^\tau \;\text{or}\; \exp(a_c^\top u_m + b_c)

    With `head="auto"` it is the mean of several rules, with weights that make labelled samples that are left out most
    probable.  Four rules take each class for normal, all with one covariance V, as in linear discriminant analysis,
    with priors of m_c and V by evidence; u_m is the score E[z|x] as it is or in the metric of the features, and either
    of them as it is or scaled to length 1.  τ ≤ 1 makes samples that are left out most probable, too, and π_c is the
    fraction of the labelled samples that a class has.  Where each class has five of these or more, and samples that are
    left out are then clearly more probable, the fifth rule is multinomial logistic regression.  Each of several labels
    has weights of its own for three logistic regressions: on scores, on scores of length 1, and on what a linear
    regression on scores and features says of it (see `predict`).

    With `head="likelihood"` it is Bayes' rule with the densities of the model, p(c | x) ∝ π_c p(x | y = t_c) with
    t_c the code of a class; a label is p(1 | x) ∝ N(1 | E[y|x], Var[y|x]), beside the density of 0.

    Returns
    -------
    array of shape (n_samples, n_classes) or (n_samples, n_targets), or str
        In the kind of the input, or the path `out`.  Of classes columns are as in `classes_`, and rows add up to 1; of
        several labels a column is the probability that a label is 1, as in scikit-learn's `OneVsRestClassifier`.

    Raises
    ------
    AttributeError
        For targets that are numbers; `target_type` says what they are.
    """
    run = RowsRun(out, overwrite, resume, client)
    return cast(Rows, predictions(self, X, run, probable(targets_of(self)), "probabilities"))


def decision_function(self: Model[Linear], X: Data, *, client: Where = None) -> Rows:
    """For labels what decides on them; else the mean of the targets, as in `predict`.

    Returns
    -------
    array of shape (n_samples,) or (n_samples, n_targets)
        In the kind of the input: of two classes the log-odds log p(c₂|x)/p(c₁|x), of more log p(c|x), dims (sample,
        target); of several labels the log-odds of each, log p(1|x)/p(0|x); of numbers their means.
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

    .. math:: y \mid x \sim N\left(b + A E[z \mid x] + B x,\; A M^{-1} A^\top + S\right)

    With `head="auto"` it is the mean of ridge regressions on the scores and on the features, with priors of many
    variances, in proportion to their evidence; the diagonal S is such that labelled samples that are left out vary as
    said.  B is 0 where entries may be missing, samples are joined, or a kernel makes the features; and where of D
    features and n labelled samples min(n, D) D is more than 2²⁰.  With `head="likelihood"` A = W_y, B = 0, b = μ_y and
    S = σ_y²VVᵀ, as the model of the fit has it.

    Returns
    -------
    predicted : array of shape (n_samples,) or (n_samples, n_targets)
        Class labels (the most probable class, see `predict_proba`), 0 and 1 for multi-label targets (1 where its
        probability is above ½), or means.
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
    """Classes from their log-probabilities, 0/1 from log-odds, or numbers as they are; in their kind, Dask arrays stay
    lazy, and a DataArray has the name and the attributes that the targets had."""
    if targets.classes:
        values: Any = labels_of(np.asarray(targets.names), means.argmax(axis=-1))
    elif targets.kind == "multilabel":
        values = (means > 0.0).astype(np.int64)
    else:
        values = means[..., 0] if means.shape[-1] == 1 else means
    if not isinstance(values, xr.DataArray):
        return cast(Rows, values)
    return values.rename(targets.name or values.name).assign_attrs(targets.attrs or {})


def labels_of(names: npt.NDArray[Any], codes: Any) -> Rows:
    """The labels of class numbers in the kind of the input."""
    if isinstance(codes, xr.DataArray):
        return codes.copy(data=labels_of(names, codes.data)).rename("labels")
    if is_dask_array(codes):
        return cast(Rows, codes.map_blocks(names.__getitem__, dtype=names.dtype))
    return cast(npt.NDArray[Any], names[codes])


def predictive_variance(self: Model[Linear]) -> Array:
    """Variance of each target given the features: the diagonal of A M⁻¹Aᵀ + S, see `predict`.

    Of classes and labels it is that of the indicators, as the likelihood has it.  Of samples in a graph it is that of
    one without edges.

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
