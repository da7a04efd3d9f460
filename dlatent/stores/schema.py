"""The variables that a stored result may have: name, dimensions, kind of values, and what they mean.

Every variable is checked when it is saved and when it is loaded, so that a store never holds what nobody can read.
A new model adds its variables here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.errors import StoreError

GRID = "grid_"
"""How names begin that a model gives to coordinates of its users, and to their dimensions."""


@dataclass(frozen=True)
class Variable:
    """A named array on its way to or from a store: `dims` names its axes, `attrs` are JSON values about it."""

    dims: tuple[str, ...]
    values: npt.NDArray[Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)


class Kind(NamedTuple):
    """A kind of values: numpy's letters, a description, and the smallest of a model where all are finite numbers."""

    letters: str
    description: str
    least: float | None = None


REAL = Kind("f", "floating point")
FINITE = Kind("f", "floating point", -inf)
POSITIVE = Kind("f", "floating point", 0)
INTEGER = Kind("iu", "integers")
COUNT = Kind("iu", "integers", 0)
TRUTH = Kind("b", "booleans")
TEXT = Kind("U", "text")
ANY = Kind("fiubUmM", "numbers or text")

VARIABLES = (
    ("sample", "sample", ANY, "coordinates of the samples"),
    ("feature", "feature", ANY, "coordinates of the features"),
    ("covariate", "covariate", ANY, "coordinates of the covariates"),
    ("component", "component", ANY, "coordinates of the components"),
    ("view", "view", ANY, "coordinates of the views"),
    ("target", "target", ANY, "coordinates of the targets"),
    ("class", "class", ANY, "coordinates of the classes"),
    ("mixture", "mixture", ANY, "coordinates of the components of the mixture"),
    ("loadings", "feature component", FINITE, "W of the features, in units of the features"),
    ("loadings_covariance", "feature component_pair", FINITE, "upper triangle of the posterior covariance of W"),
    ("common_loadings_covariance", "component_pair", FINITE, "upper triangle of one covariance for all features"),
    ("mean", "feature", FINITE, "μ of the features"),
    ("mean_variance", "feature", FINITE, "posterior variance of μ of the features"),
    ("effects", "feature covariate", FINITE, "coefficients of the covariates, in units of the predictors"),
    ("size", "feature", POSITIVE, "size of the negative binomial distribution of each feature"),
    ("feature_view", "feature", TEXT, "name of the view that the feature is of"),
    ("feature_scale", "feature", POSITIVE, "divisor of each feature before the fit"),
    ("noise_variance", "view", POSITIVE, "noise variance of each view, in squared units of the view"),
    ("feature_noise_variance", "feature", POSITIVE, "noise variance of each feature"),
    ("feature_noise_floor", "feature", POSITIVE, "smallest noise variance of each feature that the fit allowed"),
    ("feature_at_floor", "feature", TRUTH, "whether the noise variance of the feature ended at its floor"),
    ("noise_floor", "view", POSITIVE, "smallest noise variance that the fit allowed"),
    ("at_floor", "view", TRUTH, "whether the noise variance of the view ended at its floor"),
    ("eigenvalues", "component", FINITE, "leading eigenvalues of the covariance that the model fits"),
    ("smoothing", "smoothing", REAL, "strengths of smoothing over a graph that were compared"),
    ("smoothing_correlation", "smoothing", REAL, "correlation of each one's scores with hidden cells"),
    ("smoothing_error", "smoothing", REAL, "standard error of its difference to the largest"),
    ("mixture_weight", "mixture", POSITIVE, "weight of each component of the mixture"),
    ("mixture_loadings", "mixture feature component", FINITE, "W of each component, in units of the features"),
    ("mixture_mean", "mixture feature", FINITE, "μ of each component"),
    ("mixture_noise_variance", "mixture", POSITIVE, "noise variance of each component"),
    ("mixture_feature_noise_variance", "mixture feature", POSITIVE, "noise variance of each feature in each component"),
    ("mixture_at_floor", "mixture", TRUTH, "whether the noise variance of the component ended at its floor"),
    ("mixture_feature_at_floor", "mixture feature", TRUTH, "whether a feature's noise in a component is at its floor"),
    ("target_loadings", "target component", FINITE, "W of the targets, in units of the targets"),
    ("target_mean", "target", FINITE, "μ of the targets"),
    ("target_rotation", "target target_rank", FINITE, "orthonormal basis of the targets that the fit worked in"),
    ("target_centre", "target", FINITE, "mean of the labelled samples' targets, taken off before the fit"),
    ("rank_loadings", "target_rank component", FINITE, "W of the targets on their rank"),
    ("rank_loadings_covariance", "target_rank component_pair", FINITE, "as loadings_covariance, of the targets"),
    ("rank_mean", "target_rank", FINITE, "μ of the targets on their rank"),
    ("head_coefficients", "component target", FINITE, "coefficients of the scores, of numbers"),
    ("head_feature_coefficients", "feature target", FINITE, "coefficients of the features, of labels in the last rule"),
    ("head_offset", "target", FINITE, "what is added to these"),
    ("head_noise_variance", "target", POSITIVE, "variance of the targets beside that which the scores leave open"),
    ("rule_coefficients", "rule component target", FINITE, "coefficients of the scores, of log-odds, by each rule"),
    ("rule_offset", "rule target", FINITE, "what is added to these"),
    ("rule_lengths", "rule component component_2", FINITE, "scores times this have the lengths that are divided by"),
    ("rule_weights", "rule target", FINITE, "weights of the rules in the mean of their probabilities"),
    ("view_head_left", "view_head_given", FINITE, "regressions of views on others, left factors, one after the other"),
    ("view_head_right", "view_head_direction", FINITE, "right factors of their coefficients"),
    ("view_head_offset", "view_head", FINITE, "what is added to these"),
    ("view_head_variance", "view_head", POSITIVE, "mean square of what they miss of samples that are left out"),
    ("dual_components", "training component", FINITE, "W as combinations of the centred features of the training rows"),
    ("combinations", "training coordinate", FINITE, "orthonormal directions as combinations of training features"),
    ("coordinate_loadings", "coordinate component", FINITE, "W in these directions"),
    ("coordinate_mean", "coordinate", FINITE, "μ in these directions, about the mean of the features"),
    ("coordinate_offset", "coordinate", FINITE, "the mean of the features in these directions"),
    ("feature_middle", "training", FINITE, "the mean of the features as a combination of those of the training rows"),
    ("kernel_shift", "feature", FINITE, "taken off the rows before the kernel looks at them"),
    ("kernel_scale", "feature", POSITIVE, "divisor of each feature of the rows before the kernel looks at them"),
    ("training_rows", "training feature", FINITE, "rows that the kernel compares new ones with"),
    ("training_values", "entry", FINITE, "values of sparse training rows"),
    ("training_columns", "entry", COUNT, "columns of the values of sparse training rows"),
    ("training_pointers", "pointer", COUNT, "where each sparse training row begins among the values"),
    ("training_edges", "edge", COUNT, "first rows of the blocks of the training rows, and their number"),
    ("factor_correlation", "component component_2", FINITE, "correlations of the factors of an oblique rotation"),
    ("view_samples", "view", COUNT, "samples that have the view"),
    ("total_variance", "view", POSITIVE, "mean variance per feature of the view"),
    ("classes", "class", ANY, "class labels in the order of the one-of-C columns"),
    ("class_counts", "class", COUNT, "labelled samples of each class"),
    ("scores", "sample component", FINITE, "posterior means of the latent variables"),
    ("embedding", "sample component", FINITE, "coordinates of the samples, with the mean 0 and the mean square 1"),
    ("smallest_eigenvalues", "component", FINITE, "eigenvalues of the alignment matrix that belong to the coordinates"),
    ("view_row", "sample view", INTEGER, "row of the sample in each view, -1 where it is absent"),
    ("separate_set", "sample", INTEGER, "set of samples that the graph does not join with others, -1 for none"),
    ("reference_values", "reference_value", FINITE, "entries of the training rows, view after view"),
    ("reference_columns", "reference_entry", COUNT, "columns of the entries of sparse training rows"),
    ("reference_starts", "reference_row", COUNT, "where each sparse training row begins among its view's entries"),
)
"""Name, dimensions, kind and meaning of each variable."""

