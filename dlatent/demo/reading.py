"""Find the Python modules installed on this machine and read each as words and imports, without importing any of them.

Only the standard library is needed here, and the file can be run by itself: `processes` starts it so, because a process
that had to import the package first would spend its time on that.
"""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import io
import json
import re
import site
import sys
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

LARGEST_FILE = 1 << 20
"""Bytes; longer files are tables that a program wrote."""

_LEFT_OUT = frozenset({"__pycache__", "test", "tests", "idle_test", "_vendor"})
_CAPITALS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME = re.compile(r"\b[^\W\d]\w*")
# Comments (the group) and string literals, in source that has been parsed before: four times faster than tokenize.
_COMMENT_OR_STRING = re.compile(
    r"""(\#[^\n]*)
    | \"{3} [^"\\]* (?: (?:\\. | "(?!"")) [^"\\]* )* \"{3}
    | \'{3} [^'\\]* (?: (?:\\. | '(?!'')) [^'\\]* )* \'{3}
    | " [^"\\\n]* (?: \\. [^"\\\n]* )* "
    | ' [^'\\\n]* (?: \\. [^'\\\n]* )* '""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class ModuleFile:
    """A module by its dotted name, and the file that holds its source."""

    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        """Whether the file is the `__init__.py` of a package: relative imports then start at the name itself."""
        return self.path.name == "__init__.py"


@dataclass(frozen=True)
class ModuleText:
    """What a module says: its words with their counts, and the absolute dotted names that it imports.

    `digest` identifies equal sources.  `problem` is None, or why the file could not be read ("size", "encoding",
    "syntax", "unreadable"); words and imports are then empty.
    """

    name: str
    digest: str = ""
    words: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    imports: tuple[str, ...] = ()
    problem: str | None = None


def installed_folders() -> list[Path]:
    """Folders with the standard library and the installed packages of this interpreter, each once."""
    paths = sysconfig.get_paths()
    named = [paths["stdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages()]
    return list(dict.fromkeys(folder.resolve() for folder in map(Path, named) if folder.is_dir()))


def find_modules(folders: Sequence[Path]) -> list[ModuleFile]:
    """All modules under the folders, sorted by name; tests and vendored copies of other packages are left out.

    A name that occurs in two folders belongs to the first, as it does for the interpreter.
    """
    found: dict[str, ModuleFile] = {}
    for folder in folders:
        for module in _walk(folder, ()):
            found.setdefault(module.name, module)
    return [found[name] for name in sorted(found)]


def _walk(folder: Path, package: tuple[str, ...]) -> Iterator[ModuleFile]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # a folder that this user may not list has nothing to say
        return
    for entry in entries:
        stem = entry.name.removesuffix(".py")
        if not stem.isidentifier() or stem in _LEFT_OUT:
            continue
        if stem != entry.name and entry.is_file():
            parts = package if stem == "__init__" else (*package, stem)
            if parts:
                yield ModuleFile(".".join(parts), entry)
        elif stem == entry.name and entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, (*package, stem))


def choose(modules: Sequence[ModuleFile], at_most: int) -> list[ModuleFile]:
    """At most so many modules, drawn evenly by a hash of the name: the same ones on every run, in the same order."""
    drawn = sorted(modules, key=lambda module: hashlib.sha256(module.name.encode()).digest())[:at_most]
    return sorted(drawn, key=lambda module: module.name)


def read_module(module: ModuleFile) -> ModuleText:
    """Words and imports of one module; a file that cannot be read is a value that says why, not an error."""
    try:
        if module.path.stat().st_size > LARGEST_FILE:
            return ModuleText(module.name, problem="size")
        raw = module.path.read_bytes()
    except OSError:
        return ModuleText(module.name, problem="unreadable")
    try:
        source = _decode(raw)
    except (SyntaxError, UnicodeError, LookupError):
        return ModuleText(module.name, problem="encoding")
    try:
        tree = _parse(source)
        texts = Counter(_spoken(source))
        docstrings, imports = _declared(tree, module)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ModuleText(module.name, problem="syntax")
    for docstring in docstrings:
        texts.update(_NAME.findall(docstring))
    counts = _count_words(texts)
    return ModuleText(
        module.name,
        digest=hashlib.sha256(raw).hexdigest(),
        words=tuple(counts),
        counts=tuple(counts.values()),
        imports=tuple(sorted(imports)),
    )


def split_words(name: str) -> list[str]:
    """Lower-case words of an identifier: `read_HTTPHeader2` gives read, http, header; 3 to 25 letters, ASCII only."""
    if not name.isascii():
        return []
    return [word.lower() for word in _CAPITALS.findall(name) if 3 <= len(word) <= 25]


_split = functools.lru_cache(maxsize=1 << 17)(split_words)


def _decode(raw: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return io.TextIOWrapper(io.BytesIO(raw), encoding).read()


def _parse(source: str) -> ast.Module:
    collecting = gc.isenabled()
    gc.disable()  # a tree has no cycles, and searching its many nodes for some doubles the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escape sequences in other people's strings
            return ast.parse(source)
    finally:
        if collecting:
            gc.enable()


def _spoken(source: str) -> list[str]:
    """Identifiers, keywords and the words of comments, as written."""
    return _NAME.findall(_COMMENT_OR_STRING.sub(lambda found: found[1] or " ", source))


def _count_words(texts: Counter[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for text, times in texts.items():
        for word in _split(text):
            counts[word] += times
    return {word: counts[word] for word in sorted(counts)}


def _declared(tree: ast.Module, module: ModuleFile) -> tuple[list[str], set[str]]:
    """Docstrings and imported names; descends into statements only, because nothing else can hold either."""
    docstrings: list[str] = []
    imports: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstrings += filter(None, [ast.get_docstring(node, clean=False)])
        elif isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.update(_imported_from(node, module))
        waiting.extend(_substatements(node))
    return docstrings, imports


def _substatements(node: ast.AST) -> Iterator[ast.AST]:
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, None)
        if isinstance(inner, list):  # the body of a lambda or of a conditional expression is no list
            yield from inner


def _imported_from(node: ast.ImportFrom, module: ModuleFile) -> Iterator[str]:
    """Absolute names `origin.name` of `from origin import name`; nothing where the dots lead out of the package."""
    origin = node.module or ""
    if node.level:
        parts = module.name.split(".")
        keep = len(parts) - node.level + module.is_package
        if keep < 1:
            return
        origin = ".".join(filter(None, [*parts[:keep], origin]))
    for alias in node.names:
        yield origin if alias.name == "*" else f"{origin}.{alias.name}"


def serve() -> None:
    """Read a JSON list of (name, path) from standard input and write the list of what they say to standard output."""
    modules = [ModuleFile(name, Path(path)) for name, path in json.load(sys.stdin)]
    json.dump([astuple(read_module(module)) for module in modules], sys.stdout)


if __name__ == "__main__":
    serve()
