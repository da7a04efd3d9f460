"""The precision between samples in a graph, Δ = γI + (αI + A)², known by what it does: it is never formed.

A (N, N) is the symmetric adjacency matrix of the graph.  With eigenvalues λ, Δ has the eigenvalues γ + (α + λ)², and

    γ + (α + λ)² = |α + λ + i√γ|²,

so that everything about Δ comes from the sparse matrix αI + A + i√γI; A², which one hub can fill, does not appear.
Source: PRPCA, section 3.1 (with α in the place of 1), and errata 16 and 17 (docs/models/relational.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from dlatent.arrays import Array, Rows
from dlatent.errors import DataError

EXACT_SAMPLES = 20_000
"""Up to this many samples a sparse factorisation is asked for log|Δ|: its fill-in grows faster than the graph."""
EXACT_COMPONENT = 4_000
"""Samples of a connected component whose eigenvalues are found densely, for the rank of a singular Δ."""
NULL = 1e-9
"""An eigenvalue of αI + A below this part of the largest is zero."""
RIGHT_SIDES = 256
REFINEMENTS = 3
REFINED = 1e-9
"""The last step of refinement is a smaller part of the solution than this (1e-15 measured for γ = 1e-6)."""


class Precision(NamedTuple):
    """Δ = γI + (αI + A)²: the numbers beside the graph.

    Parameters
    ----------
    alpha : float
        α, the weight of a sample beside its neighbours.
    gamma : float
        γ, the weight of the features alone.
    """

    alpha: float
    gamma: float

    @property
    def hops(self) -> int:
        """1: F is αI + A."""
        return 1

    @property
    def squared(self) -> bool:
        """True."""
        return True

    @property
    def normalised(self) -> bool:
        """False."""
        return False

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        """αR_{k−1}, what (αI + A)R_{k−1} has of a row itself."""
        return last * self.alpha

    def factor(self, hops: int) -> float:
        """1."""
        return 1.0

    def spectrum(self, values: Array) -> Array:
        """γ + (α + λ)² of eigenvalues λ of A."""
        return np.asarray(self.gamma + (self.alpha + values) ** 2)


class Spectral(Protocol):
    """A precision between samples whose eigenvalues follow from those of the matrix of the graph."""

    def spectrum(self, values: Array) -> Array:
        """The eigenvalues of Δ from those of what rows meet."""
        ...


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


def component_eigenvalues(adjacency: sp.csr_array, alpha: float) -> Array:
    """Eigenvalues of αI + A (N,), component by component; O(n³) for the largest component of n samples.

    Of any symmetric matrix in the place of A, too.

    Errors: DataError where a component has more than EXACT_COMPONENT samples.
    """
    count, label = connected_components(adjacency, directed=False)
    sizes = np.bincount(label, minlength=count)
    largest = int(sizes.max())
    if largest > EXACT_COMPONENT:
        raise DataError(
            f"γ = 0 needs the rank of Δ, and the graph has a connected component of {largest} samples, more than the "
            f"{EXACT_COMPONENT} whose eigenvalues are found; use gamma=1e-6, which gives the same subspace"
        )
    alone = adjacency.diagonal()[(sizes == 1)[label]]
    order = np.argsort(label, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    found = [alone + alpha]
    for component in np.flatnonzero(sizes > 1):
        members = order[starts[component] : starts[component + 1]]
        dense = adjacency[members][:, members].toarray()
        found.append(np.asarray(la.eigvalsh(dense)) + alpha)
    return np.concatenate(found)


def rank(adjacency: sp.csr_array, precision: Precision) -> int:
    """Rank of Δ: N for γ > 0, else the number of non-zero eigenvalues of αI + A (an isolated pair has one 0).

    Errors: DataError where γ = 0 and a connected component is too large for its eigenvalues.
    """
    if precision.gamma > 0.0:
        return int(adjacency.shape[0])
    values = np.abs(component_eigenvalues(adjacency, precision.alpha))
    return int((values > NULL * max(values.max(), 1.0)).sum())


def log_determinant(adjacency: sp.csr_array, precision: Precision) -> float:
    """log|Δ| = 2 log|det(αI + A + i√γI)| by a sparse factorisation; for γ = 0 over the non-zero eigenvalues."""
    if precision.gamma == 0.0:
        values = np.abs(component_eigenvalues(adjacency, precision.alpha))
        return float(2.0 * np.log(values[values > NULL * max(values.max(), 1.0)]).sum())
    factors = splu(_shifted(adjacency, precision))
    return float(2.0 * np.log(np.abs(factors.U.diagonal())).sum())


def inverse_diagonal(adjacency: sp.csr_array, precision: Precision, rows: npt.NDArray[Any]) -> Array:
    """(Δ⁻¹)_ii for the given samples (n,): −Im[(αI + A + i√γI)⁻¹]_ii / √γ.

    Errors: DataError for γ = 0, where Δ may have no inverse.
    """
    if precision.gamma == 0.0:
        raise DataError("the variance of samples in a graph needs gamma > 0: with γ = 0 the precision may be singular")
    found = inverse_entries(splu(_shifted(adjacency, precision)), rows, np.complex128)
    return np.asarray(-found.imag / np.sqrt(precision.gamma))


def inverse_entries(factors: Any, rows: npt.NDArray[Any], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The diagonal entries (n,) in some rows of the inverse of what was factorised."""
    found = np.empty(len(rows), dtype=dtype)
    for start in range(0, len(rows), RIGHT_SIDES):
        some = np.asarray(rows[start : start + RIGHT_SIDES])
        unit = np.zeros((factors.shape[0], len(some)), dtype=dtype)
        unit[some, np.arange(len(some))] = 1.0
        found[start : start + len(some)] = factors.solve(unit)[some, np.arange(len(some))]
    return found