COURSE = (
    ("iteration_log_likelihood", "iteration", REAL, "log-likelihood of all samples at each iteration"),
    ("iteration_gain", "iteration", REAL, "what the iteration added to the log-likelihood, NaN for the first"),
    ("iteration_remaining", "iteration", REAL, "estimated relative distance to the maximum, NaN while unknown"),
    ("iteration_rank", "iteration", INTEGER, "width of the subspace of the features, 0 for EM"),
    ("pass_name", "pass", TEXT, "what the pass was for"),
    ("pass_seconds", "pass", REAL, "wall time of the pass in seconds"),
    ("pass_busy_seconds", "pass", REAL, "time inside tasks in seconds, summed over workers"),
    ("pass_bytes_read", "pass", INTEGER, "bytes of blocks loaded from their source"),
    ("pass_blocks", "pass", INTEGER, "blocks seen"),
    ("pass_cached", "pass", INTEGER, "blocks that came from a cache"),
    ("pass_tasks", "pass", INTEGER, "tasks submitted"),
)
"""The same of the variables of `history_`, which a saved model has as JSON values."""

REGISTRY = {name: (tuple(dims.split()), kind) for name, dims, kind, _ in VARIABLES}
"""The dimensions of each variable, and the kind of its values."""

RESULTS = {name for variable, dims, *_ in (*VARIABLES, *COURSE) for name in (variable, *dims.split())}
RESULTS -= {"sample", "feature"}
RESULTS |= {"component_2", "pattern", "pattern_of", "covariance", "has", "explained_variance_ratio"}
"""Names of variables and dimensions of results, which no dimension of data may have beside them."""

