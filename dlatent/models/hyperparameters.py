"""The hyperparameters of the models, each declared once: its type, its default, what it may be, and what it means.

Constructors, their checks and the options of the command line are made of these declarations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from dlatent.errors import DataError

if TYPE_CHECKING:
    pass

T = TypeVar("T")
LinearSolver = Literal["auto", "covariance", "krylov", "gram", "accelerated_em", "em"]
GraphSolver = Literal["auto", "covariance", "krylov", "em"]
SmoothedSolver = Literal["auto", "covariance", "krylov", "accelerated_em", "em"]
FactorSolver = Literal["auto", "covariance", "accelerated_em", "em"]
KernelSolver = Literal["auto", "memory", "recomputed", "stored", "em"]
MixtureSolver = Literal["auto", "em"]
EigenSolver = Literal["auto", "direct", "iterative"]
Rule = Literal["mle", "bic"]
KernelName = Literal["linear", "rbf", "polynomial", "cosine", "laplacian", "precomputed"]
TargetType = Literal["auto", "class", "multilabel", "regression"]
Head = Literal["auto", "likelihood"]
Missing = Literal["raise", "nan", "unstored"]
Prior = Literal["auto", "ml", "ard"]
ZeroRows = Literal["keep", "raise"]
Rotation = Literal["varimax", "quartimax", "promax", "oblimin"]
Disconnected = Literal["raise", "keep"]
Neighbors = Literal["exact", "approximate"]
Start = Literal["random", "pca"]
MixtureNoise = Literal["isotropic", "diagonal"]
ViewNoise = Literal["ml", "zero"]
Float = Literal["float64", "float32"]
Criterion = Literal["auto", "held_out", "cross_validation", "bic", "evidence", "parallel"]
"""How `select_n_components` compares; no model has it."""


@dataclass(frozen=True)
class Allowed:
    """Which values a hyperparameter may have.

    Parameters
    ----------
    words : which they are, after "expected".
    test : whether a value is one of them.
    read : makes a value of a word on the command line; ValueError for a word that is none.
    choices : all of them, where they are few words.
    none : whether None is one, too.
    """

    words: str
    test: Callable[[Any], bool]
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    none: bool = False

    def or_none(self) -> Allowed:
        """The same values, and None."""
        return replace(self, none=True)

    def require(self, name: str, value: Any) -> None:
        """Refuse a value that is none of these. Errors: DataError."""
        if not (self.none and value is None) and not self.test(value):
            raise DataError(f"{name} is {value!r}; expected {self.words}{', or None' if self.none else ''}")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def _is_count_or_rule(value: Any) -> bool:
    if isinstance(value, str):
        return value in get_args(Rule)
    return _is_count(value) or (_is_number(value) and 0 < value < 1)


def _count_or_rule(text: str) -> float | str:
    if text in get_args(Rule):
        return text
    return int(text) if text.isdecimal() else float(text)


def _number_or_median(text: str) -> float | str:
    return text if text == "median" else float(text)


COUNT = Allowed("an integer of at least 1", _is_count, int)
COMPONENTS = replace(
    COUNT,
    words=f"{COUNT.words} (PPCA alone chooses it by a rule; compare numbers by select_n_components or GridSearchCV)",
)
COUNT_OR_RULE = Allowed(
    "an integer of at least 1, a part of the variance above 0 and below 1, 'mle' or 'bic'",
    _is_count_or_rule,
    _count_or_rule,
)
POSITIVE = Allowed("a positive number", lambda value: _is_number(value) and 0 < value < inf, float)
NOT_NEGATIVE = Allowed("a finite number, not negative", lambda value: _is_number(value) and 0 <= value < inf, float)
PART = Allowed(
    "a part of the mean variance, at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1, float
)
BANDWIDTH = Allowed(
    "a positive number, or 'median'", lambda value: value == "median" or POSITIVE.test(value), _number_or_median
)
PRIOR = Allowed(
    f"a positive number, {', '.join(map(repr, get_args(Prior)[:-1]))} or {get_args(Prior)[-1]!r}",
    lambda value: (isinstance(value, str) and value in get_args(Prior)) or POSITIVE.test(value),
    lambda text: text if text in get_args(Prior) else float(text),
)
SMOOTHING = Allowed(
    "a finite number, not negative, or 'auto'",
    lambda value: value == "auto" or NOT_NEGATIVE.test(value),
    lambda text: text if text == "auto" else float(text),
)
TRUTH = Allowed("True or False", lambda value: isinstance(value, bool))
NUMBER = Allowed("a number", _is_number, float)
PLACE = Allowed("a path", lambda value: isinstance(value, (str, os.PathLike)))
ANYTHING = Allowed("a seed", lambda value: True, int)


def _among(*words: str) -> Allowed:
    *first, last = map(repr, words)
    said = f"{', '.join(first)} or {last}" if first else last
    return Allowed(said, lambda value: isinstance(value, str) and value in words, choices=words)


KERNEL = Allowed(
    f"a function of two blocks, or one of {', '.join(get_args(KernelName))}",
    lambda value: callable(value) or value in get_args(KernelName),
    choices=get_args(KernelName),
)
PART_OF_TRACE = Allowed("a positive part of the trace, such as 1e-3", POSITIVE.test, float)
MISSING = "nan: NaN is a missing entry; unstored: so is what a sparse store does not hold"
SOLVER = "auto: the planner chooses; em: textbook EM"
"""Help for models of which several solvers find the same maximum."""
