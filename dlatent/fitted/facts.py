"""What fitted models tell: noise variances and components, as JSON values; and all facts of a model in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.errors import number_of
from dlatent.operators.kernels import NUMBERS

TOP = 6
"""Features named for each component: those with the largest loadings."""
SHOWN = 8
"""Labels that are named."""
MEAN = " (mean)"
"""How the name ends of noise whose features have variances of their own."""
Facts = dict[str, Any]
Labels = Sequence[Any] | npt.NDArray[Any]


def noise_fact(name: str, noise: Array, at_floor: Any, samples: int, *, shared: bool) -> Facts:
    """The noise variances of one view, or of one component of a mixture: one number, or those of its features."""
    if shared:
        return {"view": name, "variance": float(noise[0]), "at_floor": bool(at_floor[0]), "samples": samples}
    low = int(at_floor.sum())
    return {"view": name + MEAN, "variance": float(noise.mean()), "at_floor": low, "samples": samples}


def component_facts(loadings: Array, names: Labels, total: float) -> list[Facts]:
    """For each component its variance over the features, the share of their `total` variance, and its largest loadings;
    no names (or none of them) for features that are never written down."""
    lines = []
    for number, column in enumerate(loadings.T):
        variance = float(column @ column)
        order = np.argsort(-np.abs(column), kind="stable")[:TOP].tolist() if len(names) else []
        largest = [{"feature": names[at], "loading": float(column[at])} for at in order]
        lines.append({"component": number, "variance": variance, "share": variance / total, "largest": largest})
    return lines


def words(facts: Facts) -> dict[str, str]:
    """The facts of a fitted model, but for the tables, in words by name."""
    converged = {"converged": "yes" if facts["converged"] else "NO"}
    if "embedding" in facts:
        return _embedding_words(facts, converged)
    lines = {
        "data": f"{facts['samples']:,} samples × {facts['features']:,} features",
        "log-likelihood": f"{facts['log_likelihood']:.10g} nats",
        **converged,
        "passes": f"{facts['passes']} over the data by {facts['solver']}, {facts['bytes_read'] / 1e6:,.1f} MB read, "
        f"{facts['seconds']:.1f} s",
    }
    # What a family tells in a text is said as it is.
    lines |= {name: text for name, text in facts.items() if isinstance(text, str) and name not in ("kind", "solver")}
    if "targets" in facts:
        names = facts["targets"]
        lines["labels"] = f"{len(names)}: {', '.join(map(str, names[:SHOWN]))}{', …' if len(names) > SHOWN else ''}"
    if "mixture" in facts:
        weights = ", ".join(f"{weight:.3g}" for weight in facts["mixture"])
        of = "component and feature" if facts["noise"][0]["view"].endswith(MEAN) else "component"
        lines["mixture"] = f"weights {weights}; a noise variance for each {of}"
    if "kernel" in facts:
        lines["kernel"] = _kernel_words(facts["kernel"])
    if "graph" in facts:
        _add_graph_words(lines, facts["graph"], facts["samples"])
    if "precision" in facts:
        lines["log-likelihood"] += " without ½ D log|Δ|"
        entries, rank = facts["precision"]["entries"], facts["precision"]["rank"]
        lines["precision"] = f"given, {entries:,} entries{_rank_words(rank, facts['samples'])}"
    return lines


def _embedding_words(facts: Facts, converged: dict[str, str]) -> dict[str, str]:
    sets, embedding = facts["separate_sets"], facts["embedding"]
    return {
        "embedding": f"{facts['samples']:,} samples in {embedding['dimensions']} dimensions",
        "neighbours": f"{embedding['neighbours']} of each sample",
        "eigenvalues": ", ".join(f"{value:.3g}" for value in facts["eigenvalues"]),
        "eigenvectors": f"{facts['eigen_solver']}, known to {facts['eigen_residual']:.1e} of the eigenvalues",
        **converged,
        "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
    }


def _kernel_words(kernel: Facts) -> str:
    numbers = [f"{name} {kernel[name]:g}" for name in NUMBERS.get(kernel["name"], ())]
    error = f"; trace error of the landmarks {kernel['trace_error']:.2g}" if kernel["trace_error"] else ""
    return ", ".join([kernel["name"], *numbers, f"{kernel['dimension']:,} features"]) + error


def _add_graph_words(lines: dict[str, str], graph: Facts, samples: int) -> None:
    """The line of a graph, and what of it the likelihood is of."""
    if "rank" in graph:
        text = f"{graph['edges']:,}, with α = {graph['alpha']:g} and γ = {graph['gamma']:g}"
        lines["log-likelihood"] += " without ½ D log|Δ| of the graph"
        lines["graph"] = text + _rank_words(graph["rank"], samples)
        return
    if "compared" in graph:
        pairs = zip(graph["compared"]["smoothing"], graph["compared"]["smoothing_correlation"], strict=True)
        text = ", ".join(f"{correlation:.4f} (λ = {smoothing:g})" for smoothing, correlation in pairs)
        lines["smoothing"] = f"correlation with hidden cells {text}"
    lines["graph"] = "not used, as λ = 0"
    if graph["smoothing"]:
        hops = number_of(graph["hops"], "hop", "hops")
        lines["graph"] = f"{graph['edges']:,} edges, with λ = {graph['smoothing']:g} and {hops}"
        lines["log-likelihood"] += " of the smoothed rows"


def _rank_words(rank: int, samples: int) -> str:
    return "" if rank == samples else f", rank of Δ {rank:,}"
