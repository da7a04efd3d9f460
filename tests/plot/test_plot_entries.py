"""Pictures of residuals and weights show what `residuals` says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

import dlatent
from dlatent import plot


def low_rank(rng, samples=300, features=12):
    return rng.normal(size=(samples, 3)) @ rng.normal(size=(3, features))


def test_quantiles_of_normal_residuals_lie_on_the_line():
    rng = np.random.default_rng(0)
    x = low_rank(rng) + 0.5 * rng.normal(size=(300, 12))
    model = dlatent.PPCA(3, missing="nan").fit(np.where(rng.random(x.shape) < 0.1, np.nan, x))
    axes = plot.residuals(model, x)
    expected, seen = axes.lines[0].get_data()
    ordered = np.sort(model.residuals(x)["residual"].values.ravel())
    assert (seen[0], seen[-1]) == (ordered[0], ordered[-1])
    np.testing.assert_allclose(expected[[0, -1]], norm.ppf([0.5 / 3600, 1.0 - 0.5 / 3600]))
    assert np.abs(seen - expected)[np.abs(expected) < 2.5].max() < 0.15
    assert "normal" in axes.get_xlabel()


def test_quantiles_of_robust_residuals_are_those_of_student():
    rng = np.random.default_rng(1)
    x = low_rank(rng) + 0.3 * rng.standard_t(2.5, (300, 12))
    model = dlatent.PPCA(3, likelihood="student").fit(x)
    axes = plot.residuals(model, x)
    expected, seen = axes.lines[0].get_data()
    nu = model.residuals(x).attrs["degrees_of_freedom"]
    assert expected[0] == pytest.approx(t.ppf(0.5 / 3600, nu))
    inside = np.abs(expected) < 5.0
    assert np.corrcoef(seen[inside], expected[inside])[0, 1] > 0.99
    normal = plot.residuals(dlatent.PPCA(3).fit(x), x).lines[0].get_data()
    assert normal[1].max() > 2.0 * normal[0].max()  # heavier tails than the normal distribution


def test_counts_vary_by_their_means():
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.exp(0.4 * low_rank(rng)) * rng.gamma(1.5, 1.0 / 1.5, (300, 12)))

    def sizes(likelihood):
        model = dlatent.PPCA(3, likelihood=likelihood, row_effects=False).fit(counts)
        axes, result = plot.residuals(model, counts), model.residuals(counts)
        means, root = axes.lines[0].get_data()
        assert len(means) == 20
        assert np.mean(root**2) == pytest.approx(float((result["residual"] ** 2).mean()))
        assert np.mean(means) == pytest.approx(float(result["mean"].mean()))
        assert len(axes.collections[0].get_offsets()) == 2000
        return root

    assert sizes("poisson").mean() > 1.2 > 1.1 > sizes("negative_binomial").mean()


def test_binary_entries_are_as_often_one_as_expected():
    rng = np.random.default_rng(3)
    ones = (rng.random((300, 12)) < 1.0 / (1.0 + np.exp(-low_rank(rng)))).astype(float)
    model = dlatent.PPCA(3, likelihood="bernoulli").fit(ones)
    axes = plot.residuals(model, ones)
    probabilities, means = axes.lines[0].get_data()
    assert (np.diff(probabilities) > 0).all()
    assert np.mean(probabilities) == pytest.approx(float(model.residuals(ones)["mean"].mean()))
    assert (np.abs(means) < 2.0 / np.sqrt(180)).mean() > 0.7
    few = plot.residuals(model, ones[:1])
    assert len(few.lines[0].get_xdata()) == 12


def test_rows_with_the_lowest_weights_are_on_top():
    rng = np.random.default_rng(4)
    x = low_rank(rng) + 0.5 * rng.normal(size=(300, 12))
    x[[7, 70]] += [[30.0], [60.0]] * rng.normal(size=(2, 12))
    named = pd.DataFrame(x, index=[f"cell {i}" for i in range(300)])
    model = dlatent.PPCA(3, likelihood="student_rows").fit(named)
    axes = plot.weights(model, named, most=5)
    assert [text.get_text() for text in axes.get_yticklabels()][:2] == ["cell 70", "cell 7"]
    widths = [bar.get_width() for bar in axes.patches]
    np.testing.assert_array_equal(widths, np.sort(model.residuals(x)["weight"])[:5])
    assert axes.yaxis_inverted()


def test_entries_with_low_weights_are_dark(data):
    x = data.copy()
    x[11, 4] += 50.0
    x[20, 2] = np.nan
    model = dlatent.PPCA(3, likelihood="student", missing="nan").fit(x)
    axes = plot.weights(model, x, most=80)
    (image,) = axes.images
    rows = [int(text.get_text()) for text in axes.get_yticklabels()]
    weights = model.residuals(x)["weight"].values
    np.testing.assert_array_equal(np.asarray(image.get_array().filled(np.nan)), weights[rows])
    assert weights[11, 4] == np.nanmin(weights) < 0.01
    assert np.isnan(weights[20, 2])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("gene", "cell")


def test_models_without_weights_are_refused(model, data):
    with pytest.raises(TypeError, match="'normal' gives all entries the same weight; fit with likelihood='student'"):
        plot.weights(model, data)
