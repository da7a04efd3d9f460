"""Ways up a likelihood: Anderson acceleration of EM with a safeguard, and quasi-Newton steps where EM creeps.

An EM map F is applied to the parameters as one vector v = (W, μ, log ψ); the next point is the combination of the last
few images whose residuals F(v) − v cancel best.  A point whose likelihood falls below that of the last accepted one is
given up for the plain image of the latter, which EM guarantees not to be worse, and the memory is cleared.
Source: Walker and Ni (2011); the safeguard and the ridge as measured in the project's notes on numerics.

EM takes z for known where a view has hardly any noise, and then moves by a part σ² of what it should: where K reaches
a view's features it needs thousands of steps for what the gradient sees at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.gaussian.maximisation import likelihood
from dlatent.gaussian.moments import Moments, view_counts
from dlatent.gaussian.specification import Maximum, Parameters, Specification

DIVERGED = 1e3
"""A residual so many times the smallest one leads away."""
DEPENDENT = 1e-14
"""Eigenvalues of inner products of unit vectors below this part of the largest are rounding."""


class Point(Protocol):
    """Parameters that can be written as one vector and back."""

    def flatten(self) -> Array:
        """The coordinates as one vector."""

    def unflatten(self, vector: Array) -> Self:
        """The point with these coordinates."""


T = TypeVar("T", bound=Point)


@dataclass(frozen=True)
class Climb(Generic[T]):
    """Where a climb ended, the log-likelihood there, the evaluations, and whether that is a maximum up to the
    tolerance."""

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
    halvings: int = 0,
    project: Callable[[T], T] = lambda point: point,
    steer: Callable[[T, T, T, float], T | None] = lambda point, candidate, image, value: candidate,
    memory: tuple[list[Array], list[Array]] | None = None,
) -> Climb[T]:
    """Iterate `step` (point → image, value of the point) to convergence of the value.

    Stops when the value changed by less than `tolerance` · max(1, |value|) in `patience` consecutive steps.
    `steer` gets each accepted point, the extrapolation, the point's image and its value, and says where to go next, or
    None to stop.
    `halvings` are how often the way to an image may be halved, where `step` does not promise that images are better.
    `project` puts an extrapolated point back among the admissible ones (noise floors).
    `memory` are points before the start and their images, and in the end the last ones.
    """
    point, value, image = start, -np.inf, start
    points, images = ([], []) if memory is None else memory
    candidate, calm = start, 0
    for evaluation in range(1, max_evaluations + 1):
        next_image, next_value = step(candidate)
        if not next_value >= value - 1e-13 * abs(value) and points:
            points.clear()
            images.clear()
            candidate = image
            # The plain image of the last good point cannot be worse; if rounding says it is, nothing is left to gain.
            if evaluation == max_evaluations:
                break
            next_image, next_value = step(candidate)
            for _ in range(halvings):
                if next_value >= value:
                    break
                candidate = candidate.unflatten(0.5 * (candidate.flatten() + point.flatten()))
                next_image, next_value = step(candidate)
            if halvings and next_value < value:
                return Climb(point, value, evaluation, False)
        small = abs(next_value - value) <= tolerance * max(1.0, abs(value))
        calm = calm + 1 if small else 0
        point, value, image = candidate, next_value, next_image
        if calm >= patience:
            return Climb(point, value, evaluation, True)
        points.append(point.flatten())
        images.append(image.flatten())
        del points[:-window], images[:-window]
        if len(points) > 1:
            mixed = _mixture(points, images, ridge)
            candidate = project(image.unflatten(mixed)) if np.isfinite(mixed).all() else image
        else:
            candidate = image
        chosen = steer(point, candidate, image, value)
        if chosen is None:
            return Climb(point, value, evaluation, True)
        candidate = chosen
    return Climb(point, value, max_evaluations, False)


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


GRADIENT = 1e-10
"""Largest derivative of the log-likelihood per sample at which the search ends, loadings in units of the spread."""
SMALL_GRADIENT = 1e-4
"""Largest derivative where rounding ends the search."""
ASKED = 5
"""Steps from one to the next at which a search is asked whether to leave."""
LEAST_ROOT = 1e-8
"""Part of what components explain of a feature that its noise counts as at least where coordinates are chosen."""
REFUSED = 1e300
"""Minus the likelihood where it cannot be computed: the line search turns back."""


def _roots(start: Parameters, moments: Moments, specification: Specification) -> list[Array]:
    """Roots of the covariance of each view given the others, larger where fewer samples have it: multiples of these
    change the likelihood about as much in all directions."""
    counts = view_counts(moments, specification.patterns, len(specification.views))
    noise = specification.per_feature(start.noise_variance)[:, None]
    known = [start.loadings[at].T @ (start.loadings[at] / noise[at]) for at in specification.slices]
    roots = []
    for view, at in enumerate(specification.slices):
        own, precision = start.loadings[at], np.eye(start.loadings.shape[1]) + sum(known) - known[view]
        covariance = own @ np.linalg.solve(precision, own.T) + np.diag(noise[at, 0] + LEAST_ROOT * (own**2).sum(axis=1))
        roots.append(np.asarray(np.linalg.cholesky(covariance) * np.sqrt(counts.max() / counts[view])))
    return roots


def ascend(
    start: Parameters,
    moments: Moments,
    specification: Specification,
    *,
    tolerance: float,
    max_steps: int,
    leave: Callable[[Maximum], bool] = lambda seen: False,
) -> Climb[Parameters]:
    """The maximum near a point by L-BFGS, noise variances at or above their floors; `tolerance` is the relative gain of
    a step that ends the search, which also ends where `leave` says so.  Moments must be about the means."""
    groups, count = len(start.noise_variance), float(sum(part.samples for part in moments.patterns))
    roots, asked = _roots(start, moments, specification), cycle([False] * (ASKED - 1) + [True])
    transposed, inverse = [root.T for root in roots], [np.asarray(np.linalg.inv(root), dtype=float) for root in roots]

    def times(vector: Array, turns: list[Array]) -> Array:
        """The loadings and mean of each view turned, noises as they are."""
        point, parts = start.unflatten(vector), list(zip(turns, specification.slices, strict=True))
        loadings = [(turn @ point.loadings[at]).ravel() for turn, at in parts]
        return np.concatenate([*loadings, *(turn @ point.mean[at] for turn, at in parts), vector[-groups:]])

    def objective(vector: Array) -> tuple[float, Array]:
        """Minus the log-likelihood per sample, and its gradient."""
        try:
            value, rise = likelihood(start.unflatten(times(vector, roots)), moments, specification)
        except ValueError:  # LAPACK refuses
            value, rise = np.nan, np.zeros_like(vector)
        if not (np.isfinite(value) and np.isfinite(rise).all()):
            return REFUSED, np.zeros_like(vector)
        return -float(value) / count, -times(rise, transposed) / count

    def watch(intermediate_result: opt.OptimizeResult) -> None:
        seen, value = intermediate_result.x, -float(intermediate_result.fun) * count
        if next(asked) and leave(Maximum(start.unflatten(times(seen, roots)), value)):
            raise StopIteration

    low = np.full(len(start.flatten()), -np.inf)
    low[-groups:] = np.log(np.maximum(specification.floors, np.finfo(float).tiny))
    with np.errstate(all="ignore"):
        best = opt.minimize(
            objective,
            np.maximum(times(start.flatten(), inverse), low),
            jac=True,
            method="L-BFGS-B",
            bounds=opt.Bounds(low, np.inf),
            callback=watch,
            options={
                "ftol": tolerance / 10.0,
                "gtol": GRADIENT,
                "maxiter": max_steps,
                "maxfun": 2 * max_steps,
            },
        )
    uphill = np.where(best.x > low, np.abs(best.jac), np.maximum(-best.jac, 0.0))
    end = start.unflatten(times(best.x, roots)).at_least(specification.floors)
    converged = bool(best.status == 0 or uphill.max() <= SMALL_GRADIENT)
    return Climb(end, -float(best.fun) * count, best.nfev, converged)
