"""The result of `fit` of any model, its parameters and its course: as a store, as a Dataset, and as a summary."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.machine import memory
from dlatent.engine.session import PassRecord
from dlatent.errors import PlanError, StoreError, masked, number_of
from dlatent.fitted import stored
from dlatent.fitted.grid import spread_all
from dlatent.fitted.stored import attribute, part, table
from dlatent.gaussian.moments import Moments
from dlatent.operators.kernels import NUMBERS
from dlatent.solvers.plan import size
from dlatent.solvers.solver import Iteration
from dlatent.stores.location import Place, zarr_location
from dlatent.stores.places import read_places, require_apart
from dlatent.stores.schema import GRID, Variable

INITIAL_MEAN = "initial mean"
"""The name of the pass that is not counted as one."""
TOP = 6
"""Features named for each component: those with the largest loadings."""
SHOWN = 8
"""Labels that are named."""
MEAN = " (mean)"
"""How the name ends of noise whose features have variances of their own."""
Summary = dict[str, Any]
SHARE = 0.5
"""Fraction of the driver's memory that a model may fill while it is saved or loaded, and a matrix that is asked of
it."""
FACTORS = (
    "use the loadings W (features × components) and the noise variances Ψ of the model instead: C v = W (Wᵀ v) + Ψ v, "
    "and rows of C are W[some] @ W.T"
)
"""Hint in the place of a large covariance."""


@dataclass(frozen=True, eq=False)
class Report:
    """How a fit went; `log_likelihood` is None of what has no likelihood."""

    log_likelihood: float | None = attribute()
    checked_log_likelihood: float | None = attribute()
    converged: bool = attribute()
    iterations: int = attribute()
    samples: int = attribute()
    plan: dict[str, str | int] = attribute()
    notices: tuple[tuple[str, str], ...] = attribute()
    history: tuple[Iteration, ...] = table(Iteration, "iteration")
    passes: tuple[PassRecord, ...] = table(PassRecord, "pass")


@dataclass(frozen=True, eq=False)
class FittedModel(ABC):
    """The parameters of a fit; each family of models has its own."""

    @abstractmethod
    def summary(self, samples: int) -> Summary:
        """The parameters of a fit to so many samples, as JSON values; lists are tables."""

    def derived(self) -> dict[str, Variable]:
        """Variables of `result_` that follow from others, so that a saved model has them not."""
        return {}

    def attributes(self, report: Report, passes: int) -> dict[str, Any]:
        """The attributes of `result_`."""
        course = {name: getattr(report, name) for name in ("log_likelihood", "converged", "iterations", "samples")}
        return course | {"passes": passes}


@dataclass(frozen=True, eq=False)
class Fit:
    """The model and the report of its fit, which are kept, and what is not.

    Parameters
    ----------
    moments : of all rows, where more rows may be added.
    places : where the data of the fit are read from, as far as that is known.
    checkpoint : the identity of the checkpoint of the fit, where there was one.
    place : where the model was loaded from.
    """

    model: FittedModel = part()
    report: Report = part()
    moments: Moments | None = field(default=None, repr=False)
    places: tuple[str, ...] = ()
    checkpoint: str | None = None
    place: str | None = None


def passes_of(fit: Fit) -> int:
    """Passes over the data, the initial mean of their first block not counted."""
    return sum(record.name != INITIAL_MEAN for record in fit.report.passes)


def save(path: Place, kind: str, parameters: dict[str, Any], fit: Fit, *, overwrite: bool) -> None:
    """Write the fit of a kind of model with these hyperparameters, whole or not at all.

    Errors: StoreError as `results.save`, and where the place is that of what the model was fitted to.
    """
    from dlatent.stores import results  # Zarr, which only a store needs

    require_apart(path, *fit.places)
    results.save(
        path,
        kind=kind,
        attributes={"parameters": {k: _plain(value) for k, value in parameters.items()}, **stored.json_values(fit)},
        variables=stored.variables(fit),
        overwrite=overwrite,
        checkpoint=fit.checkpoint,
    )


def _plain(value: Any) -> Any:
    """A hyperparameter as it is kept: paths as text, URLs without credentials."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return masked(value) if isinstance(value, str) else value


