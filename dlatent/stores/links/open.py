"""The door for graphs: one function that turns every accepted input into `Links`."""

from __future__ import annotations

from typing import Any, cast

import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Links
from dlatent.errors import DataError
from dlatent.stores.links.checks import check_instances
from dlatent.stores.links.direction import Direction, check_direction
from dlatent.stores.links.matrices import links_of_matrix


def open_links(
    links: Any,
    *,
    instances: int | None = None,
    direction: Direction | None = None,
    weights: npt.ArrayLike | None = None,
    ids: npt.ArrayLike | None = None,
) -> Links:
    """Open an undirected graph between instances, whose adjacency matrix A (N, N) can be loaded row by row anywhere."""
    check_direction(direction)
    if sp.issparse(links):
        opened = links_of_matrix(links, direction, f"scipy.sparse {cast(Any, links).format} matrix")
        check_instances(opened.instances, instances, opened.description)
        return opened
    raise DataError(f"cannot read links of type {type(links).__module__}.{type(links).__qualname__}")
