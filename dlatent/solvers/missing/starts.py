"""Where a fit with missing entries begins: the units in which it works, and the first parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array, Block
from dlatent.errors import DataError
from dlatent.gaussian.factor_analysis import factors
from dlatent.gaussian.missing_entries.entries import (
    EntrySums,
    PairSums,
    SketchRequest,
    block_entry_sums,
    block_pairs,
    block_sketch,
)
from dlatent.gaussian.missing_entries.patterns import MaskMoments, pairs_of_patterns
from dlatent.gaussian.missing_entries.prior import mean_prior, means_of
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.spectral import complete
from dlatent.operators.symmetric import top_eigenvalues
from dlatent.passes import Pass, Run
from dlatent.solvers.diagnostics import noise_floors
from dlatent.solvers.task import Task

AHEAD, PART = 2**19, 8
"""Entries of the rows over which a start takes its first steps, in the driver, and one row of how many these are at
most.  Fewer rows than features would lead elsewhere."""
AHEAD_STEPS, AHEAD_TOLERANCE = 8, 1e-5
"""Such steps at most, and their tolerance."""
PAIRWISE = 256
"""Features up to which a pass for the second moments of all pairs costs about what it saves."""
LEAST_SHARED, LEAST_EACH = 1e-7, 1e-6
"""Fractions of the variance below which noise that features share, and that of one feature, cost the likelihood too
many digits, where all rows observe so few entries that the components explain them wholly."""
SMALLEST_VARIANCE, START_FLOOR = 1e-3, 0.02
"""Up to where eigenvalues of second moments of pairs, and noise variances of a start, are raised, in units of a
feature's variance."""
MORE_DIRECTIONS = 30
"""Directions of the first sketch beyond the components: they cost little, and save as many passes as they are."""
SKETCHES, STEADY = 6, 0.01
"""Passes for the sketch at most, and the relative gain of the variance that it has captured below which another would
bring a start little."""
SMALLEST_NOISE = 0.1
"""Part of a feature's variance that a start leaves to the noise at least."""
MOSTLY = 0.5
"""Part of the entries that must be observed for what pairs of features share to be divided by how often both are."""
FACTORINGS = 30
SETTLED = 1e-3
"""Relative change of the noise variances at which a start is good enough."""


class Units(NamedTuple):
    """u = (x − shift)/scale (D,): every feature with mean 0, every noise group with mean variance 1; counts (D,) of the
    observed entries, their variances (D,) of u, and mean variances (groups,) in the units of the data."""

    shift: Array
    scale: Array
    counts: Array
    spread: Array
    variances: Array

    def in_data_units(self, parameters: Parameters, specification: Specification) -> Parameters:
        """Parameters in the units of the data; a feature that was never observed has zero loadings, and the mean of its
        prior, or NaN where there is none; where it has a noise variance of its own, that of a feature of mean
        variance."""
        seen, first, offset = self.counts > 0.5, specification.group_starts, self.offset(specification)
        if parameters.mean_variance is None or offset is None:
            mean = np.where(seen, parameters.mean, np.nan)
        else:
            mean = np.where(seen, parameters.mean, mean_prior(means_of(parameters, offset, seen)).centre - offset)
        noise = parameters.noise_variance * self.scale[first] ** 2
        noise = np.where(specification.per_group(self.counts) > 0.5, noise, self.variances)
        scaled = parameters.rescaled(self.scale, self.scale[first])
        scaled = scaled._replace(mean=self.shift + self.scale * mean, noise_variance=noise)
        # A row's level is in all of its entries, where their mean is known.
        free = scaled.loadings.shape[1] - int(specification.row_effects)
        scaled.loadings[~seen, :free] = 0.0
        scaled.loadings[np.isnan(mean)] = 0.0
        return scaled

    def taken(self, parameters: Parameters, specification: Specification) -> Parameters:
        """Parameters in these units, from those in the units of the data; of features of which the mean is not known
        the mean is 0."""
        mean = np.nan_to_num((parameters.mean - self.shift) / self.scale)
        first = specification.group_starts
        noise = np.maximum(parameters.noise_variance / self.scale[first] ** 2, specification.floors)
        scaled = parameters.rescaled(1.0 / self.scale, 1.0 / self.scale[first])
        return scaled._replace(mean=mean, noise_variance=noise)

    def offset(self, specification: Specification) -> Array | None:
        """Where the features are in the units of u without their means, about the mean of all; None where units differ
        between features."""
        if len(specification.group_sizes) > 1:
            return None
        return np.asarray((self.shift - self.shift[self.counts > 0.5].mean()) / self.scale)

    @property
    def jacobian(self) -> float:
        """Log-likelihood of the data less that of u."""
        return -float(self.counts @ np.log(self.scale))


