"""Scores, densities and predictions of samples that have some of the views, for blocks of joint samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.expectation import posterior_scores
from dlatent.gaussian.likelihood import joint_log_likelihoods, predict_view
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement, Parts, Patterns, observed

PartsFunction = Callable[[Parts, tuple[int, ...], Parameters, Specification], Array]
"""Rows of the views of a pattern (n, D_v), its view numbers, and the model → a result for each row."""


class JointRequest(NamedTuple):
    """A function of rows, the model, the patterns of the samples and how these are arranged."""

    function: PartsFunction
    parameters: Parameters
    specification: Specification
    patterns: Patterns
    arrangement: Arrangement


def joint_scores(parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification) -> Array:
    """E[z | the views of a pattern] (n, K)."""
    return posterior_scores(parts, pattern, parameters, specification)[0]


def joint_densities(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> Array:
    """log p of the views of a pattern (n,), in nats."""
    return joint_log_likelihoods(parts, pattern, parameters, specification)


def joint_predictions(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification, other: int
) -> Array:
    """Mean of another view (n, D_w) given the views of a pattern."""
    z, about = posterior_scores(parts, pattern, parameters, specification)
    return predict_view(z, about, other, parameters, specification).mean


@dataclass(frozen=True)
class OneView:
    """A function of rows of one view, with its number, the function of joint samples, and the model."""

    function: PartsFunction
    view: int
    parameters: Parameters
    specification: Specification

    def __call__(self, x: Features, y: Array | None) -> Array:
        """The results of rows (n, …)."""
        return self.function((x,), (self.view,), self.parameters, self.specification)


def block_results(block: Block, request: JointRequest) -> tuple[Array, ...]:
    """A function of the rows of a block, which have one pattern; joined by concatenation in order."""
    seen = observed(block, request.patterns, request.arrangement)
    return tuple(
        request.function(parts, pattern, request.parameters, request.specification)
        for pattern, parts in zip(request.patterns, seen, strict=True)
        if parts is not None
    )


class MeanRequest(NamedTuple):
    """Patterns and arrangement of joint samples."""

    patterns: Patterns
    arrangement: Arrangement


def block_view_means(block: Block, request: MeanRequest) -> Array:
    """Mean of the rows of a block in the dense views that they have (D,), zero elsewhere, for an initial mean."""
    arrangement = request.arrangement
    found = [np.zeros(size) for size in arrangement.sizes]
    seen = observed(block, request.patterns, arrangement)
    for pattern, parts in zip(request.patterns, seen, strict=True):
        for view, x in zip(pattern, parts or (), strict=False):
            if arrangement.dense[view]:
                found[view] = np.asarray(x.mean(axis=0, dtype=np.float64)).ravel()
    return np.concatenate(found)
