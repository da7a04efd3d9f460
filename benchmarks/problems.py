"""A problem for each way in which models are fitted, at any size: its data in a Zarr store, and the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from benchmarks.generate import CHUNK_BYTES, Factors, power_law, write_dense
from benchmarks.missing import write_with_holes
from benchmarks.sheets import write_bent_sheet
from benchmarks.task import Row

FACTORS, NOISE, PART, LENGTH, TOPICS, GRAPH_EACH, NEIGHBOURS = 250, 1.0, 0.2, 50, 50, 5, 12
"""Factors of dense data, their noise, the part that is missing, words and topics of documents, edges and neighbours."""
KINDS = {
    "covariance": "dense", "krylov": "words", "accelerated_em": "holes", "gram": "dense",
    "kernel": "dense", "relational": "words",
    "neighbours": "sheet",
}  # fmt: skip
"""Where a fit takes its time, and the kind of data that it has here."""


@dataclass(frozen=True)
class Problem:
    """The way in which a model is fitted, the shape of its data, and in how many blocks they lie (None: the default).

    Data that are cut into a given number of blocks are dense. `iterations` end a fit early (None: at its maximum).
    """

    solver: str
    rows: int
    features: int
    components: int = 10
    blocks: int | None = None
    iterations: int | None = None

    @property
    def arguments(self) -> Row:
        """The problem as arguments of a task."""
        return asdict(self)

    @property
    def kind(self) -> str:
        """The kind of data."""
        return "dense" if self.blocks and self.solver == "krylov" else KINDS[self.solver]

    @property
    def block_bytes(self) -> int | None:
        """Bytes of a block where their number is given."""
        return 8 * self.features * -(-self.rows // self.blocks) if self.blocks else None

    def path(self, folder: Path) -> Path:
        """Where its data lie; problems of one kind, shape and cut share them."""
        cut = f"-{self.blocks}" if self.blocks else ""
        return folder / f"{self.kind}-{self.rows}x{self.features}{cut}.zarr"

    def graph(self, folder: Path) -> Path:
        """Where the edges between its rows lie."""
        return folder / f"edges-{self.rows}.zarr"


def write(folder: Path, problem: Problem) -> None:
    """Write the data of a problem, where they are not there yet."""
    path, rows, features = problem.path(folder), problem.rows, problem.features
    if not path.exists():
        if problem.kind == "words":
            _write_words(path, rows, features)
        elif problem.kind == "sheet":
            write_bent_sheet(path, rows, features, 74)
        else:
            chunk_bytes = problem.block_bytes or CHUNK_BYTES
            if problem.kind == "dense":
                write_dense(path, _factors(features), rows, "float64", 72, chunk_bytes)
            else:
                write_with_holes(path, _factors(features), rows, "float64", PART, 73, chunk_bytes)
    if problem.solver == "relational" and not problem.graph(folder).exists():
        _write_graph(problem.graph(folder), rows)


def _factors(features: int) -> Factors:
    """Variances 250, 125, … 1 above noise of variance 1, and a mean."""
    mean = 3.0 * np.random.default_rng(70).standard_normal(features)
    return Factors(features, power_law(min(FACTORS, features // 2), FACTORS), noise=NOISE, mean=mean, seed=71)


def _topics(rows: int) -> Any:
    return np.random.default_rng(75).integers(TOPICS, size=rows)


def _write_words(path: Path, rows: int, features: int) -> None:
    from tests.graphs import topic_documents
    from tests.sparse_stores import write_csr

    documents = topic_documents(_topics(rows), features, length=LENGTH, random_state=76)
    write_csr(zarr.create_group(path), documents, columns=features)


def _write_graph(path: Path, rows: int) -> None:
    from dlatent import ingest_graph
    from tests.graphs import power_law_graph

    ingest_graph(power_law_graph(rows, GRAPH_EACH * rows, groups=_topics(rows), random_state=77), path)


def model_of(problem: Problem) -> Any:
    """The model, not fitted, with the library's own tolerance."""
    import dlatent

    k = problem.components
    if problem.solver == "accelerated_em":
        return dlatent.PPCA(k, missing="nan", prior="ml", max_iter=problem.iterations, random_state=0)
    if problem.solver == "kernel":
        return dlatent.KernelPPCA(k, solver="recomputed", random_state=0)
    if problem.solver == "relational":
        return dlatent.RelationalPPCA(k, random_state=0)
    if problem.solver == "neighbours":
        return dlatent.LocallyLinearEmbedding(n_neighbors=NEIGHBOURS)
    return dlatent.PPCA(k, solver=problem.solver, random_state=0)


def source_of(problem: Problem, folder: Path) -> Any:
    """The data, opened."""
    from dlatent import open_data

    return open_data(problem.path(folder), block_bytes=problem.block_bytes)


def inputs_of(problem: Problem, folder: Path) -> Row:
    """What the fit takes besides the data."""
    return {"graph": str(problem.graph(folder))} if problem.solver == "relational" else {}
