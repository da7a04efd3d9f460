"""The installed Python modules as a corpus: words are sparse features, imports are edges, packages are classes."""

from __future__ import annotations

import keyword
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from dlatent.demo.processes import read_modules
from dlatent.demo.reading import ModuleText, choose, find_modules, installed_folders
from dlatent.errors import DataError
from dlatent.stores.beside import whole_file

Texts: TypeAlias = npt.NDArray[np.str_]

_STOP_WORDS = frozenset(ENGLISH_STOP_WORDS) | {word.lower() for word in (*keyword.kwlist, *keyword.softkwlist)}
_FEWEST_WORDS = 10


class Wording(NamedTuple):
    """What documents, classes and edges of a corpus are called."""

    document: str
    documents: str
    group: str
    groups: str
    links: str


MODULES = Wording("module", "modules", "package", "packages", "imports")


@dataclass(frozen=True)
class Corpus:
    """Documents × words, with the edges and the classes of the documents.

    Shapes, for N documents, D words and E edges: `counts` (N, D) occurrences, every row with at least one; `terms` (D,)
    sorted; `names` (N,), of modules dotted, sorted; `groups` (N,), of a module the first part of its name; `labels`
    (N,) the index into `class_names`, -1 for documents of groups too small to be a class; `edges` (E, 2) pairs of rows
    (from, to), of modules (importing, imported), sorted, without repetition.  `left_out` counts the documents found
    and not used, by reason.
    """

    counts: sp.csr_array
    terms: Texts
    names: Texts
    groups: Texts
    labels: npt.NDArray[np.int64]
    class_names: Texts
    edges: npt.NDArray[np.int64]
    left_out: dict[str, int] = field(default_factory=dict)
    wording: Wording = MODULES


def build_corpus(
    folders: Sequence[Path] | None = None,
    *,
    most_modules: int = 5000,
    fewest_documents: int = 5,
    largest_share: float = 0.2,
    smallest_class: int = 30,
    processes: int | None = None,
) -> Corpus:
    """Read the modules under `folders` (default: the standard library and the packages installed beside it).

    A word is kept when at least `fewest_documents` modules and at most the share `largest_share` of them use it; a
    package is a class when it has `smallest_class` modules or more.  The same files give the same corpus: nothing
    depends on the number of processes (default: one per CPU core, 8 at most).  More than `most_modules` modules are
    thinned out evenly before they are read.  Raises DataError when no module has enough words.
    """
    folders = installed_folders() if folders is None else folders
    found = find_modules(folders)
    chosen = choose(found, most_modules)
    left_out = Counter({"cap": len(found) - len(chosen)})
    texts = read_modules(chosen, processes=min(8, os.cpu_count() or 1) if processes is None else processes)
    texts, terms, counts = _vocabulary(_usable(texts, left_out), fewest_documents, largest_share, left_out)
    if not texts:
        searched = ", ".join(map(str, folders)) or "no folder"
        raise DataError(f"No Python module with enough words under: {searched}. Name folders that hold Python sources.")
    modules = np.array([text.name for text in texts])
    packages = np.array([text.name.partition(".")[0] for text in texts])
    class_names, labels = _classes(packages, smallest_class)
    reasons = {reason: number for reason, number in sorted(left_out.items()) if number}
    return Corpus(counts, terms, modules, packages, labels, class_names, _graph(texts), reasons)


def write_npz(corpus: Corpus, path: str | os.PathLike[str]) -> None:
    """Write the corpus as the plain parts of a CSR matrix, the layout that `dlatent ingest` reads.

    Keys: X_data, X_indices, X_indptr, X_shape; y (N,) class or -1; class_names; terms; ids (the names); edges (E, 2).
    The file is written beside its place and renamed, so that no half of it can be read.
    """
    parts: dict[str, npt.NDArray[Any]] = {
        "X_data": corpus.counts.data,
        "X_indices": corpus.counts.indices,
        "X_indptr": corpus.counts.indptr,
        "X_shape": np.array(corpus.counts.shape, dtype=np.int64),
        "y": corpus.labels,
        "class_names": corpus.class_names,
        "terms": corpus.terms,
        "ids": corpus.names,
        "edges": corpus.edges,
    }
    with whole_file(path) as aside, aside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **parts)


def _usable(texts: Sequence[ModuleText], left_out: Counter[str]) -> list[ModuleText]:
    """The texts that could be read, say enough and are no copy; the shortest dotted path is the original."""
    originals: dict[str, str] = {}
    for text in sorted(texts, key=lambda text: (text.name.count("."), text.name)):
        originals.setdefault(text.digest, text.name)
    usable = []
    for text in texts:
        reason = text.problem
        if reason is None and len(text.words) < _FEWEST_WORDS:
            reason = "few words"
        elif reason is None and originals[text.digest] != text.name:
            reason = "copy"
        if reason is None:
            usable.append(text)
        else:
            left_out[reason] += 1
    return usable


def _vocabulary(
    texts: list[ModuleText], fewest: int, share: float, left_out: Counter[str]
) -> tuple[list[ModuleText], Texts, sp.csr_array]:
    """The words kept, sorted, and the counts; modules that use none of the words are left out."""
    documents: Counter[str] = Counter()
    for text in texts:
        documents.update(text.words)
    most = share * len(texts)
    terms = sorted(word for word, n in documents.items() if fewest <= n <= most and word not in _STOP_WORDS)
    column = {word: j for j, word in enumerate(terms)}
    rows = [[(column[w], n) for w, n in zip(text.words, text.counts, strict=True) if w in column] for text in texts]
    left_out["few words"] += sum(not row for row in rows)
    texts = [text for text, row in zip(texts, rows, strict=True) if row]
    rows = [row for row in rows if row]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    entries = np.array([entry for row in rows for entry in row], dtype=np.int32).reshape(-1, 2)
    counts = sp.csr_array((entries[:, 1].copy(), entries[:, 0].copy(), indptr), shape=(len(texts), len(terms)))
    return texts, np.array(terms, dtype=np.str_), counts


def _classes(packages: Texts, smallest: int) -> tuple[Texts, npt.NDArray[np.int64]]:
    names, sizes = np.unique(packages, return_counts=True)
    classes = names[sizes >= smallest]
    place = {str(name): j for j, name in enumerate(classes)}
    return classes, np.array([place.get(str(package), -1) for package in packages], dtype=np.int64)


def _graph(texts: Sequence[ModuleText]) -> npt.NDArray[np.int64]:
    """Pairs (importing row, imported row); an import of a name inside a module is an import of the module."""
    row = {text.name: i for i, text in enumerate(texts)}
    pairs = set()
    for i, text in enumerate(texts):
        for name in text.imports:
            while name and name not in row:
                name = name.rpartition(".")[0]
            if name and row[name] != i:
                pairs.add((i, row[name]))
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