class EntryData(NamedTuple):
    """Rows with missing entries: what runs passes over them, the units, what the first pass found, and where masks are
    few the moments of each."""

    run: Run
    units: Units
    sums: EntrySums
    patterns: MaskMoments | None

    def of_rows(self, rows: Array) -> EntryData:
        """The same of some rows u (n, D), NaN where missing, in the driver."""
        zero, one = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        sums = block_entry_sums(Block(0, 0, rows), zero)
        units = self.units._replace(shift=zero, scale=one, counts=sums.counts)
        return EntryData(in_driver(rows), units, sums, None)


def in_driver(rows: Array) -> Run:
    """Run passes over some rows, in the driver."""
    block = Block(0, 0, rows)
    return lambda pass_: pass_.map(block, pass_.parameters)


def units_of(sums: EntrySums, task: Task, shift: Array) -> tuple[Units, Array]:
    """The units of the fit, and the noise floors in them."""
    specification = task.specification
    if not sums.counts.any():
        raise DataError("no entry is observed: all are missing")
    counts = np.maximum(sums.counts, 1.0)
    offset = sums.total / counts
    energies = np.maximum(sums.energy - counts * offset**2, 0.0)
    cells = specification.per_group(sums.counts)
    variances = specification.per_group(energies) / np.maximum(cells, 1.0)
    variances[cells < 0.5] = variances[cells > 0.5].mean()
    floors = noise_floors(task, variances, shift + offset)
    usual = np.where(variances > 0.0, variances, variances.mean())
    scale = np.sqrt(specification.per_feature(usual))
    return Units(shift + offset, scale, sums.counts, energies / counts / scale**2, variances), floors / usual


def first_parameters(data: EntryData, specification: Specification, random_state: Any) -> Parameters:
    """A start from second moments of pairs of features, where these are few; else from a sketch of the mean-filled
    data."""
    units, sums, rng = data.units, data.sums, np.random.default_rng(random_state)
    if data.patterns is not None:
        return _pairwise_start(pairs_of_patterns(data.patterns), specification, sums.samples, rng)
    if sums.buckets is not None and len(units.shift) <= PAIRWISE:
        pairs: PairSums = data.run(Pass(block_pairs, (units.shift, units.scale), name="pairs"))
        return _pairwise_start(pairs, specification, sums.samples, rng)
    product, directions = _sketches(data, specification, random_state)
    return _sketched_start(product / sums.samples, directions, specification, data, rng)


def _pairwise_start(pairs: PairSums, specification: Specification, samples: float, rng: Any) -> Parameters:
    """The maximum for complete data with these second moments, each from the rows that observe both features.

    They need not be those of any data: what is less than the most negative eigenvalue tells nothing, and is raised.
    """
    second = pairs.gram / np.maximum(pairs.counts, 1.0)
    values, vectors = la.eigh(second)
    wrong = max(-float(values[0]), 0.0)
    second = (vectors * np.maximum(values, min(wrong, SMALLEST_VARIANCE))) @ vectors.T
    width, views = len(second), len(specification.views)
    moments = Moments(
        (PatternMoments(samples, np.zeros(width), second * samples),),
        np.zeros(width),
        np.zeros(views),
        np.zeros(views),
    )
    # Noise of single features near 0 would hardly leave it.
    above = np.maximum(specification.floors, np.where(specification.shared, min(wrong, START_FLOOR), START_FLOOR))
    complete_model = replace(specification.with_floors(above), patterns=(tuple(range(views)),))
    if views == 1 and not complete_model.views[0].shared:
        parameters = factors(moments, complete_model).solution.parameters
    else:
        parameters = complete(moments, complete_model)[0].parameters
    # Components that are clipped get a direction of their own, so that no symmetry stays unbroken.
    return parameters._replace(loadings=parameters.loadings + 1e-3 * rng.standard_normal(parameters.loadings.shape))


