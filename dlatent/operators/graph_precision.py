"""Rank, determinant and inverse of a precision between samples, which is never formed.

A (N, N) is the symmetric adjacency matrix of a graph.  With eigenvalues λ, Δ = γI + (αI + A)² has the eigenvalues
γ + (α + λ)², and

    γ + (α + λ)² = |α + λ + i√γ|²,

so that everything about Δ comes from the sparse matrix αI + A + i√γI; A², which one hub can fill, does not appear.
A Δ that is given as a matrix takes the place of A.  Elimination with diagonal pivots tells whether it is definite: all
pivots of a definite matrix are positive, and their product is |Δ|.
Source: PRPCA, section 3.1 (with α in the place of 1), and errata 16 and 17 (docs/models/relational.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from dlatent.arrays import Array, Block, DataSource, Features, Graph, GraphRows
from dlatent.errors import DataError
from dlatent.operators.sample_precision import Precision, UserPrecision
from dlatent.passes import Pass

EXACT_SAMPLES = 20_000
"""Up to this many samples a sparse factorisation is asked for log|Δ|: its fill-in grows faster than the graph."""
EXACT_COMPONENT = 4_000
"""Samples of a connected component whose eigenvalues are found densely, for the rank of a singular Δ."""
NULL = 1e-9
"""An eigenvalue of αI + A, or of a given Δ, below this fraction of the largest is zero."""
RIGHT_SIDES = 256
REFINEMENTS = 3
REFINED = 1e-9
"""The last step of refinement is a smaller fraction of the solution than this (1e-15 measured for γ = 1e-6)."""
GRAPH_BLOCK_ENTRIES = 4_000_000
"""Stored edges that the multiplication with a graph beyond memory reads at a time."""
MEMORY_ENTRIES = 50_000_000
"""Up to this many stored edges (600 MB) a task keeps the graph in memory between multiplications."""
PROBES_A_TASK = 4
HINT = "add a little to its diagonal, such as Δ + 1e-6 I"


class Estimate(NamedTuple):
    """A value, and how sure it is.

    Parameters
    ----------
    value : float
        The estimate.
    standard_error : float
        Its standard error, 0 where it is exact.
    """

    value: float
    standard_error: float


def _shifted(adjacency: sp.csr_array, precision: Precision) -> sp.csc_array:
    """αI + A + i√γI."""
    n = adjacency.shape[0]
    return sp.csc_array(adjacency + (precision.alpha + 1j * np.sqrt(precision.gamma)) * sp.eye_array(n, format="csr"))


def _symmetric_factors(matrix: sp.csc_array) -> Any:
    """LU of a symmetric matrix with pivots on its diagonal, or None where one of them is zero."""
    try:
        return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        return None


def _definite_factors(matrix: sp.csr_array) -> Any:
    """LU of a given Δ with pivots on its diagonal, or None where Δ is not definite."""
    factors = _symmetric_factors(sp.csc_array(matrix))
    if factors is None:
        return None
    definite = factors.U.diagonal().min() > NULL * matrix.diagonal().max()
    return factors if definite and np.array_equal(factors.perm_r, factors.perm_c) else None


def component_eigenvalues(matrix: sp.csr_array, alpha: float) -> Array:
    """Eigenvalues of αI + A (N,) of a symmetric matrix A, component by component; O(n³) for the largest component of n
    samples.

    Errors: DataError where a component has more than EXACT_COMPONENT samples.
    """
    count, label = connected_components(matrix, directed=False)
    sizes = np.bincount(label, minlength=count)
    largest = int(sizes.max())
    if largest > EXACT_COMPONENT:
        raise DataError(
            f"γ = 0 needs the rank of Δ, and the graph has a connected component of {largest} samples, more than the "
            f"{EXACT_COMPONENT} whose eigenvalues are found; use gamma=1e-6, which gives the same subspace"
        )
    isolated = matrix.diagonal()[(sizes == 1)[label]]
    order = np.argsort(label, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    values = [isolated + alpha]
    for component in np.flatnonzero(sizes > 1):
        members = order[starts[component] : starts[component + 1]]
        values.append(np.asarray(la.eigvalsh(matrix[members][:, members].toarray())) + alpha)
    return np.concatenate(values)


def _roots(adjacency: sp.csr_array, precision: Precision) -> Array:
    """The roots of the eigenvalues of Δ for γ = 0 that are not zero: those of αI + A without their signs."""
    values = np.abs(component_eigenvalues(adjacency, precision.alpha))
    return np.asarray(values[values > NULL * max(values.max(), 1.0)])


def _eigenvalues(matrix: sp.csr_array) -> Array:
    """Eigenvalues of a given Δ that are not zero.

    Errors: DataError where one is negative.
    """
    values = component_eigenvalues(matrix, 0.0)
    least, most = float(values.min()), float(np.abs(values).max())
    if least < -NULL * most:
        raise DataError(
            f"the precision is not positive semi-definite: its smallest eigenvalue is {least:.3g}, its largest "
            f"{values.max():.3g}"
        )
    return np.asarray(values[values > NULL * most])


def rank(matrix: sp.csr_array, precision: Precision | UserPrecision) -> int:
    """Rank of Δ: N where it is definite, as for γ > 0, else the number of non-zero eigenvalues (for γ = 0 those of
    αI + A, of which an isolated pair has one 0).

    Errors: DataError where a connected component is too large for its eigenvalues, or a given Δ is not positive
    semi-definite.
    """
    if isinstance(precision, UserPrecision):
        return int(matrix.shape[0]) if _definite_factors(matrix) is not None else len(_eigenvalues(matrix))
    return int(matrix.shape[0]) if precision.gamma > 0.0 else len(_roots(matrix, precision))


def log_determinant(matrix: sp.csr_array, precision: Precision | UserPrecision) -> float:
    """log|Δ|, of a singular Δ over the non-zero eigenvalues: 2 log|det(αI + A + i√γI)| by a sparse factorisation.

    Errors: DataError where a given Δ is not positive semi-definite, or too large for its eigenvalues and singular.
    """
    if isinstance(precision, UserPrecision):
        factors = _definite_factors(matrix)
        if factors is not None:
            return float(np.log(factors.U.diagonal()).sum())
        if matrix.shape[0] > EXACT_COMPONENT:
            raise DataError(f"the precision is not positive definite, so that log|Δ| is not finite; {HINT}")
        return float(np.log(_eigenvalues(matrix)).sum())
    if precision.gamma == 0.0:
        return float(2.0 * np.log(_roots(matrix, precision)).sum())
    return float(2.0 * np.log(np.abs(splu(_shifted(matrix, precision)).U.diagonal())).sum())


def inverse_diagonal(matrix: sp.csr_array, precision: Precision | UserPrecision, rows: npt.NDArray[Any]) -> Array:
    """(Δ⁻¹)_ii for some samples (n,), in a graph −Im[(αI + A + i√γI)⁻¹]_ii / √γ.

    Errors: DataError for γ = 0, where Δ may have no inverse, and where a given Δ is not definite.
    """
    if isinstance(precision, UserPrecision):
        factors = _definite_factors(matrix)
        if factors is None:
            raise DataError(f"the variance of samples needs a positive definite precision, and this one is not; {HINT}")
        return np.asarray(_inverse_entries(factors, rows, np.float64))
    if precision.gamma == 0.0:
        raise DataError("the variance of samples in a graph needs gamma > 0: with γ = 0 the precision may be singular")
    entries = _inverse_entries(splu(_shifted(matrix, precision)), rows, np.complex128)
    return np.asarray(-entries.imag / np.sqrt(precision.gamma))


def _inverse_entries(factors: Any, rows: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The diagonal entries (n,) in some rows of the inverse of what was factorised."""
    entries = np.empty(len(rows), dtype=dtype)
    for start in range(0, len(rows), RIGHT_SIDES):
        some = np.asarray(rows[start : start + RIGHT_SIDES])
        unit = np.zeros((factors.shape[0], len(some)), dtype=dtype)
        unit[some, np.arange(len(some))] = 1.0
        entries[start : start + len(some)] = factors.solve(unit)[some, np.arange(len(some))]
    return entries


