import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import anndata
import fsspec
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from ingest_checks import counts, matrix, names
from sklearn.datasets import dump_svmlight_file

import dlatent.stores.ingest.arrays
import dlatent.stores.ingest.matrices
import dlatent.stores.ingest.writer
import dlatent.stores.sparse
from dlatent import ingest, open_data
from dlatent.errors import DataError, StoreError


@pytest.fixture
def rows(tmp_path):
    dump_svmlight_file(counts(4000), np.arange(4000) % 3, str(tmp_path / "a.svm"), zero_based=False)
    return tmp_path / "a.svm"


@pytest.mark.parametrize("weighting", ["none", "tfidf"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_ingest_leaves_nothing_and_keeps_the_old_store(rows, tmp_path, weighting, error):
    np.save(tmp_path / "old.npy", np.ones((2, 2)))
    ingest(tmp_path / "old.npy", tmp_path / "a.zarr")

    def stop(done, total, count):
        if count > 500:
            raise error

    before = sorted(tmp_path.iterdir())
    with pytest.raises(error):
        ingest(rows, tmp_path / "a.zarr", weighting=weighting, overwrite=True, block_bytes=1, progress=stop)
    with pytest.raises(error):
        ingest(rows, tmp_path / "b.zarr", weighting=weighting, block_bytes=1, progress=stop)
    assert sorted(tmp_path.iterdir()) == before
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr"), np.ones((2, 2)))


def test_a_half_written_store_is_no_source(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((20, 2)))
    ingest(tmp_path / "a.npy", tmp_path / "a.zarr")
    root = zarr.open_group(tmp_path / "a.zarr", mode="r+")
    root.attrs["dlatent"] = {**root.attrs["dlatent"], "complete": False}
    with pytest.raises(StoreError, match="is a half-written store"):
        ingest(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()


def test_the_store_opens_by_our_door_and_by_anndata(rows, tmp_path):
    ingest(rows, tmp_path / "a.zarr", weighting="tfidf", dtype="float32")
    marker = zarr.open_group(tmp_path / "a.zarr", mode="r").attrs["dlatent"]
    assert (marker["kind"], marker["complete"], marker["weighting"]) == ("data", True, "tfidf")
    assert marker["sources"] == ["a.svm"]
    source, read = open_data(tmp_path / "a.zarr"), anndata.read_zarr(tmp_path / "a.zarr")
    assert source.shape == read.shape == (4000, 23)
    assert source.sparse
    assert source.dtype == np.float32
    blocks = sp.vstack([block.load() for block in source.blocks])
    np.testing.assert_array_equal(blocks.toarray(), read.X.toarray())
    assert source.labels.features.tolist() == read.var_names.tolist() == names(tmp_path / "a.zarr", "var")
    assert read.obs["label"].tolist() == [i % 3 for i in range(4000)]


def test_dense_chunks_are_row_blocks_of_the_size_asked_for(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(1000, 16)))
    ingest(tmp_path / "a.npy", tmp_path / "a.zarr", block_bytes=300 * 16 * 8)
    stored = zarr.open_group(tmp_path / "a.zarr", mode="r")["X"]
    assert stored.chunks == (300, 16)
    np.testing.assert_array_equal(stored[:], np.load(tmp_path / "a.npy"))
    assert anndata.read_zarr(tmp_path / "a.zarr").shape == (1000, 16)


def test_progress_grows_to_the_size_of_the_file(rows, tmp_path):
    seen = []
    report = ingest(rows, tmp_path / "a.zarr", block_bytes=1, progress=lambda *state: seen.append(state))
    done, total, count = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert set(total) == {rows.stat().st_size} == {done[-1]} == {report.bytes_read}
    assert count[-1] == 4000
    assert len(seen) > 2
    assert report.seconds > 0
    assert report.bytes_written > 0


def test_urls_as_source_and_destination(rows):
    fsspec.filesystem("memory").pipe("/ingest/a.svm", rows.read_bytes())
    report = ingest("memory://ingest/a.svm", "memory://ingest/a.zarr", overwrite=True)
    assert report.bytes_written is None
    assert open_data("memory://ingest/a.zarr").shape == (4000, 23)


@pytest.mark.parametrize("kind", ["npz", "parquet", "csv"])
def test_urls_of_every_format_that_is_read_as_a_stream(tmp_path, kind):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), columns=list("abc"))
    path = tmp_path / f"a.{kind}"
    writers = {"npz": lambda: np.savez(path, X=frame.to_numpy()), "csv": lambda: frame.to_csv(path, index=False)}
    writers.get(kind, lambda: frame.to_parquet(path))()
    fsspec.filesystem("memory").pipe(f"/ingest/a.{kind}", path.read_bytes())
    report = ingest(f"memory://ingest/a.{kind}", tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix(tmp_path / "a.zarr").astype(np.float32), frame)
    assert report.dtype == ("float64" if kind == "csv" else "float32")


