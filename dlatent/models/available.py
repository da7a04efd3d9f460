"""Methods that a model has under a condition, with the types of those that it always has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    Method = TypeVar("Method", bound=Callable[..., Any])

    def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
        """A method that is there where the check is true."""
        ...
else:
    from sklearn.utils.metaestimators import available_if

__all__ = ["available_if"]
