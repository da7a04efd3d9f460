"""Correspondences between data sets: PPCA and factor analysis of views that few samples share."""

from __future__ import annotations

from dlatent.estimators.hyperparameters import ViewFactorHyperparameters, ViewHyperparameters
from dlatent.estimators.views import CorrespondenceModel


class CorrespondencePPCA(ViewHyperparameters, CorrespondenceModel):
    """PPCA of two or more views: x_v = W_v z + μ_v + ε_v with one z ~ N(0, I_K) for all views of a sample.

    Each view has a noise variance of its own, ε_v ~ N(0, σ_v²I).  Samples in correspondence have several views, all
    others one; all are fitted together by maximum likelihood, so that views are described in shared coordinates and one
    is reconstructed from another.

    Parameters
    ----------
    n_components : K, the number of latent variables; less than the numbers of samples and of features of all views.
    noise : "ml" finds the noise variances; "zero" is the limit without noise, in which each sample lies where its
        views are reconstructed best (the PCA of the paper): it starts from the maximum with noise, and says nothing of
        variance.
    tol : relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over the data (60), or EM iterations with solver="em" (2,000); None takes these.
    random_state : seed of the first directions.
    solver : "auto" takes the cheaper of "covariance" (one pass, numbers of the order of D² for each set of views that
        occurs) and "krylov" (about ten passes, D·K); "em" is textbook EM from random loadings.
    noise_floor : smallest noise variance of a view, as a part of the mean variance of its features.
    zero_rows : "keep" fits rows of zeros, and a warning counts them; "raise" stops at the first.

    Attributes
    ----------
    view_names_ : names of the views.
    components_ : for each view W_vᵀ (K, D_v), loadings in units of its features.
    mean_ : for each view μ_v (D_v,).
    noise_variance_ : for each view σ_v², in squared units of its features.
    at_floor_ : for each view, whether its noise variance is at its floor.
    view_samples_ : for each view the number of samples that have it.
    log_likelihood_ : of all samples, in nats.
    n_iter_, n_passes_, converged_, history_, plan_ : as in PPCA.
    n_samples_ : number of samples N.
    n_features_in_ : number of features of all views.
    feature_names_in_ : for each view whose data had names, those of its features.

    Source: Ham, Lee and Saul (2003), section 3.1, with the noise of errata 22; docs/models/correspondences.md.
    """

    @property
    def _noise_is_given(self) -> bool:
        return bool(self.noise == "zero")


class CorrespondenceFactorAnalysis(ViewFactorHyperparameters, CorrespondenceModel):
    """Factor analysis of two or more views: as CorrespondencePPCA, with a noise variance for each feature.

    Parameters
    ----------
    n_components : as in CorrespondencePPCA.
    tol : as in CorrespondencePPCA.
    max_iter : as in CorrespondencePPCA; most passes of "accelerated_em" (300).
    random_state : as in CorrespondencePPCA.
    solver : "auto" takes the cheaper of "covariance" (one pass, numbers of the order of D²) and "accelerated_em" (a
        pass for each iteration, D·K numbers); "em" is textbook EM.
    noise_floor : smallest noise variance of a feature, as a part of its variance.
    zero_rows : as in PPCA.

    Attributes
    ----------
    noise_variance_ : for each view ψ (D_v,), in squared units of its features.
    at_floor_ : for each view (D_v,) truth values, Heywood cases.

    All others are those of CorrespondencePPCA.

    Source: Ham, Lee and Saul (2003), section 3.2 and appendix A, corrected (errata 21).
    """

    _shared = False
