"""All routes, in the order in which messages name them.  A new one is a file beside these and an entry here."""

from __future__ import annotations

from dlatent.fitting.planner import Route
from dlatent.fitting.routes.accelerated_em import AcceleratedEMRoute
from dlatent.fitting.routes.covariance import CovarianceRoute
from dlatent.fitting.routes.gram import GramRoute
from dlatent.fitting.routes.kernel import MemoryRoute, RecomputedRoute, StoredRoute
from dlatent.fitting.routes.krylov import KrylovRoute
from dlatent.fitting.routes.landmarks import LandmarksRoute
from dlatent.fitting.routes.mixture import MixtureRoute

_ALL: tuple[Route, ...] = (
    CovarianceRoute(),
    KrylovRoute(),
    GramRoute(),
    AcceleratedEMRoute(),
    MemoryRoute(),
    RecomputedRoute(),
    StoredRoute(),
    LandmarksRoute(),
    MixtureRoute(),
)
ROUTES = {route.name: route for route in _ALL}
