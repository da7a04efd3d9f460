"""One flipped bit anywhere in a store or model that this library wrote is an error, or changes no number."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import dlatent
from dlatent import (
    PPCA,
    CorrespondenceLLE,
    CorrespondencePPCA,
    CorrespondenceSupervisedPPCA,
    FactorAnalysis,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
    ingest,
    ingest_graph,
    open_data,
    open_graph,
    read_labels,
    reorder,
    verify,
)
from dlatent.errors import DlatentError, StoreError
from dlatent.stores import results
from dlatent.stores.checkpoint import read_header
from dlatent.stores.checkpoint_codec import decode, fingerprint
from dlatent.stores.chunked import read_all
from dlatent.stores.nodes import open_node
from dlatent.stores.sinks import TileSink, open_tiles

FLIPS = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 7)) + 0.1 * RNG.normal(size=(60, 7))
Y = np.arange(60) % 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store of each kind that this library writes."""
    root = tmp_path_factory.mktemp("stores")
    np.save(root / "x.npy", X)
    np.save(root / "y.npy", Y)
    np.save(root / "outputs.npy", X[:, :2])
    sp.save_npz(root / "x.npz", sp.csr_array(np.where(X > 0, X, 0) + np.eye(60, 7)))
    (root / "y.txt").write_text("\n".join(np.array(["art", "law", "sea"])[Y]))
    ingest(root / "x.npz", root / "sparse.zarr", labels=str(root / "y.txt"))
    ingest(root / "x.npy", root / "dense.zarr", labels=str(root / "y.npy"))
    ingest(root / "x.npy", root / "outputs.zarr", labels=str(root / "outputs.npy"))
    chain = np.stack([np.arange(59), np.arange(1, 60)], axis=1)
    ingest_graph(chain, root / "graph.zarr", samples=60, direction="undirected")
    reorder(root / "dense.zarr", root / "graph.zarr", root / "near.zarr", root / "near_graph.zarr")
    tiles = TileSink.create(root / "tiles.zarr", [0, 30, 60], dtype="f8")
    for start, stop in ((0, 30), (30, 60)):
        tiles.write(start, start, (X @ X.T)[start:stop, start:])
    tiles.finish()
    PPCA(2).fit(X).save(root / "ppca.zarr")
    PPCA(2).fit(X).transform(X, out=root / "scores.zarr")
    FactorAnalysis(2).fit(X).save(root / "factors.zarr")
    SupervisedPPCA(2).fit(X, Y).save(root / "supervised.zarr")
    PPCAMixture(1, 2).fit(X).save(root / "mixture.zarr")
    RelationalPPCA(2).fit(X, graph=root / "graph.zarr").save(root / "relational.zarr")
    KernelPPCA(2).fit(X).save(root / "kernel.zarr")
    pairs = np.stack([np.arange(60)] * 2, axis=1)
    CorrespondencePPCA(2).fit({"a": X[:, :4], "b": X[:, 4:]}, correspondence=pairs).save(root / "views.zarr")
    LocallyLinearEmbedding(n_components=2).fit(X).save(root / "embedding.zarr")
    views = {"a": X[:, :4], "b": X[:, 4:]}
    CorrespondenceLLE(n_components=2).fit(views, correspondence=pairs).save(root / "joint.zarr")
    CorrespondenceSupervisedPPCA(2).fit(views, Y, correspondence=pairs).save(root / "views_targets.zarr")
    RelationalSupervisedPPCA(2).fit(X, X[:, :1], graph=root / "graph.zarr").save(root / "relational_targets.zarr")
    KernelSupervisedPPCA(2).fit(X, Y).save(root / "kernel_targets.zarr")
    lines = [",".join(["id", *"abcdefg", "place"])]
    lines += [f"s{number},{','.join(map(str, row))},p{number % 3}" for number, row in enumerate(X.tolist())]
    (root / "x.csv").write_text("\n".join(lines))
    ingest(root / "x.csv", root / "named.zarr", ids="id", labels="place")
    PPCA(2, solver="krylov").fit(X, checkpoint=root / "checkpoint.zarr")
    return root


def of_data(path: Path) -> list[Any]:
    source, node = open_data(path), open_node(path)
    rows: list[Any] = [block.load() for block in source.blocks]
    found = [source.shape, [part.toarray() if sp.issparse(part) else part for part in rows]]
    found += [source.labels.samples, source.labels.features]
    if isinstance(node, zarr.Group) and "obs" in node:
        columns: Any = node["obs"].attrs["column-order"]
        found += [read_labels(path, column) for column in columns]
        found += [read_labels(path, "Y")] if "obsm/Y" in node else []
        found += [read_all(node["uns/original_position"])] if "uns/original_position" in node else []  # type: ignore[arg-type]
    return found


