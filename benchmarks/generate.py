"""Artificial data of known structure, written to Zarr stores block by block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr
from zarr.codecs import BloscCodec

Array = npt.NDArray[np.float64]
CHUNK_BYTES = 16 * 2**20


def codec() -> BloscCodec:
    """The codec that dlatent writes with: for random numbers it costs little and saves nothing."""
    return BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")


class Factors:
    """A linear-Gaussian model: rows m + B z + s e, with orthogonal columns of B."""

    def __init__(self, features: int, variances: Array, *, noise: float, mean: Array, seed: int) -> None:
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.standard_normal((features, len(variances))))
        self.basis, self.variances, self.noise, self.mean = basis, variances, noise, mean

    def rows(self, count: int, seed: tuple[int, int], dtype: str) -> npt.NDArray[Any]:
        """Independent rows (count, features), the same for the same seed."""
        rng = np.random.Generator(np.random.SFC64(seed))
        kind = np.dtype(dtype).type
        values = rng.standard_normal((count, len(self.mean)), dtype=kind)
        values *= kind(np.sqrt(self.noise))
        scores = rng.standard_normal((count, len(self.variances)), dtype=kind)
        values += scores @ (self.basis * np.sqrt(self.variances)).T.astype(kind)
        values += self.mean.astype(kind)
        return values


def write_dense(
    path: Path, model: Factors, rows: int, dtype: str, seed: int, chunk_bytes: int = CHUNK_BYTES
) -> zarr.Array[Any]:
    """Draw `rows` rows of the model into a Zarr array, one row chunk at a time."""
    features = len(model.mean)
    step = max(1, chunk_bytes // (features * np.dtype(dtype).itemsize))
    array = zarr.create_array(
        path, shape=(rows, features), chunks=(min(step, rows), features), dtype=dtype, compressors=codec()
    )
    for index, start in enumerate(range(0, rows, step)):
        stop = min(rows, start + step)
        array[start:stop] = model.rows(stop - start, (seed, index), dtype)
    return array


def power_law(count: int, largest: float) -> Array:
    """Variances largest / j: a spectrum whose gaps close, as that of most real data."""
    return largest / np.arange(1, count + 1, dtype=np.float64)


def zipf_counts(documents: int, words: int, *, topics: int, tokens: float, seed: int) -> sp.csr_array:
    """Counts of words whose frequencies follow Zipf's law; half of a document's tokens come from the topic it is on."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(5, rng.lognormal(np.log(tokens) - 0.32, 0.8, documents)).astype(np.int64)
    frequency = 1.0 / np.arange(1, words + 1)
    common = np.cumsum(frequency / frequency.sum())
    own = np.cumsum(frequency[: words // 10] / frequency[: words // 10].sum())
    vocabularies = np.stack([rng.permutation(words)[: words // 10] for _ in range(topics)])
    topic = rng.integers(topics, size=documents)
    blocks = list(_documents(lengths, topic, vocabularies, common, own, words, rng))
    return sp.csr_array(sp.vstack(blocks, format="csr"))


def _documents(
    lengths: npt.NDArray[np.int64],
    topic: npt.NDArray[np.int64],
    vocabularies: npt.NDArray[np.int64],
    common: Array,
    own: Array,
    words: int,
    rng: np.random.Generator,
    step: int = 4096,
) -> Iterator[sp.csr_array]:
    for start in range(0, len(lengths), step):
        count = lengths[start : start + step]
        row = np.repeat(np.arange(len(count)), count)
        drawn = np.searchsorted(common, rng.random(len(row)))
        special = vocabularies[topic[start + row], np.searchsorted(own, rng.random(len(row)))]
        word = np.minimum(np.where(rng.random(len(row)) < 0.5, drawn, special), words - 1)
        counts = sp.coo_array((np.ones(len(row)), (row, word)), shape=(len(count), words)).tocsr()
        counts.sum_duplicates()
        yield counts
