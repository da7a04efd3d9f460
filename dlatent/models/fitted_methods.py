"""What every model does with its fitted value, each method once: keep it, save it, and tell of it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr
from sklearn.utils import estimator_html_repr

from dlatent.fitted import fit as fits
from dlatent.fitted.facts import words
from dlatent.fitted.fit import Fit
from dlatent.models.docstrings import described
from dlatent.models.features import feature_names
from dlatent.models.hyperparameters import declared
from dlatent.models.inputs import PathLike
from dlatent.models.scikit import NotFittedError, attribute, without_secrets
from dlatent.solvers.plan import html_table

M = TypeVar("M")


def check(self: Any) -> None:
    """Refuse hyperparameters that make no sense.  Errors: DataError."""
    for one, about in declared(self):
        about.allowed.require(one.name, getattr(self, one.name))
    for rule in self._rules:
        rule(self)


def become(self: M, fit: Fit) -> M:
    """Take a fit, one's own or a saved one."""
    self._fit = fit  # type: ignore[attr-defined]
    return self


def fitted(self: Any) -> Fit:
    """The fit.  Errors: NotFittedError."""
    if not hasattr(self, "_fit"):
        name = type(self).__name__
        raise NotFittedError(f"this {name} is not fitted yet; call fit first, or open a saved one with dlatent.load")
    fit: Fit = self._fit
    return fit


def is_fitted(self: Any) -> bool:
    """Tell scikit-learn's tools whether there is a fit."""
    return hasattr(self, "_fit")


@described
def save(self: Any, path: PathLike, *, overwrite: bool = False) -> None:
    """Save the fitted model, with the training rows that it needs, as a Zarr store; whole or not at all.

    Parameters
    ----------
    path : path or URL
        Where the store will be.
    overwrite : bool, default False
        Replace a store that is there.

    Raises
    ------
    StoreError
        Where the path is taken and `overwrite` is False, or is that of what the model was fitted to.
    NotFittedError
        Before `fit`.
    """
    fits.save(path, type(self).__name__, self.get_params(), fitted(self), overwrite=overwrite)


@attribute
def result_(self: Any) -> xr.Dataset:
    """xarray.Dataset: The fitted model as arrays with named dimensions and the coordinates of the data:
    :doc:`/reference_variables`."""
    return fits.result(type(self).__name__, fitted(self))


@attribute
def history_(self: Any) -> xr.Dataset:
    """xarray.Dataset: A line for each iteration and for each pass."""
    return fits.history(fitted(self).report)


@attribute
def converged_(self: Any) -> bool:
    """bool: Whether the tolerance was met."""
    return fitted(self).report.converged


@attribute
def n_samples_(self: Any) -> int:
    """int: Number of samples, N."""
    return fitted(self).report.samples


@attribute
def feature_names_in_(self: Any) -> npt.NDArray[np.object_]:
    """ndarray of shape (n_features,): Names of the features, where the data of the fit had names, all of them texts."""
    return feature_names(self, self._model.labels.known.features)


@attribute
def n_passes_(self: Any) -> int:
    """int: Passes over the data, the initial mean of their first block not counted."""
    return fits.passes_of(fitted(self))


def facts(self: Any) -> dict[str, Any]:
    """What the fitted model is and how its fit went, as JSON values; lists of facts are tables."""
    return fits.summary(type(self).__name__, self.get_params(), fitted(self))


def in_words(self: Any) -> dict[str, str]:
    """The facts, but for the tables, in words by name."""
    return words(facts(self))


def html_repr(self: Any) -> str:
    """What a notebook shows: the hyperparameters, and of a fitted model how its fit went."""
    lines = in_words(self).items() if is_fitted(self) else ()
    return str(estimator_html_repr(without_secrets(self))) + (html_table(lines) if lines else "")