def test_sources_that_make_no_matrix(rows, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    destination = tmp_path / "a.zarr"
    for source, message in (
        ([], "no source file"),
        ([rows, tmp_path / "a.npy"], "different formats"),
        ([tmp_path / "a.npy"] * 2, "several files at once are read for svmlight, csv, parquet only"),
        (tmp_path / "a.what", r"extension '\.what' says nothing about the format; give format="),
        (tmp_path / "a.nc", r"a\.nc is a netCDF file, which a fit reads as it is; name the dimension .*dim='time'"),
    ):
        with pytest.raises(DataError, match=message):
            ingest(source, destination)
    with pytest.raises(DataError, match="'topic' is no file, and svmlight has no named labels"):
        ingest(rows, destination, labels="topic")


def write_text(path, rows):
    pairs = " ".join(f"{index}:{value:.8f}" for index, value in enumerate(np.linspace(0, 1, 50), start=1))
    path.write_text(f"1 {pairs}\n" * rows)


def write_coordinates(path, rows):
    scipy.io.mmwrite(path, sp.random_array((rows, 200), density=0.25, rng=0).tocsc())


def write_parts(path, rows):
    sp.save_npz(path, sp.random_array((rows, 200), density=0.25, format="csr", rng=0))


def write_columns(path, rows):
    sp.save_npz(path, sp.random_array((rows, 200), density=0.25, format="csc", rng=0))


def write_dense(path, rows):
    np.save(path, np.random.default_rng(0).normal(size=(rows, 50)))


def peak_bytes(path, store, **options):
    """The peak of what Python allocates in an ingest, and the bytes of the matrix."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    report = ingest(path, store, overwrite=True, **options)
    return tracemalloc.get_traced_memory()[1] - before, report.nnz * 12


def peaks(path, write, options):
    """For three sizes of a matrix; the first warms up.  For a process of its own, where nothing else allocates."""
    # The chunks of a sparse store are a fixed part of the memory; small ones let small files show the law.
    dlatent.stores.sparse.CHUNK_ELEMENTS = 1 << 13
    dlatent.stores.ingest.writer.NAMES_PER_CHUNK = 1 << 8
    dlatent.stores.ingest.matrices.PIECE = dlatent.stores.ingest.arrays.PIECE = 1 << 14
    tracemalloc.start()
    sizes = []
    for rows in (100, 1500, 14000):
        write(path, rows)
        sizes.append(peak_bytes(path, path.with_name("a.zarr"), block_bytes=1 << 17, **options))
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "options"),
    [
        ("a.svm", write_text, {"weighting": "tfidf", "unit_norm": True}),
        ("a.mtx", write_coordinates, {}),
        ("a.npz", write_parts, {}),
        ("a.npz", write_columns, {}),
        ("a.npy", write_dense, {"unit_norm": True}),
    ],
)
def test_memory_does_not_grow_with_the_matrix(tmp_path, name, write, options):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        _, (small, _), (large, matrix_bytes) = alone.submit(peaks, tmp_path / name, write, options).result()
    assert large - small < 0.15 * matrix_bytes
    assert large < 0.7 * matrix_bytes
