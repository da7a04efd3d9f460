"""The same ways from data to parameters where instances are linked: NH takes the place of the scatter matrix.

Every product with the data is a pass over links (see `linear_gaussian.relational`); the loops are those of `routes`
and `subspace`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.advice import noise_floors
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.outcome import Options, Outcome, Progress, Report
from dlatent.fitting.plan import Plan
from dlatent.fitting.routes import by_moments, fit
from dlatent.fitting.routes import finished as finished_climb
from dlatent.fitting.subspace import climb, require_variation
from dlatent.fitting.textbook import add_line, em_on_moments, em_start, settled, stacked_shift
from dlatent.linear_gaussian.maximisation import maximise
from dlatent.linear_gaussian.moments import Moments, counts_alone
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import PatternProducts
from dlatent.linear_gaussian.relational import (
    CentredSums,
    LinkedProducts,
    LinkedRequest,
    LinkedSums,
    centred_product,
    energy_rows,
    expect_linked,
    fold_energy,
    fold_moments,
    fold_products,
    linked_moments,
    linked_sums,
    moment_rows,
    own_share,
    pattern_products,
    product_rows,
    sums_about,
)
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.graph_precision import Precision
from dlatent.passes import Run, linked_pass


@dataclass(frozen=True)
class Relation:
    """What a relational fit adds: Δ, its rank (N for γ > 0), where EM begins ("random" or "pca"), with which noise
    variance (None: the one that comes with the start)."""

    precision: Precision
    rank: int
    start: str = "random"
    start_noise: float | None = None


class LinkedData:
    """Products with linked data, a few columns at a time as the plan says."""

    def __init__(self, run: Run, relation: Relation, shift: Array, plan: Plan, options: Options) -> None:
        self._run, self._relation, self._plan = run, relation, plan
        self._shift, self._refuse = shift, options.refuse_zero_rows
        self.known: LinkedSums | None = None

    def products(self, directions: tuple[Array, ...], sums: bool) -> tuple[PatternProducts, ...]:
        """NHV of each view, and where asked the sums about the weighted mean; the products of `subspace.climb`."""
        product = self.product(directions[0], sums)
        assert self.known is not None
        return (pattern_products(product, directions, self.known, sums=sums),)

    def product(self, directions: Array, sums: bool) -> Array:
        """NHV (D, b) of directions of the features; with `sums` those of the first pass are kept."""
        product, first, energy = self._products(directions, sums)
        if sums:
            self.known = linked_sums(first, energy, self._relation.rank)
        assert self.known is not None
        return centred_product(product, directions, self.known)

    def about(self, directions: Array, targets: Array) -> tuple[Array, CentredSums]:
        """(X−s)ᵀΔ(X−s)V and the sums, features about the shift, targets about `targets` (L,)."""
        product, first, energy = self._products(directions, True)
        return product, sums_about(first, energy, self._relation.rank, targets)

    def moments(self) -> Moments:
        """NH itself, where the features are few."""
        gram: Array = self._run(
            linked_pass(
                moment_rows, fold_moments, self._request(None, None, True), keep=own_share, hops=1, name="moments"
            )
        )
        return linked_moments(gram, self._shift, self._relation.rank)

    def _products(self, directions: Array, sums: bool) -> tuple[Array, LinkedProducts, float]:
        """(X−s)ᵀΔ(X−s)V, the first part of it, which has the sums where they are asked for, and their energy."""
        # First, while there is no cache that would take the memory.
        energy = self._energy() if sums else 0.0
        parts = [self._pass(some, sums and not start) for start, some in self._slabs(directions)]
        return np.hstack([part.product for part in parts]), parts[0], energy

    def _slabs(self, directions: Array) -> Iterator[tuple[int, Array]]:
        width = self._plan.columns_at_once or max(directions.shape[1], 1)
        for start in range(0, max(directions.shape[1], 1), width):
            yield start, directions[:, start : start + width]

    def _pass(self, directions: Array, sums: bool) -> LinkedProducts:
        request = self._request(directions, None, sums)
        return self._run(linked_pass(product_rows, fold_products, request, keep=own_share, hops=2, name="products"))

    def _energy(self) -> float:
        """tr (X−s)ᵀΔ(X−s): rows of features meet, some columns at a time, which no thin product can replace."""
        slabs, total = max(self._plan.slabs, 1), 0.0
        for first in range(slabs):
            # Every slab has columns from everywhere: the frequent words of a vocabulary often come first.
            request = self._request(None, slice(first, None, slabs), False)
            total += self._run(
                linked_pass(energy_rows, fold_energy, request, keep=own_share, hops=1, cached=slabs == 1, name="energy")
            )
        return total

    def _request(self, directions: Array | None, columns: slice | None, sums: bool) -> LinkedRequest:
        return LinkedRequest(self._relation.precision, self._shift, directions, columns, sums, self._refuse)


def fit_linked(
    run: Run,
    specification: Specification,
    plan: Plan,
    shift: Array,
    options: Options,
    relation: Relation,
    *,
    solver: str = "auto",
    report: Report | None = None,
) -> Outcome:
    """Fit linked instances by the plan's route; the log-likelihood is without ½ D log|Δ|, a constant of the graph."""
    data = LinkedData(run, relation, shift, plan, options)
    begun = None
    if solver == "em" and relation.start == "pca":
        begun = fit(run, specification, plan, shift, options).parameters
    if plan.route == "moments":
        moments = data.moments()
        if solver == "em":
            return em_on_moments(moments, specification, options, report, start=_start(begun, moments.shift, relation))
        return by_moments(moments, specification, options, report)
    if solver == "em":
        return _em(data, specification, shift, options, relation, begun, report)
    return _by_subspace(data, specification, shift, options, report)


