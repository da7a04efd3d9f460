"""What a fitted model holds, for tests of the mathematics: the only place of the tests that knows where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dlatent.fitted import stored
from dlatent.fitted.fit import Fit
from dlatent.fitted.targets import TargetEncoding
from dlatent.gaussian.head import Head
from dlatent.gaussian.kernel import KernelMap
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.stack import Stack
from dlatent.models.row_methods import encoded


class FirstUse(Mapping[str, Any]):
    """Values by name, each made when it is first asked for: to collect the tests of fitted models fits none."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers, self._values = makers, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._makers[name]()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def fit_of(model: Any) -> Fit:
    """The fit: the fitted value, and the report."""
    fit: Fit = model._fitted()
    return fit


def model_of(model: Any) -> Any:
    """The fitted value of a model."""
    return fit_of(model).model


def parameters_of(model: Any) -> Parameters:
    """The parameters of all stacked features."""
    found: Parameters = model_of(model).parameters
    return found


def specification_of(model: Any) -> Specification:
    """Views, noise and patterns."""
    found: Specification = model_of(model).specification
    return found


def encoding_of(model: Any) -> TargetEncoding:
    """How targets are encoded."""
    found: TargetEncoding = model_of(model).targets.encoding
    return found


def variables_of(model: Any) -> dict[str, Any]:
    """All arrays that a saved model has, by their names."""
    return {name: variable.values for name, variable in stored.variables(fit_of(model)).items()}


def encoded_of(model: Any, X: Any, y: Any) -> Any:
    """Targets of rows as the model works with them."""
    return encoded(model, X, y)


def head_of(model: Any) -> Head | Stack:
    """What was estimated to predict targets."""
    found: Head | Stack = model_of(model).targets.head.head
    return found


def view_samples_of(model: Any) -> tuple[int, ...]:
    """Samples that have each view."""
    return tuple(model_of(model).view_samples.tolist())


def map_of(model: Any) -> KernelMap:
    """What makes coordinates of the rows of a kernel model."""
    found: KernelMap = model_of(model).map
    return found
