"""How many components the samples of several views support, from products of the data, before the fit.

Samples of one view tell of that view alone, and there may be any number of them: what views have together is seen in
samples that have several.  In the largest set of these the components are counted as those of PPCA are, each view in
units of its spread.  There is no more than one for every four of these samples: of more, maximum likelihood makes so
much of so few samples that others are described worse.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.moments import Moments, recentred
from dlatent.gaussian.products import PatternProducts, PatternSums
from dlatent.gaussian.specification import Specification, View
from dlatent.operators.symmetric import top_eigenvalues
from dlatent.operators.tall import fresh_directions
from dlatent.solvers.costs import FULL_EIGEN
from dlatent.solvers.evidence import supported_factors, supported_number
from dlatent.solvers.moments.starts import LEAST_NOISE, VANISHED
from dlatent.solvers.moments.subspace import KrylovSpace, Products, search
from dlatent.solvers.task import Task

EACH = 4
"""Samples with several views for each component."""


def largest_set(task: Task) -> int:
    """The number of the pattern of most samples, of those with several views where there are any."""
    assert task.arrangement is not None
    counts = [stop - start for start, stop in pairwise(task.arrangement.bounds)]
    patterns = task.specification.patterns
    return max(range(len(patterns)), key=lambda at: (len(patterns[at]) > 1, counts[at]))


def joint_factors(middle: Moments, task: Task) -> int:
    """How many factors the largest set of samples with several views supports, from moments about the means."""
    part = middle.patterns[largest_set(task)]
    own = recentred(part, part.total / part.samples)
    # What these samples have in common is zero but for rounding.
    same = np.diag(own.gram) <= VANISHED * np.diag(part.gram)
    own = own._replace(gram=np.where(same | same[:, None], 0.0, own.gram))
    most = min(task.specification.n_components, int(own.samples) // EACH)
    return 1 if same.all() else supported_factors(own, max(most, 1))


def joint_number(products: Products, task: Task) -> int:
    """How many components the largest set of samples with several views supports, and no fewer than 1."""
    specification, at = task.specification, largest_set(task)
    narrow = [size <= 2 * fresh_directions(specification.n_components) for size in specification.sizes]
    directions = (np.eye(size, size * few) for size, few in zip(specification.sizes, narrow, strict=True))
    first = products(tuple(directions), True)
    spread, most = _spreads_and_most(first, specification)
    pattern, places = specification.patterns[at], specification.slices_within(specification.patterns[at])
    unit = spread[list(pattern)]
    units = np.repeat(unit, [specification.sizes[view] for view in pattern])
    sums = first[at].sums
    assert sums is not None
    samples, energy = int(sums.samples), float((sums.energy / unit**2).sum())
    if energy - float(((sums.total / units) ** 2).sum()) / samples <= VANISHED * energy:
        return 1  # they do not vary

    def together(directions: tuple[Array, ...], sums: bool = False) -> tuple[PatternProducts, ...]:
        """Those of all features of these samples, as one view."""
        scaled = directions[0] / units[:, None]
        each = [
            scaled[places[view]] if view in places else np.zeros((d, 0)) for view, d in enumerate(specification.sizes)
        ]
        found = products(tuple(each), sums)[at]
        product, totals = np.sum(found.product, axis=0) / units[:, None], found.sums
        if totals is not None:
            energy = np.array([float((totals.energy / unit**2).sum())])
            totals = PatternSums(totals.samples, totals.total / units, energy)
        return (PatternProducts((np.asfortranarray(product),), totals),)

    size = len(units)
    whole = Specification((View("views", size),), ((0,),), max(min(most, samples // EACH, size - 1), 1))
    alone = replace(task, specification=whole, arrangement=None, targets=None, floor_parts=(0.0,))
    space = search(together, alone, np.zeros(size), every_feature=size <= FULL_EIGEN)[0].space
    assert isinstance(space, KrylovSpace)
    values = np.maximum(top_eigenvalues(space.inner / space.samples, whole.n_components), 0.0)
    total = float(np.trace(space.inner) + space.moments(whole).spare_energy[0]) / space.samples
    return supported_number(values, space.samples, size, total)


def _spreads_and_most(first: tuple[PatternProducts, ...], specification: Specification) -> tuple[Array, int]:
    """The spread of each view, and the most components that there may be, from products with all directions of the
    narrow views.

    A view of which some features do not vary would have no noise, and an unbounded likelihood, with as many components
    as vary: some of its variance is kept for the noise.
    """
    sizes, most = specification.sizes, specification.n_components
    parts = list(zip(specification.patterns, first, strict=True))
    spread = np.ones(len(sizes))
    for view, size in enumerate(sizes):
        count = energy = 0.0
        total, second = np.zeros(size), np.zeros(1)
        for pattern, part in parts:
            if view in pattern:
                assert part.sums is not None
                place, features = pattern.index(view), specification.slices_within(pattern)[view]
                count, energy = count + part.sums.samples, energy + float(part.sums.energy[place])
                total, second = total + part.sums.total[features], second + part.product[place][features]
        variance = (energy - float(total @ total) / count) / (count * size)
        spread[view] = np.sqrt(variance) if variance > 0.0 else 1.0
        if variance > 0.0 and second.shape[-1] == size:
            values = np.maximum(top_eigenvalues(second / count - np.outer(total, total) / count**2, size), 0.0)
            if values[-1] <= VANISHED * values[0]:
                left = np.cumsum(values[::-1])[::-1] / np.arange(size, 0, -1)
                most = min(most, max(int((left >= LEAST_NOISE * variance).sum()) - 1, 1))
    return spread, most
