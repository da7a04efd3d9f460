"""What a fit tells its user beside the parameters."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.solvers.diagnostics import advise
from dlatent.solvers.solver import Iteration
from tests.tasks import loop_task

HISTORY = (Iteration(1, -10.0, float("nan"), 0.0, 2),)
ALONE = ((0,), (1,), (0, 1))


def said(patterns: tuple[tuple[int, ...], ...], scale: float, *, shared: bool = True) -> tuple[str, ...]:
    """Advice for a model whose second view has `scale` times the loadings that explain its data."""
    views = (View("image", 4, 1e-6), View("sound", 3, 1e-6 if shared else (1e-6,) * 3, shared))
    specification = Specification(views, patterns, 2)
    loadings, noise = np.array([[1.0, (-1.0) ** row] for row in range(7)]), np.full(2 if shared else 4, 0.5)
    variances = np.full_like(noise, 2.5)
    exaggerated = Parameters(loadings * np.repeat([1.0, scale], [4, 3])[:, None], np.zeros(7), noise)
    floors = (False,) * len(noise)
    task = loop_task(specification, floor_parts=(1e-6, 1e-6))
    return advise(exaggerated, specification, HISTORY, task, variances, floors, converged=True)


@pytest.mark.parametrize("shared", [True, False])
def test_a_view_with_too_much_variance_is_named(shared: bool) -> None:
    assert said(ALONE, 1.0, shared=shared) == ()
    (text,) = said(ALONE, 2.0, shared=shared)
    assert text.startswith("misfit: the model gives the sound 3.4 times the variance")  # (2 · 4 + 0.5) / 2.5


def test_views_that_nobody_has_alone_cannot_be_judged() -> None:
    assert said(((0,), (0, 1)), 2.0) == ()
    assert said(((0, 1),), 2.0) == ()
