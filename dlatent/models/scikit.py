"""What models take from scikit-learn, with types: on a base of unknown type every argument and name would be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from sklearn.exceptions import NotFittedError as ScikitNotFittedError

from dlatent.errors import DlatentError
from dlatent.models import PUBLIC
from dlatent.models.docstrings import name_methods


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

        def __init_subclass__(cls, **options: Any) -> None:
            if cls.__name__ in PUBLIC:
                name_methods(cls)  # before scikit-learn's own `__init_subclass__` wraps them
            super().__init_subclass__(**options)


__all__ = ["Estimator", "NotFittedError", "attribute", "available_if"]
