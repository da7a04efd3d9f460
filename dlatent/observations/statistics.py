"""Statistics of rows under an observation model, and the M-step.

The loadings of feature j move by G_j⁻¹(Σ h z̃ − G_j (w_j, 0)), with h = g + p(e − b) and G_j = Σ p E[z̃z̃ᵀ]: regressions,
as of rows with missing entries, in the form of increments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, add
from dlatent.errors import DataError
from dlatent.gaussian.maximisation import expanded
from dlatent.gaussian.missing_entries.entries import Entries, EntrySums, block_entry_sums
from dlatent.gaussian.missing_entries.observed import cleared, ones, sampled
from dlatent.gaussian.missing_entries.row_effects import (
    level_of,
    others,
    with_level,
    with_new_level,
    without_level,
)
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import BadEntry, check_features
from dlatent.observations.model import ObservationModel
from dlatent.observations.posterior import Own
from dlatent.operators.symmetric import triangle, unpacked

RIDGE = 1e-9
"""Part of its trace that keeps a normal matrix from being singular; steps are increments, and end where they would."""
CELLS, SMALLEST = 2**18, 32
"""Numbers of the rows that are worked on at a time, two mebibytes, and how many rows these are at least."""
FARTHEST = 3.0
"""Deviations of a predictor's change that stand for the largest one of all rows."""


class Side(NamedTuple):
    """What stands beside the entries of rows: squared error bars s² (n, D) or 0, offsets of their predictors (n, 1) or
    (n, D), or 0, and covariates (n, C) or None."""

    known: Array | float = 0.0
    offset: Array | float = 0.0
    covariates: Array | None = None

    def centred(self, parameters: Parameters) -> Parameters:
        """The parameters with a mean for each entry, where rows have offsets or covariates."""
        centre: Any = parameters.mean + self.offset
        if self.covariates is not None and parameters.effects is not None:
            centre = centre + self.covariates @ parameters.effects.T
        return parameters._replace(mean=centre)


class Values(NamedTuple):
    """Which values are observed: NaN is missing, unless entries may not be; of sparse rows what is not stored is 0, or
    missing.  `beside` are the names and columns of what stands after the features; covariates are taken as
    (c − centre)/spread."""

    missing: str
    beside: tuple[tuple[str, int], ...] = ()
    centre: Array | float = 0.0
    spread: Array | float = 1.0

    def features(self, rows: Features) -> Features:
        """The columns of the features."""
        extra = sum(width for _, width in self.beside)
        return rows[:, : rows.shape[1] - extra] if extra else rows

    def of(self, rows: Features) -> tuple[Array, Array, Side]:
        """Rows (n, D), 0 where missing, 1 where they are observed, and what stands beside them; an entry with an error
        bar that is no number is missing."""
        x, seen = self._entries(self.features(rows))
        side, at = Side(), x.shape[1]
        for name, width in self.beside:
            part: Any = rows[:, at : at + width]
            values = np.asarray(part.toarray() if isinstance(part, sp.csr_array) else part, dtype=np.float64)
            at += width
            if name == "uncertainty":
                known = values * values
                if (unknown := np.isnan(known)).any():
                    there = ones(cleared(known, unknown))
                    x *= there
                    seen *= there
                side = side._replace(known=known)
            elif name == "offset":
                side = side._replace(offset=values)
            else:
                side = side._replace(covariates=(values - self.centre) / self.spread)
        return x, seen, side

    def standardised(self, rows: Array) -> Values:
        """Values whose covariates have the mean 0 and the deviation 1 in these rows, or are about 0 where they do not
        vary there."""
        covariates = self.of(rows)[2].covariates
        if covariates is None:
            return self
        spread = covariates.std(axis=0)
        return self._replace(centre=covariates.mean(axis=0), spread=np.where(spread > 0.0, spread, 1.0))

    def of_covariates(self, parameters: Parameters) -> Parameters:
        """Parameters whose effects are those of the covariates as they came."""
        if parameters.effects is None:
            return parameters
        effects = parameters.effects / self.spread
        return parameters._replace(effects=effects, mean=parameters.mean - effects @ self.centre)

    def _entries(self, features: Features) -> tuple[Array, Array]:
        if isinstance(features, sp.csr_array):
            x = np.asarray(features.toarray(), dtype=np.float64)
            if self.missing != "unstored":
                return x, np.ones(x.shape)
            stored = sp.csr_array(
                (np.ones(len(features.data)), features.indices, features.indptr), shape=features.shape
            )
            return x, np.asarray(stored.toarray())
        x = np.array(features, dtype=np.float64)
        return x, ones(cleared(x, np.isnan(x))) if self.missing == "nan" else np.ones(x.shape)


class ObservationRequest(NamedTuple):
    """A model with parameters in the units of the fit, u = (x − shift)/scale, both (D,), which values it sees, what
    part of the bound of a row may be left to gain, and which rows are looked at: all, or one of so many."""

    model: ObservationModel
    parameters: Parameters
    specification: Specification
    values: Values
    shift: Array
    scale: Array
    rough: float = 0.0
    every: int = 1


