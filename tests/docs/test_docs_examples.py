"""Every example of the first steps, the how-to and the model pages runs, in the order of its page, in an empty folder.

A page is a session: its `python` blocks share their variables, and the commands `dlatent ...` of its `bash` blocks find
the files that earlier blocks have written.  A comment `# exit status N` says how a command ends where that is not 0.
Every line of a `none` block has been printed before.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from dlatent.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([DOCS / "start.md", *DOCS.glob("howto/*.md"), *DOCS.glob("models/*.md")])
RUN_BY_HAND = frozenset({"make", "python", ".", "dask", "export", "sbatch"})
"""First words of commands that set up a machine; they are shown and not run here."""


@dataclass(frozen=True)
class Example:
    """A block of a page: its language, its text, and the line of the page that it begins at."""

    language: str
    text: str
    line: int


def examples(page: Path) -> Iterator[Example]:
    """The blocks of Python, of commands and of output, in order."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(python|bash|none)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield Example(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)


def commands(text: str) -> Iterator[tuple[list[str], int]]:
    """The words of each command of a block, and the exit status that its comment announces."""
    for line in text.replace("\\\n", " ").splitlines():
        announced = re.search(r"# exit status (\d+)", line)
        plain = re.sub(r"(^|\s)#.*", "", line)  # a # inside a word is no comment
        words = shlex.split(os.path.expandvars(plain))
        if words:
            yield words, int(announced[1]) if announced else 0


def run_python(example: Example, page: Path, names: dict[str, Any]) -> None:
    # Empty lines before the code make line numbers in a traceback those of the page.
    exec(compile("\n" * (example.line - 1) + example.text, str(page), "exec"), names)


def run_commands(example: Example, page: Path, capsys: pytest.CaptureFixture[str]) -> str:
    printed = ""
    for words, announced in commands(example.text):
        if words[0] in RUN_BY_HAND:
            continue
        assert words[0] == "dlatent", f"{page.name} line {example.line}: {words[0]!r} is no command that can be run"
        status = main(words[1:])
        said = capsys.readouterr()
        printed += said.out + said.err
        assert status == announced, f"{page.name}, block at line {example.line}: {shlex.join(words)}: {said.err}"
    return printed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")  # the pages tell when it comes
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for example in examples(page):
        if example.language == "python":
            run_python(example, page, names)
            printed += capsys.readouterr().out
        elif example.language == "bash":
            printed += run_commands(example, page, capsys)
        else:
            missing = set(example.text.splitlines()) - set(printed.splitlines())
            assert not missing, f"{page.name}, block at line {example.line}: these lines were not printed: {missing}"


def test_every_page_is_found_and_has_closed_blocks() -> None:
    assert len(PAGES) >= 12, f"only {len(PAGES)} pages under {DOCS}"
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("\n```") % 2 == 0, f"{page.name} has a block that is not closed"


def test_a_failing_example_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nassert 1 == 2\n```\n\n```bash\ndlatent inspect nowhere.zarr\n```\n")
    python, bash = examples(page)
    with pytest.raises(AssertionError) as failure:
        run_python(python, page, {})
    assert failure.traceback[-1].lineno == 3  # counted from 0: the fourth line of the page
    with pytest.raises(AssertionError, match=r"nowhere\.zarr"):
        run_commands(bash, page, capsys)


def test_every_command_is_in_the_table() -> None:
    from dlatent.cli.main import parser

    listed = re.findall(r"^    ([a-z-]+)(?: {2,}|$)", parser().format_help(), flags=re.MULTILINE)
    assert len(listed) > 10
    page = (DOCS / "howto" / "command_line.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `dlatent ([\w-]+)` \|", page, flags=re.MULTILINE))
    assert documented == set(listed)


def test_exit_statuses_of_the_command_line_are_documented() -> None:
    from dlatent import cli

    page = (DOCS / "howto" / "command_line.md").read_text(encoding="utf-8")
    documented = {int(number) for number in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)}
    assert documented == {value for name, value in vars(cli).items() if name.isupper() and isinstance(value, int)}
