"""A hyperparameter is described once: constructor, checks, docstring and the options of the command line follow from
it.

A class of a model declares `tol: float = parameter(default=1e-9)`; what it is stands in `SHARED` under its name, or is
given where the class has another meaning for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields, replace
from math import inf
from numbers import Integral, Real
from textwrap import fill
from typing import Any, Literal, TypeVar, dataclass_transform, get_args

from dlatent.errors import DataError
from dlatent.models.docstrings import entries, first_sentence, parsed, written
from dlatent.models.other_names import advice

T = TypeVar("T")
LinearSolver = Literal["auto", "covariance", "krylov", "gram", "accelerated_em", "em"]
GraphSolver = Literal["auto", "covariance", "krylov", "em"]
SmoothedSolver = Literal["auto", "covariance", "krylov", "accelerated_em", "em"]
FactorSolver = Literal["auto", "covariance", "accelerated_em", "em"]
KernelSolver = Literal["auto", "memory", "recomputed", "stored", "em"]
MixtureSolver = Literal["auto", "em"]
EigenSolver = Literal["auto", "direct", "iterative"]
Rule = Literal["auto", "mle", "bic"]
KernelName = Literal["linear", "rbf", "polynomial", "cosine", "laplacian", "precomputed"]
TargetType = Literal["auto", "class", "multilabel", "regression"]
Head = Literal["auto", "likelihood"]
Missing = Literal["raise", "nan", "unstored"]
ViewMissing = Literal["raise", "nan"]
Prior = Literal["auto", "ml", "ard"]
ZeroRows = Literal["keep", "raise"]
Rotation = Literal["varimax", "quartimax", "promax", "oblimin"]
Disconnected = Literal["raise", "keep"]
Neighbors = Literal["exact", "approximate"]
Start = Literal["random", "pca"]
MixtureNoise = Literal["isotropic", "diagonal"]
ViewNoise = Literal["ml", "zero"]
Float = Literal["float64", "float32"]
Scale = Literal["auto", "none", "spread", "patterson"]
Likelihood = Literal["normal", "student", "student_rows", "poisson", "bernoulli", "negative_binomial"]
Criterion = Literal["auto", "held_out", "cross_validation", "bic", "evidence", "parallel"]
"""How `select_n_components` compares; no model has it."""


@dataclass(frozen=True)
class Allowed:
    """Which values a hyperparameter may have.

    Parameters
    ----------
    description : which they are, after "expected".
    test : whether a value is one of them.
    read : makes a value of a word on the command line; ValueError for a word that is none.
    choices : all of them, where they are few words.
    none : whether None is one, too.
    """

    description: str
    test: Callable[[Any], bool]
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    none: bool = False

    def or_none(self) -> Allowed:
        """Allow None, too."""
        return replace(self, none=True)

    def or_one_of(self, *choices: str, description: str) -> Allowed:
        """Allow some words, too."""
        return replace(
            self,
            description=description,
            test=lambda value: value in choices if isinstance(value, str) else self.test(value),
            read=lambda text: text if text in choices else self.read(text),
        )

    def require(self, name: str, value: Any) -> None:
        """Refuse a value that is none of these. Errors: DataError."""
        if not (self.none and value is None) and not self.test(value):
            allowed = f"{self.description}{', or None' if self.none else ''}"
            raise DataError(f"{name} is {value!r}; expected {allowed}{advice(name, value)}")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


COUNT = Allowed("an integer of at least 1", _is_count, int)
COMPONENTS = replace(
    COUNT,
    description=f"{COUNT.description} (PPCA alone chooses it by a rule; compare numbers by select_n_components or "
    "GridSearchCV)",
)
COUNT_OR_AUTO = COUNT.or_one_of(
    "auto",
    description=f"{COUNT.description}, or 'auto' (PPCA alone chooses it by other rules; compare numbers by "
    "select_n_components or GridSearchCV)",
)
POSITIVE = Allowed("a positive number", lambda value: _is_number(value) and 0 < value < inf, float)
NOT_NEGATIVE = Allowed("a finite number, not negative", lambda value: _is_number(value) and 0 <= value < inf, float)
FRACTION = Allowed(
    "a fraction of the mean variance, at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1, float
)
COUNT_OR_RULE = Allowed(
    "",
    lambda value: _is_count(value) or (_is_number(value) and 0 < value < 1),
    lambda text: int(text) if text.isdecimal() else float(text),
).or_one_of(
    *get_args(Rule),
    description="an integer of at least 1, a fraction of the variance above 0 and below 1, 'auto', 'mle' or 'bic'",
)
BANDWIDTH = POSITIVE.or_one_of("median", description="a positive number, or 'median'")
PRIOR = POSITIVE.or_one_of(*get_args(Prior), description="a positive number, 'auto', 'ml' or 'ard'")
SMOOTHING = NOT_NEGATIVE.or_one_of("auto", description="a finite number, not negative, or 'auto'")
TRUTH = Allowed("True or False", lambda value: isinstance(value, bool))
NUMBER = Allowed("a number", _is_number, float)
PLACE = Allowed("a path", lambda value: isinstance(value, (str, os.PathLike)))
ANYTHING = Allowed("a seed", lambda value: True, int)


def _among(*choices: str) -> Allowed:
    *first, last = map(repr, choices)
    said = f"{', '.join(first)} or {last}" if first else last
    return Allowed(said, lambda value: isinstance(value, str) and value in choices, choices=choices)


KERNEL = Allowed(
    f"a function of two blocks, or one of {', '.join(get_args(KernelName))}",
    lambda value: callable(value) or value in (*get_args(KernelName), "poly"),
    choices=get_args(KernelName),
)
TRACE_FRACTION = Allowed("a positive fraction of the trace, such as 1e-3", POSITIVE.test, float)


@dataclass(frozen=True)
class Parameter:
    """A hyperparameter.

    Parameters
    ----------
    allowed : which values it may have.
    kind : its type as users read it.
    text : what it means, the first sentence in short, as the command line shows it.
    option, letter : its names on the command line; by default the name, None where it has none there.
    short : what a value is called there.
    """

    allowed: Allowed
    kind: str
    text: str
    option: str | None = ""
    letter: str = ""
    short: str = ""

    @property
    def description(self) -> str:
        """The help of the command line."""
        return first_sentence(self.text)


def choice(values: Any, text: str, *, none: bool = False, option: str | None = "") -> Parameter:
    """A hyperparameter that is one of the words of a Literal."""
    allowed = _among(*get_args(values))
    kind = "{" + ", ".join(f'"{word}"' for word in get_args(values)) + "}"
    return Parameter(allowed.or_none() if none else allowed, kind, text, option)


SHARED = {
    "n_components": Parameter(
        COMPONENTS,
        "int",
        "K, the number of latent variables; less than the number of samples, and at most that of features.",
        option="components",
        letter="k",
        short="K",
    ),
    "tol": Parameter(
        POSITIVE, "float", "Relative distance of the log-likelihood from its maximum at which a fit stops."
    ),
    "max_iter": Parameter(
        COUNT.or_none(),
        "int",
        'Most passes over the data (by default 60), or EM iterations with `solver="em"` (by default 2,000).',
        short="N",
    ),
    "random_state": Parameter(
        ANYTHING, "int or numpy.random.Generator", "Seed of the first directions.", option="seed"
    ),
    "solver": choice(
        LinearSolver,
        'How the maximum is found.  "auto" takes the cheapest of those that find the global maximum: "covariance" '
        '(one pass, D² numbers), "krylov" (about ten passes, D·K) and, with fewer samples than features, "gram" (two '
        'passes, N² numbers); data with missing entries go by "accelerated_em" (about twenty passes).  "em" is '
        "textbook EM, for teaching and checking.",
    ),
    "noise_floor": Parameter(
        FRACTION,
        "float",
        "Smallest noise variance, as a fraction of the mean variance of the features; what is less than rounding "
        "counts as that.",
        short="FRACTION",
    ),
    "zero_rows": choice(
        ZeroRows,
        'What becomes of rows of zeros.  "keep" fits them, and a warning counts them; "raise" stops at the first.',
    ),
    "missing": choice(
        Missing,
        'Which entries are missing.  "raise" raises for NaN.  With "nan" the entries of dense data that are NaN are '
        'missing; with "unstored" the stored entries of sparse data, zeros among them, are the observed ones.  The '
        "model is then that of the observed entries, wherever they are, and all methods take such rows, too.",
    ),
    "likelihood": choice(
        Likelihood,
        'How an entry is distributed about its predictor η = wᵀz + μ.  "normal" is that of PPCA and factor analysis; '
        '"student" has heavy tails, so that outlying entries count less, and "student_rows" so that outlying rows do.  '
        'Counts are "poisson", with the mean exp η, or "negative_binomial", which vary more; binary entries, 0 and 1, '
        'are "bernoulli", 1 with probability 1/(1 + exp(−η)).  What is maximised is then a lower bound of the '
        "likelihood.",
    ),
    "row_effects": Parameter(
        TRUTH.or_one_of("auto", description="True, False or 'auto'"),
        'bool or "auto"',
        "Give each row a level, a_i ~ N(0, τ²), that all its entries share, as raters are strict or mild, and texts "
        "long or short.  It is a further component, the last, of which the loadings of all features are τ.  "
        '"auto" gives one to counts; normal entries may have one in PPCA, where some are missing.',
        option=None,
    ),
    "prior": Parameter(
        PRIOR,
        '{"auto", "ml", "ard"} or float',
        'Prior of the loadings.  "auto" is "ard" with missing entries, and "ml" for complete data.  "ml" is none: '
        'maximum likelihood, which overfits where entries are few.  "ard" (automatic relevance determination) gives '
        "the loadings of each component a normal prior whose variance the evidence chooses, and switches off "
        "components that the data do not support, so that `n_components` may be generous; with missing entries the "
        "means of the features have a common normal prior, too.  A number is the variance of all loadings, in "
        "squared units of the features, where it is known beforehand; no component is switched off.  What is "
        "maximised is a lower bound of the likelihood; of complete data its maximum follows from eigenvalues, "
        "without a further pass.",
    ),
    "scale": choice(
        Scale,
        'Units of the features in the fit.  "none" are their own.  "spread" divides each feature by its standard '
        "deviation, found by one pass more, so that no result depends on its unit; loadings, means, likelihoods and "
        "what is filled in or predicted come in the units of the data all the same.  "
        '"patterson" is for genotypes, numbers of copies of an allele with the frequency p, which are divided by '
        "√(p(1 − p)) in the place of their standard deviation.  "
        '"auto" is "spread" with `missing="nan"` and a prior that the evidence chooses, unless rows have a level, else '
        '"none".',
        none=True,
    ),
    "whiten": Parameter(
        TRUTH,
        "bool",
        "Give scores as latent variables, whose variance is 1 in the model, instead of in units of the features, "
        "where a component counts as much as it explains.  Loadings multiply latent variables alone; "
        "`inverse_transform` takes scores in the unit that is set.  It may be set after a fit.",
    ),
    "warm_start": Parameter(
        TRUTH,
        "bool",
        "With missing entries: go on from the parameters of the last fit, or of the saved model, instead of looking "
        "for starts.",
        option=None,
    ),
    "target_type": choice(
        TargetType,
        'What the targets are.  Labels of any dtype (one-of-C inside), a matrix of 0 and 1, or numbers; "auto" looks.',
    ),
    "target_noise_floor": Parameter(
        FRACTION,
        "float",
        "Smallest noise variance of the targets, as a fraction of their mean variance.",
        short="FRACTION",
    ),
    "head": choice(
        Head,
        'What predicts targets.  "auto" is estimated after the fit from the samples with targets, with priors that the '
        'evidence weighs; "likelihood" is what the model of the fit says.',
    ),
}
"""Hyperparameters that mean the same in several models, by their names."""


def parameter(described: Parameter | None = None, *, default: Any, kw_only: bool = True, text: str = "") -> Any:
    """A hyperparameter with its default; what it is stands in `SHARED`, perhaps with another `text`, or is given."""
    return field(default=default, kw_only=kw_only, metadata={"described": described, "text": text})


def declared(cls: Any) -> list[tuple[Field[Any], Any]]:
    """The hyperparameters of a model, in the order of its constructor, and what is known of them."""
    pairs = []
    for one in fields(cls):
        about, text = one.metadata["described"] or SHARED[one.name], one.metadata["text"]
        pairs.append((one, replace(about, text=text) if text else about))
    return sorted(pairs, key=lambda pair: bool(pair[0].kw_only))


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter,))
def model(cls: type[T]) -> type[T]:
    """Make the constructor of a class of its hyperparameters, and complete its docstring by them and by its fitted
    attributes, the properties whose names end in an underscore."""
    complete = dataclass(eq=False, repr=False, kw_only=True)(cls)
    sections = parsed(complete.__doc__ or "")
    sections["Parameters"] = "\n".join(_entry(one, about) for one, about in declared(complete))
    sections["Attributes"] = "\n".join((dict(_attributes(complete)) | entries(sections.get("Attributes", ""))).values())
    complete.__doc__ = written(sections)
    return complete


def _entry(one: Field[Any], about: Parameter) -> str:
    default = f"{one.default:g}" if type(one.default) is float and one.default else json.dumps(one.default)
    default = {"true": "True", "false": "False"}.get(default, default)
    header = f"{one.name} : {about.kind}, {'optional' if one.default is None else f'default {default}'}"
    return f"{header}\n{_indented(about.text)}"


def _attributes(cls: Any) -> Iterator[tuple[str, str]]:
    """The fitted attributes of a class and its bases; a property says its type, a colon, and what it is."""
    known = {
        name: member for base in reversed(cls.__mro__) if base.__module__.startswith("dlatent.")
        for name, member in vars(base).items() if isinstance(member, property)
    }  # fmt: skip
    for name, member in known.items():
        if name.endswith("_") and not name.startswith("_"):
            kind, _, text = " ".join((member.__doc__ or "").split()).partition(": ")
            yield name, f"{name} : {kind}\n{_indented(text)}"


def _indented(text: str) -> str:
    return fill(text, 114, initial_indent="    ", subsequent_indent="    ")
