"""What models with targets share: reading the targets of a fit, and saying what comes out in the users' terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr
from sklearn.utils import ClassifierTags

from dlatent.arrays import Array, AxisLabels, Features
from dlatent.engine.connect import Where
from dlatent.engine.lazy import is_dask
from dlatent.engine.session import Session
from dlatent.fitted.facts import shortened
from dlatent.fitted.targets import EncodedTargets, TargetEncoding, check_dropped_rows, encode_targets
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import Task
from dlatent.linear_gaussian.classes import ClassRule
from dlatent.linear_gaussian.complete import ModelFunction
from dlatent.linear_gaussian.expectation import pattern_projection
from dlatent.linear_gaussian.head import (
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
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.models.base import Fitted, Given, LatentVariableModel
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import TargetHyperparameters
from dlatent.models.inputs import Data, Mask, PathLike, Rows, TargetsLike
from dlatent.models.labelled import plain_rows
from dlatent.models.linear import LinearModel
from dlatent.models.map_rows import samples_of
from dlatent.models.scikit import available_if
from dlatent.passes import Pass
from dlatent.stores.places import read_places


def output_rows(
    x: Features,
    y: Array | None,
    parameters: Parameters,
    specification: Specification,
    scores: ModelFunction,
    head: Head,
) -> Array:
    """Mean of the outputs (n, L) given the features."""
    return head.outputs(scores(x, None, parameters, specification))


def class_rows(
    x: Features,
    y: Array | None,
    parameters: Parameters,
    specification: Specification,
    posterior_rows: Any,
    rule: ClassRule | Head,
    form: Callable[[Array], Array],
) -> Array:
    """What is made of the log-probabilities (n, C) of the classes given the features."""
    return form(posterior_rows(x, parameters, specification, rule.log_probabilities, rule.width))


def variance_rows(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, head: Head
) -> Array:
    """Variance of the outputs (n, L) given the observed features."""
    found = incomplete.linear_variances(x, None, parameters, specification, head.coefficients.T)
    return np.asarray(found + head.noise)


def row_covariances(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Cov[z | observed features] of each row, (n, K²)."""
    return incomplete.covariances(x, None, parameters, specification)


def may_have_classes(model: Any) -> bool:
    """Whether the targets of a model are classes, or, before a fit, may be."""
    return bool(model._classifies if hasattr(model, "_encoding") else model.target_type in ("auto", "class"))


