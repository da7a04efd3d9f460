"""The prior on the loadings of PPCA of complete data: what it makes of the maximum of the likelihood, with no pass."""

from __future__ import annotations

from dataclasses import replace

from dlatent.fitting.diagnostics import at_floors
from dlatent.fitting.outcome import Iteration, Outcome
from dlatent.linear_gaussian.shrinkage import shrunk


def with_evidence(outcome: Outcome, samples: float, variance: float | None) -> Outcome:
    """The best bound with a prior, from the eigenvalues and the total variance that the maximum of the likelihood has;
    `samples` is the sum of their weights, and the variance of the loadings is given or, None, by evidence."""
    view = outcome.specification.views[0]
    total = outcome.total_variance[0] * view.size
    parameters, bound = shrunk(outcome.parameters, samples, total, float(outcome.specification.floors[0]), variance)
    low, last = at_floors(parameters, outcome.specification), outcome.history[-1]
    return replace(
        outcome,
        parameters=parameters,
        log_likelihood=bound,
        history=(Iteration(1, bound, float("nan"), last.remaining, last.rank),),
        iterations=1,
        at_floor=low,
        advice=tuple(text for text in outcome.advice if any(low) or not text.startswith("floor: ")),
        checked_log_likelihood=None,
    )
