"""The picture of the README: python docs/images/digits.py docs/images/digits.png."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import dlatent

SHOWN = 10


def drawn() -> Figure:
    """Digits of which a third of the pixels is lost, the same filled in, how sure that is, and the truth."""
    X, digits = load_digits(return_X_y=True)
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    some = np.where(np.arange(len(X)) < 300, digits, -1)
    model = dlatent.SupervisedPPCA(missing="nan").fit(holes, some)
    filled, guessed = model.impute(holes), model.predict(holes)
    grey = mpl.colormaps["gray_r"].with_extremes(bad="tab:orange")
    rows = {
        "a third lost": (holes, grey, 16),
        "filled in": (filled, grey, 16),
        "standard deviation": (np.sqrt(model.impute_variance(holes)), mpl.colormaps["Oranges"], 5),
        "the truth": (X, grey, 16),
    }
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    grid = figure.subplots(len(rows), SHOWN)
    for axes, (name, (values, colours, most)) in zip(grid, rows.items(), strict=True):
        for number, place in enumerate(axes):
            place.imshow(np.asarray(values)[300 + number].reshape(8, 8), cmap=colours, vmin=0, vmax=most)
            place.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for number, place in enumerate(grid[1]):
        place.set_title(f"guess: {guessed[300 + number]}", fontsize=9)
    return figure


if __name__ == "__main__":
    drawn().savefig(sys.argv[1], dpi=110)
