"""Probabilistic principal component analysis."""

from __future__ import annotations

from dlatent.estimators.heads import Criteria, Draws, Fits, Imputes, Reconstructs, Scores, Transforms
from dlatent.estimators.hyperparameters import PPCAHyperparameters


class PPCA(PPCAHyperparameters, Fits, Transforms, Scores, Criteria, Imputes, Reconstructs, Draws):
    """Probabilistic PCA: x = Wz + μ + ε with z ~ N(0, I_K) and ε ~ N(0, σ²I), fitted by maximum likelihood.

    Parameters
    ----------
    n_components : K, the number of latent variables; less than the number of samples, and at most that of features.
    tol : relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over the data (60), or EM iterations with solver="em" (2,000); None takes these.
    random_state : seed of the first directions.
    solver : "auto" takes the cheapest of those that find the global maximum: "covariance" (one pass, D² numbers),
        "krylov" (about ten passes, D·K) and, with fewer samples than features, "gram" (two passes, N² numbers); data
        with missing entries go by "accelerated_em" (about twenty passes).  "em" is textbook EM, for teaching and
        checking.
    noise_floor : smallest noise variance, as a part of the mean variance of the features.
    zero_rows : "keep" fits rows of zeros, and a warning counts them; "raise" stops at the first.
    missing : "raise" raises for NaN; with "nan" the entries of dense data that are NaN are missing, with "unstored"
        the stored entries of sparse data, zeros among them, are the observed ones.  The model is then that of the
        observed entries, wherever they are; `transform`, `posterior`, `score_samples` and `impute` take such rows too.

    Attributes
    ----------
    components_ : Wᵀ (K, D), loadings in units of the features; rows in decreasing order of explained variance.
    mean_ : μ (D,), in units of the features.
    noise_variance_ : σ², in squared units of the features.
    explained_variance_ : (K,), variance along each component, noise included.
    explained_variance_ratio_ : (K,), the same as parts of the total variance of the features.
    log_likelihood_ : of all samples, in nats.
    n_iter_ : iterations of the loop, as in `history_`.
    n_passes_ : passes over the data, the initial mean of their first block not counted.
    converged_ : whether the tolerance was met.
    at_floor_ : one truth value, whether the noise variance is at its floor.
    n_samples_ : number of samples N.
    n_features_in_ : number of features D.
    feature_names_in_ : names of the features (D,), where the data of the fit had names, all of them texts.
    history_ : Dataset with a line for each iteration and for each pass.
    plan_ : what was planned, as a dictionary: route, reason, passes, bytes and memory.

    Source: Tipping and Bishop (1999), equations (7)–(8); "Routes" of this documentation for many features.
    """
