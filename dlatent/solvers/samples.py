"""Sums over the data by passes: moments, products with directions, a likelihood.

Routes ask for these and do not see whether samples are independent or joined by a graph.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.likelihood import LikelihoodRequest, block_log_likelihood
from dlatent.gaussian.moments import MomentRequest, Moments, block_moments
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.products import PatternProducts, ProductRequest, block_products
from dlatent.gaussian.specification import Specification
from dlatent.operators.sparse import by_columns
from dlatent.passes import Pass, Run
from dlatent.solvers.em_passes import begin, em_on_data
from dlatent.solvers.graph.samples import GraphSamples
from dlatent.solvers.plan import Plan
from dlatent.solvers.solution import Options, Report, Solution
from dlatent.solvers.solver import Solver
from dlatent.solvers.task import Task
from dlatent.solvers.textbook import stacked_shift


class IndependentSamples:
    """Samples that are independent of each other."""

    def __init__(self, task: Task, shift: Array, run: Run) -> None:
        self._task, self._shift, self._run = task, shift, run
        # Rows that are picked out by their pattern are better held by rows.
        alone = len(task.specification.patterns) == 1 and task.arrangement is None
        self._form = by_columns if alone else None

    def moments(self) -> Moments:
        """The Gram matrix of each pattern, about the shift."""
        task, specification = self._task, self._task.specification
        refuse = task.options.refuse_zero_rows
        request = MomentRequest(self._shift, specification.patterns, refuse, task.arrangement)
        patterns = self._run(Pass(block_moments, request, name="moments"))
        views = len(specification.views)
        return Moments(patterns, stacked_shift(self._shift, specification), np.zeros(views), np.zeros(views))

    def products(self, directions: tuple[Array, ...], sums: bool) -> tuple[PatternProducts, ...]:
        """The Gram matrix of each pattern times directions of each view, and where asked the sums."""
        task, patterns = self._task, self._task.specification.patterns
        refuse = task.options.refuse_zero_rows
        request = ProductRequest(directions, self._shift, patterns, sums, refuse, task.arrangement)
        return self._run(Pass(block_products, request, form=self._form, name="products"))

    def log_likelihood(self, parameters: Parameters, specification: Specification) -> float:
        """The log-likelihood of all samples at the parameters that a search in a subspace found, in nats."""
        request = LikelihoodRequest(parameters, specification, self._task.arrangement)
        return self._run(Pass(block_log_likelihood, request, form=self._form, name="check"))

    def about_zero(self, parameters: Parameters) -> Parameters:
        """The parameters themselves."""
        return parameters

    def em(self, start: Parameters | None, options: Options, report: Report | None) -> Solution:
        """Plain EM, one pass an iteration, from random loadings."""
        task = self._task
        shift = stacked_shift(self._shift, task.specification)
        return em_on_data(begin(self._run, task.specification, shift, options, task.arrangement, report))

    def concluded(self, solution: Solution) -> Solution:
        """The solution itself."""
        return solution


def samples_of(task: Task, plan: Plan, shift: Array, run: Run) -> IndependentSamples | GraphSamples:
    """The data of a fit: both kinds have the same methods."""
    return IndependentSamples(task, shift, run) if task.relation is None else GraphSamples(task, plan, shift, run)


def start_of_em(solver: Solver, task: Task, plan: Plan, shift: Array, run: Run) -> Parameters | None:
    """Where textbook EM of samples in a graph begins, where the user wants the start of the paper: loadings of PCA, and
    the noise variance asked for."""
    relation = task.relation
    if not task.textbook or relation is None or relation.start != "pca":
        return None
    plain = replace(
        task, problem=replace(task.problem, em_passes=None), relation=None, options=task.settled_options(plan)
    )
    begun = solver.fit(plain, plan, shift, run).parameters
    noise = begun.noise_variance
    if relation.start_noise is not None:
        noise = np.full(len(noise), relation.start_noise)
    return Parameters(begun.loadings, np.zeros(len(begun.loadings)), noise)