def of_graph(path: Path) -> list[Any]:
    graph = open_graph(path)
    return [graph.samples, graph.entries, graph.notes, graph.rows.load(0, graph.samples).toarray()]


def of_tiles(path: Path) -> list[Any]:
    return [block.load() for block in open_tiles(path).blocks]


def of_model(path: Path) -> list[Any]:
    stored = results.load(path)
    dlatent.load(path)
    named = [(name, variable.dims, variable.values) for name, variable in sorted(stored.variables.items())]
    return [stored.kind, json.dumps(dict(stored.attributes), sort_keys=True), named]


def of_checkpoint(path: Path) -> list[Any]:
    """What a fit that goes on would recall."""
    files = sorted(path.glob("*.npz"))
    return [read_header(path), *(fingerprint(decode(file.read_bytes(), str(file))) for file in files)]


KINDS: dict[str, Callable[[Path], list[Any]]] = dict.fromkeys(
    ("sparse", "dense", "outputs", "near", "scores", "named"), of_data
)  # fmt: skip
KINDS |= {"graph": of_graph, "near_graph": of_graph, "tiles": of_tiles, "checkpoint": of_checkpoint}
MODELS = ("ppca", "factors", "supervised", "mixture", "relational", "kernel", "views", "embedding", "joint")
KINDS |= dict.fromkeys((*MODELS, "views_targets", "relational_targets", "kernel_targets"), of_model)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        equal = left.dtype == right.dtype and left.shape == right.shape
        return equal and (
            left.tolist() == right.tolist() if left.dtype == object else left.tobytes() == right.tobytes()
        )
    return bool(left == right)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit(kind: str, folder: Path) -> None:
    path, read, draw = folder / f"{kind}.zarr", KINDS[kind], random.Random(kind)
    expected = read(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    sizes = [file.stat().st_size for file in files]
    for number in range(FLIPS):
        # By turns any file, and any byte of all: small files say what the others are.
        (file,) = [draw.choice(files)] if number % 2 else draw.choices(files, sizes)
        whole, at = file.read_bytes(), draw.randrange(8 * file.stat().st_size)
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        file.write_bytes(damaged)
        found: Any = None
        try:
            found, verified = _or_error(read, path), _or_error(verify, path)
        finally:
            file.write_bytes(whole)
        refused = isinstance(found, DlatentError) and str(path) in str(found)
        assert refused or same(found, expected), f"bit {at} of {file.relative_to(path)} gives {found}"
        seen = not isinstance(verified, dlatent.VerifyReport) or not verified.intact
        assert seen or not refused, f"bit {at} of {file.relative_to(path)}: {found}, which verify does not see"
    assert same(read(path), expected)


def _or_error(call: Callable[[Path], Any], path: Path) -> Any:
    try:
        return call(path)
    except DlatentError as error:
        return error


def test_a_flipped_bit_of_a_chunk_names_store_and_chunk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    ingest(tmp_path / "x.npy", tmp_path / "dense.zarr")
    chunk = tmp_path / "dense.zarr" / "X" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:100] + bytes([whole[100] ^ 4]) + whole[101:])
    with pytest.raises(StoreError, match=r"dense\.zarr/X: cannot read rows 0:60 \(chunk c/0/0\): .*checksum"):
        of_data(tmp_path / "dense.zarr")


@pytest.mark.slow
def test_every_chain_of_codecs_ends_in_a_checksum(folder: Path) -> None:
    for kind in KINDS.keys() - {"checkpoint"}:
        for name, array in zarr.open_group(folder / f"{kind}.zarr", mode="r").members(max_depth=None):
            if isinstance(array, zarr.Array):
                assert type(array.metadata.codecs[-1]).__name__ == "Crc32cCodec", f"{kind} {name}"  # type: ignore[union-attr]


def test_stores_without_checksums_open(tmp_path: Path) -> None:
    """As they were written before, and as other programs write them."""
    group = zarr.create_group(
        tmp_path / "x.zarr", attributes={"dlatent": {"kind": "matrix", "version": 1, "complete": True}}
    )
    group.create_array("x", data=X, chunks=(20, 7), attributes={"all_chunks_written": True})
    np.testing.assert_array_equal(np.concatenate(of_data(tmp_path / "x.zarr")[1]), X)
