"""`ingest-graph`, `reorder` and relational models do what the library does, show it, and write JSON where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import dlatent
from dlatent import open_data, open_graph
from dlatent.cli.arguments import OPTIONS
from dlatent.stores.graph.direction import Direction
from dlatent.stores.graph.ingest import ingest_graph


def graph_file(folder: Path) -> Path:
    """A ring of the 120 rows of the store, one edge twice, one of a sample to itself."""
    walk = np.random.default_rng(1).permutation(120)
    rows = [f"{a},{b}" for a, b in zip(walk, np.roll(walk, 1), strict=True)]
    (folder / "edges.csv").write_text("\n".join(["from,to", *rows, rows[0], "3,3"]) + "\n")
    return folder / "edges.csv"


def test_directions_are_those_of_the_library() -> None:
    assert Direction.__args__ == OPTIONS["direction"]["choices"]  # type: ignore[attr-defined]


def test_ingest_edges_reports(run, store: Path, tmp_path: Path) -> None:
    words = ["ingest-graph", graph_file(tmp_path), tmp_path / "edges.zarr", "--data", store]
    refused = run(*words)
    assert refused.status == 3
    assert "'symmetrise'" in refused.err
    said = run(*words, "--direction", "undirected")
    assert said.status == 0, said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert {"edges 120", "weighted no", "median degree 2", "largest degree 2"} <= set(lines)
    assert {"self loops dropped 1", "duplicates merged 1"} <= set(lines)
    assert open_graph(tmp_path / "edges.zarr", samples=120).entries == 240
    assert "already exists" in run(*words, "--direction", "undirected").err
    for direction, graph in (("symmetrise", 120), ("common_neighbours", 0)):  # in a ring no two edge to the same third
        found = run(*words, "--direction", direction, "--overwrite", "--json").json
        assert (found["edges"], found["samples"], found["isolated"]) == (graph, 120, 120 - graph)
        assert open_graph(tmp_path / "edges.zarr").entries == 2 * graph


def test_ingest_edges_takes_limits(run, tmp_path: Path) -> None:
    words = ["ingest-graph", graph_file(tmp_path), tmp_path / "edges.zarr"]
    said = run(*words, "--samples", "100", "--direction", "symmetrise")
    assert said.status == 3
    assert "the positions of the 100 samples are 0 to 99" in said.err
    said = run(*words, "--direction", "common_neighbours", "--most-pairs", "200")
    assert said.status == 3
    assert "240 pairs" in said.err
    assert run(*words, "--samples", "100", "--data", "x.zarr").status == 2


def test_reorder_brings_graph_rows_together(run, store: Path, tmp_path: Path) -> None:
    words = ["reorder", store, graph_file(tmp_path), tmp_path / "near.zarr", tmp_path / "edges.zarr"]
    said = run(*words, "--direction", "undirected")
    assert said.status == 0, said.err
    assert " → 2\n" in said.out
    order = zarr.open_group(tmp_path / "near.zarr", mode="r")["uns/original_position"][:]
    (old,), (new,) = (open_data(path).blocks for path in (store, tmp_path / "near.zarr"))
    np.testing.assert_array_equal(new.load(), old.load()[order])
    assert "already exists" in run(*words, "--direction", "undirected").err
    found = run(*words, "--direction", "undirected", "--overwrite", "--json").json
    assert found["largest_distance"][1] == 2


@pytest.fixture
def graph(store: Path, tmp_path: Path) -> Path:
    """The ring without five of its edges, as a store: four rows are alone, and αI + A is singular for α = 1."""
    ring = graph_file(tmp_path).read_text().splitlines()[1:116]
    (tmp_path / "ring.csv").write_text("\n".join(ring) + "\n")
    ingest_graph(tmp_path / "ring.csv", tmp_path / "ring.zarr", data=store, direction="undirected")
    return tmp_path / "ring.zarr"


def test_plan_of_graph_rows_is_that_of_the_library(run, store: Path, graph: Path) -> None:
    words = ["plan", "relational", store, "--graph", graph, "-k", "3", "--solver", "krylov"]
    plan = dlatent.RelationalPPCA(3, solver="krylov").plan(store, graph=graph)
    assert "115 edges move" in str(plan)
    assert run(*words).out == f"{plan}\n"
    assert run(*words, "--json").json["task"]["between"]["entries"] == 230


def test_fit_of_graph_rows_saves_what_the_library_fits(run, store: Path, graph: Path, tmp_path: Path) -> None:
    words = ["fit", "relational", store, "-k", "2", "--alpha", "0.5", "--gamma", "1e-3", "-o"]
    said = run(*words, tmp_path / "m.zarr", "--graph", graph)
    assert said.status == 0, said.err
    fitted = dlatent.RelationalPPCA(2, alpha=0.5, gamma=1e-3).fit(store, graph=graph)
    loaded = dlatent.load(tmp_path / "m.zarr")
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.components_, fitted.components_)
    assert "115, with α = 0.5 and γ = 0.001; 4 samples have no edge; they are fitted like the others" in said.out
    assert f"{fitted.log_likelihood_:.10g} nats without ½ D log|Δ| of the graph" in said.out
    listed = run(*words, tmp_path / "l.zarr", "--graph", tmp_path / "ring.csv", "--direction", "undirected", "--json")
    assert listed.json["graph"] == {
        "edges": 115,
        "alpha": 0.5,
        "gamma": 1e-3,
        "rank": 120,
        "notes": ["4 samples have no edge; they are fitted like the others"],
    }
    np.testing.assert_array_equal(dlatent.load(tmp_path / "l.zarr").components_, fitted.components_)


def test_smoothed_rows_have_scores_with_their_edges(run, store: Path, graph: Path, tmp_path: Path) -> None:
    said = run("fit", "graph-ppca", store, "--graph", graph, "-k", "2", "--smoothing", "3", "-o", tmp_path / "m.zarr")
    assert said.status == 0, said.err
    assert "115 edges, with λ = 3 and 2 hops; 4 samples have no edge" in said.out
    model = dlatent.load(tmp_path / "m.zarr")
    words = ["transform", tmp_path / "m.zarr", store, "-o"]
    for more, expected in (
        (["--graph", graph], model.transform(store, graph=graph)),
        (["--graph", tmp_path / "ring.csv", "--direction", "undirected"], model.transform(store, graph=graph)),
        ([], model.transform(store)),
    ):
        assert run(*words, tmp_path / "s.zarr", "--overwrite", *more).status == 0
        np.testing.assert_array_equal(zarr.open_group(tmp_path / "s.zarr", mode="r")["scores"][:], expected)
    dlatent.PPCA(2).fit(store).save(tmp_path / "p.zarr")
    said = run("transform", tmp_path / "p.zarr", store, "-o", tmp_path / "p_scores.zarr", "--graph", graph)
    assert said.status == 3
    assert "PPCA, whose scores need no graph; omit --graph" in said.err


def test_entries_are_filled_in_by_neighbours(run, graph: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 6))
    rows[rng.random(rows.shape) < 0.3] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    store, model = tmp_path / "rows.zarr", tmp_path / "m.zarr"
    assert run("ingest", tmp_path / "rows.npy", store, "--missing", "nan").status == 0
    words = ["-k", "2", "--missing", "nan", "--smoothing", "3"]
    said = run("fit", "graph-ppca", store, "--graph", graph, *words, "-o", model)
    assert said.status == 0, said.err
    fitted = dlatent.load(model)
    for more, expected in ((["--graph", graph], fitted.impute(rows, graph=graph)), ([], fitted.impute(rows))):
        said = run("impute", model, store, "-o", tmp_path / "f.zarr", "--overwrite", *more)
        assert said.status == 0, said.err
        np.testing.assert_array_equal(zarr.open_group(tmp_path / "f.zarr", mode="r")["imputed"][:], expected)
    said = run("impute", model, store, "-o", tmp_path / "v.zarr", "--variance", "--graph", graph)
    assert said.status == 3
    assert "rows alone" in said.err


def test_fit_as_in_the_paper(run, store: Path, graph: Path, tmp_path: Path) -> None:
    words = ["fit", "relational", store, "--graph", graph, "-k", "2", "-o", tmp_path / "m.zarr"]
    said = run(*words, "--solver", "em", "--start", "pca", "--start-noise", "1e-6", "--max-iter", "5")
    assert said.status == 6
    fitted = dlatent.load(tmp_path / "m.zarr")
    parameters = fitted.get_params()
    assert (parameters["start"], parameters["start_noise"], fitted.n_iter_) == ("pca", 1e-6, 5)
    for ignored, text in (
        (["--start", "pca"], "--solver em"),
        (["--start-noise", "1", "--solver", "em"], "--start pca"),
    ):
        said = run(*words, "--overwrite", *ignored)
        assert said.status == 2
        assert text in said.err


def test_fit_of_graph_rows_with_labels(run, store: Path, graph: Path, tmp_path: Path) -> None:
    kinds = np.array(["cat", "dog"])[np.arange(120) % 2]
    np.save(tmp_path / "kinds.npy", kinds)
    words = ["fit", "relational-supervised", store, "--graph", graph, "-k", "2", "-o", tmp_path / "m.zarr"]
    half = run(*words, "--json")
    assert half.status == 0, half.err
    assert half.json["kind"] == "RelationalSupervisedPPCA"
    assert dlatent.load(tmp_path / "m.zarr").classes_.tolist() == ["cat", "dog"]
    said = run(*words, "--labels", tmp_path / "kinds.npy", "--overwrite", "--json")
    assert said.status == 0, said.err
    assert said.json["kind"] == "RelationalSupervisedPPCA"
    fitted = dlatent.RelationalSupervisedPPCA(2).fit(store, kinds, graph=graph)
    np.testing.assert_array_equal(dlatent.load(tmp_path / "m.zarr").components_, fitted.components_)
    scored = run("transform", tmp_path / "m.zarr", store, "-o", tmp_path / "s.zarr", "--labels", tmp_path / "kinds.npy")
    assert scored.status == 0, scored.err
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "s.zarr")["scores"][:], fitted.transform(store, kinds))


def test_a_saved_model_of_graph_rows_is_used_and_shown_like_the_others(
    run, store: Path, graph: Path, tmp_path: Path
) -> None:
    model, scores = tmp_path / "m.zarr", tmp_path / "s.zarr"
    words = ["fit", "relational", store, "--graph", graph, "-k", "2", "--gamma", "0", "-o", model, "--quiet"]
    assert run(*words).status == 0
    loaded = dlatent.load(model)
    assert run("transform", model, store, "-o", scores).status == 0
    np.testing.assert_array_equal(zarr.open_group(scores)["scores"][:], loaded.transform(store))
    about = run("inspect", model, "--json").json["graph"]
    assert about == {"edges": 115, "alpha": 1.0, "gamma": 0.0, "rank": 119}
    said = run("inspect", model).out
    assert "a fitted RelationalPPCA" in said
    assert "115, with α = 1 and γ = 0, rank of Δ 119" in said
    assert "without ½ D log|Δ|" in said


def test_inspect_says_that_a_store_of_edges_is_a_graph(run, store: Path, graph: Path, tmp_path: Path) -> None:
    said = run("inspect", graph)
    assert said.status == 0, said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines[0].endswith("ring.zarr: a graph")
    assert {"samples 120", "edges 115", "weighted no", "median degree 2", "largest degree 2", "isolated 4"} <= set(
        lines
    )
    assert "reordered no" in lines
    found = run("inspect", graph, "--json").json
    assert (found["samples"], found["edges"], found["isolated"], found["weighted"]) == (120, 115, 4, False)
    assert run("reorder", store, graph, tmp_path / "near.zarr", tmp_path / "edges.zarr").status == 0
    assert "reordered       yes\n" in run("inspect", tmp_path / "edges.zarr").out


@pytest.fixture
def precision(tmp_path: Path) -> Path:
    """A chain of the 120 rows of the store."""
    sp.save_npz(tmp_path / "chain.npz", sp.diags_array([-0.5, 1.25, -0.5], offsets=[-1, 0, 1], shape=(120, 120)))
    return tmp_path / "chain.npz"


def test_a_precision_is_ingested_and_shown(run, store: Path, precision: Path, tmp_path: Path) -> None:
    said = run("ingest-graph", precision, tmp_path / "delta.zarr", "--precision", "--data", store)
    assert said.status == 0, said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert {"edges 119", "weighted yes"} <= set(lines)
    found = run("inspect", tmp_path / "delta.zarr", "--json").json
    assert (found["samples"], found["entries"]) == (120, 358)
    said = run("inspect", tmp_path / "delta.zarr")
    for line in ("delta.zarr: a precision", "120", "358"):
        assert line in said.out
    said = run("ingest-graph", graph_file(tmp_path), tmp_path / "d.zarr", "--precision")
    assert said.status == 3
    assert "cannot be read as a precision" in said.err


def test_edges_that_do_not_fit_the_data_leave_nothing(run, store: Path, graph: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    few.write_text("0,1\n1,0\n1,200\n")
    model = tmp_path / "m.zarr"
    before = sorted(tmp_path.iterdir())
    for graph, text in (
        (few, "few.csv row 3 names 200"),
        (graph_file(tmp_path), "'symmetrise'"),
        (store, "no csr_matrix"),
        (tmp_path / "absent.zarr", "does not exist"),
    ):
        said = run("fit", "relational", store, "--graph", graph, "-k", "2", "-o", model)
        assert said.status == 3, said.err
        assert text in said.err
        assert sorted(tmp_path.iterdir()) == before
    for words in (["relational", store, "-k", "2"], ["ppca", store, "-k", "2", "--graph", graph]):
        assert run("plan", *words).status == 2


def test_fit_of_a_precision_saves_what_the_library_fits(
    run, store: Path, precision: Path, graph: Path, tmp_path: Path
) -> None:
    ingest_graph(sp.load_npz(precision), tmp_path / "delta.zarr", precision=True)
    words = ["fit", "relational", store, "-k", "2", "-o", tmp_path / "m.zarr", "--overwrite"]
    fitted = dlatent.RelationalPPCA(2).fit(store, precision=tmp_path / "delta.zarr")
    for place in (tmp_path / "delta.zarr", precision):
        said = run(*words, "--precision", place)
        assert said.status == 0, said.err
        assert "given, 358 entries" in said.out
        assert f"{fitted.log_likelihood_:.10g} nats without ½ D log|Δ|\n" in said.out
        np.testing.assert_array_equal(dlatent.load(tmp_path / "m.zarr").components_, fitted.components_)
    assert run("inspect", tmp_path / "m.zarr", "--json").json["precision"] == {"entries": 358, "rank": 120}
    said = run("plan", "relational", store, "-k", "2", "--precision", precision)
    assert "precision 358 entries move" in said.out
    for more, status, text in (
        (["--precision", precision, "--graph", graph], 2, "not allowed with"),
        (["--precision", graph], 3, "a graph, not a precision; give it as graph="),
        (["--graph", tmp_path / "delta.zarr"], 3, "a precision, not a graph; give it as precision="),
        (["--precision", precision, "--direction", "symmetrise"], 2, "--direction belongs to --graph"),
        (["--precision", precision, "--alpha", "2"], 3, "alpha makes a precision of a graph"),
    ):
        said = run(*words, *more)
        assert said.status == status, said.err
        assert text in said.err
    said = run("choose", "relational", store, "-k", "1,2", "--precision", precision)
    assert said.status == 2
    assert "cannot be held out" in said.err
    assert run("plan", "graph-ppca", store, "-k", "2", "--precision", precision).status == 2