class TargetModel(TargetHyperparameters, LatentVariableModel):
    """A model whose last view are encoded targets; see SupervisedPPCA.

    Attributes
    ----------
    target_components_ : ndarray of shape (n_components, n_targets)
        W_yᵀ, loadings of the targets (for classes of the one-of-C indicators).
    target_mean_ : ndarray of shape (n_targets,)
        μ_y.
    target_noise_variance_ : float
        σ_y².
    classes_ : ndarray of shape (n_targets,)
        Labels in the order of the targets, for classes only.
    log_likelihood_ : float
        Of all samples in nats, the targets on their rank.
    """

    classes_: npt.NDArray[Any]
    _encoding: TargetEncoding
    _head: Head | None

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools that there must be targets, and whether they are classes, as far as is known."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = ClassifierTags()
        if self.target_type == "class" or (self.target_type == "auto" and hasattr(self, "classes_")):
            tags.estimator_type = "classifier"
        return tags

    @property
    def _own_precision(self) -> float:
        """The precision of a row by itself, by which covariances are divided."""
        return 1.0

    @property
    def _classifies(self) -> bool:
        """Whether the targets of the fit are classes."""
        self._require_fitted()
        return self._encoding.kind == "class"

    def _class_rule(self) -> ClassRule | Head:
        """How classes are told apart."""
        self._require_fitted()
        if self._head is not None:
            return self._head
        own, p, encoding = self._specification.slices[-1], self._parameters, self._encoding
        noise, precision = float(p.noise_variance[-1]), self._own_precision
        return ClassRule.of(encoding.table(), encoding.centre, p.loadings[own], p.mean[own], noise, precision)

    def _output_head(self) -> Head:
        """What predicts the means of outputs, those of classes as indicators."""
        self._require_fitted()
        if self._head is not None and not self._classifies:
            return self._head
        own, encoding = self._specification.slices[-1], self._encoding
        loadings, rotation = self._parameters.loadings[own], encoding.rotation
        noise = float(self._parameters.noise_variance[-1]) * (rotation**2).sum(axis=1) / self._own_precision
        return Head.of_view(rotation @ loadings, self.target_mean_, noise)

    @property
    def _passes_after(self) -> int:
        return int(self.head == "auto")

    def _estimated_head(self, session: Session, outcome: Outcome, given: Given) -> Head | None:
        assert given.targets is not None
        encoding = given.targets.encoding
        if self.head == "likelihood":
            return None
        width = outcome.specification.n_components + len(encoding.names)
        metric = feature_metric(outcome.parameters, outcome.specification)
        spaces = ClassSpaces(encoding.table(), metric) if encoding.kind == "class" else None
        sums = self._labelled_sums if spaces is None else spaces.sums
        part = part_of(outcome.view_samples[-1], width, summed=sums is not None)
        made = self._labelled_pass(session, outcome, given, part, sums)
        rows = session.run(replace(made, combine=joined, recorded=False, name="labelled rows"))
        assert rows is not None
        if spaces is not None:
            return class_head(rows, spaces, encoding.centre)
        alone = rows._replace(covariance=rows.covariance / self._own_precision)
        return output_head(alone, encoding.rotation, encoding.centre, metric)

    @property
    def _labelled_sums(self) -> Callable[[Array, Array], Array] | None:
        """What regressions on scores follow from, where each row has all targets or none."""
        return output_sums

    def _labelled_pass(
        self, session: Session, outcome: Outcome, given: Given, part: float, sums: Any
    ) -> Pass[Any, LabelledRows | None]:
        """The pass that finds what is known of z in a part of the samples with targets, and sums over all of them."""
        raise NotImplementedError

    def _floor_parts(self, specification: Specification) -> tuple[float, ...]:
        return (*super()._floor_parts(specification)[:-1], float(self.target_noise_floor))

    def _encoded(self, y: TargetsLike, labelled: Mask, samples: int, labels: AxisLabels) -> EncodedTargets:
        """The targets of so many samples, whose data have these labels."""
        values, mask = plain_rows(y, labels), plain_rows(labelled, labels, "truth values")
        check_dropped_rows(values, samples, labels)
        return encode_targets(values, samples, self.target_type, mask=mask, holes=self._missing != "raise")

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        super()._keep(fitted, task, given)
        assert given.targets is not None
        self._head = fitted.head
        self._publish_targets(given.targets.encoding)

    def _publish_targets(self, encoding: TargetEncoding) -> None:
        own = self._specification.slices[-1]
        self._encoding = encoding
        self.target_components_ = (encoding.rotation @ self._parameters.loadings[own]).T
        self.target_mean_ = encoding.decode(self._parameters.mean[own])
        self.target_noise_variance_ = float(self._parameters.noise_variance[-1])
        if encoding.classes is not None:
            self.classes_ = encoding.classes
        elif hasattr(self, "classes_"):  # of an earlier fit to other targets
            del self.classes_

    @property
    def _own(self) -> slice:
        return slice(0, self._specification.slices[-1].start)

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        own, encoding = self._specification.slices[-1], self._encoding
        names, spread = np.asarray(encoding.names), self._parameters.covariance_of(own)
        return (
            super()._variables(whole=whole)
            | {
                "target_loadings": self.target_components_.T,
                "target_mean": self.target_mean_,
                "target_centre": encoding.centre,
                "target_rotation": encoding.rotation,
                "rank_loadings": self._parameters.loadings[own],
                "rank_mean": self._parameters.mean[own],
                "target": names.astype(str) if names.dtype == object else names,
            }
            | ({} if spread is None else {"rank_loadings_covariance": spread})
            | self._head_variables()
        )

    def _head_variables(self) -> dict[str, Any]:
        """What predicts, where that is not the likelihood."""
        head = self._head
        if head is None:
            return {}
        found = {"head_coefficients": head.coefficients, "head_offset": head.offsets}
        if not self._classifies:
            found["head_noise_variance"] = head.noise
        return found if head.lengths is None else found | {"head_lengths": head.lengths}

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        return super()._attributes(whole=whole) | ({"target_kind": self._encoding.kind} if whole else {})

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"targets": self._encoding.names}

    def _words(self) -> dict[str, str]:
        names = self._encoding.names
        return super()._words() | {"labels": f"{len(names)}: {shortened(names)}"}

    def _restored_parameters(self, values: dict[str, Any]) -> Parameters:
        features = super()._restored_parameters(values)
        spread = features.loadings_covariance
        return Parameters(
            np.vstack([features.loadings, values["rank_loadings"]]),
            np.concatenate([features.mean, values["rank_mean"]]),
            features.noise_variance,
            None if spread is None else np.vstack([spread, values["rank_loadings_covariance"]]),
        )

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        super()._restore(values, attributes)
        self._head = None
        if "head_coefficients" in values:
            noise = values.get("head_noise_variance", np.zeros(0))
            lengths = values.get("head_lengths")
            self._head = Head(values["head_coefficients"], values["head_offset"], noise, lengths)
        names, kind = values["target"], attributes["target_kind"]
        classes = names if kind == "class" else None
        self._publish_targets(TargetEncoding(kind, values["target_centre"], values["target_rotation"], names, classes))

    def _decision(self, values: Any) -> Any:
        """The log-odds (N,) from the log-probabilities of two classes, in their kind; all else as it is."""
        if not self._classifies or len(self.classes_) > 2:
            return values
        if isinstance(values, xr.DataArray):
            first, second = (values.isel(target=number, drop=True) for number in (0, 1))
            return (second - first).rename("decision")
        return values[:, 1] - values[:, 0]

    def _predicted(self, means: Any) -> Any:
        """Classes from their log-probabilities, else 0/1 or numbers from the means of the outputs; in their kind, Dask
        arrays stay lazy."""
        if self._encoding.kind == "class":
            return self._labels_of(means.argmax(axis=1))
        if self._encoding.kind == "multilabel":
            return (means > 0.5).astype(np.int64)
        return means[:, 0] if means.shape[1] == 1 else means

    def _labels_of(self, codes: Any) -> Any:
        """The labels of class numbers in the kind of the input; Dask arrays stay lazy."""
        if isinstance(codes, xr.DataArray):
            return codes.copy(data=self._labels_of(codes.data)).rename("labels")
        if is_dask(codes):
            return codes.map_blocks(self.classes_.__getitem__, dtype=self.classes_.dtype)
        return self.classes_[codes]

    def _output_variance(self, views: Iterable[int]) -> Array:
        """Variance of each output given these views (L,)."""
        about = pattern_projection(self._parameters, self._specification, tuple(views))
        return self._output_head().variance(about.covariance / self._own_precision)


