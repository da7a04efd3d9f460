"""The laws of the kernel models: those of all estimators, said of features that are never written down."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlatent.testing.conformance import Conformance, Preset


class KernelConformance(Conformance):
    """The laws of an estimator whose kernel takes distances (rbf, laplacian) with γ by the median heuristic.

    Presets give the solvers by which K is reached, `solvers=("memory", "recomputed")`.
    """

    def too_many(self, preset: Preset) -> int:
        """As many as samples: a kernel has more features than the rows."""
        return len(preset.features)

    def test_shapes(self, preset: Preset) -> None:
        """Attributes and results have their shapes, in float64, without NaN; there are no loadings of the features."""
        model, (rows, width) = preset.fitted, preset.features.shape
        assert model.dual_components_.shape == (model.n_components, rows)
        assert (model.n_features_in_, model.n_samples_) == (width, rows)
        assert preset.score_samples(model).shape == (rows,)
        scores = model.transform(preset.features)
        assert scores.shape == (rows, model.n_components)
        for values in (model.dual_components_, scores):
            assert values.dtype == np.float64
            assert np.isfinite(values).all()
        for name in ("components_", "mean_", "sample", "get_covariance", "impute"):
            assert not hasattr(model, name)

    def test_order_of_rows_does_not_matter(self, preset: Preset) -> None:
        """Samples are exchangeable, and combinations of them go with them."""
        order = np.random.default_rng(0).permutation(len(preset.features))
        _assert_close(preset.reordered(order).fit(), preset.fitted, 1e-5, 1e-9, order)

    def test_shift(self, preset: Preset) -> None:
        """A constant added to the features changes nothing, at a million spreads, too."""
        _assert_close(preset.fit(preset.features + 1e6), preset.fitted, 1e-4, 1e-7)

    def test_scale(self, preset: Preset) -> None:
        """The median heuristic makes the model independent of the units of the rows."""
        _assert_close(preset.fit(preset.features * 50.0), preset.fitted, 1e-5, 1e-8)

    def test_float32_is_nearly_float64(self, preset: Preset) -> None:
        """Single precision data give the model up to single precision."""
        _assert_close(preset.fit(preset.features.astype(np.float32)), preset.fitted, 1e-2, 1e-4)

    def test_samples_have_the_width_of_the_data(self, preset: Preset) -> None:
        """No rows can be drawn; but the model's total variance of the features is that of the samples, exactly
        without targets, and nearly with them."""
        model = preset.fitted
        inside = model.explained_variance_.sum() - model.n_components * model.noise_variance_
        total = inside + model.feature_dimension_ * model.noise_variance_
        distances = model._model.map(preset.features)[:, -1]
        np.testing.assert_allclose(total, distances.mean(), rtol=1e-6 if preset.targets is None else 0.1)


def _assert_close(moved: Any, model: Any, tight: float, height: float, order: Any = slice(None)) -> None:
    expected = model.dual_components_[:, order]
    np.testing.assert_allclose(moved.dual_components_, expected, atol=tight * abs(expected).max())
    np.testing.assert_allclose(moved.log_likelihood_, model.log_likelihood_, rtol=height)
