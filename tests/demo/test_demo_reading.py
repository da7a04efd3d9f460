"""Reading modules: words, imports and what cannot be read, on sources whose answers are known."""

import io
import sysconfig
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlatent.demo import reading
from dlatent.demo.processes import read_modules
from dlatent.demo.reading import ModuleFile, choose, find_modules, installed_folders, read_module
from dlatent.errors import DataError


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, text: str | bytes, name: str = "pack.mod") -> reading.ModuleText:
    return read_module(ModuleFile(name, write(path, text)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("snake_case_name", ["snake", "case", "name"]),
        ("CamelCaseName", ["camel", "case", "name"]),
        ("read_HTTPHeader2", ["read", "http", "header"]),
        ("HTTPServer", ["http", "server"]),
        ("float64", ["float"]),
        ("x_ab_abc", ["abc"]),
        ("__init__", ["init"]),
        ("a" * 25, ["a" * 25]),
        ("a" * 26, []),
        ("größe", []),
        ("café_menu", []),
    ],
)
def test_identifiers_are_split_into_words(name: str, words: list[str]) -> None:
    assert reading.split_words(name) == words


def test_words_come_from_identifiers_comments_and_docstrings_only(tmp_path: Path) -> None:
    text = read(
        tmp_path / "mod.py",
        '"""Opening words: opening twice."""\n'
        "# A remark isn't silent\n"
        "def computeTotal(first_value):\n"
        '    """Inner\n    docstring."""\n'
        '    label = "hidden literal"  # trailing "remark"\n'
        "    another = 'x # notacomment'\n"
        "    return f'{first_value} secret'\n",
    )
    counts = dict(zip(text.words, text.counts, strict=True))
    assert counts == {
        "opening": 2, "words": 1, "twice": 1, "remark": 2, "isn": 1, "silent": 1, "def": 1, "compute": 1, "total": 1,
        "first": 1, "value": 1, "inner": 1, "docstring": 1, "label": 1, "trailing": 1, "another": 1, "return": 1,
    }  # fmt: skip
    assert list(text.words) == sorted(text.words)
    assert text.problem is None


def test_imports_are_absolute_names(tmp_path: Path) -> None:
    source = (
        "import os.path, json as j\n"
        "from a.b import c, d\n"
        "from . import near\n"
        "from .side import thing\n"
        "from .. import top\n"
        "from ..... import nowhere\n"
        "from star import *\n"
        "try:\n    import quick\nexcept ImportError:\n    import slow\n"
        "else:\n    import other\nfinally:\n    import last\n"
        "class K:\n    def m(self):\n        import lazy\n"
        "match 1:\n    case 1:\n        import cased\n"
    )
    common = {"os.path", "json", "a.b.c", "a.b.d", "star", "quick", "slow", "other", "last", "lazy", "cased"}
    module = read(tmp_path / "mod.py", source, "pack.sub.mod")
    assert set(module.imports) == common | {"pack.sub.near", "pack.sub.side.thing", "pack.top"}
    package = read(tmp_path / "__init__.py", source, "pack.sub")
    assert set(package.imports) == common | {"pack.sub.near", "pack.sub.side.thing", "pack.top"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("def broken(:\n", "syntax"),
        (b"x = 1\x00\n", "syntax"),
        ("print 'python two'\n", "syntax"),
        (b"# caf\xe9\n", "encoding"),
        ("# -*- coding: no-such-code -*-\n", "encoding"),
        ("x = 1\n" * 200_000, "size"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: str | bytes, problem: str) -> None:
    text = read(tmp_path / "mod.py", content)
    assert text.problem == problem
    assert text.words == text.imports == ()


def test_nesting_that_overflows_the_parser_is_a_problem_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path / "mod.py", "x = " + "(" * 5000 + ")" * 5000).problem == "syntax"


def test_a_file_that_vanished_is_unreadable(tmp_path: Path) -> None:
    assert read_module(ModuleFile("gone", tmp_path / "gone.py")).problem == "unreadable"


def test_declared_encodings_are_obeyed(tmp_path: Path) -> None:
    latin = read(tmp_path / "a.py", b"# -*- coding: latin-1 -*-\n# caf\xe9 visitor\n")
    marked = read(tmp_path / "b.py", b"\xef\xbb\xbf# visitor\r\nvalue = 1\r\n")
    assert "visitor" in latin.words
    assert marked.words == ("value", "visitor")


