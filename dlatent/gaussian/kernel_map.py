"""From rows to the coordinates of their features: what a fitted kernel model keeps, and how it looks at new rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dlatent.arrays import Array, BlockSource, Features
from dlatent.gaussian.kernel_passes import TILE
from dlatent.operators.kernels import Kernel


class BlockReader(Protocol):
    """Where blocks may stay for the next call (`engine.cache.ReferenceCache`)."""

    def load(self, source: BlockSource) -> Features:
        """The rows of a block."""
        ...


@dataclass(frozen=True)
class KernelMap:
    """The coordinates of features in K orthonormal directions about their mean, Aᵀk(rows, x) − `offset`.

    The columns of A have no mean, so that this is the product of A with rows centred by SPPCA (28).

    Parameters
    ----------
    kernel : k.
    rows : the rows that the model keeps, of the training data or the landmarks, m in all; none for a given kernel.
    combinations : A (m, K).
    offset : coordinates of the mean (K,).
    middle : the mean of the features as a combination of those of the rows (m,).
    length : its squared length.
    dimension : number M of features.
    trace_error : the part of Σ k(x, x) that landmarks do not show, 0 without landmarks.
    """

    kernel: Kernel
    rows: tuple[BlockSource, ...] = field(repr=False)
    combinations: Array = field(repr=False)
    offset: Array = field(repr=False)
    middle: Array = field(repr=False)
    length: float
    dimension: int
    trace_error: float = 0.0

    def __call__(self, x: Features, shelf: BlockReader | None = None) -> Array:
        """Coordinates of rows and, in the last column, the squared distances of their features from the mean (n, K+1).

        Of a given kernel nobody knows k(x, x), and the distances are NaN.  The rows that the model keeps stay on the
        shelf, where there is one, for the next call.
        """
        thin = np.column_stack([self.combinations, self.middle])
        if self.kernel.name == "precomputed":
            found = np.asarray(x @ thin)
            diagonal = np.full(x.shape[0], np.nan)
        else:
            found = self._products(x, thin, shelf)
            diagonal = self.kernel.diagonal(x)
        distances = diagonal - 2.0 * found[:, -1] + self.length
        return np.column_stack([found[:, :-1] - self.offset, distances])

    def _products(self, x: Features, thin: Array, shelf: BlockReader | None) -> Array:
        found = np.zeros((x.shape[0], thin.shape[1]))
        for block in self.rows:
            kept = block.load() if shelf is None else shelf.load(block)
            for a in range(0, x.shape[0], TILE):
                for b in range(0, kept.shape[0], TILE):
                    tile = self.kernel(x[a : a + TILE], kept[b : b + TILE])
                    start = block.start + b
                    found[a : a + TILE] += tile @ thin[start : start + tile.shape[1]]
        return found
