"""What `fit` returns, of any model: what it has found, and how it went."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import xarray as xr

from dlatent.engine.session import PassRecord
from dlatent.fitted.facts import Facts
from dlatent.fitted.stored import fact, part, table
from dlatent.gaussian.moments import Moments
from dlatent.solvers.solution import Iteration

INITIAL_MEAN = "initial mean"
"""The name of the pass that is not counted as one."""
LINES = tuple(field.name for field in fields(Iteration) if field.name != "iteration")
PASSES = tuple(field.name for field in fields(PassRecord))
Kind = Literal["convergence", "floor", "precision", "data", "misfit"]


@dataclass(frozen=True, eq=False)
class Notice:
    """What a user should know of a fit that went on all the same."""

    kind: Kind
    text: str

    @classmethod
    def of(cls, advice: str) -> Notice:
        """A notice of a solver, whose text begins with its kind."""
        kind, _, text = advice.partition(": ")
        return cls(kind, text)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Report:
    """How a fit went; `log_likelihood` is None of what has no likelihood."""

    log_likelihood: float | None = fact()
    checked_log_likelihood: float | None = fact()
    converged: bool = fact()
    iterations: int = fact()
    samples: int = fact()
    plan: dict[str, str | int] = fact()
    notices: tuple[tuple[str, str], ...] = fact()
    history: tuple[Iteration, ...] = table(Iteration, "iteration")
    passes: tuple[PassRecord, ...] = table(PassRecord, "pass")


@dataclass(frozen=True, eq=False)
class FittedModel(ABC):
    """What a fit has found; each family of models has its own."""

    @abstractmethod
    def summary(self, samples: int) -> Facts:
        """What was found from so many samples, as JSON values; lists of facts are tables."""

    @abstractmethod
    def words(self, samples: int, lines: dict[str, str]) -> dict[str, str]:
        """The lines that people read, of which those of every model are given."""

    def attributes(self, report: Report, passes: int) -> dict[str, Any]:
        """What `result_` says of the fit."""
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


def summary(kind: str, parameters: dict[str, Any], fit: Fit) -> Facts:
    """A model of some kind with these hyperparameters, as JSON values; lists of facts are tables."""
    report, about = fit.report, fit.model.summary(fit.report.samples)
    seconds = float(sum(record.seconds for record in report.passes))
    if report.log_likelihood is None:
        ended = {"converged": report.converged, "passes": passes_of(fit), "seconds": seconds}
        return {"kind": kind, "parameters": parameters, "samples": report.samples, **ended, **about}
    course: Facts = {
        "log_likelihood": report.log_likelihood,
        "converged": report.converged,
        "iterations": report.iterations,
        "solver": report.plan["solver"],
        "passes": passes_of(fit),
        "bytes_read": sum(record.bytes_read for record in report.passes),
        "seconds": seconds,
    }
    features = about.pop("features")
    warnings = {"warnings": [text for _, text in report.notices]}
    return {"kind": kind, "parameters": parameters, "samples": report.samples, "features": features} | (
        course | about | warnings
    )


def words(facts: Facts, fit: Fit) -> dict[str, str]:
    """The summary, but for the tables, in words by name."""
    lines = {"converged": "yes" if facts["converged"] else "NO"}
    if fit.report.log_likelihood is not None:
        reading = f"{facts['bytes_read'] / 1e6:,.1f} MB read, {facts['seconds']:.1f} s"
        lines = {
            "data": f"{facts['samples']:,} samples × {facts['features']:,} features",
            "log-likelihood": f"{facts['log_likelihood']:.10g} nats",
            **lines,
            "passes": f"{facts['passes']} over the data by {facts['solver']}, {reading}",
        }
    return fit.model.words(facts["samples"], lines)


def history_dataset(history: tuple[Iteration, ...], passes: tuple[PassRecord, ...]) -> xr.Dataset:
    """Iterations and passes of a fit as a Dataset with the dimensions `iteration` and `pass`."""
    columns: dict[str, Any] = {
        f"iteration_{name}": ("iteration", np.array([getattr(line, name) for line in history])) for name in LINES
    }
    for name in PASSES:
        columns[f"pass_{name}"] = ("pass", np.array([getattr(record, name) for record in passes]))
    return xr.Dataset(columns)
