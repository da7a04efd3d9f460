"""The laws of the kernel models: those of all estimators, said of features that are never written down."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dlatent.testing.conformance import Conformance, Preset


class KernelConformance(Conformance):
    """The laws of an estimator whose kernel takes distances (rbf, laplacian) with γ by the median heuristic.

    Presets give the routes by which K is reached, `routes=("memory", "recomputed")`.
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
        for name in ("components_", "mean_", "sample", "inverse_transform", "get_covariance", "impute"):
            assert not hasattr(model, name)

    def test_order_of_rows_does_not_matter(self, preset: Preset) -> None:
        """Samples are exchangeable, and combinations of them go with them."""
        order = np.random.default_rng(0).permutation(len(preset.features))
        moved, model = preset.reordered(order).fit(), preset.fitted
        scale = abs(model.dual_components_).max()
        np.testing.assert_allclose(moved.dual_components_, model.dual_components_[:, order], atol=1e-5 * scale)
        np.testing.assert_allclose(moved.log_likelihood_, model.log_likelihood_, rtol=1e-9)

    def test_shift(self, preset: Preset) -> None:
        """A constant added to the features changes nothing, at a million spreads, too."""
        moved, model = preset.fit(preset.features + 1e6), preset.fitted
        scale = abs(model.dual_components_).max()
        np.testing.assert_allclose(moved.dual_components_, model.dual_components_, atol=1e-4 * scale)
        np.testing.assert_allclose(moved.log_likelihood_, model.log_likelihood_, rtol=1e-7)

    def test_scale(self, preset: Preset) -> None:
        """The median heuristic makes the model independent of the units of the rows."""
        scaled, model = preset.fit(preset.features * 50.0), preset.fitted
        scale = abs(model.dual_components_).max()
        np.testing.assert_allclose(scaled.dual_components_, model.dual_components_, atol=1e-5 * scale)
        np.testing.assert_allclose(scaled.log_likelihood_, model.log_likelihood_, rtol=1e-8)

    def test_float32_is_nearly_float64(self, preset: Preset) -> None:
        """Single precision data give the model up to single precision."""
        single, model = preset.fit(preset.features.astype(np.float32)), preset.fitted
        scale = abs(model.dual_components_).max()
        np.testing.assert_allclose(single.dual_components_, model.dual_components_, atol=1e-2 * scale)
        np.testing.assert_allclose(single.log_likelihood_, model.log_likelihood_, rtol=1e-4)

    def test_canonical_form(self, preset: Preset) -> None:
        """The posterior covariance is diagonal and increasing, and peaks of the combinations are positive."""
        model = preset.fitted
        targets = () if preset.targets is None else (preset.targets,)
        covariance = model.posterior(preset.features, *targets)["covariance"].values
        full = covariance if covariance.ndim == 2 else covariance[0]
        np.testing.assert_allclose(full, np.diag(np.diag(full)), atol=1e-8)
        assert (np.diff(np.diag(full)) >= -1e-12).all()
        dual = model.dual_components_
        assert (np.take_along_axis(dual, abs(dual).argmax(axis=1)[:, None], axis=1) > 0).all()

    def test_names_are_kept(self, preset: Preset) -> None:
        """Dimensions and coordinates of xarray input come back with the results."""
        rows = [f"r{i}" for i in range(len(preset.features))]
        data = xr.DataArray(preset.features, dims=("row", "column"), coords={"row": rows})
        found = preset.fitted.transform(data)
        assert found.dims == ("row", "component")
        assert found["row"].values.tolist() == rows
        np.testing.assert_array_equal(found.values, preset.fitted.transform(preset.features))

    def test_samples_have_the_width_of_the_data(self, preset: Preset) -> None:
        """No rows can be drawn; but the model's total variance of the features is that of the samples, exactly
        without targets, and nearly with them."""
        model = preset.fitted
        inside = model.explained_variance_.sum() - model.n_components * model.noise_variance_
        total = inside + model.feature_dimension_ * model.noise_variance_
        distances = model._model.map(preset.features)[:, -1]
        np.testing.assert_allclose(total, distances.mean(), rtol=1e-6 if preset.targets is None else 0.1)
