"""What is kept of the notebooks is what a clean run gives: whole, in order, small, and without traces of a machine."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
LARGEST_PICTURE = 300_000
MACHINE = re.compile(r"(?<![\w./:])(/(home|root|tmp|usr|opt|var|work|mnt|Users|private)/|[A-Z]:\\)|\bline \d+, in ")


def code(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def outputs(notebook: Path) -> list[dict[str, Any]]:
    return [output for cell in code(notebook) for output in cell["outputs"]]


def printed(output: dict[str, Any]) -> str:
    """All texts of an output, of all kinds."""
    kinds = {kind: text for kind, text in output.get("data", {}).items() if not kind.startswith("image/")}
    return "".join("".join(text) for text in (output.get("text", []), *kinds.values()))


def test_the_table_has_every_notebook() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(\w+)\]\(\1\.ipynb\) \|", table, flags=re.MULTILINE)
    assert {f"{name}.ipynb" for name in re.findall(r"\((\w+)\.ipynb\)", table)} == {path.name for path in NOTEBOOKS}


def test_the_documentation_shows_every_notebook_under_its_title() -> None:
    page = (EXAMPLES.parent / "docs" / "tutorials.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^## \[(.+)\]\(tutorials/(\w+)\.md\)$", page, flags=re.MULTILINE))
    titles = [json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"][0] for path in NOTEBOOKS]
    assert shown == {title.removeprefix("# ").strip(): path.stem for title, path in zip(titles, NOTEBOOKS, strict=True)}
    for name, number in re.findall(r"\(tutorials/(\w+)_(\d)\.png\)", page):
        drawn = [one for one in outputs(EXAMPLES / f"{name}.ipynb") if "image/png" in one.get("data", {})]
        assert int(number) <= len(drawn)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_has_run_once_and_in_order(notebook: Path) -> None:
    cells = code(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    excused = [cell for cell in cells if {"skip-execution", "raises-exception"} & {*cell["metadata"].get("tags", [])}]
    assert not excused, "a cell that is skipped or may fail is not tested"
    assert "execution" not in json.loads(notebook.read_text(encoding="utf-8"))["metadata"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_output_is_without_warnings_and_paths(notebook: Path) -> None:
    for output in outputs(notebook):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", printed(output)
        assert "Warning" not in printed(output)
        assert not (found := MACHINE.search(printed(output))), found


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_pictures_are_there_and_small_and_a_number_ends_it(notebook: Path) -> None:
    pictures = [output["data"]["image/png"] for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert pictures
    assert max(len(base64.b64decode(picture)) for picture in pictures) < LARGEST_PICTURE
    ends = [output for output in code(notebook)[-1]["outputs"] if output["output_type"] == "stream"]
    assert re.search(r"\d", printed(ends[-1]).strip().splitlines()[-1])
