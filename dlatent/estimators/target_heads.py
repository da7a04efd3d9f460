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
from dlatent.linear_gaussian.parameters import Parameters


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

    @property
    def _own(self) -> slice:
        return slice(0, self._specification.slices[-1].start)

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        own, encoding = self._specification.slices[-1], self._encoding
        names = np.asarray(encoding.names)
        return super()._variables(whole=whole) | {
            "target_loadings": self.target_components_.T,
            "target_mean": self.target_mean_,
            "target_centre": encoding.centre,
            "target_rotation": encoding.rotation,
            "rank_loadings": self._parameters.loadings[own],
            "rank_mean": self._parameters.mean[own],
            "target": names.astype(str) if names.dtype == object else names,
        }

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        return super()._attributes(whole=whole) | ({"target_kind": self._encoding.kind} if whole else {})

    def _restored_parameters(self, values: dict[str, Any]) -> Parameters:
        features = super()._restored_parameters(values)
        return Parameters(
            np.vstack([features.loadings, values["rank_loadings"]]),
            np.concatenate([features.mean, values["rank_mean"]]),
            features.noise_variance,
        )

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        super()._restore(values, attributes)
        names, kind = values["target"], attributes["target_kind"]
        classes = names if kind == "class" else None
        self._publish_targets(TargetEncoding(kind, values["target_centre"], values["target_rotation"], names, classes))

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