def linked_log_likelihood(
    run: Run,
    parameters: Parameters,
    specification: Specification,
    plan: Plan,
    relation: Relation,
    options: Options,
) -> float:
    """Log-likelihood of linked data about the mean of the parameters, without ½ D log|Δ|, in nats."""
    width = specification.sizes[0]
    mean, targets = parameters.mean[:width], parameters.mean[width:]
    data = LinkedData(run, relation, mean, plan, options)
    product, sums = data.about(parameters.loadings[:width], targets)
    return expect_linked(product, parameters, sums, specification).log_likelihood


def _start(begun: Parameters | None, mean: Array, relation: Relation) -> Parameters | None:
    """Where EM begins: loadings of PCA about the weighted mean, with the noise variance asked for."""
    if begun is None:
        return None
    noise = begun.noise_variance
    if relation.start_noise is not None:
        noise = np.full(len(noise), relation.start_noise)
    return Parameters(begun.loadings, np.zeros(len(mean)), noise)


def _by_subspace(
    data: LinkedData, specification: Specification, shift: Array, options: Options, report: Report | None
) -> Outcome:
    state, converged = climb(data.products, specification, stacked_shift(shift, specification), options, report)
    assert data.known is not None
    parameters = state.space.lifted(state.solution)
    checked = None
    if options.verify:
        own = parameters.loadings[: len(shift)]
        about = expect_linked(data.product(own, False), parameters, data.known.sums, state.specification)
        checked = about.log_likelihood
    parameters = parameters._replace(mean=parameters.mean + data.known.offset)
    return finished_climb(state, parameters, options, converged, None, checked=checked)


def _em(
    data: LinkedData,
    specification: Specification,
    shift: Array,
    options: Options,
    relation: Relation,
    begun: Parameters | None,
    report: Report | None,
) -> Outcome:
    """EM (PRPCA (19)–(22), with the new W in (22), errata 15), one pass over the data and links per iteration."""
    width = len(shift)
    data.product(np.zeros((width, 0)), True)
    assert data.known is not None
    sums, offset = data.known.sums, data.known.offset
    energies = [sums.energy / (sums.instances * width)]
    energies += [float(np.trace(sums.target_gram)) / (sums.instances * n) for n in specification.sizes[1:]]
    variances = require_variation(np.array(energies), specification)
    mean = offset + stacked_shift(shift, specification)
    floored = specification.with_floors(noise_floors(specification, variances, mean, options))
    parameters = _start(begun, offset, relation) or em_start(floored, variances, options)
    history, converged = list[Progress](), False
    while not converged and len(history) < options.max_iterations:
        before = parameters
        latent = expect_linked(data.product(parameters.loadings[:width], False), parameters, sums, floored)
        parameters = maximise((latent,), floored, expand=False)
        add_line(history, latent.log_likelihood, report)
        converged = settled(history, options)
    counts = counts_alone((sums.instances,), len(specification.views))
    return make_outcome(
        before._replace(mean=mean), floored, tuple(history), options, variances, counts, converged=converged
    )
