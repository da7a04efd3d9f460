"""Defaults beside the simplest rivals: no default may be worse by more than noise, unless the fit warns of it.

Needs DLATENT_DATA with the files of `small_data.FILES`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.external import data_file
from benchmarks.methods import of_defaults as by
from benchmarks.processes import Stopwatch
from benchmarks.small_data import FILES, Given, factor_rows, hidden, labelled, numbers, paired, parted
from benchmarks.table import grouped, markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished
from dlatent import DlatentError

SPLITS = 5
NOTHING = 1e-6
"""Differences below this are rounding."""
UP = ("NMI", "R²", "macro F1", "ARI", "log-likelihood a row")
"""Measures of which more is better; of the others less is."""
HELPS = re.compile(r"\b(?!zero_rows\b)[a-z_]+=")
"""What a warning must have to say that a default does not suit the data: a setting that helps, as `scale=True`."""
ROLES = ("default", "rival", "setting", "reference")


@dataclass(frozen=True)
class Contest:
    """Rows of the table: one for each of `data`, of `variants`, and of the measures of `score`.

    `given(data, variant, seed)` makes a split; `once`: methods see no labels, so that one fit serves all splits.
    """

    data: tuple[str, ...]
    given: Callable[[str, str, int], Given]
    default: by.Method
    rivals: Mapping[str, by.Method]
    score: by.Score
    settings: Mapping[str, by.Method] = field(default_factory=dict)
    references: Mapping[str, by.Method] = field(default_factory=dict)
    variants: tuple[str, ...] = ("raw",)
    once: bool = False

    def methods(self) -> Iterator[tuple[str, str, by.Method]]:
        """All methods with their roles and names, those first that tell which measures there are."""
        default = {"default": self.default}
        by_role = {"rival": self.rivals, "default": default, "setting": self.settings, "reference": self.references}
        for role, methods in by_role.items():
            for name, method in methods.items():
                yield role, name, method


UNITS = ("raw", "z-scored", "random")
TWO = UNITS[:2]
LOGISTIC = {"PCA, logistic": lambda given: by.logistic(by.principal(given.rows), given)}
RIDGE = {"ridge": by.ridge, "ridge, z-scored": partial(by.ridge, scaled=True)}


def half_labelled(data: str, unit: str, seed: int) -> Given:
    """Half of the rows of each class are labelled."""
    return labelled(data, unit, "half", seed)


def half(data: str, unit: str, seed: int) -> Given:
    """Half of the rows are fitted."""
    return parted(data, unit, 0.5, seed)


def _scores(*data: str, variants: tuple[str, ...] = ("raw",)) -> Contest:
    settings = {"projections": by.scores(by.K, projected=True), "K by default": by.scores()}
    return Contest(
        data, half_labelled, by.scores(by.K), {"PCA": lambda given: by.principal(given.rows)},
        by.neighbours_and_clusters, settings, variants=variants, once=True,
    )  # fmt: skip


def _classes(*data: str, unit: str = "raw") -> Contest:
    return Contest(
        data, lambda name, each, seed: labelled(name, unit, each, seed), by.supervised(), LOGISTIC, by.of_classes,
        {f"K = {by.K}": by.supervised(by.K)}, variants=("2", "5", "half"),
    )  # fmt: skip


def _densities(model: str, rival: by.Method, name: str, *tried: int) -> Contest:
    settings = {f"K = {k}": by.density(model, k) for k in tried}
    data = ("iris", "wine", "breast_cancer", "diabetes", "yeast_multilabel")
    return Contest(data, half, by.density(model), {name: rival}, by.mean_density, settings)


def _views(model: str, *data: str) -> Contest:
    return Contest(
        data, paired, by.other_view(model), {"ridge": by.ridge, "mean": by.target_means},
        by.normalised_error, {f"K = {k}": by.other_view(model, k) for k in (5, 10)}, variants=("60", "300"),
    )  # fmt: skip


CONTESTS: dict[str, Contest] = {
    "units": Contest(
        ("wine", "breast_cancer"), hidden, by.imputed(), {"column means": by.column_means, "PCA": by.iterated_pca},
        by.cell_error, {f"K = {k}, z-scored": by.imputed(k, scaled=True) for k in (2, 5, 8)},
        {"iterative": by.sklearn_imputed("IterativeImputer", max_iter=3), "k-NN": by.sklearn_imputed("KNNImputer")},
        UNITS,
    ),
    "scores": _scores("wine", "breast_cancer", variants=TWO),
    "scores-images": _scores("digits", "orl", "yale", "coil20"),
    "classes": _classes("iris", "wine", "breast_cancer", "digits"),
    "classes-scaled": _classes("wine", "breast_cancer", unit="z-scored"),
    "classes-images": _classes("yale", "orl", "coil20"),
    "classes-words": _classes("newsgroups20"),
    "density-ppca": _densities("PPCA", by.sklearn_pca, "PCA, mle", 2, 8, 20),
    "density-factors": _densities("FactorAnalysis", by.sklearn_factors, "factors, CV", 8),
    "numbers": Contest(
        ("diabetes", "linnerud", "yeast_multilabel", "digits"), lambda data, unit, seed: numbers(data, seed),
        by.regressed(), RIDGE, by.explained, {f"K = {k}": by.regressed(k) for k in (5, 10, 30)},
    ),
    "labels": Contest(
        ("yeast_multilabel",), half, by.supervised(),
        LOGISTIC, by.of_labels,
        {f"K = {k}": by.supervised(k) for k in (10, 30)},
    ),
    "views-ppca": _views("CorrespondencePPCA", "digits", "orl"),
    "views-factors": _views("CorrespondenceFactorAnalysis", "digits"),
    "views-factors-images": _views("CorrespondenceFactorAnalysis", "orl"),
    "speed-factors": Contest(
        ("240 × D",), lambda _, width, seed: factor_rows(width, seed), by.factor_seconds,
        {"bar": by.bar("CPU, × scikit-learn", 10.0), "scikit-learn": by.sklearn_height}, by.as_it_is,
        variants=("50", "100", "691"),
    ),
    "speed-classes": Contest(
        ("digits",), lambda data, each, seed: labelled(data, "raw", each, seed), by.supervised_seconds,
        {"bar": by.bar("CPU seconds", 0.5)}, by.as_it_is, variants=("5",),
    ),
    "clusters": Contest(
        ("wine", "breast_cancer", "iris", "digits"),
        lambda data, unit, seed: parted(data, unit, 0.3 if data == "digits" else 0.8, seed),
        by.clustered(), {"k-means": by.k_means}, by.of_groups,
        {"K = 1": by.clustered(1), "diagonal": by.clustered(noise="diagonal")}, variants=TWO,
    ),
    "density-mixture": Contest(
        ("wine", "breast_cancer", "iris"), half, by.mixture_density(), {"diagonal mixture": by.sklearn_mixture},
        by.mean_density, {f"K = {k}": by.mixture_density(k) for k in (1, 3)},
    ),
    "graphs": Contest(
        ("cora_ml", "cora_ds", "linqs_cora", "webkb_cornell", "webkb_texas"),
        half_labelled, by.on_graph(),
        {"PCA, smoothed": by.smoothed_principal, "PPCA": by.scores(by.K)}, by.of_nodes,
        {f"K = {k}": by.on_graph(n_components=k) for k in (10, 30)}, once=True,
    ),
}  # fmt: skip


def prepare(folder: Path, scale: float) -> Row:
    """Nothing to write; the files must be there."""
    return {"files": [data_file(f"{name}.npz").name for name in FILES]}


def compare(folder: Path, scale: float, contest: str) -> Row:
    """Figures of all methods on all splits, and the warnings of the default's fits."""
    asked, figures, said = CONTESTS[contest], list[Row](), list[Row]()
    seeds = range(max(2, round(SPLITS * scale)))
    with Stopwatch() as watch:
        for data in asked.data:
            for variant in asked.variants:
                splits = [asked.given(data, variant, seed) for seed in seeds]
                place, measures = {"data": data, "variant": variant}, dict[str, None]()
                for role, name, method in asked.methods():
                    values, texts = _over(splits, method, asked, measures)
                    measures |= dict.fromkeys(values)
                    about = place | {"role": role, "method": name}
                    figures += [about | {"measure": measure, "values": found} for measure, found in values.items()]
                    said += [about | {"kind": kind, "texts": found} for kind, found in texts.items()]
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "figures": figures, "warned": said}


