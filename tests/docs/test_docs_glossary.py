"""The names in the glossary and on the page from MOFA2 exist: ours, and those of other libraries that are installed."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import anndata
import numpy as np
import pytest

import dlatent
from dlatent.models import MODELS
from dlatent.models.beside import Beside
from dlatent.models.docstrings import entries, parsed
from dlatent.stores.schema import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in ("glossary.md", "howto/mofa2.md"))


class Table(NamedTuple):
    """A table of the page: its heading, and its other rows."""

    heading: list[str]
    rows: list[list[str]]


def tables() -> list[Table]:
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", PAGE, flags=re.MULTILINE):
        heading, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        found.append(Table(heading, rows))
    return found


def code(cell: str) -> list[str]:
    """The names in code of a cell, without links."""
    return re.findall(r"`([^`]+)`", re.sub(r"\[[^]]*\]\([^)]*\)", "", cell))


def resolved(dotted: str) -> Any:
    """An object by its dotted name, as far as modules go by import."""
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module) if "." in module or module else dlatent, name)


def names_of(found: Any) -> set[str]:
    """Parameters, methods, and documented attributes, which fitted models have."""
    parameters = set(inspect.signature(found).parameters)
    if not inspect.isclass(found):
        return parameters
    public = {name: member for name, member in inspect.getmembers(found) if not name.startswith("_")}
    given = {key for own in public.values() if inspect.isfunction(own) for key in inspect.signature(own).parameters}
    given |= set(Beside.__annotations__) if "beside" in given else set()
    attributes = set(re.findall(r"^ *(\w+_) : ", found.__doc__ or "", flags=re.MULTILINE))
    return parameters | set(public) | attributes | (given if found.__module__.startswith("dlatent") else set())


EVERYTHING = set[str]().union(*(names_of(model.load()) for model in MODELS))


def exists(name: str, within: set[str]) -> bool:
    if found := re.fullmatch(r'result_\["(\w+)"\]', name):
        return found[1] in REGISTRY
    if name.startswith("dlatent."):
        return resolved(name) is not None
    first, _, member = name.partition(".")
    if member and hasattr(dlatent, first):
        return member in names_of(getattr(dlatent, first))
    return name in within


WORDS = [table for table in tables() if table.heading == ["word", "here", "where"]]
PEERS = [table for table in tables() if table.heading[2:] == ["difference"]]


def test_the_page_has_tables_of_words_and_of_names() -> None:
    assert len(WORDS) == 3
    assert len(PEERS) >= 9
    assert len(WORDS) + len(PEERS) == len(tables())


def test_every_word_is_somewhere() -> None:
    dimensions = {dim for dims, _ in REGISTRY.values() for dim in dims} | {*REGISTRY}
    for table in WORDS:
        for word, _, where in table.rows:
            assert where, f"{word} is nowhere"
            for name in code(where):
                assert exists(name, EVERYTHING | dimensions | {"pattern_of"}), f"{word}: there is no {name}"


@pytest.mark.parametrize("table", PEERS, ids=lambda table: table.heading[0])
def test_names_of_dlatent_exist(table: Table) -> None:
    (owner,) = code(table.heading[1])
    own = names_of(resolved(owner))
    for row in table.rows:
        for name in code(row[1]):
            if "ppca" not in name:  # places in an AnnData, which are looked at below
                assert exists(name, own), f"{owner} has no {name}"


@pytest.mark.parametrize(
    "table",
    [table for table in PEERS if table.heading[0].startswith(("`sklearn", "`scanpy"))],
    ids=lambda t: t.heading[0],
)
def test_names_of_peers_exist(table: Table) -> None:
    (owner,) = code(table.heading[0])
    pytest.importorskip(owner.partition(".")[0], reason=f"{owner} is compared with what is installed")
    own = names_of(resolved(owner))
    for row in table.rows:
        for name in code(row[0]):
            if '["' not in name:  # a place in an AnnData
                assert name in own, f"{owner} has no {name}"


def test_annotate_puts_results_where_the_table_says() -> None:
    (table,) = [table for table in PEERS if "annotate" in table.heading[1]]
    adata = anndata.AnnData(np.random.default_rng(0).normal(size=(30, 4)))
    dlatent.annotate(adata, dlatent.PPCA(2))
    places = [name for row in table.rows for name in code(row[1]) if '["' in name]
    assert len(places) == 3
    for place in places:
        assert eval(f"adata.{place}", {"adata": adata}) is not None


def test_a_name_that_is_not_there_is_found() -> None:
    assert not exists("components", EVERYTHING)
    assert not exists('result_["weights"]', EVERYTHING)
    assert not exists("PPCA.communalities_", EVERYTHING)
    assert exists("FactorAnalysis.rotated", EVERYTHING)
    assert entries(parsed(dlatent.PPCA.__doc__ or "")["Attributes"]).keys() <= EVERYTHING
