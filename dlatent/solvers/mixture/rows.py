"""A mixture given single rows: densities, responsibilities, and what the likeliest component says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlatent.arrays import Array, Features
from dlatent.operators.sparse import far_mean
from dlatent.solvers.mixture.statistics import Mixture, compared, met, pieces, responsibilities, squares_of


def _of_rows(x: Features, mixture: Mixture) -> Iterator[tuple[Array, Array]]:
    """log π_c p(x | c) and E[z | x, c] of some rows at a time; sparse rows are not densified."""
    middle = mixture.weights @ mixture.mean
    groups = mixture.noise_variance.shape[1]
    if not isinstance(x, np.ndarray):
        around = (mixture.loadings**2).sum(axis=2) + mixture.noise_variance + (mixture.mean - middle) ** 2
        middle = far_mean(middle, mixture.weights @ around)
    about = compared(mixture.moved(-middle))
    for _, rows in pieces(x, middle, about):
        log_joint, u = met(rows, squares_of(rows, groups), about)
        yield log_joint, np.einsum("nck,ckl->ncl", u, about.roots)


@dataclass(frozen=True)
class MixtureRows:
    """The mixture given single rows x (n, D); `lengths` (M, K) are what scores of each component are multiplied by,
    None for 1."""

    mixture: Mixture
    lengths: Array | None = None
    holes: ClassVar[bool] = False

    def responsibilities(self, x: Features, y: Array | None) -> Array:
        """p(c | x) (n, M)."""
        empty = np.zeros((0, len(self.mixture.weights)))
        return np.vstack([empty, *(responsibilities(joint)[0] for joint, _ in _of_rows(x, self.mixture))])

    def likeliest(self, x: Features, y: Array | None) -> Array:
        """The component with the largest responsibility (n,)."""
        return np.concatenate([np.zeros(0), *(joint.argmax(axis=1) for joint, _ in _of_rows(x, self.mixture))])

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | x, c] in that component (n, K), times its lengths."""
        scores = [np.zeros((0, self.mixture.loadings.shape[2]))]
        for joint, each in _of_rows(x, self.mixture):
            chosen = joint.argmax(axis=1)
            latent = each[np.arange(len(joint)), chosen]
            scores.append(latent if self.lengths is None else latent * self.lengths[chosen])
        return np.vstack(scores)

    def reconstructions(self, x: Features, y: Array | None) -> Array:
        """W_c E[z | x, c] + μ_c in that component (n, D)."""
        rows, start = np.empty((x.shape[0], self.mixture.mean.shape[1])), 0
        for joint, each in _of_rows(x, self.mixture):
            chosen, place = joint.argmax(axis=1), rows[start : start + len(joint)]
            for m in range(joint.shape[1]):
                place[chosen == m] = each[chosen == m, m] @ self.mixture.loadings[m].T + self.mixture.mean[m]
            start += len(joint)
        return rows

    def log_density(self, x: Features, y: Array | None) -> Array:
        """log p(x) (n,), in nats."""
        return np.concatenate([np.zeros(0), *(responsibilities(joint)[1] for joint, _ in _of_rows(x, self.mixture))])