def _over(
    splits: list[Given], method: by.Method, asked: Contest, measures: Iterable[str]
) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """The measures of a method on each split, and by the kind of warning the texts, one of each split that had it.

    A fit that ends with an error of dlatent counts as NaN in the measures that there are so far.
    """
    values, texts, answer, said = dict[str, list[float]](), dict[str, list[str]](), None, dict[str, list[str]]()
    for given in splits:
        if answer is None or not asked.once:
            answer, said = _answer(method, given)
        for kind, own in said.items():
            texts.setdefault(kind, []).append("; ".join(own))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scored = dict.fromkeys(measures, np.nan) if answer is None else asked.score(given, answer)
        for measure, value in scored.items():
            values.setdefault(measure, []).append(value)
    return values, texts


def _answer(method: by.Method, given: Given) -> tuple[Any, dict[str, list[str]]]:
    """What a method says, None for an error of dlatent, and the texts of its warnings or of the error by kind."""
    said = dict[str, list[str]]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = method(given)
        except DlatentError as error:
            return None, {type(error).__name__: [str(error)]}
    for warning in caught:
        if warning.category.__module__.startswith("dlatent"):
            said.setdefault(warning.category.__name__, []).append(str(warning.message))
    return answer, said


def tasks(scale: float) -> tuple[Task, ...]:
    """A task for each contest."""
    function = "benchmarks.cases.defaults:compare"
    return tuple(Task(name, function, {"contest": name}, once=True) for name in CONTESTS)


