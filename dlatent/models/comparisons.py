"""How numbers of components are compared: what each criterion says of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import get_tags

from dlatent.arrays import DataSource, Graph, Integers
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError, DataWarning, NoiseFloorWarning, PrecisionWarning
from dlatent.fitted.targets import as_array, check_dropped_rows
from dlatent.gaussian.dimension import bic, leaving_noise, log_evidence, noise_eigenvalues
from dlatent.gaussian.held_out import HeldOutRequest, Hiding, block_held_out
from dlatent.models.inputs import GraphLike
from dlatent.models.joint_views import JointViews
from dlatent.models.labelled import plain_rows
from dlatent.models.map_rows import open_input
from dlatent.models.ppca import PPCA
from dlatent.models.row_methods import encoded
from dlatent.models.views import JointModel
from dlatent.passes import Pass
from dlatent.stores.graph.open import open_graph
from dlatent.stores.held_out import hide_cells, take_rows

Line: TypeAlias = dict[str, Any]
"""What is known of one number of components."""
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
    if isinstance(X, JointViews):
        y = None if y is None else as_array(y)
        if y is not None and len(y) != len(X.correspondence):
            raise DataError(f"y has {len(y)} rows; there are {len(X.correspondence)} joint samples")
        return Trial(model, X, y, None, client)
    source, _ = open_input(X, dim=dim)
    samples, labels = source.shape[0], source.labels
    if graph is not None:
        graph = open_graph(graph, samples=samples, ids=labels.samples, origin=labels.origin)
    if y is not None:
        y = as_array(plain_rows(y, labels))
        check_dropped_rows(y, samples, labels)
        if len(y) != samples:
            raise DataError(f"y has {len(y)} rows; the data have {samples} samples")
    return Trial(model, source, y, graph, client)


def hides_cells(given: Trial) -> bool:
    """Whether cells can be held out of the data: the model has missing entries, those not stored are missing, and rows
    do not say of each other what was hidden."""
    missing, data = getattr(given.model, "missing", None), given.data
    if missing is None or given.graph is not None:
        return False
    return isinstance(data, DataSource) and (not data.sparse or missing == "unstored")


def by_cells(given: Trial, numbers: list[int], hiding: Hiding) -> list[Line]:
    """Fits to the visible cells, and their scores on the others."""
    if not hasattr(given.model, "missing"):
        raise DataError(f"{type(given.model).__name__} has no missing entries; take criterion='cross_validation'")
    if given.graph is not None:
        raise DataError("cells are held out of rows that no graph joins; take criterion='cross_validation'")
    if not hides_cells(given):
        raise DataError(
            "cells of sparse data can be held out where their stored entries are the observed ones: say "
            "missing='unstored', or take criterion='cross_validation'"
        )
    assert isinstance(given.data, DataSource)
    missing = "unstored" if given.data.sparse else "nan"
    visible = replace(given, data=hide_cells(given.data, hiding))
    # With a prior by evidence any number that is large enough does: it is numbers without one that are compared.
    prior = {"prior": "ml"} if given.model.get_params().get("prior") == "auto" else {}
    lines = []
    for k in numbers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # rows that hiding has emptied
            fitted = visible.fitted(k, missing=missing, solver="auto", **prior)
        targets = encoded(fitted, given.data, given.targets)
        request = HeldOutRequest(fitted._model.parameters, fitted._model.specification, hiding)
        with connect(given.data, targets=targets, client=given.client, cache_bytes=0) as session:
            found = session.run(Pass(block_held_out, request, name="held out"))
        if not found.cells:
            raise DataError("no cell was held out; hold out a larger part")
        score, error = found.log_likelihood / found.cells, float(np.sqrt(found.squared_error / found.cells))
        lines.append({"held_out_log_likelihood": score, "held_out_rmse": error, **_course(fitted)})
    return lines


def _course(fitted: Any) -> Line:
    """How a fit to all samples went."""
    return {
        "log_likelihood": fitted.log_likelihood_,
        "passes": fitted.n_passes_,
        "converged": fitted.converged_,
    }


def by_folds(given: Trial, numbers: list[int], folds: BaseCrossValidator) -> list[Line]:
    """Fits to all folds of the samples but one, and their scores on that one."""
    if get_tags(given.model).input_tags.pairwise:
        raise DataError("rows of a precomputed kernel have no likelihood; name the kernel")
    samples = np.arange(given.data.shape[0])
    lines = [dict[str, list[Any]](fold_log_likelihood=[], passes=[], converged=[]) for _ in numbers]
    for chosen, others in folds.split(samples, given.targets):
        inside, outside = (given.taken(np.sort(rows)) for rows in (chosen, others))
        for k, line in zip(numbers, lines, strict=True):
            fitted = inside.fitted(k)
            line["fold_log_likelihood"].append(fitted.score(outside.data, outside.targets, client=given.client))
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


def by_criterion(given: Trial, numbers: list[int], criterion: str) -> list[Line]:
    """The criterion of a fit with each number."""
    if criterion != "bic" or not hasattr(given.model, "bic"):
        of = "PPCA of complete data" if criterion != "bic" else "PPCA, FactorAnalysis and PPCAMixture"
        raise DataError(
            f"criterion={criterion!r} is for {of}; take 'auto', which goes by what the fits of a "
            f"{type(given.model).__name__} did not see"
        )
    fits = (given.fitted(k) for k in numbers)
    return [{"bic": fitted.bic(given.data, client=given.client), **_course(fitted)} for fitted in fits]


def has_spectrum(model: Any) -> bool:
    """Whether the eigenvalues of the covariance are all that the maximum depends on."""
    return isinstance(model, PPCA) and model.missing == "raise"


def by_spectrum(given: Trial, numbers: list[int], criterion: str, seed: int) -> list[Line]:
    """What the eigenvalues of the covariance say, from the fit with the largest number, or with all."""
    assert isinstance(given.data, DataSource)
    samples, features = given.data.shape
    if samples <= features and criterion != "parallel":
        raise DataError(
            f"criterion={criterion!r} is for more samples than features, and the {given.data.description} has "
            f"{samples} × {features}; take criterion='held_out' or 'cross_validation'"
        )
    with warnings.catch_warnings():
        for kind in (NoiseFloorWarning, PrecisionWarning, DataWarning):  # of all components some may be none
            warnings.simplefilter("ignore", kind)
        most = features if criterion == "evidence" else max(numbers)
        fitted = given.fitted(most, solver="auto", noise_floor=SMALLEST_FLOOR)
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
    scores[~leaving_noise(values, given.model.noise_floor * values.mean())] = np.nan
    return [{name: score} for score in scores[at]]
