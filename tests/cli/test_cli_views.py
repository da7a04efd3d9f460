"""Models of several views from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

import dlatent
from dlatent import open_data
from tests.simulators import simulate

ROWS = simulate(160, (7, 5), 2, noise=(0.3, 0.3), random_state=0).stacked
VIEWS = {"image": ROWS[:110, :7], "sound": ROWS[50:, 7:]}
PAIRS = np.column_stack([np.arange(50, 110), np.arange(60)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores, and their pairs as a table with the views in the other order."""
    made = tmp_path_factory.mktemp("views")
    for name, rows in VIEWS.items():
        zarr.create_array(str(made / f"{name}.zarr"), data=rows, chunks=(40, rows.shape[1]))
    lines = ["sound,image", *(f"{sound},{image}" for image, sound in PAIRS)]
    (made / "pairs.csv").write_text("\n".join(lines) + "\n")
    np.save(made / "pairs.npy", PAIRS)
    return made


def views(folder: Path) -> list[str]:
    return [f"{name}={folder / name}.zarr" for name in VIEWS]


def test_a_fit_is_that_of_the_library(run, folder: Path, tmp_path: Path) -> None:
    words = ["correspondence", *views(folder), "--correspondence", folder / "pairs.csv", "-k", "2"]
    stores = {name: str(folder / f"{name}.zarr") for name in VIEWS}
    model = dlatent.CorrespondencePPCA(2)
    assert run("plan", *words).out == f"{model.plan(stores, correspondence=PAIRS)}\n"
    said = run("fit", *words, "-o", tmp_path / "m.zarr", "--quiet")
    assert said.status == 0, said.err
    model.fit(stores, correspondence=PAIRS)
    lines = map(str.split, said.out.splitlines())
    noise = {line[0]: line[1] for line in lines if line[:1] in (["image"], ["sound"])}
    assert noise == {name: f"{value:.6g}" for name, value in model.noise_variance_.items()}
    loaded = dlatent.load(tmp_path / "m.zarr")
    for name in VIEWS:
        np.testing.assert_array_equal(loaded.components_[name], model.components_[name])
    assert "sound" in run("inspect", tmp_path / "m.zarr").out

    said = run("transform", tmp_path / "m.zarr", folder / "sound.zarr", "--view", "sound", "-o", tmp_path / "z.zarr")
    assert said.status == 0, said.err
    scores = open_data(tmp_path / "z.zarr").blocks[0].load()
    np.testing.assert_allclose(scores, model.transform({"sound": VIEWS["sound"]})[: len(scores)], atol=1e-12)
    words = ["--from", "image", "--to", "sound", "-o", tmp_path / "guess.zarr", "--json"]
    said = run("reconstruct", tmp_path / "m.zarr", folder / "image.zarr", *words)
    assert said.json["array"] == "reconstructed"
    guess = open_data(tmp_path / "guess.zarr").blocks[0].load()
    wanted = model.reconstruct(VIEWS["image"], "image", "sound")
    np.testing.assert_allclose(guess, wanted[: len(guess)], atol=1e-12)


@pytest.mark.slow
def test_factor_analysis_has_a_noise_for_each_feature(run, folder: Path, tmp_path: Path) -> None:
    words = ["--correspondence", folder / "pairs.npy", "-k", "1", "-o", tmp_path / "m.zarr"]
    said = run("fit", "correspondence-fa", *views(folder), *words, "--json", "--quiet")
    assert said.status == 0, said.err
    noise = dlatent.load(tmp_path / "m.zarr").noise_variance_
    assert [len(own) for own in noise.values()] == [7, 5]
    assert [own["variance"] for own in said.json["noise"]] == [own.mean() for own in noise.values()]


