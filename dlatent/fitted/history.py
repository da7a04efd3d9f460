"""The course of a fit, iteration by iteration and pass by pass, as a Dataset."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import xarray as xr

from dlatent.engine.records import PassRecord
from dlatent.solvers.solution import Iteration

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
