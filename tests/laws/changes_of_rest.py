"""How targets, views, graphs and hyperparameters may change; as `changes_of_data`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from changes_of_data import Case, Change, likelihood_alone, unchanged
from law_models import Answer
from scipy.special import expit, logit

from dlatent import open_graph

# Targets


def targets_in_other_units(case: Case) -> Change:
    """y → ay + b, as for features."""
    y, by, shift = case.problem.y, 10.0 ** case.rng.uniform(-2, 2), case.rng.normal(size=case.problem.y.shape[1])
    return replace(case.problem, y=y * by + shift), lambda found: found._replace(
        total=found.total + (~np.isnan(y)).sum() * np.log(by), targets=(found.targets - shift) / by
    )


def targets_rotated(case: Case) -> Change:
    """Their noise is isotropic."""
    turn = np.linalg.qr(case.rng.normal(size=(2, 2)))[0]
    changed = replace(case.problem, y=case.problem.y @ turn)
    return changed, lambda found: likelihood_alone(case, found._replace(targets=found.targets @ turn.T))


def a_constant_target(case: Case) -> Change:
    """Targets live on their rank."""
    y = np.column_stack([case.problem.y, 7.0 + 0.0 * case.problem.y[:, 0]])

    def back(found: Answer) -> Answer:
        np.testing.assert_allclose(found.targets[:, 2], 7.0, rtol=1e-9)
        return found._replace(targets=found.targets[:, :2])

    return replace(case.problem, y=y), back


def classes_renamed(case: Case) -> Change:
    """Their indicators, in another order, span the same."""
    y = np.array(["c", "a", "b", None], dtype=object)[case.problem.y]  # the last is −1
    return replace(case.problem, y=y), lambda found: found._replace(targets=found.targets[:, [2, 0, 1]])


# What stands beside the entries


def one_error_bar_for_all(case: Case) -> Change:
    """ψ + s² is the noise of a fit without error bars, if s² is less."""
    bar = case.rng.uniform(0.0, 0.9) * np.sqrt(np.min(case.model.noise_variance_))
    beside = {"uncertainty": np.full(case.problem.x.shape, bar)}
    return replace(case.problem, beside=beside, options={"solver": "auto"}), unchanged


def offsets_of_features(case: Case) -> Change:
    """μ + o is the mean of a fit without; entries are expected without offsets, by the inverse link of μ."""
    by = case.rng.normal(size=case.problem.x.shape[1])
    known = case.problem.beside.get("offset", np.zeros(len(case.problem.x)))
    exponential: Any = lambda x: x * np.exp(by)  # noqa: E731
    links = {"poisson": exponential, "negative_binomial": exponential, "bernoulli": lambda x: expit(logit(x) + by)}
    back = links.get(case.hyperparameter("likelihood"), lambda x: x + by)
    changed = replace(case.problem, beside={**case.problem.beside, "offset": known[:, None] + by})
    return changed, lambda found: found.expected(back)


def offsets_in_the_data(case: Case) -> Change:
    """x + o has the density with the offset o that x has without."""
    by = case.rng.normal(size=len(case.problem.x))
    beside = {**case.problem.beside, "offset": case.problem.beside.get("offset", 0.0) + by}
    return replace(case.problem, x=case.problem.x + by[:, None], beside=beside), unchanged


def covariates_mixed(case: Case) -> Change:
    """Effects are free, so that what covariates span is all that counts."""
    mixed = case.problem.beside["covariates"] @ case.rng.normal(size=(2, 2))
    return replace(case.problem, beside={**case.problem.beside, "covariates": mixed}), unchanged


# Views


def views_swapped(case: Case) -> Change:
    """No view comes first."""
    first = case.problem.sizes[0]
    changed = replace(case.problem, x=np.roll(case.problem.x, -first, axis=1), sizes=case.problem.sizes[::-1])
    return changed, lambda found: found.expected(lambda x: np.roll(x, first, axis=1))


def views_in_their_own_order(case: Case) -> Change:
    """The correspondence says what belongs together."""
    return replace(case.problem, shuffle=int(case.rng.integers(10**6))), unchanged


def a_view_in_two(case: Case) -> Change:
    """No two features share a noise, so that views are but what samples lack."""
    first, *rest = case.problem.sizes
    return replace(case.problem, sizes=(first // 2, first - first // 2, *rest)), unchanged


# What lies between samples


def edges_heavier(case: Case) -> Change:
    """A → cA, α → cα, γ → c²γ is Δ → c²Δ, and C → c²C; where degrees divide edges, it is nothing."""
    c, (n, width), y = 10.0 ** case.rng.uniform(-1, 1), case.problem.x.shape, case.problem.y
    options = {} if case.hyperparameter("alpha") is None else {"alpha": c, "gamma": 1e-6 * c * c}
    more = (n * width + (0 if y is None else (~np.isnan(y)).sum())) * np.log(c) if options else 0.0
    changed = replace(case.problem, between={"graph": case.problem.between["graph"] * c}, options=options)
    return changed, lambda found: found._replace(total=found.total + more)


def precision_times(case: Case) -> Change:
    """Δ → cΔ is C → cC; new rows have the precision 1."""
    c, (n, width) = 10.0 ** case.rng.uniform(-1, 1), case.problem.x.shape
    changed = replace(case.problem, between={"precision": case.problem.between["precision"] * c})
    return changed, lambda found: found._replace(total=found.total + 0.5 * n * width * np.log(c), density=None)


def edges_listed(case: Case) -> Change:
    """A graph is a set of edges."""
    edges = np.argwhere(sp.triu(case.problem.between["graph"]).toarray())
    listed = open_graph(case.rng.permutation(edges)[:, ::-1], samples=len(case.problem.x), direction="symmetrise")
    return replace(case.problem, between={"graph": listed}), unchanged


# How it is fitted


def another_solver(case: Case) -> Change:
    """There is one best maximum, whatever finds it."""
    others = {"covariance": "krylov", "krylov": "covariance", "gram": "krylov", "memory": "recomputed"}
    solver = others.get(case.model.plan_["solver"], "memory")
    return replace(case.problem, options={"solver": solver}), unchanged


def with_options(**options: Any) -> Callable[[Case], Change]:
    """What does not show."""
    return lambda case: (replace(case.problem, options=options), unchanged)


def more_coordinates(case: Case) -> Change:
    """Eigenvectors do not depend on how many are asked for."""
    changed = replace(case.problem, options={"n_components": 3})
    return changed, lambda found: found._replace(total=None, scores=found.scores[:, :2])
