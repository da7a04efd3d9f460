"""What is to be fitted, as one value that every estimator makes in the same way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, BlockSource, Features, Graph
from dlatent.gaussian.kernel import TileWriter
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement
from dlatent.operators.kernels import Kernel
from dlatent.operators.sample_precision import SamplePrecision
from dlatent.passes import Run
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.solution import Options, Solution

MAX_PASSES = 60
MAX_EM_ITERATIONS = 2000
DOUBLE, SINGLE = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)


class Comparison(NamedTuple):
    """Of each candidate the correlation with hidden cells (C,), and the standard error of its difference to the largest
    (C,); and the number of the chosen one."""

    correlation: Array
    standard_error: Array
    chosen: int


@dataclass(frozen=True)
class Relation:
    """How samples depend on each other: Δ, its rank (N for γ > 0), where EM begins ("random" or "pca"), with which
    noise variance (None: the one that comes with the start), and where some samples have no targets the graph."""

    precision: SamplePrecision
    rank: int
    start: str = "random"
    start_noise: float | None = None
    graph: Graph | None = None


@dataclass(frozen=True)
class KernelFeatures:
    """How features φ(x) are made of rows.

    Parameters
    ----------
    kernel : k(x, x') = φ(x)ᵀφ(x'); γ = 0 stands for the median heuristic.
    dimension : number M of features.
    rows : the blocks of rows that a model of all samples compares new ones with.
    held : makes such blocks of rows in memory.
    kept : a place for the upper triangle of K while a fit runs: where it is written, and what runs passes over it.
    """

    kernel: Kernel
    dimension: int
    rows: tuple[BlockSource, ...]
    held: Callable[[Features], tuple[BlockSource, ...]]
    kept: Callable[[], AbstractContextManager[tuple[TileWriter, Run]]]


@dataclass(frozen=True)
class Task:
    """What is to be fitted.

    Parameters
    ----------
    problem : its shape, all that the planner looks at.
    specification : views, noise, patterns and number of components.
    options : what a user may say about the loop.
    targets : what `numpy.asarray` makes an array (N, L), NaN where unlabelled; None without targets.
    relation : of samples in a graph; None where they are independent.
    arrangement : which views the rows of a block have, where the data are several views.
    kernel : what makes the features; None where they are the data.
    start : what a fit to like data came to, from which iterations over the data go on; None where they look for starts.
    compared : how strengths of smoothing were compared, where one was chosen.
    earlier : the moments of the rows that were seen before these, about the same shift.
    """

    problem: Problem
    specification: Specification
    options: Options
    targets: npt.ArrayLike | None = None
    relation: Relation | None = None
    arrangement: Arrangement | None = None
    kernel: KernelFeatures | None = None
    start: Solution | None = None
    compared: Comparison | None = None
    earlier: Moments | None = None

    @property
    def textbook(self) -> bool:
        """Whether textbook EM takes the place of the route's own way."""
        return self.problem.em_passes is not None

    @property
    def growing(self) -> tuple[int, ...]:
        """The views that may be seen through subspaces: the features, or every view."""
        return (0,) if self.arrangement is None else tuple(range(len(self.specification.views)))

    def settled_options(self, plan: Plan, most: int = MAX_PASSES, *, single: bool = False) -> Options:
        """The options of a loop of at most `most` iterations, unless the user or textbook EM have others; `single`:
        its sums are made in single precision."""
        most = self.options.max_iterations or (MAX_EM_ITERATIONS if self.textbook else most)
        precision = SINGLE if single else DOUBLE
        return replace(self.options, max_iterations=int(most), max_rank=plan.max_rank, precision=precision)
