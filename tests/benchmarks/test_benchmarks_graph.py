"""The cases with edges, on small made data: edges, classifiers, tables, requirements and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.cases import citations, few_labels_graph, smoothing
from benchmarks.cases import graph as graph_case
from benchmarks.cases.citations_spaces import GraphData, accuracies, averaging, both, graph_data, unit_rows, unit_scale
from benchmarks.stored import load
from tests.graphs import power_law_graph, topic_documents

pytestmark = pytest.mark.slow

SAMPLES, WORDS, TOPICS = 160, 300, 3


def write_source(folder: Path, file: str, seed: int) -> None:
    """A file like those of DLATENT_DATA: short documents, and edges with a direction that keep to topics."""
    topics = np.random.default_rng(seed).integers(TOPICS, size=SAMPLES)
    (words,) = topic_documents(topics, WORDS, length=6, random_state=seed)
    graph = sp.triu(power_law_graph(SAMPLES, 400, groups=topics, within=0.95, random_state=seed)).tocoo()
    np.savez(
        folder / file,
        X_data=np.ones(words.nnz),
        X_indices=words.indices,
        X_indptr=words.indptr,
        X_shape=np.array(words.shape),
        y=topics,
        class_names=np.array(["analysis", "biology", "chemistry"]),
        edges=np.column_stack([graph.row, graph.col]),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("citations")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLATENT_DATA", str(place))
        for seed, source in enumerate(citations.SOURCES.values()):
            write_source(place, source.file, seed)
        described = citations.prepare(place, 1.0)["data_sets"]
    assert described["cora"] == {"shape": [SAMPLES, WORDS], "edges": 400, "classes": TOPICS}
    return place


def test_pages_get_co_edges_and_papers_lose_directions(folder: Path) -> None:
    for name, source in citations.SOURCES.items():
        tails, heads = np.load(folder / source.file)["edges"].T
        given = np.zeros((SAMPLES, SAMPLES))
        given[tails, heads] = 1.0
        pages = source.file.startswith("webkb")
        expected = (given @ given.T + given.T @ given if pages else given + given.T) > 0
        np.fill_diagonal(expected, False)
        np.testing.assert_array_equal(graph_data(folder, name, "raw").graph.toarray(), expected)


def test_weightings_are_what_they_say(folder: Path) -> None:
    found = {name: graph_data(folder, "cornell", name).features for name in citations.WEIGHTINGS}
    assert (found["raw"].data == 1.0).all()
    assert len(np.unique(found["unit"][:1].data)) == 1
    assert len(np.unique(found["tfidf"][:1].data)) > 1
    for name in ("tfidf", "unit"):
        np.testing.assert_allclose(found[name].power(2).sum(axis=1), 1.0)


def test_a_mean_over_oneself_and_neighbours() -> None:
    graph = sp.csr_array(np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    found = averaging(graph) @ np.array([[3.0], [6.0], [0.0]])
    np.testing.assert_allclose(found, [[3.0], [4.5], [1.5]])


def test_words_and_edges_side_by_side_weigh_the_same() -> None:
    words = sp.csr_array(np.array([[3.0, 4.0], [0.0, 0.0], [2.0, 0.0]]))
    graph = sp.csr_array(np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    half = np.sqrt(0.5)
    expected = [[0.6, 0.8, 0.0, half, half], [0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0, 0.0]]
    np.testing.assert_allclose(both(GraphData(words, graph, np.zeros(3))).toarray(), expected)
    assert unit_rows(words).indices.dtype == np.int32


def test_accuracy_is_one_where_classes_are_apart_and_chance_where_they_are_not() -> None:
    rng = np.random.default_rng(0)
    classes = np.arange(150) % 3
    apart = rng.standard_normal((150, 4)) + 20.0 * np.eye(4)[classes]
    assert accuracies(apart, classes, 3) == [1.0, 1.0, 1.0]
    alike = accuracies(rng.standard_normal((150, 4)), classes, 3)
    assert 0.2 < np.mean(alike) < 0.5
    assert len(set(alike)) > 1, "repeats have folds of their own"


def test_the_unit_of_scores_does_not_matter() -> None:
    scores = np.random.default_rng(0).standard_normal((50, 3))
    np.testing.assert_allclose(unit_scale(1e-4 * scores), unit_scale(scores), rtol=1e-12)
    assert np.mean(unit_scale(scores) ** 2) == pytest.approx(1.0)


def row_of(task: str, arguments: dict[str, Any], **found: Any) -> dict[str, Any]:
    return {"run": "a", "case": "citations", "task": task, "status": "ok", "arguments": arguments} | found


def made_rows(gain: float) -> list[dict[str, Any]]:
    """Rows of two methods, relational PCA ahead of PCA by `gain`."""
    rows = []
    for method, level in (("pca", 0.76), ("prpca", 0.76 + gain)):
        values = {str(k): [level - 0.001, level, level + 0.001] for k in citations.COMPONENTS}
        arguments = {"data": "cornell", "method": method, "weighting": "tfidf"}
        rows.append(row_of(f"cornell/{method}", arguments, accuracies=values))
    return rows


def test_requirements_are_met_by_enough_gain_only() -> None:
    enough, little, less = (citations.summarise(made_rows(gain)) for gain in (0.1, 0.05, -0.01))
    assert [check.passed for check in enough.checks] == [True, True, True]
    assert [check.passed for check in little.checks] == [True, False, False]
    assert [check.passed for check in less.checks] == [False, False, False]
    assert "| cornell | prpca | 0.860 ± 0.001 |" in enough.markdown


def test_the_whole_case_on_small_data(folder: Path, tmp_path: Path) -> None:
    """Each kind of task once; edges that keep to topics make the gain, and pictures are drawn."""
    base = {"data": "cora", "weighting": "tfidf"}
    rows = []
    for method in ("pca", "prpca", "averaged-pca", "prpca-averaged"):
        arguments = base | {"method": method, "components": [3]}
        rows.append(row_of(f"cora/{method}", arguments, **citations.reduced(folder, 1.0, **arguments)))
    accuracy = {row["arguments"]["method"]: np.mean(row["accuracies"][3]) for row in rows}
    assert accuracy["prpca"] > accuracy["pca"] + 0.03
    for method in ("content", "graph", "content+graph"):
        arguments = base | {"method": method}
        rows.append(row_of(f"cora/{method}", arguments, **citations.whole(folder, 0.4, **arguments)))
    arguments = base | {"n_components": 3}
    rows.append(row_of("cora/iterations", arguments, **citations.iterations(folder, 0.4, **arguments)))
    rows.append(row_of("cora/flat", base, **citations.flat(folder, 1.0, **base)))
    drawn = citations.draw(rows, tmp_path)
    assert [path.name for path in drawn] == [
        "citations-cora.png", "citations-cora-iterations.png", "citations-cora-two-dimensions.png",
    ]  # fmt: skip
    assert all(path.stat().st_size > 1000 for path in drawn)


def smoothing_rows(folder: Path, data: str) -> list[dict[str, Any]]:
    """Each method with the edges as they are, and with others."""
    found = []
    for edges in ("as they are", "rewired"):
        for method in smoothing.METHODS:
            arguments = {"data": data, "edges": edges, "method": method}
            values = smoothing.measure(folder, 0.4, **arguments)
            found.append({**row_of(f"{data}/{edges}/{method}", arguments, **values), "case": "smoothing"})
    return found


def test_smoothing_gains_where_edges_help_and_is_ppca_where_they_do_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoothing, "COMPONENTS", 3)
    rows = smoothing_rows(folder, "texas")
    by = {(row["arguments"]["edges"], row["arguments"]["method"]): row for row in rows}
    assert np.mean(by["as they are", "fixed"]["accuracies"]) > np.mean(by["as they are", "ppca"]["accuracies"]) + 0.03
    assert by["rewired", "auto"]["smoothing"] == 0.0
    assert by["rewired", "auto"]["accuracies"] == by["rewired", "ppca"]["accuracies"]
    found = smoothing.summarise(rows)
    assert found.checks[-1].passed, found.checks[-1]
    assert "| texas | rewired |" in found.markdown


def test_few_labels_tell_more_with_edges_and_words_than_with_either(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_labels_graph, "SMOOTHED", 4)
    monkeypatch.setattr(few_labels_graph, "COMPONENTS", 3)
    arguments = {"data": "cora", "each": 5, "first": 0, "last": 2}
    row = row_of("cora-5/0", arguments, **few_labels_graph.measures(folder, 1.0, **arguments))
    found = few_labels_graph.summarise([{**row, "case": "few-labels-graph"}])
    means = {name: np.mean(values) for name, values in row["accuracies"].items()}
    assert [len(values) for values in row["accuracies"].values()] == [2] * len(few_labels_graph.METHODS)
    assert means[few_labels_graph.OURS] > 0.05 + means["S²PPCA, words"]
    assert means["label spreading"] > 0.5
    assert means["SGC"] > 0.5
    assert "| cora | 5 | 2 |" in found.markdown


def test_labels_spread_to_neighbours_and_not_beyond_their_component() -> None:
    graph = sp.csr_array(sp.block_diag([power_law_graph(20, 60, random_state=n) for n in (0, 1)]))
    codes, labelled = np.repeat([0, 1], 20), np.isin(np.arange(40), (3, 30))
    given = few_labels_graph.Setting(sp.csr_array((40, 2)), graph, np.zeros((40, 2)), codes, labelled)
    connected = np.asarray(graph.sum(axis=1)).ravel() > 0
    np.testing.assert_array_equal(few_labels_graph.label_spreading(given)[connected], codes[connected])


def test_other_edges_are_symmetric_and_about_as_many() -> None:
    graph = power_law_graph(200, 600, random_state=0)
    for name, change in smoothing.EDGES.items():
        other = change(graph)
        assert abs(other - other.T).nnz == 0
        assert other.diagonal().sum() == 0
        assert 0.8 * graph.nnz < other.nnz <= graph.nnz
        kept = other.multiply(graph).nnz / graph.nnz
        low, high = {"as they are": (1.0, 1.0), "half rewired": (0.4, 0.7)}.get(name, (0.0, 0.3))
        assert low <= kept <= high, name


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("graph")
    described = graph_case.prepare(place, 0.002)["graphs"]
    assert described["whole"]["shape"][0] == 4 * described["quarter"]["shape"][0] == 2000
    assert described["whole"]["graph"] == 10_000
    return place


def test_stored_graphs_are_symmetric_and_as_large_as_described(graphs: Path) -> None:
    graph, words = load(str(graphs / "half-edges.zarr")), load(str(graphs / "half-data.zarr"))
    assert graph.shape == (1000, 1000)
    assert abs(graph - graph.T).nnz == 0
    assert graph.nnz == 10_000
    assert words.shape[0] == 1000
    assert 0.9 * graph_case.LENGTH < words.nnz / 1000 <= graph_case.LENGTH


def test_rounds_of_several_passes_count_once() -> None:
    """Three iterations of two passes each, the first with two for the energy, and the check, which has two, too."""
    names = ["products", "products", "energy", "energy"] + 2 * ["products"] * 3
    row = {"pass_names": names, "pass_seconds": [5.0, 4.0, 9.0, 8.0] + 3 * [1.0, 2.0], "trace": [0.0] * 3}
    assert graph_case.rounds(row) == (26.0, 3.0)
    plain = {"pass_names": ["products"] * 3 + ["check"], "pass_seconds": [7.0, 1.0, 2.0, 3.0], "trace": [0.0] * 3}
    assert graph_case.rounds(plain) == (7.0, 2.0)


def test_fits_with_and_without_edges_side_by_side(graphs: Path) -> None:
    rows = []
    for model in ("ppca", "prpca"):
        found = getattr(graph_case, model)(graphs, 0.002, "quarter")
        row = row_of(f"{model}/quarter", {"graph": "quarter"}, **found)
        memory = {"peak_driver_rss": 1, "peak_worker_rss": 1, "peak_tree_pss": 1}
        shape = {"graphs": {"quarter": {"shape": [500, 894], "graph": 2500}}}
        rows.append(row | memory | {"data": shape, "cap": {"limit": graph_case.CAP, "oom_kills": 0}})
    assert rows[0]["log_likelihood"] != rows[1]["log_likelihood"]
    summary = graph_case.summarise(rows)
    assert "| prpca/quarter | 500 | 894 | 2500 |" in summary.markdown
    assert [check.passed for check in summary.checks][:2] == [True, True]
    assert summary.checks[2].text.startswith("quarter: a round over edges takes")
    rows[1]["cap"]["oom_kills"] = 1
    assert not graph_case.summarise(rows).checks[0].passed
