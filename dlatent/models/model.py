"""Base of every estimator: hyperparameters, a fitted value, and scikit-learn's manners around them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from functools import wraps
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast, overload

import xarray as xr
from sklearn.exceptions import NotFittedError as ScikitNotFittedError
from sklearn.utils import ClassifierTags, estimator_html_repr

from dlatent.arrays import Integers
from dlatent.errors import DlatentError, masked
from dlatent.fitted import fit as fits
from dlatent.fitted.features import KnownFeatures
from dlatent.fitted.fit import Fit, summary_lines
from dlatent.fitted.linear import with_holes
from dlatent.models import PUBLIC
from dlatent.models.docstrings import name_methods
from dlatent.models.hyperparameters import ZeroRows, declared, model, parameter
from dlatent.models.inputs import PathLike, Seed
from dlatent.models.other_names import refuse_keywords, refuse_parameters
from dlatent.models.scikit_callbacks import CallbackSupportMixin, with_scikit_callbacks
from dlatent.models.table import ONLY_DENSE
from dlatent.models.task import FitTask
from dlatent.solvers.plan import html_table

ONLY_DENSE_FILLED = "entries that are NaN in dense data are filled in, and the {data} is sparse; make it dense before"

# On a base of unknown type every argument and name would be right.
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

    class TransformerMixin:
        """That of scikit-learn."""

        def fit_transform(self, *args: Any, **params: Any) -> Any: ...
        def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Self: ...

    class ClassNamePrefixFeaturesOutMixin:
        """That of scikit-learn."""

        def get_feature_names_out(self, input_features: Any = None) -> Any: ...

    class BaseEstimator:
        """That of scikit-learn."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __repr__(self, N_CHAR_MAX: int = 700) -> str: ...

else:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.metaestimators import available_if as available_if

    attribute = property

F_co = TypeVar("F_co", covariant=True)


class NotFittedError(DlatentError, ScikitNotFittedError):  # type: ignore[misc]
    """A fitted attribute or method was asked for before `fit`; scikit-learn's own is caught by its name, too."""


def _with_places(transform: Callable[..., Any], in_containers: Callable[..., Any]) -> Callable[..., Any]:
    """A method `transform` that puts scores into the container that `set_output` asks for, but for those in a store."""

    @wraps(in_containers)
    def method(self: Any, *given: Any, **options: Any) -> Any:
        return (in_containers if options.get("out") is None else transform)(self, *given, **options)

    return method


class Estimator(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, Generic[F_co]):
    """The base of all models, whose fits find values of one type."""

    _rules: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Functions that refuse hyperparameters which make no sense together."""
    _doc_link_module = "dlatent"
    _doc_link_url_param_generator = None
    _fit: Fit

    def __init_subclass__(cls, **options: Any) -> None:
        if cls.__name__ in PUBLIC:
            name_methods(cls)  # before scikit-learn's own `__init_subclass__` wraps them
            cls.fit = with_scikit_callbacks(cls.fit)  # type: ignore[attr-defined]
        transform = vars(cls).get("transform")
        super().__init_subclass__(**options)
        if transform is not None and vars(cls)["transform"] is not transform:
            cls.transform = _with_places(transform, vars(cls)["transform"])  # type: ignore[attr-defined]

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Refuse keywords of scikit-learn's estimators by what to use in their place."""
        refuse_keywords(cls, params)
        return super().__new__(cls)

    def set_params(self, **params: object) -> Self:
        """Set hyperparameters.

        Parameters
        ----------
        **params : any
            Values by name.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For names that the model has not.
        """
        refuse_parameters(type(self), params)
        return super().set_params(**params)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # as scikit-learn calls it
        """Return the text that Python shows."""
        return BaseEstimator.__repr__(self._without_secrets(), N_CHAR_MAX)

    def _html_repr(self) -> str:
        """Return the HTML of a notebook: the hyperparameters, and of a fitted model how its fit went."""
        lines = self._summary_lines().items() if self.__sklearn_is_fitted__() else ()
        return str(estimator_html_repr(self._without_secrets())) + (html_table(lines) if lines else "")

    @property
    def _doc_link_template(self) -> str:
        """The page of a class in the documentation, where the package says where that is."""
        installed = next(iter(distributions(name="dlatent")), None)
        urls = [] if installed is None else installed.metadata.get_all("Project-URL", [])
        home = next((url.partition(", ")[2] for url in urls if url.startswith("Documentation, ")), None)
        return "" if home is None else f"{home.rstrip('/')}/reference/dlatent.{{estimator_name}}.html"

    def _without_secrets(self) -> Self:
        """The estimator as people see it, without credentials in URLs among its hyperparameters."""
        texts = {name: os.fspath(value) for name, value in vars(self).items() if isinstance(value, str | os.PathLike)}
        shown = copy(self)
        vars(shown).update({name: masked(text) for name, text in texts.items() if masked(text) != text})
        return shown

    def _check(self) -> None:
        """Refuse hyperparameters that make no sense.  Errors: DataError."""
        for one, about in declared(self):
            about.allowed.require(one.name, getattr(self, one.name))
        for rule in self._rules:
            rule(self)

    def _become(self, fit: Fit) -> Self:
        """Take a fit, one's own or a saved one."""
        self._fit = fit
        return self

    def _fitted(self) -> Fit:
        """The fit.  Errors: NotFittedError."""
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            text = f"this {name} is not fitted yet; call fit first, or open a saved one with dlatent.load"
            raise NotFittedError(text)
        return self._fit

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn's tools whether there is a fit."""
        return hasattr(self, "_fit")

    @property
    def _model(self) -> F_co:
        """The fitted value."""
        return cast(F_co, self._fitted().model)

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Save the fitted model, with the training rows that it needs, as a Zarr store; whole or not at all.

        Parameters
        ----------
        path : path, URL or store of Zarr
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
        fits.save(path, type(self).__name__, self.get_params(), self._fitted(), overwrite=overwrite)

    @property
    def result_(self) -> xr.Dataset:
        """xarray.Dataset: The fitted model as arrays with named dimensions and the coordinates of the data:
        :doc:`/reference_variables`."""
        return fits.result(type(self).__name__, self._fitted())

    @property
    def history_(self) -> xr.Dataset:
        """xarray.Dataset: A line for each iteration and for each pass."""
        return fits.history(self._fitted().report)

    @property
    def converged_(self) -> bool:
        """bool: Whether the tolerance was met."""
        return self._fitted().report.converged

    @property
    def n_samples_(self) -> int:
        """int: Number of samples, N."""
        return self._fitted().report.samples

    @property
    def n_passes_(self) -> int:
        """int: Passes over the data, the initial mean of their first block not counted."""
        return fits.passes_of(self._fitted())

    def _summary(self) -> dict[str, Any]:
        """The fitted model and the course of its fit as JSON values; lists are tables."""
        return fits.summary(type(self).__name__, self.get_params(), self._fitted())

    def _summary_lines(self) -> dict[str, str]:
        """The summary, but for its tables, as texts by name."""
        return summary_lines(self._summary())


