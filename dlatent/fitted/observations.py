"""Fitted models of entries that are not normal: counts, binary ones, and those with heavy tails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from dlatent.arrays import Array, Features
from dlatent.errors import DataError
from dlatent.fitted.rows import dense_rows, without_own
from dlatent.fitted.stored import attribute, stored
from dlatent.gaussian.likelihood import LatentFunction
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import Parts, rows_of_all_views
from dlatent.observations import Likelihoods, observation_model
from dlatent.observations.model import ObservationModel
from dlatent.observations.posterior import Own, Posterior
from dlatent.observations.statistics import Values, row_chunks
from dlatent.operators.symmetric import doubled, packed_squares, unpacked

if TYPE_CHECKING:  # what rows on workers do not need
    from dlatent.fitted.fit import Summary
    from dlatent.solvers.observations import Observations


@dataclass(frozen=True)
class ObservationRows:
    """Rows of a model whose entries have the distribution `likelihood`, or those of views; `values`, as `missing`, are
    those that it sees."""

    likelihood: Likelihoods
    parameters: Parameters
    specification: Specification
    values: str
    beside: tuple[tuple[str, int], ...] = ()

    @property
    def holes(self) -> bool:
        """Whether NaN is a missing entry."""
        return self.values != "raise"

    @property
    def model(self) -> ObservationModel:
        """The distribution."""
        return observation_model(self.likelihood)

    def _each(self, x: Features, function: Callable[[Posterior, Own, Array], Array], width: int) -> Array:
        """A function of the posteriors of rows, of what entries have beside z, and of which are seen: (n, width)."""
        # A feature that no row of the fit observed has no mean: its entries say nothing.
        known = self.parameters._replace(mean=np.nan_to_num(self.parameters.mean))
        own, values = Own.of(known, self.specification), Values(self.values, self.beside)
        results = np.empty((x.shape[0], width))
        for at in row_chunks(x, known.loadings.shape[1]):
            rows, seen, side = values.of(x[at])
            seen, own = seen * ~np.isnan(self.parameters.mean), own._replace(known=side.known)
            results[at] = function(self.model.expectation(rows, seen, side.centred(known), own), own, seen)
        return results

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | observed entries] (n, K)."""
        return self._each(x, lambda about, *_: about.mean, self.parameters.loadings.shape[1])

    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None:
        """None: each row has its own."""
        return None

    def covariances(self, x: Features, y: Array | None) -> Array:
        """Cov[z | observed entries] of each row (n, K²)."""
        k = self.parameters.loadings.shape[1]
        return self._each(x, lambda about, *_: _matrices(about).reshape(-1, k * k), k * k)

    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array:
        """A function of the posterior means and covariances (n, width)."""
        return self._each(x, lambda about, *_: function(about.mean, _matrices(about)), width)

    def log_density(self, x: Features, y: Array | None) -> Array:
        """The bound of the log-likelihood of the observed entries (n,)."""
        return self._each(x, lambda about, *_: about.bound[:, None], 1)[:, 0]

    def imputed(self, x: Features, y: Array | None) -> Array:
        """The rows with the means of their missing entries."""
        rows, seen, _ = Values("nan", self.beside).of(x)
        return np.where(seen > 0.0, rows, self.expected(x, y))

    def expected(self, x: Features, y: Array | None) -> Array:
        """The means of all entries given those that are observed, NaN where nothing is known of a feature."""
        means = self._around_holes(x, lambda about, *_: self.model.mean(about.e, self._spread(about)))
        return np.where(np.isnan(self.parameters.mean), np.nan, means)

    def imputed_variance(self, x: Features, y: Array | None) -> Array:
        """The variances of missing entries, 0 elsewhere."""

        def variances(about: Posterior, own: Own, seen: Array) -> Array:
            if about.inverse is not None:
                own = own._replace(noise=own.noise * about.inverse[:, None])
            return np.where(seen > 0.0, 0.0, self.model.variance(about.e, self._spread(about), own))

        return self._around_holes(x, variances)

    def _around_holes(self, x: Features, function: Callable[[Posterior, Own, Array], Array]) -> Array:
        """A function with a value for each feature of rows with missing entries, though the fit had none."""
        return replace(self, values="nan")._each(x, function, len(self.parameters.mean))

    def residuals(self, x: Features, y: Array | None) -> Array:
        """The means of entries given the others of their rows, and standardised residuals, NaN where missing (n, 2D);
        beside them the weights E[u] of entries with heavy tails (n, 3D)."""
        model, d = self.model, len(self.parameters.mean)
        heavy = model.noise and model.shapes == "one"

        def parts(about: Posterior, own: Own, seen: Array) -> Array:
            terms, rest = about.terms, without_own(about.terms.precision * about.v)
            e, v = about.e - about.v * terms.slope / rest, about.v / rest
            means = np.where(np.isnan(self.parameters.mean), np.nan, model.mean(e, v))
            weights = [terms.precision * own.noise] if heavy else []
            if about.weight is not None:  # a row with the precision 1, as its noise
                v = v * about.weight[:, None]
            scale = np.sqrt(own.noise + own.known + v if model.noise else model.variance(e, v, own))
            known = np.where(seen > 0.0, 1.0, np.nan)
            return np.hstack([means, *(known * each for each in (scale, *weights))])

        results = self._each(x, parts, (2 + heavy) * d)
        results[:, d : 2 * d] = (dense_rows(x, holes=self.holes)[:, :d] - results[:, :d]) / results[:, d : 2 * d]
        return results

    def _spread(self, about: Posterior) -> Array:
        """Variances of the predictors (n, D)."""
        loadings = self.parameters.loadings
        return np.asarray(about.spread @ (packed_squares(loadings) * doubled(loadings.shape[1])).T)

    def bartlett(self, x: Features, y: Array | None) -> Array:
        """Errors: DataError, as there are none."""
        raise DataError(f"Bartlett's scores are those of normal entries, and likelihood={self.likelihood!r}")


