"""What no graph between instances may be, refused with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError


def check_square(shape: tuple[int, ...], dtype: np.dtype[Any], place: str) -> None:
    """Refuse a matrix that has not one row and one column for each instance, or holds no real numbers."""
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise DataError(f"{place} has shape {tuple(shape)}; links are a matrix of instances × instances, N × N")
    if dtype.kind not in "biuf":
        raise DataError(f"{place} has dtype {dtype}; weights of links are real numbers, convert it with astype(float)")


def check_instances(found: int, instances: int | None, place: str) -> None:
    """Refuse a graph of another number of instances than the data have."""
    if instances is not None and found != instances:
        raise DataError(
            f"{place} is a graph of {found:,} instances, but the data have {instances:,}; take the rows and columns of "
            "those in the data, in their order (A[rows][:, rows]), or give a list of links with labels of instances"
        )


def check_weights(weights: npt.NDArray[Any], place: str, name: Callable[[int], str]) -> None:
    """Refuse weights that are negative or not finite; `name` says which link entry `i` is."""
    wrong = ~((weights >= 0) & (weights < np.inf))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"{place}: {name(at)} has weight {weights[at].item()!r}; weights are finite and not negative "
            f"({int(wrong.sum()):,} are not)"
        )