@model
class Model(Estimator[F_co], ABC):
    """A model with a likelihood."""

    n_components: int = parameter(default=2, kw_only=False)
    tol: float = parameter(default=1e-9)
    max_iter: int | None = parameter(default=None)
    random_state: Seed = parameter(default=0)
    solver: str = parameter(default="auto")
    noise_floor: float = parameter(default=0.0)
    zero_rows: ZeroRows = parameter(default="keep")

    @abstractmethod
    def _task(self, X: Any, **data: Any) -> FitTask:
        """The task of a fit: the data, what else a user gives to `fit`, and the hyperparameters.

        Errors: DataError.
        """

    @property
    def _missing(self) -> str:
        """How entries may be missing; "raise" in models that take none."""
        return getattr(self, "missing", "raise")

    @property
    def _prior(self) -> str | float:
        """The prior of the loadings, by what may be missing where that is left open; "ml" in models that have none."""
        prior: str | float = getattr(self, "prior", "ml")
        return prior if prior != "auto" else "ml" if self._missing == "raise" else "ard"

    @property
    def _scaled(self) -> bool:
        """Whether features are divided by their spreads; never in models that do not say so."""
        scale = getattr(self, "scale", "none")
        found = self._missing == "nan" and self._prior == "ard" and getattr(self, "row_effects", False) is not True
        return scale in ("spread", "patterson") or (scale == "auto" and found)

    @property
    def log_likelihood_(self) -> float:
        """float: Of all samples, in nats."""
        return cast(float, self._fitted().report.log_likelihood)

    @property
    def n_iter_(self) -> int:
        """int: Iterations of the loop, as in `history_`."""
        return self._fitted().report.iterations

    @property
    def plan_(self) -> dict[str, str | int]:
        """dict: What was planned: solver, reason, passes, bytes and memory."""
        return self._fitted().report.plan

    @property
    def component_names_(self) -> Integers:
        """ndarray of shape (n_components,): Labels of the latent variables, from 0."""
        return cast(Integers, cast(Any, self._model).component)

    @property
    def _n_features_out(self) -> int:
        return len(self.component_names_)

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """int: Number of features, D."""

    @property
    def _rows(self) -> Any:
        """Functions of single rows of the fitted model; `missing` that is set after a fit to complete data counts."""
        fitted: Any = self._model
        as_fitted = self._missing == "raise" or fitted.missing
        return fitted.rows if as_fitted else with_holes(fitted, self._missing)

    def _known_features(self, *, holes: bool | None = None) -> KnownFeatures:
        """The requirements on new data; `holes` says whether NaN is a missing entry (None: as in the fit)."""
        known, entries = cast(Any, self._model).labels.known, getattr(self._model, "entries", None)
        return KnownFeatures(
            type(self).__name__,
            self.n_features_in_,
            known.features,
            holes=self._rows.holes if holes is None else holes,
            advice=", or fit around NaN with missing='nan'" if hasattr(self, "missing") else "",
            dense=ONLY_DENSE if self._missing == "nan" else ONLY_DENSE_FILLED if holes else "",
            grid=known.grid,
            place=self._fit.place,
            layer=known.layer,
            likelihood=getattr(entries, "likelihood", None),
            beside=getattr(entries, "beside", ()),
            covariates=known.covariates,
            genotypes=getattr(self, "scale", None) == "patterson",
        )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools which data a model takes, and whether its targets are classes, if that is known."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.allow_nan = self._missing != "nan", self._missing == "nan"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        kind = getattr(self, "target_type", None)
        if kind is not None:
            tags.target_tags.required, tags.classifier_tags = True, ClassifierTags()
        if kind == "class" or (kind == "auto" and hasattr(self, "classes_")):
            tags.estimator_type = "classifier"
        return tags
