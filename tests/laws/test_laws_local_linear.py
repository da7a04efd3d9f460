"""Embeddings have the bits of the serial engine on any number of workers, and their neighbours those of any blocks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_s_curve

from dlatent import open_data
from dlatent.engine.connect import connect
from dlatent.solvers.lle.fit import find_neighbours

X = make_s_curve(900, random_state=0)[0]


@pytest.mark.parametrize("values", [X, np.round(X, 1)], ids=["apart", "with ties"])
def test_neighbours_have_the_same_bits_for_any_cut_into_blocks(values):
    found = []
    for rows in (900, 400, 37):
        with connect(open_data(values, block_bytes=24 * rows), client="serial") as engine:
            found.append(find_neighbours(engine.run, 9, values.mean(axis=0))[0])
    for other in found[1:]:
        assert other.indices.tobytes() == found[0].indices.tobytes()
        assert other.distances.tobytes() == found[0].distances.tobytes()