class Completed(NamedTuple):
    """−Δ_UU⁻¹Δ_UK R (u, b) for given rows R, the mean of the other rows given these about zero, and log|Δ_UU|."""

    rows: Array
    log_determinant: float


def completed(adjacency: sp.csr_array, precision: Precision, known: npt.NDArray[np.bool_], fixed: Array) -> Completed:
    """The rows of all other samples given those of some (n, b), `known` (N,), for γ > 0.

    The others minimise ‖(αI + A)R‖² + γ‖R‖².  With the columns M of αI + A that are theirs, and r = (αI + A)R of the
    given rows alone, they solve [√γI  M; Mᵀ  −√γI][s; −R_U] = [r; 0], with the square root of the condition number of
    Δ_UU.  That matrix is quasi-definite: elimination in any symmetric order finds pivots (Vanderbei 1995), so that the
    order is one of little fill-in, and steps of refinement take off what small pivots cost.
    Errors: DataError where γ is too small for that in double precision.
    """
    n, few, root = len(known), int((~known).sum()), float(np.sqrt(precision.gamma))
    inner = sp.csr_array(adjacency + precision.alpha * sp.eye_array(n, format="csr"))
    columns = sp.csc_array(inner)[:, ~known]
    corners = (root * sp.eye_array(n), -root * sp.eye_array(few))
    system = sp.csc_array(sp.block_array([[corners[0], columns], [columns.T, corners[1]]]))
    refused = DataError(
        f"gamma={precision.gamma:g} is too small beside the edges to tell in double precision what samples say of "
        "others that have no targets; take a larger gamma, such as 1e-6"
    )
    factors = _symmetric_factors(system)
    if factors is None:
        raise refused
    # det = ±γ^(N/2) |γI + MᵀM| / γ^(u/2).
    log_determinant = float(np.log(np.abs(factors.U.diagonal())).sum()) - 0.5 * (n - few) * np.log(precision.gamma)
    rows = np.empty((few, fixed.shape[1]))
    for start in range(0, fixed.shape[1], RIGHT_SIDES):
        some = slice(start, start + RIGHT_SIDES)
        right = np.zeros((n + few, rows[:, some].shape[1]))
        right[:n] = inner[:, known] @ fixed[:, some]
        solution = factors.solve(right)
        for _ in range(REFINEMENTS):
            change = factors.solve(right - system @ solution)
            solution += change
        if not np.abs(change).max(initial=0.0) <= REFINED * np.abs(solution).max(initial=0.0):
            raise refused
        rows[:, some] = -solution[n:]
    return Completed(rows, log_determinant)


