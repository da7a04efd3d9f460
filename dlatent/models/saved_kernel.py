"""The map of a kernel model as variables: the rows that it compares new ones with, and what it makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Features
from dlatent.containers import check_parts
from dlatent.engine.machine import memory
from dlatent.errors import StoreError
from dlatent.fitted.room import SHARE
from dlatent.linear_gaussian.kernel_map import KernelMap
from dlatent.linear_gaussian.kernel_passes import stacked
from dlatent.operators.kernels import NAMES, Kernel
from dlatent.stores.memory import held


def map_variables(features: KernelMap, *, rows: bool) -> dict[str, Any]:
    """The variables of the map; with `rows` also the training rows, which a saved model needs and `result_` not.

    Errors: StoreError where these do not fit in memory.
    """
    found = {
        "combinations": features.combinations,
        "coordinate_offset": features.offset,
        "feature_middle": features.middle,
    }
    if rows and features.kernel.shift is not None:
        found["kernel_shift"] = features.kernel.shift
    if rows and features.rows:
        found |= _rows(features)
    return found


def _rows(features: KernelMap) -> dict[str, Any]:
    size = sum(block.nbytes for block in features.rows)
    if size > SHARE * memory():
        raise StoreError(
            f"the model compares new rows with {size / 2**30:.1f} GiB of training rows, which do not fit in memory to "
            "be saved; fit it with landmarks, or on a machine with more memory"
        )
    values: Features = stacked(tuple(block.load() for block in features.rows))
    bounds = np.array([*(block.start for block in features.rows), values.shape[0]], dtype=np.int64)
    found = {"training_edges": bounds}
    if isinstance(values, sp.csr_array):
        return found | {
            "training_values": values.data,
            "training_columns": values.indices,
            "training_pointers": values.indptr,
        }
    return found | {"training_rows": np.asarray(values)}


def map_attributes(features: KernelMap, columns: int) -> dict[str, Any]:
    """The numbers of the kernel, and of the `columns` of its rows.

    Errors: StoreError for a kernel that is a function, which no store can keep.
    """
    if features.kernel.function is not None:
        raise StoreError("a kernel that is a function cannot be saved; name a kernel, or give it precomputed")
    kernel = features.kernel
    return {
        "kernel": {"name": kernel.name, "gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0},
        "length": features.length,
        "dimension": features.dimension,
        "trace_error": features.trace_error,
        "columns": columns,
    }


def _check_rows(rows: Features, values: dict[str, Any], columns: int) -> None:
    """Refuse training rows that do not fit what is made of them. Errors: StoreError."""
    bounds = values["training_edges"]
    if rows.shape != (len(values["feature_middle"]), columns):
        raise StoreError(f"there are training rows of shape {rows.shape} for {len(values['feature_middle'])} weights")
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != rows.shape[0] or (np.diff(bounds) < 1).any():
        raise StoreError(f"'training_edges' do not cut {rows.shape[0]} training rows into blocks")


def restored_map(values: dict[str, Any], attributes: dict[str, Any]) -> KernelMap:
    """The map of a saved model. Errors: StoreError for a kernel or rows that no model has."""
    numbers = attributes["kernel"]
    kernel = Kernel(numbers["name"], numbers["gamma"], numbers["degree"], numbers["coef0"])
    if kernel.name not in NAMES or not np.isfinite([kernel.gamma, kernel.coef0, float(kernel.degree)]).all():
        raise StoreError(f"there is no kernel {kernel}")
    sizes = attributes["length"], attributes["trace_error"], attributes["dimension"]
    if not np.isfinite(sizes).all() or sizes[2] < 1:
        raise StoreError(f"length, trace error and dimension of the features are {sizes}")
    rows: Features | None = values.get("training_rows")
    if "training_values" in values:
        shape = (len(values["training_pointers"]) - 1, attributes["columns"])
        parts = (values["training_values"], values["training_columns"], values["training_pointers"])
        rows = sp.csr_array(parts, shape=shape)
        check_parts(rows, "the training rows")
    if rows is not None:
        _check_rows(rows, values, attributes["columns"])
    return KernelMap(
        replace(kernel, shift=values.get("kernel_shift")),
        () if rows is None else held(rows, values["training_edges"].tolist()),
        values["combinations"],
        values["coordinate_offset"],
        values["feature_middle"],
        attributes["length"],
        attributes["dimension"],
        attributes["trace_error"],
    )
