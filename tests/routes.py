"""One route for all fits of a block: the solver "em" leaves the choice to the planner, and tests compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from dlatent.fitting import planner
from dlatent.fitting.plan import Plan, Problem
from dlatent.fitting.routes import ROUTES
from dlatent.passes import Resources


@contextmanager
def only_route(name: str) -> Iterator[None]:
    """The planner knows the route of this name and no other."""
    with mock.patch("dlatent.models.task.ROUTES", {name: ROUTES[name]}):
        yield


def make_plan(problem: Problem, machine: Resources, solver: str = "auto") -> Plan:
    """The plan for a problem, by all routes."""
    return planner.make_plan(problem, machine, ROUTES, solver)
