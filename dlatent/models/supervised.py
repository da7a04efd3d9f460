"""Supervised and semi-supervised probabilistic PCA."""

from __future__ import annotations

from dlatent.arrays import DataSource
from dlatent.errors import DataError
from dlatent.models.heads import Reconstructs
from dlatent.models.hyperparameters import SupervisedHyperparameters
from dlatent.models.target_heads import (
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
    r"""Supervised PPCA: features and targets share the latent variables; samples without targets are welcome.

    .. math:: x = W_x z + \mu_x + \varepsilon_x, \qquad y = W_y z + \mu_y + \varepsilon_y, \qquad z \sim N(0, I_K)

    With a target for every sample this is SPPCA, whose best maximum over loadings and noises is sought with
    eigenvectors and a scan of the two noise variances; with samples that have none it is S²PPCA, fitted by
    Rayleigh–Ritz EM.

    Parameters
    ----------
    solver : {"auto", "covariance", "krylov", "gram", "accelerated_em", "em"}, default "auto"
        As in PPCA; "em" is Algorithm 1 or, where samples have no targets, 2, corrected.
    missing : {"raise", "nan", "unstored"}, default "raise"
        Whether entries of the features may be missing, as in PPCA; unless "raise", targets may be missing one by one,
        too.

    References
    ----------
    Yu, Yu, Tresp, Kriegel and Wu (2006): Theorem 2, Algorithms 1 and 2, with the factor of (12) and the means of the
    semi-supervised model corrected.  Read more in :doc:`/models/supervised`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from dlatent import SupervisedPPCA
    >>> X, grape = load_wine(return_X_y=True)
    >>> some = np.where(np.arange(178) % 5 == 0, grape, -1)
    >>> model = SupervisedPPCA(2).fit(scale(X), some)
    >>> bool(np.mean(model.predict(scale(X)) == grape) > 0.95)
    True
    """

    def _check_missing(self, source: DataSource) -> None:
        super()._check_missing(source)
        if self._prior != "ml" and self._missing == "raise" and source.sparse:
            raise DataError(
                f"prior={self.prior!r} of supervised PPCA is for dense data or missing='unstored', and the "
                f"{source.description} is sparse; make it dense, or leave prior='ml'"
            )