def from_saved(path: Place, variables: dict[str, Variable], attributes: Any) -> Fit:
    """The fit that was kept as these at a place.  Errors: any, for what no fit leaves."""
    values = {name: variable.values for name, variable in variables.items()}
    fit = stored.from_saved(Fit, values, attributes)
    if values:
        raise StoreError(f"there is a variable {min(values)!r}, which the model does not have")
    (place, *_) = read_places(zarr_location(path))
    return Fit(fit.model, fit.report, place=place)


def result(kind: str, fit: Fit) -> xr.Dataset:
    """The arrays of a fit with named dimensions and the coordinates of the data."""
    report, model = fit.report, fit.model
    variables = {name: v for name, v in stored.variables(fit, saved=False).items() if not name.startswith(GRID)}
    variables |= model.derived()
    along = {name for name, v in variables.items() if name in v.dims or name == "feature_view"}
    used = {dim for name, v in variables.items() if name not in along for dim in v.dims}
    arrays = {name: (v.dims, np.array(v.values)) for name, v in variables.items()}
    values = model.attributes(report, passes_of(fit))
    dataset = xr.Dataset(
        {name: value for name, value in arrays.items() if name not in along},
        coords={name: value for name, value in arrays.items() if name in along and used >= {*value[0]}},
        # netCDF has no truth values.
        attrs={"model": kind} | {name: int(v) if isinstance(v, bool) else v for name, v in values.items()},
    )
    labels: Any = getattr(model, "labels", None)
    if labels is None or "feature" not in dataset.dims:
        return dataset
    feature = labels.known.dims[1]
    dataset = dataset.rename({"feature": feature}) if feature != "feature" else dataset
    return dataset if labels.known.grid is None else spread_all(dataset, feature, labels.known.grid)


def history(report: Report) -> xr.Dataset:
    """Iterations and passes of a fit as a Dataset with the dimensions `iteration` and `pass`."""
    return xr.Dataset({name: (v.dims, v.values) for name, v in stored.variables(report, saved=False).items()})


def summary(kind: str, parameters: dict[str, Any], fit: Fit) -> Summary:
    """A model of some kind with these hyperparameters, as JSON values; lists are tables."""
    report, records = fit.report, fit.report.passes
    values: Summary = {
        "kind": kind,
        "parameters": parameters,
        "samples": report.samples,
        "converged": report.converged,
        "passes": passes_of(fit),
        "seconds": float(sum(record.seconds for record in records)),
    }
    if report.log_likelihood is not None:
        values |= {
            "log_likelihood": report.log_likelihood,
            "iterations": report.iterations,
            "solver": report.plan["solver"],
            "bytes_read": sum(record.bytes_read for record in records),
            "warnings": [text for _, text in report.notices],
        }
    return values | fit.model.summary(report.samples)


def noise_summary(name: str, noise: Array, at_floor: Any, samples: int, *, shared: bool) -> Summary:
    """The noise variances of one view, or of one component of a mixture: one number, or those of its features."""
    if shared:
        return {"view": name, "variance": float(noise[0]), "at_floor": bool(at_floor[0]), "samples": samples}
    low = int(at_floor.sum())
    return {"view": name + MEAN, "variance": float(noise.mean()), "at_floor": low, "samples": samples}


def component_summaries(loadings: Array, names: Sequence[Any] | npt.NDArray[Any], total: float) -> list[Summary]:
    """For each component its variance over the features, the share of their `total` variance, and its largest loadings;
    no names (or none of them) for features that are never written down."""
    lines = []
    for number, column in enumerate(loadings.T):
        variance = float(column @ column)
        order = np.argsort(-np.abs(column), kind="stable")[:TOP].tolist() if len(names) else []
        largest = [{"feature": names[at], "loading": float(column[at])} for at in order]
        lines.append({"component": number, "variance": variance, "share": variance / total, "largest": largest})
    return lines


