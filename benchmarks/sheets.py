"""Curved sheets in three dimensions and more with known flat coordinates, and the error of an embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import zarr
from scipy.spatial import procrustes

from benchmarks.generate import codec

Array = npt.NDArray[np.float64]


def flat(count: int, seed: int) -> Array:
    """Points of the unit square (n, 2)."""
    return np.random.default_rng(seed).random((count, 2))


def s_curve(sheet: Array) -> Array:
    """The sheet bent to an S (n, 3), of length 3π and height 5, without stretching."""
    angle = 3.0 * np.pi * (sheet[:, 0] - 0.5)
    return np.column_stack([np.sin(angle), 5.0 * sheet[:, 1], np.sign(angle) * (np.cos(angle) - 1.0)])


def swiss_roll(sheet: Array) -> Array:
    """The sheet rolled up from 3/2 π to 9/2 π (n, 3), of length 90 and height 21, an eighth in size; not stretched."""
    angles = np.linspace(1.5 * np.pi, 4.5 * np.pi, 2001)
    lengths = 0.5 * (angles * np.hypot(1.0, angles) + np.arcsinh(angles))
    angle = np.interp(sheet[:, 0], (lengths - lengths[0]) / (lengths[-1] - lengths[0]), angles)
    return np.column_stack([angle * np.cos(angle), 21.0 * sheet[:, 1], angle * np.sin(angle)]) / 8.0


def write_bent_sheet(path: Path, rows: int, features: int, seed: int) -> Array:
    """A smooth sheet in many dimensions, written to a Zarr store; returns its flat coordinates."""
    random = np.random.default_rng(seed)
    sheet = random.random((rows, 2))
    waves, phases = 1.5 * random.normal(size=(2, features)), 2.0 * np.pi * random.random(features)
    array = zarr.create_array(
        path, shape=(rows, features), chunks=(min(rows, 12_500), features), dtype="float64", compressors=codec()
    )
    array[:] = np.sin(sheet @ waves + phases)
    return sheet


def whitened(points: Array) -> Array:
    """Points about their mean, turned and stretched to covariance I."""
    centred = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    return np.asarray(centred @ vectors / np.sqrt(values))


def sheet_error(embedding: Array, sheet: Array) -> float:
    """What is left of the whitened sheet after the best rotation, shift and scale of the embedding: 0 best, 1 worst.

    Whitened, because an embedding of unit covariance cannot know the sheet's lengths of side.
    """
    return float(procrustes(whitened(sheet), embedding)[2])
