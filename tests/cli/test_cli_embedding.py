"""Saved embeddings at the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

from dlatent import LocallyLinearEmbedding


def embedded(store: Path, place: Path) -> LocallyLinearEmbedding:
    model = LocallyLinearEmbedding(n_neighbors=10, disconnected="keep").fit(store)
    model.save(place)
    return model


def test_inspect_tells_of_an_embedding(run, store: Path, tmp_path: Path) -> None:
    model = embedded(store, tmp_path / "lle.zarr")
    found = run("inspect", tmp_path / "lle.zarr", "--json").json
    assert found["samples"] == len(model.embedding_)
    assert found["eigenvalues"] == model.eigenvalues_.tolist()
    assert found["views"] == [{"view": "X", "samples": 120, "features": model.n_features_in_, "kept": True}]
    said = run("inspect", tmp_path / "lle.zarr")
    assert said.status == 0
    assert "a fitted LocallyLinearEmbedding" in said.out
    assert "10 of each sample" in said.out


def test_transform_writes_places_of_new_rows(run, store: Path, tmp_path: Path) -> None:
    model = embedded(store, tmp_path / "lle.zarr")
    assert run("transform", tmp_path / "lle.zarr", store, "-o", tmp_path / "places.zarr").status == 0
    places = np.asarray(zarr.open_array(tmp_path / "places.zarr" / "scores", mode="r")[...])
    np.testing.assert_array_equal(places, model.transform(store))
