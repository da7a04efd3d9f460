"""How many components: by what the fits did not see, or by the eigenvalues of the covariance."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator, KFold
from sklearn.utils import get_tags

from dlatent.arrays import AxisLabels, DataSource, Graph, Integers
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError, DataWarning, NoiseFloorWarning, PrecisionWarning
from dlatent.fitted.fit import FittedModel
from dlatent.fitted.target_values import as_array
from dlatent.fitted.targets import check_dropped_rows
from dlatent.gaussian.dimension import bic, leaving_noise, log_evidence, noise_eigenvalues
from dlatent.gaussian.missing_entries.incomplete import HeldOutRequest, Hiding, block_held_out
from dlatent.models.correspondence import JointModel
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import Criterion
from dlatent.models.inputs import Data, GraphLike, TargetsLike
from dlatent.models.joint_views import JointViews
from dlatent.models.labelled import open_input, plain_rows
from dlatent.models.model import Model
from dlatent.models.ppca import PPCA
from dlatent.models.row_methods import encoded
from dlatent.passes import Pass
from dlatent.stores.graph.open import open_graph
from dlatent.stores.rows import hide_cells, take_rows

Line: TypeAlias = dict[str, Any]
"""Results of one number of components."""
SMALLEST_FLOOR = 1e-15
"""Of the noise where all eigenvalues are wanted."""


@dataclass(frozen=True)
class Trial:
    """The model and the data that it is fitted to, of which all is open."""

    model: Any
    data: DataSource | JointViews
    targets: npt.NDArray[Any] | None
    graph: Graph | None
    client: Where

    def taken(self, rows: Integers) -> Trial:
        """Some of the samples."""
        cut = self.data[rows] if isinstance(self.data, JointViews) else take_rows(self.data, rows)
        targets = None if self.targets is None else self.targets[rows]
        return replace(self, data=cut, targets=targets, graph=None if self.graph is None else self.graph[rows])

    def fitted(self, k: int, **hyperparameters: Any) -> Any:
        """The model with so many components, fitted to the data."""
        model = clone(self.model).set_params(n_components=k, **hyperparameters)
        graph = {} if self.graph is None else {"graph": self.graph}
        return model.fit(self.data, self.targets, client=self.client, **graph)


def opened(model: Any, X: Any, y: Any, graph: GraphLike, dim: str | None, client: Where) -> Trial:
    """All that is given, where samples can be cut out of it."""
    if not hasattr(model, "score_samples"):
        raise DataError(
            f"{type(model).__name__} has no likelihood to compare numbers by; compare what its coordinates are for, as "
            "the score of a classifier behind it (GridSearchCV)"
        )
    if isinstance(model, JointModel) != isinstance(X, JointViews):
        raise DataError(
            "models of several views take JointViews(views, correspondence=…), whose samples are cut together, and "
            "other models one table of samples"
        )
    data = X if isinstance(X, JointViews) else open_input(X, dim=dim)
    samples, labels = data.shape[0], AxisLabels() if isinstance(data, JointViews) else data.labels
    if y is not None:
        y = as_array(plain_rows(y, labels))
        check_dropped_rows(y, samples, labels)
        if len(y) != samples:
            raise DataError(f"y has {len(y)} rows; the data have {samples} samples")
    edges = None
    if graph is not None and not isinstance(data, JointViews):
        edges = open_graph(graph, samples=samples, ids=labels.samples, origin=labels.origin)
    return Trial(model, data, y, edges, client)


def hides_cells(trial: Trial) -> bool:
    """Whether cells can be held out of the data: the model has missing entries, those not stored are missing, and rows
    do not say of each other what was hidden."""
    missing, data = getattr(trial.model, "missing", None), trial.data
    if missing is None or trial.graph is not None:
        return False
    return isinstance(data, DataSource) and (not data.sparse or missing == "unstored")


def by_cells(trial: Trial, numbers: list[int], hiding: Hiding) -> list[Line]:
    """Fits to the visible cells, and their scores on the others."""
    if not hasattr(trial.model, "missing"):
        raise DataError(f"{type(trial.model).__name__} has no missing entries; take criterion='cross_validation'")
    if trial.graph is not None:
        raise DataError("cells are held out of rows that no graph joins; take criterion='cross_validation'")
    if not hides_cells(trial):
        raise DataError(
            "cells of sparse data can be held out where their stored entries are the observed ones: say "
            "missing='unstored', or take criterion='cross_validation'"
        )
    assert isinstance(trial.data, DataSource)
    missing = "unstored" if trial.data.sparse else "nan"
    visible = replace(trial, data=hide_cells(trial.data, hiding))
    # With a prior by evidence any number that is large enough does: it is numbers without one that are compared.
    prior = {"prior": "ml"} if trial.model.get_params().get("prior") == "auto" else {}
    lines = []
    for k in numbers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # rows that hiding has emptied
            fitted = visible.fitted(k, missing=missing, solver="auto", **prior)
        targets = encoded(fitted, trial.data, trial.targets)
        request = HeldOutRequest(fitted._model.parameters, fitted._model.specification, hiding)
        with connect(trial.data, targets=targets, client=trial.client, cache_bytes=0) as session:
            sums = session.run(Pass(block_held_out, request, name="held out"))
        if not sums.cells:
            raise DataError("no cell was held out; hold out a larger part")
        score, error = sums.log_likelihood / sums.cells, float(np.sqrt(sums.squared_error / sums.cells))
        lines.append({"held_out_log_likelihood": score, "held_out_rmse": error, **_course(fitted)})
    return lines


def _course(fitted: Any) -> Line:
    """How a fit to all samples went."""
    return {
        "log_likelihood": fitted.log_likelihood_,
        "passes": fitted.n_passes_,
        "converged": fitted.converged_,
    }


def by_folds(trial: Trial, numbers: list[int], folds: BaseCrossValidator) -> list[Line]:
    """Fits to all folds of the samples but one, and their scores on that one."""
    if get_tags(trial.model).input_tags.pairwise:
        raise DataError("rows of a precomputed kernel have no likelihood; name the kernel")
    samples = np.arange(trial.data.shape[0])
    lines = [dict[str, list[Any]](fold_log_likelihood=[], passes=[], converged=[]) for _ in numbers]
    for chosen, others in folds.split(samples, trial.targets):
        inside, outside = (trial.taken(np.sort(rows)) for rows in (chosen, others))
        for k, line in zip(numbers, lines, strict=True):
            fitted = inside.fitted(k)
            line["fold_log_likelihood"].append(fitted.score(outside.data, outside.targets, client=trial.client))
            line["passes"].append(fitted.n_passes_)
            line["converged"].append(fitted.converged_)
    return [
        {
            "cross_validated_log_likelihood": float(np.mean(line["fold_log_likelihood"])),
            "fold_log_likelihood": line["fold_log_likelihood"],
            "passes": sum(line["passes"]),
            "converged": all(line["converged"]),
        }
        for line in lines
    ]


def by_criterion(trial: Trial, numbers: list[int], criterion: str) -> list[Line]:
    """The criterion of a fit with each number."""
    if criterion != "bic" or not hasattr(trial.model, "bic"):
        of = "PPCA of complete data" if criterion != "bic" else "models that have `bic`"
        raise DataError(
            f"criterion={criterion!r} is for {of}; take 'auto', which goes by what the fits of a "
            f"{type(trial.model).__name__} did not see"
        )
    fits = (trial.fitted(k) for k in numbers)
    return [{"bic": fitted.bic(trial.data, client=trial.client), **_course(fitted)} for fitted in fits]


def has_spectrum(model: Any) -> bool:
    """Whether the eigenvalues of the covariance are all that the maximum depends on."""
    return isinstance(model, PPCA) and model.missing == "raise"


def by_spectrum(trial: Trial, numbers: list[int], criterion: str, seed: int) -> list[Line]:
    """Return the criteria from the eigenvalues of the covariance, of the fit with the largest number, or with all."""
    assert isinstance(trial.data, DataSource)
    samples, features = trial.data.shape
    if samples <= features and criterion != "parallel":
        raise DataError(
            f"criterion={criterion!r} is for more samples than features, and the {trial.data.description} has "
            f"{samples} × {features}; take criterion='held_out' or 'cross_validation'"
        )
    with warnings.catch_warnings():
        for kind in (NoiseFloorWarning, PrecisionWarning, DataWarning):  # of all components some may be none
            warnings.simplefilter("ignore", kind)
        most = features if criterion == "evidence" else max(numbers)
        fitted = trial.fitted(most, solver="auto", noise_floor=SMALLEST_FLOOR)
    # The other eigenvalues count by their sum.
    values = np.append(fitted.explained_variance_, np.full(features - most, fitted.noise_variance_))
    if fitted.at_floor_[0]:
        # The floor of a fit with more components is higher than what is rounding where there are fewer.
        values[values <= fitted.noise_variance_] = 0.0
    at = np.array(numbers) - 1
    if criterion == "parallel":
        noise = noise_eigenvalues(values, samples, most, random_state=seed)
        above = np.logical_and.accumulate(values[:most] > noise)
        return [{"eigenvalue": values[k], "noise_eigenvalue": noise[k], "above_noise": above[k]} for k in at]
    name, function = ("bic", bic) if criterion == "bic" else ("log_evidence", log_evidence)
    scores = function(values, samples)
    scores[~leaving_noise(values, trial.model.noise_floor * values.mean())] = np.nan
    return [{name: score} for score in scores[at]]


SCORES = {
    "held_out": "held_out_log_likelihood",
    "cross_validation": "cross_validated_log_likelihood",
    "bic": "bic",
    "evidence": "log_evidence",
    "parallel": "eigenvalue",
}
"""The variable that each criterion compares."""


@described
def select_n_components(
    model: Model[FittedModel],
    X: Data | JointViews,
    candidates: Sequence[int],
    y: TargetsLike = None,
    *,
    criterion: Criterion = "auto",
    graph: GraphLike = None,
    held_out: float = 0.1,
    cv: int | BaseCrossValidator = 5,
    random_state: int = 0,
    dim: str | None = None,
    client: Where = None,
) -> xr.Dataset:
    """Compare numbers of components by how well the model describes what the fits did not see, or by one spectrum.

    Unlike the likelihood of a fit, these criteria fall where there are too many components.

    Parameters
    ----------
    model : estimator
        A model with a likelihood, whose other hyperparameters are kept.
    X : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features), or JointViews
        The data; for models of several views `JointViews`.
    candidates : sequence of int
        Numbers of components.
    y : array of shape (n_samples,) or (n_samples, n_targets), optional
        Targets of a supervised model; of the rows that are held out they are predicted together with the features.
    criterion : str, default "auto"
        "held_out" hides cells from one fit for each number, which are the same for all, and scores
        log p(x_ij | the row's other cells): for PPCA, FactorAnalysis and SupervisedPPCA, of dense data or with
        `missing="unstored"`, where it is the default.  "cross_validation" fits to all folds of the samples but one, and
        scores that one, as scikit-learn's `cross_val_score`: for all models with `score`, the default of the others.
        "bic" takes the smallest Bayesian information criterion: for models with `bic`.  PPCA of complete data has also
        "evidence", the largest evidence in Minka's approximation, and "parallel", Horn's parallel analysis: the largest
        number of components of which each has a larger eigenvalue than 95 of 100 draws of noise with the variance that
        those before it leave, or else the smallest candidate.  By these two and by "bic" it takes one fit.
    graph : sparse matrix, networkx graph, path or URL, optional
        Of relational models, as in `fit`.  A fold's graph has the edges between its samples.
    held_out : float, default 0.1
        The part of the cells that is held out.
    cv : int or splitter of scikit-learn, default 5
        Of "cross_validation": a number of folds of shuffled samples, or what cuts the samples.
    random_state : int, default 0
        Decides which cells or samples are held out, and draws the noise of "parallel".

    Returns
    -------
    xarray.Dataset
        Over `n_components`.  By held-out cells `held_out_log_likelihood` (nats a cell) and `held_out_rmse`; by
        cross-validation `cross_validated_log_likelihood` (nats a sample, the mean of `fold_log_likelihood` over
        `fold`); `bic`; `log_evidence`, without what does not depend on K; `eigenvalue`, `noise_eigenvalue` and
        `above_noise`.  Where there is a fit for each number also `passes`, `converged` and, of fits to all samples,
        `log_likelihood`.  The attribute `best` is the number chosen, `criterion` tells by what, and `score` names the
        variable.  A number that leaves no noise, so that its likelihood has no bound, has NaN.

    Raises
    ------
    DataError
        For parameters that make no sense, a criterion that the model has not, and as in `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA, PPCAMixture, select_n_components
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 10)) + rng.normal(size=(200, 10))
    >>> select_n_components(PPCA(), X, [1, 2, 3]).attrs["best"]
    2
    >>> select_n_components(PPCA(), X, [1, 2, 3], criterion="evidence").attrs["best"]
    2
    >>> select_n_components(PPCAMixture(n_mixtures=1), X, [1, 2, 3]).attrs["criterion"]
    'cross_validation'
    """
    if not 0.0 < held_out < 1.0:
        raise DataError(f"held_out is {held_out!r}; expected a part of the cells, above 0 and below 1")
    numbers = [int(k) for k in candidates]
    if not numbers:
        raise DataError("there are no numbers of components to choose from")
    if criterion not in get_args(Criterion):
        raise DataError(f"criterion is {criterion!r}; expected one of {', '.join(map(repr, get_args(Criterion)))}")
    trial = opened(model, X, y, graph, dim, client)
    if criterion == "auto":
        criterion = "held_out" if hides_cells(trial) else "cross_validation"
    match criterion:
        case "held_out":
            lines = by_cells(trial, numbers, Hiding(float(held_out), int(random_state)))
        case "cross_validation":
            folds = KFold(int(cv), shuffle=True, random_state=random_state) if isinstance(cv, Integral) else cv
            lines = by_folds(trial, numbers, folds)
        case _ if has_spectrum(model):
            lines = by_spectrum(trial, numbers, criterion, int(random_state))
        case _:
            lines = by_criterion(trial, numbers, criterion)
    dataset = xr.Dataset(
        {name: _variable([line[name] for line in lines]) for name in lines[0]},
        coords={"n_components": numbers},
        attrs={"model": type(model).__name__, "criterion": criterion, "score": SCORES[criterion]},
    )
    more = {"held_out": float(held_out)} if criterion == "held_out" else {}
    return dataset.assign_attrs(best=_best(dataset), **more)


def _variable(values: list[Any]) -> tuple[tuple[str, ...], npt.NDArray[Any]]:
    """The dimensions of a number, or of a number for each fold, of every candidate, and the values."""
    array = np.array(values)
    return ("n_components", "fold")[: array.ndim], array


def _best(dataset: xr.Dataset) -> int:
    """The number that a criterion chooses."""
    numbers, scores = dataset["n_components"].values, dataset[dataset.attrs["score"]].values
    if dataset.attrs["criterion"] == "parallel":
        return int(numbers[dataset["above_noise"].values].max(initial=numbers.min()))
    if np.isnan(scores).all():
        raise DataError("every number of components leaves no noise, so that likelihoods have no bound; ask for fewer")
    return int(numbers[np.nanargmin(scores) if dataset.attrs["criterion"] == "bic" else np.nanargmax(scores)])
