"""A step of a pipeline that fills missing entries in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import OneToOneFeatureMixin, clone

from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.inputs import Data, PathLike, Rows, TargetsLike
from dlatent.models.model import BaseEstimator, NotFittedError, TransformerMixin
from dlatent.models.other_names import refuse_keywords
from dlatent.models.ppca import PPCA
from dlatent.models.task import FitRun


class _Named(BaseEstimator):
    """Refuses keywords below `Imputer`, of which Python so shows the signature of `__init__`, which it meets first."""

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Refuse keywords of scikit-learn's imputers by what to use in their place."""
        refuse_keywords(cls, params)
        return super().__new__(cls)


class Imputer(OneToOneFeatureMixin, TransformerMixin, _Named):  # type: ignore[misc]
    """Fills in missing entries (NaN), each by its mean given the observed ones of its row.

    It is `impute` of a model as a transformer, so that the next step of a pipeline gets whole rows.

    Parameters
    ----------
    estimator : estimator, optional
        A model that has `impute`; it is fitted as a clone with `missing="nan"`.  By default `PPCA()`, with as many
        components as the data support.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model, which also says how sure it is (`impute_variance`).
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data of the fit had names, all of them texts.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from dlatent import PPCA, Imputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) @ [[1.0, 2.0, 2.0]] + 0.1 * rng.normal(size=(100, 3))
    >>> y, X[::4, 0] = X.sum(axis=1), np.nan
    >>> pipeline = make_pipeline(Imputer(PPCA(1)), LinearRegression()).fit(X, y)
    >>> bool(pipeline.score(X, y) > 0.99)
    True
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    @described
    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to the observed entries.

        Parameters
        ----------
        y : optional
            Targets, for models that take them; others pass them by.

        Raises
        ------
        DataError
            For an estimator that fills nothing in.
        """
        model = PPCA() if self.estimator is None else clone(self.estimator)
        if not hasattr(model, "impute") or "missing" not in model.get_params():
            raise DataError(f"estimator is {model!r}, which takes no missing entries; give a model such as PPCA()")
        run = FitRun(client, callbacks, checkpoint, resume)._asdict()
        self.estimator_ = model.set_params(missing="nan").fit(X, y, **run)
        return self

    @described
    def transform(self, X: Data) -> Rows:
        """Fill in the missing entries of rows.

        Returns
        -------
        array of shape (n_samples, n_features)
            In the kind of the input.
        """
        rows: Rows = self._fitted.impute(X)
        return rows

    @property
    def _fitted(self) -> Any:
        """The fitted model.  Errors: NotFittedError."""
        if not hasattr(self, "estimator_"):
            raise NotFittedError("this Imputer is not fitted yet; call fit first")
        return self.estimator_

    @property
    def n_features_in_(self) -> int:
        """int: Number of features, D."""
        return int(self._fitted.n_features_in_)

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """ndarray of shape (n_features,): Names of the features, where the data of the fit had such names."""
        names: npt.NDArray[np.object_] = self._fitted.feature_names_in_
        return names

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn's tools that NaN is welcome, and targets as the model asks for them."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        if self.estimator is not None:
            tags.target_tags = self.estimator.__sklearn_tags__().target_tags
        return tags
