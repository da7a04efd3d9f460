"""rivals, -holes and -views: seconds and memory of dlatent and of what people use instead, as the samples grow.

Seconds are from the store to the fitted model, loading included, and memory is that of all processes.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generate import Factors, power_law, write_dense
from benchmarks.missing import write_with_holes
from benchmarks.stored import STORE
from benchmarks.table import MIB, grouped, largest, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

SIZES = {
    "rivals": (25_000, 100_000, 400_000, 1_600_000),
    "rivals-holes": (5_000, 20_000, 80_000, 320_000),
    "rivals-views": (1_000, 4_000, 16_000, 64_000),
}
FEATURES, COMPONENTS, HIDDEN = 250, 10, 0.2
METHODS = "benchmarks.methods"
PATIENCE = 300.0
"""Seconds after which a method is given up."""
MEMORY = 1024 * MIB
"""Most memory of dlatent's workers, driver and scheduler together, whatever the number of samples."""
COMPLETE: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "dlatent, two workers": ("of_dlatent:ppca", {}, ()),
    "dlatent, threads": ("of_dlatent:ppca", {"workers": 0}, ()),
    "scikit-learn PCA": ("of_sklearn:pca", {"solver": "auto"}, ("sklearn",)),
    "scikit-learn IncrementalPCA": ("of_sklearn:incremental_pca", {}, ("sklearn",)),
    "dask-ml PCA": ("of_dask_ml:pca", {"power_iterations": 4}, ("dask_ml",)),
    "xeofs EOF": ("of_xeofs:eof", {}, ("xeofs",)),
}
HOLES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "dlatent, two workers": ("of_dlatent:ppca", {"missing": "nan", "prior": "ml"}, ()),
    "dlatent, threads": ("of_dlatent:ppca", {"workers": 0, "missing": "nan", "prior": "ml"}, ()),
    "ppca-rs": ("of_missing:ppca_rs", {}, ("ppca_rs",)),
    "ppca": ("of_missing:ppca_package", {"complete": True}, ("ppca",)),
}
VIEWS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "dlatent, two workers": ("of_halves:dlatent", {}, ()),
    "MOFA-FLEX": ("of_halves:mofaflex", {}, ("mofaflex",)),
}
CONTESTS = {"rivals": COMPLETE, "rivals-holes": HOLES, "rivals-views": VIEWS}


def _sizes(case: str, scale: float) -> list[int]:
    return sorted({max(1_000, round(rows * scale)) for rows in SIZES[case]})


def prepare_rivals(folder: Path, scale: float) -> Row:
    """Ten strong factors and a power-law tail, a mean, unit noise; float32."""
    return _prepare(folder, "rivals", scale)


def prepare_holes(folder: Path, scale: float) -> Row:
    """The same; a fifth of the entries NaN, at random."""
    return _prepare(folder, "rivals-holes", scale)


def prepare_views(folder: Path, scale: float) -> Row:
    """The same, complete and in other numbers."""
    return _prepare(folder, "rivals-views", scale)


def _prepare(folder: Path, case: str, scale: float) -> Row:
    variances = np.concatenate([power_law(COMPONENTS, 100.0) + 5.0, power_law(20, 4.0)])
    mean = 3.0 * np.random.default_rng(51).standard_normal(FEATURES)
    model = Factors(FEATURES, variances, noise=1.0, mean=mean, seed=52)
    for rows in _sizes(case, scale):
        place = folder / str(rows)
        place.mkdir()
        if case == "rivals-holes":
            write_with_holes(place / STORE, model, rows, "float32", HIDDEN, 53)
        else:
            write_dense(place / STORE, model, rows, "float32", seed=53)
    return {"rows": _sizes(case, scale), "features": FEATURES}


def fit(folder: Path, scale: float, rows: int, method: str, **arguments: Any) -> Row:
    """A method on the store of so many rows."""
    module, name = method.split(":")
    row = getattr(import_module(f"{METHODS}.{module}"), name)(folder / str(rows), scale, **arguments)
    row.pop("components", None)
    return row | {"seconds": row["fit_seconds"] + row.get("load_seconds", 0.0)}


def _tasks(case: str, scale: float) -> tuple[Task, ...]:
    function = f"{__name__}:fit"
    k = {"n_components": COMPONENTS}
    return tuple(
        Task(
            f"{name}/{rows}", function,
            k | arguments | {"rows": rows, "method": method},
            requires=requires, once=True, timeout=PATIENCE,
        )
        for rows in _sizes(case, scale) for name, (method, arguments, requires) in CONTESTS[case].items()
    )  # fmt: skip


def _by_name(rows: list[Row]) -> dict[str, list[tuple[int, float, float]]]:
    """Of each method the sizes that it finished, with seconds and MiB."""
    found = {}
    for name, own in grouped(finished(rows), lambda row: row["task"].partition("/")[0]).items():
        sizes = grouped(own, lambda row: row["arguments"]["rows"])
        found[name] = [
            (size, middle(each, "seconds") or 0.0, (largest(each, "peak_tree_pss") or 0.0) / MIB)
            for size, each in sorted(sizes.items())
        ]
    return found


def summarise(rows: list[Row]) -> Summary:
    """A line for each method and size; whether dlatent's memory is bounded."""
    found = _by_name(rows)
    lines = [
        (name, f"{size:,}", seconds, f"{mebibytes:.0f}")
        for name, own in found.items()
        for size, seconds, mebibytes in own
    ]
    own = [mebibytes for _, _, mebibytes in found.get("dlatent, two workers", [])]
    text = f"at most {MEMORY // MIB} MiB for two workers, driver and scheduler ({max(own, default=0):.0f})"
    checks = (Check(text, max(own) * MIB <= MEMORY),) if own else ()
    table = markdown(("method", "samples", "seconds", "peak MiB"), lines)
    return Summary("\n\n".join(filter(None, (table, not_run(rows)))), checks)


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Seconds and peak memory against the number of samples."""
    from benchmarks.pictures import growing  # peers' environments have no Matplotlib

    name = rows[0]["case"]
    lines = {method: tuple(zip(*own, strict=True)) for method, own in _by_name(rows).items()}
    title = {
        "rivals": f"PCA of samples × {FEATURES} numbers (float32)",
        "rivals-holes": f"PCA of samples × {FEATURES} numbers, a fifth of them missing",
        "rivals-views": f"factors of two views of {FEATURES // 2} features",
    }[name]
    return [growing(lines, folder / f"{name}.png", title, "samples", ("seconds", "peak memory, MiB"), linear=False)]


RIVALS = Case(
    "rivals", "PPCA and its rivals, 25,000 to 1,600,000 samples", f"{__name__}:prepare_rivals",
    lambda scale: _tasks("rivals", scale), summarise, draw=draw,
)  # fmt: skip
HOLES_CASE = Case(
    "rivals-holes", "the same with a fifth of the entries missing, 5,000 to 320,000", f"{__name__}:prepare_holes",
    lambda scale: _tasks("rivals-holes", scale), summarise, draw=draw,
)  # fmt: skip
VIEWS_CASE = Case(
    "rivals-views", "factors of two views, 1,000 to 64,000", f"{__name__}:prepare_views",
    lambda scale: _tasks("rivals-views", scale), summarise, draw=draw,
)  # fmt: skip
