"""What the case `defaults` compares: a default, simple rivals and other settings on the same splits of small data.

A method gets what it may see of a split and returns what a score asks for, which gets the split and that answer.  The
default is the model as a user makes it first, with nothing given that it can choose itself: no number of components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

import dlatent
from benchmarks.cases.citations_spaces import unit_scale
from benchmarks.cases.faces import nearest_error
from benchmarks.cases.few_labels import measured
from benchmarks.processes import Stopwatch
from benchmarks.small_data import Given

Method = Callable[[Given], Any]
Score = Callable[[Given, Any], Mapping[str, float]]
K, CANDIDATES = 30, (1, 2, 4, 8)
"""Components of scores, and those that rivals try."""
RIDGES = np.logspace(-3, 5, 17)


def at_most(k: int, rows: Any) -> int:
    """K, or as many components as the rows can have."""
    return int(min(k, min(rows.shape) - 1))


# Missing cells.


def imputed(k: int | None = None, *, scaled: bool = False) -> Method:
    """What PPCA imputes, of rows as they are or z-scored by hand."""

    def method(given: Given) -> Any:
        options: dict[str, Any] = {} if k is None else {"n_components": k}
        centre, spread = np.nanmean(given.rows, axis=0), np.nanstd(given.rows, axis=0)
        shift, unit = (centre, spread) if scaled else (0.0, 1.0)
        rows = (given.rows - shift) / unit
        return dlatent.PPCA(**options, missing="nan").fit(rows).impute(rows) * unit + shift

    return method


def column_means(given: Given) -> Any:
    """The mean of what is known of each feature."""
    return np.where(given.known, given.rows, np.nanmean(given.rows, axis=0))


def iterated_pca(given: Given, k: int = 2, rounds: int = 50) -> Any:
    """Z-scored rows, their gaps filled with the projection on K principal axes again and again."""
    centre, spread = np.nanmean(given.rows, axis=0), np.nanstd(given.rows, axis=0)
    seen = (given.rows - centre) / spread
    rows = np.where(given.known, seen, 0.0)
    for _ in range(rounds):
        mean = rows.mean(axis=0)
        _, _, axes = np.linalg.svd(rows - mean, full_matrices=False)
        rows = np.where(given.known, seen, mean + (rows - mean) @ axes[:k].T @ axes[:k])
    return rows * spread + centre


def sklearn_imputed(name: str, **options: Any) -> Method:
    """An imputer of scikit-learn."""

    def method(given: Given) -> Any:
        from sklearn import impute
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401

        return getattr(impute, name)(**options).fit_transform(given.rows)

    return method


def cell_error(given: Given, answer: Any) -> dict[str, float]:
    """Root mean square of what the hidden cells are missed by, in standard deviations of their features."""
    missed = ((np.asarray(answer) - given.targets) / given.targets.std(axis=0))[~given.known]
    return {"error": float(np.sqrt(np.mean(missed**2)))}


# Scores of all rows.


def scores(k: int | None = None, *, projected: bool = False) -> Method:
    """Scores by PPCA; `projected`: the rows made of them, whose distances are in the unit of the features."""

    def method(given: Given) -> Any:
        model = dlatent.PPCA() if k is None else dlatent.PPCA(at_most(k, given.rows))
        found = model.fit_transform(given.rows)
        return model.inverse_transform(found) if projected else found

    return method


def principal(rows: Any) -> Any:
    """Scores by scikit-learn's PCA of 30 components."""
    from sklearn.decomposition import PCA

    solver = "arpack" if sp.issparse(rows) else "auto"
    return PCA(at_most(K, rows), svd_solver=solver, random_state=0).fit_transform(rows)


def neighbours_and_clusters(given: Given, answer: Any) -> dict[str, float]:
    """Errors of the nearest labelled neighbour, and what k-means clusters tell of the classes."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    space = np.asarray(answer)
    clusters = KMeans(given.classes, n_init=2, random_state=given.seed).fit_predict(space)
    return {
        "1-NN error": nearest_error(space, given.targets, given.known),
        "NMI": float(normalized_mutual_info_score(given.targets, clusters)),
    }


# Classes and labels.


def supervised(k: int | None = None) -> Method:
    """Probabilities of the classes by SupervisedPPCA."""

    def method(given: Given) -> Any:
        model = dlatent.SupervisedPPCA() if k is None else dlatent.SupervisedPPCA(at_most(k, given.rows))
        if given.targets.ndim > 1:
            return model.fit(given.rows, given.targets, labelled=given.known).predict_proba(given.rows)
        return model.fit(given.rows, np.where(given.known, given.targets, -1)).predict_proba(given.rows)

    return method


def logistic(space: Any, given: Given) -> Any:
    """Probabilities by scikit-learn's logistic regression with its defaults, of several labels one for each."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    machine: Any = LogisticRegression(solver="newton-cholesky", max_iter=1000)
    machine = machine if given.targets.ndim == 1 else OneVsRestClassifier(machine)
    return machine.fit(space[given.known], given.targets[given.known]).predict_proba(space)


