"""The hyperparameters of the models, each declared once: its type, its default, what it may be, and what it means.

Constructors, their checks and the options of the command line are made of these declarations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar, dataclass_transform, get_args

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


@dataclass(frozen=True)
class Declared:
    """What is known of a hyperparameter beside its type and default; `option` and `letter` are its names on the command
    line (None: it has none there), `words` its help there, and `short` the name of a value."""

    allowed: Allowed
    words: str
    option: str | None
    letter: str
    short: str


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


def parameter(
    words: str,
    allowed: Allowed,
    *,
    default: Any,
    option: str | None = "",
    letter: str = "",
    short: str = "",
    kw_only: bool = True,
) -> Any:
    """A hyperparameter; see `Declared`."""
    about = Declared(allowed, words, option, letter, short)
    return field(default=default, kw_only=kw_only, metadata={"declared": about})


def choice(words: str, values: Any, *, default: str) -> Any:
    """A hyperparameter that is one of the words of a Literal."""
    return parameter(words, _among(*get_args(values)), default=default)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter, choice))
def hyperparameters(cls: type[T]) -> type[T]:
    """Make a constructor of the hyperparameters that a class and its bases declare."""
    return dataclass(eq=False, repr=False, kw_only=True)(cls)


def declared(cls: Any) -> list[tuple[Field[Any], Declared]]:
    """The hyperparameters of a model, and what is known of them."""
    return [(one, one.metadata["declared"]) for one in fields(cls)]


class Checked:
    """What has hyperparameters, and checks them when they are used."""

    def _check_hyperparameters(self) -> None:
        """Refuse values that make no sense, or none together. Errors: DataError."""
        for one, about in declared(self):
            about.allowed.require(one.name, getattr(self, one.name))


@hyperparameters
class LocalLinearHyperparameters(Checked):
    """Those of locally linear embedding.

    Parameters
    ----------
    n_neighbors : int, default 5
        k, neighbours of each sample, found in each view by itself where there are several.
    n_components : int, default 2
        K, dimensions of the embedding.
    reg : float, default 1e-3
        Regularisation of the weights, as a part of the trace of each Gram matrix.
    eigen_solver : {"auto", "direct", "iterative"}, default "auto"
        "direct" factorises M = (I − W)ᵀ(I − W), "iterative" does not; "auto" goes by what the factors will cost.
    neighbors : {"exact", "approximate"}, default "exact"
        "approximate" is by pynndescent, for data in memory; the recall is measured.
    disconnected : {"raise", "keep"}, default "raise"
        "raise" stops where the graph falls apart, "keep" warns and embeds all the same.
    """

    n_neighbors: int = parameter("neighbours of each sample", COUNT, default=5)
    n_components: int = parameter("dimensions of the embedding", COUNT, default=2)
    reg: float = parameter("regularisation of the weights", PART_OF_TRACE, default=1e-3)
    eigen_solver: EigenSolver = choice("how the eigenvectors are found", EigenSolver, default="auto")
    neighbors: Neighbors = choice("how neighbours are found", Neighbors, default="exact")
    disconnected: Disconnected = choice("where the graph falls apart", Disconnected, default="raise")
