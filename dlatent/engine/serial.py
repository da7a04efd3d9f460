"""The serial engine: a for-loop, the reference that the others must equal to the last bit."""

from __future__ import annotations

from dlatent.arrays import DataSource
from dlatent.engine.base import OnPass, OnProgress, PassEngine, Progress, require_blocks
from dlatent.engine.cache import release
from dlatent.engine.gather import Resources
from dlatent.engine.machine import cache_share, memory
from dlatent.engine.order import reduce_tree
from dlatent.engine.part import Share, Work, join, parts_of, run_part
from dlatent.engine.targets import Targets, as_rows


class SerialEngine(PassEngine):
    """Passes over a data source in this thread, one block after the other.

    `targets` are the rows that blocks carry (see `dlatent.engine.targets`); `cache_bytes` caps the blocks kept between
    passes (default: 40 % of the memory).
    """

    def __init__(
        self,
        source: DataSource,
        *,
        targets: Targets = None,
        cache_bytes: int | None = None,
        on_pass: OnPass | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        super().__init__(source, _InThisThread(require_blocks(source), targets, cache_bytes), on_pass, on_progress)


class _InThisThread:
    def __init__(self, source: DataSource, targets: Targets, cache_bytes: int | None) -> None:
        limit = memory()
        cap = cache_share(limit) if cache_bytes is None else cache_bytes
        self.resources = Resources("serial", 1, 1, limit, cap)
        self._key = source.key
        self._parts = parts_of(source, as_rows(targets, source.shape[0]), cap)

    @property
    def groups(self) -> int:
        return len(self._parts)

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        def leaf(group: int) -> Share:
            share = run_part(self._parts[group], work)
            if progress is not None:
                progress.done()
            return share

        return reduce_tree(leaf, lambda shares: join(shares, work), self.groups), self.groups

    def close(self) -> None:
        release(self._key)
