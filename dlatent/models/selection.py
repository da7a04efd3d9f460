"""How many components: by what the fits did not see, or by the eigenvalues of the covariance."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, Unpack, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from sklearn.model_selection import BaseCrossValidator, KFold

from dlatent.engine.connect import Where
from dlatent.errors import DataError, DataWarning, outside
from dlatent.fitted.fit import FittedModel
from dlatent.gaussian.missing_entries.incomplete import Hiding
from dlatent.models.beside import Beside
from dlatent.models.comparison import (
    Trial,
    by_cells,
    by_criterion,
    by_folds,
    by_spectrum,
    has_spectrum,
    hides_cells,
    noises_differ,
    opened,
)
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import Criterion
from dlatent.models.inputs import Data, GraphLike, SampleDims, TargetsLike
from dlatent.models.joint_views import JointViews
from dlatent.models.model import Model
from dlatent.models.ppca import PPCA

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
    dim: SampleDims = None,
    client: Where = None,
    **beside: Unpack[Beside],
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
        Numbers of components; of PPCA and FactorAnalysis also 0, independent noise about the mean.
    y : array of shape (n_samples,) or (n_samples, n_targets), optional
        Targets of a supervised model; of the rows that are held out they are predicted together with the features.
    criterion : str, default "auto"
        "held_out" hides cells from one fit for each number, which are the same for all, and scores log p(x_ij | the
        row's other cells): for PPCA, FactorAnalysis and SupervisedPPCA, of dense data or with `missing="unstored"`,
        where it is the default; it takes the fewest components whose score is within a standard error of the largest,
        as more of them follow chance among few cells.  "cross_validation" fits to all folds of the samples but one, and
        scores that one, as scikit-learn's `cross_val_score`: for all models with `score`, the default of the others.
        "bic" takes the smallest Bayesian information criterion: for models with `bic`.  PPCA of complete data has also
        "evidence", the largest evidence in Minka's approximation, and "parallel", Horn's parallel analysis: the largest
        number of components of which each has a larger eigenvalue than 95 of 100 draws of noise with the variance that
        those before it leave, or else the smallest candidate.  By these two and by "bic" it takes one fit.  A few more
        fits of PPCA tell whether its noise is that of the data.
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
        Over `n_components`.  By held-out cells `held_out_log_likelihood` (nats a cell), `held_out_error`, the standard
        error of its difference to the largest, and `held_out_rmse`; by cross-validation
        `cross_validated_log_likelihood` (nats a sample, the mean of `fold_log_likelihood` over `fold`); `bic`;
        `log_evidence`, without what does not depend on K; `eigenvalue`, `noise_eigenvalue` and `above_noise`.  Where
        there is a fit for each number also `passes`, `converged` and, of fits to all samples, `log_likelihood`.  The
        attribute `best` is the number chosen, `criterion` tells by what, and `score` names the variable.  A number that
        leaves no noise, so that its likelihood has no bound, has NaN.

    Warns
    -----
    DataWarning
        Where the best is the smallest or the largest of the candidates and others may be better, and where factor
        analysis describes the data better than PPCA.

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
    >>> select_n_components(PPCA(), X, [0, 1, 2, 3]).attrs["best"]
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
    trial = opened(model, X, y, graph, dim, client, beside)
    if criterion == "auto":
        criterion = "held_out" if hides_cells(trial) else "cross_validation"
    match criterion:
        case "held_out":
            lines = by_cells(trial, numbers, Hiding(float(held_out), int(random_state)))
        case "cross_validation":
            folds = KFold(int(cv), shuffle=True, random_state=random_state) if isinstance(cv, Integral) else cv
            lines = by_folds(trial, numbers, folds)
        case _ if has_spectrum(trial):
            lines = by_spectrum(trial, numbers, criterion, int(random_state))
        case _:
            lines = by_criterion(trial, numbers, criterion)
    dataset = xr.Dataset(
        {name: _variable([line[name] for line in lines]) for name in lines[0]},
        coords={"n_components": numbers},
        attrs={"model": type(model).__name__, "criterion": criterion, "score": SCORES[criterion]},
    )
    more = {"held_out": float(held_out)} if criterion == "held_out" else {}
    dataset = dataset.assign_attrs(best=_best(dataset), **more)
    for text in _remarks(dataset, trial) if len(numbers) > 1 else ():
        warnings.warn(text, DataWarning, stacklevel=outside())
    return dataset


def _variable(values: list[Any]) -> tuple[tuple[str, ...], npt.NDArray[Any]]:
    """The dimensions of a number, or of a number for each fold, of every candidate, and the values."""
    array = np.array(values)
    return ("n_components", "fold")[: array.ndim], array


def _best(dataset: xr.Dataset) -> int:
    """The number that a criterion chooses."""
    numbers, scores = dataset["n_components"].values, dataset[dataset.attrs["score"]].values
    if dataset.attrs["criterion"] == "held_out":
        return int(numbers[scores >= scores.max() - dataset["held_out_error"].values].min())
    if dataset.attrs["criterion"] == "parallel":
        return int(numbers[dataset["above_noise"].values].max(initial=numbers.min()))
    if np.isnan(scores).all():
        raise DataError("every number of components leaves no noise, so that likelihoods have no bound; ask for fewer")
    return int(numbers[np.nanargmin(scores) if dataset.attrs["criterion"] == "bic" else np.nanargmax(scores)])


def _remarks(dataset: xr.Dataset, trial: Trial) -> Iterator[str]:
    """What a user should know of a choice: that it is at an edge of the candidates, and that another model fits."""
    best, numbers = dataset.attrs["best"], dataset["n_components"].values
    if best == numbers.max() and best < min(trial.data.shape[0] - 1, trial.data.shape[1]):
        yield f"the best number of components is the largest that was compared, {best}; compare larger ones, too"
    if best == numbers.min() and best > 1:
        yield f"the best number of components is the smallest that was compared, {best}; compare smaller ones, too"
    if (
        isinstance(trial.model, PPCA)
        and trial.normal
        and noises_differ(trial, best, holes=dataset.attrs["criterion"] == "held_out")
    ):
        yield (
            f"the noise beside {best} components differs between the features by more than chance, and PPCA takes more "
            "components for it; FactorAnalysis, with a noise variance for each feature, would fit better"
        )
