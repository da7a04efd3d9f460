"""The table of relations between fits: which model has which, and why others have it not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import changes_of_data as data
import changes_of_rest as rest
import pandas as pd
import xarray as xr
from changes_of_data import Case, Change
from law_models import MODELS

GROUPS = {
    "every model": ", ".join(MODELS),
    "graphs": "relational, relational supervised, relational some, graph, graph missing",
    "views": "views ppca, views factors, views missing, views supervised, embedded views",
    "targets": "supervised, supervised some, supervised missing, supervised missing ard, relational supervised, "
    "relational some, views supervised, kernel supervised",
    "eigenvalues": "ppca, ppca gram, relational, relational precision, graph, kernel linear",
    "distances": "kernel rbf, kernel supervised, embedding, embedded views",
    "weights": "ppca, ppca ard, ppca spread, factors",
    "missing": "ppca missing, ppca missing ard, factors missing, factors missing ard, supervised missing, "
    "supervised missing ard, graph missing, views missing",
    "counts": "poisson, negative binomial",
    "each entry": "student, student factors, counts, bernoulli",
    "own noise": "factors, factors missing, factors missing ard, student factors, mixture diagonal, views factors",
    "one noise": "eigenvalues, ppca ard, ppca missing, ppca measured, student, student rows, mixture, supervised, "
    "supervised some, supervised classes, supervised missing, relational supervised, relational some, graph missing, "
    "views ppca, views missing, views supervised",
    "prior": "ppca ard, ppca missing ard, factors missing ard, supervised missing ard",
}


def named(text: str) -> set[str]:
    """The models in a list of names of models and of groups."""
    return {name for part in text.split(", ") for name in (named(GROUPS[part]) if part in GROUPS else [part])}


class Relation(NamedTuple):
    """How a problem changes; the models that can be asked; and those of them that have it not, by reasons."""

    change: Callable[[Case], Change]
    among: str = "every model"
    without: Mapping[str, str] = {}

    @property
    def others(self) -> set[str]:
        """Those that have it not."""
        return set().union(*map(named, self.without.values()))

    @property
    def models(self) -> set[str]:
        """Those that have it."""
        return named(self.among) - self.others


PRIOR, SPREADS = "a prior weighs features against rows", "scores are in units of spreads, with N − 1"
RELATIONS = {
    "rows in another order": Relation(data.rows_permuted),
    "rows and columns in other blocks": Relation(data.other_blocks),
    "every row twice": Relation(
        data.every_row_twice,
        without={
            PRIOR: "prior",
            "a prior on the noise": "mixture diagonal",
            SPREADS: "ppca spread",
            "as many features as rows": "kernel rbf, kernel supervised",
            "other neighbours": "embedding, embedded views",
        },
    ),
    "a row twice for half the weight": Relation(data.twice_with_half_the_weight, "weights"),
    "rows without weight": Relation(data.rows_without_weight, "weights"),
    "three times the weight": Relation(data.weights_of_three, "weights", {PRIOR: "ppca ard", SPREADS: "ppca spread"}),
    "a row at the mean": Relation(
        data.a_row_at_the_mean,
        "eigenvalues, weights, supervised, relational supervised, kernel rbf",
        {PRIOR: "ppca ard", SPREADS: "ppca spread", "the mean is no φ(x)": "kernel rbf"},
    ),
    "an unobserved row": Relation(data.an_unobserved_row, "missing", {"it is in no view": "views missing"}),
    "features in another order": Relation(data.features_permuted),
    "another unit of all features": Relation(data.scaled, without={"entries have no unit": "counts, bernoulli"}),
    "another unit of each feature": Relation(
        data.units_changed,
        without={
            "one noise for all features": "one noise",
            "entries have no unit": "counts, bernoulli",
            "distances sum over features": "distances",
        },
    ),
    "units of the spreads": Relation(
        data.in_units_of_the_spreads,
        without={
            "entries have no unit": "counts, bernoulli",
            "error bars are in units of the data": "ppca measured",
            "views keep their units": "views missing",
        },
    ),
    "features shifted": Relation(
        data.shifted, without={"entries have no place": "counts, bernoulli", "means have a prior": "ppca missing ard"}
    ),
    "features rotated": Relation(
        data.rotated,
        without={
            "a noise for each feature": "own noise",
            "a spread for each feature": "ppca spread",
            "each entry by itself": "student, counts, bernoulli, ppca measured",
            "some entries are missing": "missing",
        },
    ),
    "features mirrored": Relation(
        data.mirrored, without={"counts have a sign": "counts", "means have a prior": "ppca missing ard"}
    ),
    "an unobserved feature": Relation(data.an_unobserved_feature, "missing"),
    "a constant feature": Relation(data.a_constant_feature, "eigenvalues, distances"),
    "every feature twice": Relation(data.every_feature_twice, "eigenvalues, distances"),
    "other values under a mask": Relation(data.hidden_entries_changed, "missing, ppca measured"),
    "SciPy sparse": Relation(
        data.sparse,
        without={
            "NaN is for dense data": "ppca missing, ppca missing ard, factors missing, factors missing ard, "
            "supervised missing, supervised missing ard, graph missing"
        },
    ),
    "missing entries not stored": Relation(
        data.missing_entries_not_stored, "missing", {"views have NaN": "views missing"}
    ),
    "Zarr": Relation(data.stored),
    "xarray": Relation(data.put_into(lambda x: xr.DataArray(x, dims=("sample", "feature")))),
    "pandas": Relation(data.put_into(lambda x: pd.DataFrame(x).add_prefix("x"))),
    "another unit of the targets": Relation(rest.targets_in_other_units, "targets"),
    "targets rotated": Relation(rest.targets_rotated, "targets"),
    "a constant target": Relation(rest.a_constant_target, "targets"),
    "classes renamed": Relation(rest.classes_renamed, "supervised classes"),
    "one error bar for all": Relation(rest.one_error_bar_for_all, "ppca, ppca missing, factors, factors missing"),
    "offsets of features": Relation(rest.offsets_of_features, "ppca measured, each entry, student rows"),
    "offsets in the data": Relation(rest.offsets_in_the_data, "ppca measured, student, student factors, student rows"),
    "covariates mixed": Relation(rest.covariates_mixed, "ppca measured"),
    "views in another order": Relation(rest.views_swapped, "views"),
    "views in orders of their own": Relation(rest.views_in_their_own_order, "views"),
    "a view in two": Relation(
        rest.a_view_in_two,
        "views",
        {"one noise for a view": "views ppca, views missing, views supervised", "other neighbours": "embedded views"},
    ),
    "edges times c": Relation(rest.edges_heavier, "graphs"),
    "edges in a list": Relation(rest.edges_listed, "graphs"),
    "precision times c": Relation(rest.precision_times, "relational precision"),
    "another solver": Relation(
        rest.another_solver,
        "eigenvalues, ppca ard, ppca spread, supervised, supervised some, supervised classes, relational supervised, "
        "views ppca, views supervised, kernel rbf, kernel supervised",
    ),
    "another seed": Relation(
        rest.with_options(random_state=1), without={"nothing is random": "embedding, embedded views"}
    ),
    "more components": Relation(rest.with_options(n_components=6), "ppca, ppca ard", {"no prior": "ppca"}),
    "more coordinates": Relation(rest.more_coordinates, "embedding, embedded views"),
}
