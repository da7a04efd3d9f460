"""Data with what stands beside their entries: error bars, offsets, covariates, as further columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import DataSource, Features
from dlatent.errors import DataError, number_of
from dlatent.stores.joint import JointRows, joint, side_by_side
from dlatent.stores.rows import ChangedRows


class RowsBeside(JointRows):
    """Rows of the data, and the same rows of what stands beside them."""

    def _joined(self, parts: list[Features]) -> Features:
        return side_by_side(parts)


def with_beside(source: DataSource, others: Mapping[str, DataSource]) -> DataSource:
    """The source whose blocks hold the columns of others after its features.

    Law: each row of each is loaded once a pass, block by block.
    """
    rows = np.repeat(np.arange(source.shape[0])[:, None], 1 + len(others), axis=1)
    checked = {name: _checked(name, other) for name, other in others.items()}
    together = joint({"X": source, **checked}, rows, kind=RowsBeside)
    names = others["covariates"].labels.features if "covariates" in others else None
    return replace(
        source,
        blocks=together.blocks,
        key=together.key,
        labels=replace(source.labels, covariates=names),
        description=f"{source.description} with {' and '.join(others)}",
        in_memory=together.in_memory,
        decoding=together.decoding,
        check=together.check,
        places=together.places,
        beside=tuple((name, other.shape[1]) for name, other in others.items()),
    )


def _checked(name: str, source: DataSource) -> DataSource:
    """The source, each block of which is looked at when it is loaded."""
    blocks = (ChangedRows.of(block, partial(_sound, name=name, start=block.start)) for block in source.blocks)
    return replace(source, blocks=tuple(blocks))


def _sound(rows: Features, name: str, start: int) -> Features:
    """The rows, which begin at row `start` of the data, as dense ones, NaN where error bars are infinite.

    Errors: DataError naming row and column.
    """
    values: Any = rows.toarray() if isinstance(rows, sp.csr_array) else rows
    bars = name == "uncertainty"
    bad = values < 0.0 if bars else ~np.isfinite(values)
    if bad.any():
        row, column = (int(each[0]) for each in np.nonzero(bad))
        wanted = "a standard deviation of at least 0, or NaN where an entry says nothing" if bars else "a finite number"
        count = number_of(int(bad.sum()), "such entry", "such entries")
        raise DataError(
            f"{name}, row {start + row}, column {column} is {values[row, column]:g}; expected {wanted} ({count} in its "
            "block)",
            column=column,
        )
    if bars and (infinite := np.isinf(values)).any():
        return np.where(infinite, np.nan, values)
    return np.asarray(values)
