"""A mixture of probabilistic PCA, or of factor analysers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, DataSource
from dlatent.containers import refuse_mask
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.errors import DataError, StoreError
from dlatent.fitted.facts import Facts, component_facts, noise_fact
from dlatent.fitted.grid import feature_words
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import Task
from dlatent.linear_gaussian import mixture
from dlatent.linear_gaussian.dimension import free_numbers
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View
from dlatent.models.base import Fitted, Given
from dlatent.models.heads import Criteria, Fits
from dlatent.models.hyperparameters import MixtureHyperparameters
from dlatent.models.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.models.restored import noise_name, restored_outcome


class PPCAMixture(MixtureHyperparameters, Fits, Criteria):
    r"""A mixture of probabilistic PCA, or of factor analysers.

    .. math:: c \sim \pi, \qquad x = W_c z + \mu_c + \varepsilon, \qquad z \sim N(0, I_K), \quad
        \varepsilon \sim N(0, \Psi_c)

    Every sample comes from one of M components, each with a subspace of its own; which one is not known.  Ψ_c is σ_c²I
    or, with `noise="diagonal"`, a noise variance for each feature.

    A maximum is a local one: the likelihood of a mixture has several, and more starts find better ones.  With one
    component the model is PPCA, or factor analysis, and is fitted as such.

    Attributes
    ----------
    weights_ : ndarray of shape (n_mixtures,)
        π, in decreasing order.
    means_ : ndarray of shape (n_mixtures, n_features)
        μ_c, in units of the features.
    components_ : ndarray of shape (n_mixtures, n_components, n_features)
        W_cᵀ, loadings in units of the features; those of each component as in PPCA.
    noise_variance_ : ndarray of shape (n_mixtures,) or (n_mixtures, n_features)
        σ_c² or, with `noise="diagonal"`, ψ_c; in squared units of the features.
    at_floor_ : ndarray of bool in the shape of `noise_variance_`
        Whether a noise variance is at its floor.

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

    def _check_shape(self, source: DataSource) -> None:
        super()._check_shape(source)
        if self.n_mixtures > source.shape[0]:
            raise DataError(
                f"n_mixtures is {self.n_mixtures}, but the {source.description} has {source.shape[0]} samples; ask for "
                "fewer components of the mixture"
            )

    @property
    def _shared(self) -> bool:  # type: ignore[override]
        return self.noise == "isotropic"

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        return {"mixtures": int(self.n_mixtures), "starts": int(self.n_init)}

    def _shapes(self, specification: Specification) -> tuple[tuple[int, ...], tuple[int, ...]]:
        loadings, noise = super()._shapes(specification)
        return (int(self.n_mixtures), *loadings), (int(self.n_mixtures), *noise)

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        outcome = fitted.outcome
        if outcome.weights is None:
            # Of one component, which another route has fitted.
            first = Parameters(*(part[None] for part in outcome.parameters[:3]))
            outcome = replace(outcome, parameters=first, weights=np.ones(1))
        super()._keep(replace(fitted, outcome=outcome), task, given)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        assert outcome.weights is not None
        self._mixture = mixture.Mixture(outcome.weights, *outcome.parameters[:3])
        self.weights_ = self._mixture.weights
        self.means_ = self._mixture.mean
        self.components_: Array = np.ascontiguousarray(self._mixture.loadings.transpose(0, 2, 1))
        noise, shared = self._mixture.noise_variance, outcome.specification.views[0].shared
        self.noise_variance_: Array = noise[:, 0] if shared else noise
        self.n_features_in_ = self._mixture.loadings.shape[1]
        self._publish_course(outcome, passes)
        self.at_floor_ = np.array(outcome.at_floor).reshape(self.noise_variance_.shape)

    def _parameter_variables(self) -> dict[str, Any]:
        shared = self._shared
        return {
            "mixture": self._mixture_names,
            "mixture_weight": self.weights_,
            "mixture_loadings": self._parameters.loadings,
            "mixture_mean": self.means_,
            f"mixture_{noise_name(shared, 'noise_variance')}": self.noise_variance_,
            f"mixture_{noise_name(shared, 'at_floor')}": self.at_floor_,
            noise_name(shared, "noise_floor"): self._specification.floors,
        }

    def _facts(self) -> Facts:
        return super()._facts() | {"mixture": self.weights_}

    def _words(self) -> dict[str, str]:
        of = "component" if self._shared else "component and feature"
        said = f"weights {', '.join(f'{weight:.3g}' for weight in self.weights_)}; a noise variance for each {of}"
        return super()._words() | {"mixture": said}

    def _noise_facts(self) -> list[Facts]:
        own = zip(self._mixture_names, self.weights_, self._mixture.noise_variance, strict=True)
        low = self.at_floor_.reshape(len(self.weights_), -1)
        return [
            noise_fact(f"component {m}", noise, low[m], round(weight * self.n_samples_), shared=self._shared)
            for m, weight, noise in own
        ]

    def _component_facts(self) -> list[Facts]:
        names = feature_words(self._fitted.labels, self.n_features_in_)
        total = float(self._fitted.outcome.total_variance[0]) * self.n_features_in_
        each = zip(self._mixture_names.tolist(), self._mixture.loadings, strict=True)
        return [{"mixture": m} | one for m, own in each for one in component_facts(own, names, total)]

    def _restored_outcome(self, values: dict[str, Any], attributes: dict[str, Any]) -> Outcome:
        weights, loadings, shared = values["mixture_weight"], values["mixture_loadings"], self._shared
        if abs(weights.sum() - 1.0) > 1e-9:
            raise StoreError(f"the weights of the mixture add up to {weights.sum():.10g}, not to 1")
        noise, low = (values[f"mixture_{noise_name(shared, name)}"] for name in ("noise_variance", "at_floor"))
        floors = values[noise_name(shared, "noise_floor")]
        floor = float(floors[0]) if shared else tuple(floors.tolist())
        view = View("features", loadings.shape[1], floor, shared=shared)
        parameters = Parameters(loadings, values["mixture_mean"], noise.reshape(len(weights), view.groups))
        made = Specification((view,), ((0,),), loadings.shape[2])
        return replace(
            restored_outcome(values, attributes, parameters, made, tuple(low.ravel().tolist())), weights=weights
        )

    @property
    def n_parameters_(self) -> int:
        """Free numbers of the model, rotations of the loadings not counted."""
        self._require_fitted()
        count, width, k = self._parameters.loadings.shape
        each = free_numbers(width, k, self._parameters.noise_variance.shape[1])
        return int(count * each + count - 1)

    @property
    def _mixture_names(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.weights_))

    def _of_rows(
        self, X: Data, function: Any, name: str, columns: str = "", names: Any = None, **options: Any
    ) -> Rows | str:
        self._require_fitted()
        return self._mapped(X, partial(function, mixture=self._mixture), name, columns, names, **options)

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

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        """
        self._require_fitted()
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._of_rows(X, mixture.responsibilities, "responsibilities", "mixture", self._mixture_names, **options)

    def predict(self, X: Data, *, client: Where = None) -> Rows:
        """The component of the mixture with the largest responsibility.

        Returns
        -------
        array of int of shape (n_samples,)
            From 0, in the kind of the input.
        """
        found: Any = self._of_rows(X, mixture.likeliest, "mixture", client=client)
        return cast(Rows, found.astype(np.int64))

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

        The coordinates of different components have nothing in common: compare those of one component.

        Returns
        -------
        array of shape (n_samples, n_components), or str
            In the kind of the input, or the path `out`.

        Raises
        ------
        NotFittedError, DataError
            As in PPCA.transform.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        self._require_fitted()
        return self._of_rows(X, mixture.scores, "scores", "component", self.component_names_, **options)

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
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._of_rows(X, mixture.reconstructions, "reconstructed", **self._feature_axis(), **options)

    def inverse_transform(self, Z: ScoresLike, labels: npt.ArrayLike) -> Array | xr.DataArray:
        """What the model expects of the features for given latent variables, E[x|z, c] = W_c z + μ_c.

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
        NotFittedError
            Before `fit`.
        DataError
            For another number of latent variables, or labels that are no components.
        """
        return self._over_features(self._means_given(self._latent(Z), refuse_mask(labels, "labels")), Z)

    def _means_given(self, z: Array, chosen: npt.NDArray[Any]) -> Array:
        """The means of the features (n, D) given latent variables and the component of each row."""
        if chosen.shape != (len(z),) or chosen.dtype.kind not in "iu" or not np.isin(chosen, self._mixture_names).all():
            raise DataError(
                f"the labels must be {len(z)} whole numbers from 0 to {len(self.weights_) - 1}, as `predict` gives them"
            )
        found = np.empty((len(z), self.n_features_in_))
        for c in self._mixture_names:
            found[chosen == c] = z[chosen == c] @ self.components_[c] + self.means_[c]
        return found

    def score_samples(self, X: Data, *, client: Where = None) -> Rows:
        r"""Log-likelihood of each sample, in O(DKM) each.

        .. math:: \log p(x) = \log \sum_c \pi_c\, N(x \mid \mu_c, W_c W_c^\top + \Psi_c)

        Returns
        -------
        array of shape (n_samples,)
            In nats, in the kind of the input.
        """
        return cast(Rows, self._of_rows(X, mixture.log_densities, "log_likelihood", client=client))

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
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        z = rng.standard_normal((n_samples, self.components_.shape[1]))
        spread = np.sqrt(self._mixture.noise_variance)[labels]
        noise = rng.standard_normal((n_samples, self.n_features_in_)) * spread
        return self._over_features(self._means_given(z, labels) + noise), labels
