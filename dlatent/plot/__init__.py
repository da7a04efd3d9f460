"""Pictures of results: every function takes a result and returns the matplotlib axes that it drew on."""

from dlatent.plot.filled import imputation
from dlatent.plot.fits import explained_variance, history, selection, spectrum
from dlatent.plot.maps import loadings, scores

__all__ = ["explained_variance", "history", "imputation", "loadings", "scores", "selection", "spectrum"]
