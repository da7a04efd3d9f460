"""The first screen of the README: its code runs, and its picture is of it."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from sklearn.datasets import load_digits

from dlatent.engine.machine import NO_HANGS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_code_fills_in_and_guesses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "__readme__"}
    (code, *_) = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    exec(code, names)
    true, digits = load_digits(return_X_y=True)
    lost = np.isnan(names["X"])
    assert 0.28 < lost.mean() < 0.32
    by_mean = np.broadcast_to(np.nanmean(names["X"], axis=0), true.shape)
    errors = [np.sqrt(np.mean((guess - true)[lost] ** 2)) for guess in (names["filled"], by_mean)]
    assert errors[0] < 0.75 * errors[1]
    unseen = names["some"] == -1
    assert np.mean(names["guessed"][unseen] == digits[unseen]) > 0.7


@pytest.mark.slow
def test_its_commands_run_one_after_the_other(tmp_path: Path) -> None:
    section = README.partition("## From the command line")[2]
    commands = re.search(r"```bash\n(.*?)```", section, flags=re.DOTALL)[1]
    program = shlex.quote(sys.executable)
    shell = f'set -e\npython() {{ {program} "$@"; }}\ndlatent() {{ {program} -m dlatent.cli.main "$@"; }}\n{commands}'
    subprocess.run(["bash", "-c", shell], cwd=tmp_path, check=True, timeout=300)
    guessed, true = (
        np.loadtxt(tmp_path / name, delimiter=",", skiprows=1)[:, -1] for name in ("guesses.csv", "digits.csv")
    )
    assert np.mean(guessed == true) > 0.9
    assert matplotlib.image.imread(tmp_path / "scores.png").std() > 0.1


def test_its_cluster_is_one_that_doctor_finds_right() -> None:
    settings = re.search(r"dask\.config\.set\((\{.*?\})\)", README.partition("## On a cluster")[2])[1]
    assert ast.literal_eval(settings).items() >= NO_HANGS.items()


def test_its_pictures_and_pages_are_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []
    picture = matplotlib.image.imread(ROOT / "docs" / "images" / "digits.png")
    assert picture.std() > 0.1


def test_the_pages_for_language_models_are_there() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\.html\)", text)
    pages = [ROOT / "docs" / f"{link}{ending}" for link in links for ending in (".md", ".rst")]
    assert len(links) > 20
    assert sum(page.exists() for page in pages) == len(links)
