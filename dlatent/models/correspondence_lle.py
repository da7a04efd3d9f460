"""Locally linear embedding of several data sets with samples in correspondence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.embedding import REFERENCE_BYTES, embedded, plan_of, rows_of
from dlatent.models.hyperparameters import model
from dlatent.models.inputs import Data, Names, Pairing, PathLike, Rows, Seed, TargetsLike, Views, view_feature_names
from dlatent.models.joint_views import joined_rows, named, without_labels
from dlatent.models.labelled import open_input
from dlatent.models.local_linear import LocalLinearModel
from dlatent.models.map_rows import RowsRun, map_rows
from dlatent.models.task import FitRun
from dlatent.solvers.lle.embedding import Reference, interpolated, reconstructed_rows
from dlatent.solvers.lle.fit import LocalPlan
from dlatent.stores.joint import Table


@model
class CorrespondenceLLE(LocalLinearModel):
    r"""Locally linear embedding of several data sets at once, in which samples in correspondence have one place.

    .. math:: \min_Y \sum_v \sum_i \left\| y_i - \sum_j W^v_{ij} y_j \right\|^2 \quad \text{with} \quad
        Y^\top Y = n I, \quad \sum_i y_i = 0

    Y are coordinates of the n distinct samples.

    References
    ----------
    Ham, Lee and Saul (2003), section 3; errata 20 in this documentation.  Read more in :doc:`/models/lle`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondenceLLE
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> pairs = np.column_stack([np.arange(30), np.arange(30)])
    >>> model = CorrespondenceLLE(n_neighbors=8).fit([X, X @ np.diag([1.0, 2.0, 3.0])], correspondence=pairs)
    >>> model.embedding_.shape
    (90, 2)
    """

    def plan(self, views: Views) -> dict[str, LocalPlan]:
        """Plan the passes over each view and their cost, from metadata alone.

        Returns
        -------
        dict of LocalPlan
            One for each view.

        Raises
        ------
        DataError
            For data that cannot be embedded.
        """
        self._check()
        return {name: plan_of(self, open_input(data)) for name, data in named(views).items()}

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

        Raises
        ------
        DataError
            For contradictions in the correspondence, and as LocallyLinearEmbedding.fit.
        PlanError
            Where neighbours or the embedding do not fit in memory; before data move.

        Warns
        -----
        ConvergenceWarning, DataWarning
            Where the eigenvectors are not known well, or the graph falls apart.
        """
        self._check()
        data = named(views)
        sources = {name: open_input(without_labels(view, on)) for name, view in data.items()}
        table = joined_rows(views, correspondence, on, data, sources)
        return self._become(embedded(self, sources, table, FitRun(client, callbacks, checkpoint, resume)))

    @property
    def samples_(self) -> Table:
        """ndarray of int of shape (n_samples, n_views): The row of each sample in each view, −1 where it is absent."""
        return self._model.table

    @property
    def view_names_(self) -> list[str]:
        """list of str: Names of the views."""
        return [view.name for view in self._model.training.views]

    @property
    def feature_names_in_(self) -> dict[str, npt.NDArray[Any]]:
        """dict of ndarray: For each view whose data had names, those of its features."""
        return view_feature_names(self, {view.name: view.features for view in self._model.training.views})

    def embedding_of(self, view: str | int) -> Array:
        """The embedding of the training rows of a view, in their order.

        Parameters
        ----------
        view : str or int
            Its name or number.

        Returns
        -------
        ndarray of shape (n_samples of the view, n_components)
            A part of `embedding_`.
        """
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

        Parameters
        ----------
        view : str or int, default 0
            Its name or number.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input, or the path `out`.

        Raises
        ------
        DataError
            For an unknown view, and as in PPCA.transform.
        """
        return self._interpolated(X, self._number(view), RowsRun(out, overwrite, resume, client))

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

        Parameters
        ----------
        X : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features of from_view), optional
            New samples; by default the training rows of `from_view` at their own places.
        from_view : str or int, default 0
            The view that is given.
        to_view : str or int, default 1
            The view that is wanted.
        reg : float, default 0.1
            Regularisation of the weights in the embedding.  Neighbours in few dimensions are often on one side of a
            sample, and small values then extrapolate far beyond them.

        Returns
        -------
        array of shape (n_samples, n_features of to_view)
            In the kind of the input.
        """
        if not 0 < reg < np.inf:
            raise DataError(f"reg is {reg!r}; expected a positive fraction of the trace, such as 0.1")
        source, target = self._number(from_view), self._number(to_view)
        rows = self._reference(target, None)
        latent = Reference(self._coordinates(target), rows.samples, rows.k, reg)
        if X is None:
            return interpolated(self._coordinates(source), latent)
        first = self._reference(source, self._coordinates(source))
        width, labels = self._model.training.views[target].shape[1], self._model.training.views[target].features
        result = map_rows(
            X,
            partial(reconstructed_rows, first=first, second=latent),
            self._known_features(source),
            RowsRun(client=client),
            columns="feature",
            names=np.arange(width) if labels is None else labels,
            name="reconstruction",
        )
        return cast(Rows, result)

    def _number(self, view: str | int) -> int:
        names = self.view_names_
        if isinstance(view, str) and view in names:
            return names.index(view)
        if isinstance(view, (int, np.integer)) and -len(names) <= view < len(names):
            return int(view) % len(names)
        raise DataError(f"there is no view {view!r}; the views are {', '.join(map(repr, names))}")


@described
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

    Parameters
    ----------
    X : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features)
        The data, in memory.
    parts : int, default 2
        Number of subsets.
    overlap : float, default 0.6
        Part of the samples that all subsets have; the others are in one subset each.
    random_state : int or numpy.random.Generator, default 0
        Seed of the division.
    **options : optional
        Hyperparameters of CorrespondenceLLE.

    Returns
    -------
    CorrespondenceLLE
        The fitted model; its `embedding_` has the order of X.

    Raises
    ------
    DataError
        For other numbers of parts or overlaps.

    References
    ----------
    Ham, Lee and Saul (2003), section 3 and figure 4.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import self_correspondence
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> self_correspondence(X, n_neighbors=10).embedding_.shape
    (60, 2)
    """
    if not isinstance(parts, (int, np.integer)) or parts < 2:
        raise DataError(f"parts is {parts!r}; expected an integer of at least 2")
    if not 0 < overlap < 1:
        raise DataError(f"overlap is {overlap!r}; expected a part of the samples, above 0 and below 1")
    model = CorrespondenceLLE(**cast(dict[str, Any], options))
    source = open_input(X)
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
    for part, members in enumerate(np.array_split(order[shared:], parts)):
        member[members, part] = True
    return np.where(member, np.cumsum(member, axis=0) - 1, -1)
