"""Results as dlatent 0.1 wrote them, in the words of today: what was renamed since, and what is no longer kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlatent.stores.schema import Variable

VARIABLES = {"view_instances": "view_samples"}
"""Names of variables that have another one today."""
DIMENSIONS = {"instance": "sample"}
"""The same of dimensions."""
ATTRIBUTES = {"instances": "samples"}
"""The same of attributes."""
HYPERPARAMETERS = {"suspect_data": "zero_rows"}
"""The same of parameters of the estimators."""
VALUES = {(name, "refuse"): "raise" for name in ("zero_rows", "missing", "disconnected")}
"""Values of parameters, each after the name of today, that are other ones today."""
SOLVERS = {"moments": "covariance", "dual": "gram", "rows": "accelerated_em"}
"""Names of solvers that have another one today."""
PASSES = {"pilot": "initial mean"}
"""The same of passes."""
PLAN = ("reason", "passes", "bytes_per_pass", "bytes_total", "worker_memory", "driver_memory", "machine")
"""What is kept of a plan."""


def from_format_1(
    attributes: dict[str, Any], variables: dict[str, Variable]
) -> tuple[dict[str, Any], dict[str, Variable]]:
    """Attributes and variables of a result of format 1 as those of format 2."""
    found = {ATTRIBUTES.get(name, name): value for name, value in attributes.items()}
    made = {VARIABLES.get(name, name): _renamed(variable) for name, variable in variables.items()}
    if "pass_name" in made:
        names = made["pass_name"]
        renamed = np.array([PASSES.get(name, name) for name in names.values.tolist()], dtype=str)
        made["pass_name"] = Variable(names.dims, renamed, names.attrs)
    if "parameters" in found:
        found["parameters"] = _parameters(found["parameters"])
    if "plan" in found:
        plan = found["plan"]
        links = plan["problem"].get("links")
        if links is not None:
            found["edges"] = links // 2
        found["plan"] = {"solver": SOLVERS.get(plan["route"], plan["route"]), **{name: plan[name] for name in PLAN}}
        means = [made[name].values for name in ("mean", "coordinate_mean", "rank_mean") if name in made]
        found.setdefault("view_sizes", [len(mean) for mean in means])
    return found, made


def _renamed(variable: Variable) -> Variable:
    return Variable(tuple(DIMENSIONS.get(dim, dim) for dim in variable.dims), variable.values, variable.attrs)


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator under their names of today, with the values of today."""
    found = {HYPERPARAMETERS.get(name, name): value for name, value in given.items()}
    for (name, old), new in VALUES.items():
        if found.get(name) == old:
            found[name] = new
    if "route" in found:
        # One parameter has taken the place of two.
        route = found.pop("route")
        found["solver"] = "em" if found["solver"] == "em" else SOLVERS.get(route, route)
    return found
