"""The course of a fit, iteration by iteration and pass by pass, as a Dataset and as variables."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import xarray as xr

from dlatent.engine.records import PassRecord
from dlatent.fitting.outcome import Iteration

LINES = tuple(field.name for field in fields(Iteration) if field.name != "iteration")
PASSES = tuple(field.name for field in fields(PassRecord))


def history_dataset(history: tuple[Iteration, ...], passes: tuple[PassRecord, ...]) -> xr.Dataset:
    """Iterations and passes of a fit as a Dataset with the dimensions `iteration` and `pass`."""
    found: dict[str, Any] = {
        f"iteration_{name}": ("iteration", np.array([getattr(line, name) for line in history])) for name in LINES
    }
    for name in PASSES:
        found[f"pass_{name}"] = ("pass", np.array([getattr(record, name) for record in passes]))
    return xr.Dataset(found)


def history_variables(history: xr.Dataset) -> dict[str, Any]:
    """The variables of a Dataset that `history_dataset` made; of iterations only where there were some."""
    names = [f"iteration_{name}" for name in LINES] if history.sizes["iteration"] else []
    return {name: history[name].values for name in (*names, *(f"pass_{name}" for name in PASSES))}


def restored_history(values: dict[str, Any]) -> tuple[Iteration, ...]:
    """The iterations, from their variables."""
    lines = zip(*(values[f"iteration_{name}"].tolist() for name in LINES), strict=True)
    return tuple(Iteration(number, *line) for number, line in enumerate(lines, 1))


def restored_passes(values: dict[str, Any]) -> tuple[PassRecord, ...]:
    """The passes, from their variables."""
    return tuple(PassRecord(*row) for row in zip(*(values[f"pass_{name}"].tolist() for name in PASSES), strict=True))
