"""Every command does what the library does, shows it, and writes JSON where asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anndata
import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import shtab
import xarray as xr
import zarr

import dlatent
from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA, ingest, open_data, read_labels
from dlatent.cli.cluster import connected
from dlatent.cli.main import parser
from dlatent.engine import machine
from tests.simulators import simulate


def matrix(path: Path) -> np.ndarray:
    blocks = [block.load() for block in open_data(path).blocks]
    return np.vstack([block.toarray() if sp.issparse(block) else block for block in blocks])


def test_version_and_help(run) -> None:
    assert run("--version").out == f"dlatent {dlatent.__version__}\n"
    said = run("--help")
    assert said.status == 0
    for word in ("ingest", "plan", "fit", "transform", "inspect", "130  interrupted"):
        assert word in said.out


def test_ingest_weighs_and_reports(run, tmp_path: Path) -> None:
    counts = sp.random(40, 30, density=0.3, random_state=1, format="csr", dtype=np.float64)
    counts.data = np.ceil(counts.data * 5)
    sp.save_npz(tmp_path / "counts.npz", counts)
    np.save(tmp_path / "y.npy", np.arange(40) % 3)
    options = ["--tfidf", "--unit-norm", "--zero-rows", "keep", "--dtype", "float32", "--block-size", "1KiB"]
    said = run("ingest", tmp_path / "counts.npz", tmp_path / "a.zarr", "--labels", tmp_path / "y.npy", *options)
    assert said.status == 0
    assert "40 × 30" in said.out
    assert "3 different values" in said.out
    found = matrix(tmp_path / "a.zarr")
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), counts.getnnz(axis=1) > 0, rtol=1e-6)
    again = run("ingest", tmp_path / "counts.npz", tmp_path / "a.zarr", "--overwrite", "--json")
    assert again.json["shape"] == [40, 30]
    assert again.json["nnz"] == counts.nnz
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), counts.toarray())


def test_ingest_takes_several_files_and_columns(run, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a,b,y,z\n1,2,0,5\n3,4,1,6\n")
    (tmp_path / "two.csv").write_text("a,b,y,z\n5,6,1,7\n")
    said = run(
        "ingest", tmp_path / "one.csv", tmp_path / "two.csv", tmp_path / "s.zarr", "--labels", "y", "--labels", "z"
    )
    assert said.status == 0
    np.testing.assert_array_equal(matrix(tmp_path / "s.zarr"), [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(read_labels(tmp_path / "s.zarr"), [[0, 5], [1, 6], [1, 7]])


def test_plan_is_that_of_the_library(run, store: Path) -> None:
    plan = dlatent.PPCA(3).plan(store)
    assert run("plan", "ppca", store, "-k", "3").out == f"{plan}\n"
    found = run("plan", "ppca", store, "-k", "3", "--solver", "krylov", "--json").json
    assert found["solver"] == "krylov"
    assert found["task"]["samples"] == 120
    supervised = run("plan", "supervised", store, "-k", "3", "--json").json
    assert supervised["task"]["patterns"] == 2


def test_plan_for_workers_that_are_not_there(run, store: Path) -> None:
    workers = dlatent.Workers(40, "2GiB", 2, driver_memory="3GiB", bandwidth="50MB", price=0.2)
    words = ["--workers", "40", "--memory-limit", "2GiB", "--threads-per-worker", "2", "--driver-memory", "3GiB"]
    words = ["plan", "ppca", store, "-k", "3", *words, "--bandwidth", "50MB", "--price", "0.2"]
    assert run(*words).out == f"{dlatent.PPCA(3).plan(store, client=workers)}\n"
    assert run(*words, "--json").json["duration"]["seconds"] > 0


def test_fit_saves_what_the_library_fits(run, store: Path, tmp_path: Path) -> None:
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--seed", "4", "--noise-floor", "1e-5")
    assert said.status == 0
    fitted = dlatent.PPCA(2, random_state=4, noise_floor=1e-5).fit(store)
    loaded = dlatent.load(tmp_path / "m.zarr")
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.components_, fitted.components_)
    assert f"{fitted.log_likelihood_:.10g}" in said.out


def test_fit_writes_json_and_nothing_else(run, store: Path, tmp_path: Path) -> None:
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--json")
    assert said.json["log_likelihood"] == dlatent.load(tmp_path / "m.zarr").log_likelihood_
    assert said.json["converged"] is True
    assert [own["view"] for own in said.json["noise"]] == ["features"]
    assert "targets" not in said.json


def test_fit_takes_the_labels_of_the_store_of_a_column_or_of_a_file(run, store: Path, tmp_path: Path) -> None:
    labels = read_labels(store, "kind")
    assert [label is None for label in labels] == [i >= 60 for i in range(120)]
    np.save(tmp_path / "y.npy", np.array(["" if label is None else label for label in labels]))
    reference = dlatent.SupervisedPPCA(2).fit(store, labels)
    given = ([], ["--labels", "#kind"], ["--labels", f"{store}#kind"])
    given += (["--labels", str(tmp_path / "y.npy"), "--unlabelled", ""],)
    for number, words in enumerate(given):
        said = run("fit", "supervised", store, "-k", "2", "-o", tmp_path / f"{number}.zarr", *words, "--json")
        assert said.status == 0, said.err
        loaded = dlatent.load(tmp_path / f"{number}.zarr")
        np.testing.assert_array_equal(loaded.components_, reference.components_)
        assert loaded.classes_.tolist() == ["cat", "dog"]


def test_fit_that_does_not_converge_is_saved_and_says_so(run, store: Path, tmp_path: Path) -> None:
    words = ["--solver", "em", "--max-iter", "2", "--tol", "1e-12"]
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--json", *words)
    assert said.status == 6
    assert "raise max_iter or tol" in said.err
    assert said.json["warnings"]
    assert not dlatent.load(tmp_path / "m.zarr").converged_


def test_fit_on_worker_processes_gives_the_same_model(run, store: Path, model: Path, tmp_path: Path) -> None:
    said = run("fit", "ppca", store, "-k", "2", "-o", tmp_path / "m.zarr", "--workers", "1", "--memory-limit", "1GiB")
    assert said.status == 0
    assert "cluster, 1 worker " in said.err
    np.testing.assert_array_equal(dlatent.load(tmp_path / "m.zarr").components_, dlatent.load(model).components_)


@pytest.mark.parametrize("given", [{}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}])
def test_worker_processes_have_the_recommended_environment_unless_told_otherwise(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recommended = machine.worker_environment(threads=2)
    for name in recommended:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    options = ["ppca", "x.zarr", "-k", "2", "-o", "m.zarr", "--workers", "1", "--threads-per-worker", "2"]
    arguments = parser().parse_args(["fit", *options, "--memory-limit", "1GiB"])
    with connected(arguments) as client:
        (found,) = client.run(lambda: dict(os.environ)).values()
    assert {name: found[name] for name in recommended} == recommended | given


def test_worker_processes_cannot_hang_in_the_profiler_of_dask() -> None:
    options = ["ppca", "x.zarr", "-k", "2", "-o", "m.zarr", "--workers", "1", "--threads-per-worker", "1"]
    arguments = parser().parse_args(["fit", *options, "--memory-limit", "1GiB"])
    name = "distributed.worker.profile.enabled"
    with dask.config.set({name: True}), connected(arguments) as client:
        (found,) = client.run(lambda: dask.config.get(name)).values()
    assert found is (sys.version_info >= (3, 12))


def test_transform_writes_the_scores(run, store: Path, model: Path, tmp_path: Path) -> None:
    said = run("transform", model, store, "-o", tmp_path / "scores.zarr")
    assert said.status == 0
    expected = dlatent.load(model).transform(store)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "scores.zarr")["scores"][:], expected)
    assert (
        run("transform", model, store, "-o", tmp_path / "scores.zarr", "--overwrite", "--json").json["components"] == 2
    )
    about = run("inspect", tmp_path / "scores.zarr", "--json").json
    assert about["shape"] == [120, 2]


def test_transform_of_an_h5ad_file_finds_the_genes_and_the_layer_of_the_fit(run, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(30, 5))
    genes = pd.DataFrame({"highly_variable": np.arange(5) != 2}, index=[f"gene{i}" for i in range(5)])
    adata = anndata.AnnData(values, var=genes, layers={"squares": values**2})
    dlatent.annotate(adata, dlatent.PPCA(2), layer="squares").save(tmp_path / "m.zarr")
    anndata.AnnData(values, var=genes, layers=adata.layers).write_h5ad(tmp_path / "cells.h5ad")
    assert run("transform", tmp_path / "m.zarr", tmp_path / "cells.h5ad", "-o", tmp_path / "scores.zarr").status == 0
    found = zarr.open_group(tmp_path / "scores.zarr")["scores"][:]
    np.testing.assert_allclose(found, adata.obsm["X_ppca"], rtol=1e-9)


def test_transform_uses_labels_where_given(run, store: Path, tmp_path: Path) -> None:
    assert run("fit", "supervised", store, "-k", "2", "-o", tmp_path / "m.zarr").status == 0
    assert run("transform", tmp_path / "m.zarr", store, "-o", tmp_path / "with.zarr", "--labels", "#kind").status == 0
    expected = dlatent.load(tmp_path / "m.zarr").transform(store, read_labels(store, "kind"))
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "with.zarr")["scores"][:], expected)


def test_inspect_tells_what_a_model_is(run, model: Path) -> None:
    loaded = dlatent.load(model)
    found = run("inspect", model, "--json").json
    assert found["kind"] == "PPCA"
    assert found["noise"][0]["variance"] == loaded.noise_variance_
    shares = loaded.explained_variance_ratio_ - loaded.noise_variance_ / (
        loaded.explained_variance_[0] / loaded.explained_variance_ratio_[0]
    )
    np.testing.assert_allclose([c["share"] for c in found["components"]], shares)
    largest = np.abs(loaded.components_[0]).argmax()
    assert found["components"][0]["largest"][0] == {"feature": f"f{largest}", "loading": loaded.components_[0, largest]}
    said = run("inspect", model)
    assert "a fitted PPCA" in said.out
    assert f"f{largest}" in said.out


def test_of_many_components_those_with_the_largest_shares_get_a_line(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(80, 20)) * np.linspace(3, 1, 20))
    run("ingest", tmp_path / "x.npy", tmp_path / "x.zarr", "--quiet")
    for count, more in ((10, ""), (11, "1 more component with"), (14, "4 more components with")):
        said = run("fit", "ppca", tmp_path / "x.zarr", "-k", str(count), "-o", tmp_path / f"{count}.zarr", "--quiet")
        found = run("inspect", tmp_path / f"{count}.zarr", "--json").json["components"]
        assert len(found) == count
        lines = [line.split() for line in said.out.splitlines()]
        shown = [line for line in lines if line and line[0].isdecimal() and "%" in line[2]]
        assert [line[2] for line in shown] == [f"{one['share']:.2%}" for one in found[:10]]
        assert more in said.out
        assert (f"{sum(one['share'] for one in found[10:]):.2%} in all" in said.out) == (count > 10)


def test_samples_may_lie_along_any_dimensions(run, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 20, 4, 5)) * np.linspace(3, 1, 5)
    data = xr.DataArray(rows, dims=("member", "time", "lat", "lon"), name="t")
    data.to_dataset().to_zarr(tmp_path / "t.zarr", zarr_format=2)
    fit = ("fit", "ppca", tmp_path / "t.zarr", "-k", "2", "-o", tmp_path / "m.zarr")
    assert "dim=" in run(*fit).err
    assert run(*fit, "--dim", "member,time").status == 0
    expected = dlatent.PPCA(2).fit(data, dim=("member", "time"))
    np.testing.assert_array_equal(dlatent.load(tmp_path / "m.zarr").result_["loadings"], expected.result_["loadings"])
    assert run("transform", tmp_path / "m.zarr", tmp_path / "t.zarr", "-o", tmp_path / "scores.zarr").status == 0
    scores = zarr.open_group(tmp_path / "scores.zarr")["scores"][:]
    np.testing.assert_array_equal(scores, expected.transform(data).values.reshape(60, 2))
    assert "0 variables that may be meant" in run(*fit, "--dim", "month", "--overwrite").err


def test_inspect_tells_of_views(run, tmp_path: Path) -> None:
    rows = simulate(60, (4, 3), 2, noise=(0.3, 0.4), random_state=0).stacked
    pairs = np.column_stack([np.arange(20), np.arange(20)])
    for model in (CorrespondencePPCA(2), CorrespondenceFactorAnalysis(1)):
        model.fit({"left": rows[:40, :4], "right": rows[:, 4:]}, correspondence=pairs)
        model.save(tmp_path / "views.zarr", overwrite=True)
        found = run("inspect", tmp_path / "views.zarr", "--json").json
        assert [own["view"].split()[0] for own in found["noise"]] == ["left", "right"]
        assert [own["samples"] for own in found["noise"]] == [40, 60]
        total = rows[:40, :4].var(axis=0).sum() + rows[:, 4:].var(axis=0).sum()
        first = found["components"][0]
        assert first["share"] == pytest.approx(first["variance"] / total)
        assert first["largest"][0]["feature"].split()[0] in ("left", "right")


def test_inspect_tells_what_a_data_store_holds(run, store: Path) -> None:
    found = run("inspect", store, "--json").json
    assert found["shape"] == [120, 9]
    assert found["chunks"] == [120, 9]
    assert found["labels"] == [{"column": "kind", "distinct": 2, "unlabelled": 60}]
    assert (found["weighting"], found["unit_norm"]) == ("none", False)
    said = run("inspect", store)
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert {"shape 120 × 9", "dtype float64", "sparse no"} <= set(lines)
    assert "kind 2 60" in lines


def test_inspect_reads_a_bare_array(run, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=np.ones((6, 4), dtype=np.float32), chunks=(3, 4))
    found = run("inspect", tmp_path / "x.zarr", "--json").json
    assert (found["shape"], found["chunks"], found["dtype"]) == ([6, 4], [3, 4], "float32")
    assert found["labels"] == []


def test_chunks_that_their_writer_left_out(run, tmp_path: Path) -> None:
    """Zarr leaves out chunks of zeros unless told otherwise; the commands take them as zeros only when told so."""
    rows = np.random.default_rng(0).normal(size=(90, 6))
    rows[30:60, :3] = 0
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(30, 3))
    said = run("fit", "ppca", tmp_path / "x.zarr", "-k", "2", "-o", tmp_path / "m.zarr", "--quiet")
    assert said.status != 0
    assert "the chunk c/1/0" in said.err
    assert "--missing-chunks fill" in said.err
    for words in (
        ("fit", "ppca", tmp_path / "x.zarr", "-k", "2"),
        ("transform", tmp_path / "m.zarr", tmp_path / "x.zarr"),
    ):
        out = tmp_path / ("m.zarr" if words[0] == "fit" else "scores.zarr")
        assert run(*words, "-o", out, "--missing-chunks", "fill").status == 0
    expected = dlatent.load(tmp_path / "m.zarr").transform(rows)
    np.testing.assert_allclose(zarr.open_group(tmp_path / "scores.zarr")["scores"][:], expected)
    assert run("inspect", tmp_path / "x.zarr", "--missing-chunks", "fill").status == 0


@pytest.mark.parametrize("command", ["ingest", "plan ppca", "fit supervised", "fit relational", "transform", "inspect"])
def test_every_command_explains_itself(run, command: str) -> None:
    said = run(*command.split(), "--help")
    assert said.status == 0
    assert said.out.startswith("usage: dlatent " + command.split()[0])


def test_defaults_in_the_help_are_those_of_the_estimator(run) -> None:
    said = " ".join(run("fit", "supervised", "--help").out.split())
    defaults = dlatent.SupervisedPPCA().get_params()
    assert f"at which a fit stops (default {defaults['tol']:g})" in said
    assert f"of the first directions (default {defaults['random_state']})" in said
    assert f"counts as that (default {defaults['noise_floor']:g})" in said
    assert f"of their mean variance (default {defaults['target_noise_floor']:g})" in said
    said = " ".join(run("fit", "relational", "--help").out.split())
    defaults = dlatent.RelationalPPCA().get_params()
    assert f"beside its neighbours (default {defaults['alpha']:g})" in said
    assert f"of the features alone (default {defaults['gamma']:g})" in said
    assert f"as in the paper (default {defaults['start']})" in said


def test_rechunk_writes_a_store_anew(run, store: Path, tmp_path: Path) -> None:
    ended = run("rechunk", store, tmp_path / "b.zarr", "--chunk-size", "1kB", "--json", "--quiet")
    assert ended.status == 0
    assert ended.json["chunks"] == list(zarr.open_group(tmp_path / "b.zarr")["X"].chunks)
    ended = run("rechunk", store, tmp_path / "b.zarr")
    assert ended.status == 3
    assert "replace it with --overwrite" in ended.err
    ended = run("rechunk", store, tmp_path / "b.zarr", "--overwrite")
    assert "chunks before" in ended.out


def test_an_interrupted_ingest_is_inspected_and_goes_on(run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 5000)
    words = ["ingest", tmp_path / "a.csv", tmp_path / "a.zarr", "--block-size", "64kB", "--resume", "--quiet"]

    def stop(done: int, total: int | None, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "a.csv", tmp_path / "a.zarr", block_bytes=64_000, resume=True, progress=stop)
    said = run("inspect", tmp_path / "a.zarr.checkpoint").out
    assert "the checkpoint of an ingest of" in said
    assert "results     1\n" in said
    assert run(*words).status == 0
    assert matrix(tmp_path / "a.zarr").shape == (5000, 2)
    assert run("inspect", tmp_path / "a.zarr.checkpoint").status == 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [("in", "ingest ingest-graph inspect"), ("ingest --form", "--format"), ("fit mix", "mixture")],
)
def test_bash_completes_commands_and_options(words: str, expected: str, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed here")
    (tmp_path / "dlatent.bash").write_text(shtab.complete(parser(), shell="bash"))
    asked = (
        f"COMP_WORDS=(dlatent {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _shtab_dlatent; echo ${{COMPREPLY[@]}}"
    )
    ended = subprocess.run(["bash", "-c", f". {tmp_path}/dlatent.bash; {asked}"], capture_output=True, text=True)
    assert ended.stdout.split() == expected.split(), ended.stderr
