"""The demonstration: its papers are as they are described, and it ends on every machine as the README prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dlatent
from dlatent.cli.main import main
from examples.demo import papers

ROOT = Path(__file__).parents[2]
WRITTEN = ["citations.zarr", "papers.npz", "scores.png", "words.zarr"]
MODELS = {"PPCA": "PPCA", "PRPCA": "RelationalPPCA", "S²PPCA": "SupervisedPPCA"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    pytest.importorskip("matplotlib", reason="the demonstration draws a picture, and matplotlib is not installed")
    command = [sys.executable, "-m", "examples.demo", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def numbers(text: str, name: str) -> list[float]:
    """Errors, log-likelihood and passes of a line of the table; bytes and seconds are of a machine."""
    (line,) = re.findall(rf"^ *{name} {{2,}}(.+)$", text, flags=re.MULTILINE)
    return [float(cell.replace(",", "").replace("–", "nan")) for cell in line.split()[:5]]


@pytest.mark.slow
def test_it_ends_as_the_readme_prints(told: tuple[Path, str]) -> None:
    _, said = told
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("the words alone", *MODELS):
        # To the rounding of another kind of processor.
        np.testing.assert_allclose(numbers(readme, name), numbers(said, name), rtol=1e-6, atol=0.002)
    words, ppca, relational, supervised = (numbers(said, name)[1] for name in ("the words alone", *MODELS))
    assert relational < 0.6 * min(words, ppca, supervised)
    verdicts = said[said.index("PRPCA against PPCA") : said.index("\n\nThe picture")]
    assert len(verdicts.splitlines()) == 5
    assert re.search(r"^ *1-NN error .*", said, flags=re.MULTILINE)[0] in readme
    assert verdicts in readme


@pytest.mark.slow
def test_the_table_holds_what_the_saved_models_say(told: tuple[Path, str]) -> None:
    folder, said = told
    saved = [f"{name}.zarr" for name in MODELS.values()]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*WRITTEN, *saved])
    for name, place in zip(MODELS, saved, strict=True):
        model = dlatent.load(folder / place)
        assert numbers(said, name)[3:] == [round(model.log_likelihood_), model.n_passes_]
    assert model.result_["view_samples"].values.tolist() == [3000, 40]  # told no more than it should be
    assert model.classes_.tolist() == sorted(papers.TOPICS)


@pytest.mark.slow
def test_what_to_type_next_works(told: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    steps = told[1].split("What to type next:\n")[1].splitlines()
    assert len(steps) == 3
    for step in steps:
        program, *words = shlex.split(step)
        assert program == "dlatent"
        assert main(words) == 0, step


def test_papers_are_as_they_are_described(tmp_path: Path) -> None:
    papers.write_papers(tmp_path / "papers.npz", papers=400)
    with np.load(tmp_path / "papers.npz") as file:
        lengths = np.add.reduceat(file["X_data"], file["X_indptr"][:-1])
        topics, edges = file["y"], file["edges"]
        assert file["class_names"].tolist() == sorted(papers.TOPICS)
    assert lengths.tolist() == [papers.LENGTH] * 400
    assert set(topics) == set(range(len(papers.TOPICS)))
    within = topics[edges[:, 0]] == topics[edges[:, 1]]
    np.testing.assert_allclose(within.mean(), papers.WITHIN + (1 - papers.WITHIN) / 8, atol=0.05)
    assert (edges[:, 0] != edges[:, 1]).all()
    np.testing.assert_array_equal(np.unique(edges, axis=0), edges)


def test_few_are_told_evenly_and_always_the_same() -> None:
    demo = pytest.importorskip("examples.demo.__main__", reason="the demonstration draws with matplotlib")
    topics = np.random.default_rng(1).integers(3, size=60)
    known = demo.told(topics)
    assert np.bincount(topics[known]).tolist() == [demo.LABELLED] * 3
    np.testing.assert_array_equal(known, demo.told(topics))


def test_the_verdict_is_that_of_chance() -> None:
    verdict = pytest.importorskip("examples.demo.__main__", reason="the demonstration draws with matplotlib").verdict
    right, wrong = np.zeros(100, dtype=bool), np.ones(100, dtype=bool)
    assert verdict(right, wrong) == "better"
    assert verdict(wrong, right) == "worse"
    assert verdict(right, right) == "no difference beyond chance"
    assert verdict(right, np.arange(100) < 3) == "no difference beyond chance"
    assert verdict(right, np.arange(100) < 4) == "better"
