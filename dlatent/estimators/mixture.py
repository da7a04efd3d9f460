"""A mixture of probabilistic PCA, or of factor analysers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, DataSource
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.engine.session import Session
from dlatent.errors import DataError, StoreError
from dlatent.estimators.base import Fitted, Given
from dlatent.estimators.facts import Facts, component_facts, noise_fact
from dlatent.estimators.grid import feature_words
from dlatent.estimators.heads import Criteria, Fits, free_numbers
from dlatent.estimators.hyperparameters import MixtureHyperparameters
from dlatent.estimators.inputs import Data, PathLike, Rows, ScoresLike, Seed, TargetsLike
from dlatent.estimators.restored import noise_name, restored_outcome
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.task import Task
from dlatent.linear_gaussian import mixture
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View


class PPCAMixture(MixtureHyperparameters, Fits, Criteria):
    """A mixture of probabilistic PCA: c ~ π, x = W_c z + μ_c + ε with z ~ N(0, I_K) and ε ~ N(0, σ_c²I), or N(0, Ψ_c).

    Every sample comes from one of M components, each with a subspace of its own; which one is not known.

    Parameters
    ----------
    n_components : K, the number of latent variables of each component; less than the number of samples, and at most
        that of features.
    n_mixtures : M, the number of components of the mixture (what scikit-learn's GaussianMixture calls n_components).
    noise : "isotropic", one noise variance for each component (PPCA), or "diagonal", one for each component and feature
        (factor analysis).
    tol : estimated relative distance of the log-likelihood from its maximum at which a fit stops.
    max_iter : most passes over the data (300), or EM iterations with solver="em" (2,000); None takes these.
    n_init : number of starts, each climbed from on some rows of the data; the best goes on over all of them.
    random_state : seed of these rows and of the starts.
    solver : "auto" for accelerated EM; "em" iterates textbook EM from the same start.
    noise_floor : smallest noise variance, as a part of the mean variance of the features (isotropic), or of that of the
        feature.  It keeps a component from collapsing on few rows, where the likelihood has no bound; below 1e-8 it
        counts as that.
    zero_rows : "keep" fits rows of zeros, and a warning counts them; "raise" stops at the first.

    Attributes
    ----------
    weights_ : π (M,), in decreasing order.
    means_ : μ (M, D), in units of the features.
    components_ : Wᵀ (M, K, D), loadings in units of the features; those of each component as in PPCA.
    noise_variance_ : σ² (M,) or, with noise="diagonal", ψ (M, D), in squared units of the features.
    n_parameters_ : free numbers of the model, for `bic` and `aic`.
    log_likelihood_ : of all samples, in nats.
    n_iter_ : iterations of the loop, as in `history_`.
    n_passes_ : passes over the data, the initial mean of their first block not counted.
    converged_ : whether the tolerance was met.
    at_floor_ : truth values in the shape of `noise_variance_`, whether a noise variance is at its floor.
    n_samples_ : number of samples N.
    n_features_in_ : number of features D.
    feature_names_in_ : names of the features (D,), where the data of the fit had names, all of them texts.
    history_ : Dataset with a line for each iteration and for each pass.

    A maximum is a local one: the likelihood of a mixture has several, and more starts find better ones.  With one
    component the model is PPCA, or factor analysis, and is fitted as such.

    Source: Tipping and Bishop (1999), "Mixtures of probabilistic principal component analysers".
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
        return {"mixtures": int(self.n_mixtures)}

    def _more_of_task(self, session: Session, given: Given, specification: Specification) -> dict[str, Any]:
        return {"starts": int(self.n_init)}

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        outcome = fitted.outcome
        if outcome.weights is None:
            # Of one component, which another route has fitted.
            first = Parameters(*(part[None] for part in outcome.parameters))
            outcome = replace(outcome, parameters=first, weights=np.ones(1))
        super()._keep(replace(fitted, outcome=outcome), task, given)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        assert outcome.weights is not None
        self._mixture = mixture.Mixture(outcome.weights, *outcome.parameters)
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
        """Responsibilities p(c|x) = π_c p(x|c) / Σ π_c' p(x|c').

        Parameters: `X` (N, D); `out`, a Zarr store to be written instead of memory, `overwrite` one that is there;
        `resume`, to keep what an interrupted call has written and to go on from there; `client` as in `fit`.
        Returns: (N, M), rows with the sum 1, in the kind of the input (numpy, lazy dask, xarray), or the path.
        Errors: NotFittedError; DataError as in PPCA.transform.
        """
        self._require_fitted()
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._of_rows(X, mixture.responsibilities, "responsibilities", "mixture", self._mixture_names, **options)

    def predict(self, X: Data, *, client: Where = None) -> Rows:
        """The component of the mixture with the largest responsibility.

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N,) whole numbers from 0, in the kind of the input. Errors: as in `predict_proba`.
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
        """Posterior means E[z|x, c] = M_c⁻¹W_cᵀΨ_c⁻¹(x − μ_c) with M_c = I + W_cᵀΨ_c⁻¹W_c, in the component c that
        `predict` gives.

        The coordinates of different components have nothing in common: compare those of one component.

        Parameters: as in `predict_proba`.
        Returns: (N, K) in the kind of the input, or the path. Errors: as in `predict_proba`.
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
        """The rows as their components see them: W_c E[z|x, c] + μ_c, in the component c that `predict` gives.

        Parameters: as in `predict_proba`.
        Returns: (N, D) in the kind of the input, or the path. Errors: as in `predict_proba`.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "resume": resume, "client": client}
        return self._of_rows(X, mixture.reconstructions, "reconstructed", **self._feature_axis(), **options)

    def inverse_transform(self, Z: ScoresLike, labels: npt.ArrayLike) -> Array | xr.DataArray:
        """What the model expects of the features for given latent variables: E[x|z, c] = W_c z + μ_c.

        Parameters: `Z` (n, K) scores; `labels` (n,), of which component c each row is.
        Returns: (n, D), in units of the features; over their dimensions as PPCA.inverse_transform.
        Errors: NotFittedError; DataError for another number of latent variables, or labels that are no components.
        """
        return self._over_features(self._means_given(self._latent(Z), np.asarray(labels)), Z)

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
        """Log-likelihood log p(x) = log Σ_c π_c N(x | μ_c, W_c W_cᵀ + Ψ_c) of each sample; O(DKM) each.

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N,) in nats, in the kind of the input. Errors: as in `predict_proba`.
        """
        return cast(Rows, self._of_rows(X, mixture.log_densities, "log_likelihood", client=client))

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats.

        Parameters: `X` (N, D); `y` is ignored.
        Returns: a number. Errors: as in `predict_proba`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, client=client))))

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None
    ) -> tuple[npt.NDArray[np.float64] | xr.DataArray, npt.NDArray[np.int64]]:
        """Draw samples from the model: c ~ π, z ~ N(0, I), x = W_c z + μ_c + ε.

        Parameters: `n_samples`; `random_state`, a seed or numpy Generator (None: another draw at every call).
        Returns: (n_samples, D), in units of the features, and the component of each (n_samples,).
        Errors: NotFittedError.
        """
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        z = rng.standard_normal((n_samples, self.components_.shape[1]))
        spread = np.sqrt(self._mixture.noise_variance)[labels]
        noise = rng.standard_normal((n_samples, self.n_features_in_)) * spread
        return self._over_features(self._means_given(z, labels) + noise), labels