def of_classes(given: Given, answer: Any) -> dict[str, float]:
    """Error and log-loss on the rows without a label."""
    one_of = np.eye(given.classes)[given.targets]
    found = measured(np.asarray(answer)[~given.known], one_of[~given.known], classes=True)
    return {name: found[name] for name in ("error", "log-loss")}


def of_labels(given: Given, answer: Any) -> dict[str, float]:
    """Macro F1, and log-loss of a label."""
    from sklearn.metrics import f1_score

    said, truth = np.asarray(answer)[~given.known], given.targets[~given.known]
    loss = measured(said, truth.astype(float), classes=False)["log-loss"]
    return {"macro F1": float(f1_score(truth, said > 0.5, average="macro", zero_division=0)), "log-loss": loss}


def of_nodes(given: Given, answer: Any) -> dict[str, float]:
    """Error of logistic regression on scores of which all together have a mean square of one."""
    return {"error": of_classes(given, logistic(unit_scale(np.asarray(answer)), given))["error"]}


# Likelihoods of new rows.


def density(model: str, k: int | None = None, **options: Any) -> Method:
    """Log-likelihoods of the other rows by a model fitted to those that are known."""

    def method(given: Given) -> Any:
        found = options if k is None else options | {"n_components": at_most(k, given.rows)}
        return getattr(dlatent, model)(**found).fit(given.rows[given.known]).score_samples(given.rows[~given.known])

    return method


def mixture_density(k: int | None = None) -> Method:
    """The same of a mixture of as many parts as there are classes, a noise variance for each feature."""
    options = {"noise": "diagonal"}
    return lambda x: density("PPCAMixture", k, n_mixtures=x.classes, random_state=x.seed, **options)(x)


def sklearn_pca(given: Given) -> Any:
    """Scikit-learn's PCA with Minka's rule."""
    from sklearn.decomposition import PCA

    return PCA("mle", svd_solver="full").fit(given.rows[given.known]).score_samples(given.rows[~given.known])


def sklearn_factors(given: Given) -> Any:
    """Scikit-learn's factor analysis, the number of factors by cross-validation."""
    from sklearn.decomposition import FactorAnalysis
    from sklearn.model_selection import GridSearchCV

    tried = [k for k in CANDIDATES if k < given.rows.shape[1]]
    found = GridSearchCV(FactorAnalysis(), {"n_components": tried}, cv=3).fit(given.rows[given.known])
    return found.best_estimator_.score_samples(given.rows[~given.known])


def sklearn_mixture(given: Given) -> Any:
    """Scikit-learn's mixture of axis-parallel normal distributions, one for each class."""
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(given.classes, covariance_type="diag", n_init=5, random_state=given.seed)
    return model.fit(given.rows[given.known]).score_samples(given.rows[~given.known])


def mean_density(given: Given, answer: Any) -> dict[str, float]:
    """The mean log-likelihood."""
    return {"log-likelihood a row": float(np.mean(answer))}


# Numbers, and views.


def regressed(k: int | None = None) -> Method:
    """Predictions of SupervisedPPCA fitted to the rows that are known."""

    def method(given: Given) -> Any:
        rows, targets = given.rows[given.known], given.targets[given.known]
        model = dlatent.SupervisedPPCA() if k is None else dlatent.SupervisedPPCA(at_most(k, rows))
        return model.fit(rows, targets[:, 0] if targets.shape[1] == 1 else targets).predict(given.rows[~given.known])

    return method


