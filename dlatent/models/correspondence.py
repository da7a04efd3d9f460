"""Correspondences between data sets: PPCA and factor analysis of views that few samples share."""

from __future__ import annotations

from dlatent.models.hyperparameters import ViewFactorHyperparameters, ViewHyperparameters
from dlatent.models.views import CorrespondenceModel


class CorrespondencePPCA(ViewHyperparameters, CorrespondenceModel):
    r"""PPCA of two or more views of the same samples, of which each sample may lack some.

    .. math:: x_v = W_v z + \mu_v + \varepsilon_v, \qquad z \sim N(0, I_K), \quad
        \varepsilon_v \sim N(0, \sigma_v^2 I)

    All views of a sample have one z, and each view a noise variance of its own.  Samples in correspondence have several
    views, all others one; all are fitted together, so that views are described in shared coordinates and one is
    reconstructed from another.

    References
    ----------
    Ham, Lee and Saul (2003), section 3.1, with the noise of errata 22.  Read more in :doc:`/models/correspondences`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondencePPCA
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(80, 2))
    >>> sight, sound = (z @ rng.normal(size=(2, d)) + 0.1 * rng.normal(size=(80, d)) for d in (5, 4))
    >>> pairs = np.column_stack([np.arange(40), np.arange(40)])
    >>> model = CorrespondencePPCA(2).fit({"sight": sight, "sound": sound}, correspondence=pairs)
    >>> model.reconstruct(sight, "sight", "sound").shape
    (80, 4)
    """

    @property
    def _noise_is_given(self) -> bool:
        return bool(self.noise == "zero")


class CorrespondenceFactorAnalysis(ViewFactorHyperparameters, CorrespondenceModel):
    r"""Factor analysis of two or more views: as CorrespondencePPCA, with a noise variance for each feature.

    .. math:: x_v = W_v z + \mu_v + \varepsilon_v, \qquad z \sim N(0, I_K), \quad \varepsilon_v \sim N(0, \Psi_v)

    Attributes
    ----------
    noise_variance_ : dict of ndarray of shape (n_features of the view,)
        For each view ψ, in squared units of its features.
    at_floor_ : dict of ndarray of bool of shape (n_features of the view,)
        For each view its Heywood cases.

    References
    ----------
    Ham, Lee and Saul (2003), section 3.2 and appendix A, corrected (errata 21).  Read more in
    :doc:`/models/correspondences`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import CorrespondenceFactorAnalysis
    >>> X = np.random.default_rng(0).normal(size=(60, 7))
    >>> pairs = np.column_stack([np.arange(60), np.arange(60)])
    >>> model = CorrespondenceFactorAnalysis(1).fit([X[:, :4], X[:, 4:]], correspondence=pairs)
    >>> [len(noise) for noise in model.noise_variance_.values()]
    [4, 3]
    """

    _shared = False
