"""`dlatent predict` and `dlatent plot`: what the library predicts and draws, in files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import zarr

import dlatent

N = 90


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of rows with three kinds of targets, and models of each."""
    made, rng = tmp_path_factory.mktemp("predict"), np.random.default_rng(2)
    latent = rng.normal(size=(N, 2))
    X = latent @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(N, 6))
    zarr.create_array(str(made / "x.zarr"), data=X, chunks=(20, 6))
    named = latent @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(N, 4))
    zarr.create_array(str(made / "other.zarr"), data=named, chunks=(20, 4))
    targets = {
        "class": np.where(latent[:, 0] > 0, "high, indeed", "low"),
        "multilabel": (latent > 0).astype(int),
        "regression": latent[:, 0] + 0.1 * rng.normal(size=N),
        "two": latent + 0.1 * rng.normal(size=(N, 2)),
    }
    for name, y in targets.items():
        dlatent.SupervisedPPCA(2).fit(X, y).save(made / f"{name}.zarr")
    dlatent.PPCAMixture(1, 2).fit(X).save(made / "mixture.zarr")
    dlatent.PPCA(2).fit(X).save(made / "ppca.zarr")
    dlatent.FactorAnalysis(2).fit(X).save(made / "fa.zarr")
    views = {"one": X, "two": named}
    pairs = np.column_stack([np.arange(N), np.arange(N)])
    dlatent.CorrespondenceSupervisedPPCA(2).fit(views, {"one": targets["class"]}, correspondence=pairs).save(
        made / "views.zarr"
    )
    return made


def table(text: str) -> dict[str, list[str]]:
    """Columns of a CSV text."""
    names, *rows = csv.reader(io.StringIO(text))
    return dict(zip(names, zip(*rows, strict=True), strict=True))


@pytest.mark.parametrize("kind", ["class", "multilabel", "regression", "two"])
def test_a_line_for_each_row_is_what_the_library_predicts(run, folder: Path, kind: str) -> None:
    X = zarr.open_array(str(folder / "x.zarr"))[:]
    model = dlatent.load(folder / f"{kind}.zarr")
    said = run("predict", folder / f"{kind}.zarr", folder / "x.zarr", "--scores", "--variance", "--quiet")
    assert said.status == 0, said.err
    found = table(said.out)
    assert found["row"] == tuple(map(str, range(N)))
    values, variance = model.predict(X, return_variance=True)
    names = model.result_["target"].values
    if kind == "class":
        assert list(found["label"]) == values.tolist()
    else:
        expected = values.reshape(N, -1)
        for name, column in zip(names, expected.T, strict=True):
            assert np.array_equal(np.array(found[f"output_{name}"], dtype=expected.dtype), column)
    labels = kind in ("class", "multilabel")
    score, each = ("probability", model.predict_proba) if labels else ("score", model.decision_function)
    for name, column, one in zip(names, each(X).T, variance, strict=True):
        assert np.array_equal(np.array(found[f"{score}_{name}"], dtype=float), column)
        assert np.array_equal(np.array(found[f"variance_{name}"], dtype=float), np.full(N, one))
    plain = table(run("predict", folder / f"{kind}.zarr", folder / "x.zarr").out)
    assert list(plain) == [name for name in found if not name.startswith(("probability", "score", "variance"))]


def test_a_mixture_predicts_components_and_their_parts(run, folder: Path) -> None:
    X = zarr.open_array(str(folder / "x.zarr"))[:]
    model = dlatent.load(folder / "mixture.zarr")
    found = table(run("predict", folder / "mixture.zarr", folder / "x.zarr", "--scores").out)
    assert list(found) == ["row", "component", "part_0", "part_1"]
    assert list(map(int, found["component"])) == model.predict(X).tolist()
    assert np.array_equal(np.array(found["part_1"], dtype=float), model.predict_proba(X)[:, 1])
    said = run("predict", folder / "mixture.zarr", folder / "x.zarr", "--variance")
    assert said.status == 3
    assert "omit --variance" in said.err


