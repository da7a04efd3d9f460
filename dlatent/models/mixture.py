"""A mixture of probabilistic PCA, or of factor analysers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, DataSource
from dlatent.containers import precision_of, refuse_mask
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.grid import feature_axis, over_features
from dlatent.fitted.mixture import Mixture
from dlatent.fitted.parts import Labels
from dlatent.fitted.rows import function
from dlatent.gaussian.dimension import free_numbers
from dlatent.models import fit_methods, row_methods
from dlatent.models.hyperparameters import (
    COUNT,
    NOT_NEGATIVE,
    MixtureNoise,
    MixtureSolver,
    Parameter,
    Scale,
    choice,
    model,
    parameter,
)
from dlatent.models.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.models.linear import latent
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import Model
from dlatent.models.row_methods import mapped
from dlatent.models.table import table_task, warmed
from dlatent.models.task import FitTask
from dlatent.solvers.mixture.solver import MIXTURE_SOLVERS, Mixtures
from dlatent.solvers.solver import Solution


def fitted_mixture(task: FitTask, solution: Solution) -> Mixture:
    """The fitted mixture."""
    return Mixture.of(solution, Labels(task.source.labels))


@model
class PPCAMixture(Model[Mixture]):
    r"""A mixture of probabilistic PCA, or of factor analysers.

    Every sample comes from one of M = `n_mixtures` clusters (`n_components` of scikit-learn's `GaussianMixture`), each
    with a subspace of its own, of K = `n_components` directions; which cluster is not known.

    .. math:: c \sim \pi, \qquad x = W_c z + \mu_c + \varepsilon, \qquad z \sim N(0, I_K), \quad
        \varepsilon \sim N(0, \Psi_c)

    Ψ_c is σ_c²I or, with `noise="diagonal"`, a noise variance for each feature.  A maximum is a local one: more starts
    find better ones.  One component is fitted as PPCA, or factor analysis.

    References
    ----------
    Tipping and Bishop (1999), "Mixtures of probabilistic principal component analysers".  Read more in
    :doc:`/models/mixture`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCAMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(size=(90, 3)), rng.normal(size=(60, 3)) + 9.0])
    >>> model = PPCAMixture(1, n_mixtures=2).fit(X)
    >>> model.weights_.round(2)
    array([0.6, 0.4])
    >>> np.bincount(model.predict(X))
    array([90, 60])
    """

    n_components: int = parameter(
        default=2,
        kw_only=False,
        text="K, the number of latent variables of each component of the mixture; less than the number of samples, and "
        "at most that of features.",
    )
    n_mixtures: int = parameter(
        Parameter(
            COUNT,
            "int",
            "M, the number of components of the mixture (what scikit-learn's GaussianMixture calls `n_components`).",
            option="mixtures",
            letter="m",
            short="M",
        ),
        default=2,
        kw_only=False,
    )
    tol: float = parameter(
        default=1e-9, text="Estimated relative distance of the log-likelihood from its maximum at which a fit stops."
    )
    max_iter: int | None = parameter(
        default=None,
        text='Most passes over the data (by default 300), or EM iterations with `solver="em"` (by default 2,000).',
    )
    random_state: Seed = parameter(default=0, text="Seed of the starts, and of the rows that they climb on.")
    solver: MixtureSolver = parameter(
        choice(MixtureSolver, '"auto" is accelerated EM; "em" iterates textbook EM from the same start.'),
        default="auto",
    )
    noise_floor: float = parameter(
        default=0.0,
        text=(
            "Smallest noise variance, as a fraction of the mean variance of the features (isotropic), or of that of "
            "the feature; what is less than rounding, or of a feature than 1e-6, counts as that.  It is where a "
            "component ends that collapses on few rows, of which the likelihood has no bound."
        ),
    )
    noise: MixtureNoise = parameter(
        choice(
            MixtureNoise,
            "One noise variance for each component (PPCA), or one for each component and feature (factor analysis).",
        ),
        default="isotropic",
    )
    noise_prior: float | None = parameter(
        Parameter(
            NOT_NEGATIVE.or_none(),
            "float",
            "Rows that the prior of each noise variance counts as, 0 for none (maximum likelihood); by default half a "
            'row with `noise="diagonal"`, else none.  They have the variance of the feature within clusters of '
            "k-means, so that one that is constant in a component keeps some noise.",
            short="ROWS",
        ),
        default=None,
    )
    n_init: int | None = parameter(
        Parameter(COUNT.or_none(), "int", "Starts a round; by default 64, or as many as 64 MiB hold.", option="starts"),
        default=None,
    )
    warm_start: bool = parameter(
        default=False,
        text="Go on from the components of the last fit, or of the saved model, and not from the best of the starts.",
    )
    scale: Scale | None = parameter(default="none")
    whiten: bool = parameter(default=False)

    def _task(self, X: DataSource, **data: Any) -> FitTask:
        task = table_task(self, X, diagonal=self.noise == "diagonal")
        rows, mixtures = task.source.shape[0], int(self.n_mixtures)
        if mixtures > rows:
            raise DataError(
                f"n_mixtures is {self.n_mixtures}, but the {task.source.description} has {rows} samples; ask for fewer "
                "components of the mixture"
            )
        # One component is PPCA, or factor analysis.
        task = replace(task, fitted=fitted_mixture)
        if mixtures > 1:
            task = replace(task, family=Mixtures(mixtures, self.n_init, self.noise_prior), solvers=MIXTURE_SOLVERS)
        return warmed(task, self)

    fit, plan, fit_predict = fit_methods.fit, fit_methods.plan, fit_methods.fit_predict
    bic, aic = row_methods.bic, row_methods.aic
    feature_names_in_ = row_methods.feature_names_in_

    @property
    def n_components_(self) -> int:
        """int: K."""
        return len(self._model.component)

    @property
    def n_features_in_(self) -> int:
        """int: Number of features, D."""
        return int(self._model.mean.shape[1])

    @property
    def weights_(self) -> Array:
        """ndarray of shape (n_mixtures,): π, in decreasing order."""
        return self._model.weights

    @property
    def means_(self) -> Array:
        """ndarray of shape (n_mixtures, n_features): μ_c, in units of the features."""
        return self._model.mean

    @property
    def components_(self) -> Array:
        """ndarray of shape (n_mixtures, n_components, n_features): W_cᵀ, loadings in units of the features; those of
        each component as in PPCA."""
        return self._model.components

    @property
    def noise_variance_(self) -> Array:
        """ndarray of shape (n_mixtures,) or (n_mixtures, n_features): σ_c² or, with `noise="diagonal"`, ψ_c; in squared
        units of the features."""
        return self._model.noise.variance

    @property
    def at_floor_(self) -> Array:
        """ndarray of bool in the shape of `noise_variance_`: Whether a noise variance is at its floor."""
        return self._model.noise.at_floor

    @property
    def n_parameters_(self) -> int:
        """int: Free numbers of the model, rotations of the loadings not counted."""
        count, width, k = self._model.loadings.shape
        return int(count * free_numbers(width, k, self._model.noise.variance.size // count) + count - 1)

    def predict_proba(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        r"""Responsibilities: how likely each sample comes from each component of the mixture.

        .. math:: p(c \mid x) = \frac{\pi_c\, p(x \mid c)}{\sum_{c'} \pi_{c'}\, p(x \mid c')}

        Returns
        -------
        array of shape (n_samples, n_mixtures), or str
            Rows with the sum 1, in the kind of the input (numpy, lazy Dask, xarray), or the path `out`.
        """
        rows, names = function(self._model.rows.responsibilities), self._model.mixture
        return mapped(self, X, rows, "responsibilities", "mixture", names, run=RowsRun(out, overwrite, resume, client))

    def predict(self, X: Data, *, client: Where = None) -> Rows:
        """The component of the mixture with the largest responsibility.

        Returns
        -------
        array of int of shape (n_samples,)
            From 0, in the kind of the input.
        """
        rows = function(self._model.rows.likeliest)
        components: Any = mapped(self, X, rows, "mixture", run=RowsRun(client=client))
        return cast(Rows, components.astype(np.int64))

    def transform(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        r"""Scores of each sample in the component that `predict` gives.

        .. math:: E[z \mid x, c] = M_c^{-1} W_c^\top \Psi_c^{-1} (x - \mu_c), \qquad M_c = I + W_c^\top \Psi_c^{-1} W_c

        times the lengths of the loadings, unless `whiten=True`.  The coordinates of different components have nothing
        in common: compare those of one component.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input, or the path `out`.
        """
        fitted = self._model
        rows = function((fitted.rows if self.whiten else replace(fitted.rows, lengths=fitted.lengths)).scores)
        run = RowsRun(out, overwrite, resume, client)
        return mapped(self, X, rows, "scores", "component", fitted.component, run=run)

    def reconstruct(
        self,
        X: Data,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """The samples as their components see them, W_c E[z|x, c] + μ_c, in the component c that `predict` gives.

        Returns
        -------
        array of shape (n_samples, n_features), or str
            In the kind of the input, or the path `out`.
        """
        rows = function(self._model.rows.reconstructions)
        axis = feature_axis(self._model.labels.known, self.n_features_in_)
        return mapped(self, X, rows, "reconstructed", run=RowsRun(out, overwrite, resume, client), **axis)

    def inverse_transform(self, Z: ScoresLike, labels: npt.ArrayLike) -> Array | xr.DataArray:
        """Return the expected features for given scores, in the units of `transform`: E[x|z, c] = W_c z + μ_c.

        Parameters
        ----------
        labels : array of int of shape (n_samples,)
            The component of each row.

        Returns
        -------
        array of shape (n_samples, n_features)
            In units of the features; over their dimensions as in PPCA.inverse_transform.

        Raises
        ------
        DataError
            For another number of latent variables, or labels that are no components.
        """
        fitted = self._model
        scores, chosen = latent(self, Z, fitted.component), refuse_mask(labels, "labels").ravel()
        rows = fitted.conditional_means(scores, chosen, whiten=self.whiten).astype(precision_of(scores), copy=False)
        return over_features(rows, fitted.labels.known, Z)

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        r"""Log-likelihood of each sample, in O(DKM) each.

        .. math:: \log p(x) = \log \sum_c \pi_c\, N(x \mid \mu_c, W_c W_c^\top + \Psi_c)

        Returns
        -------
        array of shape (n_samples,)
            In nats, in the kind of the input.
        """
        density = function(self._model.rows.log_density)
        return cast(Rows, mapped(self, X, density, "log_likelihood", run=RowsRun(client=client)))

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats.

        Returns
        -------
        float
            The mean of `score_samples`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, client=client))))

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None
    ) -> tuple[npt.NDArray[np.float64] | xr.DataArray, npt.NDArray[np.int64]]:
        """Draw samples from the model: c ~ π, z ~ N(0, I), x = W_c z + μ_c + ε.

        Returns
        -------
        samples : array of shape (n_samples, n_features)
            In units of the features.
        labels : ndarray of int of shape (n_samples,)
            The component of each.
        """
        fitted, rng = self._model, np.random.default_rng(random_state)
        labels = rng.choice(len(fitted.weights), size=n_samples, p=fitted.weights)
        z = rng.standard_normal((n_samples, len(fitted.component)))
        spread = np.sqrt(fitted.parameters.noise_variance)[labels]
        noise = rng.standard_normal((n_samples, self.n_features_in_)) * spread
        return over_features(fitted.conditional_means(z, labels, whiten=True) + noise, fitted.labels.known), labels
