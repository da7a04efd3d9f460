"""Do citations and a few labels help to tell what a paper is about?  `make demo` runs this.

Invented papers go from a file into Zarr, a cluster of two processes fits three models to them, and the topic of most
papers is guessed from the few that are told.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import dask
import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster
from matplotlib.figure import Figure
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize

from dlatent import PPCA, RelationalPPCA, SupervisedPPCA, ingest, ingest_graph, open_data, plot, read_labels
from examples.demo.papers import write_papers

COMPONENTS = 8
"""As many as topics: journals compete with them for these."""
LABELLED = 5
"""Papers of each topic whose topic is told."""
LINE = "{:<16}{:>10}{:>21}{:>16}{:>17}{:>9}{:>11}{:>10}"
HEAD = LINE.format(
    "", "1-NN error", "by cosine distance", "predict error", "log-likelihood", "passes", "read, MB", "seconds"
)


def main(folder: Path) -> None:
    """Tell the story; data, models and a picture go to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source, words, citations = folder / "papers.npz", folder / "words.zarr", folder / "citations.zarr"
    print(f"Inventing papers, and ingesting their words and citations from {source} into {words} and {citations}.")
    write_papers(source)
    # Small blocks, so that both workers have some of this small matrix.
    ingest(source, words, weighting="tfidf", unit_norm=True, block_bytes=2 << 20, overwrite=True)
    graph = ingest_graph(source, citations, data=words, direction="symmetrise", overwrite=True)
    topics = read_labels(words)
    known = told(topics)
    asked = np.setdiff1d(np.arange(len(topics)), known)
    targets = np.where(np.isin(np.arange(len(topics)), known), topics.astype(object), None)
    print(f"  {len(topics):,} papers, {graph.edges:,} pairs joined by a citation in one direction or both.")

    print(f"Fitting PPCA to the words, PRPCA to the citations, too, S²PPCA to the topics of {len(known)} papers, too.")
    models = {"PPCA": PPCA(COMPONENTS), "PRPCA": RelationalPPCA(COMPONENTS), "S²PPCA": SupervisedPPCA(COMPONENTS)}
    inputs = {"PPCA": {}, "PRPCA": {"graph": citations}, "S²PPCA": {"y": targets}}
    scores, seconds = {}, {}
    dask.config.set({"distributed.worker.profile.enabled": False})  # it can hang a worker on Python 3.11
    # The dashboard takes any free port, and is seen from this machine only.
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster, Client(cluster):
        for name, model in models.items():
            started = perf_counter()
            model.fit(words, **inputs[name])
            seconds[name] = perf_counter() - started
            # Every paper is placed by its words alone, those of known topic, too.
            scores[name] = np.asarray(model.transform(words))
            model.save(folder / f"{type(model).__name__}.zarr", overwrite=True)
        guessed = models["S²PPCA"].predict(words)

    rows = {"the words alone": sp.vstack([block.load() for block in open_data(words).blocks], format="csr"), **scores}
    wrong = {
        (name, metric): nearest(of[known], topics[known], of[asked], metric) != topics[asked]
        for name, of in rows.items()
        for metric in ("euclidean", "cosine")
    }
    predicted = guessed[asked] != topics[asked]
    print("\n" + HEAD)
    for name in rows:
        errors = [f"{wrong[name, metric].mean():.3f}" for metric in ("euclidean", "cosine")]
        guess = f"{predicted.mean():.3f}" if name == "S²PPCA" else "–"
        print(LINE.format(name, *errors, guess, *costs(models.get(name), seconds.get(name))))
    print()
    for one in ("PRPCA", "S²PPCA"):
        for other in ("PPCA", "the words alone"):
            said = [verdict(wrong[one, metric], wrong[other, metric]) for metric in ("euclidean", "cosine")]
            print(f"{one} against {other}: {said[0]} by distance, {said[1]} by cosine distance.")
    said = verdict(predicted, wrong["PPCA", "cosine"])
    print(f"S²PPCA's prediction against the nearest neighbour in PPCA by cosine distance: {said}.")
    draw(folder / "scores.png", scores, topics, known)
    print(f"\nThe picture is {folder / 'scores.png'}.  What to type next:")
    print(f"  dlatent inspect {folder / 'SupervisedPPCA.zarr'}")
    print(f"  dlatent predict {folder / 'SupervisedPPCA.zarr'} {words} -o {folder / 'topics.csv'}")
    print(f"  dlatent plan relational {words} --graph {citations} -k 50")


def told(topics):
    """Rows of the papers whose topic is told: so many of each topic, the same on every run."""
    rng = np.random.default_rng(0)
    members = (np.flatnonzero(topics == topic) for topic in np.unique(topics))
    return np.sort(np.concatenate([rng.choice(rows, LABELLED, replace=False) for rows in members]))


def nearest(known, labels, asked, metric):
    """For each row that is asked about the label of the nearest known one."""
    return KNeighborsClassifier(1, metric=metric, algorithm="brute").fit(known, labels).predict(asked)


def costs(model, seconds):
    """What a fit came to, and what it cost; the words alone have none."""
    if model is None:
        return ["–"] * 4
    read = float(model.history_["pass_bytes_read"].sum()) / 1e6
    return [f"{model.log_likelihood_:,.0f}", model.n_passes_, f"{read:.1f}", f"{seconds:.1f}"]


def verdict(mine, theirs):
    """Whether the first makes fewer mistakes on the same questions (McNemar's test, 5 %)."""
    fewer, more = (theirs & ~mine).sum(), (mine & ~theirs).sum()
    if abs(fewer - more) <= 1.96 * np.sqrt(fewer + more):
        return "no difference beyond chance"
    return "better" if fewer > more else "worse"


def draw(path, scores, topics, known):
    """Directions of the scores of each model, in the plane in which the known papers of each topic lie apart."""
    figure = Figure(figsize=(5 * len(scores), 5), layout="constrained")
    for axes, (name, rows) in zip(figure.subplots(1, len(scores)), scores.items(), strict=True):
        directions = normalize(rows)
        plane = LinearDiscriminantAnalysis(n_components=2).fit(directions[known], topics[known])
        plot.scores(plane.transform(directions), labels=topics, ax=axes)
        axes.set(title=name, xlabel="first direction between topics", ylabel="second direction")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
