"""Simple pictures of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")

from matplotlib import pyplot as plt


def bars(values: Mapping[str, float], path: Path, title: str, unit: str) -> Path:
    """Horizontal bars, one per name, with their numbers."""
    figure, axes = plt.subplots(figsize=(7, 0.4 * len(values) + 1.2), layout="constrained")
    drawn = axes.barh(list(values), list(values.values()), color="#4477aa")
    axes.bar_label(drawn, fmt="%.3g", padding=3)
    axes.invert_yaxis()
    axes.set(title=title, xlabel=unit)
    axes.spines[["top", "right"]].set_visible(False)
    return _saved(figure, path)


def gaps(traces: Mapping[str, Sequence[float]], best: Mapping[str, float], path: Path, title: str) -> Path:
    """Relative distance of the log-likelihood from the best known, pass by pass; log-log, because EM needs many."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, trace in traces.items():
        gap = np.maximum((best[name] - np.array(trace)) / abs(best[name]), 1e-16)
        axes.loglog(np.arange(1, len(gap) + 1), gap, label=name, marker="o" if len(gap) < 50 else None, markersize=3)
    for level in (1e-8, 1e-10):
        axes.axhline(level, color="0.7", linewidth=0.8)
    axes.set(title=title, xlabel="pass over the data", ylabel="relative gap to the best known log-likelihood")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return _saved(figure, path)


def _saved(figure: plt.Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
