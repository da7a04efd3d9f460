"""How samples and features may change, and how what a model then says leads back to what it said before.

Each function takes a case and returns the changed problem and the way back; its docstring says why it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import zarr
from law_cases import as_dask
from law_models import Answer, Problem


class Case(NamedTuple):
    """A problem, the model that is fitted to it and what it says, a random generator, and a folder for stores."""

    problem: Problem
    model: Any
    answer: Answer
    rng: Any
    folder: Path

    def hyperparameter(self, name: str) -> Any:
        """None where the model has it not."""
        return self.model.get_params().get(name)

    @property
    def measures_distances(self) -> bool:
        """Whether the features count by distances between rows alone, in units of some of these."""
        return self.answer.density is None or self.hyperparameter("kernel") == "rbf"

    @property
    def latent(self) -> bool:
        """Whether scores are latent variables, not in units of the features."""
        return self.hyperparameter("whiten") is None


Change: TypeAlias = tuple[Problem, Callable[[Answer], Answer]]


def unchanged(found: Answer) -> Answer:
    return found


def likelihood_alone(case: Case, found: Answer) -> Answer:
    """Without predictions of the default head, whose priors count rows, and each target as it is given."""
    return found._replace(targets=None) if case.hyperparameter("head") == "auto" else found


# Samples


def rows_permuted(case: Case) -> Change:
    """Samples are exchangeable."""
    order = case.rng.permutation(len(case.problem.x))
    return case.problem.rows(order), lambda found: found.rows(np.argsort(order))


def other_blocks(case: Case) -> Change:
    """A statistic is a sum over samples."""

    def wrap(x: Any) -> Any:
        rows, columns = (np.diff([0, *np.unique(case.rng.integers(1, n, 3)), n]).tolist() for n in x.shape)
        return as_dask(x, tuple(rows), tuple(columns))

    return replace(case.problem, wrap=wrap), unchanged


def every_row_twice(case: Case) -> Change:
    """The log-likelihood adds up over samples, so that the maximum stays where it is."""
    n = len(case.problem.x)
    twice = replace(case.problem, between={}).rows(np.tile(np.arange(n), 2))
    changed = replace(twice, between=case.problem.in_parts(None, None))
    return changed, lambda found: likelihood_alone(case, found.rows(np.arange(n))._replace(total=found.total / 2))


def twice_with_half_the_weight(case: Case) -> Change:
    """A sample counts as often as it weighs."""
    n = len(case.problem.x)
    order = np.append(np.arange(n), case.rng.choice(n, n // 3, replace=False))
    weights = 1.0 / np.bincount(order)[order]
    return replace(case.problem.rows(order), weights=weights), lambda found: found.rows(np.arange(n))


def rows_without_weight(case: Case) -> Change:
    """So often is not at all."""
    n, more = len(case.problem.x), 9.0 * case.rng.normal(size=(5, case.problem.x.shape[1]))
    changed = replace(case.problem, x=np.vstack([case.problem.x, more]), weights=np.append(np.ones(n), np.zeros(5)))
    return changed, lambda found: found.rows(np.arange(n))


def weights_of_three(case: Case) -> Change:
    """The log-likelihood is weighted, and the maximum stays where it is."""
    weights = np.full(len(case.problem.x), 3.0)
    return replace(case.problem, weights=weights), lambda found: found._replace(total=found.total / 3)


def a_row_at_the_mean(case: Case) -> Change:
    """Means stay, and N + 1 samples have the covariances of N times c = N/(N + 1); in a graph it is isolated."""
    problem, (n, width), y = case.problem, case.problem.x.shape, case.problem.y
    if y is not None:
        width, y = width + y.shape[1], np.vstack([y, case.model.target_mean_])
    center = getattr(case.model, "mean_", problem.x.mean(axis=0))
    c = n / (n + 1)

    def back(found: Answer) -> Answer:
        total, kept = c * (found.total + 0.5 * (n + 1) * width * np.log(c)), found.rows(np.arange(n))
        scores = kept.scores * (np.sqrt(c) if case.latent else 1.0)
        return likelihood_alone(case, kept._replace(total=total, density=None, scores=scores))

    return replace(problem, x=np.vstack([problem.x, center]), y=y, between=problem.in_parts(None, 1)), back


def an_unobserved_row(case: Case) -> Change:
    """It has the likelihood 1 under any model."""
    problem, (n, width) = case.problem, case.problem.x.shape
    y = None if problem.y is None else np.vstack([problem.y, np.full(problem.y.shape[1], np.nan)])
    x = np.vstack([problem.x, np.full(width, np.nan)])
    changed = replace(problem, x=x, y=y, between=problem.in_parts(None, 1))
    return changed, lambda found: found.rows(np.arange(n))


# Features


def features_permuted(case: Case) -> Change:
    """No feature comes first."""
    problem, width = case.problem, case.problem.x.shape[1]
    starts = np.cumsum([0, *(problem.sizes or (width,))])
    order = np.concatenate([a + case.rng.permutation(b - a) for a, b in pairwise(starts)])
    beside = {name: one[:, order] if one.shape == problem.x.shape else one for name, one in problem.beside.items()}
    changed = replace(problem, x=problem.x[:, order], beside=beside)
    return changed, lambda found: found.expected(lambda x: x[:, np.argsort(order)])


def stretched(case: Case, by: Any) -> Change:
    """x → x·c: a density is divided by the factors of all that is observed."""
    seen = ~np.isnan(case.problem.x) & np.isfinite(case.problem.beside.get("uncertainty", 0.0))
    alone, latent = seen, case.latent or "feature_scale" in case.model.result_
    if "graph" in case.problem.between and np.isnan(case.problem.x).any():
        near = sp.eye_array(len(seen)) + case.problem.between["graph"]
        seen = near @ (near @ seen.astype(float)) > 0  # of smoothed rows nothing is missing that a neighbour has

    def back(found: Answer) -> Answer:
        scores = found.scores if latent or found.scores is None else found.scores / by[0]
        total, density = found.total + seen.sum(axis=0) @ np.log(by), found.density + alone @ np.log(by)
        return found._replace(total=total, density=density, scores=scores).expected(lambda x: x / by)

    beside = {
        name: one * by[0] if name in ("uncertainty", "offset") else one for name, one in case.problem.beside.items()
    }
    return replace(case.problem, x=case.problem.x * by, beside=beside), back


def scaled(case: Case) -> Change:
    """Noise and loadings are in the unit of all features, or of a view; distances in units of others have none."""
    sizes = case.problem.sizes or (case.problem.x.shape[1],)
    if case.measures_distances:
        return replace(case.problem, x=case.problem.x * 10.0 ** case.rng.uniform(-3, 3)), unchanged
    return stretched(case, np.repeat(10.0 ** case.rng.uniform(-3, 3, len(sizes)), sizes))


def units_changed(case: Case) -> Change:
    """Each feature has a noise, or a spread, of its own."""
    return stretched(case, 10.0 ** case.rng.uniform(-2, 2, case.problem.x.shape[1]))


def in_units_of_the_spreads(case: Case) -> Change:
    """Before their units change all spreads are 1; kernels and embeddings are no densities of the data."""
    changed, back = stretched(case, 10.0 ** case.rng.uniform(-2, 2, case.problem.x.shape[1]))
    changed = replace(changed, options={"scale": "spread"})
    if case.measures_distances or case.hyperparameter("kernel"):
        return changed, unchanged
    return changed, lambda found: back(found)._replace(scores=found.scores)


def shifted(case: Case) -> Change:
    """Each feature has a mean of its own, and distances do not change."""
    by = 10.0 * case.rng.normal(size=case.problem.x.shape[1])
    return replace(case.problem, x=case.problem.x + by), lambda found: found.expected(lambda x: x - by)


def rotated(case: Case) -> Change:
    """The noise of a view is isotropic, and distances do not change."""
    sizes = case.problem.sizes or (case.problem.x.shape[1],)
    turns = [np.linalg.qr(case.rng.normal(size=(size, size)))[0] for size in sizes]
    parts = np.split(case.problem.x, np.cumsum(sizes)[:-1], axis=1)
    x, whole = np.hstack([part @ turn for part, turn in zip(parts, turns, strict=True)]), sp.block_diag(turns).toarray()
    return replace(case.problem, x=x), lambda found: found.expected(lambda x: x @ whole.T)


def mirrored(case: Case) -> Change:
    """−x has the loadings −w, and of a binary entry 1 − x has."""
    signs = case.rng.choice([-1.0, 1.0], case.problem.x.shape[1])
    turned = 0.5 * (1.0 - signs) if case.hyperparameter("likelihood") == "bernoulli" else 0.0
    beside = {name: np.outer(one, signs) if name == "offset" else one for name, one in case.problem.beside.items()}
    changed = replace(case.problem, x=turned + signs * case.problem.x, beside=beside)
    return changed, lambda found: found.expected(lambda x: signs * (x - turned))


def an_unobserved_feature(case: Case) -> Change:
    """Nothing depends on its loadings, whose posterior is their prior."""
    problem, (n, width) = case.problem, case.problem.x.shape
    sizes = (*problem.sizes[:-1], problem.sizes[-1] + 1) if problem.sizes else ()
    changed = replace(problem, x=np.column_stack([problem.x, np.full(n, np.nan)]), sizes=sizes)
    return changed, lambda found: found.expected(lambda x: x[:, :width])


def with_more_features(case: Case, count: int) -> Callable[[Answer], Answer]:
    """Features without variance leave all distances as they are.  The noise, a mean of D − K eigenvalues, is one of so
    many more, and the likelihood follows from it (Tipping and Bishop 1999, (8)); of a score noise takes the part σ²/λ.
    """
    if case.measures_distances:
        return unchanged
    (n, width), noise, variance = case.problem.x.shape, case.model.noise_variance_, case.model.explained_variance_
    left = width - 2
    less = noise * left / (left + count)
    more = (left + count) * np.log(less) - left * np.log(noise) + count * (np.log(2 * np.pi) + 1.0)

    def back(found: Answer) -> Answer:
        scores = found.scores * (1.0 - noise / variance) / (1.0 - less / variance)
        return Answer(found.total + 0.5 * n * more, None, scores, None, None)

    return back


def a_constant_feature(case: Case) -> Change:
    """It has no variance."""
    changed = case.problem.features(lambda x: np.column_stack([x, 7.0 + 0.0 * x[:, 0]]))
    return changed, with_more_features(case, 1)


def every_feature_twice(case: Case) -> Change:
    """[x x]/√2 is a rotation of [x 0]."""
    changed = case.problem.features(lambda x: np.hstack([x, x]) / np.sqrt(2.0))
    return changed, with_more_features(case, case.problem.x.shape[1])


def hidden_entries_changed(case: Case) -> Change:
    """What is missing has no value, not even that which was imputed."""
    if "uncertainty" in case.problem.beside:
        known = np.isfinite(case.problem.beside["uncertainty"])
        return replace(case.problem, x=np.where(known, case.problem.x, 99.0)), unchanged

    def wrap(x: Any) -> Any:
        values = case.answer.entries if x.shape == case.answer.entries.shape else 99.0
        return np.ma.masked_array(np.where(np.isnan(x), values, x), np.isnan(x))

    return replace(case.problem, wrap=wrap), unchanged


# Containers


def put_into(container: Callable[[Any], Any]) -> Callable[[Case], Change]:
    """The numbers are the same."""
    return lambda case: (replace(case.problem, wrap=container), unchanged)


def sparse(case: Case) -> Change:
    """The numbers are the same."""
    return put_into(lambda x: sp.csr_array(x).asformat(case.rng.choice(["csr", "csc", "coo"])))(case)


def missing_entries_not_stored(case: Case) -> Change:
    """What is observed is the same; all entries are then expected, and not those alone that are missing."""
    x, gone = case.problem.x, np.isnan(case.problem.x)
    sparse = sp.csr_array((x[~gone], np.nonzero(~gone)), shape=x.shape)
    changed = replace(case.problem, wrap=lambda _: sparse, options={"missing": "unstored"})
    return changed, lambda found: found.expected(lambda expected: np.where(gone, expected, x))


def stored(case: Case) -> Change:
    """The numbers are the same."""

    def wrap(x: Any) -> str:
        path = case.folder / f"{len(list(case.folder.iterdir()))}.zarr"
        zarr.create_array(path, data=np.asarray(x), chunks=(17, x.shape[1]))
        return str(path)

    return replace(case.problem, wrap=wrap), unchanged
