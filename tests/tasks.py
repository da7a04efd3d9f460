"""Tasks on paper, for tests of plans and of loops: flat fields, of which the parts of a task are made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dlatent.arrays import Graph
from dlatent.gaussian.specification import Specification, View
from dlatent.gaussian.views import Arrangement
from dlatent.operators.kernels import Kernel
from dlatent.passes import Resources
from dlatent.solvers import planner
from dlatent.solvers.kernel.landmarks import KERNEL_SOLVERS
from dlatent.solvers.mixture.solver import MIXTURE_SOLVERS
from dlatent.solvers.plan import Plan
from dlatent.solvers.task import Between, DataSize, Family, KernelFeatures, Task

NOTHING: Any = None


def loop_task(specification: Specification, **more: Any) -> Task:
    """A task for a loop, which does not ask what the data cost."""
    return Task(data=DataSize(1, 1, 1, 1, 1, 1, 8, None, "rows"), specification=specification, **more)


@dataclass(frozen=True)
class Paper:
    """What plans depend on, as flat numbers; `views` are the sizes of joint ones, `present` their patterns."""

    samples: int
    features: int
    targets: int
    n_components: int
    patterns: int
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
    missing: bool = False
    shared: bool = True
    em_passes: int | None = None
    graph_entries: int | None = None
    graph_in_memory: bool = False
    given_precision: bool = False
    hops: int = 1
    candidates: int = 0
    travelling: int = 0
    reach: int = 0
    views: tuple[int, ...] = ()
    present: tuple[tuple[int, ...], ...] = ()
    kernel: str | None = None
    kernel_itemsize: int = 8
    kernel_place: bool = False
    landmarks: int = 0
    kept_bytes: int = 0
    family: Family | None = None
    rule: str | float | None = None
    weighted: bool = False
    adding: bool = False
    prior: bool = False
    passes_after: int = 0

    @property
    def data(self) -> DataSize:
        """The size of the data."""
        return DataSize(*(getattr(self, name) for name in DataSize.__dataclass_fields__))

    @property
    def task(self) -> Task:
        """The task that has these numbers."""
        sizes = self.views or (self.n_components if self.kernel else self.features,)
        present = self.present or ((0,),) * self.patterns
        if self.targets:
            sizes, present = (*sizes, self.targets), ((0, 1), (0,))[: self.patterns]
        views = (
            View(str(at), size, shared=self.shared or (at > 0 and not self.views)) for at, size in enumerate(sizes)
        )
        graph = Graph(
            self.samples,
            self.graph_entries or 0,
            NOTHING,
            "",
            in_memory=self.graph_in_memory,
            precision=self.given_precision,
        )
        between = Between(graph, None, self.hops, self.candidates, None, self.travelling, self.reach)
        kernel = KernelFeatures(
            Kernel(self.kernel or "linear"),
            self.samples,
            (),
            NOTHING,
            NOTHING,
            self.kernel_itemsize,
            self.kernel_place,
            self.landmarks,
            self.kept_bytes,
        )
        return Task(
            data=self.data,
            specification=Specification(tuple(views), present, self.n_components),
            textbook=self.em_passes is not None,
            max_iter=0 if self.em_passes is None else self.em_passes - 1,
            prior="ard" if self.prior else "ml",
            head="auto" if self.passes_after else "likelihood",
            between=None if self.graph_entries is None else between,
            arrangement=Arrangement((), self.views, ()) if self.views else None,
            kernel=None if self.kernel is None else kernel,
            family=self.family,
            missing=self.missing,
            weighted=self.weighted,
            adding=self.adding,
            rule=self.rule,
        )


def make_plan(paper: Paper, machine: Resources, solver: str = "auto") -> Plan:
    """The plan of a fit on paper, among all solvers."""
    solvers = planner.SOLVERS | KERNEL_SOLVERS | MIXTURE_SOLVERS
    return planner.make_plan(replace(paper.task, solver=solver), machine, solvers)
