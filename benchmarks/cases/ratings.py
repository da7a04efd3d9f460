"""ratings: the shape of the Netflix prize, 480,189 × 17,770 with 100 million observed entries, in a sparse store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cluster import fitted, local_cluster
from benchmarks.generate import Array
from benchmarks.stored import path_of, size_on_disk
from benchmarks.table import grouped, largest, markdown, mebibytes, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

USERS, ITEMS, OBSERVED, COMPONENTS = 480_189, 17_770, 100_480_507, 10
NOISE = 0.7
HELD_OUT = 0.02
CAP = 6 * 2**30
GOAL = 60.0
"""Seconds a pass."""
BATCH = 20_000


def scaled(weights: Array, total: float, most: float) -> Array:
    """Multiples of the weights, between 1 and `most`, with a given sum."""
    low, high = 0.0, total
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(weights * middle, 1, most).sum() < total else (low, middle)
    return np.clip(weights * high, 1, most)


def draws_for(distinct: Array, shares: Array) -> npt.NDArray[np.int64]:
    """How many items to draw with replacement, by their shares, for about so many distinct ones."""
    draws = np.geomspace(1, 100 * len(shares), 200)
    expected = [float(-np.expm1(-count * shares).sum()) for count in draws]
    return np.maximum(np.rint(np.interp(distinct, expected, draws)), 1).astype(np.int64)


class Truth:
    """Ratings x = Wz + μ + e: loadings, means and how often each item is rated, by a power law; the same every time."""

    def __init__(self, scale: float) -> None:
        rng = np.random.default_rng(51)
        self.users, self.items = max(2000, round(USERS * scale)), max(500, round(ITEMS * scale**0.5))
        wanted = OBSERVED * (self.users / USERS) * (self.items / ITEMS)
        strength = np.linspace(0.5, 0.15, COMPONENTS)
        self.loadings = rng.standard_normal((self.items, COMPONENTS)) * strength
        self.mean = 3.6 + 0.5 * rng.standard_normal(self.items)
        popular = np.arange(1, self.items + 1) ** -0.8
        self.cumulative = np.cumsum(rng.permutation(popular / popular.sum()))
        active = rng.pareto(1.3, self.users) + 0.3
        shares = np.diff(self.cumulative, prepend=0.0)
        self.draws = draws_for(scaled(active, wanted, 0.6 * self.items), shares)

    def batch(self, index: int) -> sp.csr_array:
        """The ratings of one batch of users, and their noise, reproducibly."""
        rng = np.random.Generator(np.random.SFC64((52, index)))
        counts = self.draws[index * BATCH : (index + 1) * BATCH]
        rows = np.repeat(np.arange(len(counts)), counts)
        items = np.searchsorted(self.cumulative, rng.random(len(rows))).clip(0, self.items - 1)
        places = np.unique(rows * self.items + items)
        rows, items = places // self.items, places % self.items
        z = rng.standard_normal((len(counts), COMPONENTS))
        values = np.einsum("ik,ik->i", z[rows], self.loadings[items]) + self.mean[items]
        values += np.sqrt(NOISE) * rng.standard_normal(len(rows))
        return sp.csr_array((values.astype(np.float32), (rows, items)), shape=(len(counts), self.items))

    def batches(self) -> Iterator[sp.csr_array]:
        """All ratings, a batch of users at a time."""
        return (self.batch(index) for index in range(-(-self.users // BATCH)))


def prepare(folder: Path, scale: float) -> Row:
    """Draw the ratings and write them, batch by batch."""
    import zarr

    from tests.sparse_stores import write_csr

    truth = Truth(scale)
    group = zarr.create_group(folder / "data.zarr")
    shape = write_csr(group, truth.batches(), columns=truth.items, dtype=np.float32)
    return {
        "shape": list(shape),
        "observed": int(group["data"].shape[0]),
        "stored_bytes": size_on_disk(path_of(folder)),
    }


def fit(folder: Path, scale: float) -> Row:
    """PPCA of the ratings that are not held out, on two workers; its error on those that are, beside the truth's."""
    from dlatent import PPCA, open_data
    from dlatent.engine.connect import connect
    from dlatent.gaussian.missing_entries.incomplete import HeldOutRequest, Hiding, block_held_out
    from dlatent.gaussian.specification import Parameters
    from dlatent.passes import Pass
    from dlatent.stores.rows import hide_cells

    source, hiding, truth = open_data(path_of(folder)), Hiding(HELD_OUT, 0), Truth(scale)
    with local_cluster(2, "2GiB", folder) as client:
        model, row = fitted(PPCA(COMPONENTS, missing="unstored", prior="ml"), hide_cells(source, hiding), client=client)
        known = Parameters(truth.loadings, truth.mean, np.array([NOISE]))
        fitted_model, errors = model._fitted().model, {}
        for name, parameters in (("model", fitted_model.parameters), ("truth", known)):
            request = HeldOutRequest(parameters, fitted_model.specification, hiding)
            with connect(source, client=client, cache_bytes=0) as engine:
                found = engine.run(Pass(block_held_out, request, name="held out"))
            errors[f"rmse_{name}"] = float(np.sqrt(found.squared_error / found.cells))
            errors[f"held_out_{name}"] = found.log_likelihood / found.cells
    each = [s for s, name in zip(row["pass_seconds"], row["pass_names"], strict=True) if name == "entries"]
    return row | errors | {"entries_pass_seconds": float(np.median(each)), "noise": NOISE, "spread": _spread(truth)}


