"""The picture of the README: python docs/images/digits.py docs/images/digits.png."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import dlatent


def drawn() -> Figure:
    """Digits of which a third of the pixels is lost, the same filled in, and all of them by two latent variables."""
    X, digits = load_digits(return_X_y=True)
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    some = np.where(np.arange(len(X)) < 300, digits, -1)
    model = dlatent.SupervisedPPCA(10, missing="nan").fit(holes, some)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1))
    grid, colours = left.subplots(3, 6), mpl.colormaps["gray_r"].with_extremes(bad="tab:orange")
    for row, (name, values) in enumerate({"a third lost": holes, "filled in": model.impute(holes), "true": X}.items()):
        for number, axes in enumerate(grid[row]):
            axes.imshow(values[300 + number].reshape(8, 8), cmap=colours, vmin=0, vmax=16)
            axes.set(xticks=[], yticks=[])
        grid[row, 0].set_ylabel(name)
    axes = dlatent.plot.scores(model.transform(holes), labels=digits, ax=right.subplots())
    axes.get_legend().set_loc("center left")
    axes.get_legend().set_bbox_to_anchor((1, 0.5))
    return figure


if __name__ == "__main__":
    drawn().savefig(sys.argv[1], dpi=110)
