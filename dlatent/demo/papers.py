"""Invented papers with citations: a corpus that is the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array
from dlatent.demo.corpus import Corpus, Wording

PAPERS = Wording("paper", "papers", "topic", "topics", "citations")
TOPICS = np.array(("genomes", "glaciers", "graphs", "markets", "neurons", "proteins", "robots", "stars"))
COMPONENTS = 8
"""As many as topics: journals compete with them for these."""
JOURNALS = 6
WORDS = 2000
LENGTH = 100
CITATIONS = 3
WITHIN = 0.8
"""The part of the citations that stay within the topic."""


def invent(papers: int = 3000) -> Corpus:
    """Draw papers whose words are those of all papers, of their topic, and of a journal that prints all topics.

    How much of a paper is its topic's and how much its journal's differs from paper to paper.  Citations tell topics
    from journals; words alone do not.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(len(TOPICS), size=papers)
    journals = rng.integers(JOURNALS, size=papers)
    common = 1.0 / np.arange(1.0, WORDS + 1) ** 0.9
    by_topic, by_journal = (_preferred(common, number, rng) for number in (len(TOPICS), JOURNALS))
    common /= common.sum()
    of_topic, of_journal = (rng.beta(*shape, size=(papers, 1)) for shape in ((4, 4), (2, 4)))
    chances = (1 - of_journal) * (of_topic * by_topic[labels] + (1 - of_topic) * common)
    chances += of_journal * by_journal[journals]
    counts = rng.multinomial(LENGTH, chances)
    return Corpus(
        sp.csr_array(counts),
        np.array([f"word{j:04}" for j in range(WORDS)]),
        np.array([f"paper{i:04}" for i in range(papers)]),
        TOPICS[labels],
        labels,
        TOPICS,
        _citations(labels, rng),
        wording=PAPERS,
    )


def _preferred(common: Array, number: int, rng: np.random.Generator) -> Array:
    """For each of so many writers the chance of each word, (number, D)."""
    chances = common * rng.gamma(0.2, size=(number, len(common)))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _citations(labels: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Pairs (citing, cited), sorted, without repetition."""
    citing = np.repeat(np.arange(len(labels)), rng.poisson(CITATIONS, len(labels)))
    order = np.argsort(labels, kind="stable")
    first, last = (np.searchsorted(labels[order], labels[citing], side) for side in ("left", "right"))
    anywhere = rng.integers(len(labels), size=len(citing))
    cited = np.where(rng.random(len(citing)) < WITHIN, order[rng.integers(first, last)], anywhere)
    return np.unique(np.column_stack([citing, cited])[citing != cited], axis=0)