def _spread(truth: Truth) -> float:
    """Root mean square of what an observed rating is more than its item's mean."""
    weights = np.diff(truth.cumulative, prepend=0.0)
    return float(np.sqrt(weights @ (truth.loadings**2).sum(axis=1) + NOISE))


def tasks(scale: float) -> tuple[Task, ...]:
    """The fit, under a hard cap of 6 GiB on all processes."""
    return (Task("dlatent", "benchmarks.cases.ratings:fit", cap_bytes=CAP, cold=True, once=True, timeout=7200.0),)


def summarise(rows: list[Row]) -> Summary:
    """Seconds a pass, passes, memory, and errors on held-out ratings."""
    lines, checks = [], []
    for own in grouped(finished(rows), lambda row: row["task"]).values():
        row = own[-1]
        lines += [
            ("ratings", f"{row['data']['observed']:,} of {row['data']['shape'][0]:,} × {row['data']['shape'][1]:,}"),
            ("seconds a pass", middle(own, "entries_pass_seconds")),
            ("passes", middle(own, "passes")),
            ("seconds of the fit", middle(own, "fit_seconds")),
            ("converged", row["converged"]),
            ("RMSE on held-out ratings", row["rmse_model"]),
            ("the same by the true parameters", row["rmse_truth"]),
            ("the same by the means alone", row["spread"]),
            ("log-likelihood of a held-out rating, by the model and by the truth",
             f"{row['held_out_model']:.5f}, {row['held_out_truth']:.5f}"),
            ("peak MiB of all processes", mebibytes(largest(own, "peak_tree_pss"))),
        ]  # fmt: skip
        seconds = row["entries_pass_seconds"]
        checks += [
            Check(f"a pass takes at most {GOAL:g} s ({seconds:.1f} s)", seconds <= GOAL),
            Check(
                "the error on held-out ratings is within 1 % of the truth's",
                row["rmse_model"] <= 1.01 * row["rmse_truth"],
            ),
            Check("it ran under a hard cap of 6 GiB on all processes", row.get("cap", {}).get("oom_kills", 1) == 0),
        ]
    return Summary((markdown(("", "value"), lines) + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


CASE = Case(
    "ratings",
    "480,189 × 17,770 with 100 million observed entries, K = 10, under 6 GiB",
    "benchmarks.cases.ratings:prepare",
    tasks,
    summarise,
    large=True,
)
