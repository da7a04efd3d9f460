"""The number of components that views and kernels keep by default."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from dlatent import (
    PPCA,
    CorrespondenceFactorAnalysis,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    DataError,
    FactorAnalysis,
    KernelPPCA,
    NoiseFloorWarning,
)

SIZES = (12, 20)


def pairs(count):
    return np.repeat(np.arange(count)[:, None], 2, axis=1)


def rows_of(seed, samples, sizes=SIZES, *, shared=3, own=1, noise=(0.5, 1.5)):
    """Stacked views with `shared` components in all of them, and `own` ones in each."""
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((shared + own * len(sizes), sum(sizes)))
    view = np.repeat(np.arange(len(sizes)), sizes)
    for number in range(len(sizes)):
        loadings[shared + own * number : shared + own * (number + 1), view != number] = 0.0
    z = rng.standard_normal((samples, len(loadings)))
    return z @ loadings + rng.standard_normal((samples, sum(sizes))) * np.repeat(noise, sizes)


def cut(rows, both, left, right):
    """Two views of rows, of which the first have both, the next the left one alone, then the right one alone."""
    end = both + left
    views = {"left": rows[:end, : SIZES[0]], "right": rows[[*range(both), *range(end, end + right)], SIZES[0] :]}
    return views, pairs(both)


@pytest.mark.parametrize(("both", "left", "right"), [(150, 0, 0), (100, 300, 0), (100, 20, 400)])
def test_views_keep_the_components_that_are_there(both, left, right):
    for seed in range(2):
        views, table = cut(rows_of(seed, both + left + right), both, left, right)
        found = CorrespondencePPCA().fit(views, correspondence=table)
        assert (found.n_components_, found.n_components) == (5, "auto")
        far = {"left": 1e3 * views["left"] - 1e4, "right": 1e-2 * views["right"]}
        assert CorrespondencePPCA().fit(far, correspondence=table).n_components_ == 5
    given = CorrespondencePPCA(5).fit(views, correspondence=table)
    assert found.log_likelihood_ == pytest.approx(given.log_likelihood_, rel=1e-9)


def test_views_keep_the_factors_that_are_there():
    views, table = cut(rows_of(0, 200), 100, 100, 0)
    units = np.geomspace(1e-3, 1e3, SIZES[0])
    found = CorrespondenceFactorAnalysis().fit({**views, "left": views["left"] * units}, correspondence=table)
    assert found.n_components_ == 5


@pytest.mark.parametrize("samples", [40, 130])
def test_complete_views_keep_as_many_as_their_features_together(samples):
    """In units of the spreads of the views, and up to a quarter of the samples, by relevance determination."""
    rows = rows_of(4, samples, (15, 25), shared=2, own=2)
    views = rows[:, :15], rows[:, 15:]
    spreads = [np.sqrt(((view - view.mean(axis=0)) ** 2).mean()) for view in views]
    together = np.hstack([view / spread for view, spread in zip(views, spreads, strict=True)])
    found = CorrespondencePPCA().fit(views, correspondence=pairs(samples)).n_components_
    assert found == PPCA(solver="krylov").fit(together).n_components_ <= samples // 4
    factors = CorrespondenceFactorAnalysis().fit(views, correspondence=pairs(samples)).n_components_
    assert factors == FactorAnalysis().fit(rows).n_components_ <= samples // 4


def test_all_solvers_of_views_choose_alike():
    """Of dense and sparse views, of which one is constant in part and one wide, with three views in all sets."""
    rng = np.random.default_rng(0)
    rows = rows_of(1, 60, (8, 160, 20), shared=2, own=1, noise=(0.3, 1.0, 0.5))
    table = np.array([[i if i % 3 else -1, i if i % 5 else -1, i] for i in range(60)])
    words = sp.csr_array(np.where(rng.random((60, 160)) < 0.3, rows[:, 8:168], 0.0))
    views = {"few": np.hstack([rows[:, :8], np.ones((60, 2))]), "words": words, "last": rows[:, 168:]}
    found = [CorrespondencePPCA(solver=solver).fit(views, correspondence=table) for solver in ("covariance", "krylov")]
    assert len({model.n_components_ for model in found}) == 1
    textbook = CorrespondencePPCA(solver="em", max_iter=3).fit(views, correspondence=table)
    assert textbook.n_components_ == found[0].n_components_


def test_samples_of_one_view_do_not_make_pairs_say_more():
    """Three pairs support no component for each direction in which hundreds of others vary."""
    rows = rows_of(2, 403)
    views, table = cut(rows, 3, 200, 200)
    assert CorrespondencePPCA().fit(views, correspondence=table).n_components_ == 1
    alike = {name: view.copy() for name, view in views.items()}
    for view in alike.values():
        view[:3] = view[0]
    for model in (CorrespondencePPCA, CorrespondenceFactorAnalysis):
        assert model().fit(alike, correspondence=table).n_components_ == 1


def test_no_view_loses_its_noise_by_default():
    """Of the halves of digits some pixels never vary, so that as many components as the others leave nothing."""
    images = load_digits().images
    left, right = images[:300, :, :4].reshape(300, -1), images[:300, :, 4:].reshape(300, -1)
    model = CorrespondencePPCA().fit([left, right], correspondence=pairs(300))
    for view, noise in zip((left, right), model.noise_variance_.values(), strict=True):
        assert noise > 1e-4 * view.var(axis=0).mean()


def test_as_many_components_as_a_view_has_features_are_a_warning():
    images = load_digits().images[:200]
    left, right = images[:, :, :4].reshape(200, -1), images[:, :, 4:].reshape(200, -1)
    with pytest.warns(NoiseFloorWarning):
        model = CorrespondencePPCA(32).fit([left, right], correspondence=pairs(200))
    assert model.at_floor_ == {"0": True, "1": False}


@pytest.mark.parametrize(("both", "others"), [(60, 200), (300, 200), (20, 500)])
def test_views_by_default_describe_others_better_than_two_components(both, others):
    order = np.random.default_rng(0).permutation(1797)
    images = load_digits().images[order]
    left, right = images[:, :, :4].reshape(1797, -1), images[:, :, 4:].reshape(1797, -1)
    views, seen = {"left": left[: both + others], "right": right[:both]}, pairs(both)
    new = {"left": left[-400:], "right": right[-400:]}
    found, two = (CorrespondencePPCA(k).fit(views, correspondence=seen) for k in ("auto", 2))
    assert found.score(new, correspondence=pairs(400)) > two.score(new, correspondence=pairs(400))
    assert found.score({"left": new["left"]}) > two.score({"left": new["left"]}) + 3.0

    def missed(model):
        return ((model.reconstruct(new["left"], "left", "right") - new["right"]) ** 2).sum()

    assert missed(found) < 1.02 * missed(two)


def test_views_with_targets_keep_their_components():
    rows = rows_of(5, 240)
    views, table = cut(rows, 120, 60, 60)
    label = np.where(rows[:, 0] + rows[:, 15] > 0, "up", "down").astype(object)
    label[::3] = None
    model = CorrespondenceSupervisedPPCA().fit(views, label, correspondence=table)
    assert 4 <= model.n_components_ <= 7


def test_a_plan_of_views_has_room_for_the_most_components():
    views, table = cut(rows_of(0, 300), 200, 50, 50)
    plans = {k: CorrespondencePPCA(k, solver="krylov").plan(views, correspondence=table) for k in ("auto", 31, 2)}
    assert plans["auto"].driver_memory >= plans[31].driver_memory > plans[2].driver_memory
    assert plans["auto"].passes > plans[31].passes
    assert "n_components by 'auto', at most 31, before the fit" in str(plans["auto"])
    with pytest.raises(DataError, match="n_components is 'all'"):
        CorrespondencePPCA("all").plan(views, correspondence=table)


@pytest.mark.parametrize(("samples", "features"), [(200, 9), (50, 120)])
def test_the_linear_kernel_keeps_what_PPCA_keeps(samples, features):
    rows = rows_of(6, samples, (features,), shared=3, own=1, noise=(0.7,))
    whole = PPCA().fit(rows)
    assert whole.n_components_ == 4
    for options in ({"solver": "memory"}, {"solver": "recomputed"}, {"landmarks": samples}):
        model = KernelPPCA(kernel="linear", tol=1e-12, **options).fit(rows)
        assert model.n_components_ == 4
        assert model.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-8)
        assert model.noise_variance_ == pytest.approx(whole.noise_variance_, rel=1e-6)
        np.testing.assert_allclose(np.abs(model.transform(rows)), np.abs(whole.transform(rows)), atol=1e-5)


def test_a_kernel_fit_by_default_is_the_fit_with_that_number():
    rows = np.random.default_rng(0).standard_normal((70, 3))
    new = np.random.default_rng(1).standard_normal((9, 3))
    for options in ({}, {"kernel": "laplacian"}, {"solver": "recomputed"}, {"landmarks": 40}):
        found = KernelPPCA(tol=1e-13, **options).fit(rows)
        given = KernelPPCA(found.n_components_, tol=1e-13, **options).fit(rows)
        assert 1 < found.n_components_ < 50
        assert found.dual_components_.shape == given.dual_components_.shape
        assert found.log_likelihood_ == pytest.approx(given.log_likelihood_, rel=1e-8)
        assert found.score(rows) * len(rows) == pytest.approx(found.log_likelihood_, rel=1e-8)
        np.testing.assert_allclose(np.abs(found.transform(new)), np.abs(given.transform(new)), atol=1e-5)
        np.testing.assert_allclose(found.score_samples(new), given.score_samples(new), rtol=1e-5)


def test_landmarks_that_span_little_bound_the_number():
    rows = np.repeat(rows_of(7, 6, (5,), own=0, noise=(0.1,)), 10, axis=0)
    assert 1 <= KernelPPCA(landmarks=40).fit(rows).n_components_ <= 5


def test_neighbours_on_kernel_scores_by_default():
    x, y = load_digits(return_X_y=True)
    seen, new, of_seen, of_new = train_test_split(x, y, test_size=0.5, random_state=0)
    right = {}
    for k in ("auto", 2):
        model = KernelPPCA(k).fit(seen)
        space = KNeighborsClassifier(1).fit(model.transform(seen), of_seen)
        right[k] = space.score(model.transform(new), of_new)
    assert right["auto"] > 0.97 > right[2] + 0.2
