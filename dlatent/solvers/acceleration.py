"""Anderson acceleration of a fixed-point map with a likelihood safeguard.

An EM map F is applied to the parameters as one vector v = (W, μ, log ψ); the next point is the combination of the last
few images whose residuals F(v) − v cancel best.  A point whose likelihood falls below that of the last accepted one is
given up for the plain image of the latter, which EM guarantees not to be worse, and the memory is cleared.
Source: Walker and Ni (2011); the safeguard and the ridge as measured in the project's notes on numerics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from dlatent.arrays import Array

DIVERGED = 1e3
"""A residual so many times the smallest one leads away."""
DEPENDENT = 1e-14
"""Eigenvalues of inner products of unit vectors below this part of the largest are rounding."""


class Point(Protocol):
    """Parameters that can be written as one vector and back."""

    def flatten(self) -> Array:
        """The coordinates as one vector."""
        ...

    def unflatten(self, vector: Array) -> Self:
        """The point with these coordinates."""
        ...


T = TypeVar("T", bound=Point)


@dataclass(frozen=True)
class Accelerated(Generic[T]):
    """The best point found, its log-likelihood, the maps applied and whether the tolerance was met."""

    point: T
    value: float
    evaluations: int
    converged: bool


def _mixture(points: list[Array], images: list[Array], ridge: float) -> Array:
    """Anderson's combination of the stored images (type II, differences, Tikhonov)."""
    residuals = [image - point for point, image in zip(points, images, strict=True)]
    changes = np.stack([b - a for a, b in pairwise(residuals)], axis=1)
    moves = np.stack([b - a for a, b in pairwise(images)], axis=1)
    normal = changes.T @ changes
    normal[np.diag_indices_from(normal)] += ridge * max(float(np.trace(normal)), np.finfo(float).tiny)
    weights = np.linalg.lstsq(normal, changes.T @ residuals[-1], rcond=None)[0]
    return np.asarray(images[-1] - moves @ weights)


def accelerate(
    step: Callable[[T], tuple[T, float]],
    start: T,
    *,
    tolerance: float,
    max_evaluations: int,
    window: int = 8,
    ridge: float = 1e-12,
    patience: int = 3,
    project: Callable[[T], T] = lambda point: point,
    steer: Callable[[T, T, T, float], T | None] = lambda point, candidate, image, value: candidate,
) -> Accelerated[T]:
    """Iterate `step` (point → image, value of the point) to convergence of the value.

    Stops when the value changed by less than `tolerance` · max(1, |value|) in `patience` consecutive steps.
    `steer` gets each accepted point, the extrapolation, the point's image and its value, and says where to go next, or
    None to stop.
    `project` puts an extrapolated point back among the admissible ones (noise floors).
    """
    point, value, image = start, -np.inf, start
    points: list[Array] = []
    images: list[Array] = []
    candidate, calm = start, 0
    for evaluation in range(1, max_evaluations + 1):
        next_image, next_value = step(candidate)
        if not next_value >= value - 1e-13 * abs(value) and points:
            points, images = [], []
            candidate = image
            # The plain image of the last good point cannot be worse; if rounding says it is, nothing is left to gain.
            if evaluation == max_evaluations:
                break
            next_image, next_value = step(candidate)
        small = abs(next_value - value) <= tolerance * max(1.0, abs(value))
        calm = calm + 1 if small else 0
        point, value, image = candidate, next_value, next_image
        if calm >= patience:
            return Accelerated(point, value, evaluation, True)
        points.append(point.flatten())
        images.append(image.flatten())
        points, images = points[-window:], images[-window:]
        if len(points) > 1:
            mixed = _mixture(points, images, ridge)
            candidate = project(image.unflatten(mixed)) if np.isfinite(mixed).all() else image
        else:
            candidate = image
        chosen = steer(point, candidate, image, value)
        if chosen is None:
            return Accelerated(point, value, evaluation, True)
        candidate = chosen
    return Accelerated(point, value, max_evaluations, False)


def settle(
    step: Callable[[T], tuple[T, float]],
    start: T,
    *,
    tolerance: float,
    max_evaluations: int,
    window: int = 16,
    project: Callable[[T], T] = lambda point: point,
) -> T:
    """Iterate a converged map until the point itself stands still: its value is flat to rounding long before.

    Anderson's combinations by least squares, without a safeguard; the point with the smallest residual is returned, and
    the start where none is smaller.  Stops when the residual is below `tolerance` · ‖point‖, and where `window` steps
    have not halved it: what is left is rounding.
    """
    point, best, least, halved, at_half = start, start, np.inf, 0, np.inf
    points: list[Array] = []
    residuals: list[Array] = []
    for number in range(max_evaluations):
        vector = point.flatten()
        residual = step(point)[0].flatten() - vector
        size = float(np.linalg.norm(residual))
        if not np.isfinite(size) or size > DIVERGED * least:
            break
        if size < least:
            best, least = point, size
        if size <= 0.5 * at_half:
            halved, at_half = number, size
        if size <= tolerance * float(np.linalg.norm(vector)) or number - halved >= window:
            break
        points, residuals = [*points, vector][-window:], [*residuals, residual][-window:]
        image = vector + residual
        if len(points) > 1:
            changes = np.stack([b - a for a, b in pairwise(residuals)])
            moves = np.stack([b - a for a, b in pairwise(points)]) + changes
            # Of unit length they may be squared: a tall decomposition would cost more than the step.
            scale = 1.0 / np.maximum(np.linalg.norm(changes, axis=1), np.finfo(float).tiny)
            changes *= scale[:, None]
            weights = np.linalg.lstsq(changes @ changes.T, changes @ residual, rcond=DEPENDENT)[0]
            image = image - (weights * scale) @ moves
        point = project(point.unflatten(image))
    return best
