"""Several views in the conformance suite: the same laws, of stacked features of which samples lack whole views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import xarray as xr

from dlatent.arrays import Array
from dlatent.stores.joint import Table
from dlatent.testing.conformance import Preset, Values


def split(features: Any, sizes: Sequence[int], has: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The views "a", "b", … of stacked features (N, D): of each the rows of the samples that have it (N, views)."""
    bounds = np.cumsum([0, *sizes]).tolist()
    bounds[-1] = features.shape[1]
    cuts = zip("abcdefgh", pairwise(bounds), has.T, strict=False)
    return {name: features[np.flatnonzero(own)][:, start:stop] for name, (start, stop), own in cuts}


def table_of(has: npt.NDArray[np.bool_]) -> Table:
    """The correspondence of those views: the row of each sample in each view, −1 where it has none."""
    return np.where(has, np.cumsum(has, axis=0) - 1, -1)


@dataclass(frozen=True)
class ViewsPreset(Preset):
    """A model of several views with `sizes` features, of which samples lack those that `has` (N, views) says; targets
    are those of all samples."""

    sizes: tuple[int, ...] = ()
    has: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=bool), repr=False)

    def data(self, features: Any = None) -> dict[str, Any]:
        return split(self.features if features is None else features, self.sizes, self.has)

    @property
    def keywords(self) -> dict[str, Any]:
        return {"correspondence": table_of(self.has)}

    @property
    def cells(self) -> int:
        return int((self.has * np.array(self.sizes)).sum())

    def reordered(self, order: Any) -> Preset:
        targets = None if self.targets is None else np.asarray(self.targets)[order]
        return replace(self, features=self.features[order], has=self.has[order], targets=targets)

    def score_samples(self, model: Any) -> Array:
        """The log-likelihood of each sample."""
        return np.asarray(model.score_samples(self.data(), *self.labels, **self.keywords))

    def values(self, model: Any) -> Values:
        """The fitted parameters, those of several views side by side."""
        noise = np.concatenate([np.atleast_1d(own) for own in model.noise_variance_.values()])
        mean = np.concatenate(list(model.mean_.values()))
        return Values(np.hstack(list(model.components_.values())), mean, noise, model.log_likelihood_)

    def transform(self, model: Any, features: Any = None) -> Any:
        return model.transform(self.data(features), **self.keywords)

    def mean_score(self, model: Any) -> tuple[float, Array]:
        """What `score` says, and the log-likelihoods that it should be the mean of."""
        return model.score(self.data(), *self.labels, **self.keywords), self.score_samples(model)

    def diagonal(self, model: Any) -> Array:
        """The posterior covariance of a sample that has every view, and its targets where there are any."""
        found = model.posterior(self.data(), *self.labels, **self.keywords)
        if "has" not in found:
            return np.asarray(found["covariance"].values)
        whole = int(np.flatnonzero(found["has"].values.all(axis=1))[0])
        return np.asarray(found["covariance"].values[whole])

    def first_components(self, model: Any) -> Array:
        """Loadings of the first view."""
        return np.asarray(next(iter(model.components_.values())))

    def sample(self, model: Any, count: int, seed: int) -> tuple[Array, Array]:
        """Features drawn from the model, and the covariance that they should have."""
        drawn, names = model.sample(count, random_state=seed), model.view_names_
        blocks = [[model.get_covariance(one, other) for other in names] for one in names]
        views = drawn if self.targets is None else drawn[0]
        return np.hstack(list(views.values())), np.block(blocks)

    def check_names(self) -> None:
        """Rows of a view keep their names, features of another come with theirs, and samples tell their rows."""
        model, plain = self.fitted, self.data()
        first, second = model.view_names_[:2]
        rows = [f"r{i}" for i in range(len(plain[first]))]
        data = xr.DataArray(plain[first], dims=("row", "column"), coords={"row": rows})
        found = model.transform({first: data})
        assert found.dims == ("row", "component")
        assert found["row"].values.tolist() == rows
        np.testing.assert_array_equal(found.values, model.transform({first: plain[first]}))
        words = [f"w{i}" for i in range(plain[second].shape[1])]
        named = xr.DataArray(plain[second], dims=("line", "word"), coords={"word": words})
        other = self.make(tol=1e-12).fit(plain | {second: named}, *self.labels, **self.keywords)
        guess = other.reconstruct(data, first, second)
        assert guess.dims == ("row", "word")
        assert guess["word"].values.tolist() == words
        joint = self.transform(model)
        for view, column in zip(model.view_names_, table_of(self.has).T, strict=True):
            np.testing.assert_array_equal(joint[f"row_{view}"], column)


def some_views(samples: int, views: int, *, share: float = 0.5, random_state: Any = 0) -> npt.NDArray[np.bool_]:
    """Which views samples have (N, views): all of the first eight, at random the others, but at least one each."""
    rng = np.random.default_rng(random_state)
    has: npt.NDArray[np.bool_] = rng.random((samples, views)) < share
    has[:8] = True
    alone = np.flatnonzero(~has.any(axis=1))
    has[alone, rng.integers(views, size=len(alone))] = True
    return has


def stacked_rows(features: Any, sizes: Sequence[int], has: npt.NDArray[np.bool_]) -> Array:
    """Stacked features with NaN where a sample lacks a view, as the dense oracles take them."""
    dense: Any = features.toarray() if isinstance(features, sp.csr_array) else features
    return np.where(np.repeat(has, sizes, axis=1), np.asarray(dense), np.nan)
