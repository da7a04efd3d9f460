"""Locally linear embedding of several data sets with samples in correspondence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Features
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.estimators.callbacks import Callback
from dlatent.estimators.correspondence_table import joined_rows, named, without_labels
from dlatent.estimators.features import view_feature_names
from dlatent.estimators.inputs import (
    Data,
    Names,
    Pairing,
    PathLike,
    Rows,
    Seed,
    TargetsLike,
    Views,
)
from dlatent.estimators.local_linear import REFERENCE_BYTES, LocalLinearModel, rows_of
from dlatent.estimators.map_rows import map_rows, open_input
from dlatent.fitting.local_linear import LocalPlan
from dlatent.local_linear.embedding import Reference, interpolated
from dlatent.stores.joint_rows import Table


class CorrespondenceLLE(LocalLinearModel):
    """Locally linear embedding of several data sets at once, in which samples in correspondence have one place.

    min Σ_v Σ_i ‖y_i − Σ_j W^v_ij y_j‖²,  Y over the n distinct samples, with YᵀY = nI and Σ y_i = 0.

    Parameters: as in LocallyLinearEmbedding; neighbours are sought in each view by itself.

    Attributes
    ----------
    embedding_ : Y (n, K), the distinct samples, in the order of `samples_`.
    samples_ : (n, views), the row of each sample in each view, −1 where it is absent.
    view_names_ : names of the views.
    feature_names_in_ : for each view whose data had names, those of its features.

    Others as LocallyLinearEmbedding.

    Source: Ham, Lee and Saul (2003), section 3; errata 20 in this documentation.
    """

    def plan(self, views: Views) -> dict[str, LocalPlan]:
        """What the passes over each view will cost, from metadata alone.

        Parameters: `views` as in `fit`. Returns: a plan for each. Errors: DataError for data that cannot be embedded.
        """
        self._check_hyperparameters()
        return {name: self._plan(open_input(data)[0]) for name, data in named(views).items()}

    def fit(
        self,
        views: Views,
        y: TargetsLike = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Embed all views together.

        Parameters: `views`, data sets (N_v, D_v) of any kind, by name or in order; `correspondence` (m, views), integer
        pairs of rows for two views, or a row of each view, −1 where absent, others being samples of their own; or
        `on`, the name of labels that the views share (an xarray coordinate, a column), or labels by view; `y` is
        ignored; `client`, `callbacks`, `checkpoint`, `resume` as in PPCA.fit.
        Errors: DataError for contradictions in the correspondence, and as LocallyLinearEmbedding.fit.
        """
        self._check_hyperparameters()
        data = named(views)
        sources = {name: open_input(without_labels(own, on))[0] for name, own in data.items()}
        table = joined_rows(correspondence, on, data, sources)
        self._fit(list(sources), list(sources.values()), table, client, callbacks, checkpoint, resume)
        return self

    @property
    def samples_(self) -> Table:
        """The row of each sample in each view (n, views), −1 where it is absent."""
        self._require_fitted()
        return self._table

    @property
    def view_names_(self) -> list[str]:
        """Names of the views."""
        self._require_fitted()
        return [view.name for view in self._views]

    @property
    def feature_names_in_(self) -> dict[str, npt.NDArray[Any]]:
        """Names of the features of each view whose data had names in the fit, all of them texts."""
        self._require_fitted()
        return view_feature_names(self, {view.name: view.features for view in self._views})

    def embedding_of(self, view: str | int) -> Array:
        """The embedding of the training rows of a view (N_v, K), in their order."""
        self._require_fitted()
        return self._coordinates(self._number(view))

    def transform(
        self,
        X: Data,
        view: str | int = 0,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Coordinates of new samples that are known by one view, as LocallyLinearEmbedding.transform.

        Parameters: `X` (n, D_v); `view`, its name or number; `out`, a Zarr store to be written instead of memory,
        `overwrite` one that is there;
        `resume`, to keep what an interrupted call has written and to go on from there; `client` as in `fit`.
        Returns: (n, K) in the kind of the input, or the path.
        Errors: NotFittedError; DataError for an unknown view, and as in `PPCA.transform`.
        """
        self._require_fitted()
        return self._transform(X, self._number(view), out, overwrite, resume, client)

    def reconstruct(
        self,
        X: Data | None = None,
        from_view: str | int = 0,
        to_view: str | int = 1,
        *,
        reg: float = 0.1,
        client: Where = None,
    ) -> Rows:
        """One view of samples from another: x' = Σ_a w_a x'_a, with weights of the embedding's nearest neighbours.

        Parameters: `X` (n, D_from) new samples, or None for the training rows of `from_view` at their own places;
        `to_view`, the view that is wanted; `reg`, regularisation of the weights in the embedding: neighbours in few
        dimensions are often on one side of a sample, and small values then extrapolate far beyond them; `client` as
        in `fit`.
        Returns: (n, D_to) in the kind of the input. Errors: as `transform`.
        """
        self._require_fitted()
        if not 0 < reg < np.inf:
            raise DataError(f"reg is {reg!r}; expected a positive part of the trace, such as 0.1")
        source, target = self._number(from_view), self._number(to_view)
        rows = self._reference(target, None)
        latent = Reference(self._coordinates(target), rows.samples, rows.k, reg)
        if X is None:
            return interpolated(self._coordinates(source), latent)
        first = self._reference(source, self._coordinates(source))
        width, labels = self._views[target].shape[1], self._views[target].features
        found = map_rows(
            X,
            partial(_reconstructed_rows, first=first, second=latent),
            self._known_features(source),
            columns="feature",
            names=np.arange(width) if labels is None else labels,
            name="reconstruction",
            client=client,
        )
        return cast(Rows, found)

    def _number(self, view: str | int) -> int:
        names = self.view_names_
        if isinstance(view, str) and view in names:
            return names.index(view)
        if isinstance(view, (int, np.integer)) and -len(names) <= view < len(names):
            return int(view) % len(names)
        raise DataError(f"there is no view {view!r}; the views are {', '.join(map(repr, names))}")


def self_correspondence(
    X: Data,
    parts: int = 2,
    overlap: float = 0.6,
    *,
    random_state: Seed = 0,
    client: Where = None,
    **options: int | float | str,
) -> CorrespondenceLLE:
    """Embed one data set as several overlapping subsets of itself.

    Parameters: `X` (N, D) in memory; `parts`, number of subsets; `overlap`, part of the samples that all of them have
    (the others have one subset each); `random_state`, seed of the division; `client` as in PPCA.fit; `options` of
    CorrespondenceLLE.
    Returns: the fitted model; its `embedding_` has the order of X.
    Errors: DataError for other numbers of parts or overlaps.
    Source: Ham, Lee and Saul (2003), section 3 and figure 4.
    """
    if not isinstance(parts, (int, np.integer)) or parts < 2:
        raise DataError(f"parts is {parts!r}; expected an integer of at least 2")
    if not 0 < overlap < 1:
        raise DataError(f"overlap is {overlap!r}; expected a part of the samples, above 0 and below 1")
    model = CorrespondenceLLE(**cast(dict[str, Any], options))
    source, _ = open_input(X)
    rows = rows_of(source)
    if rows is None:
        raise DataError(f"the {source.description} is larger than {REFERENCE_BYTES >> 30} GiB; embed it as one")
    table = divided(source.shape[0], int(parts), overlap, random_state)
    views = {str(part): rows[np.flatnonzero(table[:, part] >= 0)] for part in range(parts)}
    return model.fit(views, correspondence=table, client=client)


def divided(samples: int, parts: int, overlap: float, random_state: Seed) -> Table:
    """The row of each sample in each of some overlapping subsets (samples, parts), −1 where it is absent."""
    order = np.random.default_rng(random_state).permutation(samples)
    shared = round(overlap * samples)
    member = np.zeros((samples, parts), dtype=bool)
    member[order[:shared]] = True
    for part, own in enumerate(np.array_split(order[shared:], parts)):
        member[own, part] = True
    return np.where(member, np.cumsum(member, axis=0) - 1, -1)


def _reconstructed_rows(features: Features, _targets: Any, first: Reference, second: Reference) -> Array:
    return interpolated(interpolated(features, first), second)
