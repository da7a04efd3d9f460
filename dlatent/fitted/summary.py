"""What a fitted model is and how its fit went: as JSON values, and in words for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlatent.errors import number_of
from dlatent.fitted.facts import Facts, shortened
from dlatent.fitted.linear import Fit
from dlatent.operators.kernels import NUMBERS

INITIAL_MEAN = "initial mean"
"""The name of the pass that is not counted as one."""


def passes_of(fit: Fit) -> int:
    """Passes over the data, the initial mean of their first block not counted."""
    return sum(record.name != INITIAL_MEAN for record in fit.report.passes)


def summary(kind: str, parameters: dict[str, Any], fit: Fit) -> Facts:
    """A model of some kind with these hyperparameters, as JSON values; lists of facts are tables."""
    report, about = fit.report, fit.model.summary(fit.report.samples)
    seconds = float(sum(record.seconds for record in report.passes))
    if report.log_likelihood is None:
        ended = {"converged": report.converged, "passes": passes_of(fit), "seconds": seconds}
        return {"kind": kind, "parameters": parameters, "samples": report.samples, **ended, **about}
    course: Facts = {
        "log_likelihood": report.log_likelihood,
        "converged": report.converged,
        "iterations": report.iterations,
        "solver": report.plan["solver"],
        "passes": passes_of(fit),
        "bytes_read": sum(record.bytes_read for record in report.passes),
        "seconds": seconds,
    }
    features = about.pop("features")
    warnings = {"warnings": [text for _, text in report.notices]}
    return {"kind": kind, "parameters": parameters, "samples": report.samples, "features": features} | (
        course | about | warnings
    )


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
