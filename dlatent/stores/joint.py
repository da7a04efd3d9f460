"""Several views of the same samples, each in its own store, read as one source of joint samples.

Samples are sorted by the views that they have, so that a block holds the features of the same views side by side
(`joint_rows`).  Each row is asked of its view once a pass, and rows in order are read in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from dlatent.arrays import BlockSource, DataSource
from dlatent.stores.joint_rows import JointRows, Table, view_rows
from dlatent.stores.partition import wanted_bytes
from dlatent.stores.places import read_places

MANY_REREADS = 4.0
"""Blocks loaded in a pass for each one that there is, above which the plan tells of it."""


@dataclass(frozen=True)
class JointSource(DataSource):
    """Joint samples, sorted by pattern: `views` by name, the views that each of the `patterns` has, and the `bounds`
    between the patterns among the samples.

    `order` (samples,) says which line of the table each sorted sample is; `rereads` how many blocks of the views
    are loaded in a pass for each one that there is.
    """

    views: Mapping[str, DataSource] = field(default_factory=dict)
    patterns: tuple[tuple[int, ...], ...] = ()
    bounds: tuple[int, ...] = (0,)
    order: Table = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)
    rereads: float = 1.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features of each view."""
        return tuple(source.shape[1] for source in self.views.values())

    @property
    def dense(self) -> tuple[bool, ...]:
        """Whether each view is dense."""
        return tuple(not source.sparse for source in self.views.values())


def joint(
    views: Mapping[str, DataSource],
    table: Table,
    *,
    block_bytes: int | None = None,
    refuse_zero_rows: Iterable[str] = (),
) -> JointSource:
    """Join views by a table (samples, views) of their rows, −1 where a sample lacks the view.

    Law: each row that the table names is loaded once a pass.  A block holds samples of one pattern in the order of
    the rows of its first view, whose blocks are not split but for size; it has about `block_bytes` (None: as `open`).
    `refuse_zero_rows` names the views in which no row may be all zeros.
    """
    refused = tuple(refuse_zero_rows)
    sources, has = list(views.values()), table >= 0
    # A number for each set of views: sorting numbers is much faster than sorting rows.
    codes = has @ (1 << np.arange(has.shape[1]))
    _, examples, number = np.unique(codes, return_index=True, return_inverse=True)
    patterns = _patterns(has[examples])
    rank = np.array([patterns.index(_pattern(row)) for row in has[examples]])
    pattern_of = rank[number]
    lead = table[np.arange(len(table)), has.argmax(axis=1)]
    order = np.lexsort((lead, pattern_of))
    bounds = np.searchsorted(pattern_of[order], np.arange(len(patterns) + 1)).tolist()
    row_bytes = [source.nbytes / source.shape[0] for source in sources]
    most = wanted_bytes(block_bytes, int((has.sum(axis=0) * row_bytes).sum()))
    lazy = [source.blocks[0].collection is not None for source in sources]
    computed = any(lazy) and all(own or source.in_memory for own, source in zip(lazy, sources, strict=True))
    blocks: list[JointRows] = []
    for pattern, (start, stop) in zip(patterns, pairwise(bounds), strict=True):
        one = max(sum(row_bytes[view] for view in pattern), 1.0)
        cuts = _cuts(sources[pattern[0]], lead[order[start:stop]], max(1, int(most / one)))
        for first, last in cuts:
            rows = table[order[start + first : start + last]]
            parts = tuple(view_rows(list(views)[view], sources[view], rows[:, view]) for view in pattern)
            size = int((last - first) * one)
            blocks.append(JointRows(start + first, start + last, size, parts, refused, computed))
    loads = sum(len(view.pieces) for block in blocks for view in block.views)
    rereads = loads / sum(len(source.blocks) for source in sources)
    return JointSource(
        (len(table), sum(source.shape[1] for source in sources)),
        np.result_type(*(source.dtype for source in sources)),
        cast("tuple[BlockSource, ...]", tuple(blocks)),
        uuid4().hex,
        sparse=any(source.sparse for source in sources),
        nnz=_entries(sources, has.sum(axis=0).tolist()),
        description=_description(views, rereads),
        in_memory=all(source.in_memory for source in sources),
        decoding=max(source.decoding for source in sources),
        check=partial(_checked, [source.check for source in sources if source.check is not None]),
        places=read_places(views),
        views=views,
        patterns=patterns,
        bounds=tuple(bounds),
        order=order.astype(np.int64),
        rereads=rereads,
    )


def _checked(checks: Sequence[Callable[[], None]]) -> None:
    for check in checks:
        check()


def _entries(sources: Sequence[DataSource], rows: Sequence[int]) -> int | None:
    """About the stored entries of the rows that are used, those of dense views included; None where all are dense or
    nobody knows."""
    if not any(source.sparse for source in sources) or any(s.sparse and s.nnz is None for s in sources):
        return None
    each = (source.shape[1] if source.nnz is None else source.nnz / source.shape[0] for source in sources)
    return int(sum(own * count for own, count in zip(each, rows, strict=True)))


def _description(views: Mapping[str, DataSource], rereads: float) -> str:
    each = ", ".join(f"{name!r} ({source.description})" for name, source in views.items())
    if rereads <= MANY_REREADS:
        return f"views {each}"
    return (
        f"views {each}; corresponding rows lie far apart, so that each block is read {rereads:.1f} times a pass unless "
        "the joint samples stay in memory: store the views in the same order"
    )


def _cuts(source: DataSource, rows: Table, step: int) -> list[tuple[int, int]]:
    """Cut increasing rows of a view into blocks of about `step`, at the edges of its own blocks where these fit."""
    bounds = np.searchsorted(rows, [block.start for block in source.blocks] + [source.shape[0]]).tolist()
    found: list[tuple[int, int]] = []
    for start, stop in pairwise(bounds):
        if found and stop - found[-1][0] <= step:
            found[-1] = (found[-1][0], stop)
        elif stop > start:
            parts = -(-(stop - start) // (2 * step))
            inner = np.linspace(start, stop, parts + 1).astype(int).tolist()
            found += list(pairwise(inner))
    return found


def _pattern(row: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(row).tolist())


def _patterns(found: npt.NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    """The subsets of views that occur, those with more views first."""
    return tuple(sorted(map(_pattern, found), key=lambda pattern: (-len(pattern), pattern)))
