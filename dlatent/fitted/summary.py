"""Summaries of fitted models: noise variances and components as JSON values, and all of a model as lines of text."""

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
Summary = dict[str, Any]
Labels = Sequence[Any] | npt.NDArray[Any]


def noise_summary(name: str, noise: Array, at_floor: Any, samples: int, *, shared: bool) -> Summary:
    """The noise variances of one view, or of one component of a mixture: one number, or those of its features."""
    if shared:
        return {"view": name, "variance": float(noise[0]), "at_floor": bool(at_floor[0]), "samples": samples}
    low = int(at_floor.sum())
    return {"view": name + MEAN, "variance": float(noise.mean()), "at_floor": low, "samples": samples}


def component_summaries(loadings: Array, names: Labels, total: float) -> list[Summary]:
    """For each component its variance over the features, the share of their `total` variance, and its largest loadings;
    no names (or none of them) for features that are never written down."""
    lines = []
    for number, column in enumerate(loadings.T):
        variance = float(column @ column)
        order = np.argsort(-np.abs(column), kind="stable")[:TOP].tolist() if len(names) else []
        largest = [{"feature": names[at], "loading": float(column[at])} for at in order]
        lines.append({"component": number, "variance": variance, "share": variance / total, "largest": largest})
    return lines


def summary_lines(summary: Summary) -> dict[str, str]:
    """The lines of text of a summary by name, without its tables."""
    converged = {"converged": "yes" if summary["converged"] else "NO"}
    if "embedding" in summary:
        return _embedding_lines(summary, converged)
    lines = {
        "data": f"{summary['samples']:,} samples × {summary['features']:,} features",
        "log-likelihood": f"{summary['log_likelihood']:.10g} nats",
        **converged,
        "passes": f"{summary['passes']} over the data by {summary['solver']}, "
        f"{summary['bytes_read'] / 1e6:,.1f} MB read, {summary['seconds']:.1f} s",
    }
    # What a family tells in a text is said as it is.
    lines |= {name: text for name, text in summary.items() if isinstance(text, str) and name not in ("kind", "solver")}
    if "targets" in summary:
        names = summary["targets"]
        lines["labels"] = f"{len(names)}: {', '.join(map(str, names[:SHOWN]))}{', …' if len(names) > SHOWN else ''}"
    if "mixture" in summary:
        weights = ", ".join(f"{weight:.3g}" for weight in summary["mixture"])
        of = "component and feature" if summary["noise"][0]["view"].endswith(MEAN) else "component"
        lines["mixture"] = f"weights {weights}; a noise variance for each {of}"
    if "kernel" in summary:
        lines["kernel"] = _kernel_text(summary["kernel"])
    if "graph" in summary:
        _add_graph_lines(lines, summary["graph"], summary["samples"])
    if "precision" in summary:
        lines["log-likelihood"] += " without ½ D log|Δ|"
        entries, rank = summary["precision"]["entries"], summary["precision"]["rank"]
        lines["precision"] = f"given, {entries:,} entries{_rank_text(rank, summary['samples'])}"
    return lines


def _embedding_lines(summary: Summary, converged: dict[str, str]) -> dict[str, str]:
    sets, embedding = summary["separate_sets"], summary["embedding"]
    return {
        "embedding": f"{summary['samples']:,} samples in {embedding['dimensions']} dimensions",
        "neighbours": f"{embedding['neighbours']} of each sample",
        "eigenvalues": ", ".join(f"{value:.3g}" for value in summary["eigenvalues"]),
        "eigenvectors": f"{summary['eigen_solver']}, known to {summary['eigen_residual']:.1e} of the eigenvalues",
        **converged,
        "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
    }


def _kernel_text(kernel: Summary) -> str:
    numbers = [f"{name} {kernel[name]:g}" for name in NUMBERS.get(kernel["name"], ())]
    error = f"; trace error of the landmarks {kernel['trace_error']:.2g}" if kernel["trace_error"] else ""
    return ", ".join([kernel["name"], *numbers, f"{kernel['dimension']:,} features"]) + error


def _add_graph_lines(lines: dict[str, str], graph: Summary, samples: int) -> None:
    """The line of a graph, and what of it the likelihood is of."""
    if "rank" in graph:
        text = f"{graph['edges']:,}, with α = {graph['alpha']:g} and γ = {graph['gamma']:g}"
        lines["log-likelihood"] += " without ½ D log|Δ| of the graph"
        lines["graph"] = text + _rank_text(graph["rank"], samples)
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


def _rank_text(rank: int, samples: int) -> str:
    return "" if rank == samples else f", rank of Δ {rank:,}"
