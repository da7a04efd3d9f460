"""Fits with several numbers of components, and what tells these apart: cells or samples that the fits did not see, a
criterion, or one spectrum."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import get_tags

from dlatent.arrays import Array, AxisLabels, DataSource, Graph, Integers
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError, DataWarning, NoiseFloorWarning, PrecisionWarning
from dlatent.fitted.linear import SharedNoise
from dlatent.fitted.target_values import as_array
from dlatent.fitted.targets import check_dropped_rows
from dlatent.gaussian.dimension import bic, leaving_noise, log_evidence, noise_eigenvalues
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.missing_entries.entries import pooled_noise
from dlatent.gaussian.missing_entries.incomplete import FOLDS, HeldOut, HeldOutRequest, Hiding, block_held_out
from dlatent.models import task as tasks
from dlatent.models.aligned import plain_rows
from dlatent.models.beside import given, opened_beside
from dlatent.models.correspondence import JointModel
from dlatent.models.factor_analysis import FactorAnalysis
from dlatent.models.hyperparameters import Missing
from dlatent.models.initial import spreads
from dlatent.models.inputs import GraphLike, SampleDims
from dlatent.models.joint_views import JointViews
from dlatent.models.labelled import open_input
from dlatent.models.map_rows import open_edges
from dlatent.models.observations import has_levels
from dlatent.models.ppca import PPCA
from dlatent.models.row_methods import encoded
from dlatent.passes import Pass
from dlatent.stores.rows import hide_cells, take_rows

Line: TypeAlias = dict[str, Any]
"""Results of one number of components."""
SMALLEST_FLOOR = 1e-15
"""Of the noise where all eigenvalues are wanted."""
NEAR = 30
"""Passes of factor analysis on the way from PPCA."""


@dataclass(frozen=True)
class Trial:
    """The model and the data that it is fitted to, of which all is open."""

    model: Any
    data: DataSource | JointViews
    targets: npt.NDArray[Any] | None
    graph: Graph | None
    client: Where

    @property
    def normal(self) -> bool:
        """Whether entries are normal, with nothing beside them."""
        beside = isinstance(self.data, DataSource) and self.data.beside
        return getattr(self.model, "likelihood", "normal") == "normal" and not beside

    def taken(self, rows: Integers) -> Trial:
        """Some of the samples."""
        cut = self.data[rows] if isinstance(self.data, JointViews) else take_rows(self.data, rows)
        targets = None if self.targets is None else self.targets[rows]
        return replace(self, data=cut, targets=targets, graph=None if self.graph is None else self.graph[rows])

    def fitted(self, k: int, **hyperparameters: Any) -> Any:
        """The model with so many components, fitted to the data; with 0 the noise about the mean alone."""
        model = clone(self.model).set_params(n_components=k or 1, **hyperparameters)
        if not k and (not isinstance(model, PPCA | FactorAnalysis) or has_levels(model) or not self.normal):
            raise DataError(
                "0 components, which leave independent noise, are compared for PPCA without row effects and for "
                f"FactorAnalysis; compare numbers of at least 1 for this {type(model).__name__}"
            )
        graph = {} if self.graph is None else {"graph": self.graph}
        fitted = model.fit(self.data, self.targets, client=self.client, **graph)
        return fitted if k else self._noise_alone(fitted)

    def _noise_alone(self, fitted: Any) -> Any:
        """A fitted model without its component."""
        assert isinstance(self.data, DataSource)
        sums, shift, _ = spreads(self.data, self.client, missing=fitted.missing != "raise")
        model, fit, counts = fitted._model, fitted._fit, sums.counts
        specification, before = model.fitted_specification, np.nan_to_num(model.mean)
        # Noise that features share is in the units of the fit.
        shared = model.units is not None and isinstance(model.noise, SharedNoise)
        units = model.units if shared else np.ones(len(counts))
        squares, noise = counts * sums.variances() / units**2, model.noise.variance
        noise = pooled_noise(squares, counts, model.parameters._replace(noise_variance=noise), specification)
        each = counts * (LOG_2PI + np.log(specification.per_feature(noise) * units**2))
        twice = each.sum() + (specification.per_group(squares) / noise).sum()
        bare = replace(
            model,
            loadings=np.zeros_like(model.loadings),
            mean=np.where(counts > 0.0, sums.mean(shift), before),
            noise=replace(model.noise, variance=noise),
            loadings_covariance=None,
            common_loadings_covariance=None,
            mean_variance=None,
            factor_correlation=None,
        )
        report = replace(fit.report, log_likelihood=-0.5 * float(twice))
        return fitted._become(replace(fit, model=bare, report=report))


def opened(
    model: Any, X: Any, y: Any, graph: GraphLike, dim: SampleDims, client: Where, beside: Mapping[str, Any]
) -> Trial:
    """All that is given, where samples can be cut out of it."""
    if given(beside) and not hasattr(model, "likelihood"):
        raise DataError(
            f"{min(given(beside))}= is for PPCA and FactorAnalysis, and the model is {type(model).__name__}"
        )
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
    data = X if isinstance(X, JointViews) else opened_beside(open_input(X, dim=dim), beside, dim)
    samples, labels = data.shape[0], AxisLabels() if isinstance(data, JointViews) else data.labels
    if y is not None:
        y = as_array(plain_rows(y, labels))
        check_dropped_rows(y, samples, labels)
        if len(y) != samples:
            raise DataError(f"y has {len(y)} rows; the data have {samples} samples")
    edges = None
    if graph is not None and not isinstance(data, JointViews):
        edges = open_edges(graph, data)
    return Trial(model, data, y, edges, client)


def hides_cells(trial: Trial) -> bool:
    """Whether cells can be held out of the data: the model has missing entries, those not stored are missing, and rows
    do not say of each other what was hidden."""
    missing, data = getattr(trial.model, "missing", None), trial.data
    if missing is None or trial.graph is not None or not trial.normal:
        return False
    return isinstance(data, DataSource) and (not data.sparse or missing == "unstored")


def by_cells(trial: Trial, numbers: list[int], hiding: Hiding) -> list[Line]:
    """Fits to the visible cells, and their scores on the others."""
    if not hasattr(trial.model, "missing"):
        raise DataError(f"{type(trial.model).__name__} has no missing entries; take criterion='cross_validation'")
    if not trial.normal:
        raise DataError(
            "cells are held out of normal entries with nothing beside them, and these have "
            f"likelihood={trial.model.likelihood!r}, or more; take criterion='cross_validation'"
        )
    if trial.graph is not None:
        raise DataError("cells are held out of rows that no graph joins; take criterion='cross_validation'")
    if not hides_cells(trial):
        raise DataError(
            "cells of sparse data can be held out where their stored entries are the observed ones: say "
            "missing='unstored', or take criterion='cross_validation'"
        )
    assert isinstance(trial.data, DataSource)
    visible = replace(trial, data=hide_cells(trial.data, hiding))
    lines, sums = list[Line](), list[HeldOut]()
    for k in numbers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # rows that hiding has emptied
            fitted = visible.fitted(k, solver="auto", **with_holes(trial))
        targets = encoded(fitted, trial.data, trial.targets)
        request = HeldOutRequest(fitted._model.parameters, fitted._model.specification, hiding)
        with connect(trial.data, targets=targets, client=trial.client, cache_bytes=0) as session:
            sums.append(session.run(Pass(block_held_out, request, name="held out")))
        cells = sums[-1].cells.sum()
        if not cells:
            raise DataError("no cell was held out; hold out a larger part")
        score, error = sums[-1].log_likelihood.sum() / cells, float(np.sqrt(sums[-1].squared_error.sum() / cells))
        lines.append({"held_out_log_likelihood": score, "held_out_rmse": error, **_course(fitted)})
    best = sums[int(np.argmax([line["held_out_log_likelihood"] for line in lines]))]
    for line, each in zip(lines, sums, strict=True):
        line["held_out_error"] = _standard_error(best.log_likelihood - each.log_likelihood, best.cells)
    return lines


def with_holes(trial: Trial) -> dict[str, str]:
    """The hyperparameters of fits to data of which entries are missing."""
    assert isinstance(trial.data, DataSource)
    return {"missing": "unstored" if trial.data.sparse else "nan", **without_evidence(trial.model)}


def without_evidence(model: Any) -> dict[str, str]:
    """The hyperparameters that take away a prior by evidence, with which any number that is large enough does, and keep
    the units, which may depend on the prior."""
    if model.get_params().get("prior") != "auto":
        return {}
    return {"prior": "ml", "scale": "spread" if model._scaled else "none"}


def _standard_error(sums: Array, cells: Array) -> float:
    """The standard error of a mean over cells, from sums over sets of rows (FOLDS,)."""
    away = sums - cells * (sums.sum() / cells.sum())
    return float(np.sqrt(FOLDS / (FOLDS - 1) * (away**2).sum()) / cells.sum())


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
    samples, features = trial.data.shape
    lines = []
    for k in numbers:
        fitted = trial.fitted(k)
        # Where there is no component its loadings are no free numbers.
        free = fitted.n_parameters_ - (0 if k else features)
        score = fitted.score(trial.data, client=trial.client)
        lines.append({"bic": float(-2.0 * samples * score + free * np.log(samples)), **_course(fitted)})
    return lines


def has_spectrum(trial: Trial) -> bool:
    """Whether the eigenvalues of the covariance are all that the maximum depends on."""
    return isinstance(trial.model, PPCA) and trial.model.missing == "raise" and trial.normal


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
        most = features if criterion == "evidence" else max(*numbers, 1)
        fitted = trial.fitted(most, solver="auto", noise_floor=SMALLEST_FLOOR)
    # The other eigenvalues count by their sum.
    values = np.append(fitted.explained_variance_, np.full(features - most, fitted.noise_variance_))
    if fitted.at_floor_[0]:
        # The floor of a fit with more components is higher than what is rounding where there are fewer.
        values[values <= fitted.noise_variance_] = 0.0
    if criterion == "parallel":
        noise = noise_eigenvalues(values, samples, most, random_state=seed)
        above = np.append(True, np.logical_and.accumulate(values[:most] > noise))
        values, noise = np.append(np.nan, values), np.append(np.nan, noise)
        return [{"eigenvalue": values[k], "noise_eigenvalue": noise[k], "above_noise": above[k]} for k in numbers]
    name, function = ("bic", bic) if criterion == "bic" else ("log_evidence", log_evidence)
    scores, units = function(values, samples), fitted._model.units
    if criterion == "bic" and units is not None:  # the likelihood is that of the data in their own units
        scores = scores + 2.0 * samples * np.log(units).sum()
    scores[1:][~leaving_noise(values, trial.model.noise_floor * values.mean())] = np.nan
    return [{name: score} for score in scores[numbers]]


def noises_differ(trial: Trial, k: int, *, holes: bool) -> bool:
    """Whether factor analysis of K components or fewer, near to PPCA of as many, describes the data better than PPCA of
    K, by the Bayesian information criterion; not known of zeros that sparse data do not store."""
    options = with_holes(trial) if holes else without_evidence(trial.model)
    assert isinstance(trial.data, DataSource)
    if trial.data.sparse and options.get("missing", trial.model.missing) == "raise":
        return False
    missing: Missing = "unstored" if trial.data.sparse else "nan"
    least, k = None, max(k, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the fits before, and of one that is not finished
        while k:
            plain = trial.fitted(k, solver="auto", **options)
            start = plain._model.parameters
            start = start._replace(noise_variance=plain._model.specification.per_feature(start.noise_variance))
            factors: Any = FactorAnalysis(k, missing=missing, prior="ml", max_iter=NEAR)
            tasks.run(replace(factors._task(trial.data), start=start), tasks.FitRun(trial.client), factors)
            least = _bic(plain) if least is None else least
            if _bic(factors) < least:
                return True
            k -= max(k // 4, 1)
    return False


def _bic(fitted: Any) -> float:
    return float(-2.0 * fitted.log_likelihood_ + fitted.n_parameters_ * np.log(fitted.n_samples_))
