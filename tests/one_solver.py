"""One solver for all fits of a block: "em" leaves the choice to the planner, and tests compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from dlatent.solvers.planner import SOLVERS


@contextmanager
def only_solver(name: str) -> Iterator[None]:
    """The planner knows the solver of this name and no other."""
    with mock.patch.dict(SOLVERS, {name: SOLVERS[name]}, clear=True):
        yield
