"""The demonstration from end to end: sources, Zarr stores, a cluster, three models, what they cost and what they are
good for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent import PPCA, ConvergenceWarning, DataError, NoiseFloorWarning, RelationalPPCA, SupervisedPPCA
from dlatent.arrays import Array
from dlatent.demo.corpus import Corpus, build_corpus, write_npz
from dlatent.demo.findings import FitCost, Line, summary
from dlatent.demo.footprint import Footprint
from dlatent.demo.nearest import asked, directions, mistakes, of_array, of_source
from dlatent.demo.picture import draw, largest
from dlatent.engine.local import local_workers
from dlatent.stores.graph import ingest_graph
from dlatent.stores.ingest import ingest
from dlatent.stores.open import open as open_source

COMPONENTS = 20
LABELLED = 5
BLOCK_BYTES = 2 << 20
"""A small matrix in several blocks, so that both workers have some."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """Which documents are asked about: `classes` (N,) by number, -1 for none; `known`, rows with a visible label."""

    classes: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    targets: npt.NDArray[Any]


@dataclass(frozen=True)
class Story:
    """What the demonstration found, and where it lies."""

    folder: Path
    lines: tuple[Line, ...]
    summary: str

    def next_steps(self, program: str, python: str) -> list[str]:
        """Commands that go on from here."""
        model, data = self.folder / "s2ppca.zarr", self.folder / "words.zarr"
        script = f"import dlatent; print(dlatent.load('{model}').predict('{data}'))"
        return [
            f"{program} inspect {model}",
            f"{program} transform {model} {data} -o {self.folder / 'scores.zarr'} --overwrite",
            f"{program} plan relational {data} --graph {self.folder / 'graph.zarr'} -k 50",
            f'{python} -c "{script}"',
        ]


def tell(folder: Path, corpus: Corpus, *, say: Say, components: int = COMPONENTS, labelled: int = LABELLED) -> Story:
    """Store the corpus, fit three models to it and compare them; `say` is told each step.

    Parameters: `folder` gets the corpus, two stores, three models and a picture, and nothing else in it is touched;
    `components` K; `labelled`, documents per class whose class the semi-supervised model is told.
    Errors: DataError where the documents make no two classes.
    """
    started = perf_counter()
    task, words = choose(corpus, labelled), corpus.wording
    folder.mkdir(parents=True, exist_ok=True)
    store = _store(corpus, folder, say)
    graph = _graph(corpus, folder, store, say)
    say("Starting a local cluster: two worker processes, one thread each.")
    with local_workers(2) as client:
        workers = list(client.run(_process_number).values())
        say(f"Fitting PPCA with {components} latent variables to the words.")
        ppca, one = _fit(PPCA(components), store, client, workers)
        _told(one, say)
        say(f"Fitting relational PPCA (PRPCA) to the words and the {words.links}, without any {words.group}.")
        relational, two = _fit(RelationalPPCA(components), store, client, workers, graph=graph)
        _told(two, say)
        say(
            f"Fitting semi-supervised PPCA (S²PPCA) to the words, and to the {words.groups} of {len(task.known)} "
            f"{words.documents}: {labelled} of each of {len(corpus.class_names)} {words.groups}."
        )
        supervised, three = _fit(SupervisedPPCA(components), store, client, workers, y=task.targets)
        _told(three, say)
        models = {"PPCA": ppca, "PRPCA": relational, "S²PPCA": supervised}
        # All documents, the labelled ones too, are placed by their words alone: neighbours must be placed by one rule.
        scores = {name: np.asarray(model.transform(store, client=client)) for name, model in models.items()}
        predicted = np.asarray(supervised.predict(store, client=client)) != corpus.groups
    questions = asked(task.classes, task.known)
    say(
        f"Guessing the {words.group} of {questions.sum():,} other {words.documents} from the nearest of the "
        f"{len(task.known)} labelled ones, and by the prediction of S²PPCA."
    )
    lines = _lines(store, scores, task, {"PPCA": one, "PRPCA": two, "S²PPCA": three}, predicted[questions])
    places = [folder / name for name in ("ppca.zarr", "prpca.zarr", "s2ppca.zarr")]
    for place, model in zip(places, models.values(), strict=True):
        model.save(place, overwrite=True)
    draw(folder / "scores.png", scores, largest(corpus.groups, task.classes), task.known, words.group)
    say(f"Saved {', '.join(map(str, places))} and the picture {folder / 'scores.png'}.")
    return Story(folder, lines, summary(lines, words, perf_counter() - started))


def choose(corpus: Corpus, labelled: int) -> Task:
    """Draw the labelled documents of every class, the same on every run.

    Errors: DataError where there are fewer than two classes, or a class with no document left to guess.
    """
    names, words = corpus.class_names, corpus.wording
    if len(names) < 2:
        raise DataError(
            f"only {len(names)} {words.group} has {words.documents} enough to be a class; the demonstration needs two. "
            "Run it with a Python that has packages installed, or with more --modules"
        )
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(corpus.labels == number) for number in range(len(names))]
    if min(map(len, members)) <= labelled:
        raise DataError(f"a {words.group} has no more than {labelled} {words.documents}, so that none is left to guess")
    known = np.sort(np.concatenate([rng.choice(rows, labelled, replace=False) for rows in members]))
    targets = np.full(len(corpus.labels), None, dtype=object)
    targets[known] = corpus.groups[known]
    return Task(corpus.labels, known, targets)


def read_modules(modules: int, say: Say) -> Corpus:
    """The modules of this machine, at most so many."""
    say("Reading the Python modules of this machine: names, comments and docstrings are the words.")
    started = perf_counter()
    corpus = build_corpus(most_modules=modules)
    rows, columns = corpus.counts.shape
    say(
        f"  {rows:,} modules × {columns:,} words, {corpus.counts.nnz:,} non-zeros, {len(corpus.edges):,} imports, "
        f"{len(corpus.class_names)} packages large enough to be a class ({perf_counter() - started:.1f} s)."
    )
    return corpus


def _store(corpus: Corpus, folder: Path, say: Say) -> str:
    source, store = folder / "corpus.npz", folder / "words.zarr"
    say(f"Writing {source}, and ingesting it into {store} with tf-idf weights and rows of length 1.")
    write_npz(corpus, source)
    found = ingest(source, store, weighting="tfidf", unit_norm=True, block_bytes=BLOCK_BYTES, overwrite=True)
    say(f"  {(found.bytes_written or 0) / 1e6:.1f} MB on disk ({found.seconds:.1f} s).")
    return str(store)


def _graph(corpus: Corpus, folder: Path, store: str, say: Say) -> str:
    source, graph, words = folder / "corpus.npz", folder / "graph.zarr", corpus.wording
    say(f"Ingesting the {words.links} into {graph}: one in either direction is an edge.")
    found = ingest_graph(source, graph, data=store, direction="symmetrise", overwrite=True)
    inside = corpus.groups[corpus.edges[:, 0]] == corpus.groups[corpus.edges[:, 1]]
    say(
        f"  {found.edges:,} edges, {inside.sum() / max(len(inside), 1):.0%} of the {words.links} within a "
        f"{words.group}, {found.isolated:,} {words.documents} without an edge ({found.seconds:.1f} s)."
    )
    return str(graph)


def _process_number() -> int:
    import os

    return os.getpid()


def _fit(model: PPCA, store: str, client: Any, workers: list[int], **inputs: Any) -> tuple[PPCA, FitCost]:
    started = perf_counter()
    with Footprint(workers) as footprint, warnings.catch_warnings():
        # The advice lies in the saved model, where `dlatent inspect` shows it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", NoiseFloorWarning)
        model.fit(store, **inputs, client=client)
    seconds = perf_counter() - started
    read = int(model.history_["pass_bytes_read"].sum())
    return model, FitCost(model.log_likelihood_, model.n_passes_, read, seconds, footprint.peak)


def _told(cost: FitCost, say: Say) -> None:
    say(f"  {cost.passes} passes over the data, {cost.seconds:.1f} s.")


def _lines(
    store: str, scores: dict[str, Array], task: Task, costs: dict[str, FitCost], predicted: npt.NDArray[np.bool_]
) -> tuple[Line, ...]:
    """Mistakes from the words, from the posterior means, and of the prediction by S²PPCA.

    Posterior means are not standardised: the model has given the latent variables a common scale, the prior's, and
    draws those towards zero that the words say little about.  The rows of words have length 1, so that their distances
    order as their angles do; the posterior means do not, which is why both are told.
    """
    words = mistakes(of_source(open_source(store)), task.classes, task.known)
    lines = [Line("the words alone", words, words)]
    for name, rows in scores.items():
        wrong, turned = (mistakes(of_array(r), task.classes, task.known) for r in (rows, directions(rows)))
        lines.append(Line(name, wrong, turned, costs[name], predicted if name == "S²PPCA" else None))
    return tuple(lines)