def _sketches(data: EntryData, specification: Specification, random_state: Any) -> tuple[Array, Array]:
    """The mean-filled Gram matrix times some directions, and these, by passes that begin with random ones."""
    width, k, units = sum(specification.sizes), specification.n_components, data.units
    columns = min(width, k + max(MORE_DIRECTIONS, k))
    rng = np.random.default_rng(random_state)
    product, captured = rng.standard_normal((width, columns)), 0.0
    for _ in range(SKETCHES):
        directions: Array = np.asarray(la.qr(product, mode="economic")[0])
        product = data.run(Pass(block_sketch, SketchRequest(directions, units.shift, units.scale), name="sketch"))
        before, captured = captured, float(top_eigenvalues(directions.T @ product, k).sum())
        if captured - before <= STEADY * captured:
            break
    return product, directions


def _sketched_start(
    product: Array, directions: Array, specification: Specification, data: EntryData, rng: Any
) -> Parameters:
    """Loadings and noise from the sketch of the mean-filled data, a little stirred."""
    known = data.units.counts / data.sums.samples
    if known.mean() < MOSTLY:
        loadings = _leading(product, directions, specification.n_components)
        noise = _pooled(np.maximum(1.0 - (loadings**2).sum(axis=1), SMALLEST_NOISE), specification)
    else:
        loadings, noise = _factored(product, directions, known, data.units.spread, specification)
    # Components that the sketch does not see get a direction of their own, so that no symmetry stays unbroken.
    loadings += 1e-3 * rng.standard_normal(loadings.shape)
    return Parameters(loadings, np.zeros(len(loadings)), np.maximum(noise, specification.floors))


def _factored(
    product: Array, directions: Array, known: Array, spread: Array, specification: Specification
) -> tuple[Array, Array]:
    """Principal factors (D, K) and noise (groups,) from the sketch P = GV (D, b) of the mean-filled Gram matrix.

    Pairs of features share less in mean-filled data, by the parts q (D,) of the rows that observe them: with variances
    v (D,), G ≈ QWWᵀQ + diag(qv − q²(v − ψ)), and the sketch of the first term follows from P for every ψ.  The factors
    are the leading eigenvectors of Ψ^(-1/2)WWᵀΨ^(-1/2), as in maximum likelihood, again and again with the ψ that they
    leave over.
    """
    known = np.maximum(known, np.finfo(float).eps)
    loadings = np.zeros((len(directions), specification.n_components))
    noise = np.full(len(specification.group_sizes), 0.5)
    for _ in range(FACTORINGS):
        each = specification.per_feature(noise)
        shared = product - (known * spread - known**2 * (spread - each))[:, None] * directions
        root = np.sqrt(each)[:, None]
        outer, roots, _ = la.svd(_half(shared, directions) / known[:, None] / root, full_matrices=False)
        k = min(loadings.shape[1], len(roots))
        loadings[:, :k], loadings[:, k:] = root * outer[:, :k] * roots[:k], 0.0
        before, noise = noise, np.maximum(_pooled(spread - (loadings**2).sum(axis=1), specification), START_FLOOR)
        if np.abs(np.log(noise / before)).max() < SETTLED:
            break
    return loadings, noise


def _half(product: Array, directions: Array) -> Array:
    """B (D, ≤ b) with BBᵀ the positive part of a symmetric R, as P = RV (D, b) and orthonormal V show it."""
    core = directions.T @ product
    values, vectors = la.eigh((core + core.T) / 2.0)
    positive = values > len(core) * np.finfo(float).eps * abs(values).max()
    return np.asarray((product @ vectors[:, positive]) / np.sqrt(values[positive]))


def _pooled(values: Array, specification: Specification) -> Array:
    """Means of values of the features (D,) over the noise groups."""
    return np.asarray(specification.per_group(values) / np.array(specification.group_sizes))


def _leading(product: Array, directions: Array, k: int) -> Array:
    """Leading eigenvectors (D, K) of a positive semidefinite G, each as long as the root of its eigenvalue, from P = GV
    (D, b) and orthonormal V: G ≈ P(VᵀP)⁻¹Pᵀ (Nyström)."""
    outer, roots, _ = la.svd(_half(product, directions), full_matrices=False)
    leading = np.zeros((len(outer), k))
    leading[:, : len(roots)] = (outer * roots)[:, :k]
    return leading
