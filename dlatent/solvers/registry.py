"""All solvers, in the order in which messages name them.  A new one is a file beside these and a line here."""

from __future__ import annotations

from dlatent.solvers.covariance import CovarianceSolver
from dlatent.solvers.gram.solver import GramSolver
from dlatent.solvers.kernel.landmarks import LandmarksSolver
from dlatent.solvers.kernel.solver import MemorySolver, RecomputedSolver, StoredSolver
from dlatent.solvers.krylov import KrylovSolver
from dlatent.solvers.missing.solver import AcceleratedEMSolver
from dlatent.solvers.mixture.solver import MixtureSolver
from dlatent.solvers.solver import Solver

_ALL: tuple[Solver, ...] = (
    CovarianceSolver(),
    KrylovSolver(),
    GramSolver(),
    AcceleratedEMSolver(),
    MemorySolver(),
    RecomputedSolver(),
    StoredSolver(),
    LandmarksSolver(),
    MixtureSolver(),
)
SOLVERS = {solver.name: solver for solver in _ALL}
