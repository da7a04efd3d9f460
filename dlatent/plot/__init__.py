"""Pictures of results: every function takes a result and returns the matplotlib axes that it drew on."""

from dlatent.plot.axes import PlotError
from dlatent.plot.entries import residuals, weights
from dlatent.plot.fits import explained_variance, history, imputation, reconstruction, selection, smoothing, spectrum
from dlatent.plot.maps import biplot, loadings, loadings_map
from dlatent.plot.samples import scores, scores_by_label

__all__ = [
    "PlotError",
    "biplot",
    "explained_variance",
    "history",
    "imputation",
    "loadings",
    "loadings_map",
    "reconstruction",
    "residuals",
    "scores",
    "scores_by_label",
    "selection",
    "smoothing",
    "spectrum",
    "weights",
]
