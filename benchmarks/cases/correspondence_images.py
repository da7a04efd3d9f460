"""Images of two objects seen from the same angle: one object reconstructed from the other, by the pairs that are known.

After figures 1 and 2 of Ham, Lee and Saul (2003), on COIL-20 in the place of their images.  Needs DLATENT_DATA with
coil20_32x32.npz.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.external import data_file
from benchmarks.methods.of_correspondences import METHODS, Array
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Row, Summary, Task, finished

PAIRS = ((0, 3), (5, 12), (8, 18))
"""Numbers of the objects."""
VIEWS = 72
KNOWN = (8, 16, 32, 56)
"""Angles at which both objects are known to belong together; the other images have no counterpart in the fit."""
DRAWS = 2
COMPONENTS = 8
OTHER_COMPONENTS = {"PPCA": (4, 16), "factor analysis": (4, 16), "locally linear": (2, 4, 16)}
SHOWN_ERROR = 2.0
SHOWN = (16, 20)
"""Known angles, and the angle that is drawn, if it is not among them."""


def prepare(folder: Path, scale: float) -> Row:
    """The images of each object in order of their angles, grey levels from 0 to 1, upright."""
    raw = np.load(data_file("coil20_32x32.npz"), allow_pickle=False)
    images = raw["X"].astype(np.float64) * float(raw["scale"])
    images = images.reshape(-1, 32, 32).transpose(0, 2, 1).reshape(len(images), -1)
    order = np.lexsort((raw["angle_deg"], raw["y"]))
    np.save(folder / "objects.npy", images[order].reshape(20, VIEWS, -1))
    return {"shape": [20, VIEWS, 1024]}


def known_rows(seed: int, count: int) -> np.ndarray:
    """The angles that are known, at random; the same for every method."""
    return np.sort(np.random.default_rng(seed).permutation(VIEWS)[:count])


def normalised_error(found: Array, wanted: Array, mean: Array) -> float:
    """Σ‖x̂ − x‖² / Σ‖x − x̄‖² over the images held out, x̄ the mean of all images of the object: 1 for the mean image."""
    return float(((found - wanted) ** 2).sum() / ((wanted - mean) ** 2).sum())


def grey_levels(image: Array) -> list[int]:
    """Whole numbers from 0 to 255."""
    return [int(level) for level in np.clip(np.rint(255 * image), 0, 255)]


def run(folder: Path, scale: float, method: str, components: int = COMPONENTS) -> Row:
    """Errors of one method for all pairs of objects, numbers of known angles, draws and directions."""
    objects, errors, drawn = np.load(folder / "objects.npy"), [], {}
    pairs, draws = (PAIRS, DRAWS) if scale >= 1.0 else (PAIRS[:1], 1)
    with Stopwatch() as watch:
        for one, other in pairs:
            x, y = objects[one], objects[other]
            for count in KNOWN:
                for seed in range(draws):
                    rows = known_rows(seed, count)
                    held = np.setdiff1d(np.arange(VIEWS), rows)
                    to_y, to_x = METHODS[method](x, y, np.column_stack([rows, rows]), components)
                    for way, found, wanted in (("forth", to_y, y), ("back", to_x, x)):
                        error = normalised_error(found[held], wanted[held], wanted.mean(axis=0))
                        errors.append({"pair": f"{one}-{other}", "known": count, "way": way, "error": error})
                    if seed == 0 and count == SHOWN[0]:
                        at = int(held[np.abs(held - SHOWN[1]).argmin()])
                        shown = {"from": x[at], "true": y[at], "image": to_y[at]}
                        drawn[f"{one}-{other}"] = {name: grey_levels(image) for name, image in shown.items()}
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "errors": errors, "drawn": drawn}


def tasks(scale: float) -> tuple[Task, ...]:
    """One task for each method, and for other numbers of components of some."""
    function = "benchmarks.cases.correspondence_images:run"
    made = [Task(name, function, {"method": name}, once=True) for name in METHODS]
    for name, others in OTHER_COMPONENTS.items():
        made += [Task(f"{name}, {k}", function, {"method": name, "components": k}, once=True) for k in others]
    return tuple(made)


def errors_of(rows: list[Row]) -> dict[str, dict[int, list[float]]]:
    """Errors of each method by the number of known angles, over pairs of objects, draws and directions."""
    return {
        row["task"]: {n: [e["error"] for e in row["errors"] if e["known"] == n] for n in KNOWN}
        for row in finished(rows)
    }


def summarise(rows: list[Row]) -> Summary:
    """Mean errors by method and number of known angles, and for each pair of objects and direction."""
    found = errors_of(rows)
    lines = [
        (name, *(f"{np.median(own[n]):.3f} ({np.mean(own[n]):.3g})" for n in KNOWN)) for name, own in found.items()
    ]
    detail = []
    for row in finished(rows):
        for (pair, way), own in grouped(row["errors"], lambda e: (e["pair"], e["way"])).items():
            each = (float(np.mean([e["error"] for e in own if e["known"] == n])) for n in KNOWN)
            detail.append((row["task"], pair, way, *each))
    seconds = [
        (name, middle(own, "fit_cpu_seconds")) for name, own in grouped(finished(rows), lambda r: r["task"]).items()
    ]
    heads = tuple(f"{n} known" for n in KNOWN)
    text = "\n\n".join(
        [
            f"Normalised reconstruction error, {COMPONENTS} components where no other number is said; the mean image "
            "has 1.  Median over pairs of objects, draws and directions, and their mean in brackets.",
            markdown(("method", *heads), lines),
            markdown(("method", "objects", "direction", *heads), detail),
            markdown(("method", "processor s in all"), seconds),
            not_run(rows),
        ]
    )
    return Summary(text.rstrip())


def _image(levels: list[int]) -> Array:
    return np.array(levels) / 255


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Errors against the number of known angles, and one image that each method reconstructed."""
    from benchmarks.pictures import curves, images

    rows = [row for row in rows if row["task"] in METHODS]
    errors = {
        name: {str(n): [min(value, SHOWN_ERROR) for value in values] for n, values in own.items()}
        for name, own in errors_of(rows).items()
    }
    title = f"one object from the other, {COMPONENTS} components, errors above {SHOWN_ERROR} cut"
    across, up = "angles known of both objects (of 72)", "normalised reconstruction error"
    made = [curves(errors, folder / "correspondence-images.png", title, across, up)]
    panels: dict[str, dict[str, Array]] = {}
    for row in finished(rows):
        for pair, own in row["drawn"].items():
            line = panels.setdefault(f"objects {pair}", {"given": _image(own["from"]), "true": _image(own["true"])})
            line[row["task"]] = _image(own["image"])
    shape = (32, 32)
    note = f"an angle without counterpart, {SHOWN[0]} of {VIEWS} known"
    made.append(images(panels, shape, folder / "correspondence-images-reconstructed.png", note))
    return made


CASE = Case(
    "correspondence-images",
    "COIL-20, pairs of objects from the same 72 angles: one reconstructed from the other",
    "benchmarks.cases.correspondence_images:prepare",
    tasks,
    summarise,
    draw=draw,
)
