"""`verify` finds every damage that a reader would meet, and nothing where there is none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dlatent import PPCA, Callback, ingest, ingest_graph, rechunk, reorder, verify
from dlatent.cli.main import main
from dlatent.errors import StoreError
from dlatent.stores.checked import MissingChunks

X = np.random.default_rng(0).normal(size=(300, 12))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    np.save(folder / "x.npy", X)
    sp.save_npz(folder / "s.npz", sp.csr_array(X * (X > 0.5)))
    ingest([folder / "x.npy"], folder / "dense.zarr", block_bytes=3000)
    ingest([folder / "s.npz"], folder / "sparse.zarr", block_bytes=3000)
    (folder / "edges.csv").write_text("0,1\n1,2\n2,9\n")
    ingest_graph(folder / "edges.csv", folder / "graph.zarr", samples=10, direction="undirected")
    model = PPCA(2).fit(X, checkpoint=folder / "kept")
    model.save(folder / "model.zarr")
    names = ("dense.zarr", "sparse.zarr", "graph.zarr", "model.zarr", "kept")
    return {name: folder / name for name in names}


NAMES = ["dense.zarr", "sparse.zarr", "graph.zarr", "model.zarr", "kept"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_whole_is_whole(places: dict[str, Path], name: str) -> None:
    found = verify(places[name])
    assert found.intact, found.damages
    assert found.arrays > 0
    assert found.nbytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[:-1])
def test_every_file_that_is_lost_is_named(places: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Changed ones are by the tests of checksums; of a checkpoint the end may be lost."""
    there = [path for path in places[name].rglob("*") if path.is_file()]
    empty = {path for path in there if list(path.parent.iterdir()) == [path] and b'"group"' in path.read_bytes()}
    files = sorted(path.relative_to(places[name]) for path in there if path not in empty)
    for at in sorted(set(np.random.default_rng(0).integers(0, len(files), 25).tolist())):
        place = tmp_path / "copy"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(places[name], place)
        (place / files[at]).unlink()
        with contextlib.suppress(StoreError):  # of the metadata, without which nothing can be read
            found = verify(place)
            assert found.damages, files[at]
            assert all(str(place) in text for text in found.damages)


