"""The picture of the demonstration: modules in two dimensions of each model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array

LARGEST = 9
"""Packages with a colour of their own; more colours cannot be told apart."""


def telling_pair(scores: Array, classes: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The two components in which the classes of the rows `known` differ most for their spread inside classes.

    The same rule serves every model, and sees no label that a model has not seen.
    """
    rows, of = scores[known], classes[known]
    means = np.stack([rows[of == c].mean(axis=0) for c in np.unique(of)])
    places = np.searchsorted(np.unique(of), of)
    within = ((rows - means[places]) ** 2).mean(axis=0)
    between = ((means[places] - rows.mean(axis=0)) ** 2).mean(axis=0)
    first, second = np.argsort(-between / np.maximum(within, 1e-300), kind="stable")[:2]
    return int(first), int(second)


def draw(
    path: Path,
    scores: Mapping[str, Array],
    packages: npt.NDArray[np.str_],
    classes: npt.NDArray[np.int64],
    known: npt.NDArray[np.int64],
) -> None:
    """Write a PNG with one panel per model, coloured by the largest packages; whole or not at all."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from dlatent import plot

    shown = [str(name) if of >= 0 else None for name, of in zip(packages, classes.tolist(), strict=True)]
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(12, 5.6), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(scores), squeeze=False)[0]
        for axes, (name, values) in zip(panels, scores.items(), strict=True):
            pair = telling_pair(values, classes, known)
            plot.scores(values, labels=shown, components=pair, most_labels=LARGEST, ax=axes)
            axes.set_title(name)
            legend = axes.get_legend()
            handles, texts = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
            legend.remove()
        figure.legend(handles, texts, loc="outside right center", frameon=False, title="package")
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            figure.savefig(aside, format="png", dpi=130)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
