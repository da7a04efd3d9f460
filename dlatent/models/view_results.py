"""What a model of several views says of its views and of joint samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels, Block, DataSource, Grid
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.grid import cells_named, feature_axis, over_features
from dlatent.linear_gaussian.expectation import pattern_projection
from dlatent.linear_gaussian.joint import (
    JointRequest,
    PartsFunction,
    block_results,
    joint_densities,
    joint_scores,
    view_densities,
    view_predictions,
    view_scores,
)
from dlatent.linear_gaussian.likelihood import predict_view
from dlatent.linear_gaussian.views import Arrangement
from dlatent.models.base import LatentVariableModel
from dlatent.models.callbacks import shown
from dlatent.models.correspondence_table import joined_rows, named, without_labels
from dlatent.models.features import KnownFeatures, view_feature_names
from dlatent.models.inputs import (
    Data,
    Names,
    Pairing,
    PathLike,
    Rows,
    ScoresLike,
    Seed,
    TargetsLike,
    Views,
)
from dlatent.models.joint_views import pairing
from dlatent.models.linear import posterior_dataset
from dlatent.models.map_rows import map_rows, open_input
from dlatent.passes import Pass
from dlatent.stores.joint import JointSource, joint
from dlatent.stores.joint_rows import Table


class JointSamples(NamedTuple):
    """The views of joint samples by name, and the rows of each that are theirs (samples, views), −1 where they lack
    one."""

    sources: dict[str, DataSource]
    table: Table


class Together(NamedTuple):
    """Results of joint samples in the order of their table, and their rows in each view as coordinates."""

    values: Array
    rows: dict[str, tuple[str, Table]]


def arrangement(source: JointSource, numbers: Sequence[int], sizes: tuple[int, ...]) -> Arrangement:
    """How joint samples are arranged, for a model with views of these sizes that the source has as these numbers."""
    dense = [True] * len(sizes)
    for number, own in zip(numbers, source.dense, strict=True):
        dense[number] = own
    return Arrangement(source.bounds, sizes, tuple(dense))


def opened(
    views: Views, on: Names, known: Mapping[str, AxisLabels] | None = None
) -> tuple[dict[str, Any], dict[str, DataSource]]:
    """The data of the views by name, and their sources; `known`, the labels of those that a model was fitted to."""
    data = named(views)
    sources: dict[str, DataSource] = {}
    for name, own in data.items():
        grid = known[name].grid if known and name in known else None
        # Of more than two dimensions that is one of samples whose labels the views share.
        several = isinstance(own, xr.DataArray) and own.ndim > 2 and not grid
        dim = on if several and isinstance(on, str) and on in own.dims else None
        try:
            sources[name] = open_input(without_labels(own, on), dim=dim, known=grid)[0]
        except DataError as error:
            raise type(error)(f"view {name!r}: {error}") from error
    return data, sources


class ViewResults(LatentVariableModel):
    """Scores, likelihoods and reconstructions of a fitted model of several views; see CorrespondencePPCA."""

    view_names_: tuple[str, ...]
    _view_labels: dict[str, AxisLabels]

    @property
    def _n_features_out(self) -> int:
        return int(self._parameters.loadings.shape[1])

    @property
    def component_names_(self) -> npt.NDArray[np.int64]:
        """Labels of the latent dimension, from 0."""
        return np.arange(self._n_features_out)

    def _number(self, view: str) -> int:
        self._require_fitted()
        if view not in self.view_names_:
            raise DataError(
                f"{view!r} is no view of the model; it was fitted to {', '.join(map(repr, self.view_names_))}"
            )
        return self.view_names_.index(view)

    @property
    def feature_names_in_(self) -> dict[str, npt.NDArray[np.object_]]:  # type: ignore[override]
        """Names of the features of each view whose data had names in the fit, all of them texts."""
        self._require_fitted()
        return view_feature_names(self, {name: labels.features for name, labels in self._view_labels.items()})

    def _known_view(self, view: str) -> KnownFeatures:
        """What the model asks of new data of a view."""
        width = self._specification.sizes[self._number(view)]
        labels = self._view_labels[view]
        return KnownFeatures(type(self).__name__, width, labels.features, view, grid=labels.grid, place=self._place)

    def _alone(
        self, view: str, data: Data, function: Any, columns: str, names: Any, name: str, **options: Any
    ) -> Rows | str:
        """A function of the rows of one view, in the kind of its data."""
        number = self._number(view)
        rows = partial(function, view=number, parameters=self._parameters, specification=self._specification)
        return map_rows(data, rows, self._known_view(view), columns=columns, names=names, name=name, **options)

    def _samples(self, views: Views, correspondence: Pairing, on: Names) -> JointSamples:
        """Joint samples of new data; those of one view are its rows."""
        self._require_fitted()
        data, sources = opened(views, on, self._view_labels)
        for name in sources:
            self._number(name)
        for name, own in sources.items():
            self._known_view(name).check(own.shape, own.labels.features)
        if len(sources) == 1:
            return JointSamples(sources, np.arange(next(iter(sources.values())).shape[0])[:, None])
        return JointSamples(sources, joined_rows(pairing(views, correspondence, on), on, data, sources))

    def _numbers(self, samples: JointSamples) -> list[int]:
        """The number of each of their views in the model."""
        names = [view.name for view in self._specification.views]
        return [names.index(name) for name in samples.sources]

    def _together(self, samples: JointSamples, client: Any, function: PartsFunction, width: int) -> Together:
        """A function of joint samples, with `width` values each, in the order of their table."""
        sources, table = samples
        numbers, source = self._numbers(samples), joint(sources, table)
        about = arrangement(source, numbers, self._specification.sizes)
        patterns = tuple(tuple(numbers[view] for view in pattern) for pattern in source.patterns)
        request = JointRequest(function, self._parameters, self._specification, patterns, about)
        local, values = "serial" if source.in_memory else client, np.empty((source.shape[0], width))

        def take(pieces: tuple[tuple[int, Array], ...]) -> None:
            for start, piece in pieces:
                values[source.order[start : start + len(piece)]] = piece

        grids: dict[str | None, Grid | None] = {name: own.labels.grid for name, own in sources.items()}
        with connect(source, client=local, cache_bytes=0) as session, shown(session, "joint rows"), cells_named(grids):
            session.deliver(Pass(_placed_results, request, name="joint rows"), take)
        known = enumerate(name for name in sources if name in self.view_names_)
        return Together(values, {f"row_{name}": ("sample", table[:, view]) for view, name in known})

    def transform(
        self,
        views: Views,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Scores: the mean of the latent variables of each sample, given the views that it has.

        Parameters
        ----------
        out : path or URL, optional
            Of one view: a Zarr store to write the result to, instead of memory.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            For one view in the kind of its data, or the path `out`.  For several a DataArray (sample, component) of all
            samples, those that correspond first, whose coordinates `row_NAME` are their rows in each view (−1: none).

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For other features or unknown views, and as in `fit`.
        """
        self._require_fitted()
        names = self.component_names_
        alone = only_view(views)
        if alone is not None:
            options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
            return self._alone(*alone, view_scores, "component", names, "scores", **options)
        if out is not None:
            raise DataError("out is for the scores of one view; those of several views come in memory")
        return self._joint_scores(self._samples(views, correspondence, on), client)

    def _joint_scores(self, samples: JointSamples, client: Any) -> xr.DataArray:
        found = self._together(samples, client, joint_scores, self._n_features_out)
        coords = {"component": self.component_names_, **found.rows}
        return xr.DataArray(found.values, dims=("sample", "component"), coords=coords, name="scores")

    def fit_transform(
        self, X: Views, y: TargetsLike = None, *, correspondence: Pairing = None, on: Names = None, client: Where = None
    ) -> Rows:
        """`fit`, then `transform` of the same views.

        Parameters
        ----------
        X : mapping, list or xarray.Dataset
            The views, as in `fit`.

        Returns
        -------
        array of shape (n_samples, n_components)
            As `transform`.
        """
        cast(Any, self).fit(X, y, correspondence=correspondence, on=on, client=client)
        return cast(Rows, self.transform(X, correspondence=correspondence, on=on, client=client))

    def posterior(
        self, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
    ) -> xr.Dataset:
        r"""The distribution of the latent variables of each sample, given the views x that it has.

        .. math:: z \mid x \sim N\left(M^{-1} W^\top \Psi^{-1} (x - \mu),\; M^{-1}\right)

        Parameters
        ----------
        views : mapping from names to data
            As in `transform`.

        Returns
        -------
        xarray.Dataset
            `scores` (sample, component) and `covariance` (component, component_2); of several views one covariance for
            each set of views that occurs (pattern, component, component_2), `pattern_of` (sample) and `has` (pattern,
            view).
        """
        self._require_fitted()
        alone = only_view(views)
        if alone is not None:
            scores: Any = self.transform(views, client=client)
            about = pattern_projection(self._parameters, self._specification, (self._number(alone[0]),))
            return posterior_dataset(scores, about.covariance[None], np.zeros(scores.shape[0], dtype=np.int64))
        return self._joint_posterior(self._samples(views, correspondence, on), client)

    def _joint_posterior(self, samples: JointSamples, client: Any) -> xr.Dataset:
        scores, (sets, patterns, pattern) = self._joint_scores(samples, client), self._sets(samples)
        covariances = [pattern_projection(self._parameters, self._specification, p).covariance for p in patterns]
        found = posterior_dataset(scores, np.stack(covariances), pattern)
        if len(sets) == 1:
            return found
        return found.assign(has=(("pattern", "view"), sets)).assign_coords(view=list(samples.sources))

    def _sets(
        self, samples: JointSamples
    ) -> tuple[npt.NDArray[np.bool_], list[tuple[int, ...]], npt.NDArray[np.int64]]:
        """The sets of views that occur (sets, views), the same as numbers in the model, and the set of each sample."""
        sets, pattern = np.unique(samples.table >= 0, axis=0, return_inverse=True)
        numbers = self._numbers(samples)
        patterns = [tuple(number for number, own in zip(numbers, line, strict=True) if own) for line in sets]
        return sets, patterns, pattern.ravel()

    def reconstruct(
        self,
        data: Data,
        from_view: str,
        to_view: str,
        *,
        return_variance: bool = False,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str | tuple[Rows | str, Array]:
        r"""Another view of the same samples.

        .. math:: x_w \mid x_v \sim N\left(\mu_w + W_w E[z \mid x_v],\; W_w M_v^{-1} W_w^\top + \Psi_w\right)

        Parameters
        ----------
        data : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features of from_view)
            Rows of the view that is given.
        from_view : str
            Its name.
        to_view : str
            The view that is wanted.

        Returns
        -------
        reconstructed : array of shape (n_samples, n_features of to_view), or str
            In the kind of the data (numpy, lazy Dask, xarray), or the path `out`.
        variance : ndarray of shape (n_features of to_view,)
            With `return_variance` only: the variance of each feature, the same for all samples.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For unknown views, and as in PPCA.transform.
        """
        number, labels = self._number(to_view), self._view_labels.get(to_view, AxisLabels())
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        options |= feature_axis(labels, self._specification.sizes[number])
        mean = self._alone(from_view, data, partial(view_predictions, other=number), name="reconstructed", **options)
        return (mean, self.predictive_variance(from_view, to_view)) if return_variance else mean

    def predictive_variance(self, from_view: str, to_view: str) -> Array:
        """Variance of each feature of a view given another view, noise included: diag(W_w M_v⁻¹ W_wᵀ + Ψ_w).

        Parameters
        ----------
        from_view : str
            The view that is given.
        to_view : str
            The view that is wanted.

        Returns
        -------
        ndarray of shape (n_features of to_view,)
            In squared units of the features.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For unknown views.
        """
        about = pattern_projection(self._parameters, self._specification, (self._number(from_view),))
        nothing = np.zeros((0, self._n_features_out))
        return predict_view(nothing, about, self._number(to_view), self._parameters, self._specification).variance

    def inverse_transform(self, Z: ScoresLike, view: str) -> npt.NDArray[Any] | xr.DataArray:
        """What the model expects of a view for given latent variables, E[x_v|z] = W_v z + μ_v.

        Parameters
        ----------
        view : str
            Its name.

        Returns
        -------
        array of shape (n_samples, n_features of the view)
            In units of the features; over their dimensions as in PPCA.inverse_transform.

        Raises
        ------
        NotFittedError
            Before `fit`.
        DataError
            For an unknown view or another number of components.
        """
        own, scores = self._specification.slices[self._number(view)], self._latent(Z)
        rows = np.asarray(scores @ self._parameters.loadings[own].T + self._parameters.mean[own])
        return over_features(rows, self._view_labels.get(view, AxisLabels()), Z)

    def score_samples(
        self, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
    ) -> Rows:
        """Log-likelihood of each sample: log p of the views that it has, in O(DK) each.

        Parameters
        ----------
        views : mapping from names to data
            As in `transform`.

        Returns
        -------
        array of shape (n_samples,)
            In nats; for one view in the kind of its data, for several a DataArray (sample) in the order of `transform`.
        """
        self._require_fitted()
        alone = only_view(views)
        if alone is not None:
            return cast(Rows, self._alone(*alone, view_densities, "", None, "log_likelihood", client=client))
        return self._joint_densities(self._samples(views, correspondence, on), client)

    def _joint_densities(self, samples: JointSamples, client: Where) -> xr.DataArray:
        found = self._together(samples, client, joint_densities, 1)
        return xr.DataArray(found.values[:, 0], dims=("sample",), coords=found.rows, name="log_likelihood")

    def score(
        self,
        views: Views,
        y: TargetsLike = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        client: Where = None,
    ) -> float:
        """Mean log-likelihood per sample, in nats.

        Parameters
        ----------
        views : mapping from names to data
            As in `transform`.

        Returns
        -------
        float
            The mean of `score_samples`.
        """
        found = self.score_samples(views, correspondence=correspondence, on=on, client=client)
        return float(np.mean(np.asarray(found)))

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> dict[str, npt.NDArray[np.float64]]:
        """Draw samples that have every view: z ~ N(0, I), x_v = W_v z + μ_v + ε_v.

        Returns
        -------
        dict of ndarray of shape (n_samples, n_features of the view)
            In units of the features.
        """
        rows = self._drawn(n_samples, random_state)
        return {name: rows[:, at] for name, at in zip(self.view_names_, self._specification.slices, strict=True)}

    def get_covariance(self, view: str, other: str | None = None) -> Array:
        """The model's covariance of a view, W_vW_vᵀ + Ψ_v, or that between two views, W_vW_wᵀ.

        Parameters
        ----------
        view : str
            Its name.
        other : str, optional
            Another view.

        Returns
        -------
        ndarray of shape (n_features of the view, n_features of the other or of the view)
            In squared units of the features.
        """
        slices = self._specification.slices
        return self._covariance(slices[self._number(view)], None if other is None else slices[self._number(other)])


def _placed_results(block: Block, request: JointRequest) -> tuple[tuple[int, Array], ...]:
    return tuple((block.start, rows) for rows in block_results(block, request))


def only_view(views: Views) -> tuple[str, Any] | None:
    """Name and data of the view, where there is one only."""
    data = named(views)
    return next(iter(data.items())) if len(data) == 1 else None
