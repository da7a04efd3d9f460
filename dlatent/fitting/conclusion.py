"""The end of a fit: the outcome in canonical form, with advice."""

from __future__ import annotations

from collections.abc import Sequence

from dlatent.arrays import Array
from dlatent.fitting.diagnostics import advise, at_floors, lost_nats
from dlatent.fitting.outcome import Iteration, Options, Outcome
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.moments import Moments, view_counts
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification

CHECK = 1e-7
"""Relative difference of two evaluations of the likelihood that rounding cannot explain."""


def make_outcome(
    parameters: Parameters,
    specification: Specification,
    history: Sequence[Iteration],
    options: Options,
    variances: Array,
    counts: Moments,
    *,
    converged: bool,
    checked: float | None = None,
) -> Outcome:
    """The outcome of a fit, in canonical form, with advice."""
    at_floor = at_floors(parameters, specification)
    value = history[-1].log_likelihood
    seen = view_counts(counts, specification.patterns, len(specification.views))
    advice = advise(parameters, specification, history, options, variances, at_floor, converged=converged)
    samples = tuple(int(n) for n in seen)
    total = tuple(float(variances[at].mean()) for at in specification.noise_slices)
    lost = lost_nats(specification, parameters.noise_variance, samples, total)
    if checked is not None and abs(checked - value) > CHECK * max(abs(value), 1.0) + lost:
        advice += (
            f"precision: the likelihood evaluated on the data is {checked:.10g}, inside the subspace {value:.10g}; "
            "store the data as float64 or scale its features",
        )
    return Outcome(
        canonical(parameters, specification),
        specification,
        value,
        tuple(history),
        converged,
        len(history),
        at_floor,
        int(sum(m.samples for m in counts.patterns)),
        samples,
        total,
        advice,
        checked,
    )
