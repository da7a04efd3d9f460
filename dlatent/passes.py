"""A pass: one visit of the data, declared as a value.

The mathematics says what is done with every block and how the results meet; the engine says where and in which tasks.

Laws (tested in tests/engine):
1. The result of a pass is `map(block, parameters)` of all blocks, joined by `combine` in one fixed order that depends
   on the blocks alone.
2. It does not depend, to the last bit, on the executor, the number of workers or threads, on caching or on a lost
   worker.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from dlatent.arrays import Block, Form, Rows, add

P = TypeVar("P")
S = TypeVar("S")
V = TypeVar("V")


@dataclass(frozen=True)
class NoExchange:
    """Blocks do not meet: each is mapped by itself."""


MET_ENTRIES = 2_000_000
"""Entries of sparse rows after their last hop that are made at a time where no features are needed."""


@dataclass(frozen=True)
class Edges:
    """Rows meet their neighbours in a graph of adjacency matrix A before they are mapped.

        R₀ = rows(block, p);   R_k = keep(R₀, R_{k−1}, k, p) + A R_{k−1}, k = 1 … hops

    What is mapped is the block with R₀ and R_hops.

    `keep` makes an array of its own, of each row by itself and linear in it.  `normalised`: S = D^(−½) A D^(−½) takes
    the place of A, with the degrees D, the sums of the weights of each row; a row without edges meets nobody.  Without
    `features` the map gets blocks of no columns, which are not read again.
    """

    rows: Callable[[Block, Any], Rows]
    keep: Callable[[Rows, Rows, int, Any], Rows]
    hops: int
    normalised: bool = False
    features: bool = True


@dataclass(frozen=True)
class Pairs:
    """Every block b meets every block, itself among them.

        V_b = along over all b' of map(b, b', p);   the result of b is finish(b, V_b, p), or V_b without `finish`

    Values should be thin (n rows of the own block, few columns).  `mutual`: two blocks meet once, and `map` returns a
    value for each of them, of which a block that meets itself takes the first; values of neighbouring blocks b' then
    join first among themselves (those of a group, or of several where there are more than 128 groups).  `listed`: the
    results of all blocks become a tuple in their order instead of meeting by `combine`.
    """

    along: Callable[[Any, Any], Any]
    finish: Callable[[Block, Any, Any], Any] | None
    mutual: bool
    listed: bool


@dataclass(frozen=True)
class Tiles:
    """Every two groups of blocks g ≤ g' meet once, all their blocks in memory: map(blocks of g, blocks of g', p).

    The result is a tuple in the order of (g, g'); where g' is g, `map` gets the same list twice.
    """


ExchangePattern: TypeAlias = NoExchange | Edges | Pairs | Tiles
"""Pattern of the exchange between blocks before each gives its result."""


@dataclass(frozen=True, eq=False)
class Pass(Generic[P, S]):
    """One visit of the data.

    Parameters
    ----------
    map : a pure function that other processes can import; leaves its block as it is.
    parameters : its last argument, sent once to each process.
    combine : joins the results of different blocks; may update arrays, and arrays in tuples, on the left in place.
    exchange : what blocks meet first (see `Edges`, `pair_pass`, `tile_pass`).
    form : another form of the rows, made when a block is read and kept for later passes that ask for it.  Blocks that
        lie in memory stay as they are, so the result must not depend on it.
    count : counts something in every block beside the map, where blocks do not meet each other; the engine adds it up.
    cached : whether blocks that are read may stay in memory for later passes.
    recorded : whether a checkpoint may keep the result in the place of the pass; not where `map` writes something.
    name : of the pass in records and displays of progress.
    """

    map: Callable[[Block, P], S]
    parameters: P
    combine: Callable[[S, S], S] = field(default=add, kw_only=True)
    exchange: ExchangePattern = field(default=NoExchange(), kw_only=True)
    form: Form | None = field(default=None, kw_only=True)
    count: Callable[[Block], int] | None = field(default=None, kw_only=True)
    cached: bool = field(default=True, kw_only=True)
    recorded: bool = field(default=True, kw_only=True)
    name: str = field(default="pass", kw_only=True)


class Run(Protocol):
    """Runs a pass over the data at hand."""

    def __call__(self, pass_: Pass[Any, S], /) -> S:
        """The result of the pass."""
        ...


def pair_pass(
    meet: Callable[[Any, Any, P], Any],
    parameters: P,
    *,
    along: Callable[[V, V], V] = add,
    finish: Callable[[Block, V, P], Any] | None = None,
    combine: Callable[[Any, Any], Any] | None = None,
    mutual: bool = False,
    recorded: bool = True,
    name: str = "pairs",
) -> Pass[Any, Any]:
    """A pass in which every block meets every block; see `Pairs`.  Without `combine` the results are a tuple."""
    pairs = Pairs(along, finish, mutual, listed=combine is None)
    combine = combine or operator.add
    return Pass(cast(Any, meet), parameters, combine=combine, exchange=pairs, recorded=recorded, name=name)


def tile_pass(
    meet: Callable[[Sequence[Block], Sequence[Block], P], S], parameters: P, *, name: str = "tiles"
) -> Pass[Any, tuple[S, ...]]:
    """A pass in which every two groups of blocks meet once; see `Tiles`."""
    return Pass(cast(Any, meet), parameters, combine=operator.add, exchange=Tiles(), name=name)


@dataclass(frozen=True)
class Resources:
    """Resources of an executor, or those of them that a plan may use.

    Parameters
    ----------
    kind : "serial", "threads" of this process, or "cluster".
    workers, threads : worker processes, and threads of each.
    worker_memory : bytes of a worker process, None where they are not known.
    cache_bytes : bytes of blocks that each keeps between passes.
    driver_memory : bytes of the driver's process; resources are the same whoever asks for them.
    bandwidth, price : bytes that a worker gets in a second, and what one costs for an hour, where these are known.
    """

    kind: str
    workers: int
    threads: int
    worker_memory: int | None
    cache_bytes: int
    driver_memory: int = field(compare=False)
    bandwidth: float | None = None
    price: float | None = None

    @property
    def total_threads(self) -> int:
        """Block functions that can run at one time."""
        return self.workers * self.threads
