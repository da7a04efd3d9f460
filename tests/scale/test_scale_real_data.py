"""The data of the papers: how many passes a fit needs, and that labels do for faces what the paper says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dlatent import PPCA, SupervisedPPCA, ingest

pytestmark = pytest.mark.slow

FOLDER = os.environ.get("DLATENT_DATA", "")


def real_data(name):
    path = Path(FOLDER) / name
    if not FOLDER or not path.is_file():
        pytest.skip(f"{name} is not there; set DLATENT_DATA to the folder that holds it")
    return path


@pytest.fixture(scope="module")
def newsgroups(tmp_path_factory):
    source = real_data("newsgroups20.npz")
    store = tmp_path_factory.mktemp("newsgroups") / "words.zarr"
    ingest(source, store, weighting="tfidf", unit_norm=True, dtype="float64")
    topics, rng = np.load(source)["y"], np.random.default_rng(0)
    labels = np.full(len(topics), -1)
    for topic in range(topics.max() + 1):
        labels[rng.choice(np.flatnonzero(topics == topic), 5, replace=False)] = topic
    return store, labels


def passes_to(history, part):
    """The first pass whose log-likelihood is within this part of the last one's."""
    values = history["iteration_log_likelihood"].values
    return int(np.flatnonzero(values >= values[-1] - part * abs(values[-1]))[0]) + 1


@pytest.mark.parametrize("labelled", [False, True])
def test_text_needs_about_ten_passes(newsgroups, labelled):
    store, labels = newsgroups
    model = SupervisedPPCA(10, tol=1e-12) if labelled else PPCA(10, tol=1e-12)
    model.fit(store, labels) if labelled else model.fit(store)
    assert model.converged_
    assert passes_to(model.history_, 1e-8) <= 10
    assert passes_to(model.history_, 1e-10) <= 13
    # What the subspace says of the likelihood is what the rows say.
    checked = model.score(store, labels) if labelled else model.score(store)
    assert checked * model.n_samples_ == pytest.approx(model.log_likelihood_, rel=1e-12)


def test_faces_are_told_apart_as_in_the_paper():
    faces = np.load(real_data("orl_32x32.npz"))
    images, people = faces["X"].astype(float), faces["y"]
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    errors = []
    for split in range(5):
        rng = np.random.default_rng(split)
        labels = np.full(len(people), -1)
        for person in range(40):
            labels[rng.choice(np.flatnonzero(people == person), 2, replace=False)] = person
        scores = SupervisedPPCA(10, whiten=True).fit(images, labels).transform(images)
        known = labels >= 0
        squares = ((scores[~known, None, :] - scores[None, known, :]) ** 2).sum(axis=2)
        errors.append((people[known][squares.argmin(axis=1)] != people[~known]).mean())
    # Table 2 of the paper has 0.351 for 50 splits; one standard deviation of a split is 0.025.
    assert np.mean(errors) == pytest.approx(0.351, abs=3 * 0.025 / np.sqrt(5))
