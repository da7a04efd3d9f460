"""Simple pictures of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import LogFormatter


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


def curves(lines: Mapping[str, Mapping[str, Sequence[float]]], path: Path, title: str, across: str, up: str) -> Path:
    """Mean and standard deviation of repeated numbers against a count, one line for each name."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, values in lines.items():
        numbers = [np.array(repeated) for repeated in values.values()]
        spread = [repeated.std(ddof=1) for repeated in numbers]
        places = [int(count) for count in values]
        axes.errorbar(places, [repeated.mean() for repeated in numbers], spread, label=name, marker="o", capsize=3)
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    return _saved(figure, path)


def growing(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
    path: Path,
    title: str,
    across: str,
    ups: tuple[str, str] = ("passes", "seconds per pass"),
    *,
    linear: bool = True,
) -> Path:
    """Two numbers against a size, on logarithmic axes; the first where it is `linear` not.

    A line for each name, a thick one for dlatent.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
    for name, (places, *values) in lines.items():
        for panel, own in zip(panels, values, strict=True):
            panel.plot(places, own, label=name, marker="o", markersize=4, linewidth=2.5 if "dlatent" in name else 1)
    for panel, up in zip(panels, ups, strict=True):
        panel.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        panel.spines[["top", "right"]].set_visible(False)
    if linear:
        panels[0].set(yscale="linear", ylim=(0.0, None))
    panels[1].legend(frameon=False, fontsize=8)
    figure.suptitle(title)
    return _saved(figure, path)


def compared(groups: Mapping[str, Mapping[str, float]], path: Path, title: str, level: float) -> Path:
    """Upright bars side by side, one colour for each group and one place for each name, and a line at a level."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    figure, axes = plt.subplots(figsize=(1.6 * len(names) + 1.5, 4.2), layout="constrained")
    width = 0.8 / len(groups)
    for number, (group, values) in enumerate(groups.items()):
        places = np.arange(len(names)) + (number - (len(groups) - 1) / 2) * width
        drawn = axes.bar(places, [values.get(name, 0.0) for name in names], width, label=group)
        axes.bar_label(drawn, fmt="%.2f", fontsize=7)
    axes.axhline(level, color="0.5", linewidth=0.8)
    axes.set(title=title, xticks=range(len(names)), xticklabels=names)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    return _saved(figure, path)


def stacked(bars: Mapping[str, Mapping[str, float]], path: Path, title: str, unit: str) -> Path:
    """Horizontal bars of parts that add up, one bar for each name; a part has one colour in all of them."""
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(bars) + 1.6), layout="constrained")
    parts = list(dict.fromkeys(part for values in bars.values() for part in values))
    begin = np.zeros(len(bars))
    for number, part in enumerate(parts):
        sizes = np.array([values.get(part, 0.0) for values in bars.values()])
        axes.barh(list(bars), sizes, left=begin, label=part, color=plt.get_cmap("tab20")(number % 20))
        begin += sizes
    axes.invert_yaxis()
    axes.set(title=title, xlabel=unit)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return _saved(figure, path)


def clouds(points: Mapping[str, npt.NDArray[Any]], classes: Sequence[str], path: Path, title: str) -> Path:
    """Points in the plane, coloured by class, one panel for each name; frequent classes are drawn first."""
    figure, panels = plt.subplots(1, len(points), figsize=(5.5 * len(points), 4.5), layout="constrained", squeeze=False)
    own = np.array(classes)
    names, counts = np.unique(own, return_counts=True)
    order = [str(name) for name in names[np.argsort(-counts)]]
    for panel, (name, places) in zip(panels[0], points.items(), strict=True):
        for group in order:
            panel.scatter(*places[own == group].T, s=10, linewidths=0, label=group)
        panel.set(title=name, xlabel="component 1", ylabel="component 2")
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False, markerscale=2)
    figure.suptitle(title)
    return _saved(figure, path)


def coloured(panels: Mapping[str, Mapping[str, Any]], path: Path, title: str) -> Path:
    """Points in the plane, coloured by a number, one panel for each name; a panel has `places` and `colour`."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.6), layout="constrained", squeeze=False)
    for panel, (name, own) in zip(axes[0], panels.items(), strict=True):
        panel.scatter(*np.array(own["places"]).T, c=own["colour"], s=9, linewidths=0, cmap="viridis")
        panel.set_title(name, fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    return _saved(figure, path)


def images(
    panels: Mapping[str, Mapping[str, npt.NDArray[Any]]], shape: tuple[int, int], path: Path, title: str
) -> Path:
    """Grey images of one shape in lines, each line and each column with a name."""
    width = max(len(line) for line in panels.values())
    figure, axes = plt.subplots(
        len(panels), width, figsize=(1.4 * width, 1.6 * len(panels) + 0.5), layout="constrained", squeeze=False
    )
    for places, (name, line) in zip(axes, panels.items(), strict=True):
        for place in places:
            place.set(xticks=[], yticks=[])
        places[0].set_ylabel(name, fontsize=8)
        for place, (column, image) in zip(places, line.items(), strict=False):
            place.imshow(image.reshape(shape), cmap="gray", vmin=0.0, vmax=1.0)
            place.set_title(column, fontsize=7)
    figure.suptitle(title, fontsize=9)
    return _saved(figure, path)


def _saved(figure: plt.Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
