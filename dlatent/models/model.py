"""What every estimator is: hyperparameters, a fitted value, and scikit-learn's manners around them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dlatent.arrays import Array, Integers
from dlatent.fitted.linear import Linear
from dlatent.fitted.rows import MissingEntries
from dlatent.models import fitted_methods
from dlatent.models.features import KnownFeatures
from dlatent.models.hyperparameters import ZeroRows, model, parameter
from dlatent.models.inputs import Seed
from dlatent.models.scikit import Estimator
from dlatent.models.table import ONLY_DENSE
from dlatent.models.task import FitTask

ONLY_DENSE_FILLED = "entries that are NaN in dense data are filled in, and the {data} is sparse; make it dense before"


@model
class Model(Estimator, ABC):
    """A model with a likelihood."""

    n_components: int = parameter(default=2, kw_only=False)
    tol: float = parameter(default=1e-9)
    max_iter: int | None = parameter(default=None)
    random_state: Seed = parameter(default=0)
    solver: str = parameter(default="auto")
    noise_floor: float = parameter(default=0.0)
    zero_rows: ZeroRows = parameter(default="keep")

    @abstractmethod
    def _task(self, X: Any, **data: Any) -> FitTask:
        """What is to be fitted: what a user gives to `fit`, and the hyperparameters.  Errors: DataError."""

    @property
    def _missing(self) -> str:
        """How entries may be missing; "raise" in models that take none."""
        return getattr(self, "missing", "raise")

    @property
    def _prior(self) -> str | float:
        """The prior of the loadings, by what may be missing where that is left open; "ml" in models that have none."""
        prior: str | float = getattr(self, "prior", "ml")
        return prior if prior != "auto" else "ml" if self._missing == "raise" else "ard"

    _check, _become, _fitted = fitted_methods.check, fitted_methods.become, fitted_methods.fitted
    __sklearn_is_fitted__, save = fitted_methods.is_fitted, fitted_methods.save
    result_, history_, converged_ = fitted_methods.result_, fitted_methods.history_, fitted_methods.converged_
    n_samples_, n_passes_ = fitted_methods.n_samples_, fitted_methods.n_passes_
    _facts, _words, _html_repr = fitted_methods.facts, fitted_methods.in_words, fitted_methods.html_repr

    @property
    def log_likelihood_(self) -> float:
        """float: Of all samples, in nats."""
        likelihood = self._fitted().report.log_likelihood
        assert likelihood is not None
        return likelihood

    @property
    def n_iter_(self) -> int:
        """int: Iterations of the loop, as in `history_`."""
        return self._fitted().report.iterations

    @property
    def plan_(self) -> dict[str, str | int]:
        """dict: What was planned: solver, reason, passes, bytes and memory."""
        return self._fitted().report.plan

    @property
    def component_names_(self) -> Integers:
        """ndarray of shape (n_components,): Labels of the latent variables, from 0."""
        fitted: Any = self._fitted().model
        component: Integers = fitted.component
        return component

    @property
    def _n_features_out(self) -> int:
        return len(self.component_names_)

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """int: Number of features, D."""

    @property
    def _rows(self) -> Any:
        """What the fitted model says of single rows; `missing` that is set after a fit to complete data counts."""
        fitted: Any = self._fitted().model
        if self._missing == "raise" or fitted.missing:
            return fitted.rows
        return MissingEntries(fitted.parameters, fitted.specification)

    def _known_features(self, *, holes: bool | None = None) -> KnownFeatures:
        """What the model asks of new data; `holes` says whether NaN is a missing entry (None: as in the fit)."""
        fit: Any = self._fitted()
        known = fit.model.labels.known
        dense = ONLY_DENSE if self._missing == "nan" else ONLY_DENSE_FILLED if holes else ""
        return KnownFeatures(
            type(self).__name__,
            self.n_features_in_,
            known.features,
            holes=self._rows.holes if holes is None else holes,
            advice=", or fit around NaN with missing='nan'" if hasattr(self, "missing") else "",
            dense=dense,
            grid=known.grid,
            place=fit.place,
        )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools which data a model takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.allow_nan = self._missing != "nan", self._missing == "nan"
        return tags


@model
class LinearModel(Model):
    """A model x = Wz + μ + ε of one table of samples × features."""

    @property
    def _model(self) -> Linear:
        """The fitted model."""
        model = self._fitted().model
        assert isinstance(model, Linear)
        return model

    @property
    def n_components_(self) -> int:
        """int: K, given or chosen."""
        fitted = self._model
        return len(fitted.component) - int(fitted.row_effects)

    @property
    def n_components_effective_(self) -> int:
        """int: How many components are not zero: with `prior="ard"` those that the data support."""
        return int(self._model.loadings[:, : self.n_components_].any(axis=0).sum())

    @property
    def noise_variance_(self) -> float:
        """float: σ², in squared units of the features."""
        return float(self._model.noise.variance[0])

    @property
    def at_floor_(self) -> tuple[bool, ...]:
        """tuple of bool: Whether the noise variance is at its floor; that of targets, where there are some, is the
        second."""
        return tuple(self._model.noise.at_floor.tolist())

    @property
    def explained_variance_(self) -> Array:
        """ndarray of shape (n_components,): Variance along each component, noise included."""
        return np.asarray((self._model.loadings**2).sum(axis=0) + self.noise_variance_)

    @property
    def explained_variance_ratio_(self) -> Array:
        """ndarray of shape (n_components,): The same as fractions of the total variance of the features."""
        fitted = self._model
        return np.asarray(self.explained_variance_ / (fitted.total_variance[0] * fitted.dimension))

    @property
    def n_features_in_(self) -> int:
        """int: Number of features, D."""
        return self._model.columns

    feature_names_in_ = fitted_methods.feature_names_in_
