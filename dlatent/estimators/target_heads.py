"""What models with targets share: reading the targets of a fit, and saying what comes out in the users' terms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels
from dlatent.engine.lazy import is_dask
from dlatent.errors import DataError
from dlatent.estimators.base import LatentVariableModel
from dlatent.estimators.labelled import plain_rows
from dlatent.estimators.targets import EncodedTargets, TargetEncoding, TargetType, check_dropped_rows, encode_targets
from dlatent.linear_gaussian.expectation import pattern_projection


class TargetHeads(LatentVariableModel):
    """A model whose last view are encoded targets; see SupervisedPPCA."""

    target_type: TargetType
    target_noise_floor: float
    classes_: npt.NDArray[Any]
    _encoding: TargetEncoding

    def _target_floors(self) -> tuple[float, ...]:
        return (float(self.target_noise_floor),)

    def _floor_names(self) -> tuple[tuple[str, float], ...]:
        return (("target_noise_floor", self.target_noise_floor),)

    def _encode(self, y: Any, labelled: Any, samples: int, labels: AxisLabels) -> EncodedTargets:
        """The targets of so many samples, whose data have these labels."""
        if self.target_type not in ("auto", "class", "multilabel", "regression"):
            raise DataError(
                f"target_type is {self.target_type!r}; expected 'auto', 'class', 'multilabel' or 'regression'"
            )
        values, mask = plain_rows(y, labels), plain_rows(labelled, labels)
        check_dropped_rows(values, samples, labels)
        return encode_targets(values, samples, self.target_type, mask=mask, holes=self.missing != "raise")

    def _publish_targets(self, encoding: TargetEncoding) -> None:
        own = self._specification.slices[-1]
        self._encoding = encoding
        self.target_components_ = (encoding.rotation @ self._parameters.loadings[own]).T
        self.target_mean_ = encoding.decode(self._parameters.mean[own])
        self.target_noise_variance_ = float(self._parameters.noise_variance[-1])
        if encoding.classes is not None:
            self.classes_ = encoding.classes
        elif hasattr(self, "classes_"):  # of an earlier fit to other targets
            del self.classes_

    def _predicted(self, means: Any) -> Any:
        """Classes, 0/1 or numbers from the means of the outputs, in their kind; Dask arrays stay lazy."""
        if self._encoding.kind == "class":
            return self._labels_of(means.argmax(axis=1))
        if self._encoding.kind == "multilabel":
            return (means > 0.5).astype(np.int64)
        return means[:, 0] if means.shape[1] == 1 else means

    def _labels_of(self, codes: Any) -> Any:
        """The labels of class numbers in the kind of the input; Dask arrays stay lazy."""
        if isinstance(codes, xr.DataArray):
            return codes.copy(data=self._labels_of(codes.data)).rename("labels")
        if is_dask(codes):
            return codes.map_blocks(self.classes_.__getitem__, dtype=self.classes_.dtype)
        return self.classes_[codes]

    def _output_variance(self, views: Iterable[int]) -> Array:
        """Variance of each output given these views (L,): the diagonal of W_y M⁻¹W_yᵀ + σ_y²VVᵀ."""
        about = pattern_projection(self._parameters, self._specification, tuple(views))
        explained = np.einsum("kl,kj,jl->l", self.target_components_, about.covariance, self.target_components_)
        return np.asarray(explained + self.target_noise_variance_ * (self._encoding.rotation**2).sum(axis=1))
