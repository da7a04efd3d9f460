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
from dlatent.demo.nearest import directions, mistakes, of_array, of_source
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
    """Which modules are asked about: `classes` (N,) by number, -1 for none; `known`, the rows with a visible label."""

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
        model, data = self.folder / "s2ppca.zarr", self.folder / "modules.zarr"
        script = f"import dlatent; print(dlatent.load('{model}').predict('{data}'))"
        return [
            f"{program} inspect {model}",
            f"{program} transform {model} {data} -o {self.folder / 'scores.zarr'} --overwrite",
            f"{program} plan relational {data} --graph {self.folder / 'imports.zarr'} -k 50",
            f'{python} -c "{script}"',
        ]


def tell(
    folder: Path,
    *,
    say: Say,
    modules: int = 5000,
    corpus: Corpus | None = None,
    components: int = COMPONENTS,
    labelled: int = LABELLED,
) -> Story:
    """Run the demonstration; `say` is told each step.

    Parameters: `folder` gets the corpus, two stores, three models and a picture, and nothing else in it is touched;
    `modules`, most modules to read; `corpus` (None: of this machine); `components` K; `labelled`, modules per class
    whose package the semi-supervised model is told.
    Errors: DataError where the modules make no two classes.
    """
    started = perf_counter()
    corpus = _read(modules, say) if corpus is None else corpus
    task = choose(corpus, labelled)
    folder.mkdir(parents=True, exist_ok=True)
    store = _store(corpus, folder, say)
    graph = _graph(corpus, folder, store, say)
    say("Starting a local cluster: two worker processes, one thread each.")
    with local_workers(2) as client:
        workers = list(client.run(_process_number).values())
        say(f"Fitting PPCA with {components} latent variables to the words.")
        ppca, one = _fit(PPCA(components), store, client, workers)
        _told(one, say)
        say("Fitting relational PPCA (PRPCA) to the words and the imports, without any package.")
        relational, two = _fit(RelationalPPCA(components), store, client, workers, graph=graph)
        _told(two, say)
        say(
            f"Fitting semi-supervised PPCA (S²PPCA) to the words, and to the packages of {len(task.known)} modules: "
            f"{labelled} of each of {len(corpus.class_names)} packages."
        )
        supervised, three = _fit(SupervisedPPCA(components), store, client, workers, y=task.targets)
        _told(three, say)
        models = {"PPCA": ppca, "PRPCA": relational, "S²PPCA": supervised}
        # All modules, the labelled ones too, are placed by their words alone: neighbours must be placed by one rule.
        scores = {name: np.asarray(model.transform(store, client=client)) for name, model in models.items()}
    asked = int((task.classes >= 0).sum()) - len(task.known)
    say(f"Guessing the package of {asked:,} other modules from the nearest of the {len(task.known)} labelled ones.")
    lines = _lines(store, scores, task, {"PPCA": one, "PRPCA": two, "S²PPCA": three})
    places = [folder / name for name in ("ppca.zarr", "prpca.zarr", "s2ppca.zarr")]
    for place, model in zip(places, models.values(), strict=True):
        model.save(place, overwrite=True)
    draw(folder / "scores.png", scores, largest(corpus.packages, task.classes), task.known)
    say(f"Saved {', '.join(map(str, places))} and the picture {folder / 'scores.png'}.")
    return Story(folder, lines, summary(lines, perf_counter() - started))


def choose(corpus: Corpus, labelled: int) -> Task:
    """Draw the labelled modules of every class, the same on every run.

    Errors: DataError where there are fewer than two classes, or a class with no module left to guess.
    """
    names = corpus.class_names
    if len(names) < 2:
        raise DataError(
            f"only {len(names)} installed package has modules enough to be a class; the demonstration needs two. Run "
            "it with a Python that has packages installed, or with more --modules"
        )
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(corpus.labels == number) for number in range(len(names))]
    if min(map(len, members)) <= labelled:
        raise DataError(f"a package has no more than {labelled} modules, so that none is left to guess")
    known = np.sort(np.concatenate([rng.choice(rows, labelled, replace=False) for rows in members]))
    targets = np.full(len(corpus.labels), None, dtype=object)
    targets[known] = corpus.packages[known]
    return Task(corpus.labels, known, targets)


def _read(modules: int, say: Say) -> Corpus:
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
    source, store = folder / "modules.npz", folder / "modules.zarr"
    say(f"Writing {source}, and ingesting it into {store} with tf-idf weights and rows of length 1.")
    write_npz(corpus, source)
    found = ingest(source, store, weighting="tfidf", unit_norm=True, block_bytes=BLOCK_BYTES, overwrite=True)
    say(f"  {(found.bytes_written or 0) / 1e6:.1f} MB on disk ({found.seconds:.1f} s).")
    return str(store)


def _graph(corpus: Corpus, folder: Path, store: str, say: Say) -> str:
    source, graph = folder / "modules.npz", folder / "imports.zarr"
    say(f"Ingesting the imports into {graph}: an import either way edges two modules.")
    found = ingest_graph(source, graph, data=store, direction="symmetrise", overwrite=True)
    inside = corpus.packages[corpus.edges[:, 0]] == corpus.packages[corpus.edges[:, 1]]
    say(
        f"  {found.edges:,} edges, {inside.sum() / max(len(inside), 1):.0%} of the imports within a package, "
        f"{found.isolated:,} modules without an edge ({found.seconds:.1f} s)."
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


def _lines(store: str, scores: dict[str, Array], task: Task, costs: dict[str, FitCost]) -> tuple[Line, ...]:
    """Mistakes from the words, and from the posterior means.

    Posterior means are not standardised: the model has given the latent variables a common scale, the prior's, and
    draws those towards zero that the words say little about.  The rows of words have length 1, so that their distances
    order as their angles do; the posterior means do not, which is why both are told.
    """
    words = mistakes(of_source(open_source(store)), task.classes, task.known)
    lines = [Line("the words alone", words, words)]
    for name, rows in scores.items():
        wrong, turned = (mistakes(of_array(r), task.classes, task.known) for r in (rows, directions(rows)))
        lines.append(Line(name, wrong, turned, costs[name]))
    return tuple(lines)
