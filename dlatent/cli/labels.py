"""Labels as the command line names them: PATH, PATH#COLUMN or #COLUMN."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError


def labels_of(arguments: argparse.Namespace) -> npt.NDArray[Any]:
    """Read the labels of the rows of the data; without `--labels`, the only column of the data's own store."""
    from dlatent.stores.label_files import read_labels

    path, column = ("", None) if arguments.labels is None else split(arguments.labels)
    values = read_labels(path or arguments.data, column, missing_chunks=arguments.missing_chunks)
    if path and path != arguments.data:
        values = _of_rows(values, arguments, path)
    return values if arguments.unlabelled is None else without(values, arguments.unlabelled)


def _of_rows(values: npt.NDArray[Any], arguments: argparse.Namespace, path: str) -> npt.NDArray[Any]:
    """Labels from elsewhere, one for each row of the data: without those of rows that ingest has dropped.

    Errors: DataError where the rows of the data were reordered.
    """
    from dlatent.stores.open import open as open_source

    source = open_source(arguments.data, missing_chunks=arguments.missing_chunks)
    origin = source.labels.origin
    if origin is None or (len(values) == source.shape[0] != origin.rows):
        return values
    if origin.rows == source.shape[0]:
        raise DataError(
            f"the rows of {arguments.data} were moved by reorder, so that it is not clear which of them the labels in "
            f"{path} belong to; ingest labels with the data, they come along and are named #COLUMN"
        )
    return values[origin.load()] if len(values) == origin.rows else values


def split(wanted: str) -> tuple[str, str | None]:
    """Path and column; a path that exists may have a # in its name."""
    path, mark, column = wanted.rpartition("#")
    if not mark or Path(wanted).exists():
        return wanted, None
    return path, column or None


def without(values: npt.NDArray[Any], unlabelled: str) -> npt.NDArray[Any]:
    """The labels with nothing (NaN for numbers, None for text) in place of the value for unlabelled rows.

    Errors: DataError where no row has that value, because it is then a mistake of writing.
    """
    equal = _equal(values, unlabelled)
    rows = equal if values.ndim == 1 else equal.all(axis=1)
    if not rows.any():
        raise DataError(f"no row has the label {unlabelled!r} that --unlabelled names; look how labels are written")
    plain = values.dtype.kind in "biuf" and values.ndim == 1
    cleared = values.astype(np.float64 if plain else object)
    cleared[rows] = np.nan if plain else None
    return cleared


def _equal(values: npt.NDArray[Any], text: str) -> npt.NDArray[np.bool_]:
    if values.dtype.kind in "iuf":
        try:
            return np.asarray(values == float(text))
        except ValueError:
            return np.zeros(values.shape, dtype=bool)
    return np.asarray(values.astype(str) == text)
