"""The task of a model of one table, and the fitted model that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array, AxisLabels, DataSource
from dlatent.containers import refuse_mask
from dlatent.errors import DataError
from dlatent.fitted.fit import Fit
from dlatent.fitted.linear import FeatureNoise, Linear, LinearGaussian, SharedNoise
from dlatent.fitted.parts import Labels, Targets
from dlatent.fitted.targets import EncodedTargets, check_dropped_rows, encode_targets
from dlatent.gaussian.specification import Specification, View
from dlatent.models.aligned import name_of, plain_rows
from dlatent.models.beside import NOTHING, opened_beside
from dlatent.models.hyperparameters import COUNT
from dlatent.models.inputs import CellWeights, Data, Mask, SampleDims, SampleWeight, TargetsLike
from dlatent.models.labelled import open_input
from dlatent.models.task import FitTask
from dlatent.solvers.solver import Solution
from dlatent.solvers.task import DataSize
from dlatent.stores.places import read_places

ONLY_DENSE = (
    "missing='nan' is for dense data, and the {data} is sparse; with missing='unstored' the stored entries are the "
    "observed ones, with 'raise' what is not stored is zero"
)


MOST, MOST_WITH_HOLES = 50, 20
"""Components among which "auto" chooses: of complete data, and where each row has a K × K matrix of its own."""


def opened(
    model: Any,
    X: Data,
    dim: SampleDims = None,
    weights: CellWeights = None,
    before: Fit | None = None,
    beside: Mapping[str, Any] = NOTHING,
) -> DataSource:
    """The data that a model is to be fitted to, as samples × features, with what stands beside their entries; `before`,
    a fit to whose rows these are added.

    Errors: DataError for hyperparameters that make no sense, and for data that cannot be opened.
    """
    model._check()
    if before is None:
        return opened_beside(open_input(X, dim=dim, weights=weights), beside, dim, weights)
    known = model._known_features()
    source = open_input(X, known=model._model.labels.known)
    known.check(source.shape, source.labels.features)
    return source


def table_task(
    model: Any, source: DataSource, *, before: Fit | None = None, diagonal: bool = False, row_effects: bool = False
) -> FitTask:
    """The task of a model of one table, without targets.

    Parameters: `before`, a fit to whose rows these are added; `diagonal`, whether each feature has a noise variance of
    its own; `row_effects`, whether each sample has a level.
    Errors: DataError for data that the model cannot be fitted to.
    """
    rows = source.shape[0] + (0 if before is None else before.report.samples)
    if rows < 2:
        raise DataError(f"the {source.description} has {rows} sample; a fit needs at least 2")
    if model._missing == "nan" and source.sparse:
        raise DataError(ONLY_DENSE.format(data=source.description))
    if model._missing == "unstored" and not source.sparse:
        raise DataError(
            f"missing='unstored' is for sparse data, and the {source.description} is dense; mark its missing entries "
            "with NaN and say missing='nan'"
        )
    rule = None if COUNT.test(model.n_components) else model.n_components  # None is as many as there can be
    if rule == "auto":
        components = _most_to_choose(model, rows, source)
    else:
        components = _most_components(model.n_components, rule, rows, source)
    views = (View("features", source.shape[1], shared=not diagonal),)
    return task_of(
        model, source, Specification(views, ((0,),), components + int(row_effects), row_effects), fitted_table, rule
    )


def task_of(
    model: Any,
    source: DataSource,
    specification: Specification,
    fitted: Callable[[FitTask, Solution], Linear],
    rule: str | float | None = None,
) -> FitTask:
    """The task of these parts, with the hyperparameters that all models have."""
    return FitTask(
        data=DataSize.of(source),
        source=source,
        specification=specification,
        fitted=fitted,
        solver="auto" if model.solver == "em" else model.solver,
        textbook=model.solver == "em",
        tol=float(model.tol),
        max_iter=int(model.max_iter or 0),
        random_state=model.random_state,
        floor_parts=(float(model.noise_floor),) * len(specification.views),
        refuse_zero_rows=model.zero_rows == "raise",
        missing=model._missing != "raise",
        weighted=source.weights is not None,
        prior=model._prior,
        scale=model._scaled,
        genotypes=getattr(model, "scale", "none") == "patterson",
        rule=rule,
    )


def warmed(task: FitTask, model: Any) -> FitTask:
    """The task that goes on from the last fit of the model, where that is asked for.

    Errors: DataError where the fit is of another shape.
    """
    fit = getattr(model, "_fit", None) if model.warm_start else None
    if fit is None:
        return task
    start, specification = fit.model.start, task.specification
    shapes = start.loadings.shape, start.noise_variance.shape
    leading = () if task.family is None else task.family.leading
    if task.rule == "auto":  # of those that the last fit has kept
        specification = replace(specification, n_components=start.loadings.shape[-1])
        task = replace(task, specification=specification)
    loadings = (*leading, sum(specification.sizes), specification.n_components)
    wanted = loadings, (*leading, len(specification.group_sizes))
    if shapes != wanted:
        raise DataError(
            f"warm_start=True goes on from loadings and noise variances of shapes {shapes[0]} and {shapes[1]}, and "
            f"this fit has {wanted[0]} and {wanted[1]}; set warm_start=False for it"
        )
    units = fit.model.units
    return replace(task, start=start, units=units, scale=units is not None)


def _most_to_choose(model: Any, rows: int, source: DataSource) -> int:
    """The most components of which the data may support some.  Errors: DataError."""
    if model._missing != "raise" and model._prior != "ard":
        raise DataError(
            f"n_components='auto' with missing entries is what prior='ard' leaves, and the prior is {model._prior!r}; "
            "give a number, or compare numbers by select_n_components"
        )
    most = MOST if model._missing == "raise" else MOST_WITH_HOLES
    features = source.shape[1]
    # As many as features, or as span the samples about their mean, leave no noise; but of two features one component
    # does not tell three classes.
    supervised = hasattr(model, "target_type")
    least = min(2, features, rows - 1) if supervised else 1
    return max(min(most, rows - 2 + supervised, features - 1), least)


def _most_components(asked: Any, rule: Any, rows: int, source: DataSource) -> int:
    """K, or as many components as there may be where a rule chooses them.  Errors: DataError."""
    features = source.shape[1]
    if isinstance(rule, str) and rows <= features:
        raise DataError(
            f"n_components={rule!r} is for more samples than features, and the {source.description} has "
            f"{rows} × {features}; take a fraction of variance such as 0.9, or compare numbers by select_n_components"
        )
    most = min(rows - 1, features)
    if rule is None and asked is not None and asked > most:
        raise DataError(
            f"n_components is {asked}, but data of {rows} samples × {features} features allow at most {most}; ask for "
            "fewer components"
        )
    return most if asked is None or rule is not None else int(asked)


def weighted(task: FitTask, sample_weight: SampleWeight) -> FitTask:
    """The task with weights of its samples.  Errors: DataError."""
    if sample_weight is None:
        return task
    if task.missing:
        raise DataError(
            "sample_weight is for complete data; with missing entries repeat rows, or leave out those of weight 0"
        )
    source = task.source
    return replace(task, source=replace(source, weights=sample_weights(sample_weight, source)), weighted=True)


def sample_weights(values: SampleWeight, source: DataSource) -> Array:
    """The weights of the samples of a source (N,).  Errors: DataError, with the row of a weight that is none."""
    rows, samples = plain_rows(values, source.labels, "weights"), source.shape[0]
    try:
        numbers = np.asarray(refuse_mask(rows, "sample_weight"), dtype=np.float64)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight is no array of numbers: {error}; give one for each sample") from error
    if numbers.shape != (samples,):
        raise DataError(f"sample_weight has shape {numbers.shape}; expected a weight for each of the {samples} samples")
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0.0)))
    if len(bad):
        raise DataError(
            f"sample_weight of row {bad[0]} is {numbers[bad[0]]} ({len(bad)} such weights in all); expected finite "
            "numbers of at least 0"
        )
    if not numbers.any():
        raise DataError("sample_weight is zero for all samples; give at least one a weight above 0")
    return numbers


def with_targets(task: FitTask, y: TargetsLike, labelled: Mask, model: Any) -> FitTask:
    """The task with targets for its samples, as a second view.  Errors: DataError."""
    source, places = task.source, read_places(y, labelled)  # before xarray has loaded them
    targets = encoded_targets(y, labelled, source.labels, source.shape[0], model.target_type, holes=task.missing)
    views = (*task.specification.views, View("targets", targets.encoding.rank))
    patterns = ((0, 1),) if targets.labelled.all() else ((0, 1), (0,))
    return replace(
        task,
        specification=replace(task.specification, views=views, patterns=patterns),
        data=replace(task.data, target_bytes=targets.nbytes),
        targets=targets,
        floor_parts=(*task.floor_parts, float(model.target_noise_floor)),
        head=model.head,
        extra_places=places,
    )


def encoded_targets(
    y: TargetsLike, labelled: Mask, labels: AxisLabels, samples: int, kind: str, *, holes: bool = False
) -> EncodedTargets:
    """The targets of so many samples, whose data have these labels."""
    values, mask = plain_rows(y, labels), plain_rows(labelled, labels, "truth values")
    check_dropped_rows(values, samples, labels)
    encoded, (name, attrs) = encode_targets(values, samples, kind, mask=mask, holes=holes), name_of(y)
    return replace(encoded, encoding=replace(encoded.encoding, name=name, attrs=attrs))


def fitted_table(task: FitTask, solution: Solution) -> LinearGaussian:
    """The fitted model of one table."""
    return LinearGaussian(**table_fields(task, solution))


def table_fields(task: FitTask, solution: Solution) -> dict[str, Any]:
    """The fields of a fitted model of one table, by name."""
    parameters, specification = solution.parameters, solution.specification
    targets = task.targets
    features = slice(0, sum(specification.sizes) if targets is None else specification.slices[-1].start)
    spread, shared = parameters.covariance_of(features), specification.views[0].shared
    common = spread is not None and len(spread) == 1
    noise = parameters.noise_variance, specification.floors, np.array(solution.at_floor)
    return {
        "loadings": parameters.loadings[features],
        "mean": parameters.mean[features],
        "noise": SharedNoise(*noise, specification.fixed) if shared else FeatureNoise(*noise),
        "views": np.array([view.name for view in specification.views]),
        "component": np.arange(specification.n_components),
        "view_samples": np.array(solution.view_samples),
        "total_variance": np.array(solution.total_variance),
        "patterns": specification.patterns,
        "missing": task.missing,
        "row_effects": specification.row_effects,
        "labels": Labels(task.source.labels),
        "loadings_covariance": None if common else spread,
        "common_loadings_covariance": spread[0] if spread is not None and common else None,
        "mean_variance": parameters.mean_variance,
        "targets": None if targets is None else Targets.of(targets.encoding, parameters, specification.slices[-1]),
    }
