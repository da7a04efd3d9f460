"""Invented papers with citations, the same on every machine."""

from __future__ import annotations

import os

import numpy as np
import scipy.sparse as sp

TOPICS = ("genomes", "glaciers", "graphs", "markets", "neurons", "proteins", "robots", "stars")
JOURNALS = 6
WORDS = 2000
LENGTH = 100
"""Words of a paper."""
CITATIONS = 3
"""Papers that a paper cites, on average."""
WITHIN = 0.8
"""The part of the citations that stay within the topic."""


def write_papers(path: str | os.PathLike[str], papers: int = 3000) -> None:
    """Write a file that `ingest` reads (counts of words and topics), and `ingest_graph`, too (citations).

    The words of a paper are those of all papers, of its topic, and of a journal that prints all topics.  How much of
    a paper is its topic's and how much its journal's differs from paper to paper.  Citations tell topics from
    journals; words alone do not.
    """
    rng = np.random.default_rng(0)
    topics = rng.integers(len(TOPICS), size=papers)
    journals = rng.integers(JOURNALS, size=papers)
    common = 1.0 / np.arange(1.0, WORDS + 1) ** 0.9
    by_topic, by_journal = (_preferred(common, number, rng) for number in (len(TOPICS), JOURNALS))
    common /= common.sum()
    of_topic, of_journal = (rng.beta(*shape, size=(papers, 1)) for shape in ((4, 4), (2, 4)))
    chances = (1 - of_journal) * (of_topic * by_topic[topics] + (1 - of_topic) * common)
    chances += of_journal * by_journal[journals]
    counts = sp.csr_array(rng.multinomial(LENGTH, chances))
    np.savez_compressed(
        path,
        X_data=counts.data,
        X_indices=counts.indices,
        X_indptr=counts.indptr,
        X_shape=counts.shape,
        y=topics,
        class_names=TOPICS,
        edges=_citations(topics, rng),
        directed=True,
    )


def _preferred(common, number, rng):
    """For each of so many writers the chance of each word (number, D)."""
    chances = common * rng.gamma(0.2, size=(number, len(common)))
    return chances / chances.sum(axis=1, keepdims=True)


def _citations(topics, rng):
    """Pairs (citing, cited), sorted, without repetition."""
    citing = np.repeat(np.arange(len(topics)), rng.poisson(CITATIONS, len(topics)))
    order = np.argsort(topics, kind="stable")
    first, last = (np.searchsorted(topics[order], topics[citing], side) for side in ("left", "right"))
    anywhere = rng.integers(len(topics), size=len(citing))
    cited = np.where(rng.random(len(citing)) < WITHIN, order[rng.integers(first, last)], anywhere)
    return np.unique(np.column_stack([citing, cited])[citing != cited], axis=0)
