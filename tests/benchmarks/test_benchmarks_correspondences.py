"""What the cases about correspondences compute, at a small size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.cases import correspondence_images, correspondence_scale, correspondence_words
from benchmarks.methods.of_correspondences import METHODS
from benchmarks.pictures import images
from tests.simulators import simulate


@pytest.mark.parametrize("method", METHODS)
def test_methods_predict_what_a_linear_model_allows(method: str) -> None:
    rows = simulate(60, (7, 5), 2, noise=(0.05, 0.05), strength=1.5, random_state=0).stacked
    x, y, known = rows[:, :7], rows[:, 7:], np.column_stack([np.arange(30), np.arange(30)])
    to_y, to_x = METHODS[method](x, y, known, 2)
    for found, wanted in ((to_y, y), (to_x, x)):
        assert found.shape == wanted.shape
        error = correspondence_images.normalised_error(found[30:], wanted[30:], wanted.mean(axis=0))
        assert error < (0.6 if method == "neural network" else 0.15)


def test_the_mean_image_has_an_error_of_one() -> None:
    wanted = np.random.default_rng(0).standard_normal((20, 4))
    mean = wanted.mean(axis=0)
    assert correspondence_images.normalised_error(np.tile(mean, (20, 1)), wanted, mean) == pytest.approx(1.0)
    assert correspondence_images.normalised_error(wanted, wanted, mean) == 0.0


def test_ranks_count_nearer_words_that_are_not_known() -> None:
    candidates = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [1.0, 0.05]])
    found = np.array([[5.0, 0.0], [0.0, 0.1]])
    wanted = np.array([1, 2])
    assert correspondence_words.ranks(found, candidates, wanted, np.array([], dtype=int)).tolist() == [2, 0]
    assert correspondence_words.ranks(found, candidates, wanted, np.array([3])).tolist() == [1, 0]


def test_every_shared_word_is_held_out_once() -> None:
    assert sorted(np.concatenate(correspondence_words.folds()).tolist()) == list(range(correspondence_words.SHARED))


def test_drawn_rows_have_length_one_and_the_words_of_their_topics() -> None:
    words = np.cumsum([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]], axis=1)
    rows = correspondence_scale._draw(np.eye(2), words, np.random.default_rng(0))
    np.testing.assert_allclose(np.sqrt((rows**2).sum(axis=1)), 1.0)
    assert sp.issparse(rows)
    assert (rows.toarray()[0, 2:] == 0).all()
    assert (rows.toarray()[1, :2] == 0).all()


def test_images_are_drawn(tmp_path: Path) -> None:
    line = {"given": np.zeros(4), "found": np.ones(4)}
    assert images({"one": line, "two": line}, (2, 2), tmp_path / "p.png", "title").stat().st_size > 1000
