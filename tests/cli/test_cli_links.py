"""`ingest-links` and `reorder` do what the library does, show it, and write JSON where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

from dlatent.cli.ingest_links import DIRECTIONS
from dlatent.stores.links import open_links
from dlatent.stores.links.direction import Direction
from dlatent.stores.open import open as open_data


def links_file(folder: Path) -> Path:
    """A ring of the 120 rows of the store, one link twice, one of an instance to itself."""
    walk = np.random.default_rng(1).permutation(120)
    rows = [f"{a},{b}" for a, b in zip(walk, np.roll(walk, 1), strict=True)]
    (folder / "links.csv").write_text("\n".join(["from,to", *rows, rows[0], "3,3"]) + "\n")
    return folder / "links.csv"


def test_directions_are_those_of_the_library() -> None:
    assert Direction.__args__ == DIRECTIONS  # type: ignore[attr-defined]


def test_ingest_links_reports(run, store: Path, tmp_path: Path) -> None:
    words = ["ingest-links", links_file(tmp_path), tmp_path / "links.zarr", "--data", store]
    refused = run(*words)
    assert refused.status == 3
    assert "'symmetrise'" in refused.err
    said = run(*words, "--direction", "undirected")
    assert said.status == 0, said.err
    for line in ("120, unweighted", "median 2, largest 2", "self-links dropped  1", "duplicates merged   1"):
        assert line in said.out
    assert open_links(tmp_path / "links.zarr", instances=120).entries == 240
    assert "already exists" in run(*words, "--direction", "undirected").err
    for direction, links in (("symmetrise", 120), ("co_links", 0)):  # in a ring no two link to the same third
        found = run(*words, "--direction", direction, "--overwrite", "--json").json
        assert (found["links"], found["instances"], found["isolated"]) == (links, 120, 120 - links)
        assert open_links(tmp_path / "links.zarr").entries == 2 * links


def test_ingest_links_takes_limits(run, tmp_path: Path) -> None:
    words = ["ingest-links", links_file(tmp_path), tmp_path / "links.zarr"]
    said = run(*words, "--instances", "100", "--direction", "symmetrise")
    assert said.status == 3
    assert "the positions of the 100 instances are 0 to 99" in said.err
    said = run(*words, "--direction", "co_links", "--most-pairs", "200")
    assert said.status == 3
    assert "240 pairs" in said.err
    assert run(*words, "--instances", "100", "--data", "x.zarr").status == 2


def test_reorder_brings_linked_rows_together(run, store: Path, tmp_path: Path) -> None:
    words = ["reorder", store, links_file(tmp_path), tmp_path / "near.zarr", tmp_path / "links.zarr"]
    said = run(*words, "--direction", "undirected")
    assert said.status == 0, said.err
    assert ", now 2\n" in said.out
    order = zarr.open_group(tmp_path / "near.zarr", mode="r")["uns/original_position"][:]
    (old,), (new,) = (open_data(path).blocks for path in (store, tmp_path / "near.zarr"))
    np.testing.assert_array_equal(new.load(), old.load()[order])
    assert "already exists" in run(*words, "--direction", "undirected").err
    found = run(*words, "--direction", "undirected", "--overwrite", "--json").json
    assert found["largest_distance"][1] == 2