UNITS = {
    **dict.fromkeys(("loadings", "loadings_error", "mean", "feature_scale", "mixture_loadings", "mixture_mean"), 1),
    **dict.fromkeys(("feature_noise_variance", "feature_noise_floor", "mixture_feature_noise_variance"), 2),
    **dict.fromkeys(("loadings_covariance", "mean_variance"), 2),
}
"""Variables along the features that have their units, or the square of them."""


def dimension(name: str) -> str:
    """The name of a dimension of data in results: its own, or one that no result has."""
    return f"input_{name}" if name in RESULTS else name


def check(variables: Mapping[str, Variable], place: str) -> None:
    """Check all variables of a result against the registry and against each other.

    Errors: StoreError for an unknown name, other dimensions or kinds than registered, or two lengths of one dimension.
    """
    lengths: dict[str, tuple[int, str]] = {}
    for name, variable in variables.items():
        shape = variable.values.shape
        if name.startswith(GRID) and all(dim.startswith(GRID) for dim in variable.dims):
            dims, kind = variable.dims, ANY  # coordinates of the dimensions over which the features lie
        elif name in REGISTRY:
            dims, kind = REGISTRY[name]
        else:
            raise StoreError(
                f"{place}: unknown variable {name!r}; known are {', '.join(sorted(REGISTRY))}; add it to "
                "dlatent.stores.schema, or install the version of dlatent that wrote it"
            )
        if variable.dims != dims or len(shape) != len(dims):
            raise StoreError(
                f"{place}: {name!r} has dimensions {variable.dims} and shape {shape}; expected dimensions {dims}"
            )
        if variable.values.dtype.kind not in kind.letters:
            raise StoreError(f"{place}: {name!r} has dtype {variable.values.dtype}; expected {kind.description}")
        for dim, length in zip(variable.dims, shape, strict=True):
            known, holder = lengths.setdefault(dim, (length, name))
            if known != length:
                raise StoreError(
                    f"{place}: the dimension {dim!r} has length {length} in {name!r}, but {known} in {holder!r}"
                )


def check_values(variables: Mapping[str, Variable], place: str) -> None:
    """Check that the variables of a model have values that a model can have.

    Errors: StoreError that names the variable, the first value that cannot be, and its place.
    """
    for name, variable in variables.items():
        values, least = variable.values, REGISTRY[name][1].least if name in REGISTRY else None
        if least is None:
            continue
        good = np.isfinite(values) & (values >= least)
        if name == "mean" and "loadings" in variables:
            # Nothing is known of the mean of a feature without entries, which has no loadings either.
            good = good | (np.isnan(values) & ~variables["loadings"].values.any(axis=1))
        bad = np.argwhere(~good)
        if len(bad):
            at = tuple(bad[0].tolist())
            expected = "a finite number" if least else "a finite number that is not negative"
            raise StoreError(
                f"{place}: {name!r} is {values[at].item()!r} at {at}; expected {expected}: the store is damaged or has "
                "been changed, save the model again"
            )
