"""EM over the data: a pass for each iteration.

As textbooks have it, the reference; or extrapolated, for views with too many features for their Gram matrices whose
features have noise variances of their own, which no subspace can stand for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.expectation import ExpectationRequest, Latent, block_expectation
from dlatent.gaussian.maximisation import maximise
from dlatent.gaussian.moments import MomentRequest, Moments, counts_alone
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.products import FeatureSums, block_feature_sums
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement
from dlatent.passes import Pass, Run
from dlatent.solvers.acceleration import accelerate
from dlatent.solvers.diagnostics import make_solution, noise_floors, require_variation
from dlatent.solvers.solution import History, Options, Report, Solution
from dlatent.solvers.textbook import em_start, textbook_em

START_NOISE = 0.5
"""Part of the variance of a feature that an extrapolated fit leaves to the noise at its start."""
CALM = 2
"""Iterations in a row whose gain must be below the tolerance before an extrapolated fit ends."""


@dataclass(frozen=True)
class EMPasses:
    """What EM over the data needs: a pass, the model with its floors, the shift, mean variances and means (about the
    shift) of the noise groups, the counts, and the history."""

    run: Run
    specification: Specification
    shift: Array
    options: Options
    arrangement: Arrangement | None
    variances: Array
    offset: Array
    counts: Moments
    history: History

    def expect(self, parameters: Parameters) -> tuple[tuple[Latent, ...], float]:
        """One pass: the statistics at these parameters, and their log-likelihood."""
        request = ExpectationRequest(parameters, self.specification, self.shift, self.arrangement)
        latent: tuple[Latent, ...] = self.run(Pass(block_expectation, request, name="expectation"))
        return latent, sum(part.log_likelihood for part in latent)

    def concluded(self, parameters: Parameters, *, converged: bool) -> Solution:
        """The solution at parameters about the shift."""
        final, options = parameters.moved(self.shift), self.options
        return make_solution(
            final, self.specification, self.history, options, self.variances, self.counts, converged=converged
        )


def begin(
    run: Run,
    specification: Specification,
    shift: Array,
    options: Options,
    arrangement: Arrangement | None,
    report: Report | None,
) -> EMPasses:
    """A pass for means and variances."""
    request = MomentRequest(shift, specification.patterns, options.refuse_zero_rows, arrangement)
    sums: tuple[FeatureSums, ...] = run(Pass(block_feature_sums, request, name="sums"))
    width = sum(specification.sizes)
    counts, total, energy = np.zeros(width), np.zeros(width), np.zeros(width)
    for pattern, part in zip(specification.patterns, sums, strict=True):
        at = specification.features_of(pattern)
        counts[at] += part.samples
        total[at] += part.total
        energy[at] += part.energy
    offset = total / counts
    energy -= counts * offset**2
    starts = [at.start for at in specification.group_slices]
    variances = np.add.reduceat(energy, starts) / np.add.reduceat(counts, starts)
    require_variation(variances, specification)
    floored = specification.with_floors(noise_floors(specification, variances, shift + offset, options))
    known = counts_alone((part.samples for part in sums), len(specification.views))
    return EMPasses(run, floored, shift, options, arrangement, variances, offset, known, History(report))


def em_on_data(em: EMPasses) -> Solution:
    """Plain EM (SPPCA, Algorithms 1 and 2) with one pass over the data per iteration: the reference, not the fast
    way."""

    def step(parameters: Parameters) -> tuple[Parameters, float]:
        latent, value = em.expect(parameters)
        return maximise(latent, em.specification, expand=False), value

    start = em_start(em.specification, em.variances, em.options)._replace(mean=em.offset)
    last, _, converged = textbook_em(step, start, em.options, em.history)
    return em.concluded(last, converged=converged)


def accelerated_em(em: EMPasses) -> Solution:
    """PX-EM with Anderson acceleration, in units in which each feature has variance 1; the likelihood never falls."""
    # Constant features, where they are kept, have the unit of their floor.
    spread = np.maximum(em.variances, em.specification.floors)
    unit = np.sqrt(em.specification.per_feature(spread))
    first = [at.start for at in em.specification.group_slices]
    calm = 0

    def restored(point: Parameters) -> Parameters:
        return point.rescaled(unit, unit[first])

    def scaled(point: Parameters) -> Parameters:
        return Parameters(point.loadings / unit[:, None], point.mean / unit, point.noise_variance / unit[first] ** 2)

    def step(point: Parameters) -> tuple[Parameters, float]:
        latent, value = em.expect(restored(point))
        return scaled(maximise(latent, em.specification)), value

    def steer(point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters | None:
        nonlocal calm
        em.history.add(value)
        calm = calm + 1 if em.history.settled(em.options.tolerance) else 0
        return None if calm >= CALM else candidate

    def admissible(point: Parameters) -> Parameters:
        return point.at_least(em.specification.floors / unit[first] ** 2)

    start = em_start(em.specification, em.variances, em.options)
    start = start._replace(mean=em.offset, noise_variance=START_NOISE * spread)
    most = em.options.max_iterations
    end = accelerate(step, scaled(start), tolerance=0.0, max_evaluations=most, project=admissible, steer=steer)
    em.history.end(end.value)
    return em.concluded(restored(end.point), converged=end.converged)
