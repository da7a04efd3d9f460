"""Probabilistic principal component analysis."""

from __future__ import annotations

from typing import Any

from dlatent.arrays import DataSource
from dlatent.errors import DataError
from dlatent.fitting.outcome import Outcome
from dlatent.linear_gaussian.specification import Specification
from dlatent.models.base import Given
from dlatent.models.heads import Criteria, Draws, Imputes, Reconstructs, Transforms
from dlatent.models.hyperparameters import PPCAHyperparameters
from dlatent.models.moment_heads import FitsPartly, FitsWeighted, ScoresWeighted


class PPCA(
    PPCAHyperparameters, FitsWeighted, FitsPartly, Transforms, ScoresWeighted, Criteria, Imputes, Reconstructs, Draws
):
    r"""Probabilistic principal component analysis, fitted by maximum likelihood.

    .. math:: x = W z + \mu + \varepsilon, \qquad z \sim N(0, I_K), \quad \varepsilon \sim N(0, \sigma^2 I)

    Fitted to complete data it finds the subspace of PCA, and the noise beside it: so it also says how likely data are,
    how sure its scores are, and what missing entries were.

    Attributes
    ----------
    row_effect_variance_ : float
        τ², the variance of the levels of the rows with `row_effects=True`, else 0; the level of a row is its last score
        times τ.

    See Also
    --------
    FactorAnalysis : A noise variance for each feature.
    PPCAMixture : Several such models, of which each sample comes from one.

    References
    ----------
    Tipping and Bishop (1999), "Probabilistic principal component analysis", equations (7)–(8); Minka (2000), "Automatic
    choice of dimensionality for PCA", for "mle".  Read more in :doc:`/models/ppca`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) @ [[1.0, 2.0, 2.0]] + 0.5 * rng.normal(size=(200, 3))
    >>> model = PPCA(1).fit(X)
    >>> model.transform(X).shape
    (200, 1)
    >>> round(float(np.sqrt(model.noise_variance_)), 1)
    0.5
    >>> PPCA("mle").fit(X).n_components_
    1

    Missing entries are NaN:

    >>> X[0, 2] = np.nan
    >>> filled = PPCA(1, missing="nan").fit(X).impute(X)
    >>> bool(np.isnan(filled).any())
    False
    """

    @property
    def row_effect_variance_(self) -> float:
        """The variance of the levels of the rows."""
        self._require_fitted()
        return float((self.components_[self.n_components_ :] ** 2).max(initial=0.0))

    def _finished(self, outcome: Outcome, given: Given) -> Outcome:
        if self._missing != "raise":
            return outcome
        weights = given.source.weights
        return self._with_prior(outcome, float(outcome.samples if weights is None else weights.sum()))

    def _most_components(self, source: DataSource) -> int:
        rows, features = source.shape
        if self._rule is None:
            return super()._most_components(source)
        if isinstance(self._rule, str) and rows <= features:
            raise DataError(
                f"n_components={self._rule!r} is for more samples than features, and the {source.description} has "
                f"{rows} × {features}; take a part of the variance such as 0.9, or compare numbers by "
                "select_n_components"
            )
        return min(rows - 1, features)

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        return super()._more_of_problem(given, specification) | {"rule": self._rule}
