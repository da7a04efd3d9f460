"""Fitted models of kernel features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, BlockSource, Features
from dlatent.containers import check_parts
from dlatent.engine.machine import memory
from dlatent.errors import StoreError
from dlatent.fitted.fit import SHARE, Summary
from dlatent.fitted.linear import Linear
from dlatent.fitted.rows import Complete, KernelRows
from dlatent.fitted.stored import Values, attribute, part, stored
from dlatent.gaussian.kernel import KernelMap
from dlatent.operators.kernels import NAMES, Kernel
from dlatent.operators.sparse import stacked
from dlatent.stores.rows import rows_in_memory
from dlatent.stores.schema import Variable


@dataclass(frozen=True, eq=False)
class Compared:
    """The kernel, and the rows that it compares new ones with, none where it is given; rows have so many `columns`."""

    kernel: Kernel
    rows: tuple[BlockSource, ...]
    columns: int

    def variables(self) -> dict[str, Variable]:
        """The shift of the rows before the kernel, and the training rows.

        Errors: StoreError where these do not fit in memory.
        """
        shift = self.kernel.shift
        arrays = {} if shift is None else {"kernel_shift": Variable(("feature",), shift)}
        if not self.rows:
            return arrays
        size = sum(block.nbytes for block in self.rows)
        if size > SHARE * memory():
            raise StoreError(
                f"the model compares new rows with {size / 2**30:.1f} GiB of training rows, which do not fit in memory "
                "to be saved; fit it with landmarks, or on a machine with more memory"
            )
        values: Features = stacked(tuple(block.load() for block in self.rows))
        edges = np.array([*(block.start for block in self.rows), values.shape[0]], dtype=np.int64)
        arrays["training_edges"] = Variable(("edge",), edges)
        if not isinstance(values, sp.csr_array):
            return arrays | {"training_rows": Variable(("training", "feature"), values)}
        return arrays | {
            "training_values": Variable(("entry",), values.data),
            "training_columns": Variable(("entry",), values.indices),
            "training_pointers": Variable(("pointer",), values.indptr),
        }

    @property
    def numbers(self) -> dict[str, Any]:
        """Name and numbers of the kernel, as JSON values."""
        return {name: getattr(self.kernel, name) for name in ("name", "gamma", "degree", "coef0")}

    def json_values(self) -> dict[str, Any]:
        """The numbers of the kernel, and of columns.

        Errors: StoreError for a kernel that is a function, which no store can keep.
        """
        if self.kernel.function is not None:
            raise StoreError("a kernel that is a function cannot be saved; name a kernel, or give it precomputed")
        return {"kernel": self.numbers, "columns": self.columns}

    @classmethod
    def from_saved(cls, values: Values, saved: Values) -> Compared:
        """Read the rows and the kernel.  Errors: StoreError for a kernel or rows that no model has."""
        kernel, columns = Kernel(**saved["kernel"], shift=values.pop("kernel_shift", None)), saved["columns"]
        if kernel.name not in NAMES or not np.isfinite([kernel.gamma, kernel.coef0, float(kernel.degree)]).all():
            raise StoreError(f"there is no kernel {kernel}")
        rows: Features | None = values.pop("training_rows", None)
        if "training_values" in values:
            pointers = values.pop("training_pointers")
            parts = (values.pop("training_values"), values.pop("training_columns"), pointers)
            rows = sp.csr_array(parts, shape=(len(pointers) - 1, columns))
            check_parts(rows, "the training rows")
        if rows is None:
            return cls(kernel, (), columns)
        edges = values.pop("training_edges")
        if len(edges) < 2 or edges[0] != 0 or edges[-1] != rows.shape[0] or (np.diff(edges) < 1).any():
            raise StoreError(f"'training_edges' do not cut {rows.shape[0]} training rows into blocks")
        if rows.shape[1] != columns:
            raise StoreError(f"there are training rows of shape {rows.shape} for rows of {columns} features")
        return cls(kernel, rows_in_memory(rows, edges.tolist()), columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelGaussian(Linear):
    """A linear-Gaussian model of features that a kernel makes, in the K coordinates of the span of its loadings.

    Parameters
    ----------
    dual_components : A, loadings as combinations of the centred features of the rows that the model keeps.
    combinations, offset, middle, length, feature_dimension, trace_error : as in `KernelMap`.
    row_units : what rows are divided by before the kernel looks at them.
    """

    loadings: Array = stored("coordinate", "component", name="coordinate_loadings")
    mean: Array = stored("coordinate", name="coordinate_mean")
    dual_components: Array = stored("training", "component")
    combinations: Array = stored("training", "coordinate")
    offset: Array = stored("coordinate", name="coordinate_offset")
    middle: Array = stored("training", name="feature_middle")
    length: float = attribute()
    feature_dimension: int = attribute()
    trace_error: float = attribute()
    compared: Compared = part(saved_only=True)
    row_units: Array | None = stored("feature", name="kernel_scale", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.length, self.trace_error, self.feature_dimension
        if not np.isfinite(sizes).all() or sizes[2] < 1:
            raise StoreError(f"length, trace error and dimension of the features are {sizes}")
        rows = self.compared.rows
        if rows and rows[-1].stop != len(self.middle):
            raise StoreError(f"there are {rows[-1].stop} training rows for {len(self.middle)} weights")

    @cached_property
    def map(self) -> KernelMap:
        """From rows to coordinates."""
        compared, numbers = self.compared, (self.length, self.feature_dimension, self.trace_error)
        return KernelMap(compared.kernel, compared.rows, self.combinations, self.offset, self.middle, *numbers)

    @cached_property
    def rows(self) -> KernelRows:
        """Functions of single rows."""
        return KernelRows(self.map, Complete(self.parameters, self.specification), units=self.row_units)

    def in_data_units(self, units: Array) -> Self:
        """The model of rows x, of a fit to x/units."""
        return replace(self, row_units=units)

    @property
    def dimension(self) -> int:
        """The number of features that share the noise."""
        return self.feature_dimension

    @property
    def columns(self) -> int:
        """The number of features in a row."""
        return self.compared.columns

    def told(self) -> Summary:
        """The kernel."""
        more = {"dimension": self.feature_dimension, "trace_error": self.trace_error}
        return {"kernel": self.compared.numbers | more}

    @property
    def row_precision(self) -> float:
        """The precision of a row by itself: 1."""
        return 1.0

    def display_names(self) -> Any:
        """None: features are never written down."""
        return ()
