"""What models take from scikit-learn, with types: on a base of unknown type every argument and name would be right."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, overload

from sklearn.exceptions import NotFittedError as ScikitNotFittedError

from dlatent.errors import DlatentError, masked
from dlatent.models import PUBLIC
from dlatent.models.docstrings import name_methods


def without_secrets(estimator: Any) -> Any:
    """An estimator as people see it, without credentials in URLs among its hyperparameters."""
    places = {name: os.fspath(value) for name, value in vars(estimator).items() if isinstance(value, str | os.PathLike)}
    shown = copy(estimator)
    vars(shown).update({name: masked(text) for name, text in places.items() if masked(text) != text})
    return shown


class NotFittedError(DlatentError, ScikitNotFittedError):  # type: ignore[misc]
    """A fitted attribute or method was asked for before `fit`; scikit-learn's own is caught by its name, too."""


if TYPE_CHECKING:
    T = TypeVar("T")

    class attribute(Generic[T]):
        """A property that several classes take, with its type."""

        def __init__(self, function: Callable[[Any], T]) -> None: ...
        @overload
        def __get__(self, instance: None, owner: Any) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: Any) -> T: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...

    Method = TypeVar("Method", bound=Callable[..., Any])

    def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
        """A method that is there where the check is true."""
        ...

    class Estimator:
        """The base of all models."""

        _rules: ClassVar[tuple[Callable[[Any], None], ...]]

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def fit_transform(self, *args: Any, **params: Any) -> Any: ...
        def get_feature_names_out(self, input_features: Any = None) -> Any: ...
        def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...

else:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.metaestimators import available_if

    attribute = property

    class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
        """The base of all models."""

        _rules = ()
        """Functions that refuse hyperparameters which make no sense together."""

        def __init_subclass__(cls, **options: Any) -> None:
            if cls.__name__ in PUBLIC:
                name_methods(cls)  # before scikit-learn's own `__init_subclass__` wraps them
            super().__init_subclass__(**options)

        def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # as scikit-learn calls it
            """What Python shows."""
            return BaseEstimator.__repr__(without_secrets(self), N_CHAR_MAX)


__all__ = ["Estimator", "NotFittedError", "attribute", "available_if", "without_secrets"]