def _matrices(about: Posterior) -> Array:
    return np.ascontiguousarray(np.moveaxis(unpacked(about.spread.T, about.mean.shape[1]), -1, 0))


@dataclass(frozen=True, eq=False)
class Observed:
    """Entries of the distribution `likelihood`, or those of views, of which `values`, as `missing`, are seen; where it
    has no noise the noise variances of the model are 0.  `beside` are the names and columns of what stood beside them,
    and `effects` (D, C) the coefficients of covariates.

    `size` (D,) is that of negative binomial entries, `degrees_of_freedom` that of Student's distribution; of views
    `size` has both.
    """

    likelihood: Likelihoods = attribute()
    values: str = attribute()
    size: Array | None = stored("feature", default=None)
    degrees_of_freedom: float | None = attribute(default=None)
    beside: tuple[tuple[str, int], ...] = attribute(default=())
    effects: Array | None = stored("feature", "covariate", default=None)

    @classmethod
    def of(cls, family: Observations, parameters: Parameters) -> Self:
        """Those of a fit, with its parameters."""
        shape, size, freedom = parameters.shape, None, None
        if shape is not None and family.model.shapes == "each":
            size = shape
        elif shape is not None:
            freedom = float(shape[0])
        return cls(family.likelihood, family.values, size, freedom, family.beside, parameters.effects)

    @property
    def model(self) -> ObservationModel:
        """The distribution."""
        return observation_model(self.likelihood)

    @property
    def shape(self) -> Array | None:
        """Parameters of the distribution beside the noise."""
        return self.size if self.degrees_of_freedom is None else np.array([self.degrees_of_freedom])

    def rows(self, parameters: Parameters, specification: Specification) -> ObservationRows:
        """Functions of single rows of a model."""
        return ObservationRows(self.likelihood, parameters, specification, self.values, self.beside)

    def numbers(self, noise: int) -> int:
        """Free numbers of the distribution of an entry, with so many noise variances."""
        beside = sum(each.size for each in (self.shape, self.effects) if each is not None)
        return noise * self.model.noise + beside

    def told(self) -> Summary:
        """The distribution."""
        shape = {} if self.degrees_of_freedom is None else {"degrees_of_freedom": self.degrees_of_freedom}
        beside = {"beside": [name for name, _ in self.beside]} if self.beside else {}
        names = [self.likelihood] if isinstance(self.likelihood, str) else [name for name, _ in self.likelihood]
        likelihood = names[0] if len(set(names)) == 1 else ", ".join(names)
        return {"likelihood": likelihood, **shape, **beside}


def of_views(
    parts: Parts,
    pattern: tuple[int, ...],
    parameters: Parameters,
    specification: Specification,
    *,
    rows: ObservationRows,
    function: Callable[[ObservationRows, Features, Array | None], Array],
    view: int | None = None,
) -> Array:
    """A function of rows (n, …), of the views of a pattern side by side; of values for each feature those of a view."""
    values = function(rows, rows_of_all_views(parts, pattern, specification.sizes), None)
    return values if view is None else values[:, specification.slices[view]]


def entry_means(predictors: Array, model: ObservationModel) -> Array:
    """The means of entries of a distribution with these predictors."""
    return model.mean(predictors, np.zeros(1))
