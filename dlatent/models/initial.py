"""What a fit looks at before it begins, a point near the mean of the features and how far they spread, and at its end:
the tails of its residuals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array, DataSource, Dense
from dlatent.engine.connect import Where, connect
from dlatent.engine.session import PassRecord, Session
from dlatent.fitted.fit import INITIAL_MEAN
from dlatent.gaussian.missing_entries.entries import block_observed_mean
from dlatent.gaussian.moments import block_column_sums, block_mean, representable
from dlatent.gaussian.spread import FirstLook, SpreadRequest, Spreads, block_first_look, block_spreads, unlike
from dlatent.gaussian.tails import tails_of
from dlatent.passes import Pass
from dlatent.solvers.solver import Solution
from dlatent.stores.rows import in_units


def initial_mean(session: Session, observed: bool = False) -> Array:
    """A shift near the mean (docs/models/solvers): the mean of the first block of dense data, of the `observed` entries
    where some are missing; of sparse data that of the features that are far from zero, and zero for the others."""
    source = session.source
    if observed:
        return session.run_block(Pass(block_observed_mean, None, cached=False, name=INITIAL_MEAN), 0)
    if source.sparse:
        return far_shift(session, (0,), None)
    mean = session.run_block(Pass(block_mean, None, cached=False, name=INITIAL_MEAN), 0)
    return representable(mean, source.dtype)


def far_shift(session: Session, blocks: Iterable[int], request: Any) -> Array:
    """The mean of sparse features that are far from zero, 0 for the others (D,): of all rows, where some of the blocks
    show such features, else zero."""
    sums = Pass(block_column_sums, request, cached=False, name=INITIAL_MEAN)
    shown = any(session.run_block(sums, block).far.any() for block in blocks)
    return session.run(sums).far if shown else np.zeros(session.source.shape[1])


def spreads(
    source: DataSource, client: Where, *, missing: bool, genotypes: bool = False
) -> tuple[Spreads, Array, tuple[PassRecord, ...]]:
    """Sums of the features about a point near their mean, that point (D,), and the passes that found both."""
    with connect(source, client=client, cache_bytes=0) as session:
        shift = np.nan_to_num(initial_mean(session, missing))
        request = SpreadRequest(shift, missing, genotypes)
        sums = session.run(Pass(block_spreads, request, cached=False, name="spreads"))
        return sums, shift, tuple(session.passes)


def measured(
    source: DataSource, client: Where, *, missing: bool, genotypes: bool = False
) -> tuple[Array, tuple[PassRecord, ...]]:
    """The spreads of the features, or those that `genotypes` have by chance, as their units (D,), and the passes that
    found them."""
    sums, shift, passes = spreads(source, client, missing=missing, genotypes=genotypes)
    return sums.units_of_genotypes(shift) if genotypes else sums.units(shift), passes


def in_spreads(task: Any, client: Where) -> tuple[Any, tuple[PassRecord, ...]]:
    """The task of a table in units of the spreads of its features, and the passes that found these."""
    units, passes, kernel = task.units, tuple[PassRecord, ...](), task.kernel
    if units is None:
        units, passes = measured(task.source, client, missing=task.missing, genotypes=task.genotypes)
    source = in_units(task.source, units)
    if kernel is not None and kernel.rows:
        kernel = replace(kernel, rows=source.blocks)
    return replace(task, source=source, kernel=kernel, units=units), passes


def views_in_spreads(task: Any, client: Where) -> tuple[Any, tuple[PassRecord, ...]]:
    """The task of views in units of the spreads of their features, and the passes that found these; targets, the last
    view, keep theirs."""
    source = task.source
    names = list(source.views)[: len(source.views) - int(task.targets is not None)]
    seen = [measured(source.views[name], client, missing=False, genotypes=task.genotypes) for name in names]
    units = [each for each, _ in seen]
    passes = tuple(record for _, records in seen for record in records)
    source = source.in_units(dict(zip(names, units, strict=True)))
    return replace(task, source=source, units=np.concatenate(units)), passes


def first_look(session: Session, task: Any, observed: bool) -> tuple[Array, tuple[str, ...], Dense | None]:
    """A shift near the mean, and advice where the first block has features of different units for a model that shares
    noise among them; sparse features spread as often as they are there.  Of dense data some rows, for `last_look`."""
    source = session.source
    if task.earlier is not None:
        return task.earlier.shift, (), None
    if task.shift is not None or (source.sparse and not task.missing):
        return (task.shift or initial_mean)(session, observed), (), None
    request = FirstLook(observed, task.missing, task.shared and not task.scale)
    mean, spread, rows = session.run_block(Pass(block_first_look, request, cached=False, name=INITIAL_MEAN), 0)
    shift, apart = mean if observed else representable(mean, source.dtype), None if spread is None else unlike(spread)
    if apart is None:
        return shift, (), rows
    advice = (
        f"data: the largest standard deviation of a feature is {apart[1]:.3g}, and a quarter of the features have at "
        f"most {apart[0]:.3g}; if their units differ, a few features decide the fit: say scale='spread', which divides "
        "each by its own"
    )
    return shift, (advice,), rows


def last_look(rows: Dense | None, task: Any, solution: Solution) -> tuple[str, ...]:
    """Advice where residuals of some rows of a table have heavy tails, and another `likelihood` could be that of its
    entries."""
    apart = task.family or task.targets or task.between or task.kernel or task.arrangement or task.weighted
    if apart or rows is None:
        return ()
    tails = tails_of(rows, solution.parameters, solution.specification, missing=task.missing)
    return (tails.advice(),) if tails.heavy else ()


def in_data_units(solution: Solution, task: Any) -> Solution:
    """The solution with likelihoods of features x, of a fit to x/units; features that a kernel makes have none."""
    if task.kernel is not None:
        return solution
    counts = solution.known
    if counts is None:
        views = zip(solution.view_samples, solution.specification.sizes, strict=True)
        counts = np.concatenate([np.full(size, samples) for samples, size in views])
    if task.relation is not None and solution.known is None:
        counts = np.full(len(counts), task.relation.rank)
    volume, checked = float(counts[: len(task.units)] @ np.log(task.units)), solution.checked_log_likelihood
    return replace(
        solution,
        log_likelihood=solution.log_likelihood - volume,
        checked_log_likelihood=None if checked is None else checked - volume,
        history=tuple(replace(each, log_likelihood=each.log_likelihood - volume) for each in solution.history),
    )
