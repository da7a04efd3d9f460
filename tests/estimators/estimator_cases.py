"""Data and models that the tests of the estimators share."""

from __future__ import annotations

import numpy as np

from dlatent import PPCA, FactorAnalysis, SupervisedPPCA
from tests.simulators import documents, first_of_each, hide, simulate

DATA = simulate(60, (8, 2), 2, noise=(0.3, 0.2), random_state=11)
X, Y = DATA.features, DATA.targets
N, D = X.shape
LABELLED = np.arange(N) % 3 == 0
PARTLY = hide(Y, LABELLED)
HOLES = np.random.default_rng(12).random(X.shape) < 0.2
CLASSES = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.7]))


def ppca(**options):
    return PPCA(2, **options).fit(X)


def factors(**options):
    return FactorAnalysis(2, **options).fit(X)


def incomplete(**options):
    return PPCA(2, missing="nan", **options).fit(np.where(HOLES, np.nan, X))


def regression(**options):
    return SupervisedPPCA(2, **options).fit(X, PARTLY)


def classifier(**options):
    return SupervisedPPCA(1, **options).fit(X, np.where(LABELLED, CLASSES, -1))


def multilabel(**options):
    return SupervisedPPCA(1, **options).fit(X, (Y > 0).astype(int))


def texts(n=90, d=50):
    data = documents(n, d)
    return data.features, np.where(first_of_each(data.labels, 8), data.labels, -1)


MODELS = {
    "ppca": ppca,
    "factors": factors,
    "incomplete": incomplete,
    "regression": regression,
    "classifier": classifier,
    "multilabel": multilabel,
}
EQUAL = ("components_", "mean_", "noise_variance_", "log_likelihood_")


def same(one, other):
    """Whether two fitted models are equal to the last bit."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in EQUAL)
