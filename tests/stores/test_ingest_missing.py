"""Ingest of tables with missing values: refused unless they are to be kept as NaN."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent import PPCA, DataError, ingest, open_data
from dlatent.cli.main import main

TEXT = "a,b,c\n1,2,3\n4,,6\n7,8.5,\n"
VALUES = np.array([[1, 2, 3], [4, np.nan, 6], [7, 8.5, np.nan]])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TEXT)
    return path


def test_empty_fields_are_kept_as_nan_where_asked(table, tmp_path):
    with pytest.raises(DataError, match="missing='nan'"):
        ingest(table, tmp_path / "x.zarr")
    ingest(table, tmp_path / "x.zarr", missing="nan")
    source = open_data(tmp_path / "x.zarr")
    np.testing.assert_array_equal(np.vstack([block.load() for block in source.blocks]), VALUES)


def test_infinite_values_are_refused_all_the_same(tmp_path):
    np.save(tmp_path / "x.npy", np.where(np.isnan(VALUES), np.inf, VALUES))
    with pytest.raises(DataError, match="the value is inf"):
        ingest(tmp_path / "x.npy", tmp_path / "x.zarr", missing="nan")


def test_weights_and_lengths_need_all_values(table, tmp_path):
    for options in ({"weighting": "tfidf"}, {"unit_norm": True}):
        with pytest.raises(DataError, match="cannot be weighted or scaled"):
            ingest(table, tmp_path / "x.zarr", missing="nan", **options)
    with pytest.raises(DataError, match="missing is 'maybe'"):
        ingest(table, tmp_path / "x.zarr", missing="maybe")


def test_from_a_table_with_gaps_to_a_filled_store(tmp_path):
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((80, 1)) @ rng.standard_normal((1, 5)) + 0.1 * rng.standard_normal((80, 5))
    x = np.where(rng.random(whole.shape) < 0.2, np.nan, whole)
    lines = [",".join("abcde"), *(",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in x)]
    (tmp_path / "gaps.csv").write_text("\n".join(lines) + "\n")
    data, model, out = (str(tmp_path / name) for name in ("gaps.zarr", "model.zarr", "filled.zarr"))
    assert main(["ingest", str(tmp_path / "gaps.csv"), data, "--missing", "nan", "--quiet"]) == 0
    assert main(["fit", "ppca", data, "-k", "1", "--missing", "nan", "-o", model, "--quiet"]) == 0
    assert main(["impute", model, data, "-o", out, "--json"]) == 0
    assert main(["impute", model, data, "-o", str(tmp_path / "spread.zarr"), "--variance"]) == 0
    filled = np.vstack([block.load() for block in open_data(out).blocks])
    np.testing.assert_allclose(filled, PPCA(1, missing="nan").fit(x).impute(x), atol=1e-6)
    assert np.abs(filled - whole)[np.isnan(x)].mean() < 0.5
