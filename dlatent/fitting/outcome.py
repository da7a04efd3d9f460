"""What a fit returns: a value whose text is advice, never an exception for a fit that merely did not finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dlatent.arrays import Block, Form, Rows, add
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification

S = TypeVar("S")
P = TypeVar("P")


class Gather(Protocol):
    """One pass over the data: the sum over blocks of a block function (see the engine's protocol)."""

    def __call__(
        self,
        function: Callable[[Block, P], S],
        parameters: P,
        *,
        form: Form | None = None,
        name: str = "pass",
    ) -> S:
        """Sum of `function(block, parameters)` over all blocks, in another form of their rows where one is asked for
        and they are read."""
        ...


class GatherLinked(Protocol):
    """One pass in which rows meet their neighbours (see the engine's protocol)."""

    def __call__(
        self,
        rows: Callable[[Block, P], Rows],
        fold: Callable[[Block, P], S],
        parameters: P,
        *,
        keep: Callable[[Rows, P], Rows],
        hops: int,
        cached: bool = True,
        name: str = "linked pass",
    ) -> S:
        """Sum of `fold(block, parameters)` over all blocks, after `hops` exchanges of rows."""
        ...


class GatherPairs(Protocol):
    """One pass in which every block meets every block (see the engine's protocol)."""

    def __call__(
        self,
        meet: Callable[[Any, Any, P], Any],
        parameters: P,
        *,
        along: Callable[[S, S], S] = add,
        finish: Callable[[Block, S, P], Any] | None = None,
        combine: Callable[[Any, Any], Any] | None = None,
        mutual: bool = False,
        name: str = "pairs",
    ) -> Any:
        """The results of all blocks: of what a block's meetings with all blocks add up to, made by `finish`."""
        ...


class GatherTiles(Protocol):
    """One pass in which every two groups of blocks meet once (see the engine's protocol)."""

    def __call__(
        self, meet: Callable[[Sequence[Block], Sequence[Block], P], S], parameters: P, *, name: str = "tiles"
    ) -> tuple[S, ...]:
        """What each two groups g ≤ g' make of each other, in the order of (g, g')."""
        ...


@dataclass(frozen=True)
class Progress:
    """One line of a fit's history: the iteration, its log-likelihood in nats, the gain over the one before (NaN at
    first), the estimated relative distance to the optimum (NaN while unknown), and the width of the subspace (0 for
    EM)."""

    iteration: int
    log_likelihood: float
    gain: float
    remaining: float
    rank: int


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Outcome:
    """The result of a fit.

    `parameters` are canonical, over the stacked features; `log_likelihood` in nats over all instances; `at_floor` per
    noise variance; `advice` is what a user should know or do, one sentence each;
    `checked_log_likelihood` is that of a pass over the data, where one was made.
    """

    parameters: Parameters
    specification: Specification
    log_likelihood: float
    history: tuple[Progress, ...]
    converged: bool
    iterations: int
    at_floor: tuple[bool, ...]
    instances: int
    view_instances: tuple[int, ...]
    total_variance: tuple[float, ...]
    advice: tuple[str, ...] = ()
    checked_log_likelihood: float | None = None


@dataclass(frozen=True)
class Options:
    """What a user may say about the loop: relative tolerance of the log-likelihood, the most iterations, the seed, the
    noise floors as parts of the views' mean variances, the widest subspace the driver may hold, and whether rows of
    zeros and missing entries are refused."""

    tolerance: float
    max_iterations: int
    random_state: Any
    floor_parts: tuple[float, ...]
    max_rank: int
    precision: float
    verify: bool = True
    refuse_zero_rows: bool = True
    refuse_missing: bool = False
