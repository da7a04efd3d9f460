"""What models take from scikit-learn, with types: on a base of unknown type every argument and name would be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from sklearn.exceptions import NotFittedError as ScikitNotFittedError

from dlatent.errors import DlatentError
from dlatent.models import PUBLIC
from dlatent.models.docstrings import name_methods


class NotFittedError(DlatentError, ScikitNotFittedError):  # type: ignore[misc]
    """A fitted attribute or method was asked for before `fit`; scikit-learn's own is caught by its name, too."""


if TYPE_CHECKING:
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

    class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
        """The base of all models."""

        def __init_subclass__(cls, **options: Any) -> None:
            if cls.__name__ in PUBLIC:
                name_methods(cls)  # before scikit-learn's own `__init_subclass__` wraps them
            super().__init_subclass__(**options)


__all__ = ["Estimator", "NotFittedError", "available_if"]