def ridge(given: Given, *, scaled: bool = False) -> Any:
    """Ridge regression, the ridge by leave-one-out, on rows as they are or z-scored."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(with_mean=scaled, with_std=scaled), RidgeCV(RIDGES))
    return model.fit(given.rows[given.known], given.targets[given.known]).predict(given.rows[~given.known])


def target_means(given: Given) -> Any:
    """The mean of the targets that are known."""
    truth = given.targets[~given.known]
    return np.broadcast_to(given.targets[given.known].mean(axis=0), truth.shape)


def explained(given: Given, answer: Any) -> dict[str, float]:
    """R² about the mean of the known targets, the mean over the targets."""
    truth, mean = given.targets[~given.known], given.targets[given.known].mean(axis=0)
    missed = ((np.asarray(answer).reshape(truth.shape) - truth) ** 2).sum(axis=0)
    return {"R²": float(np.mean(1.0 - missed / ((truth - mean) ** 2).sum(axis=0)))}


def other_view(model: str, k: int | None = None) -> Method:
    """The right halves of images whose left halves alone were in the fit."""

    def method(given: Given) -> Any:
        found = getattr(dlatent, model)() if k is None else getattr(dlatent, model)(k)
        pairs = np.repeat(np.flatnonzero(given.known)[:, None], 2, axis=1)
        found.fit({"left": given.rows, "right": given.targets[given.known]}, correspondence=pairs)
        return found.reconstruct(given.rows[~given.known], "left", "right")

    return method


def normalised_error(given: Given, answer: Any) -> dict[str, float]:
    """Σ‖x̂ − x‖² / Σ‖x − x̄‖², x̄ the mean of the pairs."""
    truth = given.targets[~given.known]
    about = truth - given.targets[given.known].mean(axis=0)
    return {"error": float(((np.asarray(answer) - truth) ** 2).sum() / (about**2).sum())}


# Clusters, graphs and seconds.


def clustered(k: int | None = None, **options: Any) -> Method:
    """Groups by PPCAMixture, as many as there are classes."""

    def method(given: Given) -> Any:
        found = options if k is None else options | {"n_components": at_most(k, given.rows)}
        rows = given.rows[given.known]
        return dlatent.PPCAMixture(**found, n_mixtures=given.classes, random_state=given.seed).fit(rows).predict(rows)

    return method


def k_means(given: Given) -> Any:
    """Scikit-learn's k-means."""
    from sklearn.cluster import KMeans

    return KMeans(given.classes, n_init=10, random_state=given.seed).fit_predict(given.rows[given.known])


def of_groups(given: Given, answer: Any) -> dict[str, float]:
    """The adjusted Rand index of groups and classes."""
    from sklearn.metrics import adjusted_rand_score

    return {"ARI": float(adjusted_rand_score(given.targets[given.known], np.asarray(answer)))}


def on_graph(**options: Any) -> Method:
    """Scores of GraphPPCA."""
    return lambda given: dlatent.GraphPPCA(**options).fit_transform(given.rows, graph=given.graph)


def smoothed_principal(given: Given) -> Any:
    """PCA of rows that were twice averaged over neighbours, with the normalised adjacency matrix of SGC."""
    own = given.graph + sp.eye_array(given.graph.shape[0])
    scale = sp.diags_array(1.0 / np.sqrt(own.sum(axis=1)))
    step = scale @ own @ scale
    return principal(sp.csr_array(step @ (step @ given.rows)))


def factor_seconds(given: Given) -> Any:
    """Factor analysis of five factors in multiples of scikit-learn's processor time, and its log-likelihood a row."""
    from sklearn.decomposition import FactorAnalysis

    dlatent.FactorAnalysis(1).fit(given.rows[:20, :5])  # imports
    with Stopwatch() as own:
        model = dlatent.FactorAnalysis(5).fit(given.rows)
    with Stopwatch() as other:
        FactorAnalysis(5).fit(given.rows)
    height = float(np.mean(model.score_samples(given.rows)))
    return {"CPU, × scikit-learn": own.cpu_seconds / other.cpu_seconds, "log-likelihood a row": height}


def sklearn_height(given: Given) -> Any:
    """The log-likelihood a row by scikit-learn."""
    from sklearn.decomposition import FactorAnalysis

    return {"log-likelihood a row": float(FactorAnalysis(5).fit(given.rows).score(given.rows))}


def supervised_seconds(given: Given) -> Any:
    """Processor seconds of SupervisedPPCA of 30 components, of two fits the quicker."""
    seconds = []
    for _ in range(2):
        with Stopwatch() as watch:
            dlatent.SupervisedPPCA(K).fit(given.rows, np.where(given.known, given.targets, -1))
        seconds.append(watch.cpu_seconds)
    return {"CPU seconds": min(seconds)}


def bar(name: str, value: float) -> Method:
    """A bar in the place of a rival."""
    return lambda given: {name: value}


def as_it_is(given: Given, answer: Any) -> dict[str, float]:
    """What the method has measured itself."""
    return dict(answer)