def test_a_view_is_named(run, folder: Path) -> None:
    model, other = dlatent.load(folder / "views.zarr"), zarr.open_array(str(folder / "other.zarr"))[:]
    found = table(run("predict", folder / "views.zarr", folder / "other.zarr", "--view", "two").out)
    assert list(found["label"]) == model.predict({"two": other}).tolist()
    for words in ([], ["--view", "three"]):
        said = run("predict", folder / "views.zarr", folder / "other.zarr", *words)
        assert said.status == 3
        assert "the views one, two; say with --view" in said.err
    said = run("predict", folder / "class.zarr", folder / "x.zarr", "--view", "one")
    assert "no views; omit --view" in said.err


def test_rows_keep_their_names(run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,a,b,c,d,e,f\nfirst,1,2,3,4,5,6\nsecond,6,5,4,3,2,1\n")
    assert run("ingest", tmp_path / "x.csv", tmp_path / "x.zarr", "--ids", "id").status == 0
    found = table(run("predict", folder / "regression.zarr", tmp_path / "x.zarr").out)
    assert found["row"] == ("first", "second")


def test_the_file_comes_as_a_whole_and_replaces_none(run, folder: Path, tmp_path: Path) -> None:
    words = ("predict", folder / "class.zarr", folder / "x.zarr", "-o", tmp_path / "labels.csv")
    assert run(*words).status == 0
    text = (tmp_path / "labels.csv").read_text()
    assert text == run("predict", folder / "class.zarr", folder / "x.zarr").out
    said = run(*words)
    assert said.status == 3
    assert "--overwrite" in said.err
    assert run(*words, "--overwrite").status == 0
    assert run("predict", folder / "class.zarr", folder / "other.zarr", *words[3:], "--overwrite").status == 3
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]
    assert (tmp_path / "labels.csv").read_text() == text
    said = run("predict", folder / "class.zarr", folder / "x.zarr", "-o", tmp_path / "absent" / "labels.csv")
    assert said.status == 3
    assert "there is no directory" in said.err


def test_a_model_without_labels_predicts_none(run, folder: Path) -> None:
    said = run("predict", folder / "ppca.zarr", folder / "x.zarr")
    assert said.status == 3
    assert "holds a PPCA, which predicts no labels" in said.err


PICTURES = [
    ("spectrum", "ppca", []),
    ("explained-variance", "ppca", []),
    ("history", "ppca", []),
    ("loadings", "fa", ["--component", "1", "--top", "3"]),
    ("map", "ppca", ["--shape", "2,3"]),
    ("scores", "scores", []),
    ("scores", "scores", ["--components", "1,0", "--labels", "labels.csv#label"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("picture", "store", "words"), PICTURES)
def test_pictures_are_drawn(run, folder: Path, tmp_path: Path, monkeypatch, picture: str, store: str, words) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("transform", folder / "ppca.zarr", folder / "x.zarr", "-o", "scores.zarr", "--quiet").status == 0
    assert run("predict", folder / "class.zarr", folder / "x.zarr", "-o", "labels.csv").status == 0
    path = "scores.zarr" if store == "scores" else folder / f"{store}.zarr"
    assert run("plot", picture, path, "-o", "picture.png", *words).status == 0
    image = matplotlib.image.imread("picture.png")
    assert min(image.shape[:2]) > 400
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 10
    assert run("plot", picture, path, "-o", "picture.svg", *words).status == 0
    assert "<svg" in Path("picture.svg").read_text()


def test_what_cannot_be_drawn_is_said(run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.png"
    for words, said in (
        (["spectrum", folder / "fa.zarr"], "own noise variance"),
        (["loadings", folder / "ppca.zarr", "--component", "7"], "7"),
        (["map", folder / "ppca.zarr"], "shape of an image"),
        (["map", folder / "ppca.zarr", "--shape", "5,5"], "no image of 5 × 5"),
        (["scores", folder / "x.zarr"], "holds no scores"),
        (["spectrum", folder / "absent.zarr"], "absent.zarr"),
    ):
        ended = run("plot", *words, "-o", out)
        assert ended.status == 3, ended.err
        assert said in ended.err
    assert run("plot", "spectrum", folder / "ppca.zarr", "-o", tmp_path / "picture.nothing").status == 3
    assert list(tmp_path.iterdir()) == []