def summarise(rows: list[Row]) -> Summary:
    """The default, what it is ahead of its best rival by, and our best other setting; whether it is not behind."""
    lines, checks, warned = [], list[Check](), []
    for task, row in {row["task"]: row for row in finished(rows)}.items():
        for place, own in grouped(row["figures"], lambda figure: (figure["data"], figure["variant"])).items():
            mine = [
                said for said in row["warned"] if (said["data"], said["variant"], said["role"]) == (*place, ROLES[0])
            ]
            warned += [(task, *place, said["kind"], len(said["texts"]), said["texts"][0]) for said in mine]
            told = max((_helpful(said) for said in mine), default=0)
            for measure, figures in grouped(own, lambda figure: figure["measure"]).items():
                default, rival, other, reference = (_best(figures, role, measure) for role in ROLES)
                assert default is not None, (task, *place, measure)
                assert rival is not None, (task, *place, measure)
                ahead = np.subtract(default["values"], rival["values"]) * (1 if measure in UP else -1)
                excused = 2 * told > len(ahead)
                words = f"{ahead.mean():+.3g} ± {standard_error(ahead):.2g}"
                verdict = "" if level(ahead) else "warned" if excused else "**behind**"
                cells = (shown(default["values"]), named(rival), words, verdict, named(other), named(reference))
                lines.append((task, *place, measure, *cells))
                said = f"{', '.join((task, *place, measure))}: {words} ahead of {rival['method']}"
                checks.append(Check(f"{said} (level, or the fit warns)", level(ahead) or excused))
    headers = (
        "contest", "data", "variant", "measure", "default", "best rival", "ahead by", "", "best setting", "reference",
    )  # fmt: skip
    about = (
        f"Means and standard errors over paired splits; less is better but for {', '.join(UP)}.  Behind: by more than "
        f"two standard errors or on every split, and most fits gave no warning that names a setting."
    )
    told_of = markdown(("contest", "data", "variant", "warning", "splits", "text"), warned)
    parts = [markdown(headers, lines), about, told_of if warned else "", not_run(rows)]
    return Summary("\n\n".join(filter(None, parts)), tuple(checks))


def _helpful(said: Row) -> int:
    """On how many splits a warning said that the default does not suit the data."""
    return sum(HELPS.search(text) is not None for text in said["texts"]) if said["kind"].endswith("Warning") else 0


def level(ahead: Any) -> bool:
    """Whether paired differences are not below zero by more than noise.

    Below on every split counts as well: one split of many can make the mean and its error as large as it likes.
    """
    if ahead.min() >= -NOTHING:
        return True
    return bool(ahead.mean() >= -2.0 * standard_error(ahead) - NOTHING and ahead.max() >= -NOTHING)


def _best(figures: list[Row], role: str, measure: str) -> Row | None:
    """The method of a role with the best mean."""
    sign = 1 if measure in UP else -1
    own = [figure for figure in figures if figure["role"] == role]
    return max(own, key=lambda figure: np.nan_to_num(sign * np.mean(figure["values"]), nan=-np.inf), default=None)


def standard_error(values: Any) -> float:
    """The standard error of the mean."""
    with np.errstate(invalid="ignore"):  # of infinite values
        return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def shown(values: list[float]) -> str:
    """Mean ± standard error."""
    return f"{np.mean(values):.4g} ± {standard_error(values):.2g}"


def named(figure: Row | None) -> str | None:
    """The same, with the name of the method."""
    return None if figure is None else f"{figure['method']}: {shown(figure['values'])}"


CASE = Case(
    "defaults",
    "what a user gets without a setting, beside the simplest rival on the same splits",
    "benchmarks.cases.defaults:prepare",
    tasks,
    summarise,
)