def test_labels_of_one_view(run, folder: Path, tmp_path: Path) -> None:
    """Labels of the rows of a view by its name; the model predicts those of the other."""
    kinds = np.where(VIEWS["image"][:, 0] > VIEWS["image"][:, 0].mean(), "yes", "no").astype(object)
    kinds[::3] = "unknown"
    (tmp_path / "kinds.csv").write_text("kind\n" + "\n".join(kinds) + "\n")
    words = ["correspondence-supervised", *views(folder), "--correspondence", folder / "pairs.csv", "-k", "2"]
    words += ["--labels", f"image={tmp_path / 'kinds.csv'}#kind", "--unlabelled", "unknown"]
    stores, model = {name: str(folder / f"{name}.zarr") for name in VIEWS}, dlatent.CorrespondenceSupervisedPPCA(2)
    known = {"image": np.where(kinds == "unknown", None, kinds)}
    assert run("plan", *words).out == f"{model.plan(stores, known, correspondence=PAIRS)}\n"
    said = run("fit", *words, "-o", tmp_path / "m.zarr", "--quiet")
    assert said.status == 0, said.err
    model.fit(stores, known, correspondence=PAIRS)
    (line,) = [line for line in map(str.split, said.out.splitlines()) if line[:1] == ["targets"]]
    assert line[1] == f"{model.target_noise_variance_:.6g}"
    loaded = dlatent.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.target_components_, model.target_components_)
    assert "targets" in run("inspect", tmp_path / "m.zarr").out
    words = ["--from", "image", "--to", "sound", "-o", tmp_path / "guess.zarr"]
    assert run("reconstruct", tmp_path / "m.zarr", folder / "image.zarr", *words).status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--labels"),
        (["--labels", "kinds.csv#kind"], "NAME=DATA"),
        (["--labels", "voice=kinds.csv#kind"], "--labels names the view 'voice'; there are image, sound"),
        (["--labels", "image=kinds.csv#kind", "--noise", "zero"], "--noise"),
    ],
)
def test_labels_that_cannot_be(run, folder: Path, tmp_path: Path, words: list[str], said: str) -> None:
    usual = [*views(folder), "--correspondence", folder / "pairs.csv", "-k", "2", "-o", tmp_path / "m.zarr"]
    ended = run("fit", "correspondence-supervised", *usual, *words)
    assert ended.status == 2
    assert said in ended.err


def test_noise_is_an_option_of_the_model_that_has_it(run, folder: Path, tmp_path: Path) -> None:
    usual = [*views(folder), "--correspondence", folder / "pairs.csv", "-k", "2", "-o", tmp_path / "m.zarr"]
    assert "--noise" in run("fit", "correspondence-fa", *usual, "--noise", "zero").err
    assert run("fit", "correspondence", *usual, "--noise", "zero", "--quiet").status == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["image.zarr", "sound=sound.zarr", "--correspondence", "pairs.csv"], 2, "NAME=DATA"),
        (["image=image.zarr", "--correspondence", "pairs.csv"], 2, "at least two views"),
        (["image=image.zarr", "image=sound.zarr", "--correspondence", "pairs.csv"], 2, "names of their own"),
        (["image=image.zarr", "sound=sound.zarr"], 2, "--correspondence"),
        (["image=image.zarr", "voice=sound.zarr", "--correspondence", "pairs.csv"], 3, "'voice' is missing"),
        (["image=image.zarr", "sound=sound.zarr", "--correspondence", "none.csv"], 3, "none.csv"),
        (["image=image.zarr", "sound=sound.zarr", "--correspondence", "image.zarr"], 3, "no .csv"),
        (["image=image.zarr", "sound=sound.zarr", "--on", "label"], 3, "image"),
    ],
)
def test_what_cannot_be_fitted(
    run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int, said: str
) -> None:
    monkeypatch.chdir(folder)
    ended = run("fit", "correspondence", *words, "-k", "2", "-o", tmp_path / "m.zarr")
    assert ended.status == status
    assert said in ended.err
    assert not (tmp_path / "m.zarr").exists()


def test_views_must_be_named(run, folder: Path, model: Path, tmp_path: Path) -> None:
    words = ["--correspondence", folder / "pairs.csv", "-k", "1", "-o", tmp_path / "m.zarr", "--quiet"]
    assert run("fit", "correspondence", *views(folder), *words).status == 0
    out = ["-o", tmp_path / "z.zarr"]
    ended = run("transform", tmp_path / "m.zarr", folder / "image.zarr", *out)
    assert ended.status == 3
    assert "--view" in ended.err
    ended = run("transform", model, folder / "image.zarr", "--view", "image", *out)
    assert "no views" in ended.err
    ended = run("reconstruct", model, folder / "image.zarr", "--from", "a", "--to", "b", *out)
    assert ended.status == 3
    assert "no views to reconstruct" in ended.err
    ended = run("impute", tmp_path / "m.zarr", folder / "image.zarr", *out)
    assert ended.status == 3
    assert "views are filled in together" in ended.err
    assert not (tmp_path / "z.zarr").exists()