class Completed(NamedTuple):
    """−Δ_UU⁻¹Δ_UK R (u, b) for given rows R, the mean of the other rows given these about zero, and log|Δ_UU|."""

    rows: Array
    log_determinant: float


def completed(adjacency: sp.csr_array, precision: Precision, known: npt.NDArray[np.bool_], given: Array) -> Completed:
    """What rows of some samples (n, b), `known` (N,), say of the rows of all others, for γ > 0.

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
    try:
        factors = splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError as error:  # a pivot of zero
        raise refused from error
    # det = ±γ^(N/2) |γI + MᵀM| / γ^(u/2).
    log_determinant = float(np.log(np.abs(factors.U.diagonal())).sum()) - 0.5 * (n - few) * np.log(precision.gamma)
    found = np.empty((few, given.shape[1]))
    for start in range(0, given.shape[1], RIGHT_SIDES):
        some = slice(start, start + RIGHT_SIDES)
        right = np.zeros((n + few, found[:, some].shape[1]))
        right[:n] = inner[:, known] @ given[:, some]
        solution = factors.solve(right)
        for _ in range(REFINEMENTS):
            change = factors.solve(right - system @ solution)
            solution += change
        if not np.abs(change).max(initial=0.0) <= REFINED * np.abs(solution).max(initial=0.0):
            raise refused
        found[:, some] = -solution[n:]
    return Completed(found, log_determinant)


def probe_log_determinants(
    multiply: Callable[[Array], Array], probes: Array, precision: Spectral, steps: int
) -> tuple[Array, Array]:
    """Stochastic Lanczos quadrature: N Σ_k τ_k² log(γ + (α + θ_k)²) for each probe v (columns, entries ±1).

    `multiply` gives AV for V (N, m).  θ and τ come from the tridiagonal matrix of `steps` Lanczos steps from v.  Of a Δ
    that is given it gives ΔV, and the logarithm is that of θ.
    Returns: the estimates (m,), and what the last quarter of the steps changed (m,), a sign of what is left.
    Source: Ubaru, Chen and Saad (2017), algorithm 1; no reorthogonalisation, which quadrature does not need.
    """
    n, m = probes.shape
    current, before = probes / np.sqrt(n), np.zeros_like(probes)
    diagonal, beside = np.zeros((steps, m)), np.zeros((steps, m))
    for step in range(steps):
        following = multiply(current)
        if step:
            following -= before * beside[step - 1]
        diagonal[step] = np.einsum("ij,ij->j", current, following)
        following -= current * diagonal[step]
        beside[step] = np.sqrt(np.einsum("ij,ij->j", following, following))
        before, current = current, following / np.where(beside[step] > 0.0, beside[step], 1.0)
    values = np.array([_quadrature(diagonal[:, j], beside[:, j], precision) for j in range(m)])
    short = max(1, 3 * steps // 4)
    early = np.array([_quadrature(diagonal[:short, j], beside[:short, j], precision) for j in range(m)])
    return n * values, n * (values - early)


def _quadrature(diagonal: Array, beside: Array, precision: Spectral) -> float:
    """Gauss quadrature of log(γ + (α + θ)²) or of log θ from a tridiagonal matrix, cut where the Krylov space ended."""
    ended = np.flatnonzero(beside[:-1] <= 1e-12 * np.abs(diagonal).max(initial=1.0))
    length = int(ended[0]) + 1 if len(ended) else len(diagonal)
    theta, vectors = la.eigh_tridiagonal(diagonal[:length], beside[: length - 1])
    weights = vectors[0] ** 2
    inner = precision.spectrum(np.asarray(theta, dtype=np.float64))
    return float(weights @ np.log(np.maximum(inner, np.finfo(float).tiny)))


def estimated(values: Array, changes: Array) -> Estimate:
    """The mean of probes (m,), with the standard error of the mean and the mean change of the last steps together."""
    spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
    return Estimate(float(values.mean()), float(np.hypot(spread, changes.mean())))