def test_modules_are_found_by_name_without_tests_and_vendored_copies(tmp_path: Path) -> None:
    for path in (
        "one/a.py", "one/__init__.py", "one/sub/b.py", "one/tests/t.py", "one/_vendor/two.py", "one/not-a-name.py",
        "one-1.0.dist-info/x.py", "two.py", "__init__.py", "notes.txt", "one/__pycache__/a.py",
    ):  # fmt: skip
        write(tmp_path / "first" / path, "")
    write(tmp_path / "second" / "two.py", "")
    write(tmp_path / "second" / "three.py", "")
    found = find_modules([tmp_path / "first", tmp_path / "second", tmp_path / "absent"])
    assert [module.name for module in found] == ["one", "one.a", "one.sub.b", "three", "two"]
    assert [module.is_package for module in found] == [True, False, False, False, False]
    assert found[-1].path == tmp_path / "first" / "two.py"


def test_a_folder_that_edges_to_itself_is_walked_once(tmp_path: Path) -> None:
    write(tmp_path / "pack" / "a.py", "")
    (tmp_path / "pack" / "again").symlink_to(tmp_path / "pack")
    assert [module.name for module in find_modules([tmp_path])] == ["pack.a"]


@given(st.sets(st.text("abcdef.", min_size=1, max_size=6), max_size=40), st.integers(0, 45))
def test_the_choice_is_a_sorted_part_that_grows_with_its_size(names: set[str], at_most: int) -> None:
    modules = [ModuleFile(name, Path(name)) for name in sorted(names)]
    chosen = choose(modules, at_most)
    assert len(chosen) == min(at_most, len(modules))
    assert choose(modules[::-1], at_most) == chosen == sorted(chosen, key=lambda module: module.name)
    assert set(chosen) <= set(choose(modules, at_most + 1))


def test_the_installed_modules_include_the_standard_library_and_its_neighbours() -> None:
    folders = installed_folders()
    assert len(set(folders)) == len(folders)
    names = {module.name for module in find_modules(folders)}
    assert {"json.decoder", "asyncio", "numpy.linalg", "scipy.sparse"} <= names
    assert not any(".tests." in name for name in names)


def test_names_and_comments_are_those_of_the_tokenizer() -> None:
    def by_tokenizer(source: str) -> Counter[str]:
        names: Counter[str] = Counter()
        inside = 0  # since Python 3.12 the tokenizer looks into f-strings; a string is a string here
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            inside += (tokenize.tok_name[token.type] == "FSTRING_START") - (
                tokenize.tok_name[token.type] == "FSTRING_END"
            )
            if inside:
                continue
            if token.type == tokenize.NAME:
                names[token.string] += 1
            elif token.type == tokenize.COMMENT:
                names.update(reading._NAME.findall(token.string))
        return Counter({name: n for name, n in names.items() if len(name) > 2})

    for name in ("ast", "argparse", "inspect", "tokenize", "re/_parser"):
        path = Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py"
        source = path.read_text(encoding="utf-8")
        ours = Counter({name: n for name, n in Counter(reading._spoken(source)).items() if len(name) > 2})
        assert ours == by_tokenizer(source), path


def test_several_processes_read_what_one_reads(tmp_path: Path) -> None:
    sources = [f"value_{letter}xyz = 1  # caf\u00e9 remark\nimport {letter}.b\n" for letter in "abcdef"]
    modules = [
        ModuleFile(f"m{i}", write(tmp_path / f"m{i}.py", source)) for i, source in enumerate([*sources, "def ("])
    ]
    alone = read_modules(modules)
    assert [text.name for text in alone] == [module.name for module in modules]
    assert alone[0].words == ("axyz", "import", "remark", "value")
    assert alone[-1].problem == "syntax"
    assert read_modules(modules, processes=2) == read_modules(modules, processes=3) == alone
    assert read_modules(modules[:1], processes=8) == alone[:1]
    assert read_modules([], processes=2) == []


def test_a_reader_that_dies_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = write(tmp_path / "reading.py", "raise SystemExit('out of luck')\n")
    monkeypatch.setattr(reading, "__file__", str(broken))
    modules = [ModuleFile(f"m{i}", tmp_path / f"m{i}.py") for i in range(4)]
    with pytest.raises(DataError, match=r"2 modules from m0 to m2 ended with status 1 \(out of luck\).*processes=1"):
        read_modules(modules, processes=2)