def summary_lines(summary: Summary) -> dict[str, str]:
    """The lines of text of a summary by name, without its tables."""
    converged = {"converged": "yes" if summary["converged"] else "NO"}
    if "embedding" in summary:
        return _embedding_lines(summary, converged)
    lines = {
        "data": f"{summary['samples']:,} samples × {summary['features']:,} features",
        "log-likelihood": f"{summary['log_likelihood']:.10g} nats",
        **converged,
        "passes": f"{summary['passes']} over the data by {summary['solver']}, "
        f"{summary['bytes_read'] / 1e6:,.1f} MB read, {summary['seconds']:.1f} s",
    }
    # What a family tells in a text is said as it is.
    lines |= {name: text for name, text in summary.items() if isinstance(text, str) and name not in ("kind", "solver")}
    if "targets" in summary:
        names = summary["targets"]
        lines["labels"] = f"{len(names)}: {', '.join(map(str, names[:SHOWN]))}{', …' if len(names) > SHOWN else ''}"
    if "mixture" in summary:
        weights = ", ".join(f"{weight:.3g}" for weight in summary["mixture"])
        of = "component and feature" if summary["noise"][0]["view"].endswith(MEAN) else "component"
        lines["mixture"] = f"weights {weights}; a noise variance for each {of}"
    if "kernel" in summary:
        lines["kernel"] = _kernel_text(summary["kernel"])
    if "graph" in summary:
        _add_graph_lines(lines, summary["graph"], summary["samples"])
    if "precision" in summary:
        lines["log-likelihood"] += " without ½ D log|Δ|"
        entries, rank = summary["precision"]["entries"], summary["precision"]["rank"]
        lines["precision"] = f"given, {entries:,} entries{_rank_text(rank, summary['samples'])}"
    return lines


def _embedding_lines(summary: Summary, converged: dict[str, str]) -> dict[str, str]:
    sets, embedding = summary["separate_sets"], summary["embedding"]
    return {
        "embedding": f"{summary['samples']:,} samples in {embedding['dimensions']} dimensions",
        "neighbours": f"{embedding['neighbours']} of each sample",
        "eigenvalues": ", ".join(f"{value:.3g}" for value in summary["eigenvalues"]),
        "eigenvectors": f"{summary['eigen_solver']}, known to {summary['eigen_residual']:.1e} of the eigenvalues",
        **converged,
        "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
    }


def _kernel_text(kernel: Summary) -> str:
    numbers = [f"{name} {kernel[name]:g}" for name in NUMBERS.get(kernel["name"], ())]
    error = f"; trace error of the landmarks {kernel['trace_error']:.2g}" if kernel["trace_error"] else ""
    return ", ".join([kernel["name"], *numbers, f"{kernel['dimension']:,} features"]) + error


def _add_graph_lines(lines: dict[str, str], graph: Summary, samples: int) -> None:
    """The line of a graph, and what of it the likelihood is of."""
    if "rank" in graph:
        text = f"{graph['edges']:,}, with α = {graph['alpha']:g} and γ = {graph['gamma']:g}"
        lines["log-likelihood"] += " without ½ D log|Δ| of the graph"
        lines["graph"] = text + _rank_text(graph["rank"], samples)
        return
    if "compared" in graph:
        pairs = zip(graph["compared"]["smoothing"], graph["compared"]["smoothing_correlation"], strict=True)
        text = ", ".join(f"{correlation:.4f} (λ = {smoothing:g})" for smoothing, correlation in pairs)
        lines["smoothing"] = f"correlation with hidden cells {text}"
    lines["graph"] = "not used, as λ = 0"
    if graph["smoothing"]:
        hops = number_of(graph["hops"], "hop", "hops")
        lines["graph"] = f"{graph['edges']:,} edges, with λ = {graph['smoothing']:g} and {hops}"
        lines["log-likelihood"] += " of the smoothed rows"


def _rank_text(rank: int, samples: int) -> str:
    return "" if rank == samples else f", rank of Δ {rank:,}"


def require_room(rows: int, columns: int, what: str, instead: str) -> None:
    """Refuse a matrix that would fill the memory before it is asked for.  Errors: PlanError."""
    nbytes, limit = 8 * rows * columns, memory()
    if nbytes > SHARE * limit:
        raise PlanError(
            f"{what}, {rows:,} × {columns:,}, takes {size(nbytes)}, more than half of the {size(limit)} of memory "
            f"here; {instead}"
        )