def probe_log_determinants(
    multiply: Callable[[Array], Array], probes: Array, precision: Precision | UserPrecision, steps: int
) -> tuple[Array, Array]:
    """Stochastic Lanczos quadrature: N Σ_k τ_k² log(γ + (α + θ_k)²) for each probe v (columns, entries ±1).

    `multiply` gives AV for V (N, m).  θ and τ come from the tridiagonal matrix of `steps` Lanczos steps from v.  Of a Δ
    that is given it gives ΔV, and the logarithm is that of θ.
    Returns: the estimates (m,), and what the last quarter of the steps changed (m,), a sign of what is left.
    Source: Ubaru, Chen and Saad (2017), algorithm 1; no reorthogonalisation, which quadrature does not need.
    """
    n, m = probes.shape
    current, before = probes / np.sqrt(n), np.zeros_like(probes)
    diagonal, off_diagonal = np.zeros((steps, m)), np.zeros((steps, m))
    for step in range(steps):
        following = multiply(current)
        if step:
            following -= before * off_diagonal[step - 1]
        diagonal[step] = np.einsum("ij,ij->j", current, following)
        following -= current * diagonal[step]
        off_diagonal[step] = np.sqrt(np.einsum("ij,ij->j", following, following))
        before, current = current, following / np.where(off_diagonal[step] > 0.0, off_diagonal[step], 1.0)
    values = np.array([_quadrature(diagonal[:, j], off_diagonal[:, j], precision) for j in range(m)])
    short = max(1, 3 * steps // 4)
    early = np.array([_quadrature(diagonal[:short, j], off_diagonal[:short, j], precision) for j in range(m)])
    return n * values, n * (values - early)


def _quadrature(diagonal: Array, off_diagonal: Array, precision: Precision | UserPrecision) -> float:
    """Gauss quadrature of log(γ + (α + θ)²) or of log θ from a tridiagonal matrix, cut where the Krylov space ended."""
    ended = np.flatnonzero(off_diagonal[:-1] <= 1e-12 * np.abs(diagonal).max(initial=1.0))
    length = int(ended[0]) + 1 if len(ended) else len(diagonal)
    theta, vectors = la.eigh_tridiagonal(diagonal[:length], off_diagonal[: length - 1])
    weights = vectors[0] ** 2
    inner = precision.spectrum(np.asarray(theta, dtype=np.float64))
    return float(weights @ np.log(np.maximum(inner, np.finfo(float).tiny)))


def estimated(values: Array, changes: Array) -> Estimate:
    """The mean of probes (m,), with the standard error of the mean and the mean change of the last steps together."""
    spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
    return Estimate(float(values.mean()), float(np.hypot(spread, changes.mean())))


@dataclass(eq=False)
class ProbeRows:
    """The numbers of some random probes, as a block source: a task for each."""

    start: int
    stop: int
    nbytes: int
    collection: ClassVar[None] = None

    def load(self) -> Features:
        """The numbers of the probes (n, 1)."""
        return np.arange(self.start, self.stop, dtype=np.float64)[:, None]

    def assemble(self, parts: Iterable[Any]) -> Features:
        """The block itself."""
        (part,) = parts
        return cast(Features, part)


class ProbeRequest(NamedTuple):
    """The graph by rows, where they are cut, whether it stays in memory, Δ, and the Lanczos steps."""

    rows: GraphRows
    edges: tuple[int, ...]
    in_memory: bool
    precision: Precision | UserPrecision
    steps: int


def probe_source(samples: int, probes: int) -> DataSource:
    """Some probes as the data of a pass."""
    edges = [*range(0, probes, PROBES_A_TASK), probes]
    # Their size in bytes is that of the vectors that they become, so that each block is a task of its own.
    blocks = tuple(ProbeRows(a, b, 8 * samples * (b - a)) for a, b in pairwise(edges))
    return DataSource((probes, 1), np.dtype(np.float64), blocks, uuid4().hex, description="probes", in_memory=False)


def probe_pass(
    graph: Graph, precision: Precision | UserPrecision, steps: int
) -> Pass[ProbeRequest, tuple[Array, Array]]:
    """The pass over probes that estimates log|Δ|: see `probe_log_determinants`."""
    pieces = max(1, -(-graph.entries // GRAPH_BLOCK_ENTRIES))
    edges = tuple(np.linspace(0, graph.samples, pieces + 1).astype(int).tolist())
    request = ProbeRequest(graph.rows, edges, graph.entries <= MEMORY_ENTRIES, precision, steps)
    return Pass(probe_block, request, combine=joined_probes, name="log determinant")


def probe_block(block: Block, request: ProbeRequest) -> tuple[Array, Array]:
    """Estimates of log|Δ| from the probes of a block, and what their last steps changed."""
    numbers = np.asarray(block.features)[:, 0].astype(int)
    samples, cuts = request.edges[-1], list(pairwise(request.edges))
    signs = [np.random.default_rng([1, number]).integers(0, 2, samples) for number in numbers.tolist()]
    in_memory = [request.rows.load(a, b) for a, b in cuts] if request.in_memory else None

    def multiply(vectors: Array) -> Array:
        pieces = in_memory if in_memory is not None else (request.rows.load(a, b) for a, b in cuts)
        product: Array = np.concatenate([np.asarray(piece @ vectors) for piece in pieces])
        return product

    vectors = np.stack(signs, axis=1).astype(np.float64) * 2.0 - 1.0
    return probe_log_determinants(multiply, vectors, request.precision, request.steps)


def joined_probes(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Probes of both, one after the other."""
    return np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])
