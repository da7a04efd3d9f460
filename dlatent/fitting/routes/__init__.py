"""All routes, in the order in which messages name them.  A new one is a file beside these and an entry here."""

from __future__ import annotations

from dlatent.fitting.route import Route
from dlatent.fitting.routes.dual import DualRoute
from dlatent.fitting.routes.krylov import KrylovRoute
from dlatent.fitting.routes.moments import MomentsRoute
from dlatent.fitting.routes.rows import RowsRoute

ROUTES: tuple[Route, ...] = (MomentsRoute(), KrylovRoute(), DualRoute(), RowsRoute())
