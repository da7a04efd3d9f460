"""What tells one view from another, where it was learned after the fit: a regression for every two views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from dlatent.errors import StoreError
from dlatent.fitted.stored import Values
from dlatent.gaussian.view_heads import ViewHead
from dlatent.stores.schema import Variable

DIMS = {"left": "view_head_given", "right": "view_head_direction", "offset": "view_head", "variance": "view_head"}
"""Dimensions of the entries of all regressions, one after the other."""


@dataclass(frozen=True, eq=False)
class ViewHeads:
    """The regressions by the numbers of the view that is given and of the other."""

    each: Mapping[tuple[int, int], ViewHead]

    def variables(self) -> dict[str, Variable]:
        """Their entries."""
        return {
            f"view_head_{field}": Variable(
                (dim,), np.concatenate([getattr(h, field).ravel() for h in self.each.values()])
            )
            for field, dim in DIMS.items()
        }

    def json_values(self) -> dict[str, Any]:
        """The views that they are of, and their shapes."""
        return {"views": [(*views, *head.left.shape, head.right.shape[1]) for views, head in self.each.items()]}

    @classmethod
    def from_saved(cls, values: Values, saved: Values) -> ViewHeads:
        """The regressions that were kept as these.  Errors: StoreError."""
        lines = [tuple(line) for line in saved["views"]]
        if any(len(line) != 5 or any(type(number) is not int or number < 0 for number in line) for line in lines):
            raise StoreError(f"the regressions between views are {lines}, which no fit leaves")
        each, starts = dict[tuple[int, int], ViewHead](), dict.fromkeys(DIMS, 0)
        arrays = {field: values.pop(f"view_head_{field}") for field in DIMS}
        for given, other, known, directions, wanted in lines:
            shapes = {
                "left": (known, directions),
                "right": (directions, wanted),
                "offset": (wanted,),
                "variance": (wanted,),
            }
            parts = {}
            for field, shape in shapes.items():
                start, starts[field] = starts[field], starts[field] + prod(shape)
                parts[field] = arrays[field][start : starts[field]].reshape(shape)
            each[given, other] = ViewHead(**parts)
        if any(len(array) != starts[field] for field, array in arrays.items()):
            raise StoreError(f"the regressions between views do not have the shapes {lines}")
        return cls(each)

    def require_sizes(self, sizes: tuple[int, ...]) -> None:
        """Refuse regressions of other views than those of these sizes.  Errors: StoreError."""
        for (given, other), head in self.each.items():
            known = max(given, other) < len(sizes)
            if not known or (sizes[given], sizes[other]) != (len(head.left), len(head.offset)):
                raise StoreError(f"the regression of view {other} on view {given} is none of views of {sizes} features")