def test_the_command_ends_with_the_status_of_bad_data(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", places["model.zarr"]]) == 0
    assert "is whole" in capsys.readouterr().out
    shutil.copytree(places["dense.zarr"], tmp_path / "d.zarr")
    next(path for path in (tmp_path / "d.zarr").rglob("c/*/*") if path.is_file()).unlink()
    assert main(["verify", tmp_path / "d.zarr", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert not found["intact"]
    assert "lacks 1 of its" in found["damages"][0]
    assert main(["verify", tmp_path / "nothing.zarr"]) == 3


def test_stores_of_others_without_empty_chunks(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "z.zarr", shape=(20, 3), chunks=(5, 3), dtype="f8")
    array[:5] = 1.0
    assert not verify(tmp_path / "z.zarr").intact
    assert verify(tmp_path / "z.zarr", missing_chunks="fill").intact


def test_a_checkpoint_that_was_interrupted_is_whole(tmp_path: Path) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PPCA(2, solver="krylov").fit(X, checkpoint=tmp_path / "c", callbacks=[Callback(on_pass=stop)])
    assert verify(tmp_path / "c").intact


def test_a_half_written_store_is_not_whole(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.attrs["dlatent"] = {"kind": "scores", "version": 2, "complete": False}
    with pytest.raises(StoreError, match="half-written"):
        verify(tmp_path / "s.zarr")


def test_what_is_linked_is_there(places: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(places["dense.zarr"], tmp_path / "a.zarr")
    for member in ("X", "obs"):
        (tmp_path / "a.zarr" / member).rename(tmp_path / member)
        (tmp_path / "a.zarr" / member).symlink_to(tmp_path / member)
    (tmp_path / "a.zarr/README.txt").write_text("X is on the other disk")
    (tmp_path / "linked.zarr").symlink_to(tmp_path / "a.zarr")
    for place in (tmp_path / "a.zarr", tmp_path / "linked.zarr"):
        found = verify(place)
        assert found.damages == []
        assert found.arrays == verify(places["dense.zarr"]).arrays
        PPCA(1).fit(place)
    (tmp_path / "X/zarr.json").unlink()
    assert f"{tmp_path}/a.zarr/X: its metadata are lost; copy the store again" in verify(tmp_path / "a.zarr").damages


def test_links_may_lead_in_a_circle(places: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(places["dense.zarr"], tmp_path / "a.zarr")
    for name in ("back", "again"):
        (tmp_path / "a.zarr/X" / name).symlink_to(tmp_path / "a.zarr")
    assert verify(tmp_path / "a.zarr").damages == []


def rewritten(document: Path, **changes: object) -> None:
    document.write_text(json.dumps(json.loads(document.read_bytes()) | changes))


@pytest.mark.parametrize("missing_chunks", ["raise", "fill"])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((10**15, 10**15), (20, 5)), ((10**12, 5), (10, 5)), ((10**15, 5), (10**15, 5))]
)
def test_shapes_that_no_store_has_are_damage(
    tmp_path: Path, shape: tuple[int, int], chunks: tuple[int, int], missing_chunks: MissingChunks
) -> None:
    zarr.create_array(tmp_path / "z.zarr", shape=(20, 5), chunks=(20, 5), dtype="f8")
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    rewritten(tmp_path / "z.zarr/zarr.json", shape=shape, chunk_grid=grid)
    (damage,) = verify(tmp_path / "z.zarr", missing_chunks=missing_chunks).damages
    assert "z.zarr announces " in damage
    with pytest.raises(StoreError, match=r"z\.zarr announces "):
        rechunk(tmp_path / "z.zarr", tmp_path / "o.zarr", missing_chunks=missing_chunks)


def test_large_arrays_of_which_nothing_is_there_are_damage(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "z.zarr", shape=(20, 5), chunks=(20, 5), dtype="f8")
    for rows in (10**8, 10**5):
        rewritten(tmp_path / "z.zarr/zarr.json", shape=(rows, 5))
        (damage,) = verify(tmp_path / "z.zarr").damages
        assert "missing_chunks='fill'" in damage


DAMAGE = {
    "codecs of no kind": {"codecs": None},
    "a codec that nobody knows": {"codecs": [{"name": "gone", "configuration": {}}]},
    "attributes that are a number": {"attributes": 1.5},
    "no type": {"data_type": -1},
    "no shape": {"shape": None},
    "a negative shape": {"shape": [-1, 5]},
    "chunks of no kind": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": None}}},
    "no node": {"node_type": "x"},
    "no format": {"zarr_format": {}},
    "keys of no kind": {"chunk_key_encoding": True},
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("member", ["X", "var/_index", "obsm"])
def test_damaged_metadata_are_told_by_all_that_read_a_whole_store(
    places: dict[str, Path], tmp_path: Path, member: str, kind: str
) -> None:
    store = tmp_path / "a.zarr"
    shutil.copytree(places["dense.zarr"], store)
    rewritten(store / member / "zarr.json", **DAMAGE[kind])
    works = [
        lambda: verify(store),
        lambda: rechunk(store, tmp_path / "o.zarr"),
        lambda: reorder(store, [[0, 1]], tmp_path / "o.zarr", tmp_path / "g.zarr", direction="undirected"),
    ]
    for work in works:
        with contextlib.suppress(StoreError):  # what nobody has to know may be passed over
            work()
        shutil.rmtree(tmp_path / "o.zarr", ignore_errors=True)
        shutil.rmtree(tmp_path / "g.zarr", ignore_errors=True)
    assert os.listdir(tmp_path) == ["a.zarr"]
    if member == "X":
        with pytest.raises(StoreError, match=str(store)):
            rechunk(store, tmp_path / "o.zarr")


def test_chunks_of_no_length_are_told(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "z.zarr", shape=(20, 5), chunks=(20, 5), dtype="f8", zarr_format=2)
    rewritten(tmp_path / "z.zarr/.zarray", chunks=[0, 0])
    assert str(tmp_path / "z.zarr") in verify(tmp_path / "z.zarr").damages[0]
    with pytest.raises(StoreError, match=str(tmp_path / "z.zarr")):
        rechunk(tmp_path / "z.zarr", tmp_path / "o.zarr")
