import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from ingest_checks import counts, matrix, names

from dlatent import ingest, read_labels
from dlatent.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")


@pytest.fixture
def annotated():
    x = counts(70, 11)
    index = [f"cell{i}" for i in range(70)]
    kinds = pd.Categorical([None if i == 4 else "ba"[i % 2] for i in range(70)])
    obs = pd.DataFrame({"kind": kinds, "depth": np.arange(70) / 3, "batch": ["u", "v"] * 35}, index=index)
    return anndata.AnnData(x, obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(11)]))


def write(annotated, folder, kind):
    path = folder / f"a.{kind}"
    annotated.write_h5ad(path) if kind == "h5ad" else annotated.write_zarr(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
@pytest.mark.parametrize("layout", [sp.csr_array, sp.csc_array, lambda x: x.toarray()])
@pytest.mark.parametrize("block_bytes", [300, 1 << 25])
def test_every_layout_of_x(annotated, tmp_path, kind, layout, block_bytes):
    expected = annotated.X.toarray()
    annotated.X = layout(annotated.X)
    path = write(annotated, tmp_path, kind)
    report = ingest(path, tmp_path / "b.zarr", labels="kind", block_bytes=block_bytes)
    np.testing.assert_array_equal(matrix(tmp_path / "b.zarr"), expected)
    labels = list(read_labels(tmp_path / "b.zarr"))
    assert labels == [None if i == 4 else "ba"[i % 2] for i in range(70)]
    assert names(tmp_path / "b.zarr", "obs") == annotated.obs_names.tolist()
    assert names(tmp_path / "b.zarr", "var") == annotated.var_names.tolist()
    assert report.label_column == "kind"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_numeric_and_text_columns(annotated, tmp_path, kind):
    path = write(annotated, tmp_path, kind)
    ingest(path, tmp_path / "b.zarr", labels="depth")
    np.testing.assert_array_equal(read_labels(tmp_path / "b.zarr"), np.arange(70) / 3)
    ingest(path, tmp_path / "c.zarr", labels="batch")
    assert list(read_labels(tmp_path / "c.zarr")) == ["u", "v"] * 35
    with pytest.raises(DataError, match="has no obs column 'sort'; it has batch, depth, kind"):
        ingest(path, tmp_path / "d.zarr", labels="sort")


def test_our_own_store_is_a_source_again(annotated, tmp_path):
    ingest(write(annotated, tmp_path, "h5ad"), tmp_path / "b.zarr", labels="kind")
    ingest(tmp_path / "b.zarr", tmp_path / "c.zarr", labels="kind", unit_norm=True)
    np.testing.assert_allclose(np.linalg.norm(matrix(tmp_path / "c.zarr"), axis=1), 1, rtol=1e-15)


def test_sources_that_cannot_be_used(tmp_path):
    (tmp_path / "a.h5ad").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"a\.h5ad is no readable h5ad"):
        ingest(tmp_path / "a.h5ad", tmp_path / "b.zarr")
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("counts", shape=(3, 3), dtype="f8")
    with pytest.raises(DataError, match=r"g\.zarr holds no matrix X; it has counts"):
        ingest(tmp_path / "g.zarr", tmp_path / "b.zarr")
    with pytest.raises(DataError, match=r"none\.zarr"):
        ingest(tmp_path / "none.zarr", tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()
