"""Correspondences between data sets: PPCA and factor analysis of views that few instances share."""

from __future__ import annotations

from typing import Any, Literal

from dlatent.estimators.views import CorrespondenceModel


class CorrespondencePPCA(CorrespondenceModel):
    """PPCA of two or more views: x_v = W_v z + μ_v + ε_v with one z ~ N(0, I_K) for all views of an instance.

    Each view has a noise variance of its own, ε_v ~ N(0, σ_v²I).  Instances in correspondence have several views, all
    others one; all are fitted together by maximum likelihood, so that views are described in shared coordinates and one
    is reconstructed from another.

    Parameters
    ----------
    n_components : K, the number of latent variables; less than the numbers of instances and of features of all views.
    noise : "ml" finds the noise variances; "zero" is the limit without noise, in which each instance lies where its
        views are reconstructed best (the PCA of the paper): it starts from the maximum with noise, and says nothing of
        variance.
    tol : relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over the data (60), or EM iterations with solver="em" (2,000); None takes these.
    random_state : seed of the first directions.
    solver : "auto", or "em" for textbook EM from random loadings.
    route : "moments" (one pass, numbers of the order of D² for each set of views that occurs), "krylov" (about ten
        passes, D·K), or "auto", which lets the planner choose.
    noise_floor : smallest noise variance of a view, as a part of the mean variance of its features.
    suspect_data : "refuse" raises for all-zero rows, "keep" fits them.

    Attributes
    ----------
    view_names_ : names of the views.
    components_ : for each view W_vᵀ (K, D_v), loadings in units of its features.
    mean_ : for each view μ_v (D_v,).
    noise_variance_ : for each view σ_v², in squared units of its features.
    at_floor_ : for each view, whether its noise variance is at its floor.
    view_instances_ : for each view the number of instances that have it.
    log_likelihood_ : of all instances, in nats.
    n_iter_, n_passes_, converged_, history_ : as in PPCA.
    n_samples_ : number of instances N.
    n_features_in_ : number of features of all views.
    feature_names_in_ : for each view whose data had names, those of its features.

    Source: Ham, Lee and Saul (2003), section 3.1, with the noise of errata 22; docs/models/correspondences.md.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        noise: Literal["ml", "zero"] = "ml",
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Any = 0,
        solver: Literal["auto", "em"] = "auto",
        route: Literal["auto", "moments", "krylov"] = "auto",
        noise_floor: float = 1e-6,
        suspect_data: Literal["refuse", "keep"] = "refuse",
    ) -> None:
        self.n_components = n_components
        self.noise = noise
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.solver = solver
        self.route = route
        self.noise_floor = noise_floor
        self.suspect_data = suspect_data


class CorrespondenceFactorAnalysis(CorrespondenceModel):
    """Factor analysis of two or more views: as CorrespondencePPCA, with a noise variance for each feature.

    Parameters
    ----------
    n_components : as in CorrespondencePPCA.
    tol : as in CorrespondencePPCA.
    max_iter : as in CorrespondencePPCA; most passes where the route is "rows" (300).
    random_state : as in CorrespondencePPCA.
    solver : as in CorrespondencePPCA.
    route : "moments" (one pass, numbers of the order of D²), "rows" (accelerated EM with a pass for each iteration, D·K
        numbers), or "auto".
    noise_floor : smallest noise variance of a feature, as a part of its variance.
    suspect_data : "refuse" raises for all-zero rows and constant features, "keep" fits them.

    Attributes
    ----------
    noise_variance_ : for each view ψ (D_v,), in squared units of its features.
    at_floor_ : for each view (D_v,) truth values, Heywood cases.

    All others are those of CorrespondencePPCA.

    Source: Ham, Lee and Saul (2003), section 3.2 and appendix A, corrected (errata 21).
    """

    _shared = False

    def __init__(
        self,
        n_components: int = 2,
        *,
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Any = 0,
        solver: Literal["auto", "em"] = "auto",
        route: Literal["auto", "moments", "rows"] = "auto",
        noise_floor: float = 1e-6,
        suspect_data: Literal["refuse", "keep"] = "refuse",
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.solver = solver
        self.route = route
        self.noise_floor = noise_floor
        self.suspect_data = suspect_data
