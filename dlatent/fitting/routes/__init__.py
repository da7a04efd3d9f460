"""All routes, in the order in which messages name them.  A new one is a file beside these and an entry here."""

from __future__ import annotations

from dlatent.fitting.route import Route
from dlatent.fitting.routes.dual import Dual
from dlatent.fitting.routes.krylov import Krylov
from dlatent.fitting.routes.moments import Moments
from dlatent.fitting.routes.rows import Rows

ROUTES: tuple[Route, ...] = (Moments(), Krylov(), Dual(), Rows())
