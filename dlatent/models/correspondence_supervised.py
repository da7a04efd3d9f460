"""Supervised PPCA of several views that few samples share, with targets for some of the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels
from dlatent.engine.connect import Where
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.targets import as_array
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.classes import ClassRule
from dlatent.linear_gaussian.expectation import posterior_scores
from dlatent.linear_gaussian.head import Head, JointRowsRequest, LabelledRows, block_labelled_joint
from dlatent.linear_gaussian.joint import PartsFunction
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.views import Parts
from dlatent.models.base import Given
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import ViewSupervisedHyperparameters
from dlatent.models.inputs import Mask, Names, Pairing, PathLike, Rows, Seed, TargetsLike, Views
from dlatent.models.labelled import plain_rows
from dlatent.models.scikit import available_if
from dlatent.models.target_heads import TargetModel, may_have_classes
from dlatent.models.view_results import JointSamples, only_view
from dlatent.models.views import CorrespondenceModel
from dlatent.passes import Pass
from dlatent.stores.joint_rows import Table
from dlatent.stores.memory import open_function
from dlatent.stores.places import read_places

TARGETS = "targets"
"""The name of the view that the encoded targets are."""


def joint_outputs(
    parts: Parts,
    pattern: tuple[int, ...],
    parameters: Parameters,
    specification: Specification,
    head: Head,
) -> Array:
    """Mean of the outputs (n, L) given the views of a pattern."""
    return head.outputs(posterior_scores(parts, pattern, parameters, specification)[0])


def view_outputs(
    x: Any, y: Array | None, view: int, parameters: Parameters, specification: Specification, head: Head
) -> Array:
    """Mean of the outputs (n, L) given rows of one view."""
    return joint_outputs((x,), (view,), parameters, specification, head)


def joint_classes(
    parts: Parts,
    pattern: tuple[int, ...],
    parameters: Parameters,
    specification: Specification,
    rule: ClassRule | Head,
    form: Callable[[Array], Array],
) -> Array:
    """What is made of the log-probabilities (n, C) of the classes given the views of a pattern."""
    z, about = posterior_scores(parts, pattern, parameters, specification)
    return form(rule.log_probabilities(z, about.covariance))


def view_classes(
    x: Any,
    y: Array | None,
    view: int,
    parameters: Parameters,
    specification: Specification,
    rule: ClassRule | Head,
    form: Callable[[Array], Array],
) -> Array:
    """What is made of the log-probabilities (n, C) of the classes given rows of one view."""
    return joint_classes((x,), (view,), parameters, specification, rule, form)


class CorrespondenceSupervisedPPCA(ViewSupervisedHyperparameters, TargetModel, CorrespondenceModel):
    r"""Supervised PPCA of two or more views, of which each sample may lack some, or its targets.

    .. math:: x_v = W_v z + \mu_v + \varepsilon_v, \qquad y = W_y z + \mu_y + \varepsilon_y, \qquad z \sim N(0, I_K)

    The targets are one more view, with a noise variance of its own.  All samples are fitted together by maximum
    likelihood: targets of one view tell of the others, too.  Attributes that go by view tell of the views, not of the
    targets.

    References
    ----------
    Ham, Lee and Saul (2003), section 3.1, and Yu et al. (2006), joined.  Read more in :doc:`/models/correspondences`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondenceSupervisedPPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 7))
    >>> pairs = np.column_stack([np.arange(60), np.arange(60)])
    >>> views = {"a": X[:, :4], "b": X[:, 4:]}
    >>> model = CorrespondenceSupervisedPPCA(2).fit(views, X[:, 0] > 0, correspondence=pairs)
    >>> model.predict({"a": X[:3, :4]}).shape
    (3,)
    """

    def _feature_views(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names[:-1]

    def _given_targets(self, views: Views, y: Any, labelled: Any, correspondence: Pairing, on: Names) -> Given:
        """The joint samples of a fit, whose last view are the targets, and how these are encoded."""
        samples = self._to_fit(views, correspondence, on)
        if TARGETS in samples.sources:
            raise DataError(f"a view is named {TARGETS!r}, as the targets are in the model; give it another name")
        beside = read_places(y, labelled, correspondence)
        y, labels, count, own = _targets_of(y, samples)
        encoded = self._encoded(y, labelled, count, labels)
        found = _with_targets(samples, encoded.rows, encoded.encoding.rank, encoded.labelled, own)
        return replace(self._given(found, replace(encoded, rows=None)), beside=beside)

    def _labelled_pass(
        self, session: Session, outcome: Outcome, given: Given, part: float, sums: Any
    ) -> Pass[Any, LabelledRows | None]:
        arrangement = self._arrangement(given.source)
        request = JointRowsRequest(outcome.parameters, outcome.specification, arrangement, part, sums)
        return Pass(block_labelled_joint, request)

    def plan(
        self,
        views: Views,
        y: TargetsLike | Mapping[str, TargetsLike] = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        labelled: Mask = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, from metadata, the targets and the correspondence alone.

        Parameters
        ----------
        y : array or mapping
            The targets of all samples in the order of `transform` (the lines of the correspondence, then the other rows
            of each view), or a mapping from the name of one view to the targets of its rows.  Samples without have NaN,
            None or (class labels) −1.
        labelled : array of bool, optional
            Which of the rows of `y` have targets; another way to say it than by NaN, None or −1.
        """
        return self._plan(self._given_targets(views, y, labelled, correspondence, on), client)

    def fit(
        self,
        views: Views,
        y: TargetsLike | Mapping[str, TargetsLike] = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        labelled: Mask = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to the views and the targets that each sample has.

        Parameters
        ----------
        y : array or mapping
            The targets of all samples in the order of `transform` (the lines of the correspondence, then the other rows
            of each view), or a mapping from the name of one view to the targets of its rows.  Samples without have NaN,
            None or (class labels) −1.
        labelled : array of bool, optional
            Which of the rows of `y` have targets; another way to say it than by NaN, None or −1.

        Raises
        ------
        DataError
            For views or targets that cannot be fitted, naming view and row: also where no sample has a target, all are
            of one class, the lengths differ, or a sample has only some of its targets.
        PlanError
            Where no solver fits in memory; before data move.
        StoreError
            For a checkpoint of another fit, with what differs.
        """
        return self._fit(
            self._given_targets(views, y, labelled, correspondence, on), client, callbacks, checkpoint, resume
        )

    def _new_samples(self, views: Views, y: Any, correspondence: Pairing, on: Names) -> JointSamples:
        """Joint samples of new data, with their targets."""
        samples = self._samples(views, correspondence, on)
        y, labels, count, own = _targets_of(y, samples)
        rows = self._encoding.encode(plain_rows(y, labels), count)
        return _with_targets(samples, lambda a, b: rows[a:b], rows.shape[1], ~np.isnan(rows[:, 0]), own)

    def transform(
        self,
        views: Views,
        y: TargetsLike | Mapping[str, TargetsLike] = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Scores: the mean of the latent variables given the views that a sample has, and given its targets, too.

        Parameters
        ----------
        y : array or mapping, optional
            Targets as in `fit`.
        out : path or URL, optional
            Of one view without `y`: a Zarr store to write the result to, instead of memory.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            As in CorrespondencePPCA.transform; with `y` a DataArray (sample, component) for one view, too.

        Raises
        ------
        NotFittedError, DataError
            As there, and for labels that the model does not know.
        """
        if y is None:
            given: dict[str, Any] = {"correspondence": correspondence, "on": on, "client": client}
            return super().transform(views, out=out, overwrite=overwrite, resume=resume, **given)
        self._require_fitted()
        if out is not None:
            raise DataError("out is for the scores of one view without targets; others come in memory")
        return self._joint_scores(self._new_samples(views, y, correspondence, on), client)

    def posterior(
        self,
        views: Views,
        y: TargetsLike | Mapping[str, TargetsLike] = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        client: Where = None,
    ) -> xr.Dataset:
        """The distribution of the latent variables given the views, and where present the targets, of each sample.

        Parameters
        ----------
        y : array or mapping, optional
            Targets as in `fit`.

        Returns
        -------
        xarray.Dataset
            As in CorrespondencePPCA.posterior; with `y`, `has` (pattern, view) has a column "targets".
        """
        if y is None:
            return super().posterior(views, correspondence=correspondence, on=on, client=client)
        self._require_fitted()
        return self._joint_posterior(self._new_samples(views, y, correspondence, on), client)

    def score_samples(
        self,
        views: Views,
        y: TargetsLike | Mapping[str, TargetsLike] = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        client: Where = None,
    ) -> Rows:
        """Log-likelihood of each sample: log p of the views, and where given the targets, that it has.

        Parameters
        ----------
        y : array or mapping, optional
            Targets as in `fit`.

        Returns
        -------
        array of shape (n_samples,)
            In nats, the targets on their rank; as in CorrespondencePPCA, with `y` a DataArray (sample).
        """
        if y is None:
            return super().score_samples(views, correspondence=correspondence, on=on, client=client)
        self._require_fitted()
        return self._joint_densities(self._new_samples(views, y, correspondence, on), client)

    def score(
        self,
        views: Views,
        y: TargetsLike | Mapping[str, TargetsLike] = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        client: Where = None,
    ) -> float:
        """Mean log-likelihood per sample, in nats; not the accuracy of `predict`.

        Parameters
        ----------
        y : array or mapping, optional
            Targets as in `fit`.

        Returns
        -------
        float
            The mean of `score_samples`.
        """
        found = self.score_samples(views, y, correspondence=correspondence, on=on, client=client)
        return float(np.mean(np.asarray(found)))

    def _alone_or_joint(self, views: Views, correspondence: Pairing, on: Names) -> tuple[str, Any] | JointSamples:
        """The name and the data of a view that is given alone, or joint samples."""
        self._require_fitted()
        return only_view(views) or self._samples(views, correspondence, on)

    def _target_rows(
        self,
        given: tuple[str, Any] | JointSamples,
        client: Where,
        form: Callable[[Array], Array] = np.asarray,
        name: str = "decision",
    ) -> Rows:
        """What is made of the log-probabilities (N, C) of classes, or the means (N, L) of other targets."""
        of_view: Callable[..., Array]
        joint: PartsFunction
        if self._classifies:
            rule = self._class_rule()
            of_view, joint = (partial(function, rule=rule, form=form) for function in (view_classes, joint_classes))
        else:
            of_view, joint = (partial(each, head=self._output_head()) for each in (view_outputs, joint_outputs))
            name = "outputs"
        names = self._encoding.names
        if not isinstance(given, JointSamples):
            return cast(Rows, self._alone(*given, of_view, "target", names, name, client=client))
        found = self._together(given, client, joint, len(names))
        coords = {"target": names, **found.rows}
        return xr.DataArray(found.values, dims=("sample", "target"), coords=coords, name=name)

    @available_if(may_have_classes)
    @described
    def predict_proba(
        self, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
    ) -> Rows:
        """Probabilities of the classes given the views that a sample has; see SupervisedPPCA.predict_proba.

        Returns
        -------
        array of shape (n_samples, n_classes)
            For one view in the kind of its data, for several a DataArray (sample, target) in the order of `transform`;
            columns as in `classes_`, rows add up to 1.

        Raises
        ------
        NotFittedError, DataError
            As in CorrespondencePPCA.transform.
        AttributeError
            For targets that are no classes.
        """
        return self._target_rows(self._alone_or_joint(views, correspondence, on), client, np.exp, "probabilities")

    def decision_function(
        self, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
    ) -> Rows:
        """For class labels what decides between them; else E[y|x] = b + A E[z|x] given the views x of a sample.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_targets)
            For one view in the kind of its data, for several a DataArray in the order of `transform`: of two classes
            the log-odds, of more log p(c|x); of other targets regression values, or scores of the labels.
        """
        return cast(Rows, self._decision(self._target_rows(self._alone_or_joint(views, correspondence, on), client)))

    def predict(
        self,
        views: Views,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        return_variance: bool = False,
        client: Where = None,
    ) -> Rows | tuple[Rows, Rows]:
        r"""Predict the targets from the views x that a sample has; A, b and S as in SupervisedPPCA.predict.

        .. math:: y \mid x \sim N\left(b + A E[z \mid x],\; A M^{-1} A^\top + S\right)

        Returns
        -------
        predicted : array of shape (n_samples,) or (n_samples, n_targets)
            Class labels, 0 and 1, or means, as in SupervisedPPCA.predict.
        variance : array of shape (n_targets,) or (n_samples, n_targets)
            With `return_variance` only: the variance of each target, for several views that of each sample, as it
            depends on the views that a sample has.
        """
        given = self._alone_or_joint(views, correspondence, on)
        found = self._target_rows(given, client)
        values: Rows = self._predicted(found)
        if not return_variance:
            return values
        if not isinstance(given, JointSamples):
            return values, self.predictive_variance(given[0])
        _, patterns, pattern = self._sets(given)
        each = np.stack([self._output_variance(own) for own in patterns])
        return values, cast(xr.DataArray, found).copy(data=each[pattern]).rename("variance")

    def predictive_variance(self, from_view: str | Sequence[str] | None = None, to_view: str | None = None) -> Array:
        """Variance of each target given some of the views, or of each feature of a view given another.

        Parameters
        ----------
        from_view : str or sequence of str, optional
            The views that are given; by default all.
        to_view : str, optional
            The view whose features are meant; by default the targets.

        Returns
        -------
        ndarray of shape (n_targets,) or (n_features of to_view,)
            In squared units of the targets or features.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For unknown views.
        """
        self._require_fitted()
        if to_view is not None:
            if not isinstance(from_view, str):
                raise DataError(f"from_view is {from_view!r}; name the one view from which {to_view!r} is predicted")
            return super().predictive_variance(from_view, to_view)
        names = self.view_names_ if from_view is None else (from_view,) if isinstance(from_view, str) else from_view
        return self._output_variance(sorted({self._number(name) for name in names}))

    def sample(  # type: ignore[override]
        self, n_samples: int = 1, *, random_state: Seed = None
    ) -> tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
        """Draw samples that have every view, and their targets.

        Returns
        -------
        views : dict of ndarray of shape (n_samples, n_features of the view)
            In units of the features.
        targets : ndarray of shape (n_samples, n_targets)
            In units of the targets.
        """
        rows, own = self._drawn(n_samples, random_state), self._specification.slices
        views = {name: rows[:, at] for name, at in zip(self.view_names_, own, strict=False)}
        return views, self._encoding.decode(rows[:, own[-1]])


def _targets_of(y: Any, samples: JointSamples) -> tuple[Any, AxisLabels, int, Table]:
    """Targets with the labels and the number of the rows that they are for, and which of these each sample is, −1 for
    none."""
    names, count = list(samples.sources), len(samples.table)
    if not isinstance(y, Mapping):
        y = None if y is None else as_array(y)
        if y is not None and len(y) != count:
            raise DataError(
                f"y has shape {y.shape}; there are {count} joint samples: those of the correspondence, then the "
                f"other rows of each view; for targets of the rows of one view give y={{{names[0]!r}: targets}}"
            )
        return y, AxisLabels(), count, np.arange(count)
    if len(y) != 1 or next(iter(y)) not in names:
        raise DataError(
            f"y has targets for {', '.join(map(repr, y)) or 'no view'}; as a mapping it has one entry, the targets of "
            f"the rows of one of the views {', '.join(map(repr, names))}; those of all joint samples are an array"
        )
    ((name, values),) = y.items()
    source = samples.sources[name]
    return values, source.labels, source.shape[0], samples.table[:, names.index(name)]


def _with_targets(
    samples: JointSamples, rows: Any, width: int, labelled: npt.NDArray[np.bool_], own: Table
) -> JointSamples:
    """Samples that have targets beside their views: `rows(start, stop)` of this width, of which those are known that
    are `labelled`; each sample has the row that is its `own`."""
    source = open_function(rows, (len(labelled), width), "targets")
    column = np.where((own >= 0) & labelled[own], own, -1)
    return JointSamples({**samples.sources, TARGETS: source}, np.column_stack([samples.table, column]))
