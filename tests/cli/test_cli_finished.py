"""What is run again when its store is whole, and its checkpoint not yet gone, and what is none of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import dlatent
from dlatent.stores.checkpoint import discard
from tests.cli.conftest import Run
from tests.cli.test_cli_places import digest


def test_a_store_of_other_work_is_not_replaced(run: Run, store: Path, model: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "out.zarr", tmp_path / "kept"
    shutil.copytree(model, out)
    before = digest(out)
    dlatent.PPCA(2).fit(store, checkpoint=kept)
    said = run("fit", "ppca", store, "-k", "2", "-o", out, "--checkpoint", kept, "--resume")
    assert (said.status, "already exists" in said.err, digest(out)) == (3, True, before)


def test_python_saves_the_same_fit_again(store: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "out.zarr", tmp_path / "kept"
    for _ in range(2):  # the second is the script that is run again, as its checkpoint was still there
        model = dlatent.PPCA(2).fit(store, checkpoint=kept, resume=True)
        model.save(out)
    discard(kept)
    assert np.array_equal(dlatent.load(out).components_, model.components_)
    with pytest.raises(dlatent.errors.StoreError, match="already exists"):
        dlatent.PPCA(2).fit(store, checkpoint=kept).save(out)


def test_a_checkpoint_is_no_folder_of_other_archives(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    np.savez(tmp_path / "kept" / "x.npz", X=np.eye(4))
    np.savez(tmp_path / "kept" / "zero.npz", X=np.eye(4))
    before = digest(tmp_path)
    with pytest.raises(dlatent.errors.StoreError, match="is no checkpoint"):
        dlatent.PPCA(1).fit(np.random.default_rng(0).normal(size=(9, 3)), checkpoint=tmp_path / "kept", resume=True)
    assert digest(tmp_path) == before
