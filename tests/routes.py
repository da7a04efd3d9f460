"""One route for all fits of a block: the solver "em" leaves the choice to the planner, and tests compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from dlatent.fitting.routes import ROUTES


@contextmanager
def only_route(name: str) -> Iterator[None]:
    """The planner knows the route of this name and no other."""
    (route,) = (route for route in ROUTES if route.name == name)
    with mock.patch("dlatent.fitting.planner.ROUTES", (route,)):
        yield
