"""No chunk of a foreign store is decoded by a codec that could run what is in it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anndata
import numcodecs
import numcodecs.pickles
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from zarr.codecs import numcodecs as zarr3

import dlatent
from dlatent import ingest, ingest_graph, open_data, open_graph, read_labels, reorder
from dlatent.errors import StoreError


class Canary:
    """Makes a directory when it is unpickled."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self._place,)


def as_of_old(patch: pytest.MonkeyPatch) -> None:
    """numcodecs before 0.16.6 runs pickles, and Zarr before 3.1 takes them for numbers too."""
    patch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    patch.setattr(
        "zarr.core.metadata.v2.get_object_codec_id",
        lambda codecs: "vlen-utf8" if {"id": "vlen-utf8"} in list(codecs) else None,
    )


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory that is there once a pickle has run; numcodecs and Zarr let them run here as older versions did."""
    as_of_old(monkeypatch)
    yield str(tmp_path / "canary")
    assert not (tmp_path / "canary").exists()


def poisoned(array: Path, canary: str) -> None:
    """Put a filter and a chunk of pickle in the place of those of a stored array (Zarr v2)."""
    described = json.loads((array / ".zarray").read_text())
    described |= {"filters": [*(described["filters"] or ()), {"id": "pickle", "protocol": 4}], "compressor": None}
    (array / ".zarray").write_text(json.dumps(described))
    for chunk in array.iterdir():
        if not chunk.name.startswith("."):
            chunk.write_bytes(numcodecs.Pickle().encode(Canary(canary)))


def annotated(path: Path, *, sparse: bool) -> Path:
    """An AnnData store of Zarr v2, as others write them, with labels, targets and a graph."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4))
    obs = pd.DataFrame({"kind": pd.Categorical(["a", "b"] * 6)}, index=[f"r{i}" for i in range(12)])
    made = anndata.AnnData(sp.csr_matrix(x) if sparse else x, obs)
    made.obsm["Y"] = rng.standard_normal((12, 2))
    ring = sp.csr_matrix(np.roll(np.eye(12), 1, axis=1) + np.roll(np.eye(12), -1, axis=1))
    made.obsp["graph"] = ring
    anndata.settings.zarr_write_format = 2
    made.write_zarr(path)
    return path


DOORS: dict[str, Callable[[Path, Path], Any]] = {
    "open": lambda store, out: [block.load() for block in open_data(store).blocks],
    "fit": lambda store, out: dlatent.PPCA(1).fit(store),
    "labels": lambda store, out: read_labels(store, "kind"),
    "targets": lambda store, out: read_labels(store, "Y"),
    "graph": lambda store, out: open_graph(store / "obsp" / "graph"),
    "ingest": lambda store, out: ingest(store, out, labels="kind"),
    "ingest_graph": lambda store, out: ingest_graph(store / "obsp" / "graph", out, data=store),
    "reorder": lambda store, out: reorder(store, store / "obsp" / "graph", out, out.with_suffix(".graph")),
}
READ_BY = {
    "X": ["open", "fit", "ingest", "reorder"],
    "X/data": ["open", "fit", "ingest", "reorder"],
    "X/indices": ["open", "fit", "ingest", "reorder"],
    "X/indptr": ["open", "fit", "ingest", "reorder"],
    "obs/_index": ["open", "ingest", "reorder"],
    "var/_index": ["open", "ingest", "reorder"],
    "obs/kind/codes": ["labels", "ingest", "reorder"],
    "obs/kind/categories": ["labels", "ingest", "reorder"],
    "obsm/Y": ["targets", "reorder"],
    "obsp/graph/data": ["graph", "ingest_graph", "reorder"],
    "obsp/graph/indices": ["graph", "ingest_graph", "reorder"],
    "obsp/graph/indptr": ["graph", "ingest_graph", "reorder"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(READ_BY))
def test_no_door_runs_the_pickle_of_a_foreign_store(tmp_path: Path, canary: str, name: str) -> None:
    store = annotated(tmp_path / "s.zarr", sparse=name.startswith("X/"))
    poisoned(store / name, canary)
    for door in READ_BY[name]:
        with pytest.raises(StoreError, match=rf"{name} is encoded by 'pickle', which .* trust the store.*"):
            DOORS[door](store, tmp_path / "out.zarr")
    assert sorted(os.listdir(tmp_path)) == ["s.zarr"]


def test_a_pickle_does_run_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of these tests works."""
    as_of_old(monkeypatch)
    store = annotated(tmp_path / "s.zarr", sparse=False)
    poisoned(store / "X", str(tmp_path / "canary"))
    with contextlib.suppress(Exception):
        zarr.open_array(store / "X", mode="r")[:]
    assert (tmp_path / "canary").exists()


def test_an_array_that_is_handed_over_is_checked_too(tmp_path: Path, canary: str) -> None:
    store = annotated(tmp_path / "s.zarr", sparse=False)
    poisoned(store / "X", canary)
    with pytest.raises(StoreError, match="'pickle'"):
        open_data(zarr.open_array(store / "X", mode="r"))


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
@pytest.mark.parametrize(
    "options",
    [
        {"filters": [zarr3.Delta(dtype="<f8")], "compressors": [zarr3.LZ4()]},
        {"filters": [zarr3.FixedScaleOffset(scale=10, offset=0, dtype="<f8", astype="<i4")]},
        {"filters": [zarr3.BitRound(keepbits=40)], "compressors": [zarr3.Zlib(), zarr3.CRC32C(location="end")]},
        {"compressors": [zarr.codecs.BloscCodec()]},
        {"compressors": [zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec()]},
        {"shards": (8, 4), "compressors": [zarr3.LZMA()], "filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    ],
)
def test_the_usual_codecs_are_read(tmp_path: Path, options: dict[str, Any]) -> None:
    x = np.round(np.random.default_rng(0).standard_normal((16, 4)), 1)
    made = zarr.create_array(tmp_path / "x.zarr", shape=x.shape, dtype="<f8", chunks=(4, 4), **options)
    made[:] = x
    np.testing.assert_allclose(
        np.vstack([block.load() for block in open_data(tmp_path / "x.zarr").blocks]), x, atol=1e-12
    )


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
def test_an_unknown_codec_inside_of_shards_is_refused(tmp_path: Path) -> None:
    class Homemade(zarr3.Zlib, codec_name="homemade"):  # type: ignore[call-arg, misc]
        """As one that somebody has registered with Zarr."""

    zarr.registry.register_codec("numcodecs.homemade", Homemade)
    zarr.create_array(
        tmp_path / "x.zarr", shape=(8, 4), dtype="<f8", chunks=(4, 4), shards=(8, 4), compressors=[zarr3.Zlib()]
    )
    path = tmp_path / "x.zarr" / "zarr.json"
    text = path.read_text()
    assert text.count('"numcodecs.zlib"') == 1
    path.write_text(text.replace('"numcodecs.zlib"', '"numcodecs.homemade"'))
    with pytest.raises(StoreError, match=r"x\.zarr is encoded by 'numcodecs\.homemade'"):
        open_data(path.parent)


def test_versions_that_run_pickles_are_not_installed() -> None:
    assert tuple(map(int, numcodecs.__version__.split(".")[:3])) >= (0, 16, 6)