class RowTargets(TargetModel, LinearModel):
    """A model of samples × features with targets for some of the samples.

    Attributes
    ----------
    at_floor_ : tuple of bool
        Whether the noise of the features, and that of the targets, is at its floor.
    """

    def _given_targets(
        self,
        X: Data,
        y: TargetsLike,
        labelled: Mask,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
    ) -> Given:
        """The data of a fit and their targets."""
        given = self._given(X, dim, weights)
        beside = read_places(y, labelled)  # before xarray has loaded them
        targets = self._encoded(y, labelled, given.source.shape[0], given.source.labels)
        return Given(given.source, targets, beside=beside)

    @property
    def _labelled_sums(self) -> Callable[[Array, Array], Array] | None:
        return output_sums if self._missing == "raise" else None

    def _labelled_pass(
        self, session: Session, outcome: Outcome, given: Given, part: float, sums: Any
    ) -> Pass[Any, LabelledRows | None]:
        scores = self._rows_at(outcome, self._functions.scores)
        covariance = self._rows_at(outcome, row_covariances)
        if self._missing == "raise":
            covariance = pattern_projection(outcome.parameters, outcome.specification, (0,)).covariance
        return Pass(block_labelled, RowsRequest(scores, covariance, part, sums))

    def _encode_new(self, X: Data, y: TargetsLike) -> Array | None:
        """Encoded targets (N, L') of new rows; None without any. Errors: NotFittedError, DataError."""
        self._require_fitted()
        if y is None:
            return None
        rows, labels = samples_of(X, self._fitted.labels.grid)
        return self._encoding.encode(plain_rows(y, labels), rows, holes=self._missing != "raise")


class TransformsWithTargets(RowTargets):
    """Models that give the latent variables of rows from features and, where present, targets."""

    def transform(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Scores: the mean of the latent variables given the features, E[z|x], and given the targets, too, E[z|x, y].

        As in SPPCA (7), (8) and (12), corrected.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets), optional
            Targets as in `fit`.  Of samples without, and without `y`, the features alone count.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input, or the path `out`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            As in PPCA.transform, and for labels that the model does not know.
        """
        return self._scores(X, self._encode_new(X, y), out=out, overwrite=overwrite, resume=resume, client=client)

    def posterior(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables given the features and, where present, the targets.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets), optional
            Targets as in `fit`.  Of samples without, and without `y`, the features alone count.

        Returns
        -------
        xarray.Dataset
            `scores` (sample, component) and `covariance` (component, component_2).  With `y` there are two covariances
            (pattern, component, component_2), pattern 0 for samples with targets, and `pattern_of` (sample) tells which
            is whose.  Where entries may be missing each sample has its own (sample, component, component_2).
        """
        return self._posterior(X, self._encode_new(X, y), client)


