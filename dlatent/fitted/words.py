"""Facts of fitted models that several families tell, and the facts in words for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.errors import number_of
from dlatent.operators.kernels import NUMBERS

TOP = 6
"""Features named for each component: those with the largest loadings."""
Facts = dict[str, Any]
Labels = Sequence[Any] | npt.NDArray[Any]


def noise_fact(name: str, noise: Array, at_floor: Any, samples: int, *, shared: bool) -> Facts:
    """The noise variances of one view, or of one component of a mixture: one number, or those of its features."""
    if shared:
        return {"view": name, "variance": float(noise[0]), "at_floor": bool(at_floor[0]), "samples": samples}
    low = int(at_floor.sum())
    return {"view": f"{name} (mean)", "variance": float(noise.mean()), "at_floor": low, "samples": samples}


def component_facts(loadings: Array, names: Labels, total: float) -> list[Facts]:
    """For each component its variance over the features, the share of their `total` variance, and its largest loadings;
    no names (or none of them) for features that are never written down."""
    found = []
    for number, column in enumerate(loadings.T):
        variance = float(column @ column)
        order = np.argsort(-np.abs(column), kind="stable")[:TOP].tolist() if len(names) else []
        largest = [{"feature": names[at], "loading": float(column[at])} for at in order]
        found.append({"component": number, "variance": variance, "share": variance / total, "largest": largest})
    return found


def shortened(values: Labels, most: int = 8) -> str:
    """Values with commas between, the first of many."""
    shown = ", ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown}, …"


def words(facts: Facts) -> dict[str, str]:
    """The summary, but for the tables, in words by name."""
    if "embedding" in facts:
        return _embedding(facts)
    reading = f"{facts['bytes_read'] / 1e6:,.1f} MB read, {facts['seconds']:.1f} s"
    lines = {
        "data": f"{facts['samples']:,} samples × {facts['features']:,} features",
        "log-likelihood": f"{facts['log_likelihood']:.10g} nats",
        "converged": "yes" if facts["converged"] else "NO",
        "passes": f"{facts['passes']} over the data by {facts['solver']}, {reading}",
    }
    for name, tell in TOLD.items():
        lines |= tell(facts, lines) if name in facts else {}
    return lines


def _embedding(facts: Facts) -> dict[str, str]:
    about, sets = facts["embedding"], facts["separate_sets"]
    return {
        "embedding": f"{facts['samples']:,} samples in {about['dimensions']} dimensions",
        "neighbours": f"{about['neighbours']} of each sample",
        "eigenvalues": ", ".join(f"{value:.3g}" for value in facts["eigenvalues"]),
        "eigenvectors": f"{facts['eigen_solver']}, known to {facts['eigen_residual']:.1e} of the eigenvalues",
        "converged": "yes" if facts["converged"] else "NO",
        "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
    }


def _labels(facts: Facts, lines: dict[str, str]) -> dict[str, str]:
    names = facts["targets"]
    return {"labels": f"{len(names)}: {shortened(names)}"}


def _graph(facts: Facts, lines: dict[str, str]) -> dict[str, str]:
    graph, likelihood = facts["graph"], lines["log-likelihood"]
    if "alpha" in graph:
        text = f"{graph['edges']:,}, with α = {graph['alpha']:g} and γ = {graph['gamma']:g}{_rank(facts, graph)}"
        return {"log-likelihood": f"{likelihood} without ½ D log|Δ| of the graph", "graph": text}
    compared: dict[str, str] = {}
    if "compared" in graph:
        scores = graph["compared"]
        pairs = zip(scores["smoothing"], scores["smoothing_correlation"], strict=True)
        text = ", ".join(f"{correlation:.4f} (λ = {smoothing:g})" for smoothing, correlation in pairs)
        compared = {"smoothing": f"correlation with hidden cells {text}"}
    if not graph["smoothing"]:
        return {**compared, "graph": "not used, as λ = 0"}
    hops = number_of(graph["hops"], "hop", "hops")
    text = f"{graph['edges']:,} edges, with λ = {graph['smoothing']:g} and {hops}"
    return {**compared, "log-likelihood": f"{likelihood} of the smoothed rows", "graph": text}


def _precision(facts: Facts, lines: dict[str, str]) -> dict[str, str]:
    text = f"given, {facts['precision']['entries']:,} entries{_rank(facts, facts['precision'])}"
    return {"log-likelihood": f"{lines['log-likelihood']} without ½ D log|Δ|", "precision": text}


def _rank(facts: Facts, between: Facts) -> str:
    return "" if between["rank"] == facts["samples"] else f", rank of Δ {between['rank']:,}"


def _kernel(facts: Facts, lines: dict[str, str]) -> dict[str, str]:
    known = facts["kernel"]
    numbers = [f"{name} {known[name]:g}" for name in NUMBERS.get(known["name"], ())]
    error = f"; trace error of the landmarks {known['trace_error']:.2g}" if known["trace_error"] else ""
    return {"kernel": ", ".join([known["name"], *numbers, f"{known['dimension']:,} features"]) + error}


def _mixture(facts: Facts, lines: dict[str, str]) -> dict[str, str]:
    weights = ", ".join(f"{weight:.3g}" for weight in facts["mixture"])
    of = "component" if facts["parameters"]["noise"] == "isotropic" else "component and feature"
    return {"mixture": f"weights {weights}; a noise variance for each {of}"}


TOLD: dict[str, Callable[[Facts, dict[str, str]], dict[str, str]]] = {
    "targets": _labels,
    "graph": _graph,
    "precision": _precision,
    "kernel": _kernel,
    "mixture": _mixture,
}
"""What is told of the facts that some models have; it sees the lines before it."""