class ObservationSums(NamedTuple):
    """Statistics at given parameters, additive over rows: those of `Entries` with entries weighted by their precisions,
    those of the noise variances (3, D) and of the parameters of shape (2, D), and how many rows observe something."""

    entries: Entries
    noise: Array
    shape: Array
    rows: float


def row_chunks(features: Features, k: int) -> Iterator[slice]:
    """Rows whose arrays stay in the caches of a processor core."""
    rows, columns = features.shape
    step = max(CELLS // (columns + (k + 1) * (k + 2)), SMALLEST)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def block_observations(block: Block, request: ObservationRequest) -> ObservationSums:
    """Statistics of a block; additive, O(n D K²) for each step of its rows."""
    model, parameters, specification, values, shift, scale, rough, every = request
    width, k = parameters.loadings.shape
    joint = k + 1 + (0 if parameters.effects is None else parameters.effects.shape[1])
    own, size = Own.of(parameters, specification), joint * (joint + 1) // 2
    zeros = Entries(
        np.zeros((size, width)), np.zeros((joint, width)), np.zeros(width), np.zeros(size), 0.0, np.zeros(k)
    )
    total = ObservationSums(zeros, np.zeros((3, width)), np.zeros((2, width)), 0.0)
    unit = 1.0 / scale
    features = block.features[-(block.start or 0) % every :: every] if every > 1 else block.features
    for at in row_chunks(features, joint - 1):
        x, seen, side = values.of(features[at])
        x -= shift
        x *= unit
        x *= seen
        side = side._replace(known=side.known * unit**2, offset=side.offset * unit)
        total = add(total, _statistics(model, x, seen, side, parameters, own, rough))
    return total


def _statistics(
    model: ObservationModel, x: Array, seen: Array, side: Side, parameters: Parameters, own: Own, rough: float
) -> ObservationSums:
    parameters, own = side.centred(parameters), own._replace(known=side.known)
    about = model.expectation(x, seen, parameters, own, rough)
    k = about.mean.shape[1]
    covariates = np.zeros((len(x), 0)) if side.covariates is None else side.covariates
    joint = np.hstack([about.mean, covariates, np.ones((len(x), 1))]).astype(about.mean.dtype)
    first, second = triangle(joint.shape[1])
    moments = joint[:, first] * joint[:, second]
    moments[:, (first < k) & (second < k)] += about.covariance
    something = seen.max(axis=1) > 0.0
    weight = something if about.weight is None else something * about.weight
    precision = about.terms.precision
    pull = about.e - parameters.mean.astype(about.e.dtype)
    pull *= precision
    pull += about.terms.slope
    entries = Entries(
        moments.T @ precision,
        joint.T @ pull,
        np.zeros(x.shape[1]),
        moments.T @ weight,
        float(about.bound.sum(dtype=np.float64)),
        np.zeros(k),
    )
    noise = model.noise_sums(about.terms, x, about.e, about.v, seen, own) if model.noise else np.zeros((3, x.shape[1]))
    shape = np.zeros((2, x.shape[1])) if own.shape is None else model.shape_sums(x, about, seen, own)
    return ObservationSums(entries, noise, shape, float(something.sum()))


def maximise_observations(
    model: ObservationModel,
    sums: ObservationSums,
    parameters: Parameters,
    specification: Specification,
    *,
    expand: bool = True,
) -> Parameters:
    """M-step: an increment of each feature's loadings and mean, and what else the model has.  With `expand`, PX-EM."""
    level: Array | float = 0.0
    if specification.row_effects:
        level = level_of(parameters) * specification.leveled
    rest = others(parameters, specification)
    after = len(sums.entries.cross) - parameters.loadings.shape[1]
    entries = without_level(sums.entries, level, after) if specification.row_effects else sums.entries
    k, size = rest.loadings.shape[1], len(entries.cross)
    normal = unpacked(entries.second, size).transpose(2, 0, 1)
    now = np.column_stack([rest.loadings, np.zeros((len(rest.mean), after))])
    missed = entries.cross.T - np.einsum("jkl,jl->jk", normal, now)
    trace = np.trace(normal, axis1=1, axis2=2)
    normal = normal + (RIDGE * (trace + max(float(trace.mean()), 1e-300)))[:, None, None] * np.eye(size)
    step = np.linalg.solve(normal, missed[:, :, None])[:, :, 0]
    if not model.exact:
        latent = unpacked(entries.latent, size) / sums.rows
        far = FARTHEST * np.sqrt(np.einsum("jk,kl,jl->j", step, latent, step)) + 1e-12
        step *= (np.log1p(far) / far)[:, None]
    image = rest._replace(loadings=rest.loadings + step[:, :k], mean=rest.mean + step[:, -1])
    if image.effects is not None:
        image = image._replace(effects=image.effects + step[:, k:-1])
    image = model.updated(image, sums.noise, sums.shape, specification)
    latent = unpacked(sums.entries.latent, len(sums.entries.cross))
    if model.noise:  # rows with precisions of their own have them 1 on average
        image = image._replace(noise_variance=image.noise_variance * sums.rows / latent[-1, -1])
    if specification.row_effects and not (expand and after > 1):
        kept = np.delete(np.arange(len(latent)), np.arange(len(latent) - after, len(latent) - 1))
        return with_new_level(image, latent[np.ix_(kept, kept)], level, expand=expand)
    if not expand:
        return image
    if after == 1:
        return expanded(image, latent)
    return expanded_beside(with_level(image, level) if specification.row_effects else image, latent)


def expanded_beside(parameters: Parameters, latent: Array) -> Parameters:
    """PX-EM with covariates c: give z the mean Γc + γ and the covariance that Σ E[(z, c, 1)(z, c, 1)ᵀ] says, then put
    them into W, the effects and μ."""
    assert parameters.effects is not None
    k = parameters.loadings.shape[1]
    at = slice(k, len(latent))
    # Covariates that repeat each other, as indicators of all groups do, leave no unique regression.
    regression = np.linalg.lstsq(latent[at, at], latent[at, :k], rcond=1e-12)[0]
    covariance = (latent[:k, :k] - latent[:k, at] @ regression) / latent[-1, -1]
    moved = parameters.loadings @ regression.T
    return parameters._replace(
        loadings=parameters.loadings @ np.linalg.cholesky(0.5 * (covariance + covariance.T)),
        effects=parameters.effects + moved[:, :-1],
        mean=parameters.mean + moved[:, -1],
    )


def observation_slope(
    model: ObservationModel, sums: ObservationSums, parameters: Parameters, specification: Specification
) -> Array:
    """The gradient of the bound in the order of `Parameters.flatten`."""
    k = parameters.loadings.shape[1]
    normal = unpacked(sums.entries.second, len(sums.entries.cross))
    slope = (sums.entries.cross - np.einsum("abj,jb->aj", normal[:, :k], parameters.loadings)).T
    own = model.own_slope(sums.noise, sums.shape, parameters, specification)
    return np.concatenate([slope[:, :k].ravel(), slope[:, -1], slope[:, k:-1].ravel(), own])


class FirstRequest(NamedTuple):
    """A model, which values it sees, a shift (D,), and whether rows of zeros are refused."""

    model: ObservationModel
    values: Values
    shift: Array
    refuse_zero_rows: bool


def block_first_sums(block: Block, request: FirstRequest) -> EntrySums:
    """Counts and sums of the entries of a block; additive.  Raises DataError for a value that the model has not."""
    model, values, shift, refuse_zero_rows = request
    features = values.features(block.features)
    if values.missing == "raise":
        check_features(replace(block, features=features), refuse_zero_rows=refuse_zero_rows)
    require_allowed(model, features, block.start)
    total: EntrySums | None = None
    for at in row_chunks(block.features, 1):
        x, seen, _ = values.of(block.features[at])
        rows = Block(block.index, block.start + at.start, np.where(seen > 0.0, x, np.nan))
        total = add(total, block_entry_sums(rows, shift))
    assert total is not None
    return total


class RowsRequest(NamedTuple):
    """Which values are seen, and how many of all samples, evenly spread, are wanted."""

    values: Values
    rows: int
    samples: int


def block_rows(block: Block, request: RowsRequest) -> Array:
    """The wanted rows (rows, D) that lie in a block, NaN where entries are missing, the others zero, and after them
    what stands beside; additive."""
    numbers, places = sampled(block, request.rows, request.samples)
    inside, rows = block.features[places], np.zeros((request.rows, block.features.shape[1]))
    x, seen, _ = request.values.of(inside)
    beside: Any = inside[:, x.shape[1] :]
    rows[numbers, : x.shape[1]] = np.where(seen > 0.0, x, np.nan)
    rows[numbers, x.shape[1] :] = beside.toarray() if isinstance(beside, sp.csr_array) else beside
    return rows


def not_allowed(model: ObservationModel, x: Features) -> BadEntry | None:
    """The first value of some rows that the model has not; NaN is none."""
    if model.values == ObservationModel.values:  # any number
        return None
    entries: Any = x.data if isinstance(x, sp.csr_array) else x
    return BadEntry.of(x, ~(model.allowed(entries) | np.isnan(entries)))


def require_allowed(model: ObservationModel, x: Features, start: int | None, chunk: int = 0) -> None:
    """Refuse values that the model has not, in rows that begin at row `start` of the data, or in `chunk` where nobody
    knows.  Errors: DataError naming row and column."""
    bad = not_allowed(model, x)
    if bad is not None:
        raise DataError(
            f"{bad.place(start, chunk)}, column {bad.column} is {bad.value:g}, and {bad.counted(start, x.shape[0])} "
            f"not {model.values}, as likelihood={model.name!r} asks for; correct them, or take another likelihood",
            column=bad.column,
        )
