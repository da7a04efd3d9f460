"""What models can do whose moments add up: samples have weights, and rows come a part at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import xarray as xr

from dlatent.arrays import Array, AxisLabels
from dlatent.containers import refuse_mask
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitting.plan import Plan
from dlatent.fitting.task import Task
from dlatent.models.available import available_if
from dlatent.models.base import Fitted, Given
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.heads import Fits, Scores
from dlatent.models.hyperparameters import COUNT
from dlatent.models.inputs import Data, PathLike, SampleWeight, TargetsLike
from dlatent.models.labelled import plain_rows
from dlatent.models.linear import RowModel
from dlatent.models.map_rows import open_input, samples_of


class FitsWeighted(Fits):
    """Models that are fitted to features alone, of samples that may have weights."""

    def plan(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        sample_weight: SampleWeight = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
    ) -> Plan:
        """What `fit` would do and cost, from metadata alone: solver and why, passes, bytes, tasks, memory."""
        return self._plan(self._weighted(self._given(X, dim, weights), sample_weight), client)

    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        sample_weight: SampleWeight = None,
        dim: str | None = None,
        weights: xr.DataArray | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to samples × features.

        With weights w what is maximised is Σ w_i log p(x_i).
        """
        given = self._weighted(self._given(X, dim, weights), sample_weight)
        return self._fit(given, client, callbacks, checkpoint, resume)

    def _weighted(self, given: Given, sample_weight: SampleWeight) -> Given:
        """What a fit is given, with the weights of its samples."""
        if sample_weight is None:
            return given
        if self._missing != "raise":
            raise DataError(
                "sample_weight is for complete data; with missing entries repeat rows, or leave out those of weight 0"
            )
        source = given.source
        own = sample_weights(sample_weight, source.shape[0], source.labels)
        return replace(given, source=replace(source, weights=own))

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        if given.source.weights is not None:  # of which the routes count the sum
            rows = given.source.shape[0]
            fitted = replace(fitted, outcome=replace(fitted.outcome, samples=rows, view_samples=(rows,)))
        super()._keep(fitted, task, given)


class FitsPartly(RowModel):
    """Models whose moments of complete rows add up, so that rows can come a part at a time."""

    @available_if(lambda model: model._missing == "raise")
    @described
    def partial_fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        dim: str | None = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Add rows to those of earlier calls, and fit the model to all of them.

        The model keeps D² moments of the rows, and is after each call that of one fit to all rows, whatever their order
        and parts, to rounding.  `fit` begins anew; a model that was saved and loaded has lost its moments.

        Returns
        -------
        self
            The fitted model; `n_samples_` counts all rows, `history_` and `n_passes_` tell of the last call.

        Raises
        ------
        DataError
            For other features than before, for a model that was fitted by `fit` or loaded, and as in `fit`.
        PlanError
            Where the moments do not fit in memory.
        """
        self._check_hyperparameters()
        before = getattr(self, "_fitted", None)
        earlier = None if before is None else before.outcome.moments
        if not COUNT.test(self.n_components):
            raise DataError(f"n_components is {self.n_components!r}; rows that are added need a number")
        if before is None:
            return self._fit(replace(self._given(X, dim), adding=True), client, callbacks, None, False)
        if earlier is None:
            raise DataError(
                "the model was fitted by `fit`, or loaded, and has no moments to add to; begin with partial_fit of a "
                "clone"
            )
        known = self._known_features()
        source, _ = open_input(X, known=known.grid)
        known.check(source.shape, source.labels.features)
        rows = source.shape[0] + int(before.outcome.samples)
        self._check_shape(replace(source, shape=(rows, source.shape[1])))
        return self._fit(Given(source, adding=True, earlier=earlier), client, callbacks, None, False)


class ScoresWeighted(Scores):
    """Models that give the likelihood of rows, which may have weights."""

    def score(
        self, X: Data, y: TargetsLike = None, *, sample_weight: SampleWeight = None, client: Where = None
    ) -> float:
        """Mean log-likelihood per sample, in nats (as scikit-learn's PCA.score).

        Returns
        -------
        float
            The mean of `score_samples`, with weights Σ w_i log p(x_i)/Σ w_i.
        """
        each = np.asarray(self.score_samples(X, client=client))
        own = None
        if sample_weight is not None:
            own = sample_weights(sample_weight, *samples_of(X, self._fitted.labels.grid))
        return float(np.average(each, weights=own))


def sample_weights(values: SampleWeight, samples: int, labels: AxisLabels) -> Array:
    """The weights of so many samples (N,), whose data have these labels.

    Errors: DataError, with the row of a weight that is none.
    """
    rows = plain_rows(values, labels, "weights")
    try:
        found = np.asarray(refuse_mask(rows, "sample_weight"), dtype=np.float64)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight is no array of numbers: {error}; give one for each sample") from error
    if found.shape != (samples,):
        raise DataError(f"sample_weight has shape {found.shape}; expected a weight for each of the {samples} samples")
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0.0)))
    if len(bad):
        raise DataError(
            f"sample_weight of row {bad[0]} is {found[bad[0]]} ({len(bad)} such weights in all); expected finite "
            "numbers of at least 0"
        )
    if not found.any():
        raise DataError("sample_weight is zero for all samples; give at least one a weight above 0")
    return found
