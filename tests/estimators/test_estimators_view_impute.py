"""`impute` of views: what was observed stays, and what was not is the dense conditional mean."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import (
    CorrespondenceFactorAnalysis,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    DataError,
    JointViews,
)
from tests.simulators import simulate

ROWS = simulate(60, (6, 5), 2, noise=(0.3, 0.4), offset=2.0, random_state=2).stacked
PAIRS = np.column_stack([np.arange(20, 45), np.arange(25)])
VIEWS = {"a": ROWS[:45, :6], "b": ROWS[20:, 6:]}
ALL = np.vstack([PAIRS, [[row, -1] for row in range(20)], [[-1, row] for row in range(25, 40)]])
"""The rows of each sample, in the order of `transform`."""


def with_holes(share: float = 0.3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    views = {name: np.where(rng.random(x.shape) < share, np.nan, x) for name, x in VIEWS.items()}
    views["a"][21] = np.nan  # a sample that has nothing of a view but its row
    views["b"][30] = np.nan  # and one of which nothing is known
    return views


def joined(model, views):
    """Covariance and mean of the stacked features, and the stacked samples, NaN where nothing is known."""
    names = model.view_names_
    loadings = np.vstack([model.components_[name].T for name in names])
    noise = np.concatenate([np.full(len(model.mean_[n]), 1.0) * model.noise_variance_[n] for n in names])
    stacked = np.full((len(ALL), len(noise)), np.nan)
    for at, columns in zip((0, 1), (slice(0, 6), slice(6, 11)), strict=True):
        has = ALL[:, at] >= 0
        stacked[has, columns] = views[names[at]][ALL[has, at]]
    return loadings @ loadings.T + np.diag(noise), np.concatenate([model.mean_[n] for n in names]), stacked


def conditional(covariance, mean, row):
    gone = np.isnan(row)
    gain = covariance[np.ix_(gone, ~gone)] @ np.linalg.inv(covariance[np.ix_(~gone, ~gone)])
    filled = row.copy()
    filled[gone] = mean[gone] + gain @ (row - mean)[~gone]
    return filled


@pytest.mark.parametrize("kind", [CorrespondencePPCA, CorrespondenceFactorAnalysis])
def test_missing_entries_are_dense_conditional_means(kind) -> None:
    model, views = kind(2).fit(VIEWS, correspondence=PAIRS), with_holes()
    covariance, mean, stacked = joined(model, views)
    wanted = np.array([conditional(covariance, mean, row) for row in stacked])
    found = model.impute(views, correspondence=PAIRS)
    every = model.impute(views, correspondence=PAIRS, every_view=True)
    for at, (name, columns) in enumerate((("a", slice(0, 6)), ("b", slice(6, 11)))):
        np.testing.assert_allclose(every[name], wanted[:, columns], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(every[name]["row_b"], ALL[:, 1])
        has = ALL[:, at] >= 0
        np.testing.assert_allclose(found[name][ALL[has, at]], wanted[has, columns], rtol=1e-9, atol=1e-9)
        seen = ~np.isnan(views[name])
        np.testing.assert_array_equal(found[name][seen], views[name][seen])


def test_a_view_alone_is_filled_from_itself() -> None:
    model, views = CorrespondencePPCA(2).fit(VIEWS, correspondence=PAIRS), with_holes()
    covariance, mean, _ = joined(model, views)
    wanted = [conditional(covariance[:6, :6], mean[:6], row) for row in views["a"]]
    np.testing.assert_allclose(model.impute({"a": views["a"]})["a"], wanted, rtol=1e-9, atol=1e-9)
    other = model.impute({"a": VIEWS["a"]}, every_view=True)["b"]
    scores = model.transform({"a": VIEWS["a"]})
    np.testing.assert_allclose(other, model.inverse_transform(scores, "b"), rtol=1e-9)


def test_views_come_back_as_they_were_given() -> None:
    words = xr.DataArray(
        VIEWS["a"], dims=("row", "word"), coords={"word": list("uvwxyz"), "row": [f"r{i}" for i in range(45)]}
    )
    model = CorrespondencePPCA(2).fit({"a": words, "b": VIEWS["b"]}, correspondence=PAIRS)
    views, plain = with_holes(), with_holes()
    views["a"] = words.copy(data=views["a"])
    found = model.impute(JointViews(views, correspondence=PAIRS))
    assert found["a"].dims == ("row", "word")
    assert found["a"]["row"].values[3] == "r3"
    assert isinstance(found["b"], np.ndarray)
    with pytest.warns(UserWarning, match="feature names"):
        again = model.impute(plain, correspondence=PAIRS)
    np.testing.assert_array_equal(found["a"].values, again["a"])
    every = model.impute(views, correspondence=PAIRS, every_view=True)
    assert every["a"].dims == ("sample", "word")
    assert every["a"]["word"].values.tolist() == list("uvwxyz")


def test_targets_tell_of_what_is_missing() -> None:
    targets = ROWS[20:, 6:8]
    model = CorrespondenceSupervisedPPCA(2).fit(VIEWS, {"b": targets}, correspondence=PAIRS)
    views = with_holes()
    views["b"][:] = np.nan
    without = model.impute(views, correspondence=PAIRS)
    told = model.impute(views, {"b": targets}, correspondence=PAIRS)
    assert sorted(told) == ["a", "b"]
    errors = [np.square(each["b"] - VIEWS["b"]).mean() for each in (told, without)]
    assert errors[0] < 0.75 * errors[1]


def test_what_cannot_be_filled_is_refused() -> None:
    model, views = CorrespondencePPCA(2).fit(VIEWS, correspondence=PAIRS), with_holes()
    with pytest.raises(DataError, match="view 'a' is sparse"):
        model.impute({"a": sp.csr_array(VIEWS["a"])})
    views["b"][3, 2] = np.inf
    with pytest.raises(DataError, match="view 'b', row 3, column 2 is inf; make it NaN if it is missing"):
        model.impute(views, correspondence=PAIRS)
    with pytest.raises(DataError, match="'c' is no view"):
        model.impute({"c": VIEWS["a"]})
