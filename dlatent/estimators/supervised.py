"""Supervised and semi-supervised probabilistic PCA."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, DataSource, Features
from dlatent.engine.connect import Where
from dlatent.estimators.callbacks import Callback
from dlatent.estimators.inputs import Data, Mask, PathLike, Rows, Seed, TargetsLike
from dlatent.estimators.labelled import plain_rows
from dlatent.estimators.map_rows import map_rows, open_input
from dlatent.estimators.ppca import PPCA, own_posteriors, posterior_dataset
from dlatent.estimators.target_heads import TargetHeads
from dlatent.estimators.targets import EncodedTargets, TargetEncoding, TargetType
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.expectation import pattern_projection
from dlatent.linear_gaussian.likelihood import predict_targets
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification


def prediction_rows(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, encoding: TargetEncoding
) -> Array:
    """Mean of the outputs (n, L) given the features."""
    return encoding.decode(predict_targets(x, parameters, specification).mean)


def incomplete_prediction_rows(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, encoding: TargetEncoding
) -> Array:
    """Mean of the outputs (n, L) given the observed features."""
    own = specification.slices[1]
    means = incomplete.scores(x, None, parameters, specification) @ parameters.loadings[own].T + parameters.mean[own]
    return encoding.decode(means)


def variance_rows(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, encoding: TargetEncoding
) -> Array:
    """Variance of the outputs (n, L) given the observed features."""
    loadings = encoding.rotation @ parameters.loadings[specification.slices[1]]
    noise = parameters.noise_variance[1] * (encoding.rotation**2).sum(axis=1)
    return np.asarray(incomplete.linear_variances(x, None, parameters, specification, loadings) + noise)


class SupervisedPPCA(TargetHeads, PPCA):
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

    def __init__(
        self,
        n_components: int = 2,
        *,
        target_type: TargetType = "auto",
        tol: float = 1e-9,
        max_iter: int | None = None,
        random_state: Seed = 0,
        solver: Literal["auto", "covariance", "krylov", "gram", "accelerated_em", "em"] = "auto",
        noise_floor: float = 1e-6,
        target_noise_floor: float = 1e-3,
        zero_rows: Literal["keep", "raise"] = "keep",
        missing: Literal["raise", "nan", "unstored"] = "raise",
    ) -> None:
        super().__init__(
            n_components,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            solver=solver,
            noise_floor=noise_floor,
            zero_rows=zero_rows,
            missing=missing,
        )
        self.target_type = target_type
        self.target_noise_floor = target_noise_floor

    def _encoded(self, source: DataSource, y: TargetsLike, labelled: Mask) -> EncodedTargets:
        return self._encode(y, labelled, source.shape[0], source.labels)

    def plan(self, X: Data, y: TargetsLike = None, *, labelled: Mask = None, client: Where = None) -> Plan:
        """What `fit` would do and cost, from metadata and the targets alone.

        Parameters: `X`, `y`, `labelled` and `client` as in `fit`.
        Returns: the plan; `str(plan)` is a page to read.
        Errors: PlanError where no route fits in memory, with the way out; DataError as in `fit`.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        encoded = self._encoded(source, y, labelled)
        return self._make_plan(source, self._make_specification(source, encoded), client, encoded=encoded)

    def fit(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        labelled: Mask = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Fit the model to features and targets: the maximum of Σ log p(x, y) + Σ log p(x) over unlabelled rows.

        Parameters: `X` (N, D) as in PPCA; `y` (N,) or (N, L), unlabelled rows NaN, None or (class labels) −1;
        `labelled` (N,) booleans, another way to say which rows have targets; `client`, `callbacks` as in PPCA.
        Errors: DataError (also: no labelled row, one class, wrong length, partly missing outputs), PlanError.
        """
        self._check_hyperparameters()
        source, _ = open_input(X)
        self._check_shape(source)
        encoded = self._encoded(source, y, labelled)
        self._fit(source, encoded, client, callbacks)
        self._publish_targets(encoded.encoding)
        return self

    def _encode_new(self, X: Data, y: TargetsLike) -> Array | None:
        if y is None:
            return None
        rows = int(X.shape[0] if hasattr(X, "shape") else open_input(X)[0].shape[0])
        return self._encoding.encode(plain_rows(y, None), rows, holes=self.missing != "raise")

    def transform(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """Posterior means E[z|x], or E[z|x, y] for rows whose targets are given (SPPCA (7), (8), (12), corrected).

        Parameters: `X` (N, D); `y` targets as in `fit`, None or unlabelled rows use the features alone; `out` as in
        PPCA.
        Returns: (N, K) in the kind of the input, or the path of the written store.
        """
        self._require_fitted()
        return self._scores(X, self._encode_new(X, y), out=out, overwrite=overwrite, client=client)

    def posterior(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> xr.Dataset:
        """The distribution of the latent variables given the features and, where present, the targets.

        Parameters: `X` (N, D); `y` as in `transform`.
        Returns: Dataset with `scores` (sample, component) and `covariance`; with `y` there are two covariances
        (pattern, component, component_2), pattern 0 for labelled rows, and `pattern_of` (sample) tells which is
        whose; where entries may be missing each row has its own (sample, component, component_2).
        """
        scores = cast(Rows, self.transform(X, y, client=client))
        if self.missing != "raise":
            return own_posteriors(scores, self._covariances(X, self._encode_new(X, y), client=client))
        patterns: tuple[tuple[int, ...], ...] = ((0,),) if y is None else ((0, 1), (0,))
        covariances = [pattern_projection(self._parameters, self._specification, p).covariance for p in patterns]
        rows = np.zeros(scores.shape[0], dtype=np.int64)
        encoded = self._encode_new(X, y)
        if encoded is not None:
            rows = np.isnan(encoded[:, 0]).astype(np.int64)
        return posterior_dataset(scores, np.stack(covariances), rows)

    def impute(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """The features with each missing entry replaced by its mean given the observed ones, and the targets if given.

        Parameters: `X` (N, D); `y` as in `transform`; `out` as in PPCA. Returns and errors: as in PPCA.
        """
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        return self._imputed(incomplete.imputed, X, self._encode_new(X, y), "imputed", options)

    def impute_variance(
        self,
        X: Data,
        y: TargetsLike = None,
        *,
        out: PathLike | None = None,
        overwrite: bool = False,
        client: Where = None,
    ) -> Rows | str:
        """The variance of each missing entry of the features; see `impute`."""
        options: dict[str, Any] = {"out": out, "overwrite": overwrite, "client": client}
        return self._imputed(incomplete.imputed_variances, X, self._encode_new(X, y), "imputed_variance", options)

    def decision_function(self, X: Data, *, client: Where = None) -> Rows:
        """Mean of the outputs given the features, E[y|x] = μ_y + W_y E[z|x].

        Parameters: `X` (N, D); `client` as in `fit`.
        Returns: (N, L) in the kind of the input, dims (sample, target): regression values, or scores of the classes
        or labels.
        Errors: NotFittedError; DataError as in `PPCA.transform`.
        """
        self._require_fitted()
        rows = prediction_rows if self.missing == "raise" else incomplete_prediction_rows
        function = self._rows(partial(rows, encoding=self._encoding))
        options: dict[str, Any] = {"columns": "target", "names": self._encoding.names, "name": "outputs"}
        return cast(Rows, map_rows(X, function, self._known_features(), client=client, **options))

    def predict(self, X: Data, *, return_variance: bool = False, client: Where = None) -> Rows | tuple[Rows, Rows]:
        """Predict the targets from the features: y | x ~ N(μ_y + W_y E[z|x], W_y M⁻¹W_yᵀ + σ_y²VVᵀ).

        Returns: class labels (N,) (the class of the largest mean), 0/1 (N, L) for multi-label targets (mean above ½),
        or means (N,) or (N, L) for regression; with `return_variance` also the variance of each output (L,), the same
        for all rows, or where entries may be missing that of each row (N, L).
        """
        means: Any = self.decision_function(X, client=client)
        values: Rows = self._predicted(means)
        if not return_variance:
            return values
        if self.missing == "raise":
            return values, self.predictive_variance()
        function = self._rows(partial(variance_rows, encoding=self._encoding))
        options: dict[str, Any] = {"columns": "target", "names": self._encoding.names, "name": "variance"}
        return values, cast(Rows, map_rows(X, function, self._known_features(), client=client, **options))

    def predictive_variance(self) -> Array:
        """Variance of each output given the features (L,): the diagonal of W_y M⁻¹W_yᵀ + σ_y²VVᵀ."""
        self._require_fitted()
        return self._output_variance((0,))

    def score_samples(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> Rows:
        """Log-likelihood of each sample: log p(x, y) where targets are given, log p(x) elsewhere.

        Parameters: `X` (N, D); `y` as in `transform`.
        Returns: (N,) in nats, the targets on their rank, in the kind of the input.
        Errors: NotFittedError; DataError for other features, or labels that the model does not know.
        """
        self._require_fitted()
        return self._log_likelihoods(X, self._encode_new(X, y), client=client)

    def score(self, X: Data, y: TargetsLike = None, *, client: Where = None) -> float:
        """Mean log-likelihood per sample, in nats; not the accuracy of `predict`.

        Parameters: `X` (N, D); `y` as in `transform`.
        Returns: a number. Errors: as in `score_samples`.
        """
        return float(np.mean(np.asarray(self.score_samples(X, y, client=client))))

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # type: ignore[override]
        """Draw samples from the model: z ~ N(0, I), x = W_x z + μ_x + ε_x, y = W_y z + μ_y + ε_y.

        Parameters: `n_samples`; `random_state`, a seed or numpy Generator (None: another draw at every call).
        Returns: features (n_samples, D) and outputs (n_samples, L). Errors: NotFittedError.
        """
        self._require_fitted()
        rng = np.random.default_rng(random_state)
        own, p = self._specification.slices, self._parameters
        z = rng.standard_normal((n_samples, p.loadings.shape[1]))
        noise = np.sqrt(self._specification.per_feature(p.noise_variance))
        both = z @ p.loadings.T + p.mean + rng.standard_normal((n_samples, len(p.mean))) * noise
        return both[:, own[0]], self._encoding.decode(both[:, own[1]])
