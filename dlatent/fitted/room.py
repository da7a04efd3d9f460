"""How much of the driver's memory one matrix or one model may take."""

from __future__ import annotations

from dlatent.engine.machine import memory
from dlatent.errors import PlanError
from dlatent.solvers.plan import size

SHARE = 0.5
"""Fraction of the driver's memory that a model may fill while it is saved or loaded, and a matrix that is asked of
it."""
FACTORS = (
    "use the loadings W (features × components) and the noise variances Ψ of the model instead: C v = W (Wᵀ v) + Ψ v, "
    "and rows of C are W[some] @ W.T"
)
"""Hint in the place of a large covariance."""


def require_room(rows: int, columns: int, what: str, instead: str) -> None:
    """Refuse a matrix that would fill the memory before it is asked for.  Errors: PlanError."""
    nbytes, limit = 8 * rows * columns, memory()
    if nbytes > SHARE * limit:
        raise PlanError(
            f"{what}, {rows:,} × {columns:,}, takes {size(nbytes)}, more than half of the {size(limit)} of memory "
            f"here; {instead}"
        )
