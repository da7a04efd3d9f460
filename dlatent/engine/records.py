"""What a pass cost."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class PassRecord:
    """What one pass cost.

    Parameters
    ----------
    name : str
        What the pass does.
    seconds : float
        Wall time.
    bytes_read : int
        Bytes of blocks loaded from their source; cached blocks cost none, blocks in memory count in the first pass
        only.
    blocks : int
        All blocks seen.
    cached : int
        Those that came from memory.
    tasks : int
        Tasks submitted.
    busy_seconds : float
        Time inside tasks, summed over workers.
    """

    name: str
    seconds: float
    bytes_read: int
    blocks: int
    cached: int
    tasks: int
    busy_seconds: float


@dataclass(frozen=True)
class PassCost:
    """The record of a pass or of a part of it, and what it counted beside (`Pass.count`)."""

    record: PassRecord
    counted: int

    def plus(self, other: PassCost) -> PassCost:
        """Both together."""
        one, two = self.record, other.record
        sums = (getattr(one, field.name) + getattr(two, field.name) for field in fields(one)[1:])
        return PassCost(PassRecord(one.name, *sums), self.counted + other.counted)
