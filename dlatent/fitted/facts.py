"""Facts of fitted models that several families tell: noise variances, components and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array

TOP = 6
"""Features named for each component: those with the largest loadings."""
Facts = dict[str, Any]
Labels = Sequence[Any] | npt.NDArray[Any]


def noise_fact(name: str, noise: Array, at_floor: Any, samples: int, *, shared: bool) -> Facts:
    """The noise variances of one view, or of one component of a mixture: one number, or those of its features."""
    if shared:
        return {"view": name, "variance": float(noise[0]), "at_floor": bool(at_floor[0]), "samples": samples}
    low = int(at_floor.sum())
    return {"view": f"{name} (mean)", "variance": float(noise.mean()), "at_floor": low, "samples": samples}


def component_facts(loadings: Array, names: Labels, total: float) -> list[Facts]:
    """For each component its variance over the features, the share of their `total` variance, and its largest loadings;
    no names (or none of them) for features that are never written down."""
    lines = []
    for number, column in enumerate(loadings.T):
        variance = float(column @ column)
        order = np.argsort(-np.abs(column), kind="stable")[:TOP].tolist() if len(names) else []
        largest = [{"feature": names[at], "loading": float(column[at])} for at in order]
        lines.append({"component": number, "variance": variance, "share": variance / total, "largest": largest})
    return lines


def shortened(values: Labels, most: int = 8) -> str:
    """Values with commas between, the first of many."""
    shown = ", ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown}, …"
