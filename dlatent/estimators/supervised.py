"""Supervised and semi-supervised probabilistic PCA."""

from __future__ import annotations

from dlatent.estimators.heads import Reconstructs
from dlatent.estimators.hyperparameters import SupervisedHyperparameters
from dlatent.estimators.target_heads import (
    DrawsWithTargets,
    FitsTargets,
    ImputesWithTargets,
    Predicts,
    ScoresWithTargets,
    TransformsWithTargets,
)


class SupervisedPPCA(
    SupervisedHyperparameters,
    FitsTargets,
    TransformsWithTargets,
    ScoresWithTargets,
    ImputesWithTargets,
    Predicts,
    Reconstructs,
    DrawsWithTargets,
):
    """Supervised PPCA: x = W_x z + μ_x + ε_x and y = W_y z + μ_y + ε_y share the latent z; unlabelled rows welcome.

    With every row labelled this is SPPCA, whose best maximum over loadings and noises is sought with eigenvectors and a
    scan of the two noise variances; with unlabelled rows it is S²PPCA, fitted by Rayleigh–Ritz EM.

    Parameters
    ----------
    n_components : K, as in PPCA.
    tol : as in PPCA.
    max_iter : as in PPCA.
    random_state : as in PPCA.
    solver : as in PPCA; "em" is Algorithm 1, or 2 where rows are unlabelled, corrected.
    noise_floor : as in PPCA.
    zero_rows : as in PPCA.
    missing : as in PPCA; unless "raise", outputs may be missing one by one, too.
    target_type : "auto", "class" (labels of any dtype, one-of-C), "multilabel" (0/1 matrix) or "regression".
    target_noise_floor : smallest noise variance of the targets, as a part of their mean variance.

    Attributes
    ----------
    components_ : W_xᵀ (K, D), loadings of the features, in their units.
    mean_ : μ_x (D,).
    noise_variance_ : σ_x².
    target_components_ : W_yᵀ (K, L), loadings of the outputs (for classes of the one-of-C indicators).
    target_mean_ : μ_y (L,).
    target_noise_variance_ : σ_y².
    classes_ : (L,) labels in the order of the outputs, for classes only.
    log_likelihood_ : of all samples in nats, the targets on their rank.
    at_floor_ : two truth values, whether the noise of the features and of the targets is at its floor.

    All others are those of PPCA.

    Source: Yu, Yu, Tresp, Kriegel and Wu (2006): Theorem 2, Algorithms 1 and 2, with the factor of (12) and the means
    of the semi-supervised model corrected.
    """
