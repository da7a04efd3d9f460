"""A fitted model as named variables: the Dataset that users see, the store that keeps it, and the way back.

A model says which variables and attributes it has, and how it is made of them again; nothing here knows a model.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import xarray as xr
from sklearn.utils import estimator_html_repr

from dlatent.engine.machine import memory
from dlatent.errors import DlatentError, StoreError, masked
from dlatent.fitted import store
from dlatent.fitted.room import SHARE
from dlatent.fitting.plan import html_table
from dlatent.models import MODELS, scikit
from dlatent.models.docstrings import describe_class, name_methods
from dlatent.models.scikit import NotFittedError
from dlatent.stores.location import place_text, zarr_location
from dlatent.stores.places import read_places, require_apart
from dlatent.stores.results import load as load_stored
from dlatent.stores.results import save as save_stored
from dlatent.stores.schema import check_values, named

PUBLIC = {model.name for model in MODELS}


class Estimator(scikit.Estimator):
    """What all models share: they are saved as variables and attributes.

    A part of a model adds its own to what `super()` has in `_variables`, `_attributes` and `_restore`.

    Attributes
    ----------
    result_ : xarray.Dataset
        The fitted model as arrays with named dimensions and the coordinates of the data: :doc:`/reference_variables`.
    """

    _place: str | None = None
    """Where the model was loaded from."""
    _read: tuple[str, ...] = ()
    """Where the data of the fit are, as far as that is known."""
    _checkpoint: str | None = None
    """The identity of the checkpoint of the fit, where there was one."""

    def __init_subclass__(cls, **options: Any) -> None:
        if cls.__name__ in PUBLIC:
            name_methods(cls)  # before scikit-learn's own `__init_subclass__` wraps them
        super().__init_subclass__(**options)
        describe_class(cls)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools which data a model takes."""
        tags = super().__sklearn_tags__()
        missing = getattr(self, "missing", "raise")
        tags.input_tags.sparse, tags.input_tags.allow_nan = missing != "nan", missing == "nan"
        return tags

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        """The fitted model as arrays, by the names of `stores.schema`; `whole` adds what only a saved one
        needs."""
        raise NotImplementedError

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        """Facts about the fit as JSON values; `whole` adds what only a saved model needs."""
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        """What the fitted model is and how its fit went, as JSON values; lists of facts are tables."""
        raise NotImplementedError

    def _words(self) -> dict[str, str]:
        """The same, but for the tables, in words by name."""
        raise NotImplementedError

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        """Become the model that was saved with these; the parameters of the constructor are set.

        Errors: any, for what no model has.
        """
        raise NotImplementedError

    def _html_repr(self) -> str:
        """What a notebook shows: the hyperparameters, and of a fitted model how its fit went."""
        lines = self._words().items() if hasattr(self, "history_") else ()
        return str(estimator_html_repr(self)) + (html_table(lines) if lines else "")

    def _require_fitted(self) -> Any:
        if not hasattr(self, "history_"):
            name = type(self).__name__
            text = f"this {name} is not fitted yet; call fit first, or open a saved one with dlatent.load"
            raise NotFittedError(text)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
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
        self._require_fitted()
        require_apart(path, *self._read)
        variables = named(self._variables(whole=True))
        parameters = {name: _parameter(value) for name, value in self.get_params().items()}
        attributes = {"parameters": parameters, **self._attributes(whole=True)}
        save_stored(
            path,
            kind=type(self).__name__,
            attributes=attributes,
            variables=variables,
            overwrite=overwrite,
            checkpoint=self._checkpoint,
        )

    @property
    def result_(self) -> xr.Dataset:
        """The fitted model as an xarray Dataset with named dimensions and the coordinates of the data."""
        self._require_fitted()
        variables, attributes = named(self._variables(whole=False)), self._attributes(whole=False)
        along = {name for name, v in variables.items() if name in v.dims or name == "feature_view"}
        used = {dim for name, v in variables.items() if name not in along for dim in v.dims}
        _, feature = attributes.pop("dims", ("", "feature"))
        arrays = {name: (v.dims, np.array(v.values)) for name, v in variables.items()}
        dataset = xr.Dataset(
            {name: value for name, value in arrays.items() if name not in along},
            coords={name: value for name, value in arrays.items() if name in along and used >= {*value[0]}},
            # netCDF has no truth values.
            attrs={"model": type(self).__name__}
            | {name: int(value) if isinstance(value, bool) else value for name, value in attributes.items()},
        )
        if "feature" not in dataset.dims:
            return dataset
        return self._over_dimensions(dataset.rename({"feature": feature}) if feature != "feature" else dataset)

    def _over_dimensions(self, dataset: xr.Dataset) -> xr.Dataset:
        """The same with features over the dimensions that they had in the data."""
        return dataset


def _parameter(value: Any) -> Any:
    """A hyperparameter as it is kept: paths as text, URLs without credentials."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return masked(value) if isinstance(value, str) else value


def load(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Open a saved model: what it computes is equal, to the last bit, to what the saved one did.

    Parameters
    ----------
    path : path or URL
        The store that `save` has written.
    max_bytes : int, optional
        Most bytes that its variables may take in memory.  By default 1 GiB, and more where a thousandth of it is stored
        and half of the memory of this machine holds it.

    Returns
    -------
    model
        The fitted model.

    Raises
    ------
    StoreError
        Where the path is no complete model, one of a newer version, one that is larger than it may be, or one that is
        damaged or has been changed since it was saved.

    Examples
    --------
    >>> import tempfile, numpy as np, dlatent
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> model = dlatent.PPCA(1).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/model.zarr")
    ...     again = dlatent.load(folder + "/model.zarr")
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    place = place_text(path)
    stored = load_stored(path, max_bytes=max_bytes, room=int(SHARE * memory()) if max_bytes is None else None)
    kind = next((model for model in MODELS if model.name == stored.kind), None)
    if kind is None:
        known = ", ".join(model.name for model in MODELS)
        raise StoreError(f"{place} holds a {stored.kind!r}; this version of dlatent knows {known}")
    check_values(stored.variables, place)
    try:
        model = kind.load()(**stored.attributes["parameters"])
        if not hasattr(model, "_restore"):
            model._check()
            return model._become(store.restored(path, dict(stored.variables), stored.attributes))
        model._check_hyperparameters()
        model._restore({name: v.values for name, v in stored.variables.items()}, dict(stored.attributes))
        model._place = read_places(zarr_location(path))[0]
    except (DlatentError, MemoryError) as error:
        raise StoreError(f"{place}: {error}") from error
    except Exception as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{place} is no {stored.kind} that can be: {what}; save the model again") from error
    return model
