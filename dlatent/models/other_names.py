"""What scikit-learn's estimators call otherwise, or have and models here have not: an error says what to use here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

IGNORED = "leave it out: data are never changed"
BY_MODEL = "leave it out: a missing entry gets its mean given the others of its row, by the model Imputer(PPCA(…))"
BY_SOLVER = "leave it out: solver='krylov' goes on until tol is met"
KEYWORDS = {
    "svd_solver": "solver says how the maximum is found; 'auto' takes the cheapest",
    "svd_method": "solver says how the maximum is found; 'auto' takes the cheapest",
    "iterated_power": BY_SOLVER,
    "n_oversamples": BY_SOLVER,
    "power_iteration_normalizer": BY_SOLVER,
    "copy": IGNORED,
    "copy_X": IGNORED,
    "whiten": "leave it out: scores are latent variables, whose variance is 1",
    "batch_size": "fit reads larger data than memory by itself, and partial_fit of PPCA and FactorAnalysis adds rows",
    "n_jobs": "fit takes all cores, or those of a Dask cluster (client=)",
    "verbose": "fit(callbacks=[dlatent.ProgressBar()]) shows a bar",
    "missing_values": "missing entries are NaN, and missing='nan' fits around them",
    "eigen_solver": "solver says where the kernel is kept, and 'auto' takes the cheapest",
    "kernel_params": "give a function of two blocks of rows as kernel, as functools.partial makes one with parameters",
    "remove_zero_eig": "leave it out: components without variance are never found",
    "fit_inverse_transform": "leave it out: inverse_transform learns when it is called",
    "alpha": "inverse_transform of kernel models takes it",
    "covariance_type": "each component has n_components directions, and noise='isotropic' or 'diagonal' beside them",
    "reg_covar": "noise_floor is the smallest noise variance, and noise_prior keeps it from falling",
    "init_params": "n_init says from how many starts the best is taken",
    "method": "the standard method is the only one",
    "strategy": BY_MODEL,
    "fill_value": BY_MODEL,
    "add_indicator": "leave it out: numpy.isnan(X) says which entries are missing",
    "keep_empty_features": "leave it out: all features are kept",
    "likelihood": "PPCA and FactorAnalysis have it; entries of this model are normal",
    "neighbors_algorithm": "neighbors is 'exact' or 'approximate'",
}
"""By a keyword that a model has not, what says the same here."""
WORDS: dict[tuple[str, object], str] = {
    ("solver", "full"): "'covariance' does the same",
    ("solver", "covariance_eigh"): "'covariance' does the same",
    ("solver", "lapack"): "'covariance' does the same",
    ("solver", "arpack"): "'krylov' is for few of many components",
    ("solver", "randomized"): "'krylov' is for few of many components",
    ("eigen_solver", "dense"): "'direct' factorises the matrix",
    ("eigen_solver", "arpack"): "'iterative' does not factorise the matrix",
    ("kernel", "sigmoid"): "sigmoid is no inner product of features, of which a model could be made",
    ("gamma", None): "scikit-learn's default is 1/n_features",
}
"""By the name of a hyperparameter and a word that it does not take, what is meant here."""


def slips(cls: Any, given: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The keywords that scikit-learn or a slip has, and a class has not, each with what to use in its place."""
    known = cls._get_param_names()
    for name in given:
        if name.partition("__")[0] not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.75)
            if said := KEYWORDS.get(name) or (f"did you mean {near[0]}?" if near else ""):
                yield name, said


def refuse_keywords(cls: type, given: Iterable[str]) -> None:
    """Refuse keywords of a constructor that it has not.  Errors: TypeError, with what to use here."""
    for name, said in slips(cls, given):
        raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument {name!r}: {said}")


def refuse_parameters(cls: type, given: Iterable[str]) -> None:
    """The same for `set_params`, which scikit-learn has raise ValueError."""
    for name, said in slips(cls, given):
        raise ValueError(f"Invalid parameter {name!r} for estimator {cls.__name__}: {said}")


def advice(name: str, value: Any) -> str:
    """What to say beside the refusal of a value of a hyperparameter; nothing where there is nothing to say."""
    text = WORDS.get((name, value)) if value is None or isinstance(value, str) else None
    return "" if text is None else f"; {text}"
