"""Targets as users have them, and as the model wants them: centred, one-of-C, on their rank, NaN where unlabelled.

One-of-C indicators of C classes, centred, have rank C − 1; on all C columns the likelihood of a supervised model is
unbounded (docs/models/supervised.md, errata 13).  Rotating them onto their rank changes nothing else, because the noise
is isotropic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as la

from dlatent.arrays import Array, AxisLabels, Integers
from dlatent.engine.group import CodedTargets
from dlatent.errors import DataError
from dlatent.fitted.fit import require_room
from dlatent.fitted.target_values import (
    as_array,
    distinct_values,
    kind_of,
    labels_of_rows,
    number_matrix,
    with_mask,
    without_minus_rows,
)
from dlatent.gaussian.canonical import column_signs

TOO_MANY = "merge classes or leave out outputs, or pass y of one column with target_type='regression'"
"""Hint for targets whose covariance fills the memory."""
RANK_TOLERANCE = 1e-12
"""Directions of the targets with less than this part of the largest variance are constants."""


@dataclass(frozen=True)
class TargetEncoding:
    """How targets y (L outputs) become the second view: (y − centre) · rotation, of L' columns.

    `classes` are the labels of a class model in the order of the one-of-C columns; `names` label the outputs.  `name`
    and `attrs` are those of the column or DataArray that the targets came in.
    """

    kind: str
    centre: Array
    rotation: Array
    names: npt.NDArray[Any]
    classes: npt.NDArray[Any] | None
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """Columns of the second view."""
        return int(self.rotation.shape[1])

    @property
    def rotated(self) -> bool:
        """Whether the second view has other columns than the targets."""
        return not np.array_equal(self.rotation, np.eye(len(self.centre)))

    def decode(self, values: Array) -> Array:
        """Outputs (n, L) from rows of the second view (n, L'), NaN where one is missing."""
        return (values @ self.rotation.T if self.rotated else values) + self.centre

    def table(self) -> Array:
        """The second view of each class (C, L')."""
        return (np.eye(len(self.centre)) - self.centre) @ self.rotation

    def encode(self, targets: Any, samples: int, *, holes: bool = False) -> Array:
        """Rows of the second view (n, L') of new targets in the form that the model was fitted with, NaN if
        unlabelled; `holes` allows rows of which some outputs are missing, where the targets are not rotated."""
        if self.classes is None:
            values = number_matrix(targets, samples)
            if values.shape[1] != len(self.centre):
                raise DataError(
                    f"the targets have {values.shape[1]} outputs; the model was fitted with {len(self.centre)}"
                )
            if holes and not self.rotated:
                _finite(values)
                return values - self.centre
            _labelled_rows(values)
            return (values - self.centre) @ self.rotation
        codes = self.codes(targets, samples)
        rows = self.table()[codes]
        rows[codes < 0] = np.nan
        return rows

    def codes(self, targets: Any, samples: int) -> Integers:
        """The class number of each row, −1 where unlabelled; DataError names a label that the model does not know."""
        assert self.classes is not None
        values, present = labels_of_rows(targets, samples)
        codes = np.full(len(values), -1, dtype=np.int64)
        known = {label: number for number, label in enumerate(self.classes.tolist())}
        distinct, which = distinct_values(values[present])
        numbers = np.array([known.get(label, -1) for label in distinct.tolist()], dtype=np.int64)
        codes[present] = numbers[which]
        unknown = np.flatnonzero(present & (codes < 0))
        if len(unknown):
            row = int(unknown[0])
            label = values[row].item() if isinstance(values[row], np.generic) else values[row]
            raise DataError(f"row {row}: the label {label!r} is not among the model's classes {list(known)[:10]}")
        return codes


@dataclass(frozen=True)
class EncodedTargets:
    """The encoding, the rows for the engine (None where they are a view of the data), and the counts of the classes."""

    encoding: TargetEncoding
    rows: Array | CodedTargets | None
    class_counts: Integers | None = None

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Which rows have targets (N,)."""
        assert self.rows is not None
        if isinstance(self.rows, CodedTargets):
            return np.asarray(self.rows.codes >= 0)
        return np.asarray(~np.isnan(self.rows).all(axis=1))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as they travel with the blocks."""
        return 0 if self.rows is None else int(self.rows.nbytes)


def check_dropped_rows(targets: Any, samples: int, labels: AxisLabels) -> None:
    """Refuse targets of the rows that the data had before some were dropped, with that reason."""
    origin = labels.origin
    shape = getattr(targets, "shape", (len(targets),) if isinstance(targets, Sequence) else ())
    if origin is not None and shape[:1] == (origin.rows,) != (samples,):
        raise DataError(
            f"y has {origin.rows} rows; the data have {samples}, because rows of zeros were dropped when they "
            "were ingested: uns/position_before of the store says which were kept, so give y[kept], or ingest the "
            "labels with the data"
        )


def encode_targets(
    targets: Any,
    samples: int,
    kind: str,
    *,
    mask: Any = None,
    holes: bool = False,
) -> EncodedTargets:
    """Find out what the targets are, and encode them.

    Parameters: `targets` (N,) labels or numbers, or (N, L) outputs; unlabelled rows by NaN, None, −1 (class labels)
    or `mask` (N,), True where labelled; `kind`, "auto" decides as scikit-learn's `type_of_target` does: text,
    integers and booleans are class labels, floats with fractions regression targets, a 0/1 matrix of integers is
    multi-label; but of whole floats few are labels, and many numbers; `holes` allows rows of which some outputs are
    missing. Raises DataError: wrong length, no labelled row, one class, constant targets.
    """
    if targets is None:
        raise DataError(
            "a supervised model requires y to be passed, but the target y is None; for data without labels use PPCA"
        )
    targets = as_array(targets)
    if targets.ndim not in (1, 2) or len(targets) != samples:
        raise DataError(f"y has shape {targets.shape}; the data have {samples} samples, so y needs {samples} rows")
    targets = without_minus_rows(with_mask(targets, mask, samples), kind)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    chosen = kind_of(targets) if kind == "auto" else kind
    if chosen == "class":
        return _encode_classes(targets, samples)
    return _encode_outputs(targets, samples, chosen, holes)


def _encode_classes(targets: npt.NDArray[Any], samples: int) -> EncodedTargets:
    if targets.ndim != 1:
        raise DataError(f"class labels have shape {targets.shape}; expected one label per sample")
    values, present = labels_of_rows(targets, samples)
    if not present.any():
        raise DataError("no row of y is labelled (all are None, NaN or -1); label some samples, or use PPCA")
    seen, which = distinct_values(values[present])
    try:
        classes, place = np.unique(seen, return_inverse=True)
    except TypeError as error:
        raise DataError(
            f"the class labels mix types that cannot be ordered ({error}); use labels of one type"
        ) from error
    classes = _of_one_kind(classes)
    inverse = place[which]
    counts = np.bincount(inverse)
    if len(classes) < 2:
        only = classes.tolist()[0]
        raise DataError(f"all {len(which)} labelled rows have the class {only!r}; a supervised model needs two or more")
    if present.all() and (counts == 1).all():
        raise DataError(
            f"all {len(classes)} rows have classes of their own; for continuous y pass target_type='regression'"
        )
    codes = np.full(samples, -1, dtype=np.min_scalar_type(-len(classes)))
    codes[present] = inverse
    require_room(len(classes), len(classes), "the covariance of the classes", TOO_MANY)
    share = counts / counts.sum()
    rotation = _rotation(np.diag(share) - np.outer(share, share))
    encoding = TargetEncoding("class", share, rotation, classes, classes)
    return EncodedTargets(encoding, CodedTargets(codes, encoding.table()), counts)


def _of_one_kind(classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels of which what stood for no label has made objects, as an array of their own kind."""
    values = [value.item() if isinstance(value, np.generic) else value for value in classes.tolist()]
    if classes.dtype == object and any(all(isinstance(c, kind) for c in values) for kind in (str, bool, int, float)):
        return np.array(values)
    return classes


def _encode_outputs(targets: npt.NDArray[Any], samples: int, kind: str, holes: bool) -> EncodedTargets:
    values = number_matrix(targets, samples)
    seen = ~np.isnan(values)
    gaps = holes and bool((seen.any(axis=1) & ~seen.all(axis=1)).any())
    if gaps:
        _finite(values)
    elif not _labelled_rows(values).any():
        raise DataError("no row of y is labelled (all are NaN); label some samples, or use PPCA")
    if kind == "multilabel" and not np.isin(values[seen], (0.0, 1.0)).all():
        raise DataError("multi-label targets must be 0 or 1; use target_type='regression' for other numbers")
    centre, rotation = _with_gaps(values, seen) if gaps else _on_their_rank(values[seen[:, 0]])
    moved = values - centre
    rows = np.ascontiguousarray(moved if gaps else moved @ rotation)
    return EncodedTargets(TargetEncoding(kind, centre, rotation, np.arange(values.shape[1]), None), rows)


def _on_their_rank(seen: Array) -> tuple[Array, Array]:
    """The centre of complete rows of outputs, and the basis of the directions in which they vary."""
    require_room(seen.shape[1], seen.shape[1], "the covariance of the outputs of y", TOO_MANY)
    centre = seen.mean(axis=0)
    moved = seen - centre
    covariance = moved.T @ moved / len(moved)
    if not np.trace(covariance) > 0.0:
        raise DataError(f"all {len(seen)} labelled rows have the same targets; there is nothing to learn from them")
    return centre, _rotation(covariance)


def _with_gaps(values: Array, seen: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """The centre of outputs of which some are missing in some rows, by what is there, and all L columns as they are: a
    rotation would mix what is there with what is not."""
    centre = np.where(seen, values, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    constant = np.flatnonzero(~(np.nan_to_num(values - centre) != 0.0).any(axis=0))
    if len(constant):
        raise DataError(
            f"output {int(constant[0])} of y has one value, or none, in all rows; take it out, nothing is to be learnt"
        )
    return centre, np.eye(values.shape[1])


def _labelled_rows(values: Array) -> npt.NDArray[np.bool_]:
    """Which rows have targets; DataError where a row has only some of them, or an infinite one."""
    missing = np.isnan(values)
    partly = missing.any(axis=1) & ~missing.all(axis=1)
    if partly.any():
        row = int(np.flatnonzero(partly)[0])
        column = int(np.flatnonzero(missing[row])[0])
        raise DataError(
            f"row {row}: output {column} of y is missing but others are present; fill it, or leave the whole "
            "row unlabelled"
        )
    _finite(values)
    return np.asarray(~missing[:, 0])


def _finite(values: Array) -> None:
    infinite = np.isinf(values).any(axis=1)
    if infinite.any():
        row = int(np.flatnonzero(infinite)[0])
        raise DataError(f"row {row}: y is infinite; targets must be finite, or NaN for unlabelled rows")


def _rotation(covariance: Array) -> Array:
    """An orthonormal basis (L, L') of the directions in which the targets vary; the identity where all do."""
    values, vectors = la.eigh(covariance)
    keep = values > RANK_TOLERANCE * values[-1]
    if keep.all():
        return np.eye(len(values))
    basis = vectors[:, keep][:, ::-1]
    # In one memory order, so that a loaded model multiplies in the same order and has the same bits.
    return np.ascontiguousarray(basis * column_signs(basis))
