"""The demonstration on a small invented corpus: what it writes, says and measures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import dlatent
from dlatent.cli.main import main
from dlatent.demo import papers
from dlatent.demo import story as telling
from dlatent.demo.corpus import Corpus
from dlatent.demo.findings import COLUMNS, verdict
from dlatent.demo.footprint import Footprint
from dlatent.demo.nearest import directions, mistakes, of_array, of_source
from dlatent.demo.picture import largest, plane
from dlatent.demo.story import Say, Story, choose, tell
from dlatent.stores.graph import open_graph
from dlatent.stores.open import open as open_source

PACKAGES = ("ant", "bee", "cat")
WRITTEN = ["corpus.npz", "graph.zarr", "ppca.zarr", "prpca.zarr", "s2ppca.zarr", "scores.png", "words.zarr"]


def invented(rows: int = 90, words: int = 60) -> Corpus:
    """Modules of three packages, each with words of its own that some modules do not use, and one module of none.

    Each imports the next one of its package, and one in five the one after it, which is of another.
    """
    rng = np.random.default_rng(7)
    labels = np.arange(rows) % 3
    counts = rng.poisson(0.5, (rows, words))
    for number in range(3):
        counts[labels == number, number * 10 : number * 10 + 10] += rng.poisson(1.0, ((labels == number).sum(), 10))
    counts[:, -1] += 1
    labels[-1] = -1
    packages = np.array([PACKAGES[label] if label >= 0 else "dog" for label in labels])
    return Corpus(
        sp.csr_array(counts),
        np.array([f"word{j:02}" for j in range(words)]),
        np.array([f"{package}.m{i:02}" for i, package in enumerate(packages)]),
        packages,
        labels.astype(np.int64),
        np.array(PACKAGES),
        np.array([(i, i + 3) for i in range(rows - 3)] + [(i, i + 1) for i in range(0, rows - 1, 5)]),
    )


@dataclass(frozen=True)
class Told:
    story: Story
    said: list[str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    pytest.importorskip("matplotlib", reason="the demonstration draws a picture, and matplotlib is not installed")
    folder = tmp_path_factory.mktemp("demo") / "out"
    folder.mkdir()
    (folder / "mine.txt").write_text("not of the demonstration")
    (folder / "scores.png").write_text("of an earlier run")
    said: list[str] = []
    return Told(tell(folder, invented(), say=said.append, components=3, labelled=4), said)


def test_everything_is_written_and_nothing_else_is_touched(told: Told) -> None:
    folder = told.story.folder
    assert sorted(path.name for path in folder.iterdir()) == sorted([*WRITTEN, "mine.txt"])
    assert (folder / "mine.txt").read_text() == "not of the demonstration"
    assert (folder / "scores.png").read_bytes().startswith(b"\x89PNG")
    assert dlatent.load(folder / "s2ppca.zarr").classes_.tolist() == list(PACKAGES)


def test_the_table_holds_what_the_saved_models_say(told: Told) -> None:
    folder, task = told.story.folder, choose(invented(), 4)
    assert [line.name for line in told.story.lines] == ["the words alone", "PPCA", "PRPCA", "S²PPCA"]
    for line, name in zip(told.story.lines[1:], ("ppca", "prpca", "s2ppca"), strict=True):
        model = dlatent.load(folder / f"{name}.zarr")
        scores = model.transform(folder / "words.zarr")
        np.testing.assert_array_equal(line.wrong, mistakes(of_array(scores), task.classes, task.known))
        assert line.cost is not None
        assert (line.cost.log_likelihood, line.cost.passes) == (model.log_likelihood_, model.n_passes_)
        assert line.cost.bytes_read == int(model.history_["pass_bytes_read"].sum()) > 0
        assert line.cost.peak_memory > 100e6
        assert len(line.cells) == len(COLUMNS)
        assert line.wrong.mean() < 0.6
    words = mistakes(of_source(open_source(folder / "words.zarr")), task.classes, task.known)
    np.testing.assert_array_equal(told.story.lines[0].wrong, words)
    assert told.story.lines[0].cells[1:] == (f"{words.mean():.3f}", f"{words.mean():.3f}", *["–"] * 6)


def test_the_prediction_is_that_of_the_saved_model(told: Told) -> None:
    folder, corpus, task = told.story.folder, invented(), choose(invented(), 4)
    wrong = dlatent.load(folder / "s2ppca.zarr").predict(folder / "words.zarr") != corpus.groups
    asked = np.setdiff1d(np.flatnonzero(task.classes >= 0), task.known)
    *others, supervised = told.story.lines
    np.testing.assert_array_equal(supervised.predicted_wrong, wrong[asked])
    assert [line.predicted_wrong for line in others] == [None] * 3


@pytest.mark.slow
def test_papers_end_alike_on_every_machine_as_the_readme_prints(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the demonstration draws a picture, and matplotlib is not installed")
    story = tell(tmp_path, papers.invent(), say=print, components=papers.COMPONENTS)
    words, ppca, relational, supervised = (line.wrong_by_angle.mean() for line in story.lines)
    assert relational < 0.6 * min(words, ppca, supervised)
    assert "PRPCA against PPCA: better by distance and by cosine distance." in story.summary
    assert "PRPCA against the words alone: better by distance and by cosine distance." in story.summary
    assert "S²PPCA's prediction against the nearest neighbour in PPCA by cosine distance: better." in story.summary
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert re.split(" {2,}", readme.split("1-NN error", 1)[1].split("\n", 1)[0])[1:] == [*COLUMNS[2:]]
    for line in story.lines:
        (printed,) = re.findall(rf"^ {line.name} {{2,}}(.+)$", readme, flags=re.MULTILINE)
        # What a model finds, to the rounding of another kind of processor; bytes, seconds and memory are of a machine.
        for shown, found in zip(printed.split()[:5], line.cells[1:6], strict=True):
            numbers = [float(cell.replace(",", "").replace("–", "nan")) for cell in (shown, found)]
            np.testing.assert_allclose(*numbers, rtol=1e-6, atol=0.002)
    assert story.summary.split("\n1-NN error")[0] in readme


def test_papers_are_as_they_are_described() -> None:
    corpus = papers.invent(papers=400)
    assert corpus.counts.sum(axis=1).tolist() == [papers.LENGTH] * 400
    assert sorted(set(corpus.groups)) == sorted(papers.TOPICS) == corpus.class_names.tolist()
    np.testing.assert_array_equal(corpus.groups, corpus.class_names[corpus.labels])
    within = corpus.groups[corpus.edges[:, 0]] == corpus.groups[corpus.edges[:, 1]]
    np.testing.assert_allclose(within.mean(), papers.WITHIN + (1 - papers.WITHIN) / 8, atol=0.05)
    assert (corpus.edges[:, 0] != corpus.edges[:, 1]).all()
    np.testing.assert_array_equal(np.unique(corpus.edges, axis=0), corpus.edges)


def test_the_semi_supervised_model_was_told_no_more_than_it_should_be(told: Told) -> None:
    result = dlatent.load(told.story.folder / "s2ppca.zarr").result_
    assert result["view_samples"].values.tolist() == [90, 12]


def test_the_relational_model_was_told_the_imports_and_no_package(told: Told) -> None:
    folder, corpus = told.story.folder, invented()
    again = dlatent.RelationalPPCA(3).fit(
        folder / "words.zarr", graph=open_graph(corpus.edges, samples=90, direction="symmetrise")
    )
    np.testing.assert_array_equal(dlatent.load(folder / "prpca.zarr").components_, again.components_)
    assert "105 edges, 82% of the imports within a package, 0 modules without an edge" in "\n".join(told.said)


def test_the_steps_are_said_and_what_to_type_next_works(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(told.said)
    for words in (
        "ingesting",
        "imports",
        "local cluster",
        "PPCA with 3",
        "PRPCA",
        "12 modules",
        "Guessing the package of 77",
        "Saved",
    ):
        assert words in text
    steps = told.story.next_steps("bin/dlatent", "bin/python")
    for step in steps[:3]:
        program, *words = step.split()
        assert program == "bin/dlatent"
        assert main(words) == 0, step
    capsys.readouterr()
    code = steps[3].removeprefix('bin/python -c "').removesuffix('"')
    exec(code)
    assert "'bee'" in capsys.readouterr().out


def test_labels_are_drawn_evenly_and_always_the_same() -> None:
    corpus = invented()
    task = choose(corpus, 4)
    assert np.bincount(corpus.labels[task.known]).tolist() == [4, 4, 4]
    np.testing.assert_array_equal(task.known, choose(corpus, 4).known)
    labelled = [row for row, target in enumerate(task.targets) if target is not None]
    assert labelled == task.known.tolist()
    assert all(task.targets[row] == corpus.groups[row] for row in labelled)


def test_a_corpus_without_classes_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    few = invented()
    alone = Corpus(few.counts, few.terms, few.names, few.groups, few.labels, few.class_names[:1], few.edges)
    with pytest.raises(dlatent.DataError, match="needs two"):
        tell(tmp_path / "out", alone, say=print)
    with pytest.raises(dlatent.DataError, match="no more than 30"):
        tell(tmp_path / "out", few, say=print, labelled=30)
    assert not list(tmp_path.iterdir())


def test_neighbours_are_those_of_a_full_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlatent.demo.nearest.ROWS", 7)
    rng = np.random.default_rng(2)
    rows, classes = rng.standard_normal((40, 3)), rng.integers(-1, 4, 40)
    known = np.flatnonzero(classes >= 0)[::4]
    found = mistakes(of_array(rows), classes, known)
    expected = []
    for i in range(40):
        if classes[i] >= 0 and i not in known:
            distances = [np.linalg.norm(rows[i] - rows[j]) for j in known]
            expected.append(classes[known[np.argmin(distances)]] != classes[i])
    assert found.tolist() == expected
    assert 0 < found.mean() < 1


def test_directions_have_length_one_and_zeros_stay() -> None:
    found = directions(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]])


def test_the_verdict_is_that_of_chance() -> None:
    right, wrong = np.zeros(100, dtype=bool), np.ones(100, dtype=bool)
    assert verdict(right, wrong) == "better"
    assert verdict(wrong, right) == "worse"
    assert verdict(right, right) == "no difference beyond chance"
    mixed = np.arange(100) < 3
    assert verdict(right, mixed) == "no difference beyond chance"
    assert verdict(right, np.arange(100) < 4) == "better"


def test_the_plane_shows_the_packages_apart_and_names_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    labels = np.arange(60) % 3
    scores = 0.05 * rng.standard_normal((60, 5))
    scores[np.arange(60), 2 + labels] += 1
    names = [PACKAGES[label] for label in labels]
    seen = plane(scores, names, np.arange(12))
    means = np.stack([seen[labels == number].mean(axis=0) for number in range(3)])
    apart = np.linalg.norm(means[:, None] - means[None], axis=2)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(apart, np.sqrt(2), rtol=0.05)
    assert (seen[labels == 0].mean(axis=0) >= -1e-2).all()
    monkeypatch.setattr("dlatent.demo.picture.LARGEST", 1)
    of = largest(np.array(["a", "b", "b", "c", "c", "c"]), np.array([0, 1, 1, -1, -1, -1]))
    assert of == [None, "b", "b", None, None, None]


def test_the_footprint_sees_memory_come_and_go() -> None:
    with Footprint([]) as before:
        pass
    with Footprint([]) as during:
        block = np.ones(30_000_000)
        assert block[0] == 1
    del block
    assert during.peak > before.peak + 200e6


def test_the_command_shows_the_story(
    told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def retold(folder: Path, corpus: Corpus, *, say: Say, components: int = 20) -> Story:
        say(f"{len(corpus.names)} documents into {folder}, {components} components")
        return told.story

    def read(modules: int, say: Say) -> Corpus:
        say(f"{modules} modules at most")
        return invented()

    monkeypatch.setattr(telling, "tell", retold)
    monkeypatch.setattr(telling, "read_modules", read)
    assert main(["demo", "--folder", tmp_path / "x", "--modules", "12"]) == 0
    said = capsys.readouterr().out
    assert f"3000 documents into {tmp_path / 'x' / 'papers'}, 8 components" in said
    assert f"12 modules at most\n90 documents into {tmp_path / 'x' / 'modules'}, 20 components" in said
    for line in told.story.lines:
        assert line.cells[1] in said
    for one in ("PRPCA", "S²PPCA"):
        for other in ("PPCA", "the words alone"):
            assert said.count(f"{one} against {other}: ") == 2
    assert "What to type next" in said
    assert f"inspect {told.story.folder / 's2ppca.zarr'}" in said
