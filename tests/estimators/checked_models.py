"""Models of graphs and of views, as scikit-learn's checks can see them: they make graph or views from rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from dlatent import GraphPPCA, RelationalPPCA, RelationalSupervisedPPCA


def chain(rows):
    """The graph in which each row has an edge to the next."""
    try:
        count = _num_samples(rows)
    except TypeError:  # what is no table is refused before a graph is needed
        return None
    ones = np.ones(max(count - 1, 0))
    return sp.csr_array(sp.diags_array([ones, ones], offsets=[1, -1], shape=(count, count)))


class ChainGraphPPCA(GraphPPCA):
    def fit(self, X, y=None):
        return super().fit(X, graph=chain(X))

    def fit_transform(self, X, y=None):
        return self.fit(X).transform(X)


class ChainRelationalPPCA(RelationalPPCA):
    def fit(self, X, y=None):
        return super().fit(X, graph=chain(X))


class ChainRelationalSupervisedPPCA(RelationalSupervisedPPCA):
    def fit(self, X, y=None):
        return super().fit(X, y, graph=chain(X))


class Halves(TransformerMixin, BaseEstimator):
    """A model of views that are the first and the second half of the columns."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X, y=None):
        rows = validate_data(self, X, ensure_min_samples=2, ensure_min_features=2)
        pairs = np.column_stack([np.arange(len(rows))] * 2)
        self.model_ = clone(self.model).fit(self.views(rows), y, correspondence=pairs)
        return self

    def views(self, rows):
        middle = rows.shape[1] // 2
        return {"left": rows[:, :middle], "right": rows[:, middle:]}

    def of_rows(self, method, X):
        """What a method says of both halves of rows."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False)
        pairs = np.column_stack([np.arange(len(rows))] * 2)
        return np.asarray(getattr(self.model_, method)(self.views(rows), correspondence=pairs))

    def transform(self, X):
        return self.of_rows("transform", X)

    @available_if(lambda halves: hasattr(halves.model, "score_samples"))
    def score_samples(self, X):
        return self.of_rows("score_samples", X)

    @available_if(lambda halves: hasattr(halves.model, "score_samples"))
    def score(self, X, y=None):
        return float(self.score_samples(X).mean())

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.model.__sklearn_tags__().target_tags.required
        return tags


class LeftHalves(Halves):
    """An embedding of both halves, in which the left one says where new rows are."""

    def transform(self, X):
        check_is_fitted(self)
        return self.model_.transform(self.views(validate_data(self, X, reset=False))["left"], view="left")
