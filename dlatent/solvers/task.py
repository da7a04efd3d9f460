"""A fit as one value: solvers read from it all that they need, and the planner what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, BlockSource, DataSource, Features, Graph
from dlatent.gaussian.kernel import TileWriter
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement
from dlatent.operators.kernels import Kernel
from dlatent.operators.sample_precision import SamplePrecision
from dlatent.order import group_count, task_count
from dlatent.passes import Run

MAX_EM_ITERATIONS = 2000
MOST_KEPT = 500
"""Features of which a fit keeps the moments, 2 MB, so that rows can be added."""
DOUBLE, SINGLE = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
BYTES_PER_ENTRY = 12
"""Of sparse Dask chunks, whose entries nobody has counted."""


@dataclass(frozen=True)
class DataSize:
    """The size of the data, as costs need it.

    Parameters
    ----------
    samples, features : their numbers N and D.
    nbytes, largest_block : bytes of all loaded blocks, and of the largest of them.
    blocks : their number.
    tasks : those of a pass, one for each group of blocks and one for each join of groups.
    itemsize : bytes of a value.
    nnz : stored entries of sparse data, None for dense.
    description : the input in words.
    in_memory : whether the data lie in the driver's memory.
    decoding : bytes that are decoded at a time for a block that is a part of larger chunks; 0 where none is.
    computed : whether other tasks compute the blocks, as those of a Dask array.
    target_bytes : bytes of the targets as they travel with the blocks.
    """

    samples: int
    features: int
    nbytes: int
    largest_block: int
    blocks: int
    tasks: int
    itemsize: int
    nnz: int | None
    description: str
    in_memory: bool = False
    decoding: int = 0
    computed: bool = False
    target_bytes: int = 0

    @classmethod
    def of(cls, source: DataSource) -> Self:
        """The size of these data."""
        sizes = [block.nbytes for block in source.blocks]
        return cls(
            *source.shape,
            source.nbytes,
            max(sizes),
            len(sizes),
            task_count(group_count(sizes)),
            source.dtype.itemsize,
            (source.nnz or source.nbytes // BYTES_PER_ENTRY) if source.sparse else None,
            source.description,
            source.in_memory,
            source.decoding,
            source.blocks[0].collection is not None,
        )

    @property
    def entries(self) -> int:
        """Entries that products meet: those that are stored of sparse data, all of dense."""
        return self.samples * self.features if self.nnz is None else self.nnz


class Relation(NamedTuple):
    """How samples depend on each other: Δ, its rank (N for γ > 0), where EM begins ("random" or "pca"), and with which
    noise variance (None: the one that comes with the start)."""

    precision: SamplePrecision
    rank: int
    start: str = "random"
    start_noise: float | None = None


class Comparison(NamedTuple):
    """Of each candidate the correlation with hidden cells (C,), and the standard error of its difference to the largest
    (C,); and the number of the chosen one."""

    correlation: Array
    standard_error: Array
    chosen: int


@dataclass(frozen=True)
class Between:
    """Edges between the samples, and how samples depend on each other over them.

    Parameters
    ----------
    graph : the edges, or a precision in their place.
    relation : how samples depend on each other; None where they do not, or before a strength of smoothing is chosen.
    hops : how far rows go over the edges on the way to F R, where Δ = γI + F²; or to ΔR.
    candidates : strengths of smoothing that are compared before the fit; `comparison`, how they were.
    travelling : rows that one neighbour sum moves between workers.
    reach : rows that the fullest worker holds in a neighbour sum, its own and those of its neighbours.
    tasks : those that one neighbour sum adds to a pass.
    """

    graph: Graph
    relation: Relation | None
    hops: int = 1
    candidates: int = 0
    comparison: Comparison | None = None
    travelling: int = 0
    reach: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class KernelFeatures:
    """How features φ(x) are made of rows.

    Parameters
    ----------
    kernel : k(x, x') = φ(x)ᵀφ(x'); γ = 0 stands for the median heuristic.
    dimension : number M of features.
    rows : the blocks of rows that a model of all samples compares new ones with.
    rows_in_memory : makes such blocks of rows in memory.
    kept : a place for the upper triangle of K while a fit runs: where it is written, and what runs passes over it.
    itemsize, place : bytes of a value of K there, and whether there is such a place.
    landmarks : rows in the span of whose features the fit stays; 0 for all rows.
    kept_bytes : bytes of the caller's rows that the model copies.
    """

    kernel: Kernel
    dimension: int
    rows: tuple[BlockSource, ...]
    rows_in_memory: Callable[[Features], tuple[BlockSource, ...]]
    kept: Callable[..., AbstractContextManager[tuple[TileWriter, Run]]]
    itemsize: int = 8
    place: bool = False
    landmarks: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True)
class Family:
    """A family of models with a solver of its own, beside which its subclass is, with the numbers that this solver
    needs.

    Parameters
    ----------
    name : the demand that a solver of the family serves, and the key of the numbers in figures of plans.
    why : why other solvers are none for it.
    """

    name: ClassVar[str]
    why: ClassVar[str]

    @classmethod
    def of(cls, task: Task) -> Self:
        """That of a task whose solver is that of the family."""
        assert isinstance(task.family, cls)
        return task.family

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes of the parameters before those of one linear-Gaussian model."""
        return ()