class ScoresWithTargets(RowTargets):
    """Models that give the likelihood of features and, where present, targets."""

    def score_samples(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> Rows:
        """Log-likelihood of each sample: log p(x, y) where targets are given, log p(x) elsewhere.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets), optional
            Targets as in `fit`.  Of samples without, and without `y`, the features alone count.

        Returns
        -------
        array of shape (n_samples,)
            In nats, the targets on their rank, in the kind of the input.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For other features, or labels that the model does not know.
        """
        return self._log_likelihoods(X, self._encode_new(X, y), client)

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats; not the accuracy of `predict`.

        Parameters
        ----------
        y : array of shape (n_samples,) or (n_samples, n_targets), optional
            Targets as in `fit`.  Of samples without, and without `y`, the features alone count.

        Returns
        -------
        float
            The mean of `score_samples`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, y, client=client))))


class Predicts(RowTargets):
    """Models that predict targets from features."""

    def _target_rows(
        self, X: Data, form: Callable[[Array], Array] = np.asarray, name: str = "decision", **options: Any
    ) -> Rows | str:
        """What is made of the log-probabilities (N, C) of classes, or the means (N, L) of other targets, in the kind of
        the input."""
        function: Callable[..., Array]
        if self._classifies:
            posterior_rows = self._functions.posterior_rows
            function = partial(class_rows, posterior_rows=posterior_rows, rule=self._class_rule(), form=form)
        else:
            function, name = partial(output_rows, scores=self._functions.scores, head=self._output_head()), "outputs"
        return self._mapped(X, self._rows(function), name, "target", self._encoding.names, **options)

    @available_if(may_have_classes)
    @described
    def predict_proba(
        self,
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
        discriminant analysis, with priors of m_c and V by evidence; R is the identity or the metric of the features.
        The space, and τ ≤ 1, are those in which labelled samples that are left out are most probable.  π_c is the part
        that a class has of the labelled samples.  Where each class has five or more, and these are then more probable,
        it is p(c | x) ∝ exp(a_cᵀu + b_c), as in multinomial logistic regression, with a normal prior of a_c.

        With `head="likelihood"` it is Bayes' rule with the densities of the model, p(c | x) ∝ π_c p(x | y = t_c) with
        t_c the code of a class.

        Returns
        -------
        array of shape (n_samples, n_classes), or str
            In the kind of the input, columns as in `classes_`, or the path `out`; rows add up to 1.

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        AttributeError
            For targets that are no classes.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._target_rows(X, np.exp, "probabilities", **options)

    def decision_function(self, X: Data, *, client: Where = None) -> Rows:
        """For class labels what decides between them; else the mean of the targets, E[y|x] = b + A E[z|x].

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_targets)
            In the kind of the input: of two classes the log-odds log p(c₂|x)/p(c₁|x), of more log p(c|x), dims (sample,
            target); of other targets regression values, or scores of the labels.

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        """
        return cast(Rows, self._decision(self._target_rows(X, client=client)))

    def predict(self, X: Data, *, return_variance: bool = False, client: Where = None) -> Rows | tuple[Rows, Rows]:
        r"""Predict the targets from the features.

        .. math:: y \mid x \sim N\left(b + A E[z \mid x],\; A M^{-1} A^\top + S\right)

        With `head="auto"` each row of A has a normal prior whose variance the evidence chooses, and the diagonal S is
        such that labelled samples that are left out vary as said.  With `head="likelihood"` A = W_y, b = μ_y and
        S = σ_y²VVᵀ, as the model of the fit has it.

        Returns
        -------
        predicted : array of shape (n_samples,) or (n_samples, n_targets)
            Class labels (the most probable class, see `predict_proba`), 0 and 1 for multi-label targets (mean above ½),
            or means.
        variance : array of shape (n_targets,) or (n_samples, n_targets)
            With `return_variance` only: the variance of each target, the same for all samples, or where entries may be
            missing that of each sample.

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        """
        values: Rows = self._predicted(self._target_rows(X, client=client))
        if not return_variance:
            return values
        if self._missing == "raise":
            return values, self.predictive_variance()
        function = self._rows(partial(variance_rows, head=self._output_head()))
        return values, cast(Rows, self._mapped(X, function, "variance", "target", self._encoding.names, client=client))

    def predictive_variance(self) -> Array:
        """Variance of each target given the features: the diagonal of A M⁻¹Aᵀ + S, see `predict`.

        Of class labels it is that of the indicators, as the likelihood has it.

        Returns
        -------
        ndarray of shape (n_targets,)
            In squared units of the targets.
        """
        self._require_fitted()
        return self._output_variance((0,))
