"""The S-curve and the Swiss roll by locally linear embedding, in two views and in overlapping subsets of one.

Source: Ham, Lee and Saul (2003), figures 3 and 4; there are no numbers in them, these are ours.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.sheets import Array, flat, s_curve, sheet_error, swiss_roll
from benchmarks.table import markdown, not_run
from benchmarks.task import Case, Row, Summary, Task, finished

NEIGHBOURS, SEEDS = (8, 12), 20
EACH, SHARED = 400, 240
WHOLE, COMMON = 600, 0.6
NOISES = (0.0, 0.05)
"""Standard deviation of noise on each coordinate; neighbours on the S are about 0.2 apart."""
KEPT = 3
"""The seed of which the coordinates are kept for pictures."""


def prepare(folder: Path, scale: float) -> Row:
    """Nothing: the sheets are drawn in the tasks."""
    return {"samples": [EACH, SHARED, WHOLE]}


def _seeds(scale: float) -> range:
    return range(max(2, round(SEEDS * scale)))


def two_views(folder: Path, scale: float, neighbours: int, noise: float) -> Row:
    """One sheet as S-curve and as Swiss roll, 400 points in each view, 240 of them in correspondence."""
    from dlatent import CorrespondenceLLE, LocallyLinearEmbedding

    found: dict[str, list[float]] = {}
    kept: Row = {}
    options: Row = {"n_neighbors": neighbours, "disconnected": "keep"}
    pairs = np.repeat(np.arange(SHARED)[:, None], 2, axis=1)
    for seed in _seeds(scale):
        random = np.random.default_rng([1, seed])
        sheet = flat(2 * EACH - SHARED, seed)
        own = {"S-curve": sheet[:EACH], "Swiss roll": np.concatenate([sheet[:SHARED], sheet[EACH:]])}
        views = {"S-curve": s_curve(own["S-curve"]), "Swiss roll": swiss_roll(own["Swiss roll"])}
        views = {name: rows + noise * random.standard_normal(rows.shape) for name, rows in views.items()}
        joint = CorrespondenceLLE(**options).fit(views, correspondence=pairs)
        for name, rows in views.items():
            alone = LocallyLinearEmbedding(**options).fit(rows).embedding_
            for how, embedding in (("separate", alone), ("joint", joint.embedding_of(name))):
                found.setdefault(f"{name}/{how}", []).append(sheet_error(embedding, own[name]))
                if seed == min(KEPT, len(_seeds(scale)) - 1):
                    kept[f"{name}/{how}"] = _panel(embedding, own[name])
    return {"errors": found, "kept": kept}


def subsets(folder: Path, scale: float, neighbours: int, noise: float, shape: str) -> Row:
    """600 points of one sheet as two subsets of 480 that share 360: each alone, both jointly, and the whole."""
    from dlatent import LocallyLinearEmbedding, self_correspondence

    found: dict[str, list[float]] = {}
    kept: Row = {}
    options: Row = {"n_neighbors": neighbours, "disconnected": "keep"}
    for seed in _seeds(scale):
        random = np.random.default_rng([2, seed])
        sheet = flat(WHOLE, seed)
        rows = {"S-curve": s_curve, "Swiss roll": swiss_roll}[shape](sheet)
        rows = rows + noise * random.standard_normal(rows.shape)
        joint = self_correspondence(rows, 2, COMMON, random_state=seed, **options)
        parts = [np.flatnonzero(joint.samples_[:, part] >= 0) for part in range(2)]
        alone = [LocallyLinearEmbedding(**options).fit(rows[part]).embedding_ for part in parts]
        places = {
            "separate": (alone[0], sheet[parts[0]]),
            "joint": (joint.embedding_[parts[0]], sheet[parts[0]]),
            "whole": (LocallyLinearEmbedding(**options).fit(rows).embedding_[parts[0]], sheet[parts[0]]),
        }
        for how, (embedding, truth) in places.items():
            found.setdefault(f"{shape}/{how}", []).append(sheet_error(embedding, truth))
            if seed == min(KEPT, len(_seeds(scale)) - 1):
                kept[f"{shape}/{how}"] = _panel(embedding, truth)
    return {"errors": found, "kept": kept}


def _panel(embedding: Array, sheet: Array) -> Row:
    """What a picture needs, in as few digits as it shows."""
    return {"places": embedding.round(3).tolist(), "colour": sheet[:, 0].round(2).tolist()}


def tasks(scale: float) -> tuple[Task, ...]:
    """Figure 3 and figure 4, with few and with more neighbours, without noise and with it."""
    module, found = "benchmarks.cases.lle_sheets", []
    for k, noise in product(NEIGHBOURS, NOISES):
        arguments = {"neighbours": k, "noise": noise}
        said = f"k = {k}, noise {noise:g}"
        found.append(Task(f"views/{said}", f"{module}:two_views", arguments, once=True))
        for shape in ("S-curve", "Swiss roll"):
            named = arguments | {"shape": shape}
            found.append(Task(f"subsets of {shape}/{said}", f"{module}:subsets", named, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Mean error and spread over the seeds, and in how many of them the joint embedding is the better one."""
    lines = []
    for row in finished(rows):
        for name, errors in row["errors"].items():
            own, how = np.array(errors), name.partition("/")[2]
            joint = np.array(row["errors"][f"{name.partition('/')[0]}/joint"])
            wins = None if how == "joint" else f"{int((joint < own).sum())} of {len(own)}"
            lines.append((row["task"], name, len(own), float(own.mean()), float(own.std(ddof=1)), np.median(own), wins))
    headers = ("task", "embedding", "seeds", "mean error", "standard deviation", "median", "joint is better")
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip())


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """The embeddings of one seed, coloured by the first coordinate of the sheet."""
    from benchmarks.pictures import coloured

    drawn = []
    for row in finished(rows):
        if row["arguments"]["noise"]:
            continue
        name = row["task"].partition("/")[0].replace(" ", "-")
        panels = {
            f"{panel}, error {row['errors'][panel][min(KEPT, len(row['errors'][panel]) - 1)]:.3f}": own
            for panel, own in row["kept"].items()
        }
        drawn.append(coloured(panels, folder / f"lle-{name}-{row['arguments']['neighbours']}.png", row["task"]))
    return drawn


CASE = Case(
    "lle-sheets",
    "S-curve and Swiss roll: separate and joint embeddings against the true sheet",
    "benchmarks.cases.lle_sheets:prepare",
    tasks,
    summarise,
    draw=draw,
)
