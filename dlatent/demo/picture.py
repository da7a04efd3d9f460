"""The picture of the demonstration: documents in a plane of the latent space of each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.demo.nearest import directions
from dlatent.stores.beside import whole_file

LARGEST = 9
"""Classes with a colour of their own; more colours cannot be told apart."""


def plane(scores: Array, names: list[str | None], known: npt.NDArray[np.int64]) -> Array:
    """Directions of the scores, seen in the plane (N, 2) in which the classes named lie furthest apart.

    The latent space has no axes of its own, so that any plane in it is as good as that of two components.  This one
    holds the most of the variance of the classes' means; it is found from the rows `known` alone, for every model by
    the same rule.
    """
    unit = directions(scores)
    rows = [row for row in known.tolist() if names[row] is not None]
    classes = sorted({str(names[row]) for row in rows})
    means = np.stack([unit[[row for row in rows if names[row] == one]].mean(axis=0) for one in classes])
    across = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2][:2]
    seen = unit @ across.T
    # The sign of a singular vector is no one's choice: the first class lies to the right and above.
    return np.asarray(seen * np.where((means @ across.T)[0] < 0, -1.0, 1.0))


def largest(groups: npt.NDArray[np.str_], classes: npt.NDArray[np.int64]) -> list[str | None]:
    """The name of each document's class where that is one of the largest, else None."""
    counts = Counter(groups[classes >= 0].tolist())
    shown = set(sorted(counts, key=lambda name: (-counts[name], name))[:LARGEST])
    return [name if name in shown else None for name in groups.tolist()]


def draw(
    path: Path, scores: Mapping[str, Array], names: list[str | None], known: npt.NDArray[np.int64], group: str
) -> None:
    """Write a PNG with one panel per model, documents coloured by `names` (of a `group` each); whole or not at all."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from dlatent import plot

    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(1.5 + 5.5 * len(scores), 5.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(scores), squeeze=False)[0]
        for axes, (name, values) in zip(panels, scores.items(), strict=True):
            plot.scores(plane(values, names, known), labels=names, most_labels=LARGEST, ax=axes)
            axes.set(title=name, xlabel=f"first direction between {group}s", ylabel="second direction")
            handles, texts = axes.get_legend_handles_labels()
            axes.get_legend().remove()
        figure.legend(handles, texts, loc="outside right center", frameon=False, title=group, markerscale=2)
        with whole_file(path) as aside:
            figure.savefig(aside, format="png", dpi=130)
