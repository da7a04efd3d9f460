"""A symmetric matrix by its tiles on and above the diagonal: half the memory of all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from dlatent.arrays import Array
from dlatent.operators import tall


@dataclass(frozen=True)
class SymmetricTiles:
    """K (N, N) as `tiles[i, j]`, K of the rows from `bounds[i]` and the columns from `bounds[j]`, for i ≤ j."""

    tiles: dict[tuple[int, int], Array]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, tiles: Sequence[Array]) -> SymmetricTiles:
        """The matrix of tiles that come row by row of tiles."""
        groups = (math.isqrt(8 * len(tiles) + 1) - 1) // 2
        bounds = np.cumsum([0, *(tile.shape[1] for tile in tiles[:groups])]).tolist()
        return cls(dict(zip(combinations_with_replacement(range(groups), 2), tiles, strict=True)), tuple(bounds))

    @property
    def size(self) -> int:
        """Rows and columns N."""
        return self.bounds[-1]

    @property
    def diagonal(self) -> Array:
        """K_nn (N,)."""
        return np.concatenate([np.diag(self.tiles[group, group]) for group in self._groups])

    def __matmul__(self, thin: Array) -> Array:
        """KV (N, b), on all cores, each of which makes some rows; a sum is over tiles from left to right."""
        found = np.zeros((self.size, thin.shape[1]))

        def put(group: int) -> None:
            own = found[self._at(group)]
            for other in self._groups:
                tile = self.tiles[group, other] if group <= other else self.tiles[other, group].T
                own += tile @ thin[self._at(other)]

        tall.on_all_cores(put, self._groups)
        return found

    def whole(self) -> Array:
        """All of K (N, N)."""
        found = np.empty((self.size, self.size))
        for (group, other), tile in self.tiles.items():
            rows, columns = self._at(group), self._at(other)
            found[rows, columns] = tile
            if group != other:
                found[columns, rows] = tile.T
        return found

    @property
    def _groups(self) -> range:
        return range(len(self.bounds) - 1)

    def _at(self, group: int) -> slice:
        return slice(self.bounds[group], self.bounds[group + 1])