class Targets(Protocol):
    """Targets of the samples."""

    @property
    def rows(self) -> npt.ArrayLike | None:
        """Rows that `numpy.asarray` makes an array (N, L), NaN where unlabelled; None where they are a view."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model to be fitted, to which data and how; what a model does not have is None.

    Parameters
    ----------
    data : what costs need of the data.
    specification : views, noise, patterns and number of components.
    solver, tol, random_state, prior : hyperparameters of the same name.
    textbook : whether textbook EM takes the place of the solver's own way.
    max_iter : the most iterations, 0 as many as the solver finds right.
    floor_parts : the noise floors of the views, as parts of their mean variances.
    refuse_zero_rows : whether rows of zeros are refused.
    missing : whether any entry may be missing.
    weighted : whether samples have weights.
    scale : whether features are divided by their spreads, which a pass before the fit finds.
    rule : how the number of components is chosen, of which the specification then has the most; "auto" drops those
        after the fit that the data do not support.
    from_all : whether "auto" chooses before the fit, from all eigenvalues, and of enough samples by the evidence.
    targets : those of the samples; `head`, by which density they are fitted.
    between : what is between the samples.
    arrangement : which views the rows of a block have, where the data are several views.
    kernel : what makes the features, where they are not the data.
    family : what only the solver of its own family of models can do.
    start : the parameters of a fit to like data, from which iterations over the data go on.
    adding : whether moments are kept for more rows; `earlier`, those of the rows before, about the same shift.
    max_rank : the widest subspace that the driver may hold.
    epsilon : the precision in which sums are made.
    """

    data: DataSize
    specification: Specification
    solver: str = "auto"
    textbook: bool = False
    tol: float = 1e-9
    max_iter: int = 0
    random_state: Any = 0
    floor_parts: tuple[float, ...] = (0.0,)
    refuse_zero_rows: bool = True
    missing: bool = False
    prior: str | float = "ml"
    weighted: bool = False
    scale: bool = False
    rule: str | float | None = None
    from_all: bool = False
    targets: Targets | None = None
    head: str = "likelihood"
    between: Between | None = None
    arrangement: Arrangement | None = None
    kernel: KernelFeatures | None = None
    family: Family | None = None
    start: Any = None
    adding: bool = False
    earlier: Moments | None = None
    max_rank: int = 0
    epsilon: float = DOUBLE

    @property
    def shared(self) -> bool:
        """Whether the features of a view share one noise variance."""
        return all(view.shared for view in self.specification.views)

    @property
    def chosen_first(self) -> bool:
        """Whether the number of components is chosen before the fit, from eigenvalues."""
        if self.rule is None or self.arrangement is not None:
            return self.rule is not None
        by_fit = self.targets is not None or self.missing or (self.shared and not (self.textbook or self.from_all))
        return not (self.rule == "auto" and (by_fit or self.kernel is not None))

    @property
    def columns(self) -> int:
        """Columns of the targets on their rank, where they are not a view of the data."""
        return 0 if self.arrangement is not None else sum(self.specification.sizes[1:])

    @property
    def keeps_moments(self) -> bool:
        """Whether the moments of one table stay with the model, which more rows may be added to: where that is asked
        for, and where they are small."""
        apart = self.between or self.arrangement or self.kernel or self.targets or self.weighted or self.scale
        return self.adding or (not apart and self.data.features <= MOST_KEPT)

    @property
    def edges(self) -> int:
        """Stored entries of the adjacency matrix."""
        return 0 if self.between is None else self.between.graph.entries

    @property
    def relation(self) -> Relation | None:
        """How samples depend on each other."""
        return None if self.between is None else self.between.relation

    @property
    def em_passes(self) -> int | None:
        """Most passes of textbook EM, where it is asked for."""
        return (self.max_iter or MAX_EM_ITERATIONS) + 1 if self.textbook else None

    @property
    def growing(self) -> tuple[int, ...]:
        """The views that may be seen through subspaces: the features, or every view."""
        return (0,) if self.arrangement is None else tuple(range(len(self.specification.views)))

    def limited(self, max_rank: int, most: int) -> Self:
        """The task for a loop of at most `most` iterations, unless the user or textbook EM have others."""
        most = self.max_iter or (MAX_EM_ITERATIONS if self.textbook else most)
        return replace(self, max_iter=most, max_rank=max_rank)

    def with_least_floors(self, parts: Iterable[float]) -> Self:
        """The task with floors that are no lower than these parts of the views' mean variances."""
        return replace(self, floor_parts=tuple(map(max, self.floor_parts, parts)))

    def figures(self) -> dict[str, Any]:
        """The part of it that a plan shows, as plain values by name."""
        names = ("shared", "missing", "em_passes", "rule", "weighted", "adding", "scale")
        between, kernel = self.between, self.kernel
        return {
            **asdict(self.data),
            **{name: getattr(self, name) for name in names},
            "n_components": self.specification.n_components,
            "patterns": len(self.specification.patterns),
            "prior": self.prior != "ml",
            "targets": self.columns,
            "passes_after": int(self.head == "auto"),
            "views": None if self.arrangement is None else self.specification.sizes,
            "present": None if self.arrangement is None else self.specification.patterns,
            "between": between
            and {name: getattr(between, name) for name in ("hops", "candidates", "travelling", "reach", "tasks")}
            | {name: getattr(between.graph, name) for name in ("entries", "in_memory", "precision")},
            "kernel": kernel
            and {name: getattr(kernel, name) for name in ("itemsize", "place", "landmarks", "kept_bytes")}
            | {"name": kernel.kernel.name},
            **({} if self.family is None else {self.family.name: asdict(self.family)}),
        }
